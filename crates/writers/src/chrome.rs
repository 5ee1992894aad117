//! Chrome's JSON (`.json`), with times in microseconds to three decimals since
//! `baseTimeNanoseconds`.
//!
//! It is the third dialect of `formats::kineto`, which reads it back exactly to the nanosecond.
//! Viewers identify rows by two numbers, pid and tid, and know no devices below processes: a
//! process keeps its pid if no other has it and gets a free number otherwise, a thread likewise,
//! and a row below a device is named after both. Overlapping slices of a row go to lanes, because
//! readers drop slices that neither nest nor follow each other. Numbers above 2^53 are written as
//! texts, because readers parse numbers as doubles. It does not sort or compress.

use std::collections::HashSet;
use std::io::Write;

use foldhash::fast::FixedState;
use probe_sync_formats::Error;
use probe_sync_formats::chunk::order::{Row, in_order};
use probe_sync_formats::chunk::{Chunk, Flow, FlowEnd, StringId, Track, TrackId, TrackKind};

use super::flows::Waiting;
use super::json::{Large, put_args, put_float, put_integer, put_microseconds, put_text};
use super::lanes::{Lanes, Place};
use super::report::{Meta, WriteReport};
use super::sink::Sink;

/// A trace being written.
#[derive(Debug)]
pub(super) struct Chrome<W> {
    sink: Sink<W>,
    base_ns: i64,
    tracks: Vec<Known>,
    taken_pids: HashSet<i64, FixedState>,
    taken_tids: HashSet<(i64, i64), FixedState>,
    lanes: Lanes,
    /// By lane: the tid of its events.
    lane_tids: Vec<i64>,
    next_free: i64,
    any_event: bool,
    waiting: Waiting,
    taken: Vec<Flow>,
    report: WriteReport,
}

/// State of a track.
#[derive(Clone, Debug)]
struct Known {
    pid: i64,
    tid: i64,
    name: String,
    /// Its name, after those of the devices above it.
    shown: String,
    is_process: bool,
    is_device: bool,
    parent: Option<TrackId>,
}

impl<W: Write> Chrome<W> {
    pub(super) fn open(sink: W, meta: &Meta) -> Self {
        let mut sink = Sink::new(sink);
        let out = sink.buffer();
        out.extend_from_slice(b"{\n\"displayTimeUnit\": \"ns\",\n\"baseTimeNanoseconds\": ");
        put_integer(out, meta.base_ns);
        for (name, text) in &meta.metadata {
            out.extend_from_slice(b",\n");
            put_text(out, name);
            out.extend_from_slice(b": ");
            put_text(out, text);
        }
        out.extend_from_slice(b",\n\"traceEvents\": [");
        Self {
            sink,
            base_ns: meta.base_ns,
            tracks: Vec::new(),
            taken_pids: HashSet::default(),
            taken_tids: HashSet::default(),
            lanes: Lanes::default(),
            lane_tids: Vec::new(),
            next_free: FREE_FROM,
            any_event: false,
            waiting: Waiting::default(),
            taken: Vec::new(),
            report: WriteReport::default(),
        }
    }

