//! PyTorch Kineto's JSON (`.pt.trace.json`), as HolisticTraceAnalysis, TensorBoard and Perfetto
//! read it.
//!
//! It is the third dialect of `formats::kineto`, which reads it back exactly to the nanosecond.
//! Like Kineto's own files it describes one process with its devices: `distributedInfo` states the
//! rank if all processes have the same one, and each device is a process of its own
//! ([`super::kineto_rows`]) whose events name their device and stream. Several processes can still
//! be written, each under its host and rank. Times count from the given base or, as in Kineto, from
//! the start of a quarter, so that files of several ranks mostly share it. Overlapping slices of a
//! row go to lanes, because readers drop slices that neither nest nor follow each other. It does
//! not sort or compress, and it does not write spans of the profiler itself.

use std::io::Write;

use probe_sync_formats::chunk::order::{Row, in_order};
use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, FlowEnd, Track, TrackId, TrackKind};
use probe_sync_formats::{Error, quarter_before_ns};

use super::flows::Waiting;
use super::json::{Large, put_args, put_float, put_integer, put_microseconds, put_text};
use super::kineto_categories::{Categories, Category};
use super::kineto_flows::{End, Flows, Side, Written};
use super::kineto_rows::{RowKind, Rows};
use super::lanes::{Lanes, Place};
use super::report::{Meta, WriteReport};
use super::sink::Sink;

/// A trace being written.
#[derive(Debug)]
pub(super) struct Kineto<W> {
    out: Events<W>,
    meta: Meta,
    header: Option<Header>,
    rows: Rows,
    lanes: Lanes,
    /// By lane: the tid of its events.
    lane_tids: Vec<i64>,
    categories: Categories,
    waiting: Waiting,
    taken: Vec<Flow>,
    flows: Flows,
    report: WriteReport,
}

/// What was learned about the processes so far.
#[derive(Debug, Default)]
struct Header {
    ranks: Vec<u32>,
    /// `distributedInfo` is in the file.
    has_rank: bool,
}

/// Destination of events.
#[derive(Debug)]
struct Events<W> {
    sink: Sink<W>,
    base_ns: i64,
    any: bool,
}

impl<W: Write> Kineto<W> {
    pub(super) fn open(sink: W, meta: &Meta) -> Self {
        Self {
            out: Events { sink: Sink::new(sink), base_ns: meta.base_ns, any: false },
            meta: meta.clone(),
            header: None,
            rows: Rows::default(),
            lanes: Lanes::default(),
            lane_tids: Vec::new(),
            categories: Categories::default(),
            waiting: Waiting::default(),
            taken: Vec::new(),
            flows: Flows::default(),
            report: WriteReport::default(),
        }
    }

    pub(super) fn write(&mut self, chunk: &Chunk) -> Result<(), Error> {
        chunk.check(self.rows.count())?;
        self.head(chunk);
        self.declare(&chunk.tracks)?;
        self.categories.clear();
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
        self.head(&Chunk::default());
        let Self { flows, out, .. } = &mut self;
        flows.finish(&mut |flow, end| out.flow(flow, end));
        out.sink.buffer().extend_from_slice(b"\n]");
        if let Some(Header { ranks, has_rank: false }) = &self.header
            && let [rank] = ranks[..]
        {
            // Its process was declared after the first events.
            put_distributed(self.out.sink.buffer(), &self.meta, rank);
        }
        self.out.sink.buffer().extend_from_slice(b"\n}\n");
        self.report.unbound_flow_ends = self.waiting.finish();
        self.report.tracks = self.rows.count() as u64;
        let (inner, bytes) = self.out.sink.finish()?;
        self.report.bytes = bytes;
        Ok((self.report, inner))
    }

