//! Clocks, paths and packets for the tests of the hard interval. Everything here is written from
//! the claim alone and shares no code with the crate or the simulator: true time is t in ns, a
//! clock is an integer offset and a deviation whose rate is constant between switches.

use probe_sync_estimate::round::{EdgeCut, WindowCut};
use probe_sync_time::{Edge, Exchange, NodeId, StampSource, System, Timestamp};

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Random(pub u64);

impl Random {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Between 0 and 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// As likely in each decade.
    pub fn decades(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }

    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Where a rate begins: true time in ns, deviation so far in ns, rate in ns per ns.
#[derive(Copy, Clone, Debug)]
struct Switch {
    t: f64,
    deviation: f64,
    rate: f64,
}

/// Shows `EPOCH + offset + t + deviation(t)`.
#[derive(Clone, Debug)]
pub struct Clock {
    offset: i64,
    switches: Vec<Switch>,
}

const EPOCH: i64 = 1_795_187_183_227_565_825;

/// Rates stay within this of each other, ppm.
pub const RANGE_PPM: f64 = 3.0;

impl Clock {
    /// `rates` in ppm, each from a time on; the first also holds before it.
    pub fn new(offset: i64, rates: &[(f64, f64)]) -> Self {
        let mut switches: Vec<Switch> = Vec::new();
        for &(t, ppm) in rates {
            let deviation = switches.last().map_or(0.0, |last| last.deviation + last.rate * (t - last.t));
            switches.push(Switch { t, deviation, rate: ppm * 1e-6 });
        }
        Self { offset, switches }
    }

    fn deviation(&self, t: f64) -> f64 {
        let here = self.switches.partition_point(|switch| switch.t <= t).max(1) - 1;
        let Switch { t: since, deviation, rate } = self.switches[here];
        deviation + rate * (t - since)
    }

    pub fn reading(&self, t: f64) -> Timestamp<System> {
        Timestamp::from_ns(EPOCH + self.offset + (t + self.deviation(t)).floor() as i64)
    }

    /// When it shows this.
    fn when(&self, reading: i64) -> f64 {
        let shown = (reading - EPOCH - self.offset) as f64;
        // Rates are below a thousandth: each turn makes the error a thousandth.
        (0..8).fold(shown, |t, _| shown - self.deviation(t))
    }

