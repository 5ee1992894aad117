//! A recording as a database of rocprofv3.
//!
//! The writer of the crate `rocpd` turns the tree of each thread into rows. A scope is a region
//! whose `stack_id` expresses the nesting, an instant is a sample, or an allocation if it is one of
//! memory, and a counter is a counter; ends of flows and of spans are samples, because rows have no
//! arrows. Times are on `CLOCK_BOOTTIME`,
//! as in all databases of this kind: the system clock without its steps, minus the difference of
//! the two when the recording began.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use probe_sync_files::{Draft, no_more_open_than, write_whole};
use probe_sync_rocpd::writer::{
    Agent, AgentId, AgentKind, Argument, CounterDefinition, CounterId, CounterValue, Links, MemoryAllocation,
    MemoryOperation, Process, Region, Sample, Settings, Source, ThreadRecorder, TrackId, Writer, message,
};

use super::clock::{self, BootClock, Doubt, SystemClock};
use super::error::ExportError;
use super::names;
use super::report::Exported;
use crate::event::FlowPlace;
use crate::hook::{Additions, CALL_STACK, Hooks};
use crate::kind::Kind;
use crate::read::{ArgumentValue, Recording, Thread, What};
use crate::session::Facts;
use crate::tree::{Item, Placed, walk};
use crate::typed::{MemoryEvent, keys};

/// Writes the database, and its clock pairs beside it; the files appear when they are complete.
pub(super) fn write(
    recording: &Recording,
    clock: &SystemClock,
    hooks: &mut Hooks,
    path: &Path,
) -> Result<Exported, ExportError> {
    let refuse = |reason: &str| ExportError::Output { path: path.to_owned(), reason: reason.into() };
    if path.exists() {
        return Err(refuse("the file already exists, and databases are never overwritten"));
    }
    if recording.facts().virtual_clock.is_some() {
        return Err(refuse(VIRTUAL_CLOCK));
    }
    let ahead = recording.facts().system_ahead_of_boot_ns.ok_or_else(|| refuse(NO_BOOT_CLOCK))?;
    let boot = BootClock::of(clock, ahead);
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |source| ExportError::Recording(crate::Error::File { path, source })
    };
    let draft = Draft::create(path).map_err(wrong(path))?;
    let settings = Settings { output: draft.path().to_owned(), flush_rows: FLUSH_ROWS, ..Settings::default() };
    let (start, _) = clock.at(recording.status().start);
    let writer = Writer::open(settings, process(recording.facts(), boot.of_system(start)))?;
    let (report, counters, agents) = (Exported::default(), HashMap::new(), HashMap::new());
    let mut rows = Rows { writer, hooks, boot, path: path.to_owned(), report, counters, agents };
    // Without /proc neither is known.
    if !recording.facts().boot_id.is_empty() && recording.facts().boot_id == Facts::of_process().boot_id {
        rows.agents.insert(CPU.to_owned(), rows.writer.agent(Agent::cpu_of_this_machine()));
    }
    for thread in recording.threads() {
        rows.thread(recording, clock, thread)?;
    }
    let Rows { writer, mut report, boot, .. } = rows;
    let written = writer.finish()?;
    if written.dropped > 0 || !written.stands_alone {
        return Err(refuse(&written.problem.unwrap_or_else(|| "not all of it could be written to disk".into())));
    }
    let beside = pairs_beside(path);
    if let Some(input) = recording.path() {
        no_more_open_than(&[input], &[&beside]);
    }
    write_whole(&beside, boot_pairs(recording, clock, &boot).as_bytes()).map_err(wrong(&beside))?;
    draft.commit().map_err(wrong(path))?;
    report.pairs = Some(beside);
    report.path = path.to_owned();
    report.bytes = std::fs::metadata(path).map_or(0, |found| found.len());
    Ok(report)
}

/// Path of the clock pairs for the database of this name, which allow its conversion to another
/// clock.
pub(super) fn pairs_beside(path: &Path) -> PathBuf {
    path.with_extension("snapshot_pairs.jsonl")
}

/// The recording's clock pairs as pairs of the system clock and `CLOCK_BOOTTIME`, a line of JSON
/// each.
fn boot_pairs(recording: &Recording, clock: &SystemClock, boot: &BootClock) -> String {
    let line = |pair: &crate::ClockPair| {
        let system = clock.at(pair.ticks).0;
        format!(
            "{{\"sys_clock_ns\":{system},\"tracer_clock_ns\":{},\"bracket_ns\":{BRACKET_NS},\"tracer_clock\":\"boottime\"}}\n",
            boot.of_system(system)
        )
    };
    recording.pairs().iter().map(line).collect()
}

