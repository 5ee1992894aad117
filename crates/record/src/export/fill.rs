//! Conversion of a recording's events into chunks, on tracks and in chronological order.
//!
//! Events pass from [`crate::tree::walk`] on the system clock through the sorter, which bounds
//! memory by spilling to disk, to a writer of `trace::write`. A thread is a track and a scope is a
//! slice on it. An end of a flow is a slice without length, so that arrows begin and end at the
//! point that the program specified and not at the beginning of the scope. Counters have their own
//! tracks, spans that may end elsewhere have rows by their names ([`super::spans`]), losses have a
//! row next to their thread, and devices have their own tracks.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, FlowEnd, Process, StringId, Track, TrackId, TrackKind, Value};

use super::clock::{self, Doubt, Reader, SystemClock};
use super::error::ExportError;
use super::names;
use super::pipe::Inlet;
use super::report::Exported;
use super::spans::Spans;
use super::with::Devices;
use crate::event::FlowPlace;
use crate::hook::{CALL_STACK, Hooks};
use crate::kind::Kind;
use crate::read::{ArgumentValue, Loss, Recording, Thread, What};
use crate::tree::{FORWARD_THREAD, Item, Placed, SEQUENCE_NUMBER, walk};

/// A trace being written.
pub(super) struct Fill<'a> {
    recording: &'a Recording,
    clock: &'a SystemClock,
    hooks: &'a mut Hooks,
    out: Inlet,
    pub chunk: Chunk,
    tracks: u32,
    /// Rows created as needed, by kind and name.
    rows: [HashMap<String, TrackId>; ROWS],
    /// Ids of launches for which a device has done something.
    launches: HashSet<u64>,
    /// The recording itself has events of devices.
    has_devices: bool,
    spans: Spans,
    pub report: Exported,
}

/// Purpose of a row below the process.
#[derive(Copy, Clone, Debug)]
enum Row {
    Counter,
    Span,
    Lost,
    Device,
}

/// An event to be put on a track.
struct Put<'a> {
    track: TrackId,
    item: &'a Item<'a>,
    placed: &'a Placed,
    doubt: Doubt,
    thread: &'a Thread,
}

impl<'a> Fill<'a> {
    /// `out`: destination of its chunks.
    pub fn new(
        recording: &'a Recording,
        clock: &'a SystemClock,
        hooks: &'a mut Hooks,
        launches: HashSet<u64>,
        out: Inlet,
    ) -> Self {
        let facts = recording.facts();
        let mut fill = Self {
            recording,
            clock,
            hooks,
            out,
            chunk: Chunk::default(),
            tracks: 0,
            rows: Default::default(),
            launches,
            has_devices: recording.threads().iter().any(|thread| thread.device.is_some()),
            spans: Spans::default(),
            report: Exported::default(),
        };
        let process =
            Process { pid: i64::from(facts.pid), host: facts.host.clone(), rank: facts.rank, guid: String::new() };
        fill.declare(None, TrackKind::Process(process), &facts.program);
        fill
    }

    /// Fills in everything; a thread's slices in the order of their ends.
    pub fn all(mut self, devices: Option<Devices<'_>>) -> Result<Exported, ExportError> {
        let recording = self.recording;
        for thread in recording.threads() {
            self.thread(thread)?;
        }
        let status = recording.status();
        self.lost("threads without a place", status.lost)?;
        let mut reader = self.clock.reader();
        let [start, end] = [status.start, status.end].map(|ticks| reader.ns(ticks));
        std::mem::take(&mut self.spans)
            .finish([start, end], &mut |span, name, kind, mark| self.span(span, name, kind, mark))?;
        self.push()?;
        if let Some(mut devices) = devices {
            devices.pass(PROCESS, self.tracks, &self.out)?;
            self.report.notes = devices.notes;
        }
        Ok(self.report)
    }

    fn thread(&mut self, thread: &Thread) -> Result<(), ExportError> {
        let name = if thread.name.is_empty() { format!("thread {}", thread.tid) } else { thread.name.clone() };
        let track = match &thread.device {
            Some(queue) => {
                let device = self.row(Row::Device, &queue.device);
                self.declare(Some(device), TrackKind::Stream, &queue.queue)
            }
            None => {
                let kind = TrackKind::Thread { tid: i64::try_from(thread.tid).unwrap_or(0) };
                self.declare(Some(PROCESS), kind, &name)
            }
        };
        self.hooks.thread(thread);
        let reader = RefCell::new(self.clock.reader());
        let mut told = 0;
        let clock = |ticks| reader.borrow_mut().ns(ticks);
        walk(self.recording, thread, clock, |item, placed| {
            let doubt = clock::take_doubt(&reader.borrow());
            if let What::Lost { events, .. } = item.what() {
                told += events;
            }
            self.put(&Put { track, item: &item, placed, doubt, thread }, &name)
        })?;
        let rest = Loss { events: thread.lost.events.saturating_sub(told), span: thread.lost.span };
        self.lost(&name, rest)
    }

