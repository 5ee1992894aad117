//! The facts of a trace: span, clock markers, steps and collectives.
//!
//! Its times are on CLOCK_MONOTONIC: the tracer reads it for calls and marks, and converts the times
//! of devices to it. The file names neither host nor rank. The samples of the tracer's monitor are not
//! part of the span.

use std::path::Path;

use rusqlite::types::ValueRef;

use super::catalog::{API, Catalog, MARKER, MONITOR, OP, STRING};
use super::collectives;
use super::reading::{Database, bounds};
use super::rows::launch;
use crate::marker::Stamps;
use crate::model::{LeftOut, Oddity, PS_PER_NS, Picoseconds, Reach, Spread, TraceClock, TraceFacts};
use crate::sqlite::access::Readable;
use crate::sqlite::names::Names;
use crate::sqlite::table::{Table, quoted};
use crate::sqlite::times::{Times, without_far_rows};
use crate::{Error, FactOptions};

/// Reads the facts of a trace.
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
    of_events(database.catalog).try_for_each(|table| database.spread(table, &mut spread))?;
    Ok(spread)
}

/// Tables of the program's events.
fn of_events(catalog: &Catalog) -> impl Iterator<Item = &Table> {
    catalog.tables.iter().filter(|table| !table.times.is_empty() && table.name != MONITOR)
}

fn of_database(database: &Database<'_>, options: &FactOptions, reach: Option<Reach>) -> Result<TraceFacts, Error> {
    let aligned = database.catalog.aligned.clone();
    let is_on_own_clock = aligned.to.as_ref().is_none_or(|clock| clock.starts_with(TraceClock::Monotonic.name()));
    let clock = if is_on_own_clock { TraceClock::Monotonic } else { TraceClock::System };
    let mut facts = TraceFacts { reach, clock, ..TraceFacts::default() };
    (facts.aligned_to, facts.aligned_sigma_ns) = (aligned.to, aligned.sigma_ns);
    facts.notes.extend(database.catalog.note());
    let mut left_out = LeftOut::default();
    let mut stamps = Stamps::default();
    for table in of_events(database.catalog) {
        let times = match table.name.as_str() {
            API => calls(database, table, options, &mut facts, &mut stamps)?,
            _ => database.times(table, reach)?,
        };
        facts.events += times.rows;
        facts.span = facts.span.into_iter().chain(times.span).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        left_out.add_many(Oddity::Away, times.away);
        left_out.add_many(Oddity::Backwards, times.backwards);
    }
    if is_on_own_clock {
        refuse_two_clocks(database, reach)?;
    }
    facts.omitted = left_out.by_reason();
    let kept = "databases made from it keep these rows, and their implausible times unchanged";
    facts.warnings.extend(left_out.note().map(|note| format!("{note}; {kept}")));
    facts.notes.extend(stamps.notes());
    let processes = writers(database, &mut facts)?;
    if processes > 1 {
        // Whose marker it is, the file does not say.
        stamps.rank = None;
    }
    facts.take_stamps(stamps);
    collectives::read(database, options, &mut facts)?;
    // Kernels are on the device: only their launches tell when they were issued.
    facts.steps.close(0, true);
    Ok(facts)
}

/// Reads the calls, marks and ranges: markers, steps, and the times of the others.
fn calls(
    database: &Database<'_>,
    table: &Table,
    options: &FactOptions,
    facts: &mut TraceFacts,
    stamps: &mut Stamps,
) -> Result<Times, Error> {
    // Refuses cells that hold no time.
    let plain = database.times(table, facts.reach)?;
    let names = Names::read(database.source(), database.arguments(), "string", options.markers.as_ref())?;
    facts.notes.extend(names.note());
    let [start, end, name, text] = ["start", "end", "apiName_id", "args_id"].map(|name| table.column("t", name));
    let marker = format!("(SELECT id FROM {STRING} NOT INDEXED WHERE string = '{MARKER}')");
    let sql = format!(
        "SELECT {start}, {end}, CASE WHEN {name} IN {marker} THEN {text} END FROM {} t NOT INDEXED",
        quoted(&table.name)
    );
    let (first, last) = bounds(facts.reach);
    let mut times = Times { span: None, ..plain };
    database.each(&table.name, &sql, &mut |row| {
        let whole = |at: usize| row.get_ref(at).map(|value| value.as_i64().ok());
        let Some(start) = whole(0)? else { return Ok(()) };
        let end = whole(1)?.unwrap_or(start);
        if ![start, end].iter().all(|ns| (first..=last).contains(ns)) {
            return Ok(());
        }
        let (start_ps, end_ps) = (Picoseconds::from(start) * PS_PER_NS, Picoseconds::from(end) * PS_PER_NS);
        match names.look(ValueRef::Null, row.get_ref(2)?, (start_ps, end_ps), &mut facts.steps) {
            Some(marker) => stamps.add(marker, start_ps, PS_PER_NS),
            None => {
                times.add(start_ps);
                times.add(end_ps.max(start_ps));
            }
        }
        Ok(())
    })?;
    Ok(times)
}

