//! A trace as chunks of columns, for the writers of other formats.
//! Rows whose times are missing or cannot be believed are counted and left out.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::Path;

use foldhash::fast::FixedState;
use rusqlite::Row;

use super::catalog::Catalog;
use super::reading::{Database, bounds};
use super::rows::{self, Events, Kind};
use crate::Error;
use crate::chunk::{ArgRange, Chunk, Flow, FlowEnd, Process, Track, TrackId, TrackKind};
use crate::model::{PS_PER_NS, Picoseconds, nearest_ns};
use crate::sqlite::access::Readable;
use crate::sqlite::query::Problem;
use crate::sqlite::table::{argument, text};
use crate::{ChunkOptions, ChunkSink, ChunkStats, MapFunction};

/// Reads a trace.
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
    let database = Database { path, connection: &connection, catalog: &catalog };
    let bounds = bounds(options.reach);
    let mut out = Out {
        path,
        options,
        bounds,
        map,
        sink,
        chunk: Chunk::default(),
        known: HashMap::default(),
        tracks: 0,
        stats: ChunkStats::default(),
    };
    let mut others = Vec::new();
    for table in catalog.tables.iter().filter(|table| !table.times.is_empty()) {
        match Events::of(&database, table) {
            Some(events) => {
                database.each(&table.name, &events.statement(), &mut |row| out.event(row, &events))?;
            }
            None => others.push(table.name.as_str()),
        }
    }
    if !others.is_empty() {
        out.stats.notes.push(format!("events of these tables are not shown: {}", others.join(", ")));
    }
    (out.sink)(&out.chunk)?;
    Ok(out.stats)
}

/// A row of the viewer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Place {
    /// By its number.
    Process(i64),
    Thread(i64, i64),
    /// A device of a process.
    Device(i64, i64),
    Queue(i64, i64, i64),
    /// Samples of all devices.
    Monitors,
    /// A device that the monitor knows by this name.
    Monitored(String),
    /// What is sampled of it.
    Monitor(String, String),
}

/// Destination of chunks and their statistics.
struct Out<'a, 'b> {
    path: &'a Path,
    options: &'a ChunkOptions,
    /// Plausible times of the file.
    bounds: (i64, i64),
    map: &'a mut MapFunction<'b>,
    sink: &'a mut ChunkSink<'b>,
    chunk: Chunk,
    known: HashMap<Place, TrackId, FixedState>,
    tracks: u32,
    stats: ChunkStats,
}

impl Out<'_, '_> {
    /// Adds the event of a row.
    fn event(&mut self, row: &Row<'_>, events: &Events<'_>) -> Result<(), Problem> {
        let whole = |at: usize| row.get_ref(at).map(|value| value.as_i64().ok());
        let (Some(start), Some(end)) = (whole(rows::START)?, whole(rows::END)?) else {
            self.stats.untimed += 1;
            return Ok(());
        };
        if end < start || [start, end].iter().any(|ns| !(self.bounds.0..=self.bounds.1).contains(ns)) {
            self.stats.left_out += 1;
            return Ok(());
        }
        let (Some(new_start), Some(new_end)) = (self.time(start), self.time(end)) else {
            let (table, id) = (&events.table.name, whole(rows::ID)?.unwrap_or_default());
            let problem =
                format!("the row {id} of the table {table} has a time that does not fit in 64 bits of nanoseconds");
            return Err(Problem::Other(Error::Database { path: self.path.to_owned(), problem }));
        };
        let name = text(row.get_ref(rows::NAME)?).unwrap_or_default();
        let category = text(row.get_ref(rows::CATEGORY)?).unwrap_or_default();
        if events.kind == Kind::Sample {
            return self.sample(row, (category, name), new_start);
        }
        let process = whole(rows::PROCESS)?.unwrap_or(0);
        let place = whole(rows::PLACE)?.unwrap_or(0);
        let track = match events.kind {
            Kind::Operation => self.track(Place::Queue(process, place, whole(rows::QUEUE)?.unwrap_or(0))),
            Kind::Call | Kind::Sample => self.track(Place::Thread(process, place)),
        };
        let flow = whole(rows::CALL)?.map_or_else(Flow::default, |call| {
            let end = if events.kind == Kind::Call { FlowEnd::Out } else { FlowEnd::In };
            Flow { id: FixedState::with_seed(0).hash_one((self.options.part, call)).max(1), end }
        });
        let args = if self.options.args.any() { self.arguments(row, events)? } else { ArgRange::default() };
        let is_mark = events.kind == Kind::Call && start == end && category == "marker";
        let Chunk { strings, slices, instants, .. } = &mut self.chunk;
        let name = strings.intern(&name);
        let category = strings.intern(if events.kind == Kind::Operation { category_of(&category) } else { &category });
        self.stats.events += 1;
        if is_mark {
            instants.push(track, new_start, (name, category), args);
        } else {
            slices.push(track, (new_start, new_end), (name, category), flow, args);
        }
        Ok(self.settle()?)
    }

