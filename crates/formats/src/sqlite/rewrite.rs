//! Writes one database as another with its times on a new clock: the steps that formats share.
//!
//! An implausible time is copied unchanged, and is counted.

use std::panic::resume_unwind;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::access::{Readable, wrong};
use super::copy::{MoveRow, WrongRow};
use super::metadata;
use super::output::{NewDatabase, refuse_annotations};
use super::table::{Index, Table};
use crate::model::{PS_PER_NS, Picoseconds, nearest_ns};
use crate::{Error, MapFunction, RewriteOptions, RewriteStats};

/// A database that is being rewritten: the input is attached as `src` to the output's connection.
pub(crate) struct Rewriting<'a> {
    readable: Readable,
    new: NewDatabase,
    input: &'a Path,
    options: &'a RewriteOptions<'a>,
    bytes_read: u64,
}

impl<'a> Rewriting<'a> {
    /// Opens both databases.
    ///
    /// # Errors
    /// One cannot be opened; or corrections are to be written, for which there is no column.
    pub(crate) fn begin(
        input: &'a Path,
        output: &Path,
        options: &'a RewriteOptions<'a>,
    ) -> Result<Rewriting<'a>, Error> {
        refuse_annotations(options.annotate)?;
        let readable = Readable::find(input)?;
        let bytes_read = std::fs::metadata(input).map_err(Error::io(input, "look at"))?.len();
        let new = NewDatabase::create(output, &readable)?;
        new.copying.attach(&readable, input)?;
        new.copying.connection().execute_batch("BEGIN").map_err(|problem| wrong(output, "writing it", &problem))?;
        Ok(Rewriting { readable, new, input, options, bytes_read })
    }

    /// Returns the connection of both databases.
    pub(crate) fn connection(&self) -> &Connection {
        self.new.copying.connection()
    }

    /// Copies tables, then indexes, with the times moved by `moving`. The input's integrity is checked
    /// meanwhile, so its catalog must be known: generated columns would run.
    ///
    /// # Errors
    /// Names file, table and row.
    pub(crate) fn copy(
        &mut self,
        tables: &[Table],
        indexes: &[Index],
        moving: &mut MovePlausible<'_, '_>,
    ) -> Result<RewriteStats, Error> {
        let Self { readable, new, input, .. } = self;
        copy_while_checking(readable, || {
            let mut stats = RewriteStats::default();
            for table in tables {
                let of_table = new.copying.table(input, table, moving)?;
                stats.events += of_table.events;
                stats.untimed += of_table.untimed;
            }
            if moving.kept > 0 {
                stats
                    .notes
                    .push(format!("{} implausible times were not moved: their cells are unchanged", moving.kept));
            }
            indexes.iter().try_for_each(|index| new.copying.index(input, index))?;
            Ok(stats)
        })
    }

    /// Creates a view as the attached input defines it.
    pub(crate) fn view(&mut self, view: &Index) -> Result<(), Error> {
        self.new.copying.view(self.input, view)
    }

    /// Completes the output: `close` makes the last changes before the statements of the alignment are
    /// written.
    ///
    /// # Errors
    /// Errors of SQLite; the output is not as expected.
    pub(crate) fn finish<T>(
        self,
        mut stats: RewriteStats,
        close: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<(RewriteStats, T), Error> {
        let Self { new, input, options, bytes_read, .. } = self;
        let close = |connection: &Connection| -> rusqlite::Result<T> {
            let closed = close(connection)?;
            metadata::write(connection, options.metadata)?;
            connection.execute_batch("COMMIT")?;
            Ok(closed)
        };
        let closed = new.copying.sequences().and_then(|()| close(new.copying.connection()));
        let closed = closed.map_err(|problem| wrong(new.path(), "writing it", &problem))?;
        new.copying.detach(input)?;
        let (bytes_written, dangling) = new.finish()?;
        stats.notes.extend(dangling);
        Ok((RewriteStats { bytes_read, bytes_written, ..stats }, closed))
    }
}

/// Runs `copy` while another thread checks the input: reading rows does not reveal all damage, and
/// what is written is valid in itself.
///
/// # Errors
/// Returns those of `copy`; the input is damaged.
pub(crate) fn copy_while_checking<T>(readable: &Readable, copy: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let whole = scope.spawn(|| readable.expect_whole());
        let copied = copy()?;
        whole.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(copied)
    })
}

/// The rule by which the plausible times of all tables are moved, and the others kept.
pub(crate) struct MovePlausible<'a, 'b> {
    /// Time of zero before and after, ns.
    from_ns: i64,
    to_ns: i64,
    /// First and last plausible time, as in the file.
    bounds: (i64, i64),
    /// Number of implausible times.
    kept: u64,
    map: &'a mut MapFunction<'b>,
}

impl<'a, 'b> MovePlausible<'a, 'b> {
    /// Creates the rule for times that count from `from_ns` before, and from `to_ns` afterwards.
    pub(crate) fn new(
        (from_ns, to_ns): (i64, i64),
        bounds: (i64, i64),
        map: &'a mut MapFunction<'b>,
    ) -> MovePlausible<'a, 'b> {
        MovePlausible { from_ns, to_ns, bounds, kept: 0, map }
    }

    /// Returns the new time; `None` for an implausible one.
    fn moved(&mut self, old: i64) -> Option<i64> {
        let (first, last) = self.bounds;
        if !(first..=last).contains(&old) {
            return None;
        }
        let absolute = Picoseconds::from(self.from_ns) + Picoseconds::from(old);
        nearest_ns((self.map)(absolute * PS_PER_NS))?.checked_sub(self.to_ns)
    }
}

impl MoveRow for MovePlausible<'_, '_> {
    fn take(
        &mut self,
        row: &Row<'_>,
        table: &Table,
        times: &mut Vec<(i64, i64)>,
    ) -> rusqlite::Result<Result<bool, WrongRow>> {
        let mut is_timed = false;
        for (number, at) in table.times.iter().enumerate() {
            let old = match row.get_ref(number + 1)? {
                ValueRef::Null => continue,
                ValueRef::Integer(old) => old,
                other => {
                    let found = other.data_type().to_string().to_lowercase();
                    return Ok(Err(WrongRow {
                        column: Some(*at),
                        problem: format!("contains {found} instead of a time in ns"),
                    }));
                }
            };
            let new = self.moved(old);
            self.kept += u64::from(new.is_none());
            is_timed |= new.is_some();
            times.push((old, new.unwrap_or(old)));
        }
        Ok(Ok(is_timed))
    }
}
