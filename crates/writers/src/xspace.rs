//! XSpace protobuf (`.xplane.pb`), as xprof reads it: a plane per process and device, a line per
//! row, an event per slice.
//!
//! `formats::xspace` reads it back and documents the messages. A message states its length first,
//! and the events of a line are contiguous, so events go to a [`Spool`] line by line and the file
//! is written when the trace is finished: memory is that of the spool, of names and of rows. Times
//! count in picoseconds from the given base, which is also the session's start (plane
//! `Task Environment`). xprof draws each host from its own session's start, so files of several
//! hosts must share it. Without a given base it is the whole second before the first event. Moments
//! are events of zero duration, counters are on the line `_counters_`, and flows are stats `flow`.
//! The host's name identifies the process, as does a marker's name if the rank and number of ranks
//! are known. Overlapping slices of a row go to lanes. It does not sort, and it does not write XLA
//! programs.

use std::io::Write;

use probe_sync_formats::chunk::order::{Row, in_order};
use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, FlowEnd, StringId, TrackId, Value};
use probe_sync_formats::protobuf::{put_bytes, put_number, put_varint, varint_width};
use probe_sync_formats::xspace_fields::{event, line, metadata, plane, space, stat};
use probe_sync_formats::{ALIGNED_PLANE, ALIGNED_TO, Error};

use super::flows::Waiting;
use super::lanes::{Lanes, Place};
use super::remembered::Remembered;
use super::report::{Meta, WriteReport};
use super::sink::Sink;
use super::spool::Spool;
use super::xspace_names::{Named, Names};
use super::xspace_planes::Planes;

/// A trace being written.
#[derive(Debug)]
pub(super) struct XSpace<W> {
    sink: Sink<W>,
    meta: Meta,
    /// Base of all times, from the first event on.
    base_ns: Option<i64>,
    /// Start of the first event and end of the last.
    span: Option<(i64, i64)>,
    planes: Planes,
    names: Names,
    spool: Spool,
    lanes: Lanes,
    /// By lane: its line.
    lane_lines: Vec<usize>,
    waiting: Waiting,
    taken: Vec<Flow>,
    flow_numbers: Remembered<u64>,
    flows: u64,
    /// The event under construction.
    body: Vec<u8>,
    report: WriteReport,
}

impl<W: Write> XSpace<W> {
    pub(super) fn open(sink: W, meta: &Meta) -> Self {
        Self {
            sink: Sink::new(sink),
            meta: meta.clone(),
            base_ns: Some(meta.base_ns).filter(|base| *base != 0),
            span: None,
            planes: Planes::default(),
            names: Names::default(),
            spool: Spool::default(),
            lanes: Lanes::default(),
            lane_lines: Vec::new(),
            waiting: Waiting::default(),
            taken: Vec::new(),
            flow_numbers: Remembered::default(),
            flows: 0,
            body: Vec::new(),
            report: WriteReport::default(),
        }
    }

    pub(super) fn write(&mut self, chunk: &Chunk) -> Result<(), Error> {
        chunk.check(self.planes.tracks())?;
        self.widen(chunk)?;
        self.planes.declare(&chunk.tracks, &mut self.spool);
        self.lanes.add_rows(chunk.tracks.len());
        for row in in_order(chunk) {
            match row {
                Row::Flow(row) => {
                    self.waiting.at(chunk.flows.time_ns[row]);
                    self.waiting.add(chunk, row);
                    self.report.flow_ends += 1;
                }
                Row::Slice(row) => self.slice(chunk, row)?,
                Row::Instant(row) => self.instant(chunk, row)?,
                Row::Counter(row) => self.counter(chunk, row)?,
            }
        }
        Ok(())
    }

    /// Includes the times of a chunk in the span, and refuses what no event can state.
    fn widen(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let starts = chunk.times().into_iter().flat_map(|(_, times)| times).copied();
        let ends = chunk.slices.end_ns.iter().copied();
        let last = starts.clone().chain(ends).max();
        let Some((first, last)) = starts.min().zip(last) else { return Ok(()) };
        let base_ns = *self.base_ns.get_or_insert_with(|| first.div_euclid(NS_PER_S).saturating_mul(NS_PER_S));
        let span = self.span.map_or((first, last), |(earliest, latest)| (earliest.min(first), latest.max(last)));
        let far = |ns: i64| ns.checked_sub(base_ns).is_none_or(|from| from.unsigned_abs() > REACH_NS.unsigned_abs());
        if far(span.0) || far(span.1) {
            let from = if self.meta.base_ns == 0 { "the first event" } else { "its base" };
            let problem = format!(
                "a time is more than 53 days from {from}, which an XSpace cannot represent; write another format"
            );
            return Err(Error::Chunk { problem });
        }
        self.span = Some(span);
        Ok(())
    }

