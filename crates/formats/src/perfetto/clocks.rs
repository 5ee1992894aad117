//! The clocks of a Perfetto trace, which convert its packets' timestamps to times on one of them.
//!
//! It receives every packet in the order of the file. Reference: `clock_snapshot.proto`, and
//! `ProtoTraceReader::ParseClockSnapshot` and `ClockTracker` of trace processor v58. Times of
//! packets are on the trace's clock, which is BOOTTIME unless a snapshot names another
//! (`primary_trace_clock`) or the packet or its sequence does. Clocks 64 to 127 belong to a
//! sequence, and a snapshot relates them to one that all packets share. For other clocks, the
//! last snapshot before the time determines their difference, of those before it in the file. The target clock is BOOTTIME, which v58
//! knows by one name in every file whatever clock the trace is on, or REALTIME if the trace is on
//! that and never states BOOTTIME.
//!
//! A rewriter moves the readings of a snapshot together with the times between snapshots. With the
//! wanted clock's reading `s`, another clock's reading `c` at the same moment, and the map `m`:
//!
//! ```text
//! s' = m(s)        c' = c + m(s) - s        a time x of the other clock, which is t = x + s - c, becomes x' = m(t) + c - s
//! ```
//!
//! Differences between clocks stay as they are, so that it does not matter through which snapshot a
//! reader converts a time; except that REALTIME is the new time itself.

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
    /// By clock: its relations to the wanted clock, in the order of the file.
    relations: BTreeMap<u32, Vec<Relation>>,
    sequences: HashMap<u32, Sequence, FixedState>,
    /// Clocks of sequences are written in ns, whatever their units.
    writes_ns: bool,
    /// A time was written that is no multiple of its unit.
    pub(super) has_rounded: bool,
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
    /// Its state was stated and is complete.
    is_valid: bool,
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
    written: Written,
}

/// The relation of a clock to the wanted clock in a snapshot.
#[derive(Copy, Clone, Debug, Default)]
struct Relation {
    reading_ns: i128,
    /// The wanted clock minus this one, ns.
    ahead_ns: i128,
    /// The same as a rewriter states it.
    ahead_written_ns: i128,
}

/// A time of a clock on the wanted clock.
#[derive(Copy, Clone, Debug)]
pub(super) struct OnWanted {
    pub(super) time_ns: i64,
    ahead_written_ns: i128,
}

impl OnWanted {
    /// The time of its own clock that states a new time on the wanted clock, ns.
    pub(super) fn restated(self, new_ns: i64) -> i128 {
        i128::from(new_ns).saturating_sub(self.ahead_written_ns)
    }
}

/// What a rewriter states about a clock of a sequence.
#[derive(Copy, Clone, Debug)]
struct Written {
    unit_ns: u64,
    /// Decided at its first snapshot, because a clock keeps its unit: whether that is 1 ns whatever the
    /// trace states, and whether its readings move.
    decided: Option<(bool, bool)>,
    /// The shared clock minus this one, ns.
    behind_ns: i128,
    last_ns: i128,
}

/// A packet's time and the clock that states it.
#[derive(Copy, Clone, Debug)]
pub(super) struct Located {
    /// On the wanted clock; `None` if nothing relates the packet's clock to that.
    on_wanted: Option<OnWanted>,
    /// A clock that all packets share.
    clock: u32,
    /// The sequence and its clock that the packet uses, and the reading of that clock, ns.
    own: Option<(u32, u32, i128)>,
}

impl Located {
    /// On the wanted clock, ns.
    pub(super) fn time_ns(&self) -> Option<i64> {
        self.on_wanted.map(|on_wanted| on_wanted.time_ns)
    }
}

impl Default for Clocks {
    fn default() -> Self {
        Self {
            wanted: BOOTTIME,
            trace_clock: BOOTTIME,
            is_stated: false,
            in_use: false,
            relations: BTreeMap::new(),
            sequences: HashMap::default(),
            writes_ns: false,
            has_rounded: false,
            packets: 0,
            read: Vec::new(),
            pairs_left_out: 0,
        }
    }
}

impl Clocks {
    /// Creates the state of a rewriter that writes clocks of sequences in ns.
    pub(super) fn writing_ns() -> Self {
        Self { writes_ns: true, ..Self::default() }
    }

