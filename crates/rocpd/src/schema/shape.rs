//! Translates the shape of a view into SQL: which tables it reads, how they are joined, and which
//! columns it returns.
//!
//! Two rules apply to every view here, so that no shape can forget them: each join includes the
//! condition on the guid, and columns that the existing tables lack are never named.

use super::union::quoted;

/// How a view is built.
pub(super) enum Shape {
    /// By joins on ids.
    Joined(Joined),
    /// By a query of its own over tables, each with a column it needs, or over views (without
    /// column).
    Over { name: &'static str, tables: &'static [(&'static str, &'static str)], query: &'static str },
}

/// Tables joined on ids and guid.
pub(super) struct Joined {
    pub name: &'static str,
    /// The first is not joined to another; its guid is that of the row.
    pub sources: &'static [Source],
    /// Separated by commas: `alias.column`, or an expression `AS name`. Prefix `?`: only if its
    /// columns exist, or with `?table.column:` if that column exists. `@alias.column AS name`: the
    /// text with that id in `rocpd_string`. `{alias.column}$.path AS name`: a value in JSON.
    pub columns: &'static str,
    /// Clauses after the joins; omitted if their columns are missing.
    pub tail: &'static [&'static str],
}

/// A table in a view.
pub(super) struct Source {
    alias: &'static str,
    table: &'static str,
    on: &'static str,
    optional: bool,
}

/// The table whose rows a view returns.
pub(super) const fn of(alias: &'static str, table: &'static str) -> Source {
    Source { alias, table, on: "", optional: false }
}

/// A table in which every row must have a match.
pub(super) const fn inner(alias: &'static str, table: &'static str, on: &'static str) -> Source {
    Source { alias, table, on, optional: false }
}

/// A table in which a row may have a match.
pub(super) const fn left(alias: &'static str, table: &'static str, on: &'static str) -> Source {
    Source { alias, table, on, optional: true }
}

impl Shape {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Joined(joined) => joined.name,
            Self::Over { name, .. } => name,
        }
    }
}

impl Joined {
    /// Returns the query, or `None` if a table or key it needs is missing.
    pub fn select(&self, present: &dyn Fn(&str, &str) -> bool) -> Option<String> {
        let root = self.sources.first()?;
        let there = |expression: &str| self.columns_of(expression).all(|(table, column)| present(table, column));
        let mut from = format!("{} {}", quoted(root.table), root.alias);
        for source in self.sources {
            if !present(source.table, "guid") || !there(source.on) {
                if source.optional {
                    continue;
                }
                return None;
            }
            if !source.on.is_empty() {
                from += &source.join(root.alias);
            }
        }
        let mut columns = Vec::new();
        for column in self.columns.split(", ") {
            match (column.strip_prefix('?'), there(column)) {
                (Some(later), true) => match later.split_once(": ") {
                    Some((condition, column)) => {
                        let (table, with) = condition.split_once('.')?;
                        columns.extend(present(table, with).then(|| expression(column, root.alias)));
                    }
                    None => columns.push(expression(later, root.alias)),
                },
                (Some(_), false) => {}
                (None, true) => columns.push(expression(column, root.alias)),
                (None, false) => columns.push(format!("NULL AS {}", quoted(name_of(column)))),
            }
        }
        let tail: String = self.tail.iter().filter(|part| there(part)).map(|part| format!(" {part}")).collect();
        Some(format!("SELECT {} FROM {from}{tail}", columns.join(", ")))
    }

    /// Tables and columns that an expression names by alias.
    fn columns_of<'a>(&'a self, expression: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        let pairs = words.filter_map(|word| word.split_once('.'));
        pairs.filter_map(|(alias, column)| {
            let source = self.sources.iter().find(|source| source.alias == alias)?;
            Some((source.table, column))
        })
    }
}

impl Source {
    fn join(&self, root: &str) -> String {
        let Self { alias, on, .. } = self;
        let kind = if self.optional { "LEFT" } else { "INNER" };
        format!(" {kind} JOIN {} {alias} ON {on} AND {alias}.guid = {root}.guid", quoted(self.table))
    }
}

/// A column of a view as SQL.
fn expression(column: &str, root: &str) -> String {
    let (value, name) = column.rsplit_once(" AS ").unwrap_or((column, name_of(column)));
    let name = quoted(name);
    if let Some(id) = value.strip_prefix('@') {
        return format!(
            "(SELECT RS.string FROM \"rocpd_string\" RS WHERE RS.id = {id} AND RS.guid = {root}.guid) AS {name}"
        );
    }
    match value.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
        // json_valid: the column of a compressed database is a blob, which would end the whole
        // query.
        Some((json, path)) => {
            format!("CASE WHEN json_valid({json}) THEN json_extract({json}, '{path}') END AS {name}")
        }
        // `end` is a word of SQL.
        None => format!("{} AS {name}", value.replace(".end", ".\"end\"")),
    }
}

/// The name of a column of a view.
fn name_of(column: &str) -> &str {
    let after = column.rsplit_once(" AS ").map_or(column, |(_, name)| name);
    after.rsplit_once('.').map_or(after, |(_, name)| name)
}
