//! What each sequence of packets states once and its later packets refer to: texts by number, and
//! the defaults of its events.
//!
//! Reference: `PacketSequenceState` of trace processor. A packet that clears the state starts a new
//! one. `clocks` tells which packets refer to a state that was lost.

use std::collections::HashMap;
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::fields as field;
use super::packet::{Packet, bytes, inside};
use crate::chunk::lossy;
use crate::protobuf::{Fault, Fields, Value};

/// All sequences of a trace.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    by_number: HashMap<u32, Sequence, FixedState>,
    /// Bytes of all texts.
    bytes: usize,
    keeps_texts: bool,
}

/// The state of one sequence.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    pub(super) number: u32,
    texts: HashMap<(Texts, u64), String, FixedState>,
    /// What its texts and descriptors take; those that were replaced count, too.
    bytes: usize,
    /// The counters of GPUs by the number of their descriptor: the GPU, and the descriptor.
    counters: HashMap<u64, (i64, Rc<GpuCounters>), FixedState>,
    pub(super) track: Option<u64>,
    /// Tracks of additional integers and of additional numbers.
    pub(super) counter_tracks: [Vec<u64>; 2],
    /// Process and thread of the sequence, as old writers state them.
    pub(super) thread: Option<(i64, i64)>,
}

/// The counters of a GPU.
#[derive(Debug, Default)]
pub(super) struct GpuCounters {
    /// By number: the name, and whether a value holds from its time on; else it holds until then.
    by_number: HashMap<u64, (String, bool), FixedState>,
}

impl GpuCounters {
    /// Parses a GpuCounterDescriptor.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn parse(message: &[u8]) -> Result<GpuCounters, Fault> {
        let mut counters = GpuCounters::default();
        for spec in Fields::of(message) {
            let spec = spec?;
            if spec.number != field::GPU_COUNTER_SPEC {
                continue;
            }
            let (mut number, mut name, mut is_forward) = (0, String::new(), false);
            for found in inside(&spec) {
                let found = found?;
                match (found.number, found.value) {
                    (field::GPU_COUNTER_ID, Value::Number(id)) => number = id,
                    (field::GPU_COUNTER_NAME, Value::Bytes(text)) => name = lossy(text).into_owned(),
                    (field::GPU_COUNTER_DIRECTION, Value::Number(direction)) => {
                        is_forward = direction == field::GPU_COUNTER_FORWARD;
                    }
                    _ => {}
                }
            }
            counters.by_number.insert(number, (name, is_forward));
        }
        Ok(counters)
    }

    /// The name of a counter, and whether a value holds from its time on.
    pub(super) fn counter(&self, number: u64) -> (String, bool) {
        match self.by_number.get(&number) {
            Some((name, is_forward)) if !name.is_empty() => (name.clone(), *is_forward),
            known => (format!("counter {number}"), known.is_some_and(|(_, is_forward)| *is_forward)),
        }
    }
}

/// A table of texts.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Texts {
    Category,
    Name,
    Key,
    Value,
    /// Hardware queues and stages of GPUs.
    Stage,
    Kernel,
}

impl Sequences {
    /// Creates the state of a reader that looks up texts, or of one that does not.
    pub(super) fn new(keeps_texts: bool) -> Self {
        Self { keeps_texts, ..Self::default() }
    }

    /// Takes in what a packet states, and returns the state of its sequence.
    ///
    /// # Errors
    /// A message cannot be read, or there are too many texts.
    pub(super) fn tell(&mut self, packet: &Packet<'_>) -> Result<&Sequence, Fault> {
        if !self.by_number.contains_key(&packet.sequence) && self.by_number.len() >= SEQUENCES_MAX {
            return Err(Fault::new(format!("the trace has more than {SEQUENCES_MAX} sequences of packets")));
        }
        let sequence = self.by_number.entry(packet.sequence).or_default();
        if packet.cleared {
            self.bytes -= sequence.bytes;
            *sequence = Sequence { thread: sequence.thread, ..Sequence::default() };
        }
        sequence.number = packet.sequence;
        if let Some(message) = packet.thread {
            sequence.thread = Some(thread(message)?);
        }
        if let Some(message) = packet.defaults {
            sequence.defaults(message)?;
        }
        if let Some(message) = packet.interned.filter(|_| self.keeps_texts) {
            let added = sequence.intern(message)?;
            sequence.bytes += added;
            self.bytes += added;
            if self.bytes > TEXTS_BYTES_MAX {
                return Err(Fault::new("the trace has more than 256 MB of names at a time"));
            }
        }
        Ok(sequence)
    }
}

impl Sequence {
    /// The text that has this number in a table.
    pub(super) fn text(&self, table: Texts, number: u64) -> Option<&str> {
        self.texts.get(&(table, number)).map(String::as_str)
    }

