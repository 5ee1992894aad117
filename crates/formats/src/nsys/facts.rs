//! The facts of an export: host and rank, span, clock markers, steps and collectives.
//!
//! Its times are on the node's system clock: the session states its start there, once, and counts on
//! from it. The events of the profiler itself and raw samples of other clocks are not part of the
//! span.

use std::collections::HashMap;
use std::path::Path;

use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::catalog::{Catalog, STRINGS};
use super::collectives;
use super::identity;
use super::reading::{Database, Times, bounds};
use crate::Error;
use crate::FactOptions;
use crate::marker::{MARKERS_MAX, Marker, Stamps};
use crate::model::{LeftOut, Oddity, PS_PER_NS, Reach, Spread, Steps, TraceClock, TraceFacts};
use crate::sqlite::access::Readable;
use crate::sqlite::table::{Table, quoted};

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
    let facts = of_database(&database, options, None)?;
    // Only where its rows span more than a day can some be far from the others.
    let is_wide = facts.span.is_some_and(|(first, last)| last - first > Reach::NEAR_PS);
    let reach = if is_wide { spread(&database)?.reach() } else { None };
    if reach.is_some() { of_database(&database, options, reach) } else { Ok(facts) }
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
    facts.aligned_to.clone_from(&catalog.aligned_to);
    facts.aligned_sigma_ns = catalog.aligned_sigma_ns.as_ref().and_then(|sigma| sigma.parse().ok());
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
    let names = Names::read(database, options.markers.as_ref())?;
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
    if names.left_out > 0 {
        facts
            .notes
            .push(format!("{} texts of {STRINGS} were not searched for markers and steps: too many", names.left_out));
    }
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

/// The registered texts that may be markers or steps, by id.
struct Names<'a> {
    known: HashMap<i64, Vec<u8>>,
    /// Others, beyond the memory for them.
    left_out: u64,
    pattern: Option<&'a regex::Regex>,
}

impl<'a> Names<'a> {
    fn read(database: &Database<'_>, pattern: Option<&'a regex::Regex>) -> Result<Names<'a>, Error> {
        let mut names = Names { known: HashMap::new(), left_out: 0, pattern };
        let Some(table) = database.catalog.table(STRINGS) else { return Ok(names) };
        let sql = format!("SELECT id, value FROM {} NOT INDEXED", quoted(&table.name));
        let mut held = 0;
        database.each(&table.name, &sql, &mut |row| {
            let (ValueRef::Integer(id), ValueRef::Text(text)) = (row.get_ref(0)?, row.get_ref(1)?) else {
                return Ok(());
            };
            let is_candidate = text.len() <= NAME_MAX
                && (text.last().is_some_and(u8::is_ascii_digit) || Marker::of(text, pattern).is_some());
            if is_candidate && names.known.len() < MARKERS_MAX && held + text.len() <= NAMES_BYTES_MAX {
                held += text.len();
                names.known.insert(id, text.to_owned());
            } else {
                names.left_out += u64::from(is_candidate);
            }
            Ok(())
        })?;
        Ok(names)
    }

    /// The marker that an event's own or registered text is; otherwise the text may be that of a
    /// step.
    fn look(
        &self,
        own: ValueRef<'_>,
        id: ValueRef<'_>,
        (start_ps, end_ps): (i128, i128),
        steps: &mut Steps,
    ) -> Option<Marker> {
        let name: &[u8] = match (own, id) {
            (ValueRef::Text(text), _) => text,
            (_, ValueRef::Integer(id)) => self.known.get(&id)?,
            _ => return None,
        };
        let marker = Marker::of(name, self.pattern);
        if marker.is_none() {
            steps.look(name, start_ps, end_ps);
        }
        marker
    }
}

const NVTX: &str = "NVTX_EVENTS";
/// An NVTX event without a length.
const MARK: i64 = 34;
/// NVTX events that describe categories, threads and domains, or name devices, contexts and streams.
const DESCRIBING: [i64; 7] = [33, 39, 75, 76, 97, 98, 99];
/// Tables of the profiler's own events, and of descriptions.
const OF_PROFILER: [&str; 4] =
    ["DIAGNOSTIC_EVENT", "PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD", "MPI_COMMUNICATORS"];
/// A longer text is neither a marker nor a step.
const NAME_MAX: usize = 4096;
/// Texts that are searched for markers and steps, bytes.
const NAMES_BYTES_MAX: usize = 64 << 20;
