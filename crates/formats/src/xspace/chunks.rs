//! An XSpace as chunks of columns, for the writers of other formats.
//!
//! One pass over the planes sends every time through the map. A plane becomes a process, a line a
//! thread of it (a stream on a device's plane), and an event a slice with its own stats as
//! arguments. Names follow the events that use them, so two sources walk the file: the first
//! collects a plane's names, the second then reads its lines. A line may be named after its events,
//! so tracks are declared with the last chunk. The format states no pid. It does not carry over
//! stats of names, stats of bytes, events with a count instead of a time (they are counted) or
//! pairs of clock readings (a note reports them).

use std::collections::HashMap;
use std::path::Path;

use foldhash::fast::FixedState;

use super::event::EventTimes;
use super::fields::{event, line, plane, space, stat};
use super::outline::{self, MetadataVisitor};
use super::plane_clock::PlaneClock;
use crate::Error;
use crate::chunk::{ArgRange, Chunk, Flow, Process, Track, TrackId, TrackKind, Value, lossy};
use crate::model::{PS_PER_NS, Picoseconds, nearest_ns};
use crate::protobuf::{Fault, Fields, Header, Source, Value as Wire};
use crate::{ChunkOptions, ChunkSink, ChunkStats, MapFunction};

/// Reads a file, plain or gzip.
///
/// # Errors
/// Returns an error for anything wrong with the input, with its offset; errors of `sink`.
pub(super) fn read_chunks(
    path: &Path,
    options: &ChunkOptions,
    map: &mut MapFunction<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<ChunkStats, Error> {
    let session = outline::outline(path)?;
    let clocks = session.clocks();
    let (chunk, stats) = (Chunk::default(), ChunkStats::default());
    let mut reader = Reader { options, map, sink, chunk, tracks: Vec::new(), stats };
    let mut planes = session.planes.iter();
    let (mut ahead, mut behind) = (Source::open(path)?, Source::open(path)?);
    while let Some(field) = outline::next_space_field(&mut ahead)? {
        if field.number != space::PLANES {
            ahead.skip(field.body())?;
            continue;
        }
        let Some(known) = planes.next() else {
            return Err(ahead.malformed(field.at, "the file changed while it was read"));
        };
        if known.is_snapshots() {
            let note = format!("{}: dropped pairs of clock readings, which are not events", known.name);
            reader.stats.notes.push(note);
            ahead.skip(field.body())?;
            continue;
        }
        let mut names = Names::default();
        outline::walk_plane(&mut ahead, &field, &mut names)?;
        if names.bytes > NAME_BYTES_MAX {
            let problem = format!("the event names of a plane exceed {NAME_BYTES_MAX} bytes in total");
            return Err(ahead.malformed(field.at, problem));
        }
        behind.skip(field.body_at() - behind.position())?;
        reader.plane(&mut behind, &field, &PlaneContext { names, clock: clocks.of(&known.starts) })?;
    }
    reader.chunk.tracks = reader.tracks;
    (reader.sink)(&reader.chunk)?;
    Ok(reader.stats)
}

/// The names of a plane.
#[derive(Default)]
struct Names {
    plane: String,
    events: HashMap<u64, Box<str>, FixedState>,
    stats: HashMap<u64, Box<str>, FixedState>,
    bytes: usize,
}

impl Names {
    /// Whether a name of this length still fits; otherwise the caller refuses the plane.
    fn admit(&mut self, name: &str) -> bool {
        self.bytes += name.len() + NAME_COST_BYTES;
        self.bytes <= NAME_BYTES_MAX
    }
}

impl MetadataVisitor for Names {
    fn name(&mut self, name: &str) {
        name.clone_into(&mut self.plane);
    }

    fn name_bytes_max(&self) -> u64 {
        ONE_NAME_BYTES_MAX
    }

    fn event_metadata(&mut self, number: u64, name: &str) {
        if self.admit(name) {
            self.events.insert(number, name.into());
        }
    }

    fn stat_metadata(&mut self, number: u64, name: &str) {
        if self.admit(name) {
            self.stats.insert(number, name.into());
        }
    }
}

/// What an event needs to know about its plane.
struct PlaneContext {
    names: Names,
    clock: PlaneClock,
}

/// A line on its way.
#[derive(Default)]
struct Line {
    id: i64,
    name: String,
    /// What viewers show instead of the name, if present.
    display_name: String,
    stated_ns: i64,
    /// Its number, from its first event on.
    track: Option<TrackId>,
}

/// State of one pass.
struct Reader<'a, 'b> {
    options: &'a ChunkOptions,
    map: &'a mut MapFunction<'b>,
    sink: &'a mut ChunkSink<'b>,
    chunk: Chunk,
    tracks: Vec<Track>,
    stats: ChunkStats,
}

impl Reader<'_, '_> {
    /// Reads a plane's lines.
    fn plane(&mut self, source: &mut Source, header: &Header, context: &PlaneContext) -> Result<(), Error> {
        let mut process = None;
        while let Some(field) = outline::next_plane_field(source, header.end())? {
            if field.number == plane::LINES {
                self.line(source, &field, context, &mut process)?;
            } else {
                source.skip(field.body())?;
            }
        }
        Ok(())
    }

    /// Reads a line's events; a line without any leaves no track.
    fn line(
        &mut self,
        source: &mut Source,
        header: &Header,
        context: &PlaneContext,
        process: &mut Option<TrackId>,
    ) -> Result<(), Error> {
        let mut line = Line::default();
        while let Some(field) = source.next_header(header.end())? {
            match (field.number, field.wire) {
                (line::EVENTS, 2) => {
                    let track = match line.track {
                        Some(track) => track,
                        None => {
                            let track = self.open_line(source, &field, context, process)?;
                            *line.track.insert(track)
                        }
                    };
                    let bytes = source.piece(field.body())?;
                    if let Err(fault) = self.event(bytes, track, line.stated_ns, context) {
                        return Err(source.fault(field.body_at(), fault));
                    }
                    source.consume(field.body() as usize);
                    if self.chunk.is_full() {
                        (self.sink)(&self.chunk)?;
                        self.chunk.clear();
                    }
                }
                (line::TIMESTAMP_NS, 0) if line.track.is_some() && field.value as i64 != line.stated_ns => {
                    return Err(source.malformed(field.at, "a line has its start after its events, or twice"));
                }
                (line::TIMESTAMP_NS, 0) => line.stated_ns = field.value as i64,
                (line::ID, 0) => line.id = field.value as i64,
                (line::NAME, 2) => line.name = outline::read_name(source, &field, ONE_NAME_BYTES_MAX)?,
                (line::DISPLAY_NAME, 2) => line.display_name = outline::read_name(source, &field, ONE_NAME_BYTES_MAX)?,
                (line::ID | line::NAME | line::TIMESTAMP_NS | line::EVENTS | line::DISPLAY_NAME, _) => {
                    return Err(outline::mistyped(source, &field, "a line"));
                }
                _ => source.skip(field.body())?,
            }
        }
        if let Some(track) = line.track {
            let name = [line.display_name, line.name].into_iter().find(|name| !name.is_empty());
            let is_device = context.names.plane.starts_with(DEVICE_PREFIX);
            let described = &mut self.tracks[track.0 as usize];
            described.kind = if is_device { TrackKind::Stream } else { TrackKind::Thread { tid: line.id } };
            described.name = name.unwrap_or_else(|| format!("line {}", line.id));
        }
        Ok(())
    }

    /// Numbers the line's track and, with its first line, the plane's; the name of the line is
    /// known at its end.
    fn open_line(
        &mut self,
        source: &Source,
        field: &Header,
        context: &PlaneContext,
        process: &mut Option<TrackId>,
    ) -> Result<TrackId, Error> {
        if self.tracks.len() + 2 > TRACKS_MAX {
            return Err(source.malformed(field.at, "the file has more than a million planes and lines"));
        }
        let parent = *process.get_or_insert_with(|| {
            let (host, rank) = (self.options.host.clone(), self.options.rank);
            let kind = TrackKind::Process(Process { host, rank, ..Process::default() });
            self.tracks.push(Track { parent: None, kind, name: context.names.plane.clone() });
            TrackId(self.tracks.len() as u32 - 1)
        });
        self.tracks.push(Track { parent: Some(parent), kind: TrackKind::Stream, name: String::new() });
        Ok(TrackId(self.tracks.len() as u32 - 1))
    }

    /// Takes an event in.
    fn event(&mut self, bytes: &[u8], track: TrackId, line_ns: i64, context: &PlaneContext) -> Result<(), Fault> {
        let times = EventTimes::parse(bytes)?;
        if times.aggregated {
            self.stats.untimed += 1;
            return Ok(());
        }
        let fault = |problem: &str| Fault { at: 0, problem: problem.to_owned() };
        let line_ps = context.clock.origin_ps + Picoseconds::from(line_ns) * PS_PER_NS;
        if times.oddity(line_ps, self.options.reach.filter(|_| !context.clock.since_boot)).is_some() {
            self.stats.left_out += 1;
            return Ok(());
        }
        let (start_ps, end_ps) = times.span_ps(line_ps);
        let start_ns = nearest_ns((self.map)(start_ps)).ok_or_else(|| fault(TOO_FAR))?;
        let end_ns = match times.duration.value {
            0 => start_ns,
            _ => nearest_ns((self.map)(end_ps)).ok_or_else(|| fault(TOO_FAR))?,
        };
        let args = if self.options.args.any() { self.args(bytes, &context.names)? } else { ArgRange::default() };
        self.stats.events += 1;
        let Chunk { strings, slices, .. } = &mut self.chunk;
        let name = match context.names.events.get(&times.metadata) {
            Some(name) => strings.intern(name),
            None => strings.intern(&format!("event {}", times.metadata)),
        };
        slices.push(track, (start_ns, end_ns), (name, Default::default()), Flow::default(), args);
        Ok(())
    }

    /// The event's own stats.
    fn args(&mut self, bytes: &[u8], names: &Names) -> Result<ArgRange, Fault> {
        let Chunk { strings, args, .. } = &mut self.chunk;
        let first = args.key.len() as u32;
        for field in Fields::of(bytes) {
            let field = field?;
            let (event::STATS, Wire::Bytes(inner)) = (field.number, field.value) else { continue };
            let (number, value) = read_stat(inner).map_err(|fault| fault.within(field.value_at))?;
            let value = match value {
                None => continue,
                Some(Read::Number(value)) => value,
                Some(Read::Text(text)) => Value::Text(strings.push(&lossy(text))),
                Some(Read::Reference(name)) => Value::Text(match names.stats.get(&name) {
                    Some(text) => strings.intern(text),
                    None => strings.intern(&format!("text {name}")),
                }),
            };
            args.key.push(match names.stats.get(&number) {
                Some(name) => strings.intern(name),
                None => strings.intern(&format!("stat {number}")),
            });
            args.value.push(value);
        }
        Ok(ArgRange { first, count: args.key.len() as u32 - first })
    }
}

/// A stat's value.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Read<'a> {
    Number(Value),
    Text(&'a [u8]),
    Reference(u64),
}

/// The number of a stat's name, and its value unless that is bytes.
fn read_stat(bytes: &[u8]) -> Result<(u64, Option<Read<'_>>), Fault> {
    let (mut number, mut read) = (0, None);
    for field in Fields::of(bytes) {
        let field = field?;
        match (field.number, field.value) {
            (stat::METADATA_ID, _) => number = field.number("a stat's metadata_id")?,
            (stat::DOUBLE, Wire::Fixed(raw)) => {
                let bits = raw.first_chunk().map(|raw| f64::from_le_bytes(*raw));
                read = bits.map(|value| Read::Number(Value::Float(value)));
            }
            (stat::UINT64, Wire::Number(value)) => {
                let signed = i64::try_from(value).map(Value::Integer);
                read = Some(Read::Number(signed.unwrap_or(Value::Unsigned(value))));
            }
            (stat::INT64, Wire::Number(value)) => read = Some(Read::Number(Value::Integer(value as i64))),
            (stat::STRING, Wire::Bytes(text)) => read = Some(Read::Text(text)),
            (stat::REFERENCE, Wire::Number(value)) => read = Some(Read::Reference(value)),
            _ => {}
        }
    }
    Ok((number, read))
}

const TOO_FAR: &str = "the event's time does not fit in 64 bits of nanoseconds";
const DEVICE_PREFIX: &str = "/device:";
/// Planes and lines of a file at most.
const TRACKS_MAX: usize = 1 << 20;
/// Largest memory for the names of a plane, since any of its events may have any of them.
const NAME_BYTES_MAX: usize = 64 << 20;
/// A longer name is cut here.
const ONE_NAME_BYTES_MAX: u64 = 1 << 20;
/// Memory of a map's entry in addition to the text.
const NAME_COST_BYTES: usize = 64;
