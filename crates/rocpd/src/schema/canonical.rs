//! The views over the existing tables, as SQL statements.
//!
//! The caller says which tables and columns exist; views that cannot be created are left out.

use super::shape::Shape;
use super::union::quoted;
use super::views::VIEWS;
use super::views_by_track::VIEWS_BY_TRACK;

/// A view to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Name of the view.
    pub name: &'static str,
    /// The query alone.
    pub select: String,
    /// `CREATE VIEW …`, without a semicolon.
    pub sql: String,
}

/// Returns the views of rocprofv3's schema over the given tables, each after those it reads.
///
/// `present` tells whether a table, named without suffix, has a column. A view is omitted if a
/// table or key it needs is missing; a missing column of a later version is omitted, any other is
/// NULL, so that names and order stay the same. Tables of schema 4 (`track_id` in place of nid, pid
/// and tid) have other views.
pub fn canonical_views(present: &dyn Fn(&str, &str) -> bool) -> Vec<View> {
    let shapes = if present("rocpd_region", "track_id") { VIEWS_BY_TRACK } else { VIEWS };
    let mut views: Vec<View> = Vec::new();
    for shape in shapes {
        let select = match shape {
            Shape::Joined(joined) => joined.select(present),
            Shape::Over { tables, query, .. } => all_there(tables, &views, present).then(|| (*query).to_owned()),
        };
        if let Some(select) = select {
            let name = shape.name();
            let sql = format!("CREATE VIEW {} AS {select}", quoted(name));
            views.push(View { name, select, sql });
        }
    }
    views
}

/// Whether all tables have their column and all views have been made.
fn all_there(tables: &[(&str, &str)], views: &[View], present: &dyn Fn(&str, &str) -> bool) -> bool {
    tables.iter().all(|(table, column)| match *column {
        "" => views.iter().any(|view| view.name == *table),
        column => present(table, column),
    })
}
