//! An export as chunks of columns, for the writers of other formats.
//! Rows whose times are missing or cannot be believed are counted and left out.

use std::path::Path;

use rusqlite::types::ValueRef;

use super::catalog::Catalog;
use super::events::{self, Events, Row};
use super::identity::process_of;
use super::payload::Layouts;
use super::places::{Place, Places};
use super::reading::{Database, bounds};
use crate::Error;
use crate::chunk::{ArgRange, Chunk, Flow, FlowEnd, Track, TrackId, Value};
use crate::model::nearest_ns;
use crate::sqlite::access::Readable;
use crate::sqlite::query::Problem;
use crate::sqlite::table::{argument, quoted, text};
use crate::{ChunkOptions, ChunkSink, ChunkStats, MapFunction};

/// Reads an export.
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
    let mut out = Out {
        database: &database,
        wants_args: options.args.any(),
        bounds: bounds(&catalog.session, options.reach),
        layouts: Layouts::read(&database)?,
        places: Places::read(&database, options)?,
        map,
        sink,
        chunk: Chunk::default(),
        tracks: 0,
        stats: ChunkStats::default(),
    };
    let mut others = Vec::new();
    for table in catalog.tables.iter().filter(|table| !table.times.is_empty()) {
        match Events::of(&database, table) {
            Some(events) => out.events(&events)?,
            None if table.name == METRICS => out.metrics()?,
            None => others.push(table.name.as_str()),
        }
    }
    if !others.is_empty() {
        out.stats.notes.push(format!("events of these tables are not shown: {}", others.join(", ")));
    }
    (out.sink)(&out.chunk)?;
    Ok(out.stats)
}

/// Destination of chunks and their statistics.
struct Out<'a, 'b> {
    database: &'a Database<'a>,
    wants_args: bool,
    /// Plausible times of the file.
    bounds: (i64, i64),
    layouts: Layouts,
    places: Places,
    map: &'a mut MapFunction<'b>,
    sink: &'a mut ChunkSink<'b>,
    chunk: Chunk,
    tracks: u32,
    stats: ChunkStats,
}

impl Out<'_, '_> {
    /// Adds the events of a table.
    fn events(&mut self, events: &Events<'_>) -> Result<(), Error> {
        let database = self.database;
        database.each(&events.table.name, &events.statement(), &mut |row| self.event(row, events))
    }

    /// Adds the event of a row.
    fn event(&mut self, row: &rusqlite::Row<'_>, events: &Events<'_>) -> Result<(), Problem> {
        let whole = |at: usize| row.get_ref(at).map(|value| value.as_i64().ok());
        let class = whole(events::CLASS)?;
        if events.place == Row::Nvtx && class.is_some_and(|class| !SHOWN.contains(&class)) {
            return Ok(());
        }
        let is_instant = events.place == Row::Nvtx && class == Some(MARK);
        let start = whole(events::START)?;
        let end = if is_instant { start } else { whole(events::END)? };
        let (Some(start), Some(end)) = (start, end) else {
            self.stats.untimed += 1;
            return Ok(());
        };
        let is_away = |ns: i64| !(self.bounds.0..=self.bounds.1).contains(&ns);
        if end < start || is_away(start) || is_away(end) {
            self.stats.left_out += 1;
            return Ok(());
        }
        let (Some(start), Some(end)) = (self.time(start), self.time(end)) else {
            let (table, id) = (&events.table.name, whole(events::ID)?.unwrap_or_default());
            let problem =
                format!("the row {id} of the table {table} has a time that does not fit in 64 bits of nanoseconds");
            return Err(Problem::Other(Error::Database { path: self.database.path.to_owned(), problem }));
        };
        let owner = whole(events::OWNER)?.unwrap_or(0);
        let place = match events.place {
            Row::Thread | Row::Nvtx => Place::Thread(owner),
            Row::Stream | Row::Waits => {
                let (device, stream) = (whole(events::DEVICE)?.unwrap_or(0), whole(events::STREAM)?.unwrap_or(0));
                if events.place == Row::Waits {
                    Place::Waits(owner, device, stream)
                } else {
                    Place::Stream(owner, device, stream)
                }
            }
        };
        let track = self.track(place);
        let flow = self.flow(events, owner, whole(events::CORRELATION)?);
        let args = if self.wants_args { self.arguments(row, events)? } else { ArgRange::default() };
        let category = match (events.category.as_str(), class) {
            ("cuda_runtime", Some(DRIVER)) => "cuda_driver",
            (category, _) => category,
        };
        let name = text(row.get_ref(events::NAME)?).unwrap_or_default();
        let Chunk { strings, slices, instants, .. } = &mut self.chunk;
        let (name, category) = (strings.intern(&name), strings.intern(category));
        self.stats.events += 1;
        if is_instant {
            instants.push(track, start, (name, category), args);
        } else {
            slices.push(track, (start, end), (name, category), flow, args);
        }
        Ok(self.settle()?)
    }

