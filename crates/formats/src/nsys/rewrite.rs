//! Writes an export with its times on another clock.
//!
//! The start of the session moves to the new clock, with its two texts, and every other time is
//! written as the distance from there: start plus time is the mapped time, to the nanosecond. An
//! implausible time is copied unchanged, and is counted.

use std::path::Path;

use rusqlite::{Connection, params};

use super::catalog::{Catalog, EPOCH, EPOCHS, SESSION, Session};
use super::reading::bounds;
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, nearest_ns};
use crate::sqlite::rewrite::{MovePlausible, Rewriting};
use crate::sqlite::table::quoted;
use crate::{MapFunction, RewriteOptions, RewriteStats};

/// Writes `input` to `output`.
///
/// # Errors
/// Names file, table and row.
pub(super) fn rewrite(
    input: &Path,
    output: &Path,
    options: &RewriteOptions<'_>,
    map: &mut MapFunction<'_>,
) -> Result<RewriteStats, Error> {
    let mut rewriting = Rewriting::begin(input, output, options)?;
    let catalog = Catalog::read(rewriting.connection(), "src", input)?;
    catalog.aligned.refuse_second(input, options.metadata, "the export of the report")?;
    let session = catalog.session;
    let start_ns = new_start(input, &session, map)?;
    let moved = Session { start_ns, ..session };
    let mut moving = MovePlausible::new((session.origin_ns(), moved.origin_ns()), bounds(&session, options.reach), map);
    let stats = rewriting.copy(&catalog.tables, &catalog.indexes, &mut moving)?;
    let (mut stats, unmoved) = rewriting.finish(stats, |connection| move_start(connection, &session, start_ns))?;
    stats.notes.extend(unmoved.into_iter().map(|column| {
        format!(
            "{SESSION}.{column} still states the original start: it does not have the form that the profiler writes"
        )
    }));
    stats.notes.extend(catalog.notes());
    if let Some(view) = catalog.views.first() {
        stats.notes.push(format!(
            "dropped {} views, which the profiler does not write (the first is {view})",
            catalog.views.len()
        ));
    }
    Ok(RewriteStats { base_ns: Some(start_ns), ..stats })
}

/// Returns the start of the session on the new clock, ns.
fn new_start(input: &Path, session: &Session, map: &mut MapFunction<'_>) -> Result<i64, Error> {
    let start_ns =
        nearest_ns(map(Picoseconds::from(session.start_ns) * PS_PER_NS)).filter(|start| EPOCHS.contains(start));
    start_ns.ok_or_else(|| {
        let problem =
            format!("{SESSION}.{EPOCH}: {} ns exceeds the range of times on the common clock", session.start_ns);
        Error::Database { path: input.to_owned(), problem }
    })
}

/// Writes the new start, and moves the texts of the old one if they have the profiler's format.
/// Returns the columns of those that do not.
fn move_start(connection: &Connection, session: &Session, start_ns: i64) -> rusqlite::Result<Vec<&'static str>> {
    let [old_s, new_s] = [session.start_ns, start_ns].map(|ns| ns.div_euclid(1_000_000_000));
    let columns = |name: &str| {
        let sql = "SELECT count(*) FROM pragma_table_info(?1, 'main') WHERE name = ?2";
        connection.query_row(sql, [SESSION, name], |row| row.get::<_, i64>(0)).map(|count| count > 0)
    };
    let table = quoted(SESSION);
    connection.execute(&format!("UPDATE main.{table} SET {} = ?1", quoted(EPOCH)), [start_ns])?;
    let mut unmoved = Vec::new();
    if new_s == old_s {
        return Ok(unmoved);
    }
    if columns("utcTime")? {
        let sql = format!(
            "UPDATE main.{table} SET utcTime = strftime('{FORM}', ?2, 'unixepoch') WHERE utcTime = strftime('{FORM}', ?1, 'unixepoch')"
        );
        unmoved.extend((connection.execute(&sql, params![old_s, new_s])? == 0).then_some("utcTime"));
    }
    if columns("localTime")? {
        let sql = format!(
            "UPDATE main.{table} SET localTime = strftime('{FORM}', localTime, ?1 || ' seconds') \
             WHERE localTime = strftime('{FORM}', localTime)"
        );
        unmoved.extend((connection.execute(&sql, [new_s - old_s])? == 0).then_some("localTime"));
    }
    Ok(unmoved)
}

/// Format of the profiler's texts, for SQLite.
const FORM: &str = "%Y-%m-%dT%H:%M:%S";