/// A database being written.
struct Rows<'a> {
    writer: Writer,
    hooks: &'a mut Hooks,
    boot: BootClock,
    path: PathBuf,
    report: Exported,
    counters: HashMap<String, CounterId>,
    /// Devices by the names that memory events give them.
    agents: HashMap<String, AgentId>,
}

/// A thread's place in it.
struct Place {
    recorder: ThreadRecorder,
    serial: u32,
    tracks: HashMap<String, TrackId>,
    /// From its first event to its last, on the system clock.
    span: Option<[i64; 2]>,
}

impl Rows<'_> {
    fn thread(&mut self, recording: &Recording, clock: &SystemClock, thread: &Thread) -> Result<(), ExportError> {
        self.hooks.thread(thread);
        let name = Some(thread.name.as_str()).filter(|name| !name.is_empty());
        let recorder = self.writer.thread(i64::try_from(thread.tid).unwrap_or(0), name);
        let mut place = Place { recorder, serial: thread.serial, tracks: HashMap::new(), span: None };
        let reader = RefCell::new(clock.reader());
        let mut told = 0;
        let system = |ticks| reader.borrow_mut().ns(ticks);
        walk(recording, thread, system, |item, placed| {
            let doubt = clock::take_doubt(&reader.borrow());
            self.report.count(doubt);
            if let What::Lost { events, .. } = item.what() {
                told += events;
            }
            self.event(&mut place, &item, placed, doubt)
        })?;
        let rest = thread.lost.events.saturating_sub(told);
        if let (1.., Some([first, _])) = (rest, thread.lost.span) {
            self.report.lost += rest;
            let at = reader.borrow_mut().ns(first);
            self.sample(&mut place, &format!("{rest} events lost"), at, 0)?;
        }
        if let Some(span) = place.span {
            self.writer.thread_span(&place.recorder, span.map(|at| self.boot.of_system(at)));
        }
        Ok(())
    }

    fn event(&mut self, place: &mut Place, item: &Item<'_>, placed: &Placed, doubt: Doubt) -> Result<(), ExportError> {
        let [first, last] = place.span.unwrap_or([placed.start, placed.end]);
        place.span = Some([first.min(placed.start), last.max(placed.end)]);
        match item.what() {
            What::Scope { id, unfinished, .. } => {
                self.report.scopes += 1;
                self.report.unfinished += u64::from(unfinished);
                self.wait(place)?;
                let number = |number: u64| i64::from(place.serial) << NUMBER_BITS | (number + 1) as i64;
                let links = Links {
                    stack_id: number(placed.number),
                    parent_stack_id: placed.parent.map_or(0, number),
                    correlation_id: id as i64,
                };
                let additions = self.hooks.event(item);
                place.recorder.region(Region {
                    start_ns: self.boot.of_system(placed.start),
                    end_ns: self.boot.of_system(placed.end).max(self.boot.of_system(placed.start)),
                    name: self.writer.intern(item.name()),
                    category: self.writer.intern(item.kind().as_str()),
                    links,
                    arguments: arguments(item, additions, unfinished, doubt),
                    extdata: None,
                    source: source(item, additions),
                });
                Ok(())
            }
            What::Counter { value, .. } => self.counter(place, item.name(), placed.start, value),
            What::Instant { id, .. } => match memory_operation(item) {
                Some(operation) => self.memory(place, operation, item, [placed.start, id as i64]),
                None => self.instant(place, item, [placed.start, id as i64], doubt),
            },
            What::Flow { flow, place: end, .. } => {
                let end = match end {
                    FlowPlace::Out => "begins",
                    FlowPlace::Step => "passes",
                    FlowPlace::In => "ends",
                };
                self.sample(place, &format!("{} {end}", item.name()), placed.start, flow)
            }
            What::SpanBegin { id, .. } => {
                self.report.spans += 1;
                self.sample(place, &format!("{} begins", item.name()), placed.start, id)
            }
            What::SpanEnd { id, .. } => self.sample(place, &format!("{} ends", item.name()), placed.start, id),
            What::Lost { events, .. } => {
                self.report.lost += events;
                self.sample(place, &format!("{events} events lost"), placed.start, 0)
            }
        }
    }

    fn instant(
        &mut self,
        place: &mut Place,
        item: &Item<'_>,
        [at, id]: [i64; 2],
        doubt: Doubt,
    ) -> Result<(), ExportError> {
        self.wait(place)?;
        let track = self.track(place, item.name());
        let links = Links { correlation_id: id, ..Links::default() };
        let additions = self.hooks.event(item);
        place.recorder.sample(Sample {
            category: self.writer.intern(item.kind().as_str()),
            links,
            arguments: arguments(item, additions, false, doubt),
            extdata: message(item.name()),
            source: source(item, additions),
            ..Sample::new(track, self.boot.of_system(at))
        });
        Ok(())
    }

    fn memory(
        &mut self,
        place: &Place,
        operation: MemoryOperation,
        item: &Item<'_>,
        [at, id]: [i64; 2],
    ) -> Result<(), ExportError> {
        self.wait(place)?;
        let number = |key: &str| match item.argument(key) {
            Some(ArgumentValue::Unsigned(number)) => number as i64,
            Some(ArgumentValue::Integer(number)) => number,
            _ => 0,
        };
        let device = match item.argument(keys::DEVICE) {
            Some(ArgumentValue::Text(device)) => device,
            _ => CPU.to_owned(),
        };
        let writer = &self.writer;
        let others = self.agents.keys().filter(|known| !known.starts_with(CPU)).count() as i64;
        let agent = *self.agents.entry(device).or_insert_with_key(|device| writer.agent(agent_of(device, others)));
        let at = self.boot.of_system(at);
        place.recorder.memory_allocation(MemoryAllocation {
            start_ns: at,
            end_ns: at,
            operation,
            agent: Some(agent),
            category: self.writer.intern("MEMORY_ALLOCATION"),
            address: number(keys::ADDRESS),
            size: number(keys::BYTES),
            links: Links { correlation_id: id, ..Links::default() },
            source: source(item, self.hooks.event(item)),
        });
        Ok(())
    }

    fn sample(&mut self, place: &mut Place, name: &str, at: i64, id: u64) -> Result<(), ExportError> {
        self.wait(place)?;
        let track = self.track(place, name);
        let links = Links { correlation_id: id as i64, ..Links::default() };
        let at = self.boot.of_system(at);
        place.recorder.sample(Sample { links, extdata: message(name), ..Sample::new(track, at) });
        Ok(())
    }

    fn counter(&mut self, place: &mut Place, name: &str, at: i64, value: f64) -> Result<(), ExportError> {
        self.wait(place)?;
        let track = self.track(place, name);
        let counter = match self.counters.get(name) {
            Some(counter) => *counter,
            None => {
                let counter = self.writer.counter(CounterDefinition { name: name.into(), ..Default::default() });
                self.counters.insert(name.to_owned(), counter);
                counter
            }
        };
        let category = self.writer.intern("counter");
        place.recorder.counter(CounterValue { at_ns: self.boot.of_system(at), track, counter, category, value });
        Ok(())
    }

    /// A row below the thread.
    fn track(&self, place: &mut Place, name: &str) -> TrackId {
        if let Some(track) = place.tracks.get(name) {
            return *track;
        }
        let track = self.writer.track(name, &place.recorder);
        if place.tracks.len() < TRACKS_MAX {
            place.tracks.insert(name.to_owned(), track);
        }
        track
    }

    /// Waits until there is room: nothing is dropped here.
    fn wait(&self, place: &Place) -> Result<(), ExportError> {
        for _ in 0..WAITS_MAX {
            if !place.recorder.is_full() {
                return Ok(());
            }
            std::thread::sleep(WAIT);
        }
        let reason = "the file system has accepted no data for a minute".to_owned();
        Err(ExportError::Output { path: self.path.clone(), reason })
    }
}