    /// Writes what precedes the events, once; the data on the job is known with the first tracks.
    fn head(&mut self, chunk: &Chunk) {
        let processes = || {
            chunk.tracks.iter().filter_map(|track| match &track.kind {
                TrackKind::Process(process) => Some((track, process)),
                _ => None,
            })
        };
        let is_first = self.header.is_none();
        let header = self.header.get_or_insert_default();
        header.ranks.extend(processes().filter_map(|(_, process)| process.rank));
        header.ranks.sort_unstable();
        header.ranks.dedup();
        if !is_first {
            return;
        }
        if self.meta.base_ns == 0 {
            let times = chunk.times().into_iter().flat_map(|(_, times)| times).min();
            self.out.base_ns = times.map_or(0, |first| quarter_before_ns(*first));
        }
        let out = self.out.sink.buffer();
        out.extend_from_slice(b"{\n\"schemaVersion\": 1");
        if let [rank] = header.ranks[..] {
            header.has_rank = true;
            put_distributed(out, &self.meta, rank);
        }
        let mut member = |name: &str, text: &str| {
            out.extend_from_slice(b",\n");
            put_text(out, name);
            out.extend_from_slice(b": ");
            put_text(out, text);
        };
        let mut hosts = processes().map(|(_, process)| process.host.as_str()).filter(|host| !host.is_empty());
        if let Some(host) = hosts.next()
            && hosts.all(|other| other == host)
        {
            member("host_name", host);
        }
        for (name, text) in self.meta.metadata.iter().filter(|(name, _)| !OWN_KEYS.contains(&name.as_str())) {
            member(name, text);
        }
        let name = processes().next().map(|(track, _)| track.label()).unwrap_or_default();
        member("traceName", &name);
        member("displayTimeUnit", "ms");
        out.extend_from_slice(b",\n\"baseTimeNanoseconds\": ");
        put_integer(out, self.out.base_ns);
        out.extend_from_slice(b",\n\"traceEvents\": [");
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
        let known = self.rows.row(track);
        let on = (known.pid, self.lane_tids[place.lane as usize]);
        let category = self.categories.of(chunk, slices.category[row], known.on_device);
        let called = category.text(chunk, slices.category[row]);
        let out = self.out.begin(b"{\"ph\":\"X\",\"cat\":");
        put_text(out, called);
        out.extend_from_slice(b",\"name\":");
        put_text(out, chunk.strings.text(slices.name[row]));
        self.out.place(on, start);
        let out = self.out.sink.buffer();
        out.extend_from_slice(b",\"dur\":");
        put_microseconds(out, i128::from(end) - i128::from(start));
        let stated = [("device", known.pid), ("stream", known.tid)];
        // A device's copy of an annotation is no work of a stream, and readers would count it as
        // such.
        let is_work = known.on_device && called != "gpu_user_annotation";
        let wanted = if is_work { unstated(chunk, slices.args[row], stated) } else { Unstated::default() };
        put_args(out, chunk, slices.args[row], wanted.as_slice(), Large::Numbers);
        out.push(b'}');
        if !self.taken.is_empty() {
            let side = side(category, known.on_device, chunk.strings.text(slices.name[row]));
            let Self { taken, flows, out, .. } = self;
            for flow in taken.iter() {
                let end = End { end: flow.end, at: start, on, side };
                flows.take(flow.id, end, &mut |flow, end| out.flow(flow, end));
            }
        }
        self.out.sink.settle()
    }

    fn instant(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let instants = &chunk.instants;
        self.report.instants += 1;
        let known = self.rows.row(instants.track[row]);
        let stated = chunk.strings.text(instants.category[row]);
        let category = match stated {
            "memory" => MEMORY,
            _ => self.categories.of(chunk, instants.category[row], known.on_device).text(chunk, instants.category[row]),
        };
        let out = self.out.begin(b"{\"ph\":\"i\",\"s\":\"t\",\"cat\":");
        put_text(out, category);
        out.extend_from_slice(b",\"name\":");
        put_text(out, chunk.strings.text(instants.name[row]));
        self.out.place((known.pid, known.tid), instants.time_ns[row]);
        put_args(self.out.sink.buffer(), chunk, instants.args[row], &[], Large::Numbers);
        self.out.sink.buffer().push(b'}');
        self.out.sink.settle()
    }

    fn counter(&mut self, chunk: &Chunk, row: usize) -> Result<(), Error> {
        let counters = &chunk.counters;
        self.report.counters += 1;
        let known = self.rows.row(counters.track[row]);
        let out = self.out.begin(b"{\"ph\":\"C\",\"name\":");
        put_text(out, &known.name);
        self.out.place((known.pid, known.tid), counters.time_ns[row]);
        let out = self.out.sink.buffer();
        out.extend_from_slice(b",\"args\":{\"value\":");
        put_float(out, counters.value[row]);
        out.extend_from_slice(b"}}");
        self.out.sink.settle()
    }

    fn declare(&mut self, tracks: &[Track]) -> Result<(), Error> {
        let before = self.rows.count();
        self.rows.declare(tracks);
        self.lanes.add_rows(tracks.len());
        for index in before..self.rows.count() {
            let row = self.rows.row(TrackId(index as u32)).clone();
            let on = (row.pid, row.tid);
            match row.kind {
                RowKind::Counter => {}
                RowKind::Thread => {
                    self.out.metadata("thread_name", on, "name", |out| put_text(out, &row.name));
                    self.out.metadata("thread_sort_index", on, "sort_index", |out| put_integer(out, index as i64));
                }
                RowKind::Process | RowKind::Device => {
                    let is_device = row.kind == RowKind::Device;
                    let label = if is_device { row.name.as_str() } else { "CPU" };
                    let order = index as i64 + if is_device { DEVICES_FROM } else { 0 };
                    self.out.metadata("process_name", on, "name", |out| put_text(out, &row.name));
                    self.out.metadata("process_labels", on, "labels", |out| put_text(out, label));
                    self.out.metadata("process_sort_index", on, "sort_index", |out| put_integer(out, order));
                }
            }
            self.out.sink.settle()?;
        }
        Ok(())
    }

