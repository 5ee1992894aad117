//! The tracks of a trace: what descriptors state about them, in whichever order, and the tracks that
//! events imply.
//!
//! Reference: `track_descriptor.proto`. A thread belongs to the process of its pid, and a track that
//! no process is above of belongs to the trace itself.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use super::fields as field;
use super::packet::{bytes, inside};
use crate::ChunkOptions;
use crate::chunk::{Process, Track, TrackId, TrackKind, lossy};
use crate::protobuf::{Fault, Field, Fields, Value};

/// Identity of a track.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// The number that its descriptor has.
    Described(u64),
    /// A thread of a process.
    Thread(i64, i64),
    Process(i64),
    /// What the trace covers.
    Whole,
    Gpu(i64),
    /// A queue of a GPU.
    Queue(i64, String),
    /// A counter of a GPU.
    GpuCounter(i64, String),
}

/// The tracks of a trace.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    described: HashMap<u64, Described, FixedState>,
    /// By pid: the number of the process's track.
    processes: HashMap<i64, u64, FixedState>,
    /// Names of threads, by pid and tid.
    threads: HashMap<(i64, i64), String, FixedState>,
    declared: HashMap<Place, TrackId, FixedState>,
}

/// What descriptors state about a track.
#[derive(Clone, Debug, Default)]
struct Described {
    parent: Option<u64>,
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug, Default)]
enum Kind {
    #[default]
    Plain,
    Process(i64),
    Thread(i64, i64),
    Counter(Counter),
}

/// A counter.
#[derive(Clone, Debug)]
pub(super) struct Counter {
    unit: String,
    /// Values are multiplied by it.
    pub(super) multiplier: f64,
    /// Values are differences from the one before on the same sequence.
    pub(super) is_incremental: bool,
}

impl Tracks {
    /// Takes in a TrackDescriptor. A later one of the same track adds to it.
    ///
    /// # Errors
    /// It cannot be read, or there are too many.
    pub(super) fn describe(&mut self, message: &[u8]) -> Result<(), Fault> {
        let mut new = Described::default();
        let mut number = 0;
        for found in Fields::of(message) {
            let found = found?;
            match found.number {
                field::DESCRIPTOR_UUID => number = found.number("uuid")?,
                field::DESCRIPTOR_PARENT => {
                    new.parent = Some(found.number("parent_uuid")?).filter(|parent| *parent != 0);
                }
                field::DESCRIPTOR_NAME | field::DESCRIPTOR_STATIC_NAME | field::DESCRIPTOR_ATRACE_NAME => {
                    new.name = text(&found);
                }
                field::DESCRIPTOR_PROCESS => self.process(&found, number, &mut new)?,
                field::DESCRIPTOR_THREAD => self.thread(&found, &mut new)?,
                field::DESCRIPTOR_COUNTER => new.kind = Kind::Counter(Counter::parse(&found)?),
                _ => {}
            }
        }
        if self.described.len() >= TRACKS_MAX && !self.described.contains_key(&number) {
            return Err(Fault::new(format!("the trace describes more than {TRACKS_MAX} tracks")));
        }
        let known = self.described.entry(number).or_default();
        known.parent = new.parent.or(known.parent);
        if !new.name.is_empty() {
            known.name = new.name;
        }
        if !matches!(new.kind, Kind::Plain) {
            known.kind = new.kind;
        }
        Ok(())
    }

    /// The counter of a track, if it is one.
    pub(super) fn counter(&self, number: u64) -> Option<&Counter> {
        match &self.described.get(&number)?.kind {
            Kind::Counter(counter) => Some(counter),
            _ => None,
        }
    }

    /// Returns a track, and declares it and those above it when it is first used.
    pub(super) fn track(
        &mut self,
        place: &Place,
        options: &ChunkOptions,
        declare: &mut dyn FnMut(Track) -> TrackId,
    ) -> TrackId {
        self.nested(place, options, declare, 0)
    }

    fn nested(
        &mut self,
        place: &Place,
        options: &ChunkOptions,
        declare: &mut dyn FnMut(Track) -> TrackId,
        depth: u32,
    ) -> TrackId {
        let place = self.canonical(place);
        if let Some(track) = self.declared.get(&place) {
            return *track;
        }
        let (above, kind, name) = self.above(&place, options);
        // A circle of parents ends here.
        let above = if depth < DEPTH_MAX { above } else { Some(Place::Whole).filter(|_| place != Place::Whole) };
        let parent = above.map(|above| self.nested(&above, options, declare, depth + 1));
        let track = declare(Track { parent, kind, name });
        self.declared.insert(place, track);
        track
    }

    /// One place for one track: a descriptor of a process or thread is that process or thread.
    fn canonical(&self, place: &Place) -> Place {
        match place {
            Place::Described(number) => match self.described.get(number).map(|described| &described.kind) {
                Some(Kind::Process(pid)) => Place::Process(*pid),
                Some(Kind::Thread(pid, tid)) => Place::Thread(*pid, *tid),
                _ => place.clone(),
            },
            _ => place.clone(),
        }
    }