/// Counts the processes that wrote into the file. Rows that the tracer has collected from other nodes
/// make it a merged trace.
fn writers(database: &Database<'_>, facts: &mut TraceFacts) -> Result<u64, Error> {
    let (of_processes, of_devices) = database.catalog.stated.strides;
    let count = |name: &str, column: &str, stride: Option<i64>| -> Result<(u64, u64), Error> {
        let Some(table) = database.catalog.table(name).filter(|table| table.has(column)) else { return Ok((0, 0)) };
        let column = table.column("t", column);
        let node = stride.map_or_else(|| "NULL".to_owned(), |stride| format!("{column} / {stride}"));
        let sql = format!(
            "SELECT count(DISTINCT {column}), count(DISTINCT {node}) FROM {} t NOT INDEXED",
            quoted(&table.name)
        );
        let mut found = (0, 0);
        database.each(name, &sql, &mut |row| {
            found = (row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs());
            Ok(())
        })?;
        Ok(found)
    };
    let (processes, nodes) = count(API, "pid", of_processes)?;
    let (_, nodes_with_devices) = count(OP, "gpuId", of_devices)?;
    let nodes = nodes.max(nodes_with_devices);
    facts.merged = nodes > 1;
    if facts.merged {
        facts.warnings.push(format!(
            "contains rows that the tracer collected from {nodes} nodes; its own synchronisation has put them on the clock of its node 0, \
            so the file is assigned to that node"
        ));
    } else if processes > 1 {
        facts.notes.push(format!("contains {processes} processes, so it belongs to no single rank"));
    }
    if database.catalog.stated.synchronizes && !facts.merged && facts.aligned_to.is_none() {
        facts.warnings.push(
            "the tracer's own clock synchronisation was loaded (clocksync_shm). If it ran (RPDT_CLOCKSYNC_IP or RPDT_CLOCKSYNC_MASTER was \
            set), only the file of its node 0 is on its own node's clock, and no other may be aligned"
                .to_owned(),
        );
    }
    Ok(processes)
}

/// Refuses a trace whose rows cannot be on one clock: some sources of the tracer take the times of
/// devices from CLOCK_BOOTTIME, which is ahead by the time for which the machine was suspended.
///
/// # Errors
/// Names the distance. Returns an error if tables cannot be read.
fn refuse_two_clocks(database: &Database<'_>, reach: Option<Reach>) -> Result<(), Error> {
    let joins = launch(database, "JOIN");
    let Some(op) = database.catalog.table(OP).filter(|_| !joins.is_empty()) else { return Ok(()) };
    let (first, last) = bounds(reach);
    let sql = format!(
        "SELECT min(t.start - a.start) FROM {} t NOT INDEXED {joins} \
         WHERE a.start BETWEEN {first} AND {last} AND t.start BETWEEN {first} AND {last}",
        quoted(&op.name)
    );
    let mut ahead = None;
    database.each(&op.name, &sql, &mut |row| {
        ahead = row.get::<_, Option<i64>>(0)?;
        Ok(())
    })?;
    let Some(ahead) = ahead.filter(|ahead| *ahead > APART_NS) else { return Ok(()) };
    let problem = format!(
        "every kernel and copy begins at least {:.3} s after the call that started it: calls are on CLOCK_MONOTONIC and devices on \
        CLOCK_BOOTTIME, because the machine was suspended before; such a trace cannot be corrected",
        ahead as f64 * 1e-9
    );
    Err(Error::Database { path: database.path.to_owned(), problem })
}

/// So much later than its call, ns, not every kernel of a trace begins.
const APART_NS: i64 = 1_000_000_000;