    pub(super) fn write(&mut self, chunk: &Chunk) -> Result<(), Error> {
        chunk.check(self.tracks.len())?;
        self.declare(&chunk.tracks)?;
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

    pub(super) fn finish(mut self) -> Result<(WriteReport, W), Error> {
        self.sink.buffer().extend_from_slice(b"\n]\n}\n");
        self.report.unbound_flow_ends = self.waiting.finish();
        self.report.tracks = self.tracks.len() as u64;
        let (inner, bytes) = self.sink.finish()?;
        self.report.bytes = bytes;
        Ok((self.report, inner))
    }

    fn slice(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let slices = &chunk.slices;
        let (track, start, end) = (slices.track[row], slices.start_ns[row], slices.end_ns[row]);
        while self.lanes.ended(start).is_some() {}
        let place = self.lanes.place(track.0, start, end);
        if place.new {
            self.open_lane(track, place)?;
        }
        self.waiting.at(start);
        self.report.flow_ends += u64::from(slices.flow[row].id != 0);
        self.waiting.take(slices, row, &mut self.taken);
        self.report.slices += 1;
        let on = (self.tracks[track.0 as usize].pid, self.lane_tids[place.lane as usize]);
        let base_ns = self.base_ns;
        let out = self.event();
        put_head(out, b"X", on, start, base_ns);
        out.extend_from_slice(b",\"dur\":");
        put_microseconds(out, i128::from(end) - i128::from(start));
        put_names(out, chunk, slices.name[row], slices.category[row]);
        put_args(out, chunk, slices.args[row], &[], Large::Texts);
        out.push(b'}');
        let taken = std::mem::take(&mut self.taken);
        for flow in &taken {
            let out = self.event();
            let phase = match flow.end {
                FlowEnd::Out => b"s",
                FlowEnd::Step => b"t",
                FlowEnd::In => b"f",
            };
            put_head(out, phase, on, start, base_ns);
            out.extend_from_slice(b",\"cat\":\"flow\",\"name\":\"flow\",\"id\":\"0x");
            out.extend_from_slice(format!("{:x}\"", flow.id).as_bytes());
            out.extend_from_slice(if flow.end == FlowEnd::Out { b"}" } else { b",\"bp\":\"e\"}" });
        }
        self.taken = taken;
        self.sink.settle()
    }

    fn instant(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let instants = &chunk.instants;
        self.report.instants += 1;
        let known = &self.tracks[instants.track[row].0 as usize];
        let (on, base_ns) = ((known.pid, known.tid), self.base_ns);
        let out = self.event();
        put_head(out, b"i", on, instants.time_ns[row], base_ns);
        out.extend_from_slice(b",\"s\":\"t\"");
        put_names(out, chunk, instants.name[row], instants.category[row]);
        put_args(out, chunk, instants.args[row], &[], Large::Texts);
        out.push(b'}');
        self.sink.settle()
    }

    fn counter(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let counters = &chunk.counters;
        self.report.counters += 1;
        let known = self.tracks[counters.track[row].0 as usize].clone();
        let base_ns = self.base_ns;
        let out = self.event();
        put_head(out, b"C", (known.pid, known.tid), counters.time_ns[row], base_ns);
        out.extend_from_slice(b",\"name\":");
        put_text(out, &known.shown);
        out.extend_from_slice(b",\"args\":{\"value\":");
        put_float(out, counters.value[row]);
        out.extend_from_slice(b"}}");
        self.sink.settle()
    }

    /// Where the next event goes, after the comma that separates it from the previous one.
    #[inline]
    fn event(&mut self) -> &mut Vec<u8> {
        let separator: &[u8] = if self.any_event { b",\n" } else { b"\n" };
        self.any_event = true;
        let out = self.sink.buffer();
        out.extend_from_slice(separator);
        out
    }

    fn declare(&mut self, tracks: &[Track]) -> Result<(), Error> {
        let before = self.tracks.len();
        for track in tracks {
            let is_process = matches!(track.kind, TrackKind::Process(_));
            let is_device = matches!(track.kind, TrackKind::Agent);
            let (parent, name) = (track.parent, track.label());
            let shown = name.clone();
            self.tracks.push(Known { pid: NONE, tid: NONE, name, shown, is_process, is_device, parent });
        }
        self.lanes.add_rows(tracks.len());
        for (index, track) in tracks.iter().enumerate() {
            if let TrackKind::Process(process) = &track.kind {
                let pid = self.number_of_process(process.pid);
                self.tracks[before + index].pid = pid;
            }
        }
        for (index, track) in tracks.iter().enumerate() {
            let (process, names) = self.above(before + index);
            let pid = match process {
                Some(process) => self.tracks[process].pid,
                None => self.number_of_process(NONE),
            };
            let is_process = matches!(track.kind, TrackKind::Process(_));
            let tid = match track.kind {
                TrackKind::Process(_) => pid,
                TrackKind::Thread { tid } => self.number_of_row(pid, tid),
                _ => self.number_of_row(pid, NONE),
            };
            let shown = if is_process { self.tracks[before + index].name.clone() } else { names };
            let known = Known { pid, tid, shown, ..self.tracks[before + index].clone() };
            self.tracks[before + index] = known.clone();
            if known.is_process {
                if !known.shown.is_empty() {
                    self.metadata("process_name", &known, &known.shown)?;
                }
                self.order("process_sort_index", &known, by_rank(track, before + index))?;
            } else if !matches!(track.kind, TrackKind::Counter { .. }) {
                self.metadata("thread_name", &known, &known.shown)?;
                self.order("thread_sort_index", &known, before + index)?;
            }
        }
        Ok(())
    }

    /// The process that a track is below, and its name after those of the devices between.
    fn above(&self, index: usize) -> (Option<usize>, String) {
        let mut names = vec![self.tracks[index].name.as_str()];
        let mut at = index;
        for _ in 0..TREE_DEPTH_MAX {
            if self.tracks[at].is_process {
                break;
            }
            let Some(parent) = self.tracks[at].parent else { break };
            at = parent.0 as usize;
            if self.tracks[at].is_device {
                names.push(&self.tracks[at].name);
            }
        }
        names.reverse();
        let process = self.tracks[at].is_process.then_some(at);
        (process, names.join(" "))
    }

    /// A pid of its own for a process, the one it wants if that is free.
    fn number_of_process(&mut self, wanted: i64) -> i64 {
        let usable = (0..FREE_FROM).contains(&wanted) && self.taken_pids.insert(wanted);
        if usable { wanted } else { self.free() }
    }

    /// A tid of its own for a row of a process.
    fn number_of_row(&mut self, pid: i64, wanted: i64) -> i64 {
        let usable = (0..FREE_FROM).contains(&wanted) && self.taken_tids.insert((pid, wanted));
        if usable { wanted } else { self.free() }
    }

    fn free(&mut self) -> i64 {
        self.next_free += 1;
        self.next_free - 1
    }

    fn open_lane(&mut self, track: TrackId, place: Place) -> Result<(), Error> {
        debug_assert_eq!(place.lane as usize, self.lane_tids.len(), "lanes are numbered as they are opened");
        let mut known = self.tracks[track.0 as usize].clone();
        if place.of_row > 0 {
            self.report.lanes += 1;
            known.tid = self.free();
            known.shown = format!("{} (lane {})", known.shown, place.of_row + 1);
            self.metadata("thread_name", &known, &known.shown)?;
            self.order("thread_sort_index", &known, track.0 as usize)?;
        }
        self.lane_tids.push(known.tid);
        Ok(())
    }

    fn metadata(&mut self, what: &str, known: &Known, name: &str) -> Result<(), Error> {
        let out = self.event();
        out.extend_from_slice(b"{\"ph\":\"M\",\"ts\":0.000,\"pid\":");
        put_integer(out, known.pid);
        out.extend_from_slice(b",\"tid\":");
        put_integer(out, known.tid);
        out.extend_from_slice(b",\"name\":");
        put_text(out, what);
        out.extend_from_slice(b",\"args\":{\"name\":");
        put_text(out, name);
        out.extend_from_slice(b"}}");
        self.sink.settle()
    }

    fn order(&mut self, what: &str, known: &Known, index: usize) -> Result<(), Error> {
        let out = self.event();
        out.extend_from_slice(b"{\"ph\":\"M\",\"ts\":0.000,\"pid\":");
        put_integer(out, known.pid);
        out.extend_from_slice(b",\"tid\":");
        put_integer(out, known.tid);
        out.extend_from_slice(b",\"name\":");
        put_text(out, what);
        out.extend_from_slice(b",\"args\":{\"sort_index\":");
        put_integer(out, index as i64);
        out.extend_from_slice(b"}}");
        self.sink.settle()
    }
}

/// Position of a process in viewers: by its rank, then as it was declared; those without a rank
/// come last.
fn by_rank(track: &Track, index: usize) -> usize {
    let TrackKind::Process(process) = &track.kind else { return index };
    let rank = process.rank.map_or(RANKS_END, |rank| (rank as usize).min(RANKS_END - 1));
    rank * TRACKS_OF_RANK + index.min(TRACKS_OF_RANK - 1)
}

/// The part of an event that precedes its own contents.
#[inline]
fn put_head(out: &mut Vec<u8>, phase: &[u8], (pid, tid): (i64, i64), time: i64, base_ns: i64) {
    out.extend_from_slice(b"{\"ph\":\"");
    out.extend_from_slice(phase);
    out.extend_from_slice(b"\",\"pid\":");
    put_integer(out, pid);
    out.extend_from_slice(b",\"tid\":");
    put_integer(out, tid);
    out.extend_from_slice(b",\"ts\":");
    put_microseconds(out, i128::from(time) - i128::from(base_ns));
}

#[inline]
fn put_names(out: &mut Vec<u8>, chunk: &Chunk, name: StringId, category: StringId) {
    if category != StringId::EMPTY {
        out.extend_from_slice(b",\"cat\":");
        put_text(out, chunk.strings.text(category));
    }
    out.extend_from_slice(b",\"name\":");
    put_text(out, chunk.strings.text(name));
}

/// First of the numbers assigned to what has none or shares one; readers want them below 2^32.
const FREE_FROM: i64 = 1 << 31;
/// Not a valid number of a process or thread.
const NONE: i64 = -1;
/// Places in viewers for the processes of one rank.
const TRACKS_OF_RANK: usize = 1 << 10;
/// The place of processes of no rank, behind those of all others; with the places of a rank it
/// stays below 2^31.
const RANKS_END: usize = 1 << 20;
/// Most levels of tracks above a track that are examined.
const TREE_DEPTH_MAX: usize = 16;