    fn slice(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let slices = &chunk.slices;
        let (track, start, end) = (slices.track[row], slices.start_ns[row], slices.end_ns[row]);
        while self.lanes.ended(start).is_some() {}
        let place = self.lanes.place(track.0, start, end);
        if place.new {
            self.open_lane(track, place);
        }
        self.waiting.at(start);
        self.report.flow_ends += u64::from(slices.flow[row].id != 0);
        self.waiting.take(slices, row, &mut self.taken);
        self.report.slices += 1;
        let line = self.lane_lines[place.lane as usize];
        self.begin(line, chunk.strings.text(slices.name[row]), start, end)?;
        self.stats(line, chunk, slices.category[row], slices.args[row])?;
        let taken = std::mem::take(&mut self.taken);
        for flow in &taken {
            self.flow(line, *flow)?;
        }
        self.taken = taken;
        self.end(line)
    }

    fn instant(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let instants = &chunk.instants;
        self.report.instants += 1;
        let line = self.planes.line(instants.track[row], &mut self.spool);
        let time = instants.time_ns[row];
        self.begin(line, chunk.strings.text(instants.name[row]), time, time)?;
        self.stats(line, chunk, instants.category[row], instants.args[row])?;
        self.end(line)
    }

    fn counter(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let counters = &chunk.counters;
        self.report.counters += 1;
        let (track, time) = (counters.track[row], counters.time_ns[row]);
        let line = self.planes.counters(track, &mut self.spool);
        let name = self.planes.name(track).to_owned();
        self.begin(line, &name, time, time)?;
        let key = self.number(line, Named::Stat, COUNTER_VALUE)?;
        put_double(&mut self.body, key, counters.value[row]);
        self.end(line)
    }

    fn open_lane(&mut self, track: TrackId, place: Place) {
        debug_assert_eq!(place.lane as usize, self.lane_lines.len(), "lanes are numbered as they are opened");
        let line = if place.of_row == 0 {
            self.planes.line(track, &mut self.spool)
        } else {
            self.report.lanes += 1;
            self.planes.lane(track, place.of_row, &mut self.spool)
        };
        self.lane_lines.push(line);
    }

    /// Begins the event of a line.
    #[inline]
    fn begin(&mut self, line: usize, name: &str, start: i64, end: i64) -> Result<(), Error> {
        let number = self.number(line, Named::Event, name)?;
        let base_ns = self.base_ns.unwrap_or(0);
        self.body.clear();
        put_number(&mut self.body, event::METADATA_ID, number);
        put_number(&mut self.body, event::OFFSET_PS, ((start - base_ns) * PS_PER_NS) as u64);
        if end > start {
            put_number(&mut self.body, event::DURATION_PS, ((end - start) * PS_PER_NS) as u64);
        }
        Ok(())
    }

    /// Ends the event of a line.
    #[inline]
    fn end(&mut self, line: usize) -> Result<(), Error> {
        let body = &self.body;
        self.spool.append(self.planes.lines[line].stream, |out| put_bytes(out, line::EVENTS, body))
    }

    #[inline]
    fn number(&mut self, line: usize, named: Named, name: &str) -> Result<u64, Error> {
        let plane = &mut self.planes.planes[self.planes.lines[line].plane];
        self.names.number(&mut plane.names, named, name, &mut self.spool)
    }

    /// Appends category and arguments.
    #[inline]
    fn stats(&mut self, line: usize, chunk: &Chunk, category: StringId, range: ArgRange) -> Result<(), Error> {
        if category != StringId::EMPTY {
            let key = self.number(line, Named::Stat, CATEGORY)?;
            let text = self.number(line, Named::Stat, chunk.strings.text(category))?;
            put_stat(&mut self.body, key, stat::REFERENCE, text);
        }
        for index in range.first as usize..(range.first + range.count) as usize {
            let key = self.number(line, Named::Stat, chunk.strings.text(chunk.args.key[index]))?;
            match chunk.args.value[index] {
                Value::Integer(value) => put_stat(&mut self.body, key, stat::INT64, value as u64),
                Value::Unsigned(value) => put_stat(&mut self.body, key, stat::UINT64, value),
                Value::Float(value) => put_double(&mut self.body, key, value),
                Value::Boolean(value) => put_stat(&mut self.body, key, stat::INT64, u64::from(value)),
                Value::Text(text) | Value::Json(text) => put_text(&mut self.body, key, chunk.strings.text(text)),
            }
        }
        Ok(())
    }

