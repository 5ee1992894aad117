//! Writes an export with its times on another clock.
//!
//! The start of the session moves to the new clock, with its two texts, and every other time is
//! written as the distance from there: start plus time is the mapped time, to the nanosecond. An
//! implausible time is copied unchanged, and is counted.

use std::panic::resume_unwind;
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::catalog::{Catalog, EPOCH, EPOCHS, OWN, SESSION, Session};
use super::reading::bounds;
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, nearest_ns};
use crate::sqlite::access::{Readable, wrong};
use crate::sqlite::copy::{MoveRow, WrongRow};
use crate::sqlite::output::{NewDatabase, refuse_annotations};
use crate::sqlite::table::{Table, quoted};
use crate::{ALIGNED_TO, MapFunction, RewriteOptions, RewriteStats};

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
    refuse_annotations(options.annotate)?;
    let readable = Readable::find(input)?;
    let bytes_read = std::fs::metadata(input).map_err(Error::io(input, "look at"))?.len();
    let mut new = NewDatabase::create(output, &readable)?;
    new.copying.attach(&readable, input)?;
    new.copying.connection().execute_batch("BEGIN").map_err(|problem| wrong(output, "writing it", &problem))?;
    let catalog = Catalog::read(new.copying.connection(), "src", input)?;
    refuse_second(input, &catalog, options.metadata)?;
    // Not before it is known that no column is computed.
    let (mut stats, start_ns) = std::thread::scope(|scope| {
        let whole = scope.spawn(|| readable.expect_whole());
        let copied = copy(&mut new, input, &catalog, options, map)?;
        whole.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok::<_, Error>(copied)
    })?;
    let close = |connection: &Connection| -> rusqlite::Result<Vec<&str>> {
        let unmoved = move_start(connection, &catalog.session, start_ns)?;
        state(connection, options.metadata)?;
        connection.execute_batch("COMMIT")?;
        Ok(unmoved)
    };
    let closed = new.copying.sequences().and_then(|()| close(new.copying.connection()));
    let unmoved = closed.map_err(|problem| wrong(new.path(), "writing it", &problem))?;
    stats.notes.extend(unmoved.into_iter().map(|column| {
        format!(
            "{SESSION}.{column} still states the original start: it does not have the form that the profiler writes"
        )
    }));
    new.copying.detach(input)?;
    let (bytes_written, dangling) = new.finish()?;
    stats.notes.extend(catalog.notes().into_iter().chain(dangling));
    if let Some(view) = catalog.views.first() {
        stats.notes.push(format!(
            "dropped {} views, which the profiler does not write (the first is {view})",
            catalog.views.len()
        ));
    }
    Ok(RewriteStats { bytes_read, bytes_written, base_ns: Some(start_ns), ..stats })
}

/// Copies tables and indexes, and returns the new start of the session.
fn copy(
    new: &mut NewDatabase,
    input: &Path,
    catalog: &Catalog,
    options: &RewriteOptions<'_>,
    map: &mut MapFunction<'_>,
) -> Result<(RewriteStats, i64), Error> {
    let session = catalog.session;
    let start_ns =
        nearest_ns(map(Picoseconds::from(session.start_ns) * PS_PER_NS)).filter(|start| EPOCHS.contains(start));
    let start_ns = start_ns.ok_or_else(|| {
        let problem =
            format!("{SESSION}.{EPOCH}: {} ns exceeds the range of times on the common clock", session.start_ns);
        Error::Database { path: input.to_owned(), problem }
    })?;
    let moved = Session { start_ns, ..session };
    let bounds = bounds(&session, options.reach);
    let mut moving = Moving { from_ns: session.origin_ns(), to_ns: moved.origin_ns(), bounds, kept: 0, map };
    let mut stats = RewriteStats::default();
    for table in &catalog.tables {
        let of_table = new.copying.table(input, table, &mut moving)?;
        stats.events += of_table.events;
        stats.untimed += of_table.untimed;
    }
    if moving.kept > 0 {
        stats.notes.push(format!("{} implausible times were not moved: their cells are unchanged", moving.kept));
    }
    for index in &catalog.indexes {
        new.copying.index(input, index)?;
    }
    Ok((stats, start_ns))
}

/// Refuses to align a database twice.
fn refuse_second(input: &Path, catalog: &Catalog, metadata: &[(String, String)]) -> Result<(), Error> {
    match &catalog.aligned_to {
        Some(clock) if metadata.iter().any(|(name, _)| name == ALIGNED_TO) => {
            let problem = format!("is already aligned, to the {clock}; give the export of the report");
            Err(Error::Database { path: input.to_owned(), problem })
        }
        _ => Ok(()),
    }
}

/// The rule by which the times of all tables are moved.
struct Moving<'a, 'b> {
    /// Unix time of zero before and after, ns.
    from_ns: i64,
    to_ns: i64,
    /// Plausible times, from the start.
    bounds: (i64, i64),
    /// Number of implausible times, which are not moved.
    kept: u64,
    map: &'a mut MapFunction<'b>,
}

impl MoveRow for Moving<'_, '_> {
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

impl Moving<'_, '_> {
    /// Returns the new distance from the start; `None` for an implausible time.
    fn moved(&mut self, old: i64) -> Option<i64> {
        let (first, last) = self.bounds;
        if !(first..=last).contains(&old) {
            return None;
        }
        let absolute = Picoseconds::from(self.from_ns) + Picoseconds::from(old);
        nearest_ns((self.map)(absolute * PS_PER_NS))?.checked_sub(self.to_ns)
    }
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

/// Writes the alignment's metadata into a separate table, so that the profiler's tables stay
/// unchanged.
fn state(connection: &Connection, metadata: &[(String, String)]) -> rusqlite::Result<()> {
    if metadata.is_empty() {
        return Ok(());
    }
    let table = quoted(OWN);
    connection.execute_batch(&format!("CREATE TABLE IF NOT EXISTS main.{table} (name TEXT NOT NULL, value TEXT)"))?;
    let mut insert = connection.prepare(&format!("INSERT INTO main.{table} (name, value) VALUES (?1, ?2)"))?;
    metadata.iter().try_for_each(|(name, value)| insert.execute(params![name, value]).map(drop))
}

/// Format of the profiler's texts, for SQLite.
const FORM: &str = "%Y-%m-%dT%H:%M:%S";