    fn put(&mut self, put: &Put<'_>, thread: &str) -> Result<(), ExportError> {
        self.report.count(put.doubt);
        match put.item.what() {
            What::Scope { id, unfinished, .. } => self.scope(put, id, unfinished),
            What::Instant { id, .. } => {
                let (name, category) = self.names(put);
                let args = self.arguments(put, id, false);
                let instants = &mut self.chunk.instants;
                instants.track.push(put.track);
                instants.time_ns.push(put.placed.start);
                instants.name.push(name);
                instants.category.push(category);
                instants.args.push(args);
            }
            What::Counter { value, .. } => {
                let track = self.row(Row::Counter, put.item.name());
                self.chunk.counters.track.push(track);
                self.chunk.counters.time_ns.push(put.placed.start);
                self.chunk.counters.value.push(value);
            }
            What::Flow { flow, place, .. } => {
                let end = match place {
                    FlowPlace::Out => FlowEnd::Out,
                    FlowPlace::Step => FlowEnd::Step,
                    FlowPlace::In => FlowEnd::In,
                };
                let args = self.arguments(put, 0, false);
                let (name, category) = self.names(put);
                // 0 is no flow to the writers.
                let flow = Flow { id: if flow == 0 { u64::MAX } else { flow }, end };
                self.slice(put.track, [put.placed.start; 2], name, category, flow, args);
            }
            What::SpanBegin { id, .. } => {
                self.spans.put(id, true, put.placed.start, put.item.name(), put.item.kind().as_str())?;
            }
            What::SpanEnd { id, .. } => {
                self.spans.put(id, false, put.placed.start, put.item.name(), put.item.kind().as_str())?;
            }
            What::Lost { events, .. } => {
                self.lost_between(thread, events, [put.placed.start, put.placed.end]);
            }
        }
        if self.chunk.is_full() { self.push() } else { Ok(()) }
    }

    fn scope(&mut self, put: &Put<'_>, id: u64, unfinished: bool) {
        self.report.scopes += 1;
        self.report.unfinished += u64::from(unfinished);
        let (name, category) = self.names(put);
        let args = self.arguments(put, id, unfinished);
        let flow = self.launch(put, id).unwrap_or_else(|| self.pass(put, args));
        self.slice(put.track, [put.placed.start, put.placed.end], name, category, flow, args);
    }

    /// The flow from a launch to its work on a device, if the recording has devices, or those of
    /// another trace are shown.
    fn launch(&mut self, put: &Put<'_>, id: u64) -> Option<Flow> {
        let end = match put.thread.device {
            Some(_) => FlowEnd::In,
            // Events of another trace name their launches. Of those in the recording, which may be many, it is
            // known that launches are calls of a runtime.
            None if self.launches.remove(&id) || self.has_devices && put.item.kind() == Kind::Runtime => FlowEnd::Out,
            None => return None,
        };
        (id != 0).then(|| names::launch_flow(id, end))
    }

    /// The flow from a forward call to its backward call, by the sequence number that both state.
    fn pass(&self, put: &Put<'_>, args: ArgRange) -> Flow {
        let args = args.first as usize..(args.first + args.count) as usize;
        let number = |names: &[&str]| {
            args.clone().find_map(|at| {
                let key = self.chunk.strings.text(self.chunk.args.key[at]);
                match self.chunk.args.value[at] {
                    Value::Integer(value) if names.contains(&key) => Some(value as u64),
                    _ => None,
                }
            })
        };
        let (backward, forward) = (put.item.kind() == Kind::Backward, put.item.kind() == Kind::Function);
        if !backward && !forward || args.is_empty() {
            return Flow::default();
        }
        let Some(sequence) = number(&SEQUENCE_NUMBER) else { return Flow::default() };
        let thread = if backward { number(&FORWARD_THREAD).unwrap_or(put.thread.tid) } else { put.thread.tid };
        let end = if backward { FlowEnd::In } else { FlowEnd::Out };
        Flow { id: names::flow_id("backward", [thread, sequence]), end }
    }

    fn names(&mut self, put: &Put<'_>) -> (StringId, StringId) {
        let strings = &mut self.chunk.strings;
        (strings.intern(put.item.name()), strings.intern(put.item.kind().as_str()))
    }

