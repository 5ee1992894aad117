//! A trace that is being read: its tables, and the times and texts in them. Tables are read without
//! the file's indexes, because a damaged index would hide rows.

use super::catalog::{ARGUMENT, Catalog, STRING};
use crate::Error;
use crate::model::{Reach, Spread};
use crate::sqlite::query;
use crate::sqlite::table::{Table, quoted};
use crate::sqlite::times::{RowTimes, Times, count_times};

/// A trace being read.
pub(super) type Database<'a> = query::Database<'a, Catalog>;

impl<'a> Database<'a> {
    /// Returns an expression for the text whose id is in a column of the table `t`; NULL without one.
    pub(super) fn text(&self, table: &Table, column: &str) -> String {
        let texts = if column == "args_id" { self.arguments() } else { self.catalog.table(STRING) };
        match texts {
            Some(texts) if table.has(column) => {
                format!("(SELECT string FROM {} NOT INDEXED WHERE id = t.{})", quoted(&texts.name), quoted(column))
            }
            _ => "NULL".to_owned(),
        }
    }

    /// Returns the table of the arguments' texts.
    pub(super) fn arguments(&self) -> Option<&'a Table> {
        self.catalog.table(ARGUMENT).or_else(|| self.catalog.table(STRING))
    }

    /// Reads the first and last time of a table, and how many rows have one.
    ///
    /// # Errors
    /// A cell contains neither a time nor NULL.
    pub(super) fn times(&self, table: &Table, reach: Option<Reach>) -> Result<Times, Error> {
        let column =
            |name: &str| table.times.iter().any(|at| table.columns[*at] == name).then(|| table.column("t", name));
        let end = column("end");
        let start = column("start").or_else(|| end.clone()).unwrap_or_else(|| "NULL".to_owned());
        RowTimes { table, start, end, bounds: bounds(reach), origin_ns: 0 }.read(self.source())
    }

    /// Counts the plausible times of a table, in groups.
    pub(super) fn spread(&self, table: &Table, spread: &mut Spread) -> Result<(), Error> {
        let (first, last) = bounds(None);
        count_times(self.source(), table, (&format!("time BETWEEN {first} AND {last}"), 0), spread)
    }
}

/// Returns the first and last plausible time, ns. The tracer writes 0 for a time that it does not know.
pub(super) fn bounds(reach: Option<Reach>) -> (i64, i64) {
    reach.map_or((1, LATEST_NS), |reach| {
        let (first, last) = reach.bounds_ns();
        (first.max(1), last.min(LATEST_NS))
    })
}

/// No clock of a machine has counted so far, ns: 146 years.
const LATEST_NS: i64 = 1 << 62;
