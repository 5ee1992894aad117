//! Exchanges over asymmetric paths whose two directions carry different loads.
//!
//! A packet takes the pair's constant, plus the pair's asymmetry along the edge and minus it back,
//! and what it waits: its direction's load ρ is the share of the time in which there is a queue.
//! The waiting time follows from bursts that come at random and take an exponential time to send:
//! the first packet of an exchange meets the steady state (none with probability 1 − ρ, otherwise
//! exponential), and what the second meets is followed burst by burst over the 100 µs between them.
//!
//! Stamps: hardware ones have normal noise both ways; software ones are late on receipt, always by
//! an exponential time and sometimes by a second, longer one.
//!
//! No packets are lost.

use probe_sync_time::{Edge, Exchange, StampSource, Timestamp};

use super::cell::{START, WarmingCell};
use super::clock::WarmingClock;
use crate::world::random::{Draws, Purpose};

/// The paths between two nodes.
#[derive(Copy, Clone, Debug)]
pub(super) struct Pair {
    constant_ns: f64,
    /// Additional delay of packets along the edge, and reduction of that of packets back, ns: theta
    /// of the edge appears too large by this.
    pub(super) asymmetry_ns: f64,
    /// Along the edge and back.
    loads: [f64; 2],
}

impl Pair {
    pub(super) fn new(cell: &WarmingCell, seed: u64, edge: usize) -> Self {
        let mut draws = Draws::new(seed, Purpose::WarmingPair, edge as u64);
        let hardware = cell.stamps == StampSource::Hardware;
        let constant_ns = CONSTANT_NS + draws.unit() * CONSTANT_SPREAD_NS;
        let asymmetry_ns = draws.normal(if hardware { ASYMMETRY_HARDWARE_NS } else { ASYMMETRY_SOFTWARE_NS });
        let loads = [0, 1].map(|_| cell.load + draws.symmetric(LOAD_SPREAD));
        Self { constant_ns, asymmetry_ns, loads }
    }

    /// All exchanges of an edge that begin within `seconds`, in order of time.
    pub(super) fn exchanges(
        &self,
        cell: &WarmingCell,
        seed: u64,
        (number, edge): (usize, Edge),
        clocks: &[WarmingClock],
        seconds: f64,
    ) -> Vec<(f64, Exchange)> {
        let mut draws = Draws::new(seed, Purpose::WarmingEdge, number as u64);
        let [source, destination] = [&clocks[edge.src.index()], &clocks[edge.dst.index()]];
        let gap = 1.0 / PAIRS_PER_SECOND;
        let mut begins = draws.unit() * gap;
        let mut exchanges = Vec::new();
        while begins < seconds {
            let forward = self.pair(begins, 0, &mut draws);
            let turn = forward[1][1] + TURN_S + draws.exponential(TURN_S);
            let reverse = self.pair(turn, 1, &mut draws);
            let mut stamp = |clock: &WarmingClock, at: f64, received: bool| {
                let shown = clock.shows_ns(at) + stamp_error_ns(cell.stamps, received, &mut draws);
                Timestamp::from_ns(START.as_ns() + shown.round() as i64)
            };
            let t = [
                stamp(source, forward[0][0], false),
                stamp(destination, forward[0][1], true),
                stamp(source, forward[1][0], false),
                stamp(destination, forward[1][1], true),
                stamp(destination, reverse[0][0], false),
                stamp(source, reverse[0][1], true),
                stamp(destination, reverse[1][0], false),
                stamp(source, reverse[1][1], true),
            ];
            let seq = exchanges.len() as u32;
            exchanges.push((reverse[1][1], Exchange { edge, seq, stamp: cell.stamps, t }));
            // Programs do not wake up on the dot.
            begins += gap * (1.0 + draws.symmetric(GAP_SPREAD));
        }
        exchanges
    }

    /// Departure and arrival of both packets of a pair, true time, s. `way` 0: along the edge.
    fn pair(&self, at_s: f64, way: usize, draws: &mut Draws) -> [[f64; 2]; 2] {
        let constant = self.constant_ns + if way == 0 { self.asymmetry_ns } else { -self.asymmetry_ns };
        let load = self.loads[way];
        let first = if draws.chance(load) { draws.exponential(BURST_NS / (1.0 - load)) } else { 0.0 };
        let second = waited_on(first, SPACING_S * 1e9, load, draws);
        [(at_s, first), (at_s + SPACING_S, second)].map(|(sent, wait)| [sent, sent + (constant + wait) * 1e-9])
    }
}