    /// The arguments of an event, with notes about it.
    fn arguments(&mut self, put: &Put<'_>, id: u64, unfinished: bool) -> ArgRange {
        let additions = self.hooks.event(put.item);
        let Chunk { strings, args, .. } = &mut self.chunk;
        let first = args.key.len() as u32;
        let kind = put.item.kind();
        names::each_argument(put.item, additions, |key, value, is_added| {
            let value = match value {
                ArgumentValue::Integer(value) => Value::Integer(*value),
                ArgumentValue::Unsigned(value) => match i64::try_from(*value) {
                    Ok(value) => Value::Integer(value),
                    Err(_) => Value::Unsigned(*value),
                },
                ArgumentValue::Float(value) => Value::Float(*value),
                ArgumentValue::Boolean(value) => Value::Boolean(*value),
                ArgumentValue::Text(text) => Value::Text(strings.push(text)),
                ArgumentValue::Json(text) if is_added && key == CALL_STACK => {
                    Value::Text(strings.push(&names::call_stack(text)))
                }
                ArgumentValue::Json(text) if names::is_json(text) => Value::Json(strings.push(text)),
                ArgumentValue::Json(text) => Value::Text(strings.push(text)),
                ArgumentValue::Addresses(all) => Value::Json(strings.push(&names::addresses(all))),
            };
            args.key.push(strings.intern(names::of_argument(kind, key)));
            args.value.push(value);
        });
        if (kind == Kind::Runtime || put.thread.device.is_some()) && id != 0 {
            args.key.push(strings.intern("correlation"));
            args.value.push(match i64::try_from(id) {
                Ok(id) => Value::Integer(id),
                Err(_) => Value::Unsigned(id),
            });
        }
        if unfinished {
            args.key.push(strings.intern("unfinished"));
            let open = matches!(put.item, Item::Open(..));
            args.value.push(Value::Text(strings.push(if open { OPEN } else { CLOSED_WITH_PARENT })));
        }
        if let Some(text) = put.doubt.text() {
            args.key.push(strings.intern("clock"));
            args.value.push(Value::Text(strings.push(text)));
        }
        ArgRange { first, count: args.key.len() as u32 - first }
    }

    pub fn slice(
        &mut self,
        track: TrackId,
        [start, end]: [i64; 2],
        name: StringId,
        category: StringId,
        flow: Flow,
        args: ArgRange,
    ) {
        let slices = &mut self.chunk.slices;
        slices.track.push(track);
        slices.start_ns.push(start);
        slices.end_ns.push(end.max(start));
        slices.name.push(name);
        slices.category.push(category);
        slices.flow.push(flow);
        slices.args.push(args);
    }

    /// A slice of a span, on the row of its name.
    pub fn span(
        &mut self,
        [start, end]: [i64; 2],
        name: &str,
        category: &str,
        mark: Option<&str>,
    ) -> Result<(), ExportError> {
        let track = self.row(Row::Span, name);
        let first = self.chunk.args.key.len() as u32;
        if let Some(mark) = mark {
            self.chunk.args.key.push(self.chunk.strings.intern("unfinished"));
            self.chunk.args.value.push(Value::Text(self.chunk.strings.push(mark)));
        }
        let args = ArgRange { first, count: self.chunk.args.key.len() as u32 - first };
        let (name, category) = (self.chunk.strings.intern(name), self.chunk.strings.intern(category));
        self.slice(track, [start, end], name, category, Flow::default(), args);
        self.report.spans += 1;
        if self.chunk.is_full() { self.push() } else { Ok(()) }
    }

    /// Reports losses of a thread that are not among its events.
    fn lost(&mut self, thread: &str, loss: Loss) -> Result<(), ExportError> {
        let Loss { events: events @ 1.., span: Some(span) } = loss else { return Ok(()) };
        let mut reader: Reader<'_> = self.clock.reader();
        let span = span.map(|ticks| reader.ns(ticks));
        self.lost_between(thread, events, span);
        if self.chunk.is_full() { self.push() } else { Ok(()) }
    }

    fn lost_between(&mut self, thread: &str, events: u64, span: [i64; 2]) {
        self.report.lost += events;
        let track = self.row(Row::Lost, &format!("lost of {thread}"));
        let name = self.chunk.strings.intern(&format!("{events} events lost"));
        let first = self.chunk.args.key.len() as u32;
        self.chunk.args.key.push(self.chunk.strings.intern("events"));
        self.chunk.args.value.push(Value::Integer(i64::try_from(events).unwrap_or(i64::MAX)));
        self.slice(track, span, name, StringId::EMPTY, Flow::default(), ArgRange { first, count: 1 });
    }

    fn row(&mut self, row: Row, name: &str) -> TrackId {
        if let Some(track) = self.rows[row as usize].get(name) {
            return *track;
        }
        let kind = match row {
            Row::Counter => TrackKind::Counter { unit: String::new() },
            Row::Span | Row::Lost | Row::Device => TrackKind::Agent,
        };
        let track = self.declare(Some(PROCESS), kind, name);
        self.rows[row as usize].insert(name.to_owned(), track);
        track
    }

    fn declare(&mut self, parent: Option<TrackId>, kind: TrackKind, name: &str) -> TrackId {
        self.chunk.tracks.push(Track { parent, kind, name: name.to_owned() });
        self.tracks += 1;
        TrackId(self.tracks - 1)
    }

    pub fn push(&mut self) -> Result<(), ExportError> {
        // What the sorter met is its own error, which stands in place of this one.
        let gone = || crate::Error::Thread { reason: "the sorter has ended".into() };
        if self.out.hand_on(&mut self.chunk) { Ok(()) } else { Err(gone().into()) }
    }
}

/// Kinds of [`Row`].
const ROWS: usize = 4;
/// The track of the process is the first.
const PROCESS: TrackId = TrackId(0);
const OPEN: &str = "still open at the end of the recording";
const CLOSED_WITH_PARENT: &str = "closed together with its enclosing scope";
