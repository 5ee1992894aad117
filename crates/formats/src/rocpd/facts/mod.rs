//! The facts of a database: process, host and rank, span, clock markers and collectives.
//!
//! A database is identified by the guid of its process and by its host, because numbers of
//! processes and machines repeat on other hosts. Its times are on CLOCK_BOOTTIME unless an
//! alignment has moved them to another clock and recorded this. SQLite scans the tables; only
//! possible markers and collectives reach this code.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use rusqlite::types::ValueRef;

use super::catalog::{Catalog, INFO, Table, Writer};
use super::collectives;
use super::cpu_clock;
use super::markers::{self, Markers};
use super::reading::{Database, GUID, REGION};
use crate::Error;
use crate::FactOptions;
use crate::environment::Environment;
use crate::model::{LeftOut, Oddity, Reach, Spread, TraceClock, TraceFacts};
use crate::sqlite::access::Readable;
use crate::sqlite::times::{count_times, without_far_rows};

/// Reads the facts of a database.
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
        count_times(database.source(), table, ("time <> 0", 0), &mut spread)?;
    }
    Ok(spread)
}

/// Tables of events.
fn of_events(catalog: &Catalog) -> impl Iterator<Item = &Table> {
    catalog.tables.iter().filter(|table| !(table.times.is_empty() || table.base.starts_with(INFO)))
}

fn of_database(database: &Database<'_>, options: &FactOptions, reach: Option<Reach>) -> Result<TraceFacts, Error> {
    let mut facts = TraceFacts { reach, ..TraceFacts::default() };
    let nodes = identity(database, &mut facts)?;
    facts.aligned_to = aligned_to(database)?;
    let sigma = |writer: &Writer| writer.aligned_sigma_ns.as_ref()?.parse::<f64>().ok();
    let sigmas: Option<Vec<f64>> = database.catalog.writers.iter().map(sigma).collect();
    facts.aligned_sigma_ns = sigmas.and_then(|sigmas| sigmas.into_iter().reduce(f64::max));
    facts.clock = match &facts.aligned_to {
        Some(clock) if clock.starts_with("boot clock") => TraceClock::Boot,
        Some(_) => TraceClock::System,
        None if nodes > 1 => TraceClock::SeveralBoot,
        None => TraceClock::Boot,
    };
    let host = facts.identity.hostname.as_deref();
    facts.cpu_behind_ns = cpu_clock::behind_ns(database, host, options.cpu_clock.as_ref())?;
    let mut found = Markers::default();
    let mut collector = collectives::Collector::new(&options.spill, reach);
    let mut of_markers: HashMap<&str, HashSet<i64>> = HashMap::new();
    for writer in &database.catalog.writers {
        let names = markers::names(database, writer, options.markers.as_ref())?;
        for (base, start) in [(REGION, "start"), (SAMPLE, "timestamp")] {
            let Some(table) = database.table(writer, base) else { continue };
            let behind = cpu_clock::behind((database.catalog, "main"), database.path, table, facts.cpu_behind_ns)?;
            let rows = markers::read(database, (writer, table, start), behind.as_ref(), &names, &mut found)?;
            of_markers.entry(&table.name).or_default().extend(rows);
        }
        collectives::read(database, writer, facts.cpu_behind_ns, &mut collector)?;
    }
    let mut left_out = LeftOut::default();
    for table in database.catalog.tables.iter().filter(|table| !table.times.is_empty()) {
        let behind = cpu_clock::behind((database.catalog, "main"), database.path, table, facts.cpu_behind_ns)?;
        let reach = reach.filter(|_| !table.base.starts_with(INFO));
        let times = database.times(table, of_markers.get(table.name.as_str()), behind.as_ref(), reach)?;
        if table.base.starts_with(INFO) {
            continue;
        }
        facts.events += times.rows;
        facts.span = facts.span.into_iter().chain(times.span).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        left_out.add_many(Oddity::Away, times.away);
        left_out.add_many(Oddity::Backwards, times.backwards);
    }
    facts.omitted = left_out.by_reason();
    facts.warnings.extend(left_out.note().map(|note| {
        format!("{note}; databases made from it keep these rows, with time 0 instead of implausible times")
    }));
    facts.notes.extend(found.notes());
    facts.take_stamps(found.stamps);
    collector.finish(&mut facts);
    facts.steps = found.steps;
    // Who sees the kernels sees no time at which they were issued.
    facts.steps.close(0, !facts.collectives.of_calls());
    Ok(facts)
}