    /// Adds a sample of a device's monitor, which is stored as text.
    fn sample(&mut self, row: &Row<'_>, (device, what): (String, String), time: i64) -> Result<(), Problem> {
        let value = text(row.get_ref(rows::CALL)?).and_then(|value| value.trim().parse::<f64>().ok());
        let Some(value) = value.filter(|value| value.is_finite()) else {
            self.stats.untimed += 1;
            return Ok(());
        };
        let track = self.track(Place::Monitor(device, what));
        self.stats.events += 1;
        self.chunk.counters.push(track, time, value);
        Ok(self.settle()?)
    }

    /// Adds columns of the row as arguments.
    fn arguments(&mut self, row: &Row<'_>, events: &Events<'_>) -> rusqlite::Result<ArgRange> {
        let first = self.chunk.args.key.len() as u32;
        let Chunk { args, strings, .. } = &mut self.chunk;
        for (at, (name, _)) in events.shown.iter().enumerate() {
            let Some(value) = argument(row.get_ref(rows::FIRST_SHOWN + at)?, strings) else { continue };
            args.key.push(strings.intern(name));
            args.value.push(value);
        }
        Ok(ArgRange { first, count: args.key.len() as u32 - first })
    }

    fn time(&mut self, ns: i64) -> Option<i64> {
        nearest_ns((self.map)(Picoseconds::from(ns) * PS_PER_NS))
    }

    /// Returns the track of a row, and declares it with its parents the first time.
    fn track(&mut self, place: Place) -> TrackId {
        if let Some(track) = self.known.get(&place) {
            return *track;
        }
        let process = |pid: i64| {
            let (host, rank) = (self.options.host.clone(), self.options.rank);
            TrackKind::Process(Process { pid, host, rank, guid: String::new() })
        };
        let (above, kind, name) = match &place {
            Place::Process(pid) => (None, process(*pid), String::new()),
            Place::Thread(pid, tid) => {
                (Some(Place::Process(*pid)), TrackKind::Thread { tid: *tid }, format!("thread {tid}"))
            }
            Place::Device(pid, device) => (Some(Place::Process(*pid)), TrackKind::Agent, format!("GPU {device}")),
            Place::Queue(pid, device, queue) => {
                (Some(Place::Device(*pid, *device)), TrackKind::Queue, format!("queue {queue}"))
            }
            Place::Monitors => (None, process(0), "monitors".to_owned()),
            Place::Monitored(device) => (Some(Place::Monitors), TrackKind::Agent, device.clone()),
            Place::Monitor(device, what) => (
                Some(Place::Monitored(device.clone())),
                TrackKind::Counter { unit: String::new() },
                what.chars().take(NAME_MAX).collect(),
            ),
        };
        let parent = above.map(|above| self.track(above));
        self.chunk.tracks.push(Track { parent, kind, name });
        let track = TrackId(self.tracks);
        self.tracks += 1;
        self.known.insert(place, track);
        track
    }

    fn settle(&mut self) -> Result<(), Error> {
        if self.chunk.is_full() {
            (self.sink)(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }
}

/// Returns the category of an operation, by the tracer's name for its type.
fn category_of(kind: &str) -> &str {
    match kind {
        // Kernels of a library that launches them itself are tasks.
        "KernelExecution" | "Task" => "kernel",
        "FillBuffer" => "gpu_memset",
        _ if kind.starts_with("Copy") || kind == "Memcpy" => "gpu_memcpy",
        _ => kind,
    }
}

/// Longer names of monitors are cut.
const NAME_MAX: usize = 256;
