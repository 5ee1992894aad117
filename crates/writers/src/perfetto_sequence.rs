//! The packets of a sequence in a Perfetto trace: events with times relative to the previous one,
//! and texts that are stated once.
//!
//! Reference: `protos/perfetto/trace/trace_packet.proto` and `track_event/track_event.proto` of
//! Perfetto, with the numbers of `perfetto_fields`.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use probe_sync_formats::Error;
use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, StringId, Value};
use probe_sync_formats::perfetto::fields as field;
use probe_sync_formats::protobuf::{put_bytes, put_number, put_varint};

use super::machine::Machine;
use super::perfetto_clock::{self, MachineClock};

/// One event with a name.
pub(super) struct Event {
    pub(super) kind: u64,
    pub(super) track: u64,
    pub(super) time: i64,
    pub(super) name: StringId,
    pub(super) category: StringId,
    pub(super) args: ArgRange,
}

/// A packet sequence: what its packets need not repeat.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// 0: none was begun.
    id: u64,
    /// Present value of the incremental clock.
    clock: i64,
    /// Number of consecutive events earlier than it.
    behind: u32,
    names: Interned,
    categories: Interned,
    keys: Interned,
    /// The machine of its packets; `None`: the machine whose clock the trace is on.
    machine: Option<MachineClock>,
    /// A packet of that machine with a time has been written.
    has_own: bool,
    /// A packet has been written.
    has_begun: bool,
    /// InternedData, TrackEvent and TracePacket under construction.
    fresh: Vec<u8>,
    event: Vec<u8>,
    packet: Vec<u8>,
    inner: Vec<u8>,
}

impl Sequence {
    /// Forgets the numbers of the last chunk's texts; all texts if there are too many.
    pub(super) fn next_chunk(&mut self, chunk: &Chunk) {
        let tables = [&mut self.names, &mut self.categories, &mut self.keys];
        if tables.iter().map(|table| table.bytes).sum::<usize>() > INTERNED_BYTES_MAX {
            self.behind = BEHIND_MAX;
        }
        for table in tables {
            table.of_chunk.clear();
            table.of_chunk.resize(chunk.strings.count(), 0);
        }
    }

    /// Refuses a chunk with a time before the zero of the trace's clock, which could not be stated
    /// beside that of the machine.
    pub(super) fn refuse_early(&self, chunk: &Chunk) -> Result<(), Error> {
        let Some(clock) = &self.machine else { return Ok(()) };
        // A map keeps the order of times.
        match chunk
            .times()
            .into_iter()
            .flat_map(|(_, column)| column)
            .min()
            .filter(|earliest| clock.reference_ns(**earliest).is_none())
        {
            None => Ok(()),
            Some(earliest) => {
                let problem = format!(
                    "a time of {earliest} ns on the clock of machine {} is before the zero of the trace's clock, which a Perfetto \
                    trace cannot represent",
                    clock.id()
                );
                Err(Error::Chunk { problem })
            }
        }
    }

    /// Whether its packets are of a machine with a clock of its own.
    pub(super) fn is_on_machine(&self) -> bool {
        self.machine.is_some()
    }

    /// Assigns what follows to this machine; returns what was stated about the previous one's
    /// clock: number of pairs, and remaining ns.
    pub(super) fn on_machine(&mut self, machine: Option<Machine>) -> Option<(u64, u64)> {
        // Trace processor keeps what it knows of sequences by machine.
        self.behind = BEHIND_MAX;
        let before = std::mem::replace(&mut self.machine, machine.map(MachineClock::new));
        before.map(|clock| (clock.pairs, clock.off_ns_max))
    }

    /// States an instant of the machine's clock if one is due at `time`.
    #[inline]
    fn synchronize(&mut self, out: &mut Vec<u8>, time: i64) {
        let Some(clock) = &mut self.machine else { return };
        let (id, Some(instant)) = (clock.id(), clock.due(time)) else { return };
        let sequence = self.id.max(1);
        if !self.has_own {
            put_bytes(out, field::TRACE_PACKET, &perfetto_clock::own_packet(sequence, instant[1]));
            self.has_own = true;
        }
        put_bytes(out, field::TRACE_PACKET, &perfetto_clock::packet(sequence, id, instant));
    }

    /// Adds the machine of a packet.
    #[inline]
    fn of_machine(&mut self) {
        match &self.machine {
            Some(clock) => put_number(&mut self.packet, field::PACKET_MACHINE, clock.id()),
            None => self.has_own = true,
        }
    }

