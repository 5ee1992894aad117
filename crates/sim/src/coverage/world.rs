//! A generated run: clocks, hosts, paths and all exchanges, cut into windows, together with the
//! truth.
//!
//! A packet takes the shortest delay, plus or minus half of the pair's asymmetry, what its two
//! hosts add one way more than the other, and what it waits. The second packet of a coded pair
//! meets the queue of the first in every other case.
//!
//! Stamps: hardware stamps have normal noise; kernel stamps are exact; user stamps are early when a
//! packet is sent and late when it is received by exponential times, and a loaded host adds to its
//! receive path what changes from second to second.
//!
//! No packets are lost.

use probe_sync_estimate::round::{EdgeCut, WindowCut};
use probe_sync_time::{Edge, Exchange, NodeId, Reference, StampSource, System, Timestamp};

use super::cell::{Cell, DELAY_NS, HostAsymmetry, Queue};
use super::clock::Clock;
use crate::world::random::{Draws, Purpose};

/// Everything that was drawn.
#[derive(Debug)]
pub(super) struct World {
    cell: Cell,
    clocks: Vec<Clock>,
    hosts: Vec<Host>,
    edges: Vec<Edge>,
    /// By edge, with the true time at which each finished.
    exchanges: Vec<Vec<(f64, Exchange)>>,
}

/// Effects of a host on its packets.
#[derive(Clone, Debug)]
struct Host {
    /// Additional delay of a sent packet, and reduction of that of a received one, ns.
    asymmetry_ns: f64,
    /// By second, additional delay of receiving, ns.
    busy_ns: Vec<f64>,
}

impl World {
    pub(super) fn new(cell: &Cell, seed: u64) -> Self {
        let seconds = cell.seconds();
        let mut draws = Draws::new(seed, Purpose::CoverageRun, 0);
        let share = match cell.host {
            HostAsymmetry::None => 0.0,
            HostAsymmetry::Deviation(share) => share,
            HostAsymmetry::UpTo(most) => most * draws.unit(),
        };
        let nodes = 0..u64::from(cell.nodes);
        let clock = |node| Clock::new(cell.clock, seconds, &mut Draws::new(seed, Purpose::CoverageClock, node));
        let host = |node| {
            let mut draws = Draws::new(seed, Purpose::CoverageHost, node);
            let asymmetry_ns = draws.normal(share * DELAY_NS);
            let busy = |_| if cell.stamps == StampSource::User { draws.exponential(BUSY_NS) } else { 0.0 };
            Host { asymmetry_ns, busy_ns: (0..seconds as usize + 2).map(busy).collect() }
        };
        let mut world = Self {
            cell: *cell,
            clocks: nodes.clone().map(clock).collect(),
            hosts: nodes.map(host).collect(),
            edges: cell.edges(),
            exchanges: Vec::new(),
        };
        world.exchanges = (0..world.edges.len()).map(|number| world.drawn(seed, number)).collect();
        world
    }

    /// All exchanges of an edge, in order of time.
    fn drawn(&self, seed: u64, number: usize) -> Vec<(f64, Exchange)> {
        let mut draws = Draws::new(seed, Purpose::CoverageEdge, number as u64);
        let edge = self.edges[number];
        let asymmetry = draws.normal(self.cell.pair_asymmetry_ns);
        let gap = 1.0 / self.cell.pace_hz;
        let mut exchanges = Vec::new();
        let mut tick = 0.0;
        while (tick + 1.0) * gap <= self.cell.seconds() {
            // Programs do not wake up on the dot; every gap has one exchange.
            let begins = gap * (tick + 0.8 * draws.unit());
            tick += 1.0;
            let [source, destination] = [edge.src.index(), edge.dst.index()];
            let there = self.pair([source, destination], begins, asymmetry, &mut draws);
            let back = self.pair([destination, source], begins + TURN_S, -asymmetry, &mut draws);
            let stamps = [there, back].concat();
            let t: [Timestamp<System>; 8] = std::array::from_fn(|k| stamps[k]);
            exchanges.push((
                begins + 2.0 * TURN_S,
                Exchange { edge, seq: exchanges.len() as u32, stamp: self.cell.stamps, t },
            ));
        }
        exchanges
    }

