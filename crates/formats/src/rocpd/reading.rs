//! A database that is being read: its rows by writer and base name, and the times of its tables.
//!
//! A column that a version lacks reads as NULL. Tables are read without the file's indexes, because
//! a damaged index would hide rows and `quick_check` does not compare the two.

use std::collections::HashSet;

use rusqlite::Row;

use super::catalog::{Catalog, Table, Writer, quoted};
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, Reach};
use crate::sqlite::access::wrong;
use crate::sqlite::query;
pub(super) use crate::sqlite::query::Problem;
use crate::sqlite::times::{Times, no_time};

/// A database being read.
pub(super) type Database<'a> = query::Database<'a, Catalog>;

/// Rows of a table whose times are on a clock that is behind that of the others.
#[derive(Clone, Debug)]
pub(super) struct Behind {
    /// For a row `t`: 1 if it is behind, 0 if it is not, NULL if nothing tells.
    pub(super) is_behind: String,
    /// By how much, ns.
    pub(super) by_ns: i64,
}

impl<'a> Database<'a> {
    /// A writer's table of this base name.
    pub(super) fn table(&self, writer: &Writer, base: &str) -> Option<&'a Table> {
        self.catalog.tables.iter().find(|table| table.base == base && table.suffix == writer.suffix)
    }

    /// An SQLite error about a table.
    pub(super) fn wrong(&self, table: &str, problem: &rusqlite::Error) -> Error {
        wrong(self.path, &format!("reading the table {table}"), problem)
    }

    /// Passes on a writer's rows: number and columns, NULL for those that the table lacks; none if
    /// there is no such table.
    pub(super) fn rows(
        &self,
        writer: &Writer,
        base: &str,
        columns: &[&str],
        take: &mut dyn FnMut(&Row<'_>) -> Result<(), Problem>,
    ) -> Result<(), Error> {
        let Some(table) = self.table(writer, base) else { return Ok(()) };
        let columns: Vec<String> = columns.iter().map(|column| table.column("t", column)).collect();
        let statement =
            format!("SELECT {}, {} FROM {} t NOT INDEXED", table.row("t"), columns.join(", "), quoted(&table.name));
        self.each(&table.name, &statement, take)
    }

    /// The times of a table, those of `except` and those beyond `reach` left out of the span; rows
    /// that are behind the others are brought to their clock.
    pub(super) fn times(
        &self,
        table: &Table,
        except: Option<&HashSet<i64>>,
        behind: Option<&Behind>,
        reach: Option<Reach>,
    ) -> Result<Times, Error> {
        let columns: Vec<String> = table.times.iter().map(|at| format!("t.{}", quoted(&table.columns[*at]))).collect();
        let row = table.row("t");
        let wrong = each(&columns, "typeof(?) NOT IN ('integer', 'null')").join(" OR ");
        let set = each(&columns, "coalesce(?, 0) <> 0").join(" OR ");
        let backwards = table.backwards("t");
        let away = reach.map_or_else(
            || "0".to_owned(),
            |reach| {
                let (first, last) = reach.bounds_ns();
                each(&columns, &format!("coalesce(? <> 0 AND ? NOT BETWEEN {first} AND {last}, 0)")).join(" OR ")
            },
        );
        let columns: Vec<String> = columns.iter().map(|column| brought_up(column, behind)).collect();
        let columns: Vec<String> = match away.as_str() {
            "0" => columns,
            away => each(&columns, &format!("(CASE WHEN NOT ({away}) THEN ? END)")),
        };
        let (first, last) =
            (each(&columns, "min(nullif(?, 0))").join(", "), each(&columns, "max(nullif(?, 0))").join(", "));
        let statement = format!(
            "SELECT min(CASE WHEN {wrong} THEN {row} END), sum(({set}) AND NOT ({away})), {first}, {last}, total({away}), total({backwards}) FROM {} t NOT INDEXED",
            quoted(&table.name)
        );
        let (mut times, mut wrong_at) = (Times::default(), None);
        self.each(&table.name, &statement, &mut |found| {
            wrong_at = found.get::<_, Option<i64>>(0)?;
            if wrong_at.is_none() {
                times.rows = found.get::<_, Option<i64>>(1)?.unwrap_or(0).unsigned_abs();
                let of_times = 2 * columns.len();
                for at in 0..of_times {
                    add(&mut times, found.get(at + 2)?);
                }
                (times.away, times.backwards) =
                    (found.get::<_, f64>(of_times + 2)? as u64, found.get::<_, f64>(of_times + 3)? as u64);
            }
            Ok(())
        })?;
        if let Some(at) = wrong_at {
            return Err(no_time(self.path, table, at));
        }
        if let Some(except) = except.filter(|except| !except.is_empty()) {
            times.span = None;
            let statement = format!("SELECT {row}, {} FROM {} t NOT INDEXED", columns.join(", "), quoted(&table.name));
            self.each(&table.name, &statement, &mut |found| {
                if !except.contains(&found.get(0)?) {
                    for at in 0..columns.len() {
                        add(&mut times, found.get::<_, Option<i64>>(at + 1)?.filter(|time| *time != 0));
                    }
                }
                Ok(())
            })?;
        }
        Ok(times)
    }
}