    /// Begins a sequence whose clock starts at `time`.
    fn begin(&mut self, out: &mut Vec<u8>, time: i64) {
        self.id += 1;
        (self.clock, self.behind) = (time, 0);
        for table in [&mut self.names, &mut self.categories, &mut self.keys] {
            table.forget();
        }
        let clock = |id: u64, incremental: bool| {
            let mut clock = Vec::new();
            put_number(&mut clock, field::CLOCK_ID, id);
            put_number(&mut clock, field::CLOCK_TIME, time as u64);
            if incremental {
                put_number(&mut clock, field::CLOCK_IS_INCREMENTAL, 1);
            }
            clock
        };
        let (mut snapshot, mut defaults) = (Vec::new(), Vec::new());
        put_bytes(&mut snapshot, field::SNAPSHOT_CLOCKS, &clock(field::INCREMENTAL_CLOCK, true));
        put_bytes(&mut snapshot, field::SNAPSHOT_CLOCKS, &clock(field::TRACE_CLOCK, false));
        put_number(&mut defaults, field::PACKET_CLOCK, field::INCREMENTAL_CLOCK);
        self.packet.clear();
        self.of_machine();
        put_number(&mut self.packet, field::PACKET_SEQUENCE, self.id);
        put_number(&mut self.packet, field::PACKET_FLAGS, field::STATE_CLEARED);
        put_bytes(&mut self.packet, field::PACKET_CLOCK_SNAPSHOT, &snapshot);
        put_bytes(&mut self.packet, field::PACKET_DEFAULTS, &defaults);
        put_number(&mut self.packet, field::PACKET_IS_FIRST, 1);
        put_bytes(out, field::TRACE_PACKET, &self.packet);
    }

    /// Begins a packet at a time; its event follows.
    #[inline]
    fn at(&mut self, out: &mut Vec<u8>, time: i64) {
        self.synchronize(out, time);
        if self.id == 0 || self.behind >= BEHIND_MAX {
            self.begin(out, time);
        }
        self.packet.clear();
        self.of_machine();
        if time >= self.clock {
            put_number(&mut self.packet, field::PACKET_TIME, (time - self.clock) as u64);
            (self.clock, self.behind) = (time, 0);
        } else {
            put_number(&mut self.packet, field::PACKET_TIME, time as u64);
            put_number(&mut self.packet, field::PACKET_CLOCK, field::TRACE_CLOCK);
            self.behind += 1;
        }
        put_number(&mut self.packet, field::PACKET_SEQUENCE, self.id);
        put_number(&mut self.packet, field::PACKET_FLAGS, field::NEEDS_STATE);
    }

    #[inline]
    pub(super) fn event(&mut self, out: &mut Vec<u8>, chunk: &Chunk, event: &Event, flows: &[Flow]) {
        self.at(out, event.time);
        self.fresh.clear();
        self.event.clear();
        put_number(&mut self.event, field::EVENT_TYPE, event.kind);
        put_number(&mut self.event, field::EVENT_TRACK, event.track);
        if event.category != StringId::EMPTY {
            let id = self.categories.number(&mut self.fresh, field::INTERNED_CATEGORY, chunk, event.category);
            put_number(&mut self.event, field::EVENT_CATEGORY_ID, id);
        }
        let id = self.names.number(&mut self.fresh, field::INTERNED_NAME, chunk, event.name);
        put_number(&mut self.event, field::EVENT_NAME_ID, id);
        for flow in flows {
            put_fixed64(&mut self.event, field::EVENT_FLOW, flow.id);
        }
        for index in event.args.first..event.args.first + event.args.count {
            self.argument(chunk, index as usize);
        }
        if !self.fresh.is_empty() {
            put_bytes(&mut self.packet, field::PACKET_INTERNED, &self.fresh);
        }
        put_bytes(&mut self.packet, field::PACKET_EVENT, &self.event);
        put_bytes(out, field::TRACE_PACKET, &self.packet);
    }

