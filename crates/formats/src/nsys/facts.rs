//! The facts of an export: host and rank, span, clock markers, steps and collectives.
//!
//! Its times are on the node's system clock: the session states its start there, once, and counts on
//! from it. The events of the profiler itself and raw samples of other clocks are not part of the
//! span.

use std::path::Path;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::catalog::{Catalog, STRINGS};
use super::collectives;
use super::identity;
use super::reading::{Database, bounds};
use crate::Error;
use crate::FactOptions;
use crate::marker::Stamps;
use crate::model::{LeftOut, Oddity, PS_PER_NS, Reach, Spread, TraceClock, TraceFacts};
use crate::sqlite::access::Readable;
use crate::sqlite::names::Names;
use crate::sqlite::table::{Table, quoted};
use crate::sqlite::times::{Times, without_far_rows};

/// Reads the facts of an export.
///
/// # Errors
/// Names file, table and row.
pub(super) fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let readable = Readable::find(path)?;
    let connection = readable.connect()?;
    let catalog = Catalog::read(&connection, "main", path)?;
    // Looking through all rows computes generated columns: not before it is known that there are
    // none.
    if options.thorough {
        readable.expect_whole()?;
    }
    let database = Database { path, connection: &connection, catalog: &catalog };
    without_far_rows(|reach| of_database(&database, options, reach), || spread(&database))
}

/// Distribution of the times of all events.
fn spread(database: &Database<'_>) -> Result<Spread, Error> {
    let mut spread = Spread::default();
    for table in of_events(database.catalog) {
        database.spread(table, &mut spread)?;
    }
    Ok(spread)
}

/// Tables of the program's events.
fn of_events(catalog: &Catalog) -> impl Iterator<Item = &Table> {
    catalog.tables.iter().filter(|table| !(table.times.is_empty() || OF_PROFILER.contains(&table.name.as_str())))
}

fn of_database(database: &Database<'_>, options: &FactOptions, reach: Option<Reach>) -> Result<TraceFacts, Error> {
    let catalog = database.catalog;
    let mut facts = TraceFacts { reach, clock: TraceClock::System, ..TraceFacts::default() };
    facts.base_ns = Some(catalog.session.start_ns);
    (facts.aligned_to, facts.aligned_sigma_ns) = (catalog.aligned.to.clone(), catalog.aligned.sigma_ns);
    if !catalog.version.is_empty() {
        facts.notes.push(format!("exported by Nsight Systems {}", catalog.version));
    }
    facts.notes.extend(catalog.notes());
    let is_of_several = identity::read(database, &mut facts)?;
    let mut left_out = LeftOut::default();
    for table in of_events(catalog) {
        let times = match table.name.as_str() {
            NVTX => ranges(database, table, options, &mut facts)?,
            _ => database.times(table, reach)?,
        };
        facts.events += times.rows;
        facts.span = facts.span.into_iter().chain(times.span).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        left_out.add_many(Oddity::Away, times.away);
        left_out.add_many(Oddity::Backwards, times.backwards);
    }
    facts.omitted = left_out.by_reason();
    let kept = "databases made from it keep these rows, and their implausible times unchanged";
    facts.warnings.extend(left_out.note().map(|note| format!("{note}; {kept}")));
    collectives::read(database, options, is_of_several, &mut facts)?;
    // Kernels are on the device: only their launches tell when they were issued.
    facts.steps.close(0, true);
    Ok(facts)
}

/// Reads the NVTX events: markers, steps, and the times of the others.
fn ranges(
    database: &Database<'_>,
    table: &Table,
    options: &FactOptions,
    facts: &mut TraceFacts,
) -> Result<Times, Error> {
    let names = Names::read(database.source(), database.catalog.table(STRINGS), "value", options.markers.as_ref())?;
    let [start, end, kind, text, text_id] =
        ["start", "end", "eventType", "text", "textId"].map(|name| table.column("t", name));
    let sql = format!(
        "SELECT {start}, {end}, {kind}, {text}, {text_id}, {} FROM {} t NOT INDEXED",
        table.row("t"),
        quoted(&table.name)
    );
    let bounds = bounds(&database.catalog.session, facts.reach);
    let (mut times, mut stamps, mut wrong_at) = (Times::default(), Stamps::default(), None);
    database.each(&table.name, &sql, &mut |row| {
        let (Ok(start), Ok(end)) = (time(row, 0)?, time(row, 1)?) else {
            wrong_at.get_or_insert(row.get_ref(5)?.as_i64().unwrap_or(0));
            return Ok(());
        };
        let kind = row.get_ref(2)?.as_i64().ok();
        let Some(start) = start.filter(|_| !kind.is_some_and(|kind| DESCRIBING.contains(&kind))) else {
            return Ok(());
        };
        // Old versions give marks an end, which means nothing.
        let last = end.filter(|_| kind != Some(MARK)).unwrap_or(start);
        if ![start, last].iter().all(|ns| (bounds.0..=bounds.1).contains(ns)) {
            times.away += 1;
            return Ok(());
        }
        let (start_ps, last_ps) = (database.absolute_ps(start), database.absolute_ps(last));
        match names.look(row.get_ref(3)?, row.get_ref(4)?, (start_ps, last_ps), &mut facts.steps) {
            Some(marker) => stamps.add(marker, start_ps, PS_PER_NS),
            None => {
                times.add(start_ps);
                if last < start {
                    times.backwards += 1;
                } else {
                    times.add(last_ps);
                }
            }
        }
        times.rows += 1;
        Ok(())
    })?;
    if let Some(at) = wrong_at {
        let problem = format!(
            "the table {NVTX}, row {at}: start and end must contain whole numbers of nanoseconds, but one does not"
        );
        return Err(Error::Database { path: database.path.to_owned(), problem });
    }
    facts.notes.extend(stamps.notes());
    facts.notes.extend(names.note());
    facts.take_stamps(stamps);
    Ok(times)
}

/// Returns the time in a cell, or an error if the cell contains neither a time nor NULL.
fn time(row: &Row<'_>, at: usize) -> rusqlite::Result<Result<Option<i64>, ()>> {
    Ok(match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(time) => Ok(Some(time)),
        _ => Err(()),
    })
}

const NVTX: &str = "NVTX_EVENTS";
/// An NVTX event without a length.
const MARK: i64 = 34;
/// NVTX events that describe categories, threads and domains, or name devices, contexts and streams.
const DESCRIBING: [i64; 7] = [33, 39, 75, 76, 97, 98, 99];
/// Tables of the profiler's own events, and of descriptions.
const OF_PROFILER: [&str; 4] =
    ["DIAGNOSTIC_EVENT", "PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD", "MPI_COMMUNICATORS"];
