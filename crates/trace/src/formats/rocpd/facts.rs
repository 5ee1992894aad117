//! What a database says of itself: process, host and rank, span, clock markers, collectives.
//!
//! Place in the flow: fills `model::TraceFacts`; `environment` knows launchers' variables, `markers` names, `collectives` calls of
//! NCCL. A database is known by the guid of its process and by its host: numbers of processes and machines repeat on other hosts. Its
//! times are on CLOCK_BOOTTIME until an alignment has put them on another clock and said so. SQLite scans; what passes through here is
//! what may be a marker or a collective.
//! What it does not do: judge.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::access::{Readable, wrong};
use super::catalog::{Catalog, Table, Writer, quoted};
use super::collectives;
use super::environment::Environment;
use super::markers::{Marker, Markers};
use crate::Error;
use crate::formats::FactOptions;
use crate::model::{PS_PER_NS, Picoseconds, TraceClock, TraceFacts};

/// Reads a database's facts.
///
/// # Errors
/// Names file, table and row.
pub(super) fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let connection = Readable::find(path)?.connect()?;
    let catalog = Catalog::read(&connection, "main", path)?;
    of_database(&Database { path, connection: &connection, catalog: &catalog }, options)
}

/// A database being read.
pub(super) struct Database<'a> {
    pub(super) path: &'a Path,
    pub(super) connection: &'a Connection,
    pub(super) catalog: &'a Catalog,
}

fn of_database(database: &Database<'_>, options: &FactOptions) -> Result<TraceFacts, Error> {
    let mut facts = TraceFacts::default();
    let nodes = identity(database, &mut facts)?;
    let aligned = database.catalog.writers.iter().any(|writer| writer.aligned_to.is_some());
    facts.clock = match nodes {
        _ if aligned => TraceClock::System,
        0 | 1 => TraceClock::Boot,
        _ => TraceClock::SeveralBoot,
    };
    let mut markers = Markers::default();
    let mut collector = collectives::Collector::new(&options.spill);
    let mut of_markers: HashMap<&str, HashSet<i64>> = HashMap::new();
    for writer in &database.catalog.writers {
        let names = database.marker_names(writer, options)?;
        for base in [REGION, SAMPLE] {
            let Some(table) = database.table(writer, base) else { continue };
            let found = database.markers(writer, table, &names, options, &mut markers)?;
            of_markers.entry(&table.name).or_default().extend(found);
        }
        collectives::read(database, writer, &mut collector)?;
    }
    for table in database.catalog.tables.iter().filter(|table| !table.times.is_empty()) {
        let times = database.times(table, of_markers.get(table.name.as_str()))?;
        if table.base.starts_with(INFO) {
            continue;
        }
        facts.events += times.rows;
        facts.span = facts.span.into_iter().chain(times.span).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    }
    facts.notes.extend(markers.notes());
    facts.identity.marked_rank = markers.rank;
    if let (None, Some((rank, world_size))) = (facts.identity.rank, markers.rank) {
        (facts.identity.rank, facts.identity.world_size) = (Some(rank), Some(world_size));
    }
    (facts.pairs, facts.marks) = (markers.pairs, markers.marks);
    collector.finish(&mut facts);
    Ok(facts)
}

