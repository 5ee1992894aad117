//! A database as chunks of columns, for the writers of other formats.
//! Rows whose times are missing or cannot be believed are counted and left out.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::Path;

use foldhash::fast::FixedState;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::arguments::{Arguments, text};
use super::catalog::{Catalog, Table, Writer, quoted};
use super::reading::{Database, Problem};
use super::rows::{self, Kind};
use crate::Error;
use crate::chunk::{ArgRange, Chunk, Flow, FlowEnd, Process, Track, TrackId, TrackKind, Value};
use crate::model::{PS_PER_NS, Picoseconds, nearest_ns};
use crate::sqlite::access::Readable;
use crate::{AgentIndex, ChunkOptions, ChunkSink, ChunkStats, MapFunction};

/// Reads a database.
///
/// # Errors
/// Names file, table and row; errors of `sink`.
pub(super) fn read_chunks(
    path: &Path,
    options: &ChunkOptions,
    map: &mut MapFunction<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<ChunkStats, Error> {
    let connection = Readable::find(path)?.connect()?;
    let catalog = Catalog::read(&connection, "main", path)?;
    let mut out = Out { path, options, map, sink, chunk: Chunk::default(), tracks: 0, stats: ChunkStats::default() };
    let database = Database { path, connection: &connection, catalog: &catalog };
    let several = catalog.writers.len() > 1;
    for writer in &catalog.writers {
        let source = Source { database: &database, writer };
        let mut places = Places::read(&source, options, several, &mut out)?;
        for kind in Kind::ALL {
            read_kind(&source, kind, &mut places, &mut out)?;
        }
        read_counters(&source, &mut places, &mut out)?;
        read_samples(&source, &mut places, &mut out)?;
        note_stray_values(&source, &mut out)?;
        read_bytes(&source, Kind::Copy, &mut places, &mut out)?;
        read_bytes(&source, Kind::Allocation, &mut places, &mut out)?;
    }
    (out.sink)(&out.chunk)?;
    Ok(out.stats)
}

/// One process's tables.
struct Source<'a> {
    database: &'a Database<'a>,
    writer: &'a Writer,
}

impl<'a> Source<'a> {
    fn table(&self, base: &str) -> Option<&'a Table> {
        self.database.table(self.writer, base)
    }
}

/// Destination of chunks and their statistics.
struct Out<'a, 'b> {
    path: &'a Path,
    options: &'a ChunkOptions,
    map: &'a mut MapFunction<'b>,
    sink: &'a mut ChunkSink<'b>,
    chunk: Chunk,
    tracks: u32,
    stats: ChunkStats,
}

impl Out<'_, '_> {
    fn declare(&mut self, parent: Option<TrackId>, kind: TrackKind, name: String) -> TrackId {
        self.chunk.tracks.push(Track { parent, kind, name });
        self.tracks += 1;
        TrackId(self.tracks - 1)
    }

    fn time(&mut self, ns: i64) -> Option<i64> {
        nearest_ns((self.map)(Picoseconds::from(ns) * PS_PER_NS))
    }

    /// Whether a time is implausible.
    fn is_away(&self, start: i64, end: i64) -> bool {
        let [start_ps, end_ps] = [start, end].map(|ns| Picoseconds::from(ns) * PS_PER_NS);
        self.options.reach.is_some_and(|reach| !reach.holds(start_ps, end_ps))
    }

    /// Whether a row is left out because of implausible times, which is counted.
    fn leaves_out(&mut self, start: i64, end: i64) -> bool {
        let is_odd = end < start || self.is_away(start, end);
        self.stats.left_out += u64::from(is_odd);
        is_odd
    }