    /// The track above, the kind and the name of a track.
    fn above(&self, place: &Place, options: &ChunkOptions) -> (Option<Place>, TrackKind, String) {
        let process = |pid: i64| {
            let guid = String::new();
            TrackKind::Process(Process { pid, host: options.host.clone(), rank: options.rank, guid })
        };
        match place {
            Place::Whole => (None, process(0), String::new()),
            Place::Process(pid) => {
                let described = self.processes.get(pid).and_then(|number| self.described.get(number));
                (None, process(*pid), described.map(|described| described.name.clone()).unwrap_or_default())
            }
            Place::Thread(pid, tid) => {
                let name = self.threads.get(&(*pid, *tid)).cloned().unwrap_or_default();
                (Some(Place::Process(*pid)), TrackKind::Thread { tid: *tid }, name)
            }
            Place::Gpu(gpu) => (Some(Place::Whole), TrackKind::Agent, format!("GPU {gpu}")),
            Place::Queue(gpu, name) => (Some(Place::Gpu(*gpu)), TrackKind::Queue, name.clone()),
            Place::GpuCounter(gpu, name) => {
                (Some(Place::Gpu(*gpu)), TrackKind::Counter { unit: String::new() }, name.clone())
            }
            Place::Described(number) => match self.described.get(number) {
                None => (Some(Place::Whole), TrackKind::Stream, format!("track {number}")),
                Some(described) => {
                    let known = described.parent.filter(|parent| self.described.contains_key(parent));
                    let kind = match &described.kind {
                        Kind::Counter(counter) => TrackKind::Counter { unit: counter.unit.clone() },
                        _ => TrackKind::Stream,
                    };
                    (Some(known.map_or(Place::Whole, Place::Described)), kind, described.name.clone())
                }
            },
        }
    }

    fn process(&mut self, message: &Field<'_>, number: u64, new: &mut Described) -> Result<(), Fault> {
        let (mut pid, mut name, mut command) = (0, String::new(), String::new());
        for found in inside(message) {
            let found = found?;
            match found.number {
                field::PROCESS_PID => pid = found.number("pid")? as i32,
                field::PROCESS_NAME => name = text(&found),
                field::PROCESS_COMMAND if command.is_empty() => command = text(&found),
                _ => {}
            }
        }
        // Number 0 stands for no process.
        if pid != 0 {
            new.kind = Kind::Process(pid.into());
            self.processes.insert(pid.into(), number);
        }
        let stated = [name, std::mem::take(&mut new.name), command].into_iter().find(|name| !name.is_empty());
        new.name = stated.unwrap_or_default();
        Ok(())
    }

    fn thread(&mut self, message: &Field<'_>, new: &mut Described) -> Result<(), Fault> {
        let (mut pid, mut tid, mut name) = (0, 0, String::new());
        for found in inside(message) {
            let found = found?;
            match found.number {
                field::THREAD_PID => pid = found.number("pid")? as i32,
                field::THREAD_TID => tid = found.number("tid")? as i64,
                field::THREAD_NAME => name = text(&found),
                _ => {}
            }
        }
        new.kind = Kind::Thread(pid.into(), tid);
        let stated = Some(name).filter(|name| !name.is_empty()).or(Some(new.name.clone()));
        if let Some(name) = stated.filter(|name| !name.is_empty()) {
            self.threads.insert((pid.into(), tid), name);
        }
        Ok(())
    }
}

impl Counter {
    fn parse(message: &Field<'_>) -> Result<Counter, Fault> {
        let mut counter = Counter { unit: String::new(), multiplier: 1.0, is_incremental: false };
        for found in inside(message) {
            let found = found?;
            match (found.number, found.value) {
                (field::COUNTER_UNIT_NAME, _) => counter.unit = text(&found),
                (field::COUNTER_UNIT, Value::Number(unit)) if counter.unit.is_empty() => {
                    counter.unit = UNITS.get(unit as usize).copied().unwrap_or_default().to_owned();
                }
                (field::COUNTER_MULTIPLIER, Value::Number(by)) if by != 0 => counter.multiplier = by as i64 as f64,
                (field::COUNTER_IS_INCREMENTAL, Value::Number(is)) => counter.is_incremental = is != 0,
                _ => {}
            }
        }
        Ok(counter)
    }
}

fn text(found: &Field<'_>) -> String {
    lossy(bytes(found).unwrap_or_default()).chars().take(NAME_MAX).collect()
}

/// CounterDescriptor.Unit.
const UNITS: [&str; 4] = ["", "ns", "count", "bytes"];
const TRACKS_MAX: usize = 1 << 22;
const NAME_MAX: usize = 1024;
/// Tracks above each other.
const DEPTH_MAX: u32 = 64;
