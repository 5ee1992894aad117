//! The fate of a packet between two nodes: seeded delay, loss, duplication, stragglers, and foreign
//! datagrams.
//!
//! One-way delay = the pair's base ± the pair's asymmetry + the direction's constant + queueing
//! behind bursts (`queue`) + exponential jitter of its own (+ straggling). Jitter and straggling
//! let packets overtake each other.
//!
//! Signs: with asymmetry b of the edge i→j the forward delay is base + b and the reverse delay base
//! − b, so both kinds of packet agree on theta + b. See [`crate::Simulation::asymmetry_ns`].

use probe_sync_probe::{ForeignCounters, PACKET_BYTES, Reject};
use probe_sync_time::NodeId;

use crate::scenario::Network;
use crate::scenario::faults::{Fault, Span, nanoseconds};
use crate::world::pairs::PairMap;
use crate::world::queue::Workload;
use crate::world::random::{Draws, Purpose};

/// One-way delays of a packet's copies, ns; none if it is lost.
pub(crate) type Delays = [Option<i64>; 2];

/// All directions.
#[derive(Debug)]
pub(crate) struct Wires<'a> {
    network: Network,
    faults: &'a [Fault],
    seed: u64,
    directions: PairMap<Direction>,
    /// For foreign datagrams.
    foreign_draws: Draws,
}

/// One direction between two nodes.
#[derive(Debug)]
struct Direction {
    constant_ns: f64,
    queue: Workload,
    /// When it draws another load, ns since the start.
    next_load_at: i64,
    draws: Draws,
    /// For loads, so that a change of load does not change the packets' numbers.
    load_draws: Draws,
    /// When packets take longer, and by how much, ns.
    extras: Vec<(Span, f64)>,
    /// When packets are lost in addition to the network's loss, and with what probability.
    losses: Vec<(Span, f64)>,
}

impl<'a> Wires<'a> {
    pub(crate) fn new(network: Network, faults: &'a [Fault], seed: u64, nodes: u32) -> Self {
        let foreign_draws = Draws::new(seed, Purpose::Foreign, 0);
        Self { network, faults, seed, directions: PairMap::new(nodes), foreign_draws }
    }

    /// Draws the fate of one packet that leaves at `at`, ns since the start; never earlier than the
    /// one before.
    pub(crate) fn carry(&mut self, from: NodeId, to: NodeId, at: i64) -> Delays {
        let Self { network, faults, seed, ref mut directions, .. } = *self;
        let direction = directions.entry(from, to, || Direction::new(&network, faults, seed, from, to));
        if direction.loses(&network, at) {
            return [None; 2];
        }
        let first = direction.delay_ns(&network, at);
        let twice = direction.draws.chance(network.duplication);
        [Some(first), twice.then(|| direction.delay_ns(&network, at))]
    }

    /// Sometimes returns a datagram that looks like `packet` but has one defect, which it counts in
    /// `counters`.
    pub(crate) fn foreign(
        &mut self,
        packet: &[u8; PACKET_BYTES],
        counters: &mut ForeignCounters,
    ) -> Option<([u8; PACKET_BYTES], usize)> {
        if !self.foreign_draws.chance(self.network.foreign) {
            return None;
        }
        let mut bytes = *packet;
        let mut length = PACKET_BYTES;
        let defect = DEFECTS[self.foreign_draws.below(DEFECTS.len())];
        match defect {
            Reject::Length => length = self.foreign_draws.below(PACKET_BYTES),
            Reject::Magic => bytes[0] ^= 1,
            Reject::Version => bytes[4] ^= 1,
            Reject::Run => bytes[15] ^= 1,
            Reject::Destination => bytes[23] ^= 1,
            Reject::Source => bytes[16] |= 0x80,
            // All stamps, where the kind carries fewer; none, where it carries all.
            Reject::Stamps => bytes[6] = if bytes[5] == 6 { 0 } else { 0xff },
            _ => bytes[5] = 0,
        }
        counters.count(defect);
        Some((bytes, length))
    }
}

impl Direction {
    fn new(network: &Network, faults: &[Fault], seed: u64, from: NodeId, to: NodeId) -> Self {
        let index = index(from, to);
        let mut direction = Self {
            constant_ns: constant_ns(network, seed, from, to),
            queue: Workload::new(0.0, network.burst_ns_mean),
            next_load_at: i64::MAX,
            draws: Draws::new(seed, Purpose::Packets, index),
            load_draws: Draws::new(seed, Purpose::Loads, index),
            extras: faults.iter().filter_map(|fault| Some((fault.span(), fault.extra_ns(from, to)?))).collect(),
            losses: faults.iter().filter_map(|fault| Some((fault.span(), fault.loss(from, to)?))).collect(),
        };
        direction.draw_load(network, 0);
        direction
    }

    fn draw_load(&mut self, network: &Network, at: i64) {
        let load = network.load + self.load_draws.symmetric(network.load_spread);
        self.queue.set_load(load.max(0.0));
        if network.load_change_s > 0.0 {
            self.next_load_at = at.saturating_add(nanoseconds(self.load_draws.exponential(network.load_change_s)));
        }
    }

    fn loses(&mut self, network: &Network, at: i64) -> bool {
        let Self { losses, draws, .. } = self;
        draws.chance(network.loss)
            || losses.iter().any(|(span, probability)| span.contains(at) && draws.chance(*probability))
    }

    fn delay_ns(&mut self, network: &Network, at: i64) -> i64 {
        // Nobody looks in between: only the latest change matters, and the time to the next has no
        // memory of it.
        if at >= self.next_load_at {
            self.draw_load(network, at);
        }
        let queueing = self.queue.wait_ns(at, &mut self.draws);
        let jitter = self.draws.exponential(network.queueing_ns_mean);
        let straggling = if self.draws.chance(network.straggling) { network.straggling_ns as f64 } else { 0.0 };
        let extra: f64 = self.extras.iter().filter(|(span, _)| span.contains(at)).map(|(_, extra)| extra).sum();
        // No route is so short that packets arrive before they leave.
        (self.constant_ns + extra + queueing + jitter + straggling).round().max(0.0) as i64
    }
}

/// The constant part of a direction's delay, ns. It depends on the seed and the two nodes only, not
/// on which sent first.
pub(crate) fn constant_ns(network: &Network, seed: u64, from: NodeId, to: NodeId) -> f64 {
    let mut pair = Draws::new(seed, Purpose::Pair, index(from.min(to), from.max(to)));
    let base = network.delay_ns as f64 + network.delay_spread_ns as f64 * pair.unit();
    let bias = pair.normal(network.asymmetry_sd_ns).clamp(-base, base);
    let own = network.asymmetry_ns_max as f64 * Draws::new(seed, Purpose::Direction, index(from, to)).unit();
    base + if from < to { bias } else { -bias } + own
}

fn index(from: NodeId, to: NodeId) -> u64 {
    u64::from(from.0) << 32 | u64::from(to.0)
}

/// Every reason for which a datagram can be foreign.
const DEFECTS: [Reject; 8] = [
    Reject::Length,
    Reject::Magic,
    Reject::Version,
    Reject::Kind,
    Reject::Run,
    Reject::Destination,
    Reject::Source,
    Reject::Stamps,
];