/// Where an event was recorded, as far as the recording says.
fn source(item: &Item<'_>, additions: &Additions) -> Option<Box<Source>> {
    let stack = additions.iter().find_map(|(key, value)| match value {
        ArgumentValue::Json(names) if key == CALL_STACK => serde_json::from_str(names).ok(),
        _ => None,
    });
    let site = match item {
        Item::Event(event) => event.site().filter(|site| !site.file.is_empty()),
        Item::Open(..) => None,
    };
    if stack.is_none() && site.is_none() {
        return None;
    }
    let (file, line) = site.map_or((String::new(), 0), |site| (site.file.clone(), site.line));
    Some(Box::new(Source { call_stack: stack.unwrap_or_default(), file, line }))
}

/// What a memory event did, if a database has a row for it.
fn memory_operation(item: &Item<'_>) -> Option<MemoryOperation> {
    match item.name() {
        _ if item.kind() != Kind::Memory => None,
        name if name == MemoryEvent::Allocate.as_str() => Some(MemoryOperation::Allocate),
        name if name == MemoryEvent::Free.as_str() => Some(MemoryOperation::Free),
        _ => None,
    }
}

/// The agent of a device, such as `cpu` or `cuda:1`. The absolute index counts the CPU, which is 0,
/// and then this many `others`.
fn agent_of(device: &str, others: i64) -> Agent {
    let is_cpu = device.starts_with(CPU);
    let kind = if is_cpu { AgentKind::Cpu } else { AgentKind::Gpu };
    let index = device.rsplit_once(':').and_then(|(_, index)| index.parse().ok()).unwrap_or(0);
    let absolute_index = if is_cpu { index } else { 1 + others };
    Agent { kind, absolute_index, logical_index: index, type_index: index, name: device.to_owned(), ..Agent::default() }
}