/// The clock that an alignment put all processes on; `None` if there was none.
///
/// # Errors
/// Returns an error if processes are on different clocks: one file was not aligned, or differently.
fn aligned_to(database: &Database<'_>) -> Result<Option<String>, Error> {
    let mut writers = database.catalog.writers.iter();
    let first = writers.next().and_then(|writer| writer.aligned_to.as_ref());
    if let Some(other) = writers.find(|writer| writer.aligned_to.as_ref() != first) {
        let said = |clock: Option<&String>| {
            clock.map_or_else(|| "on its node's boot clock".to_owned(), |clock| format!("on the {clock}"))
        };
        let problem = format!(
            "contains processes on different clocks: {} is {}, another {}; merge the databases that the profiler wrote",
            other.guid,
            said(other.aligned_to.as_ref()),
            said(first)
        );
        return Err(Error::Database { path: database.path.to_owned(), problem });
    }
    Ok(first.cloned())
}

/// Identity of the database's writer; returns the number of nodes that wrote into it.
fn identity(database: &Database<'_>, facts: &mut TraceFacts) -> Result<usize, Error> {
    let (mut nodes, mut hosts, mut processes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut environment = None;
    for writer in &database.catalog.writers {
        let mut is_named = false;
        database.rows(writer, "rocpd_info_node", &["hostname", "machine_id", GUID], &mut |row| {
            let host = text(row.get_ref(1)?);
            // Equal machines are told apart by their hosts, and equal hosts by their machines.
            nodes.insert((host.clone(), text(row.get_ref(2)?)));
            hosts.extend(host);
            processes.extend(text(row.get_ref(3)?));
            Ok(())
        })?;
        database.rows(writer, "rocpd_info_process", &["environment", GUID], &mut |row| {
            is_named = true;
            processes.extend(text(row.get_ref(2)?));
            if let ValueRef::Text(json) | ValueRef::Blob(json) = row.get_ref(1)? {
                environment.get_or_insert_with(|| Environment::read(json));
            }
            Ok(())
        })?;
        if !is_named {
            facts.warnings.push(format!(
                "no row of rocpd_info_process{} describes the process: its writer died too early, so its rank is unknown and its \
                events are missing or incomplete",
                writer.suffix
            ));
        }
    }
    facts.merged = processes.len() > 1 || database.catalog.writers.len() > 1;
    if hosts.len() == 1 {
        facts.identity.hostname = hosts.pop_first();
    }
    if facts.merged {
        return Ok(nodes.len());
    }
    let Environment { rank, world_size, launcher, notes } = environment.unwrap_or_default();
    facts.identity.guid =
        processes.pop_first().or_else(|| database.catalog.writers.first().map(|writer| writer.guid.clone()));
    (facts.identity.rank, facts.identity.world_size, facts.identity.launcher) = (rank, world_size, launcher);
    facts.warnings.extend(notes);
    Ok(nodes.len())
}

/// Text, with invalid UTF-8 replaced.
fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(bytes) if !bytes.is_empty() => {
            Some(String::from_utf8_lossy(bytes).chars().take(TEXT_MAX).collect())
        }
        _ => None,
    }
}

const SAMPLE: &str = "rocpd_sample";
/// Longer names of hosts and processes are cut.
const TEXT_MAX: usize = 4096;
