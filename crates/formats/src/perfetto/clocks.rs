//! The clocks of a Perfetto trace, which convert its packets' timestamps to times on one of them.
//!
//! It receives every packet in the order of the file. Reference: `clock_snapshot.proto`, and
//! `ProtoTraceReader::ParseClockSnapshot` and `ClockTracker` of trace processor v58. Times of
//! packets are on the trace's clock, which is BOOTTIME unless a snapshot names another
//! (`primary_trace_clock`) or the packet or its sequence does. Clocks 64 to 127 belong to a
//! sequence, and a snapshot relates them to one that all packets share. For other clocks, the last
//! snapshot that contains both determines their difference. The target clock is BOOTTIME, which v58
//! knows by one name in every file whatever clock the trace is on, or REALTIME if the trace is on
//! that and never states BOOTTIME.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use super::packet::{Packet, Reading, Snapshot};
use crate::marker::Marker;
use crate::model::{ClockPair, PairKind};

/// Knowledge about the clocks so far.
#[derive(Debug)]
pub(super) struct Clocks {
    /// The clock that times are brought to.
    pub(super) wanted: u32,
    /// The clock of packets that name none.
    trace_clock: u32,
    /// A snapshot has been seen, or a packet that names its clock.
    pub(super) is_stated: bool,
    /// A time was converted.
    in_use: bool,
    /// By clock: wanted clock minus that clock, ns.
    ahead: BTreeMap<u32, i128>,
    sequences: HashMap<u32, Sequence, FixedState>,
    /// Packets seen.
    packets: u64,
    /// Moments at which the wanted clock and the system clock were read; with CLOCK_MONOTONIC, read
    /// after both, minus the wanted clock.
    read: Vec<(ClockPair, Option<i128>)>,
    pub(super) pairs_left_out: u64,
}

/// What a sequence says about its packets.
#[derive(Debug, Default)]
struct Sequence {
    default_clock: Option<u32>,
    own: BTreeMap<u32, OwnClock>,
    /// Numbers of names that are markers.
    names: BTreeMap<u64, Marker>,
    /// The last packet that belonged to it.
    used: u64,
}

/// A clock of a sequence.
#[derive(Copy, Clone, Debug)]
struct OwnClock {
    reading: Reading,
    /// A clock that all have, and its reading at the same moment, ns.
    shared: (u32, i128),
    /// The last reading of the clock, ns.
    last_ns: i128,
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            wanted: BOOTTIME,
            trace_clock: BOOTTIME,
            is_stated: false,
            in_use: false,
            ahead: BTreeMap::new(),
            sequences: HashMap::default(),
            packets: 0,
            read: Vec::new(),
            pairs_left_out: 0,
        }
    }
}

impl Clocks {
    /// Processes what a packet says about clocks.
    ///
    /// # Errors
    /// Returns an error if the trace is on an unsupported clock, or states it too late.
    pub(super) fn tell(&mut self, packet: &Packet<'_>) -> Result<(), String> {
        self.packets += 1;
        self.is_stated |= packet.snapshot.is_some() || packet.clock.is_some() && packet.time.is_some();
        let (packets, known) = (self.packets, self.sequences.contains_key(&packet.sequence));
        if known || packet.default_clock.is_some() || packet.snapshot.is_some() || packet.interned.is_some() {
            if !known {
                self.make_room();
            }
            let sequence = self.sequences.entry(packet.sequence).or_default();
            sequence.used = packets;
            if packet.cleared {
                sequence.default_clock = None;
                sequence.names.clear();
            }
            sequence.default_clock = packet.default_clock.or(sequence.default_clock);
        }
        packet.snapshot.as_ref().map_or(Ok(()), |snapshot| self.snapshot(packet.sequence, snapshot))
    }

    /// A packet's time on the wanted clock, ns; `None` if nothing relates its clock to that.
    pub(super) fn time_ns(&mut self, packet: &Packet<'_>) -> Option<i64> {
        let sequence = self.sequences.get_mut(&packet.sequence);
        let default = sequence.as_ref().and_then(|sequence| sequence.default_clock);
        let clock = packet.clock.or(default).unwrap_or(self.trace_clock);
        let time = i128::from(packet.time?);
        let (clock, ns) = match sequence.and_then(|sequence| sequence.own.get_mut(&clock)) {
            Some(own) => own.shared_ns(time),
            None => (clock, time),
        };
        self.in_use = true;
        let ahead = if clock == self.wanted { 0 } else { *self.ahead.get(&clock)? };
        i64::try_from(ns.saturating_add(ahead)).ok()
    }

    /// Keeps the number that a sequence has for a name that is a marker.
    pub(super) fn name(&mut self, sequence: u32, number: u64, marker: Marker) {
        let names = &mut self.sequences.entry(sequence).or_default().names;
        if names.len() < NAMES_MAX {
            names.insert(number, marker);
        }
    }

    /// The marker that a sequence has under a number.
    pub(super) fn named(&self, sequence: u32, number: u64) -> Option<Marker> {
        self.sequences.get(&sequence)?.names.get(&number).copied()
    }