    fn settle(&mut self) -> Result<(), Error> {
        if self.chunk.is_full() {
            (self.sink)(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }
}

/// Reads one kind of events of one process.
fn read_kind(source: &Source<'_>, kind: Kind, places: &mut Places, out: &mut Out<'_, '_>) -> Result<(), Error> {
    let Some(table) = source.table(kind.base()) else { return Ok(()) };
    let of = |base: &str| source.table(base);
    let sql = rows::query(kind, table, &of);
    let failed = |problem: rusqlite::Error| source.database.wrong(&table.name, &problem);
    let arguments_sql = of("rocpd_arg").filter(|_| out.options.args.any()).map(|table| {
        format!(
            "SELECT event_id, name, value FROM {} NOT INDEXED WHERE event_id IS NOT NULL ORDER BY event_id, position",
            quoted(&table.name)
        )
    });
    let mut statement =
        arguments_sql.map(|sql| source.database.connection.prepare(&sql)).transpose().map_err(failed)?;
    let rows = statement.as_mut().map(|statement| statement.query([])).transpose().map_err(failed)?;
    let mut arguments = Arguments::new(rows).map_err(failed)?;
    source.database.each(&table.name, &sql, &mut |row| event(row, kind, table, places, &mut arguments, out))
}

/// Values that hardware counted while kernels ran: each from the kernel's start on, and none after
/// its end.
fn read_counters(source: &Source<'_>, places: &mut Places, out: &mut Out<'_, '_>) -> Result<(), Error> {
    let (Some(values), Some(dispatches)) = (source.table("rocpd_pmc_event"), source.table(Kind::Dispatch.base()))
    else {
        return Ok(());
    };
    let sql = rows::counted(values, dispatches);
    source.database.each(&values.name, &sql, &mut |row| {
        let cell = |at: usize| row.get::<_, Option<i64>>(at);
        let (start, end) = (cell(0)?.filter(|time| *time != 0), cell(1)?.filter(|time| *time != 0));
        if start.zip(end).is_some_and(|(start, end)| out.leaves_out(start, end)) {
            return Ok(());
        }
        let times = start.zip(end).and_then(|(start, end)| out.time(start).zip(out.time(end)));
        let (Some((start, end)), Some(value)) = (times, row.get::<_, Option<f64>>(4)?) else {
            out.stats.untimed += 1;
            return Ok(());
        };
        let place = Place::Counter(cell(2)?.unwrap_or_default(), cell(3)?.unwrap_or_default());
        let track = places.track(place, out);
        out.stats.events += 1;
        for (time, value) in [(start, value), (end, 0.0)] {
            out.chunk.counters.push(track, time, value);
        }
        Ok(out.settle()?)
    })
}

/// Values that were counted at instants, on the agent of their counter or otherwise the process.
fn read_samples(source: &Source<'_>, places: &mut Places, out: &mut Out<'_, '_>) -> Result<(), Error> {
    let (Some(values), Some(samples)) = (source.table("rocpd_pmc_event"), source.table(Kind::Sample.base())) else {
        return Ok(());
    };
    let sql = rows::sampled(values, samples, source.table("rocpd_info_pmc"));
    source.database.each(&values.name, &sql, &mut |row| {
        let time = row.get::<_, Option<i64>>(0)?.filter(|time| *time != 0);
        if time.is_some_and(|time| out.leaves_out(time, time)) {
            return Ok(());
        }
        let (Some(time), Some(value)) = (time.and_then(|time| out.time(time)), row.get::<_, Option<f64>>(3)?) else {
            out.stats.untimed += 1;
            return Ok(());
        };
        let counter = row.get::<_, Option<i64>>(2)?.unwrap_or_default();
        let place = match row.get::<_, Option<i64>>(1)? {
            Some(agent) => Place::Counter(agent, counter),
            None => Place::ProcessCounter(counter),
        };
        let track = places.track(place, out);
        out.stats.events += 1;
        out.chunk.counters.push(track, time, value);
        Ok(out.settle()?)
    })
}

/// Reports how many values have no place in time.
fn note_stray_values(source: &Source<'_>, out: &mut Out<'_, '_>) -> Result<(), Error> {
    let Some(values) = source.table("rocpd_pmc_event") else { return Ok(()) };
    let known: Vec<&Table> =
        [Kind::Dispatch, Kind::Sample].iter().filter_map(|kind| source.table(kind.base())).collect();
    let mut stray = 0.0;
    source.database.each(&values.name, &rows::stray_values(values, &known), &mut |row| {
        stray = row.get(0)?;
        Ok(())
    })?;
    if stray > 0.0 {
        let note = format!(
            "{}: dropped {stray} values that belong to no kernel or sample, so their times are unknown",
            values.name
        );
        out.stats.notes.push(note);
    }
    Ok(())
}

/// Bytes being copied to each agent, or allocated on it, from each change on.
fn read_bytes(source: &Source<'_>, kind: Kind, places: &mut Places, out: &mut Out<'_, '_>) -> Result<(), Error> {
    let Some(table) = source.table(kind.base()) else { return Ok(()) };
    let sql = if kind == Kind::Copy { rows::copied(table) } else { rows::allocated(table) };
    let (mut current, mut sum, mut unknown) = (None, 0.0, 0);
    source.database.each(&table.name, &sql, &mut |row| {
        unknown += row.get::<_, i64>(3)?;
        let (time, bytes): (i64, f64) = (row.get(1)?, row.get(2)?);
        if bytes == 0.0 || out.is_away(time, time) {
            return Ok(());
        }
        // Events with a time that does not fit were refused before.
        let Some(time) = out.time(time) else { return Ok(()) };
        let Some(agent) = row.get::<_, Option<i64>>(0)? else {
            unknown += 1;
            return Ok(());
        };
        sum = if current.replace(agent) == Some(agent) { sum + bytes } else { bytes };
        let place = if kind == Kind::Copy { Place::Copied(agent) } else { Place::Allocated(agent) };
        let track = places.track(place, out);
        out.chunk.counters.push(track, time, sum);
        Ok(out.settle()?)
    })?;
    if unknown > 0 {
        let note = format!(
            "{}: {unknown} rows copy, allocate or free memory without a recorded size or agent; the byte counters do not include them",
            table.name
        );
        out.stats.notes.push(note);
    }
    Ok(())
}

/// Adds the event of a row.
fn event(
    row: &Row<'_>,
    kind: Kind,
    table: &Table,
    places: &mut Places,
    arguments: &mut Arguments<'_>,
    out: &mut Out<'_, '_>,
) -> Result<(), Problem> {
    let (start, end): (Option<i64>, Option<i64>) = (row.get(rows::START)?, row.get(rows::END)?);
    let set = |time: Option<i64>| time.filter(|time| *time != 0);
    let (Some(start), Some(end)) = (set(start), set(end)) else {
        out.stats.untimed += 1;
        return Ok(());
    };
    if out.leaves_out(start, end) {
        return Ok(());
    }
    let (Some(start), Some(end)) = (out.time(start), out.time(end)) else {
        let id = row.get_ref(rows::ID).ok().and_then(|id| id.as_i64().ok()).unwrap_or_default();
        let problem =
            format!("the row {id} of the table {} has a time that does not fit in 64 bits of nanoseconds", table.name);
        return Err(Problem::Other(Error::Database { path: out.path.to_owned(), problem }));
    };
    let track = places.of(row, kind, out)?;
    let first = out.chunk.args.key.len() as u32;
    if out.options.args.any() {
        own_arguments(row, kind, &mut out.chunk)?;
        if let Some(event) = row.get(rows::EVENT)? {
            arguments.take(event, &mut out.chunk)?;
        }
    }
    let args = ArgRange { first, count: out.chunk.args.key.len() as u32 - first };
    let category = text(row.get_ref(rows::CATEGORY)?);
    let message = if category.starts_with("MARKER") { message(row)? } else { None };
    let name = message.unwrap_or_else(|| text(row.get_ref(rows::NAME).unwrap_or(ValueRef::Null)));
    let Chunk { strings, slices, instants, .. } = &mut out.chunk;
    let (name, category) = (strings.intern(&name), strings.intern(&category));
    out.stats.events += 1;
    if kind == Kind::Sample {
        instants.push(track, start, (name, category), args);
    } else {
        slices.push(track, (start, end), (name, category), places.flow(row.get(rows::STACK)?, kind), args);
    }
    Ok(out.settle()?)
}

/// Text of a marker.
fn message(row: &Row<'_>) -> rusqlite::Result<Option<String>> {
    let extra = text(row.get_ref(rows::EXTRA)?);
    let parsed: Option<serde_json::Value> =
        Some(extra).filter(|extra| extra.contains("message")).and_then(|extra| serde_json::from_str(&extra).ok());
    let message = parsed.as_ref().and_then(|extra| extra["message"].as_str()).filter(|message| !message.is_empty());
    Ok(message.map(str::to_owned))
}

/// Columns of the row itself, and of its event, that are shown as arguments.
fn own_arguments(row: &Row<'_>, kind: Kind, chunk: &mut Chunk) -> rusqlite::Result<()> {
    for (index, name) in rows::SOURCE {
        let text = text(row.get_ref(index)?);
        if serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok() {
            chunk.args.key.push(chunk.strings.intern(name));
            chunk.args.value.push(Value::Json(chunk.strings.push(&text)));
        }
    }
    for (index, name) in kind.shown().iter().enumerate() {
        let value = match row.get_ref(rows::FIRST_SHOWN + index)? {
            ValueRef::Null => continue,
            ValueRef::Integer(value) => Value::Integer(value),
            ValueRef::Real(value) => Value::Float(value),
            other => Value::Text(chunk.strings.push(&text(other))),
        };
        chunk.args.key.push(chunk.strings.intern(name));
        chunk.args.value.push(value);
    }
    Ok(())
}

/// A row of a process's tree.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    Thread(i64),
    Agent(i64),
    /// A stream of an agent.
    Stream(i64, i64),
    /// A queue of an agent.
    Queue(i64, i64),
    /// Allocations of an agent.
    Allocations(i64),
    /// A counter of an agent.
    Counter(i64, i64),
    ProcessCounter(i64),
    /// Bytes being copied to an agent.
    Copied(i64),
    /// Bytes allocated on an agent.
    Allocated(i64),
}

/// The tracks of one process.
struct Places {
    process: TrackId,
    guid: String,
    group_by_queue: bool,
    known: HashMap<Place, TrackId, FixedState>,
    /// System thread ID, and name.
    threads: HashMap<i64, (i64, String)>,
    agents: HashMap<i64, String>,
    queues: HashMap<i64, String>,
    streams: HashMap<i64, String>,
    /// Name and unit.
    counters: HashMap<i64, (String, String)>,
}

impl Places {
    fn read(
        source: &Source<'_>,
        options: &ChunkOptions,
        several: bool,
        out: &mut Out<'_, '_>,
    ) -> Result<Places, Error> {
        let (mut process, mut name) =
            (Process { guid: source.writer.guid.clone(), ..Process::default() }, String::new());
        process.host = options.host.clone();
        // Of a merged database the caller knows no rank.
        process.rank = options.rank.filter(|_| !several);
        each_named(source, "rocpd_info_node", &["hostname"], |_, texts| process.host = texts[0].clone())?;
        each_named(source, "rocpd_info_process", &["pid", "command"], |_, texts| {
            process.pid = texts[0].parse().unwrap_or_default();
            name = program(&texts[1]);
        })?;
        let mut places = Places {
            process: out.declare(None, TrackKind::Process(process), name),
            guid: source.writer.guid.clone(),
            group_by_queue: options.group_by_queue,
            known: HashMap::default(),
            threads: HashMap::new(),
            agents: HashMap::new(),
            queues: HashMap::new(),
            streams: HashMap::new(),
            counters: HashMap::new(),
        };
        each_named(source, "rocpd_info_thread", &["tid", "name"], |id, texts| {
            let tid = texts[0].parse().unwrap_or(id);
            let name =
                Some(&texts[1]).filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| format!("thread {tid}"));
            places.threads.insert(id, (tid, name));
        })?;
        let columns = ["type", "absolute_index", "logical_index", "type_index", "name"];
        each_named(source, "rocpd_info_agent", &columns, |id, texts| {
            let number = match options.agent_index {
                AgentIndex::Absolute => format!("Agent-{}", texts[1]),
                AgentIndex::Relative => format!("Agent-{}", texts[2]),
                AgentIndex::TypeRelative => format!("{}-{}", texts[0], texts[3]),
            };
            places.agents.insert(id, format!("{number} ({} {})", texts[0], texts[4]));
        })?;
        each_named(source, "rocpd_info_queue", &["name"], |id, texts| {
            places.queues.insert(id, texts[0].clone());
        })?;
        each_named(source, "rocpd_info_pmc", &["name", "units"], |id, texts| {
            places.counters.insert(id, (texts[0].clone(), texts[1].clone()));
        })?;
        each_named(source, "rocpd_info_stream", &["name"], |id, texts| {
            places.streams.insert(id, texts[0].clone());
        })?;
        Ok(places)
    }

