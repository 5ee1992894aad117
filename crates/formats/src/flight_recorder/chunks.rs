//! A dump as chunks: a process with a track for each group, and an event for each operation.

use std::collections::HashMap;
use std::path::Path;

use probe_sync_hang::Recorded;

use super::operations::{Timed, group_name};
use super::source::{self, RankDump};
use crate::chunk::{ArgRange, Chunk, Flow, Process, Track, TrackId, TrackKind, Value};
use crate::model::{PS_PER_NS, Picoseconds, nearest_ns};
use crate::{ChunkOptions, ChunkSink, ChunkStats, Error, MapFunction};

/// Reads a dump.
///
/// # Errors
/// Names the file and the byte; also returns errors of `sink`.
pub(super) fn read_chunks(
    path: &Path,
    options: &ChunkOptions,
    map: &mut MapFunction<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<ChunkStats, Error> {
    let RankDump { dump, rank } = source::read(path)?;
    let host = Some(options.host.clone()).filter(|host| !host.is_empty());
    let host = host.or_else(|| dump.host().map(str::to_owned)).unwrap_or_default();
    let mut stats = ChunkStats::default();
    let mut chunk = Chunk::default();
    let kind = TrackKind::Process(Process { host, rank: options.rank.or(rank), ..Process::default() });
    chunk.tracks.push(Track { parent: None, kind, name: PROCESS.to_owned() });
    let mut tracks: HashMap<(&str, &[u32]), TrackId> = HashMap::new();
    for recorded in dump.operations() {
        let timed = match Timed::of(recorded, options.reach) {
            Ok(Some(timed)) => timed,
            Ok(None) => {
                stats.untimed += 1;
                continue;
            }
            Err(_) => {
                stats.left_out += 1;
                continue;
            }
        };
        let next = TrackId(tracks.len() as u32 + 1);
        let track = *tracks.entry((recorded.group, recorded.members)).or_insert(next);
        if track == next {
            let kind = TrackKind::Thread { tid: i64::from(next.0) };
            chunk.tracks.push(Track { parent: Some(TrackId(0)), kind, name: group_name(&recorded) });
        }
        let mut mapped = |time_ns: i64| {
            let time = map(Picoseconds::from(time_ns) * PS_PER_NS);
            nearest_ns(time).ok_or_else(|| Error::malformed(path, 0, TOO_FAR))
        };
        let start_ns = mapped(timed.start_ns)?;
        let end_ns = timed.end_ns.map(mapped).transpose()?;
        put(&mut chunk, track, &timed, (start_ns, end_ns), options);
        stats.events += 1;
        if chunk.is_full() {
            sink(&chunk)?;
            chunk.clear();
        }
    }
    sink(&chunk)?;
    Ok(stats)
}

/// Adds an operation: a slice if its end is known, otherwise an instant.
fn put(chunk: &mut Chunk, track: TrackId, timed: &Timed<'_>, times: (i64, Option<i64>), options: &ChunkOptions) {
    let recorded = &timed.recorded;
    let args = arguments(chunk, timed, options);
    let Chunk { strings, slices, instants, .. } = chunk;
    let category = strings.intern(recorded.backend);
    let name = match recorded.is_finished {
        true => strings.intern(recorded.name),
        false => strings.intern(&format!("{} (not finished)", recorded.name)),
    };
    match times {
        (start_ns, Some(end_ns)) => {
            slices.track.push(track);
            slices.start_ns.push(start_ns);
            slices.end_ns.push(end_ns.max(start_ns));
            slices.name.push(name);
            slices.category.push(category);
            slices.flow.push(Flow::default());
            slices.args.push(args);
        }
        (time_ns, None) => {
            instants.track.push(track);
            instants.time_ns.push(time_ns);
            instants.name.push(name);
            instants.category.push(category);
            instants.args.push(args);
        }
    }
}

/// Adds what the recorder states about an operation, under its own names.
fn arguments(chunk: &mut Chunk, timed: &Timed<'_>, options: &ChunkOptions) -> ArgRange {
    let Chunk { strings, args, .. } = chunk;
    let first = args.key.len() as u32;
    let recorded: &Recorded<'_> = &timed.recorded;
    let sequence = if recorded.is_p2p { "p2p_seq_id" } else { "collective_seq_id" };
    let queued_ns = recorded.discovered_started_ns.zip(recorded.created_ns).map(|(start, created)| start - created);
    let duration_ms = recorded.duration_ms.filter(|duration| duration.is_finite());
    let types = (!recorded.input_types.is_empty()).then(|| serde_json::to_string(recorded.input_types).ok());
    let mut put = |key: &str, value: Option<Argument<'_>>| {
        let Some(value) = value.filter(|_| options.args.takes(key.as_bytes())) else { return };
        args.key.push(strings.intern(key));
        args.value.push(match value {
            Argument::Number(value) => value,
            Argument::Text(text) => Value::Text(strings.intern(text)),
            Argument::Json(text) => Value::Json(strings.intern(&text)),
        });
    };
    let integer = |value: u64| i64::try_from(value).map_or(Value::Unsigned(value), Value::Integer);
    put("finished", Some(Argument::Number(Value::Boolean(recorded.is_finished))));
    put("state", recorded.state.map(Argument::Text));
    put(sequence, Some(Argument::Number(integer(recorded.sequence))));
    put("process_group", Some(Argument::Text(recorded.group)));
    put("queued_ns", queued_ns.map(|queued| Argument::Number(Value::Integer(queued))));
    put("duration_ms", duration_ms.map(|duration| Argument::Number(Value::Float(duration))));
    put("input_sizes", recorded.input_sizes.map(|sizes| Argument::Json(format!("{sizes:?}"))));
    put("input_dtypes", types.flatten().map(Argument::Json));
    put("frame", recorded.frame.map(Argument::Text));
    ArgRange { first, count: args.key.len() as u32 - first }
}

/// Value of an argument whose text is not yet in the chunk.
enum Argument<'a> {
    Number(Value),
    Text(&'a str),
    Json(String),
}

/// Name of the process that holds the tracks.
const PROCESS: &str = "Flight Recorder";
const TOO_FAR: &str = "an operation's time does not fit in 64 bits of nanoseconds";