    /// The GPU and the counters of the descriptor that has this number.
    pub(super) fn counters(&self, number: u64) -> Option<(i64, Rc<GpuCounters>)> {
        self.counters.get(&number).map(|(gpu, counters)| (*gpu, Rc::clone(counters)))
    }

    /// Adds texts; the bytes that they take.
    fn intern(&mut self, message: &[u8]) -> Result<usize, Fault> {
        let mut added = 0;
        for entry in Fields::of(message) {
            let entry = entry?;
            let Some(table) = Texts::of(entry.number) else {
                if entry.number == field::INTERNED_GPU_COUNTERS {
                    added += self.counters_of(bytes(&entry).unwrap_or_default())?;
                }
                continue;
            };
            let (mut number, mut text) = (0, &b""[..]);
            for found in inside(&entry) {
                let found = found?;
                match (found.number, found.value) {
                    (field::INTERNED_ID, Value::Number(iid)) => number = iid,
                    (field::INTERNED_TEXT, Value::Bytes(stated)) => text = stated,
                    (field::INTERNED_DEMANGLED, Value::Bytes(stated)) if table == Texts::Kernel => text = stated,
                    _ => {}
                }
            }
            let text = lossy(text).into_owned();
            added += text.len() + ENTRY_BYTES;
            self.texts.insert((table, number), text);
        }
        Ok(added)
    }

    fn counters_of(&mut self, message: &[u8]) -> Result<usize, Fault> {
        let (mut number, mut gpu, mut descriptor) = (0, 0, &b""[..]);
        for found in Fields::of(message) {
            let found = found?;
            match (found.number, found.value) {
                (field::INTERNED_ID, Value::Number(iid)) => number = iid,
                (field::INTERNED_COUNTERS_GPU, Value::Number(id)) => gpu = id as i64,
                (field::INTERNED_COUNTERS, Value::Bytes(stated)) => descriptor = stated,
                _ => {}
            }
        }
        self.counters.insert(number, (gpu, Rc::new(GpuCounters::parse(descriptor)?)));
        Ok(descriptor.len() + ENTRY_BYTES)
    }

    /// Replaces all defaults.
    fn defaults(&mut self, message: &[u8]) -> Result<(), Fault> {
        (self.track, self.counter_tracks) = Default::default();
        for found in Fields::of(message) {
            let found = found?;
            if found.number != field::DEFAULTS_EVENT {
                continue;
            }
            for found in inside(&found) {
                let found = found?;
                match (found.number, found.value) {
                    (field::EVENT_TRACK, Value::Number(track)) => self.track = Some(track),
                    (field::EVENT_EXTRA_TRACKS, _) => numbers(found.value, &mut self.counter_tracks[0])?,
                    (field::EVENT_EXTRA_FLOAT_TRACKS, _) => numbers(found.value, &mut self.counter_tracks[1])?,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

impl Texts {
    /// The table of a field of InternedData.
    fn of(number: u32) -> Option<Texts> {
        Some(match number {
            field::INTERNED_CATEGORY => Texts::Category,
            field::INTERNED_NAME => Texts::Name,
            field::INTERNED_KEY => Texts::Key,
            field::INTERNED_VALUE => Texts::Value,
            field::INTERNED_STAGE => Texts::Stage,
            field::INTERNED_KERNEL => Texts::Kernel,
            _ => return None,
        })
    }
}

/// Appends the numbers of a repeated field, packed or not.
///
/// # Errors
/// Packed numbers are cut off.
pub(super) fn numbers(value: Value<'_>, into: &mut Vec<u64>) -> Result<(), Fault> {
    match value {
        Value::Number(number) => into.push(number),
        Value::Fixed(bytes) => into.extend(bytes.try_into().ok().map(u64::from_le_bytes)),
        Value::Bytes(mut rest) => {
            while !rest.is_empty() {
                let Some((number, width)) = crate::protobuf::varint(rest) else {
                    return Err(Fault::new("packed numbers are cut off"));
                };
                into.push(number);
                rest = &rest[width..];
            }
        }
    }
    Ok(())
}

/// Process and thread of a ThreadDescriptor.
fn thread(message: &[u8]) -> Result<(i64, i64), Fault> {
    let (mut pid, mut tid) = (0, 0);
    for found in Fields::of(message) {
        let found = found?;
        match found.number {
            field::THREAD_PID => pid = found.number("pid")? as i64,
            field::THREAD_TID => tid = found.number("tid")? as i64,
            _ => {}
        }
    }
    Ok((pid, tid))
}

/// Sequences of one trace: each thread of a program has one.
const SEQUENCES_MAX: usize = 1 << 20;
const TEXTS_BYTES_MAX: usize = 1 << 28;
/// What an entry takes in addition to its text, about.
const ENTRY_BYTES: usize = 64;
