//! An export that is being read: its tables, and the times in them.

use super::catalog::{Catalog, EPOCHS, STRINGS, Session};
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, Reach, Spread};
use crate::sqlite::query;
use crate::sqlite::table::{Table, quoted};
use crate::sqlite::times::{RowTimes, Times, count_times};

/// An export being read.
pub(super) type Database<'a> = query::Database<'a, Catalog>;

impl Database<'_> {
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
        let session = &self.catalog.session;
        let (start, end) = Self::ends(table);
        let bounds = bounds(session, reach);
        RowTimes { table, start, end, bounds, origin_ns: session.origin_ns() }.read(self.source())
    }

    /// Counts the plausible times of a table, in groups.
    pub(super) fn spread(&self, table: &Table, spread: &mut Spread) -> Result<(), Error> {
        let (first, last) = bounds(&self.catalog.session, None);
        let but_zero = if table.name == ZERO_IS_NONE { "AND time <> 0" } else { "" };
        let believed = format!("time BETWEEN {first} AND {last} {but_zero}");
        count_times(self.source(), table, (&believed, self.catalog.session.origin_ns()), spread)
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