    /// The stamps of a coded pair: sent, received, sent, received.
    fn pair(&self, [from, to]: [usize; 2], at_s: f64, asymmetry: f64, draws: &mut Draws) -> Vec<Timestamp<System>> {
        let mut wait = 0.0;
        let mut stamps = Vec::with_capacity(4);
        for k in 0..2 {
            if k == 0 || draws.chance(0.5) {
                wait = self.wait(draws);
            }
            let sent_s = at_s + f64::from(k) * SPACING_S;
            let hosts = self.hosts[from].asymmetry_ns - self.hosts[to].asymmetry_ns;
            let arrived_s = sent_s + (DELAY_NS + asymmetry + hosts + wait) * 1e-9;
            stamps.push(self.stamp(from, sent_s, -1.0, draws));
            stamps.push(self.stamp(to, arrived_s, 1.0, draws));
        }
        stamps
    }

    fn wait(&self, draws: &mut Draws) -> f64 {
        match self.cell.queue {
            Queue::Exponential(mean) => draws.exponential(mean),
            Queue::Pareto(scale) => scale * ((1.0 - draws.unit()).powf(-1.0 / PARETO) - 1.0),
        }
    }

    /// `way` −1 for a transmit stamp, +1 for a receive stamp.
    fn stamp(&self, node: usize, at_s: f64, way: f64, draws: &mut Draws) -> Timestamp<System> {
        let wrong = match self.cell.stamps {
            StampSource::Hardware => draws.normal(HARDWARE_NS),
            StampSource::Kernel => 0.0,
            StampSource::User => {
                let busy = if way > 0.0 { self.hosts[node].busy_ns[at_s.max(0.0) as usize] } else { 0.0 };
                way * draws.exponential(USER_NS) + busy
            }
        };
        Timestamp::from_ns(START_NS + (self.clocks[node].shows_ns(at_s) + wrong).round() as i64)
    }

    /// Every node's window with that number.
    pub(super) fn cuts(&self, window: usize) -> Vec<WindowCut> {
        let [start, end] = [window, window + 1].map(|number| number as f64 * self.cell.window_s);
        let shown = |node: usize, at: f64| {
            Timestamp::<System>::from_ns(START_NS + self.clocks[node].shows_ns(at).round() as i64)
        };
        let cut = |node: usize| WindowCut {
            node: NodeId(node as u32),
            start: shown(node, start),
            end: shown(node, end),
            edges: (self.edges.iter().zip(&self.exchanges))
                .filter(|(edge, _)| edge.src.index() == node)
                .map(|(edge, exchanges)| {
                    let [from, to] = [start, end].map(|at| exchanges.partition_point(|(done, _)| *done < at));
                    let exchanges = exchanges[from..to].iter().map(|(_, exchange)| *exchange).collect();
                    EdgeCut { edge: *edge, exchanges, lost: 0, stamp_errors_ns: [0.0; 2] }
                })
                .collect(),
            clock_event: None,
            packets: Vec::new(),
        };
        (0..self.clocks.len()).map(cut).collect()
    }

    /// Offset of a node when the reference's clock shows `at`, ns.
    pub(super) fn offset_ns(&self, node: NodeId, at: Timestamp<Reference>) -> f64 {
        let reference = &self.clocks[0];
        let at_s = reference.true_s((at.as_ns() - START_NS) as f64);
        self.clocks[node.index()].error_ns(at_s) - reference.error_ns(at_s)
    }
}

/// Reading of the clocks at the start, without their own errors, ns.
const START_NS: i64 = 1_700_000_000_000_000_000;

/// Time between the two packets of a pair, and until a pair is answered, s.
const SPACING_S: f64 = 100e-6;
const TURN_S: f64 = 400e-6;

/// Exponent of the long queues.
const PARETO: f64 = 1.5;

/// Standard deviation of hardware stamps; mean earliness and lateness of user stamps, and mean
/// additional delay on a loaded host, ns.
const HARDWARE_NS: f64 = 8.0;
const USER_NS: f64 = 1_500.0;
const BUSY_NS: f64 = 40.0;