    /// The track of a row.
    fn of(&mut self, row: &Row<'_>, kind: Kind, out: &mut Out<'_, '_>) -> rusqlite::Result<TrackId> {
        let number = |at: usize| row.get::<_, Option<i64>>(at).map(Option::unwrap_or_default);
        let (thread, agent) = (number(rows::THREAD)?, number(rows::AGENT)?);
        let place = match kind {
            Kind::Region | Kind::Sample => Place::Thread(thread),
            Kind::Allocation => Place::Allocations(agent),
            Kind::Dispatch | Kind::Copy if self.group_by_queue => Place::Queue(agent, number(rows::QUEUE)?),
            Kind::Dispatch | Kind::Copy => Place::Stream(agent, number(rows::STREAM)?),
        };
        Ok(self.track(place, out))
    }

    fn track(&mut self, place: Place, out: &mut Out<'_, '_>) -> TrackId {
        if let Some(track) = self.known.get(&place) {
            return *track;
        }
        let named = |names: &HashMap<i64, String>, what: &str, id: i64| {
            names.get(&id).filter(|name| !name.is_empty()).cloned().unwrap_or_else(|| format!("{what} {id}"))
        };
        let (parent, kind, name) = match place {
            Place::Thread(id) => {
                let (tid, name) = self.threads.get(&id).cloned().unwrap_or_else(|| (id, format!("thread {id}")));
                (self.process, TrackKind::Thread { tid }, name)
            }
            Place::Agent(id) => (self.process, TrackKind::Agent, named(&self.agents, "agent", id)),
            Place::Stream(agent, id) => {
                (self.track(Place::Agent(agent), out), TrackKind::Stream, named(&self.streams, "stream", id))
            }
            Place::Queue(agent, id) => {
                (self.track(Place::Agent(agent), out), TrackKind::Queue, named(&self.queues, "queue", id))
            }
            Place::Counter(_, id) | Place::ProcessCounter(id) => {
                let (name, unit) =
                    self.counters.get(&id).cloned().unwrap_or_else(|| (format!("counter {id}"), String::new()));
                let parent = match place {
                    Place::Counter(agent, _) => self.track(Place::Agent(agent), out),
                    _ => self.process,
                };
                (parent, TrackKind::Counter { unit }, name)
            }
            Place::Copied(agent) | Place::Allocated(agent) => {
                let name = if place == Place::Copied(agent) { "bytes copied" } else { "bytes allocated" };
                (self.track(Place::Agent(agent), out), TrackKind::Counter { unit: "bytes".to_owned() }, name.to_owned())
            }
            Place::Allocations(agent) => {
                (self.track(Place::Agent(agent), out), TrackKind::Stream, "memory allocations".to_owned())
            }
        };
        let track = out.declare(Some(parent), kind, name);
        self.known.insert(place, track);
        track
    }