    /// Processes what a packet says about clocks.
    ///
    /// # Errors
    /// Returns an error if the trace is on an unsupported clock, or states it too late.
    pub(super) fn tell(&mut self, packet: &Packet<'_>) -> Result<(), String> {
        self.packets += 1;
        self.is_stated |= packet.snapshot.is_some() || packet.clock.is_some() && packet.time.is_some();
        let (packets, known) = (self.packets, self.sequences.contains_key(&packet.sequence));
        let states_something = packet.defaults.is_some() || packet.snapshot.is_some() || packet.interned.is_some();
        if known || states_something || packet.cleared {
            if !known {
                self.make_room();
            }
            let sequence = self.sequences.entry(packet.sequence).or_default();
            sequence.used = packets;
            if packet.cleared {
                sequence.default_clock = None;
                sequence.names.clear();
            }
            // A packet that clears the state may itself come after lost ones.
            sequence.is_valid = packet.cleared || sequence.is_valid && !packet.is_after_loss;
            if packet.defaults.is_some() {
                sequence.default_clock = packet.default_clock;
            }
        }
        packet.snapshot.as_ref().map_or(Ok(()), |snapshot| self.snapshot(packet.sequence, snapshot))
    }

    /// Returns true if a packet refers to a state of its sequence that was lost, as at the start of a
    /// ring buffer: neither its time nor its texts are known.
    pub(super) fn is_lost(&self, packet: &Packet<'_>) -> bool {
        packet.needs_state && !self.sequences.get(&packet.sequence).is_some_and(|sequence| sequence.is_valid)
    }

    /// Locates a packet's time; `None` if it has none, or none that is known. An incremental clock advances with every
    /// packet that has a time, so this must be called once for each.
    pub(super) fn locate(&mut self, packet: &Packet<'_>) -> Option<Located> {
        if self.is_lost(packet) {
            return None;
        }
        let sequence = self.sequences.get_mut(&packet.sequence);
        let default = sequence.as_ref().and_then(|sequence| sequence.default_clock);
        let stated = packet.clock.or(default).unwrap_or(self.trace_clock);
        let time = i128::from(packet.time?);
        if packet.snapshot.is_some() && is_own(stated) {
            // The snapshot states this moment already.
            return None;
        }
        let (clock, ns, own) = match sequence.and_then(|sequence| sequence.own.get_mut(&stated)) {
            Some(own) => {
                let own_ns = own.advance(time);
                let shared_ns = own_ns.saturating_sub(own.reading.ns()).saturating_add(own.shared.1);
                (own.shared.0, shared_ns, Some((packet.sequence, stated, own_ns)))
            }
            None => (stated, time, None),
        };
        self.in_use = true;
        Some(Located { on_wanted: self.on_wanted(clock, ns), clock, own })
    }

    /// A shared clock's time on the wanted clock.
    pub(super) fn on_wanted(&self, clock: u32, ns: i128) -> Option<OnWanted> {
        let relation = match self.relations.get(&clock) {
            _ if clock == self.wanted => Relation::default(),
            Some(all) => {
                let after = all.partition_point(|relation| relation.reading_ns <= ns);
                *all.get(after.saturating_sub(1))?
            }
            None => return None,
        };
        let time_ns = i64::try_from(ns.saturating_add(relation.ahead_ns)).ok()?;
        Some(OnWanted { time_ns, ahead_written_ns: relation.ahead_written_ns })
    }

    /// The number that states `new_ns`, a time on the wanted clock, in place of a packet's; `None` if
    /// the number stays. `None` for `new_ns`: the packet's time stays.
    ///
    /// # Errors
    /// Returns an error for a time before the zero of its clock.
    pub(super) fn restate(&mut self, located: &Located, new_ns: Option<i64>) -> Result<Option<u64>, String> {
        let shared_ns = located.on_wanted.zip(new_ns).map(|(on_wanted, new_ns)| on_wanted.restated(new_ns));
        let Some((sequence, clock, own_ns)) = located.own else {
            let number = shared_ns.map(|shared_ns| unsigned(shared_ns, located.clock)).transpose()?;
            return Ok(number);
        };
        let own = self.sequences.get_mut(&sequence).and_then(|sequence| sequence.own.get_mut(&clock));
        let own = own.expect("a packet is restated before the next one is read");
        let new_ns = shared_ns.map_or(own_ns, |shared_ns| shared_ns.saturating_sub(own.written.behind_ns));
        let from_ns = if own.reading.is_incremental { own.written.last_ns } else { 0 };
        let unit_ns = i128::from(own.written.unit_ns);
        let units = new_ns.saturating_sub(from_ns).saturating_add(unit_ns / 2).div_euclid(unit_ns);
        let stated_ns = from_ns.saturating_add(units.saturating_mul(unit_ns));
        own.written.last_ns = stated_ns;
        self.has_rounded |= stated_ns != new_ns;
        unsigned(units, clock).map(Some)
    }

