//! What happens to a packet between two nodes: seeded delay, loss, duplication, stragglers, and foreign datagrams.
//!
//! One-way delay = least delay + the direction's constant + exponential queueing (+ straggling). Each packet queues by
//! itself, so packets overtake each other.
//!
//! What it does not do: keep time; the event loop puts the arrivals in order.

use std::collections::HashMap;

use probe_sync_probe::{ForeignCounters, PACKET_BYTES, Reject};
use probe_sync_time::NodeId;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::random::{chance, exponential};
use crate::scenario::Network;

/// One-way delays of a packet's copies, ns; none when it is lost.
pub(crate) type Delays = [Option<i64>; 2];

#[derive(Debug)]
pub(crate) struct Wires {
    scenario: Network,
    seed: u64,
    rng: ChaCha8Rng,
    /// The constant part of each direction's delay, ns.
    constants: HashMap<(NodeId, NodeId), i64>,
}

impl Wires {
    pub(crate) fn new(scenario: Network, seed: u64) -> Self {
        Self { scenario, seed, rng: ChaCha8Rng::seed_from_u64(seed), constants: HashMap::new() }
    }

    /// Draws the fate of one packet.
    pub(crate) fn carry(&mut self, from: NodeId, to: NodeId) -> Delays {
        if chance(&mut self.rng, self.scenario.loss) {
            return [None; 2];
        }
        let first = self.delay_ns(from, to);
        let twice = chance(&mut self.rng, self.scenario.duplication);
        [Some(first), twice.then(|| self.delay_ns(from, to))]
    }

    /// Sometimes a datagram that looks like `packet` but has one defect, which it counts in `counters`.
    pub(crate) fn foreign(
        &mut self,
        packet: &[u8; PACKET_BYTES],
        counters: &mut ForeignCounters,
    ) -> Option<([u8; PACKET_BYTES], usize)> {
        if !chance(&mut self.rng, self.scenario.foreign) {
            return None;
        }
        let mut bytes = *packet;
        let mut length = PACKET_BYTES;
        let defect = DEFECTS[self.rng.random_range(0..DEFECTS.len() as u32) as usize];
        match defect {
            Reject::Length => length = self.rng.random_range(0..PACKET_BYTES as u32) as usize,
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

    fn delay_ns(&mut self, from: NodeId, to: NodeId) -> i64 {
        let queueing = exponential(&mut self.rng, self.scenario.queueing_ns_mean).round() as i64;
        let straggles = chance(&mut self.rng, self.scenario.straggling);
        let straggling = if straggles { self.scenario.straggling_ns } else { 0 };
        self.scenario.delay_ns + self.constant_ns(from, to) + queueing + straggling
    }

    /// A direction's own constant depends on the seed and the two nodes only, not on who sent first.
    fn constant_ns(&mut self, from: NodeId, to: NodeId) -> i64 {
        let (seed, max) = (self.seed, self.scenario.asymmetry_ns_max);
        *self.constants.entry((from, to)).or_insert_with(|| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // Stream 0 is the packets'.
            rng.set_stream((u64::from(from.0) << 32 | u64::from(to.0)) + 1);
            if max > 0 { rng.random_range(0..=max) } else { 0 }
        })
    }
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