    /// The flow of a stack id: unique by the process's guid. Only a region begins one.
    fn flow(&self, stack: Option<i64>, kind: Kind) -> Flow {
        match stack {
            None | Some(0) => Flow::default(),
            Some(stack) => {
                let id = FixedState::with_seed(0).hash_one((self.guid.as_str(), stack)).max(1);
                Flow { id, end: if kind == Kind::Region { FlowEnd::Out } else { FlowEnd::In } }
            }
        }
    }
}

/// The rows of a table of names: id and some columns as texts.
fn each_named(
    source: &Source<'_>,
    base: &str,
    columns: &[&str],
    mut row: impl FnMut(i64, &[String]),
) -> Result<(), Error> {
    let Some(table) = source.table(base) else { return Ok(()) };
    let list: Vec<String> = columns.iter().map(|column| rows::column(table, "T", column)).collect();
    let sql = format!("SELECT T.id, {} FROM {} AS T NOT INDEXED", list.join(", "), quoted(&table.name));
    source.database.each(&table.name, &sql, &mut |found| {
        let texts = (1..=columns.len()).map(|at| Ok(text(found.get_ref(at)?)));
        row(found.get(0)?, &texts.collect::<rusqlite::Result<Vec<String>>>()?);
        Ok(())
    })
}

/// The program of a command line, without its folder.
fn program(command: &str) -> String {
    let first = command.split_whitespace().next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default().to_owned()
}