    fn argument(&mut self, chunk: &Chunk, index: usize) {
        let id = self.keys.number(&mut self.fresh, field::INTERNED_KEY, chunk, chunk.args.key[index]);
        self.inner.clear();
        put_number(&mut self.inner, field::ARGUMENT_KEY_ID, id);
        let text = |id| chunk.strings.text(id).as_bytes();
        match chunk.args.value[index] {
            Value::Integer(value) => put_number(&mut self.inner, field::ARGUMENT_INTEGER, value as u64),
            Value::Unsigned(value) => put_number(&mut self.inner, field::ARGUMENT_UNSIGNED, value),
            Value::Float(value) => put_fixed64(&mut self.inner, field::ARGUMENT_FLOAT, value.to_bits()),
            Value::Boolean(value) => put_number(&mut self.inner, field::ARGUMENT_BOOLEAN, u64::from(value)),
            // Perfetto has a field for JSON, but its trace processor ends (v52) at a null in it.
            Value::Text(id) | Value::Json(id) => put_bytes(&mut self.inner, field::ARGUMENT_TEXT, text(id)),
        }
        put_bytes(&mut self.event, field::EVENT_ARGUMENT, &self.inner);
    }

    #[inline]
    pub(super) fn end(&mut self, out: &mut Vec<u8>, track: u64, time: i64) {
        self.at(out, time);
        self.event.clear();
        put_number(&mut self.event, field::EVENT_TYPE, field::SLICE_END);
        put_number(&mut self.event, field::EVENT_TRACK, track);
        put_bytes(&mut self.packet, field::PACKET_EVENT, &self.event);
        put_bytes(out, field::TRACE_PACKET, &self.packet);
    }

    pub(super) fn value(&mut self, out: &mut Vec<u8>, track: u64, time: i64, value: f64) {
        self.at(out, time);
        self.event.clear();
        put_number(&mut self.event, field::EVENT_TYPE, field::COUNTER);
        put_number(&mut self.event, field::EVENT_TRACK, track);
        put_fixed64(&mut self.event, field::EVENT_FLOAT_VALUE, value.to_bits());
        put_bytes(&mut self.packet, field::PACKET_EVENT, &self.event);
        put_bytes(out, field::TRACE_PACKET, &self.packet);
    }

    /// Descriptors need no clock and no texts, so they apply to all sequences.
    pub(super) fn descriptor(&mut self, out: &mut Vec<u8>, body: &[u8]) {
        if self.machine.is_some() && !self.has_own && !self.has_begun {
            put_bytes(out, field::TRACE_PACKET, &perfetto_clock::first_packet(self.id.max(1)));
        }
        self.has_begun = true;
        self.packet.clear();
        self.of_machine();
        put_number(&mut self.packet, field::PACKET_SEQUENCE, self.id.max(1));
        put_bytes(&mut self.packet, field::PACKET_DESCRIPTOR, body);
        put_bytes(out, field::TRACE_PACKET, &self.packet);
    }
}

/// Texts of one kind that the sequence refers back to.
#[derive(Debug, Default)]
struct Interned {
    numbers: HashMap<Box<str>, u32, FixedState>,
    bytes: usize,
    /// By number in the chunk's table; 0: not looked up yet.
    of_chunk: Vec<u32>,
}

impl Interned {
    /// The sequence's number of a text; a new one is stated in `fresh`.
    #[inline]
    fn number(&mut self, fresh: &mut Vec<u8>, kind: u32, chunk: &Chunk, id: StringId) -> u64 {
        let known = self.of_chunk[id.0 as usize];
        if known != 0 {
            return u64::from(known);
        }
        let text = chunk.strings.text(id);
        let number = match self.numbers.get(text) {
            Some(number) => *number,
            None => {
                let number = self.numbers.len() as u32 + 1;
                self.numbers.insert(text.into(), number);
                self.bytes += text.len() + ENTRY_BYTES;
                let mut entry = Vec::with_capacity(text.len() + 16);
                put_number(&mut entry, field::INTERNED_ID, u64::from(number));
                put_bytes(&mut entry, field::INTERNED_TEXT, text.as_bytes());
                put_bytes(fresh, kind, &entry);
                number
            }
        };
        self.of_chunk[id.0 as usize] = number;
        u64::from(number)
    }

    fn forget(&mut self) {
        self.numbers.clear();
        self.bytes = 0;
        self.of_chunk.fill(0);
    }
}

fn put_fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

/// Interned texts are forgotten beyond this size, including the map's overhead per entry.
const INTERNED_BYTES_MAX: usize = 16 << 20;
/// Approximate overhead of a map's entry in addition to its text.
const ENTRY_BYTES: usize = 48;
/// Events in a row whose time is stated in full before a new sequence is begun.
const BEHIND_MAX: u32 = 64;