/// The remaining wait `after_ns` later.
fn waited_on(mut waiting_ns: f64, after_ns: f64, load: f64, draws: &mut Draws) -> f64 {
    let mut left = after_ns;
    // Ends: bursts come one or two dozen times less often than once per ns.
    loop {
        let next = draws.exponential(BURST_NS / load);
        if next >= left {
            return (waiting_ns - left).max(0.0);
        }
        waiting_ns = (waiting_ns - next).max(0.0) + draws.exponential(BURST_NS);
        left -= next;
    }
}

fn stamp_error_ns(source: StampSource, received: bool, draws: &mut Draws) -> f64 {
    if source == StampSource::Hardware {
        return draws.normal(NOISE_HARDWARE_NS);
    }
    if !received {
        return 0.0;
    }
    let interrupted = draws.chance(INTERRUPTED);
    draws.exponential(LATE_NS) + if interrupted { draws.exponential(INTERRUPT_NS) } else { 0.0 }
}

/// Standard deviation of half the difference of both directions' constants, ns.
const ASYMMETRY_HARDWARE_NS: f64 = 20.0;
const ASYMMETRY_SOFTWARE_NS: f64 = 50.0;

/// The load of each direction is uniform within the cell's ± this.
const LOAD_SPREAD: f64 = 0.1;

/// Coded pairs per second and edge, each way, the regularity of their times, the time within a
/// pair, and the mean time to answer, s.
const PAIRS_PER_SECOND: f64 = 20.0;
const GAP_SPREAD: f64 = 0.2;
const SPACING_S: f64 = 100e-6;
const TURN_S: f64 = 15e-6;

/// The least one-way delay and the spread over pairs, ns.
const CONSTANT_NS: f64 = 3_000.0;
const CONSTANT_SPREAD_NS: f64 = 6_000.0;

/// Mean time of a burst on the wire: ten full frames at 10 Gbit/s, ns.
const BURST_NS: f64 = 12_000.0;

/// Standard deviation of a hardware stamp, ns.
const NOISE_HARDWARE_NS: f64 = 8.0;

/// A software receive timestamp is late by an exponential time with this mean; with this
/// probability an interrupt adds another, ns.
const LATE_NS: f64 = 500.0;
const INTERRUPTED: f64 = 0.05;
const INTERRUPT_NS: f64 = 15_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_is_steady_from_packet_to_packet() {
        let mut draws = Draws::new(1, Purpose::WarmingEdge, 0);
        let pair = Pair { constant_ns: 0.0, asymmetry_ns: 0.0, loads: [0.8; 2] };
        let (mut free, mut sum) = ([0; 2], [0.0; 2]);
        const COUNT: i32 = 100_000;
        for _ in 0..COUNT {
            for (k, [sent, arrived]) in pair.pair(0.0, 0, &mut draws).into_iter().enumerate() {
                let wait = (arrived - sent) * 1e9;
                free[k] += i32::from(wait < 1e-3);
                sum[k] += wait;
            }
        }
        for k in 0..2 {
            assert!((f64::from(free[k]) / f64::from(COUNT) - 0.2).abs() < 0.01, "{k}: {}", free[k]);
            assert!((sum[k] / f64::from(COUNT) / (0.8 * BURST_NS / 0.2) - 1.0).abs() < 0.03, "{k}: {}", sum[k]);
        }
    }

    #[test]
    fn asymmetry_makes_theta_look_too_large() {
        let pair = Pair { constant_ns: 1_000.0, asymmetry_ns: 30.0, loads: [0.0; 2] };
        let mut draws = Draws::new(1, Purpose::WarmingEdge, 0);
        let [there, back] = [0, 1].map(|way| pair.pair(0.0, way, &mut draws)[0]);
        let [u, l] = [(there[1] - there[0]) * 1e9, (back[0] - back[1]) * 1e9];
        assert!((0.5 * (u + l) - 30.0).abs() < 1e-6);
    }
}