/// Whose the database is; how many nodes wrote into it.
fn identity(database: &Database<'_>, facts: &mut TraceFacts) -> Result<usize, Error> {
    let (mut nodes, mut hosts, mut processes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut environment = None;
    for writer in &database.catalog.writers {
        database.rows(writer, "rocpd_info_node", &["hostname", "machine_id", GUID], &mut |row| {
            let host = text(row.get_ref(1)?);
            // Equal machines are told apart by their hosts, and equal hosts by their machines.
            nodes.insert((host.clone(), text(row.get_ref(2)?)));
            hosts.extend(host);
            processes.extend(text(row.get_ref(3)?));
            Ok(())
        })?;
        database.rows(writer, "rocpd_info_process", &["environment", GUID], &mut |row| {
            processes.extend(text(row.get_ref(2)?));
            if let ValueRef::Text(json) | ValueRef::Blob(json) = row.get_ref(1)? {
                environment.get_or_insert_with(|| Environment::read(json));
            }
            Ok(())
        })?;
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
    facts.notes.extend(notes);
    Ok(nodes.len())
}

/// First and last time of a table, and in how many rows there is one.
#[derive(Default)]
struct Times {
    rows: u64,
    span: Option<(Picoseconds, Picoseconds)>,
}

impl<'a> Database<'a> {
    /// A writer's table of this base name.
    pub(super) fn table(&self, writer: &Writer, base: &str) -> Option<&'a Table> {
        self.catalog.tables.iter().find(|table| table.base == base && table.suffix == writer.suffix)
    }

    /// Runs a statement, and shows its rows.
    pub(super) fn each(
        &self,
        table: &str,
        statement: &str,
        take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let run = |take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>| -> rusqlite::Result<()> {
            let mut statement = self.connection.prepare(statement)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                take(row)?;
            }
            Ok(())
        };
        run(take).map_err(|problem| wrong(self.path, &format!("reading the table {table}"), &problem))
    }

    /// Shows a writer's rows: number and columns, NULL for those that the table lacks; none where there is no such table.
    fn rows(
        &self,
        writer: &Writer,
        base: &str,
        columns: &[&str],
        take: &mut dyn FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let Some(table) = self.table(writer, base) else { return Ok(()) };
        let columns: Vec<String> = columns.iter().map(|column| table.column("t", column)).collect();
        let statement = format!("SELECT {}, {} FROM {} t", table.row("t"), columns.join(", "), quoted(&table.name));
        self.each(&table.name, &statement, take)
    }

    /// The strings that are markers, by number.
    fn marker_names(&self, writer: &Writer, options: &FactOptions) -> Result<HashMap<i64, Marker>, Error> {
        let mut found = HashMap::new();
        self.rows(writer, STRING, &["id", "string"], &mut |row| {
            if let (ValueRef::Integer(number), ValueRef::Text(name)) = (row.get_ref(1)?, row.get_ref(2)?)
                && found.len() < NAMES_MAX
                && let Some(marker) = Marker::of(name, options.markers.as_ref())
            {
                found.insert(number, marker);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Takes the markers among a table's rows in; the numbers of these rows.
    fn markers(
        &self,
        writer: &Writer,
        table: &Table,
        names: &HashMap<i64, Marker>,
        options: &FactOptions,
        markers: &mut Markers,
    ) -> Result<HashSet<i64>, Error> {
        let start = if table.base == SAMPLE { "timestamp" } else { "start" };
        let event = self.table(writer, EVENT);
        let (join, message) = event.map_or_else(
            || (String::new(), "NULL".to_owned()),
            |event| (join_event(table, event, "event_id"), event.column("e", EXTRA)),
        );
        let (name, extra) = (table.column("t", "name_id"), table.column("t", EXTRA));
        // Most rows have neither; names are asked for where some name is a marker at all.
        let filter = if names.is_empty() {
            format!("WHERE length({message}) > 2 OR length({extra}) > 2")
        } else {
            String::new()
        };
        let statement = format!(
            "SELECT {}, {}, {name}, {message}, {extra} FROM {} t {join} {filter}",
            table.row("t"),
            table.column("t", start),
            quoted(&table.name)
        );
        let mut rows = HashSet::new();
        self.each(&table.name, &statement, &mut |row| {
            let named = match row.get_ref(2)? {
                ValueRef::Integer(number) => names.get(&number).copied(),
                _ => None,
            };
            let pattern = options.markers.as_ref();
            let stated = |at: usize| -> rusqlite::Result<Option<Marker>> {
                match row.get_ref(at)? {
                    ValueRef::Text(json) | ValueRef::Blob(json) => Ok(Marker::of_message(json, pattern)),
                    _ => Ok(None),
                }
            };
            let marker = match named {
                None => stated(3)?.map_or_else(|| stated(4), |marker| Ok(Some(marker)))?,
                named => named,
            };
            if let (Some(marker), ValueRef::Integer(start)) = (marker, row.get_ref(1)?)
                && start != 0
            {
                markers.take(marker, start);
                if rows.len() < NAMES_MAX {
                    rows.insert(row.get(0)?);
                }
            }
            Ok(())
        })?;
        Ok(rows)
    }

    /// The times of a table, those of `except` left out of the span.
    fn times(&self, table: &Table, except: Option<&HashSet<i64>>) -> Result<Times, Error> {
        let columns: Vec<String> = table.times.iter().map(|at| format!("t.{}", quoted(&table.columns[*at]))).collect();
        let row = table.row("t");
        let each = |form: &str| columns.iter().map(|column| form.replace('?', column)).collect::<Vec<_>>();
        let no_time = each("typeof(?) NOT IN ('integer', 'null')").join(" OR ");
        let set = each("coalesce(?, 0) <> 0").join(" OR ");
        let (first, last) = (each("min(nullif(?, 0))").join(", "), each("max(nullif(?, 0))").join(", "));
        let statement = format!(
            "SELECT min(CASE WHEN {no_time} THEN {row} END), sum({set}), {first}, {last} FROM {} t",
            quoted(&table.name)
        );
        let (mut times, mut wrong_at) = (Times::default(), None);
        self.each(&table.name, &statement, &mut |found| {
            wrong_at = found.get::<_, Option<i64>>(0)?;
            if wrong_at.is_none() {
                times.rows = found.get::<_, Option<i64>>(1)?.unwrap_or(0).unsigned_abs();
                for at in 0..2 * columns.len() {
                    times.add(found.get(at + 2)?);
                }
            }
            Ok(())
        })?;
        if let Some(at) = wrong_at {
            return Err(self.no_time(table, at));
        }
        if let Some(except) = except.filter(|except| !except.is_empty()) {
            times.span = None;
            let statement = format!("SELECT {row}, {} FROM {} t", columns.join(", "), quoted(&table.name));
            self.each(&table.name, &statement, &mut |found| {
                if !except.contains(&found.get(0)?) {
                    for at in 0..columns.len() {
                        times.add(found.get::<_, Option<i64>>(at + 1)?.filter(|time| *time != 0));
                    }
                }
                Ok(())
            })?;
        }
        Ok(times)
    }

    /// The refusal of a row in which something else stands where a time belongs.
    fn no_time(&self, table: &Table, at: i64) -> Error {
        let names: Vec<&str> = table.times.iter().map(|column| table.columns[*column].as_str()).collect();
        let problem = format!(
            "the table {}, row {at}: {} must hold whole numbers of nanoseconds, and one does not; correct the row in a copy of the file",
            table.name,
            names.join(", ")
        );
        Error::Database { path: self.path.to_owned(), problem }
    }
}

impl Times {
    fn add(&mut self, time: Option<i64>) {
        let Some(time) = time.map(|time| Picoseconds::from(time) * PS_PER_NS) else { return };
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
    }
}

impl Table {
    /// A row's number, for a statement that knows the table by this name.
    pub(super) fn row(&self, name: &str) -> String {
        let column = self.rowid.map_or_else(|| "rowid".to_owned(), |at| quoted(&self.columns[at]));
        format!("{name}.{column}")
    }

    /// A column, for a statement that knows the table by this name; NULL where there is none.
    pub(super) fn column(&self, name: &str, column: &str) -> String {
        if self.has(column) { format!("{name}.{}", quoted(column)) } else { "NULL".to_owned() }
    }

    pub(super) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|known| known == column)
    }
}

/// The event of a row `t`, as `e`: numbers of events repeat in merged files, so the guid counts where there is one.
pub(super) fn join_event(table: &Table, event: &Table, by: &str) -> String {
    let guid = if table.has(GUID) && event.has(GUID) { "AND e.\"guid\" = t.\"guid\"" } else { "" };
    format!("LEFT JOIN {} e ON e.\"id\" = {} {guid}", quoted(&event.name), table.column("t", by))
}

/// Text as it is, what is no UTF-8 of it replaced.
fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(bytes) if !bytes.is_empty() => {
            Some(String::from_utf8_lossy(bytes).chars().take(TEXT_MAX).collect())
        }
        _ => None,
    }
}

/// Tables that describe and hold no events.
const INFO: &str = "rocpd_info_";
pub(super) const REGION: &str = "rocpd_region";
const SAMPLE: &str = "rocpd_sample";
const EVENT: &str = "rocpd_event";
pub(super) const STRING: &str = "rocpd_string";
pub(super) const GUID: &str = "guid";
const EXTRA: &str = "extdata";
/// Names and rows of markers that are remembered.
const NAMES_MAX: usize = 1_000_000;
/// Longer names of hosts and processes are cut.
const TEXT_MAX: usize = 4096;

#[cfg(test)]
mod tests;
