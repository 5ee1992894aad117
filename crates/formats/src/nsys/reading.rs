//! An export that is being read: its tables, and the times in them.

use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::catalog::{Catalog, EPOCHS, STRINGS, Session};
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, Reach, Spread};
use crate::sqlite::query::{Problem, each};
use crate::sqlite::table::{Table, quoted};

/// An export being read.
pub(super) struct Database<'a> {
    pub(super) path: &'a Path,
    pub(super) connection: &'a Connection,
    pub(super) catalog: &'a Catalog,
}

/// Times of a table, absolute.
#[derive(Default)]
pub(super) struct Times {
    pub(super) rows: u64,
    pub(super) span: Option<(Picoseconds, Picoseconds)>,
    /// Rows with an implausible time.
    pub(super) away: u64,
    /// Rows that end before they begin.
    pub(super) backwards: u64,
}

impl Times {
    /// Takes a time into the span.
    pub(super) fn add(&mut self, time_ps: Picoseconds) {
        let (first, last) = self.span.unwrap_or((time_ps, time_ps));
        self.span = Some((first.min(time_ps), last.max(time_ps)));
    }
}

impl Database<'_> {
    /// Runs a statement and passes on its rows; errors name `table`.
    pub(super) fn each(
        &self,
        table: &str,
        statement: &str,
        take: &mut dyn FnMut(&Row<'_>) -> Result<(), Problem>,
    ) -> Result<(), Error> {
        each((self.connection, self.path), table, statement, take)
    }

    /// Converts a time of the file to Unix time.
    pub(super) fn absolute_ps(&self, ns: i64) -> Picoseconds {
        (Picoseconds::from(self.catalog.session.origin_ns()) + Picoseconds::from(ns)) * PS_PER_NS
    }

    /// Returns an expression for the text whose id is in a column of the table `t`; NULL without one.
    pub(super) fn name(&self, table: &Table, column: &str) -> String {
        match self.catalog.table(STRINGS) {
            Some(strings) if table.has(column) => {
                format!("(SELECT value FROM {} WHERE id = t.{})", quoted(&strings.name), quoted(column))
            }
            _ => "NULL".to_owned(),
        }
    }

    /// Returns the first time of a row `t`, for a statement, and its end if it has one. In the table
    /// [`ZERO_IS_NONE`] a time of 0 is read as NULL.
    pub(super) fn ends(table: &Table) -> (String, Option<String>) {
        let of = |names: &[&str]| {
            let known = names.iter().find(|name| table.times.iter().any(|at| table.columns[*at] == **name));
            known.map(|name| format!("t.{}", quoted(name)))
        };
        let (start, end) = (of(&["start", "timestamp", "startedAt", "openedAt"]), of(&["end", "endedAt", "closedAt"]));
        let start = start.or_else(|| end.clone()).unwrap_or_else(|| "NULL".to_owned());
        (if table.name == ZERO_IS_NONE { format!("nullif({start}, 0)") } else { start }, end)
    }

    /// Reads the first and last time of a table, and how many rows have one.
    ///
    /// # Errors
    /// A cell contains neither a time nor NULL.
    pub(super) fn times(&self, table: &Table, reach: Option<Reach>) -> Result<Times, Error> {
        let bounds = bounds(&self.catalog.session, reach);
        match self.plain_times(table, bounds)? {
            Some(times) => Ok(times),
            None => self.mixed_times(table, bounds),
        }
    }

    /// Reads the times of a table in which all are plausible; `None` if some are not. It takes a
    /// fraction of the time of [`Self::mixed_times`].
    fn plain_times(&self, table: &Table, (first, last): (i64, i64)) -> Result<Option<Times>, Error> {
        let (start, end) = Self::ends(table);
        let end = end.unwrap_or_else(|| "NULL".to_owned());
        let statement = format!(
            "SELECT count({start}), total(typeof({start}) = 'real' OR typeof({end}) = 'real' OR {end} < {start}), \
             min({start}), max({start}), min({end}), max({end}) FROM {} t NOT INDEXED",
            quoted(&table.name)
        );
        let mut found = None;
        self.each(&table.name, &statement, &mut |row| {
            let mut times = Times { rows: row.get::<_, i64>(0)?.unsigned_abs(), ..Times::default() };
            let mut all = row.get::<_, f64>(1)? == 0.0;
            // Text and bytes are greater than all numbers.
            for at in 2..=5 {
                match row.get_ref(at)? {
                    ValueRef::Null => {}
                    ValueRef::Integer(ns) if (first..=last).contains(&ns) => times.add(self.absolute_ps(ns)),
                    _ => all = false,
                }
            }
            found = Some(times).filter(|_| all);
            Ok(())
        })?;
        Ok(found)
    }

    /// Reads the times of any table.
    fn mixed_times(&self, table: &Table, (first, last): (i64, i64)) -> Result<Times, Error> {
        let (start, end) = Self::ends(table);
        let end = end.unwrap_or_else(|| start.clone());
        let away = format!(
            "coalesce({start} NOT BETWEEN {first} AND {last}, 0) OR coalesce({end} NOT BETWEEN {first} AND {last}, 0)"
        );
        let backwards = format!("coalesce({end} < {start}, 0)");
        let columns = table
            .times
            .iter()
            .map(|at| format!("typeof(t.{}) NOT IN ('integer', 'null')", quoted(&table.columns[*at])));
        let wrong = columns.collect::<Vec<_>>().join(" OR ");
        let statement = format!(
            "SELECT min(CASE WHEN {wrong} THEN {row} END), total({start} IS NOT NULL AND NOT ({away})), \
             min(CASE WHEN NOT ({away}) THEN {start} END), max(CASE WHEN NOT ({away}) THEN max({start}, coalesce({end}, {start})) END), \
             total({away}), total(NOT ({away}) AND {backwards}) FROM {name} t NOT INDEXED",
            row = if table.rowid.is_some() { table.row("t") } else { "0".to_owned() },
            name = quoted(&table.name),
        );
        let (mut times, mut wrong_at) = (Times::default(), None);
        self.each(&table.name, &statement, &mut |row| {
            wrong_at = row.get::<_, Option<i64>>(0)?;
            if wrong_at.is_none() {
                times.rows = row.get::<_, f64>(1)? as u64;
                for at in [2, 3] {
                    row.get::<_, Option<i64>>(at)?.into_iter().for_each(|ns| times.add(self.absolute_ps(ns)));
                }
                (times.away, times.backwards) = (row.get::<_, f64>(4)? as u64, row.get::<_, f64>(5)? as u64);
            }
            Ok(())
        })?;
        match wrong_at {
            None => Ok(times),
            Some(at) => Err(self.no_time(table, at)),
        }
    }

    /// Counts the plausible times of a table, in groups.
    pub(super) fn spread(&self, table: &Table, spread: &mut Spread) -> Result<(), Error> {
        let (first, last) = bounds(&self.catalog.session, None);
        let but_zero = if table.name == ZERO_IS_NONE { "AND time <> 0" } else { "" };
        for at in &table.times {
            let statement = format!(
                "SELECT min(time), max(time), count(*) FROM (SELECT {} AS time FROM {} NOT INDEXED) \
                 WHERE typeof(time) = 'integer' AND time BETWEEN {first} AND {last} {but_zero} \
                 GROUP BY time / {BUCKET_NS} LIMIT {BUCKETS_MAX}",
                quoted(&table.columns[*at]),
                quoted(&table.name)
            );
            self.each(&table.name, &statement, &mut |row| {
                let [first, last] = [self.absolute_ps(row.get(0)?), self.absolute_ps(row.get(1)?)];
                spread.add_many(first, last, row.get::<_, i64>(2)?.unsigned_abs());
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns the refusal of a row that holds something else in place of a time.
    fn no_time(&self, table: &Table, at: i64) -> Error {
        let names: Vec<&str> = table.times.iter().map(|column| table.columns[*column].as_str()).collect();
        let problem = format!(
            "the table {}, row {at}: {} must contain whole numbers of nanoseconds, but one does not; correct the row in a copy of the file",
            table.name,
            names.join(", ")
        );
        Error::Database { path: self.path.to_owned(), problem }
    }
}

/// Returns the first and last plausible time of a file, ns. Among Unix times 0 and −1 are implausible:
/// they stand in place of a time.
pub(super) fn bounds(session: &Session, reach: Option<Reach>) -> (i64, i64) {
    let widest = if session.is_normalized { (EPOCHS.start, EPOCHS.end - 1) } else { (-FARTHEST_NS, FARTHEST_NS) };
    reach.map_or(widest, |reach| {
        let (first, last) = reach.bounds_ns();
        let [first, last] = [first, last].map(|ns| ns.saturating_sub(session.origin_ns()));
        (first.max(widest.0), last.min(widest.1))
    })
}

/// Largest plausible distance of a time from the origin, ns: 146 years.
const FARTHEST_NS: i64 = 1 << 62;
/// The table in which a time of 0 means that none was collected.
const ZERO_IS_NONE: &str = "CUPTI_ACTIVITY_KIND_CUDA_EVENT";
/// Width of the groups in which times are counted, ns: about a quarter of an hour.
const BUCKET_NS: i64 = 1_000_000_000_000;
/// Most groups of a table that are examined.
const BUCKETS_MAX: usize = 1 << 17;