    fn open_lane(&mut self, track: TrackId, place: Place) -> Result<(), Error> {
        debug_assert_eq!(place.lane as usize, self.lane_tids.len(), "lanes are numbered as they are opened");
        let mut tid = self.rows.row(track).tid;
        if place.of_row > 0 {
            self.report.lanes += 1;
            tid = self.rows.free();
            let row = self.rows.row(track);
            let name = format!("{} (lane {})", row.name, place.of_row + 1);
            self.out.metadata("thread_name", (row.pid, tid), "name", |out| put_text(out, &name));
            let order = i64::from(track.0);
            self.out.metadata("thread_sort_index", (row.pid, tid), "sort_index", |out| put_integer(out, order));
        }
        self.lane_tids.push(tid);
        self.out.sink.settle()
    }
}

impl<W: Write> Events<W> {
    /// Begins an event, after the comma that separates it from the previous one.
    #[inline]
    fn begin(&mut self, with: &[u8]) -> &mut Vec<u8> {
        let separator: &[u8] = if self.any { b",\n" } else { b"\n" };
        self.any = true;
        let out = self.sink.buffer();
        out.extend_from_slice(separator);
        out.extend_from_slice(with);
        out
    }

    /// Appends row and time of an event.
    #[inline]
    fn place(&mut self, (pid, tid): (i64, i64), time_ns: i64) {
        let base_ns = self.base_ns;
        let out = self.sink.buffer();
        out.extend_from_slice(b",\"pid\":");
        put_integer(out, pid);
        out.extend_from_slice(b",\"tid\":");
        put_integer(out, tid);
        out.extend_from_slice(b",\"ts\":");
        put_microseconds(out, i128::from(time_ns) - i128::from(base_ns));
    }

    fn flow(&mut self, flow: Written, end: &End) {
        let out = self.begin(b"{\"ph\":\"");
        out.push(match end.end {
            FlowEnd::Out => b's',
            FlowEnd::Step => b't',
            FlowEnd::In => b'f',
        });
        out.extend_from_slice(b"\",\"id\":");
        put_integer(out, i64::from(flow.number));
        for key in [&b",\"cat\":\""[..], b"\",\"name\":\""] {
            out.extend_from_slice(key);
            out.extend_from_slice(flow.category.as_bytes());
        }
        out.push(b'"');
        self.place(end.on, end.at);
        let bound: &[u8] = if end.end == FlowEnd::Out { b"}" } else { b",\"bp\":\"e\"}" };
        self.sink.buffer().extend_from_slice(bound);
    }

    fn metadata(&mut self, what: &str, on: (i64, i64), key: &str, value: impl FnOnce(&mut Vec<u8>)) {
        let base_ns = self.base_ns;
        let out = self.begin(b"{\"ph\":\"M\",\"name\":");
        put_text(out, what);
        self.place(on, base_ns);
        let out = self.sink.buffer();
        out.extend_from_slice(b",\"args\":{");
        put_text(out, key);
        out.push(b':');
        value(out);
        out.extend_from_slice(b"}}");
    }
}

/// `distributedInfo`, with a space after each colon: HolisticTraceAnalysis looks for the rank as
/// text.
fn put_distributed(out: &mut Vec<u8>, meta: &Meta, rank: u32) {
    out.extend_from_slice(b",\n\"distributedInfo\": {");
    if let Some(backend) = &meta.backend {
        out.extend_from_slice(b"\"backend\": ");
        put_text(out, backend);
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(b"\"rank\": ");
    put_integer(out, i64::from(rank));
    if let Some(world_size) = meta.world_size {
        out.extend_from_slice(b", \"world_size\": ");
        put_integer(out, i64::from(world_size));
    }
    out.push(b'}');
}

/// The role of a slice in a flow. Autograd's own name for a backward call stands for the category,
/// which Kineto assigns to neither direction.
fn side(category: Category, on_device: bool, name: &str) -> Side {
    match category {
        _ if on_device => Side::Device,
        Category::Backward => Side::Backward,
        Category::Known("cuda_runtime") => Side::Runtime,
        _ if name.starts_with("autograd::engine::evaluate_function") => Side::Backward,
        _ => Side::Host,
    }
}

/// Numbers that an event's own arguments do not state.
#[derive(Default)]
struct Unstated {
    members: [(&'static str, i64); 2],
    count: usize,
}

impl Unstated {
    fn as_slice(&self) -> &[(&'static str, i64)] {
        &self.members[..self.count]
    }
}

/// Those of the members whose names none of the arguments has.
#[inline]
fn unstated(chunk: &Chunk, range: ArgRange, members: [(&'static str, i64); 2]) -> Unstated {
    let keys = &chunk.args.key[range.first as usize..(range.first + range.count) as usize];
    let mut left = Unstated::default();
    for member in members {
        if !keys.iter().any(|key| chunk.strings.text(*key) == member.0) {
            left.members[left.count] = member;
            left.count += 1;
        }
    }
    left
}

/// Kineto's word for moments at which memory was taken or given back.
const MEMORY: &str = "cpu_instant_event";
/// Viewers sort devices after all processes; Kineto begins them here.
const DEVICES_FROM: i64 = 5_000_000;
/// Members of the file that are not the caller's to set.
const OWN_KEYS: [&str; 7] = [
    "schemaVersion",
    "distributedInfo",
    "host_name",
    "traceName",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "traceEvents",
];