    /// Pairs of the wanted clock and the system clock. The service reads CLOCK_BOOTTIME,
    /// CLOCK_REALTIME and CLOCK_MONOTONIC in this order, so the pair may be wrong by the additional
    /// delay of the last compared with the fastest snapshot.
    pub(super) fn pairs(&self) -> impl Iterator<Item = ClockPair> + '_ {
        let quickest = self.read.iter().filter_map(|(_, behind)| *behind).min();
        self.read.iter().map(move |(pair, behind)| {
            let later = behind.zip(quickest).map_or(0, |(behind, quickest)| behind.saturating_sub(quickest));
            ClockPair { kind: PairKind::Bracketed(READ_WITHIN_NS + later as f64), ..*pair }
        })
    }

    fn snapshot(&mut self, sequence: u32, snapshot: &Snapshot) -> Result<(), String> {
        if let Some(clock) = snapshot.trace_clock.filter(|clock| *clock != self.trace_clock) {
            self.put_on(clock, snapshot)?;
        }
        if let Some(now) = snapshot.of(self.wanted) {
            for reading in snapshot.readings.iter().filter(|reading| !is_own(reading.clock)) {
                if self.ahead.len() < CLOCKS_MAX || self.ahead.contains_key(&reading.clock) {
                    self.ahead.insert(reading.clock, now.saturating_sub(reading.ns()));
                }
            }
            self.pair(now, snapshot);
        }
        let preferred = snapshot.of(self.wanted).map(|now| (self.wanted, now));
        let other = || snapshot.readings.iter().find(|reading| !is_own(reading.clock));
        let shared = preferred.or_else(|| other().map(|reading| (reading.clock, reading.ns())));
        let Some(shared) = shared else { return Ok(()) };
        let own = &mut self.sequences.entry(sequence).or_default().own;
        for reading in snapshot.readings.iter().filter(|reading| is_own(reading.clock)) {
            own.insert(reading.clock, OwnClock { reading: *reading, shared, last_ns: reading.ns() });
        }
        Ok(())
    }

    /// Takes the clock that the trace says it is on.
    fn put_on(&mut self, clock: u32, snapshot: &Snapshot) -> Result<(), String> {
        if self.in_use {
            return Err(format!("it declares its clock ({}) only after packets with times", name(clock)));
        }
        self.trace_clock = clock;
        self.wanted = match (snapshot.of(BOOTTIME), clock) {
            (Some(_), _) | (None, BOOTTIME) => BOOTTIME,
            (None, REALTIME) => REALTIME,
            (None, other) => {
                return Err(format!(
                    "its times are on {}, and its ClockSnapshot does not include BOOTTIME; record it on BOOTTIME \
                    (builtin_data_sources.primary_trace_clock), or with snapshots of all clocks",
                    name(other)
                ));
            }
        };
        Ok(())
    }

    fn pair(&mut self, now: i128, snapshot: &Snapshot) {
        let Some(system) = snapshot.of(REALTIME).filter(|_| self.wanted != REALTIME) else { return };
        let (Ok(tracer_ns), Ok(system_ns)) = (i64::try_from(now), i64::try_from(system)) else { return };
        if self.read.len() >= PAIRS_MAX {
            self.pairs_left_out += 1;
            return;
        }
        let pair =
            ClockPair { tracer_ps: i128::from(tracer_ns) * 1000, system_ns, kind: PairKind::Bracketed(READ_WITHIN_NS) };
        self.read.push((pair, snapshot.of(MONOTONIC).map(|later| later.saturating_sub(now))));
    }

    /// Forgets the sequences that were silent for longest, if there are too many: a writer that
    /// begins a new one does not go back.
    fn make_room(&mut self) {
        if self.sequences.len() < SEQUENCES_MAX {
            return;
        }
        let mut used: Vec<u64> = self.sequences.values().map(|sequence| sequence.used).collect();
        let middle = *used.select_nth_unstable(SEQUENCES_MAX / 2).1;
        self.sequences.retain(|_, sequence| sequence.used > middle);
    }
}

impl OwnClock {
    /// A packet's number as a time of a clock that all know.
    fn shared_ns(&mut self, time: i128) -> (u32, i128) {
        let units_ns = time.saturating_mul(i128::from(self.reading.unit_ns));
        let own_ns = if self.reading.is_incremental { self.last_ns.saturating_add(units_ns) } else { units_ns };
        self.last_ns = own_ns;
        let (clock, shared_ns) = self.shared;
        (clock, own_ns.saturating_sub(self.reading.ns()).saturating_add(shared_ns))
    }
}

/// Perfetto's name of a clock.
pub(super) fn name(clock: u32) -> String {
    let known = usize::try_from(clock).ok().and_then(|clock| NAMES.get(clock)).filter(|name| !name.is_empty());
    known.map_or_else(|| format!("clock {clock}"), |name| (*name).to_owned())
}

fn is_own(clock: u32) -> bool {
    (64..128).contains(&clock)
}

/// BuiltinClock, as `builtin_clock.proto` numbers it.
const NAMES: [&str; 12] = [
    "",
    "REALTIME",
    "REALTIME_COARSE",
    "MONOTONIC",
    "MONOTONIC_COARSE",
    "MONOTONIC_RAW",
    "BOOTTIME",
    "",
    "",
    "TSC",
    "PERF",
    "TRACE_FILE",
];
pub(super) const REALTIME: u32 = 1;
const MONOTONIC: u32 = 3;
pub(super) const BOOTTIME: u32 = 6;
/// Time within which an uninterrupted service reads all clocks of a snapshot.
const READ_WITHIN_NS: f64 = 1000.0;
/// Snapshots of the system clock that are kept; one a second for eleven days.
const PAIRS_MAX: usize = 1_000_000;
/// Sequences that are kept, about 200 bytes each.
const SEQUENCES_MAX: usize = 1 << 16;
/// Clocks that all packets share.
const CLOCKS_MAX: usize = 256;
/// Names of one sequence that are markers.
const NAMES_MAX: usize = 1 << 16;