    /// A call of CUDA begins a flow, which ends at what it started on a device.
    fn flow(&self, events: &Events<'_>, owner: i64, correlation: Option<i64>) -> Flow {
        match events.place {
            Row::Thread if events.category == "cuda_runtime" => {
                self.places.flow(process_of(owner), correlation, FlowEnd::Out)
            }
            Row::Stream => self.places.flow(owner, correlation, FlowEnd::In),
            Row::Thread | Row::Waits | Row::Nvtx => Flow::default(),
        }
    }

    /// Adds columns of the row, and the fields of its payload, as arguments.
    fn arguments(&mut self, row: &rusqlite::Row<'_>, events: &Events<'_>) -> rusqlite::Result<ArgRange> {
        let first = self.chunk.args.key.len() as u32;
        let Chunk { args, strings, .. } = &mut self.chunk;
        for (at, name) in events.shown.iter().enumerate() {
            let Some(value) = argument(row.get_ref(events::FIRST_SHOWN + at)?, strings) else { continue };
            args.key.push(strings.intern(name));
            args.value.push(value);
        }
        if events.place == Row::Nvtx {
            for (name, value) in self.layouts.fields(row.get_ref(events::BYTES)?, row.get_ref(events::JSON)?) {
                let value = match (i64::try_from(value), u64::try_from(value)) {
                    (Ok(value), _) => Value::Integer(value),
                    (_, Ok(value)) => Value::Unsigned(value),
                    _ => continue,
                };
                args.key.push(strings.intern(&name));
                args.value.push(value);
            }
        }
        Ok(ArgRange { first, count: args.key.len() as u32 - first })
    }

    /// Adds the samples of the devices' metrics.
    fn metrics(&mut self) -> Result<(), Error> {
        let database = self.database;
        let Some(table) = database.catalog.table(METRICS) else { return Ok(()) };
        let columns = ["timestamp", "typeId", "metricId", "value"].map(|name| table.column("t", name));
        let sql = format!("SELECT {} FROM {} t NOT INDEXED", columns.join(", "), quoted(&table.name));
        database.each(&table.name, &sql, &mut |row| {
            let whole = |at: usize| row.get_ref(at).map(|value| value.as_i64().ok());
            let value = match row.get_ref(3)? {
                ValueRef::Integer(value) => Some(value as f64),
                ValueRef::Real(value) => Some(value),
                _ => None,
            };
            let (Some(time), Some(value)) = (whole(0)?, value) else {
                self.stats.untimed += 1;
                return Ok(());
            };
            let plausible = (self.bounds.0..=self.bounds.1).contains(&time);
            let Some(time) = Some(time).filter(|_| plausible).and_then(|time| self.time(time)) else {
                self.stats.left_out += 1;
                return Ok(());
            };
            let track = self.track(Place::Metric(whole(1)?.unwrap_or(0), whole(2)?.unwrap_or(0)));
            self.stats.events += 1;
            self.chunk.counters.push(track, time, value);
            Ok(self.settle()?)
        })
    }

    fn time(&mut self, ns: i64) -> Option<i64> {
        nearest_ns((self.map)(self.database.absolute_ps(ns)))
    }

    fn track(&mut self, place: Place) -> TrackId {
        let Self { places, chunk, tracks, .. } = self;
        places.track(place, &mut |track: Track| {
            chunk.tracks.push(track);
            *tracks += 1;
            TrackId(*tracks - 1)
        })
    }

    fn settle(&mut self) -> Result<(), Error> {
        if self.chunk.is_full() {
            (self.sink)(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }
}

const METRICS: &str = "GPU_METRICS";
/// Types of NVTX events: a mark, and ranges that were pushed and popped, or started and ended.
const MARK: i64 = 34;
const SHOWN: [i64; 3] = [MARK, 59, 60];
/// The class of calls of CUDA's driver.
const DRIVER: i64 = 1;