/// Takes a time that is set into the span.
fn add(times: &mut Times, ns: Option<i64>) {
    ns.into_iter().for_each(|ns| times.add(Picoseconds::from(ns) * PS_PER_NS));
}

/// A form of words for each of these columns.
fn each(columns: &[String], form: &str) -> Vec<String> {
    columns.iter().map(|column| form.replace('?', column)).collect()
}

/// A time of a row that may be behind, as a statement; 0 and NULL stay.
pub(super) fn brought_up(time: &str, behind: Option<&Behind>) -> String {
    let Some(Behind { is_behind, by_ns }) = behind else { return time.to_owned() };
    format!("({time} + CASE WHEN {time} <> 0 THEN coalesce({is_behind}, 0) * {by_ns} ELSE 0 END)")
}

impl Table {
    /// Whether a row that the statement knows by this name ends before it begins.
    pub(super) fn backwards(&self, name: &str) -> String {
        let [start, end] = ["start", "end"].map(|column| self.column(name, column));
        if start == "NULL" || end == "NULL" {
            return "0".to_owned();
        }
        format!("coalesce({start} <> 0 AND {end} <> 0 AND {end} < {start}, 0)")
    }
}

/// How a row `t` finds its event: a join, the column of the event with this name, and the number of
/// rows per event.
///
/// If the number is the key of the table of events, an event is one row. Otherwise events are
/// grouped first: an event with several rows gets no value.
pub(super) fn join_event(table: &Table, event: &Table, column: &str) -> [String; 3] {
    if event.is_numbered_by_id() {
        let guid = if table.has(GUID) && event.has(GUID) { "AND e.\"guid\" = t.\"guid\"" } else { "" };
        let join =
            format!("LEFT JOIN {} e ON e.\"id\" = {} {guid}", quoted(&event.name), table.column("t", "event_id"));
        return [join, event.column("e", column), "1".to_owned()];
    }
    let message =
        format!("CASE WHEN count(*) = 1 THEN max({}) END AS message, count(*) AS amount", event.column("o", column));
    let join = format!("LEFT JOIN {}", join_one((table, "event_id"), (event, "id"), "e", &message));
    [join, "e.message".to_owned(), "e.amount".to_owned()]
}

/// The text after JOIN for which each row `t` finds at most one row: those of `other`, named `o` in
/// `values`, grouped by number, and by guid if both have one, since numbers repeat in merged files.
/// A join of the tables themselves would result in as many rows as the product of those with the
/// same number. Both sides are cast: SQLite then finds groups by an automatic index, whatever types
/// a file declares for these columns.
pub(super) fn join_one(
    (table, number): (&Table, &str),
    (other, key): (&Table, &str),
    name: &str,
    values: &str,
) -> String {
    let guid = table.has(GUID) && other.has(GUID);
    let of =
        |alias: &str| if guid { format!("CAST({alias}.\"guid\" AS TEXT) COLLATE BINARY") } else { "''".to_owned() };
    format!(
        "(SELECT CAST({} AS INTEGER) AS id, {} AS guid, {values} FROM {} o NOT INDEXED GROUP BY 1, 2) {name} \
         ON {name}.id = CAST({} AS INTEGER) AND {name}.guid = {}",
        other.column("o", key),
        of("o"),
        quoted(&other.name),
        table.column("t", number),
        of("t"),
    )
}

pub(super) const REGION: &str = "rocpd_region";
pub(super) const STRING: &str = "rocpd_string";
pub(super) const GUID: &str = "guid";