    /// Appends an end of a flow: the kind of end in two bits, the flow in the 56 above.
    fn flow(&mut self, line: usize, flow: Flow) -> Result<(), Error> {
        let key = self.number(line, Named::Stat, FLOW)?;
        let number = match self.flow_numbers.get_mut(flow.id) {
            Some(number) => *number,
            None => {
                self.flows += 1;
                self.flow_numbers.insert(flow.id, self.flows);
                self.flows
            }
        };
        let end = match flow.end {
            FlowEnd::In => 1,
            FlowEnd::Out => 2,
            FlowEnd::Step => 3,
        };
        put_stat(&mut self.body, key, stat::UINT64, number << 2 | end);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<(WriteReport, W), Error> {
        let (first, last) = self.span.unwrap_or_default();
        let base_ns = self.base_ns.unwrap_or(0);
        let session_ns = if self.span.is_some() { base_ns.min(first) } else { base_ns };
        self.rank_marker()?;
        let mut lines: Vec<Vec<usize>> = vec![Vec::new(); self.planes.planes.len()];
        for (index, line) in self.planes.lines.iter().enumerate() {
            lines[line.plane].push(index);
        }
        let names = self.planes.names();
        for (index, name) in names.iter().enumerate().filter(|(index, _)| !lines[*index].is_empty()) {
            self.plane(index, name, &lines[index], base_ns - session_ns)?;
        }
        self.tell(session_ns, last.max(session_ns), names.len() as u64 + 1);
        let mut hosts: Vec<&str> = Vec::new();
        for process in self.planes.planes.iter().filter_map(|plane| plane.process.as_ref()) {
            if !process.host.is_empty() && !hosts.contains(&process.host.as_str()) {
                hosts.push(&process.host);
            }
        }
        for host in hosts {
            put_bytes(self.sink.buffer(), space::HOSTNAMES, host.as_bytes());
        }
        self.report.unbound_flow_ends = self.waiting.finish();
        self.report.tracks = self.planes.tracks() as u64;
        let (inner, bytes) = self.sink.finish()?;
        self.report.bytes = bytes;
        Ok((self.report, inner))
    }

    /// Names the rank, if all processes have the same: readers look for the name, and no event need
    /// have it.
    fn rank_marker(&mut self) -> Result<(), Error> {
        let mut ranks: Vec<u32> = self.planes.planes.iter().filter_map(|plane| plane.process.as_ref()?.rank).collect();
        ranks.dedup();
        let ([rank], Some(world_size), Some(line)) = (&ranks[..], self.meta.world_size, self.planes.lines.first())
        else {
            return Ok(());
        };
        let (name, plane) = (format!("probe_sync.rank#{rank}/{world_size}"), line.plane);
        let of = &mut self.planes.planes[plane].names;
        self.names.number(of, Named::Event, &name, &mut self.spool).map(|_| ())
    }

    /// Writes a plane with its lines, whose times count from `from_ns` after the session's start.
    fn plane(&mut self, index: usize, name: &str, lines: &[usize], from_ns: i64) -> Result<(), Error> {
        let mut head = Vec::new();
        put_number(&mut head, plane::ID, index as u64 + 1);
        put_bytes(&mut head, plane::NAME, name.as_bytes());
        let headed: Vec<(Vec<u8>, usize)> = lines
            .iter()
            .map(|line| {
                let line = &self.planes.lines[*line];
                let mut head = Vec::new();
                put_number(&mut head, line::ID, line.id as u64);
                put_bytes(&mut head, line::NAME, line.name.as_bytes());
                put_number(&mut head, line::TIMESTAMP_NS, from_ns as u64);
                (head, line.stream)
            })
            .collect();
        let length = |head: &[u8], stream: usize| head.len() as u64 + self.spool.bytes(stream);
        let streams = self.planes.planes[index].names.streams;
        let of_lines = headed.iter().map(|(head, stream)| {
            let length = length(head, *stream);
            1 + varint_width(length) as u64 + length
        });
        let of_names = streams.iter().map(|stream| self.spool.bytes(*stream));
        let total = head.len() as u64 + of_lines.sum::<u64>() + of_names.sum::<u64>();
        put_tag(self.sink.buffer(), space::PLANES, total);
        self.sink.buffer().extend_from_slice(&head);
        for (head, stream) in &headed {
            put_tag(self.sink.buffer(), plane::LINES, length(head, *stream));
            self.sink.buffer().extend_from_slice(head);
            self.spool.copy(*stream, &mut self.sink)?;
        }
        streams.iter().try_for_each(|stream| self.spool.copy(*stream, &mut self.sink))
    }

    /// Writes metadata of the trace: the session, and the caller's metadata; for a trace on a
    /// common clock in a plane with that name, as readers expect.
    fn tell(&mut self, start_ns: i64, stop_ns: i64, id: u64) {
        let session = [("profile_start_time", start_ns), ("profile_stop_time", stop_ns)];
        let texts: Vec<(&str, &str)> =
            self.meta.metadata.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let clock = texts.iter().find(|(name, _)| *name == ALIGNED_TO).map(|(_, clock)| *clock);
        let out = self.sink.buffer();
        match clock {
            None => put_bytes(out, space::PLANES, &told("Task Environment", id, &session, &texts)),
            Some(clock) => {
                put_bytes(out, space::PLANES, &told("Task Environment", id, &session, &[]));
                put_bytes(out, space::PLANES, &told(&format!("{ALIGNED_PLANE}{clock}"), id + 1, &[], &texts));
            }
        }
    }
}

/// A plane of stats alone.
fn told(name: &str, id: u64, numbers: &[(&str, i64)], texts: &[(&str, &str)]) -> Vec<u8> {
    let mut message = Vec::new();
    put_number(&mut message, plane::ID, id);
    put_bytes(&mut message, plane::NAME, name.as_bytes());
    let names = numbers.iter().map(|(name, _)| *name).chain(texts.iter().map(|(name, _)| *name));
    for (name, number) in names.zip(1..) {
        let (mut inner, mut entry) = (Vec::new(), Vec::new());
        put_number(&mut inner, metadata::ID, number);
        put_bytes(&mut inner, metadata::NAME, name.as_bytes());
        put_number(&mut entry, metadata::KEY, number);
        put_bytes(&mut entry, metadata::VALUE, &inner);
        put_bytes(&mut message, plane::STAT_METADATA, &entry);
    }
    let mut of_plane = |number: u64, put: &dyn Fn(&mut Vec<u8>)| {
        let mut inner = Vec::new();
        put_number(&mut inner, stat::METADATA_ID, number);
        put(&mut inner);
        put_bytes(&mut message, plane::STATS, &inner);
    };
    for ((_, value), number) in numbers.iter().zip(1..) {
        of_plane(number, &|inner| put_number(inner, stat::UINT64, *value as u64));
    }
    for ((_, text), number) in texts.iter().zip(numbers.len() as u64 + 1..) {
        of_plane(number, &|inner| put_bytes(inner, stat::STRING, text.as_bytes()));
    }
    message
}

/// Start of a message of this length.
fn put_tag(out: &mut Vec<u8>, field: u32, length: u64) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, length);
}