    /// `other` minus this one when this one shows `reading`, ns.
    pub fn behind(&self, other: &Clock, reading: i64) -> f64 {
        let t = self.when(reading);
        (other.offset - self.offset) as f64 + (other.deviation(t) - self.deviation(t))
    }
}

/// Rates within [`RANGE_PPM`] about a crystal's own, from before `window[0]` to after `window[1]`,
/// in one of many shapes.
pub fn rates(random: &mut Random, window: [f64; 2]) -> Vec<(f64, f64)> {
    let [from, until] = [window[0] - 0.25e9, window[1] + 0.25e9];
    let length = window[1] - window[0];
    let middle = 0.5 * (window[0] + window[1]);
    let centre = random.between(-60.0, 60.0);
    let half = 0.5 * RANGE_PPM * if random.chance(0.7) { 1.0 } else { random.unit() };
    let sign = if random.chance(0.5) { 1.0 } else { -1.0 };
    let alternating = |first: f64, gap: &mut dyn FnMut() -> f64| {
        let (mut t, mut level, mut rates) = (first, sign, Vec::new());
        rates.push((from, centre - sign * half));
        while t < until && rates.len() < 4000 {
            rates.push((t.max(from), centre + level * half));
            level = -level;
            t += gap();
        }
        rates
    };
    let stepped = |parts: usize, value: &mut dyn FnMut(f64) -> f64| -> Vec<(f64, f64)> {
        let at = |k: usize| k as f64 / parts as f64;
        (0..parts).map(|k| (from + (until - from) * at(k), centre + half * value(at(k)))).collect()
    };
    match random.below(10) {
        0 => vec![(from, centre)],
        // V: one switch in the middle.
        1 => alternating(middle, &mut || length * 4.0),
        2 => alternating(random.between(window[0], window[1]), &mut || length * 4.0),
        // W: the middle is a peak.
        3 => alternating(window[0], &mut || 0.25 * length),
        4 => {
            let period = random.decades(length / 64.0, 2.0 * length);
            let first = random.between(from, from + period);
            alternating(first, &mut || period)
        }
        5 => alternating(window[0], &mut || 1e9),
        // Random telegraph.
        6 => {
            let mean = random.decades(length / 50.0, length);
            alternating(from, &mut || random.exponential(mean).max(1e6))
        }
        7 => stepped(128, &mut |share| sign * (2.0 * share - 1.0)),
        8 => {
            let (turns, phase) = (random.between(0.3, 6.0), random.between(0.0, 6.0));
            stepped(256, &mut |share| (turns * share * std::f64::consts::TAU + phase).sin())
        }
        _ => {
            let parts = ((until - from) / 1e9).ceil() as usize * (1 + random.below(8));
            stepped(parts, &mut |_| random.between(-1.0, 1.0))
        }
    }
}

/// When the exchanges of an edge begin.
pub fn beginnings(random: &mut Random, window: [f64; 2]) -> Vec<f64> {
    let [from, until] = window;
    let length = until - from;
    let count = ((random.decades(1.0, 400.0) * length * 1e-9) as usize).clamp(1, EXCHANGES_MAX);
    let within = |random: &mut Random, [from, until]: [f64; 2]| -> Vec<f64> {
        (0..count).map(|_| random.between(from, until)).collect()
    };
    match random.below(7) {
        0 => (0..count).map(|k| from + length * (k as f64 + 0.5) / count as f64).collect(),
        1 => (0..count).map(|k| from + length * (k as f64 + random.unit()) / count as f64).collect(),
        2 => within(random, window),
        // Wake-ups of four.
        3 => {
            let wakes = count.div_ceil(4);
            let wake = |k: usize| from + length * (k as f64 + 0.5) / wakes as f64;
            (0..count).map(|k| wake(k / 4) + 10e3 * (k % 4) as f64).collect()
        }
        // Nothing in the middle.
        4 => {
            let part = random.decades(0.002, 0.4) * length;
            let side = |k: usize| if k.is_multiple_of(2) { from } else { until - part };
            (0..count).map(|k| side(k) + part * random.unit()).collect()
        }
        // On one side of the middle.
        5 => {
            let part = random.decades(0.01, 0.5) * length;
            let first = if random.chance(0.5) { from } else { until - part };
            within(random, [first, first + part])
        }
        _ => {
            let centres: Vec<f64> = (0..1 + random.below(5)).map(|_| random.between(from, until)).collect();
            let part = random.decades(1e-4, 0.05) * length;
            (0..count).map(|_| (centres[random.below(centres.len())] + part * random.unit()).min(until)).collect()
        }
    }
}

/// Keeps a round of 16 nodes that are all joined below a second.
const EXCHANGES_MAX: usize = 1600;

/// What packets of one edge meet.
#[derive(Copy, Clone, Debug)]
pub struct Path {
    /// The least delay of each direction, ns.
    pub floors: [f64; 2],
    /// Mean wait, ns.
    pub wait: f64,
    pub queue: Queue,
    /// Probabilities that an exchange is lost, and a packet of a pair.
    pub lost: [f64; 2],
    /// Between the first packet there and the first one back, ns.
    pub turnaround: f64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Queue {
    None,
    Exponential,
    Pareto,
}

impl Path {
    /// Every packet takes as long.
    pub const fn quiet(delay: f64) -> Self {
        Self { floors: [delay; 2], wait: 0.0, queue: Queue::None, lost: [0.0; 2], turnaround: 200e3 }
    }