    /// The readings and units to write for the snapshot that [`Self::tell`] has just processed.
    ///
    /// # Errors
    /// Returns an error for a reading before the zero of its clock.
    pub(super) fn restate_snapshot(
        &mut self,
        sequence: u32,
        snapshot: &Snapshot,
        map: &mut dyn FnMut(i64) -> i64,
    ) -> Result<Vec<(u64, u64)>, String> {
        let mut written = Vec::with_capacity(snapshot.readings.len());
        let now = snapshot.of(self.wanted).and_then(|now| i64::try_from(now).ok());
        for reading in &snapshot.readings {
            let (clock, ns) = (reading.clock, reading.ns());
            let on_wanted = match now {
                _ if is_own(clock) => None,
                Some(now) => Some(OnWanted { time_ns: now, ahead_written_ns: i128::from(now).saturating_sub(ns) }),
                None => self.on_wanted(clock, ns),
            };
            let moved = on_wanted.map(|on_wanted| (on_wanted, map(on_wanted.time_ns)));
            let Some((on_wanted, new_ns)) = moved.filter(|(on_wanted, new_ns)| on_wanted.time_ns != *new_ns) else {
                written.push((reading.value, reading.unit_ns));
                continue;
            };
            let new_ns = match self.relations.get_mut(&clock).and_then(|all| all.last_mut()) {
                Some(relation) if clock == REALTIME && now.is_some() => {
                    relation.ahead_written_ns = 0;
                    new_ns.into()
                }
                _ => on_wanted.restated(new_ns),
            };
            written.push((unsigned(new_ns, clock)? / reading.unit_ns, reading.unit_ns));
        }
        let Some(own) = self.sequences.get_mut(&sequence).map(|sequence| &mut sequence.own) else { return Ok(written) };
        for (reading, place) in snapshot.readings.iter().zip(0..) {
            let Some(own) = own.get_mut(&reading.clock) else { continue };
            let place_of_shared = snapshot.readings.iter().position(|other| other.clock == own.shared.0);
            // Without a shared clock a snapshot states nothing.
            let Some(place_of_shared) = place_of_shared else { continue };
            let (shared, unit_ns) = written[place_of_shared];
            let shared_ns = i128::from(shared) * i128::from(unit_ns);
            let moved_ns = shared_ns.saturating_sub(own.shared.1);
            let own_ns = reading.ns();
            // Times between the units of a coarse clock need finer ones. A clock that begins at 0
            // cannot move back.
            let finer = moved_ns != 0 || self.writes_ns;
            let decided = own.written.decided.unwrap_or((finer, own_ns.saturating_add(moved_ns) >= 0));
            let (finer, moves) = decided;
            let unit_ns = if finer { 1 } else { reading.unit_ns };
            let own_ns = if moves { own_ns.saturating_add(moved_ns) } else { own_ns };
            let behind_ns = shared_ns.saturating_sub(own_ns);
            own.written = Written { unit_ns, decided: Some(decided), behind_ns, last_ns: own_ns };
            let own_ns = unsigned(own_ns, reading.clock)?;
            self.has_rounded |= own_ns % unit_ns != 0;
            written[place] = (own_ns / unit_ns, unit_ns);
        }
        Ok(written)
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
                if self.relations.len() >= CLOCKS_MAX && !self.relations.contains_key(&reading.clock) {
                    continue;
                }
                let ahead_ns = now.saturating_sub(reading.ns());
                let relation = Relation { reading_ns: reading.ns(), ahead_ns, ahead_written_ns: ahead_ns };
                let all = self.relations.entry(reading.clock).or_default();
                if all.len() >= PAIRS_MAX {
                    all.pop();
                }
                all.push(relation);
            }
            self.pair(now, snapshot);
        }
        let preferred = snapshot.of(self.wanted).map(|now| (self.wanted, now));
        let other = || snapshot.readings.iter().find(|reading| !is_own(reading.clock));
        let shared = preferred.or_else(|| other().map(|reading| (reading.clock, reading.ns())));
        let Some(shared) = shared else { return Ok(()) };
        let own = &mut self.sequences.entry(sequence).or_default().own;
        for reading in snapshot.readings.iter().filter(|reading| is_own(reading.clock)) {
            let last_ns = reading.ns();
            let behind_ns = shared.1.saturating_sub(last_ns);
            let decided = own.get(&reading.clock).and_then(|before| before.written.decided);
            let written = Written { unit_ns: reading.unit_ns, decided, behind_ns, last_ns };
            own.insert(reading.clock, OwnClock { reading: *reading, shared, last_ns, written });
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
    /// The reading that a packet's number states, ns.
    fn advance(&mut self, time: i128) -> i128 {
        let units_ns = time.saturating_mul(i128::from(self.reading.unit_ns));
        let own_ns = if self.reading.is_incremental { self.last_ns.saturating_add(units_ns) } else { units_ns };
        self.last_ns = own_ns;
        own_ns
    }
}

/// A number that protobuf states without a sign.
fn unsigned(number: i128, clock: u32) -> Result<u64, String> {
    u64::try_from(number).map_err(|_| format!("a time would be before the zero of its clock, {}", name(clock)))
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
pub(super) const MONOTONIC_RAW: u32 = 5;
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