/// Appends a stat that is a number or a reference.
#[inline]
fn put_stat(body: &mut Vec<u8>, key: u64, field: u32, value: u64) {
    put_tag(body, event::STATS, 2 + varint_width(key) as u64 + varint_width(value) as u64);
    put_number(body, stat::METADATA_ID, key);
    put_number(body, field, value);
}

fn put_double(body: &mut Vec<u8>, key: u64, value: f64) {
    put_tag(body, event::STATS, 1 + varint_width(key) as u64 + 9);
    put_number(body, stat::METADATA_ID, key);
    put_varint(body, u64::from(stat::DOUBLE) << 3 | 1);
    body.extend_from_slice(&value.to_le_bytes());
}

fn put_text(body: &mut Vec<u8>, key: u64, text: &str) {
    let length = text.len() as u64;
    put_tag(body, event::STATS, 2 + varint_width(key) as u64 + varint_width(length) as u64 + length);
    put_number(body, stat::METADATA_ID, key);
    put_bytes(body, stat::STRING, text.as_bytes());
}

const PS_PER_NS: i64 = 1000;
const NS_PER_S: i64 = 1_000_000_000;
/// Largest distance of a time from the base: half of what 64 bits of picoseconds hold, so that the
/// distance between any two of them fits.
const REACH_NS: i64 = i64::MAX / PS_PER_NS / 2;
/// The stat of an end of a flow.
const FLOW: &str = "flow";
/// The stat of a counter's value.
const COUNTER_VALUE: &str = "counter_value";
/// The stat of a category.
const CATEGORY: &str = "category";