    pub fn any(random: &mut Random) -> Self {
        let delay = random.decades(200.0, 50e3);
        let share = [0.5, random.unit(), 0.0, 1.0][random.below(4)];
        Self {
            floors: [2.0 * delay * share, 2.0 * delay * (1.0 - share)],
            wait: delay * random.decades(0.01, 10.0),
            queue: [Queue::None, Queue::Exponential, Queue::Pareto][random.below(3)],
            lost: [[0.0, 0.1, 0.5][random.below(3)], [0.0, 0.1][random.below(2)]],
            turnaround: random.decades(20e3, 5e6),
        }
    }

    fn delay(&self, direction: usize, random: &mut Random) -> f64 {
        let wait = match self.queue {
            Queue::None => 0.0,
            Queue::Exponential => random.exponential(self.wait),
            // Without a variance.
            Queue::Pareto => self.wait * ((1.0 - random.unit()).powf(-1.0 / 1.5) - 1.0),
        };
        self.floors[direction] + wait
    }

    /// The exchange that begins at true time `t`; `None` if it is lost.
    pub fn exchange(&self, edge: Edge, clocks: [&Clock; 2], t: f64, random: &mut Random) -> Option<Exchange> {
        if random.chance(self.lost[0]) {
            return None;
        }
        let mut stamps = [Timestamp::from_ns(0); 8];
        for direction in 0..2 {
            let begun = t + self.turnaround * direction as f64;
            let [sender, receiver] = [clocks[direction], clocks[1 - direction]];
            let shared = random.chance(0.5);
            let mut delay = self.delay(direction, random);
            for packet in 0..2 {
                let left = begun + 100e3 * packet as f64;
                let at = 4 * direction + 2 * packet;
                (stamps[at], stamps[at + 1]) = (sender.reading(left), receiver.reading(left + delay));
                delay = if shared { delay } else { self.delay(direction, random) };
            }
            // Of a packet that is lost the partner's stamps are there.
            if random.chance(self.lost[1]) {
                let (kept, gone) = if random.chance(0.5) { (0, 2) } else { (2, 0) };
                let [kept, gone] = [kept, gone].map(|at| 4 * direction + at);
                (stamps[gone], stamps[gone + 1]) = (stamps[kept], stamps[kept + 1]);
            }
        }
        Some(Exchange { edge, seq: 0, stamp: StampSource::Kernel, t: stamps })
    }
}

/// Which nodes probe which: a ring, a star or all pairs.
pub fn edges(random: &mut Random, nodes: u32) -> Vec<Edge> {
    match random.below(3) {
        0 if nodes > 2 => (0..nodes).map(|node| Edge::new(node, (node + 1) % nodes)).collect(),
        1 => (1..nodes).map(|node| if random.chance(0.5) { Edge::new(0, node) } else { Edge::new(node, 0) }).collect(),
        _ => (0..nodes).flat_map(|src| (src + 1..nodes).map(move |dst| Edge::new(src, dst))).collect(),
    }
}

/// The cut window of a node whose clock ends it at these true times, without edges.
pub fn empty_cut(node: u32, clock: &Clock, window: [f64; 2]) -> WindowCut {
    WindowCut {
        node: NodeId(node),
        start: clock.reading(window[0]),
        end: clock.reading(window[1]),
        edges: Vec::new(),
        clock_event: None,
        packets: Vec::new(),
    }
}

/// What an edge brings, its exchanges beginning at these true times.
pub fn edge_cut(edge: Edge, clocks: &[Clock], path: &Path, begun: &[f64], random: &mut Random) -> EdgeCut {
    let ends = [&clocks[edge.src.index()], &clocks[edge.dst.index()]];
    let exchanges: Vec<Exchange> = begun.iter().filter_map(|&t| path.exchange(edge, ends, t, random)).collect();
    let lost = (begun.len() - exchanges.len()) as u32;
    EdgeCut { edge, exchanges, lost, stamp_errors_ns: [0.0; 2] }
}
