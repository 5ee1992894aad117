//! A log as chunks: a process with a track for each communicator, and tracks of its channels below.

use std::collections::HashMap;
use std::path::Path;

use super::operation::{Operation, ps};
use super::survey::{Survey, for_each};
use crate::chunk::{ArgRange, Chunk, Flow, Process, Track, TrackId, TrackKind, Value};
use crate::model::nearest_ns;
use crate::{ChunkOptions, ChunkSink, ChunkStats, Error, MapFunction};

/// Reads a log.
///
/// # Errors
/// Names the file and the byte; also returns errors of `sink`.
pub(super) fn read_chunks(
    path: &Path,
    options: &ChunkOptions,
    map: &mut MapFunction<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<ChunkStats, Error> {
    let survey = Survey::read(path)?;
    let (rank, pid) = (options.rank.or(survey.rank()), survey.pid);
    let Survey { host, .. } = survey;
    let host = if options.host.is_empty() { host } else { options.host.clone() };
    let mut chunk = Chunk::default();
    let pid = i64::try_from(pid).unwrap_or(i64::MAX);
    let kind = TrackKind::Process(Process { pid, host, rank, ..Process::default() });
    chunk.tracks.push(Track { parent: None, kind, name: PROCESS.to_owned() });
    let mut stats = ChunkStats::default();
    let mut tracks = Tracks { known: HashMap::new(), declared: 1 };
    let ignored = for_each(path, |operation, offset| {
        let operation = match operation.within(options.reach) {
            Ok(operation) => operation,
            Err(fault) => return Ok(Some(fault)),
        };
        if tracks.declared > TRACKS_MAX {
            return Err(Error::malformed(path, offset, format!("more than {TRACKS_MAX} channels")));
        }
        let mut mapped =
            |time_us: u64| nearest_ns(map(ps(time_us))).ok_or_else(|| Error::malformed(path, offset, TOO_FAR));
        let track = tracks.of(&mut chunk, &operation, None);
        let times = (mapped(operation.launch_us)?, mapped(operation.end_us)?);
        put(&mut chunk, track, &operation, times, options);
        for channel in &operation.channels {
            let track = tracks.of(&mut chunk, &operation, Some(channel.channel_id));
            let times = (mapped(channel.start_us)?, mapped(channel.stop_us)?);
            let Chunk { strings, args, .. } = &mut chunk;
            let name = strings.intern(&operation.name);
            let none = ArgRange { first: args.key.len() as u32, count: 0 };
            slice(&mut chunk, track, name, times, none);
        }
        stats.events += operation.events();
        if chunk.is_full() {
            sink(&chunk)?;
            chunk.clear();
        }
        Ok(None)
    })?;
    sink(&chunk)?;
    stats.untimed = ignored.untimed();
    stats.left_out = ignored.lines() - ignored.untimed();
    Ok(stats)
}

/// The tracks of communicators and of their channels.
struct Tracks {
    known: HashMap<(String, u32, Option<i64>), TrackId>,
    declared: u32,
}

impl Tracks {
    /// The track of an operation, or of a channel of its kernel; declares it first if need be.
    fn of(&mut self, chunk: &mut Chunk, operation: &Operation<'_>, channel: Option<i64>) -> TrackId {
        let key = |channel| (operation.header.id.to_string(), operation.header.rank, channel);
        if let Some(track) = self.known.get(&key(channel)) {
            return *track;
        }
        let (parent, name) = match channel {
            None => (TrackId(0), operation.communicator()),
            Some(channel) => (self.of(chunk, operation, None), format!("channel {channel}")),
        };
        let track = TrackId(self.declared);
        self.declared += 1;
        let kind = TrackKind::Thread { tid: i64::from(track.0) };
        chunk.tracks.push(Track { parent: Some(parent), kind, name });
        self.known.insert(key(channel), track);
        track
    }
}

/// Adds an operation with what the plugin states about it, under its own names.
fn put(chunk: &mut Chunk, track: TrackId, operation: &Operation<'_>, times: (i64, i64), options: &ChunkOptions) {
    let Chunk { strings, args, .. } = chunk;
    let first = args.key.len() as u32;
    let integer = |value: u64| i64::try_from(value).map_or(Value::Unsigned(value), Value::Integer);
    let finite = |value: Option<f64>| value.filter(|value| value.is_finite()).map(Value::Float);
    let kind = if operation.is_p2p { "p2p" } else { "coll" };
    let queued_us = operation.noticed_us - operation.launch_us;
    let id = Value::Text(strings.intern(&operation.header.id));
    let source = (!operation.timing_source.is_empty()).then(|| Value::Text(strings.intern(&operation.timing_source)));
    for (name, value) in [
        ("sn", Some(integer(operation.sequence))),
        ("peer", operation.peer.map(Value::Integer)),
        ("msg_size_bytes", Some(integer(operation.size_bytes))),
        ("exec_time_us", Some(integer(operation.exec_time_us))),
        ("timing_source", source),
        ("algobw_gbs", finite(operation.algobw_gbs)),
        ("busbw_gbs", finite(operation.busbw_gbs)),
        ("id", Some(id)),
        ("queued_ns", Some(integer(queued_us.saturating_mul(1000)))),
    ] {
        let key = if matches!(name, "id" | "queued_ns") { name.to_owned() } else { format!("{kind}_{name}") };
        let Some(value) = value.filter(|_| options.args.takes(key.as_bytes())) else { continue };
        args.key.push(strings.intern(&key));
        args.value.push(value);
    }
    let range = ArgRange { first, count: args.key.len() as u32 - first };
    let name = strings.intern(&operation.name);
    slice(chunk, track, name, times, range);
}

fn slice(
    chunk: &mut Chunk,
    track: TrackId,
    name: crate::chunk::StringId,
    (start_ns, end_ns): (i64, i64),
    args: ArgRange,
) {
    let Chunk { strings, slices, .. } = chunk;
    slices.push(track, (start_ns, end_ns.max(start_ns)), (name, strings.intern(CATEGORY)), Flow::default(), args);
}

/// Name of the process that holds the tracks.
const PROCESS: &str = "NCCL Inspector";
const CATEGORY: &str = "nccl";
/// Tracks of a log. The plugin holds 64 channels of a communicator.
const TRACKS_MAX: u32 = 1 << 17;
const TOO_FAR: &str = "an operation's time does not fit in 64 bits of nanoseconds";