fn arguments(item: &Item<'_>, additions: &Additions, unfinished: bool, doubt: Doubt) -> Box<[Argument]> {
    let mut all = Vec::new();
    let kind = item.kind();
    names::each_argument(item, additions, |key, value, is_added| {
        // It has a column of its own.
        if is_added && key == CALL_STACK {
            return;
        }
        let (of_type, value) = match value {
            ArgumentValue::Integer(value) => ("int64_t", value.to_string()),
            ArgumentValue::Unsigned(value) => ("uint64_t", value.to_string()),
            ArgumentValue::Float(value) => ("double", value.to_string()),
            ArgumentValue::Boolean(value) => ("bool", value.to_string()),
            ArgumentValue::Text(text) => ("string", text.clone()),
            ArgumentValue::Json(text) => ("json", text.clone()),
            ArgumentValue::Addresses(addresses) => ("json", names::addresses(addresses)),
        };
        let name = names::of_argument(kind, key).to_owned().into();
        all.push(Argument { kind: of_type.into(), name, value });
    });
    let mut mark = |name: &'static str, value: &str| {
        all.push(Argument { kind: "string".into(), name: name.into(), value: value.into() });
    };
    if unfinished {
        mark("unfinished", "it was not closed");
    }
    if let Some(text) = doubt.text() {
        mark("clock", text);
    }
    all.into()
}

/// The process that recorded, as far as the recording says.
fn process(facts: &Facts, start_ns: i64) -> Process {
    let here = Process::current();
    let same = facts.boot_id == Facts::of_process().boot_id;
    let set = |name: &str, value: Option<u32>| Some((name.to_owned(), value?.to_string()));
    let environment: BTreeMap<String, String> =
        [set("RANK", facts.rank), set("WORLD_SIZE", facts.ranks)].into_iter().flatten().collect();
    let process = Process {
        hostname: facts.host.clone(),
        machine_id: if same { here.machine_id } else { facts.host.clone() },
        system: if same { here.system } else { Default::default() },
        pid: facts.pid,
        parent_pid: 0,
        start_ns,
        command: facts.program.clone(),
        environment,
        guid: String::new(),
    };
    process.with_own_guid()
}

/// Name of the host's device in memory events.
const CPU: &str = "cpu";
/// Assumed uncertainty of the relation of the two clocks.
const BRACKET_NS: i64 = 200;
/// Bits for the number of a row; the rest is that of the thread.
const NUMBER_BITS: u32 = 40;
/// Rows of a thread that are remembered; more are made again.
const TRACKS_MAX: usize = 4096;
/// Rows of a transaction.
const FLUSH_ROWS: usize = 50_000;
const WAIT: Duration = Duration::from_micros(200);
/// A minute.
const WAITS_MAX: u32 = 300_000;
const VIRTUAL_CLOCK: &str =
    "databases use CLOCK_BOOTTIME, but the recording uses a virtual clock (--inject-skew); write another format";
const NO_BOOT_CLOCK: &str =
    "databases use CLOCK_BOOTTIME, but the recording does not relate it to the system clock; write another format";
