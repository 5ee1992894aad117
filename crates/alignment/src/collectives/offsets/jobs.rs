//! Jobs whose clocks are known, against what their collectives say of these clocks. Time passes
//! here in seconds of truth, a clock is a formula of it, and nothing of this is used by what is
//! tested.

use super::*;
use crate::collectives::testing::{Node, all, hlo, with};

/// Numbers between 0 and 1 that look random, the same each time (Marsaglia's xorshift).
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Clock minus true time, ns.
#[derive(Clone, Debug)]
struct Ahead {
    offset_ns: f64,
    ppm: f64,
    motion: Motion,
}

/// Motion of a clock in addition to its rate; times in seconds.
#[derive(Clone, Debug)]
enum Motion {
    Straight,
    /// Air conditioning.
    Swing {
        height_ns: f64,
        period: f64,
        phase: f64,
    },
    /// Its rate approaches another; total change `ppm`.
    Warming {
        ppm: f64,
        within: f64,
    },
    /// Its rate changes and returns, as when a time daemon steers.
    Steered {
        ppm: f64,
        every: f64,
    },
    /// A single step.
    Step {
        height_ns: f64,
        at: f64,
    },
}

impl Ahead {
    fn at(&self, time: f64) -> f64 {
        let beside = match self.motion {
            Motion::Straight => 0.0,
            Motion::Swing { height_ns, period, phase } => {
                height_ns * (std::f64::consts::TAU * (time / period + phase)).sin()
            }
            Motion::Warming { ppm, within } => 1e3 * ppm * (time - within * (1.0 - (-time / within).exp())),
            Motion::Steered { ppm, every } => {
                let (whole, part) = ((time / every).floor(), (time / every).fract());
                // ½ ppm too fast and ½ ppm too slow in turn.
                let sign = if whole.rem_euclid(2.0) < 1.0 { 0.5 } else { -0.5 };
                let before = if sign > 0.0 { 0.0 } else { 0.5 };
                1e3 * ppm * every * (before + sign * part)
            }
            Motion::Step { height_ns, at } => {
                if time < at {
                    0.0
                } else {
                    height_ns
                }
            }
        };
        self.offset_ns + 1e3 * self.ppm * time + beside
    }

    /// Its reading, ns; truth began long ago.
    fn shows(&self, time: f64) -> i128 {
        T0_NS + (time * 1e9 + self.at(time)).round() as i128
    }

    /// When it showed this, and how far ahead it was. Found by bisection, as it never stops.
    fn when(&self, shown_ns: i64, length: f64) -> f64 {
        let (mut low, mut high) = (-1.0, length + 1.0);
        for _ in 0..100 {
            let middle = f64::midpoint(low, high);
            if self.shows(middle) < i128::from(shown_ns) { low = middle } else { high = middle }
        }
        high
    }
}

const T0_NS: i128 = 1_795_187_162_000_000_000;

/// A job: all-reduces of all ranks, and in between of halves of them.
struct Job {
    clocks: Vec<Ahead>,
    /// Interval between operations, s.
    every: f64,
    /// Duration, s.
    length: f64,
    /// Mean lateness of a rank, and the shortest transfer, s.
    waits: [f64; 2],
}

impl Job {
    fn offsets(&self, dice: &mut Dice, options: &OffsetOptions) -> CollectiveOffsets {
        let ranks = self.clocks.len();
        let mut nodes: Vec<Node> = self.clocks.iter().map(|_| Node::new(vec![])).collect();
        let mut time = self.every * dice.unit();
        let mut number = 0;
        while time < self.length {
            // Every third is of either half alone where there are enough.
            let halves = if ranks > 3 && number % 3 == 2 { 2 } else { 1 };
            for half in 0..halves {
                let members: Vec<usize> = (0..ranks).filter(|rank| halves == 1 || rank % 2 == half).collect();
                let begun: Vec<f64> = members.iter().map(|_| time + dice.exponential(self.waits[0])).collect();
                let all_begun = begun.iter().copied().fold(0.0, f64::max);
                for (rank, begun) in members.into_iter().zip(begun) {
                    let ended = all_begun + self.waits[1] + dice.exponential(self.waits[1]);
                    let clock = &self.clocks[rank];
                    let name = ["all", "even", "odd"][if halves == 1 { 0 } else { 1 + half }];
                    nodes[rank].events.push(all(hlo(name, number), clock.shows(begun), clock.shows(ended)));
                }
            }
            number += 1;
            time += self.every * dice.between(0.5, 1.5);
        }
        with(&nodes, |nodes| from_collectives(nodes, options)).expect("offsets")
    }

    /// Number of offsets with bounds and without, and how far the truth is beyond the bounds where
    /// it is, ns.
    fn judge(&self, found: &CollectiveOffsets) -> (usize, usize, Vec<String>) {
        let (mut bounded, mut without, mut outside) = (0, 0, Vec::new());
        for window in &found.windows {
            let at = self.clocks[0].when(window.reference_time_ns, self.length);
            for (node, clock) in window.nodes.iter().zip(&self.clocks).skip(1) {
                let truth = clock.at(at) - self.clocks[0].at(at);
                let Some((low, high)) = node.bound_lo_ns.zip(node.bound_hi_ns) else {
                    without += 1;
                    continue;
                };
                bounded += 1;
                // Readings are rounded to whole ns.
                if truth < low - 2.0 || truth > high + 2.0 {
                    outside.push(format!("at {at:.3} s node {}: {truth:.0} not in {low:.0}..{high:.0}", node.node));
                }
            }
        }
        (bounded, without, outside)
    }
}

fn clock(dice: &mut Dice, motion: Motion) -> Ahead {
    Ahead { offset_ns: dice.between(-2e9, 2e9).round(), ppm: dice.between(-50.0, 50.0), motion }
}

#[test]
fn a_clock_that_swings_by_6_us_in_150_s_is_certainly_where_it_is_said_to_be() {
    // Issue 33: an all-reduce every 200 ms for 300 s; a line through all of it was told as certain,
    // 6 µs from the truth.
    for (ranks, length, waits) in [(2, 300.0, [20e-6, 10e-6]), (3, 100.0, [20e-6, 10e-6]), (2, 300.0, [300e-9, 300e-9])]
    {
        let mut dice = Dice::new(33);
        let swing = Motion::Swing { height_ns: 6000.0, period: 150.0, phase: 0.0 };
        let motion = |rank| if rank == 1 { swing.clone() } else { Motion::Straight };
        let clocks = (0..ranks).map(|rank| Ahead { offset_ns: 0.0, ppm: 0.0, motion: motion(rank) }).collect();
        let job = Job { clocks, every: 0.2, length, waits };
        let found = job.offsets(&mut dice, &OffsetOptions::default());
        let (bounded, without, outside) = job.judge(&found);
        assert_eq!((without, &outside[..]), (0, &[][..]));
        assert!(bounded >= (length / 11.0) as usize * (ranks - 1), "{bounded}");
        for window in &found.windows {
            let at = job.clocks[0].when(window.reference_time_ns, length);
            let node = &window.nodes[1];
            let error = node.offset_ns - job.clocks[1].at(at);
            assert!(error.abs() < 2.0 * node.sigma_ns.unwrap(), "{error} ns at {at} s, σ {:?}", node.sigma_ns);
        }
    }
}

/// Number of offsets with bounds and without, for `count` jobs of each motion; truth is in all
/// bounds.
fn jobs(count: u64, ranks: &[usize]) -> [usize; 2] {
    let (mut bounded, mut without) = (0, 0);
    for seed in 0..count {
        let mut dice = Dice::new(seed + 1);
        let length = [5.0, 40.0, 120.0][(dice.unit() * 3.0) as usize];
        let every = length / [1000.0, 300.0, 100.0][(dice.unit() * 3.0) as usize];
        let waits = [dice.between(0.3e-6, 300e-6), dice.between(0.3e-6, 100e-6)];
        let mut motion = || match seed % 5 {
            0 => Motion::Straight,
            1 => Motion::Swing {
                height_ns: dice.between(100.0, 20_000.0),
                period: dice.between(60.0, 600.0),
                phase: dice.unit(),
            },
            2 => Motion::Warming { ppm: dice.between(-9.0, 9.0), within: dice.between(5.0, 300.0) },
            3 => Motion::Steered { ppm: dice.between(-10.0, 10.0), every: dice.between(0.2, 20.0) },
            // By some operations' distance, close to the middle of the only window, where what
            // comes before and after is told by readings.
            4 if seed % 2 == 0 => Motion::Step {
                height_ns: dice.between(-4.0, 4.0) * every * 1e9,
                at: 0.5 * length + dice.between(-2.0, 2.0) * every,
            },
            // From far below what operations last to far above.
            _ => Motion::Step {
                height_ns: dice.between(-1.0, 1.0).signum() * 10f64.powf(dice.between(1.0, 7.0)),
                at: dice.between(0.0, length),
            },
        };
        let ranks = ranks[seed as usize / 5 % ranks.len()];
        let motions: Vec<Motion> = (0..ranks).map(|_| motion()).collect();
        // Two nodes that step in one window are beyond what bounds survive: one of a job does.
        let steps = |rank: usize| seed % 5 != 4 || rank == ranks / 2;
        let motions = motions.into_iter().enumerate();
        let motions = motions.map(|(rank, motion)| if steps(rank) { motion } else { Motion::Straight });
        let clocks = motions.map(|motion| clock(&mut dice, motion)).collect();
        let job = Job { clocks, every, length, waits };
        let found = job.offsets(&mut dice, &OffsetOptions::default());
        let (some, none, outside) = job.judge(&found);
        assert_eq!(outside, Vec::<String>::new(), "job {seed}, {ranks} ranks: {:?}", job.clocks[ranks / 2]);
        (bounded, without) = (bounded + some, without + none);
    }
    [bounded, without]
}

#[test]
fn truth_is_certainly_within_the_bounds_whatever_the_clocks_do() {
    let [bounded, without] = jobs(20, &[2, 3, 4, 8]);
    println!("{bounded} with bounds, {without} without");
    assert!(bounded > 100 && 20 * without < bounded, "{bounded} with bounds, {without} without");
}

#[test]
#[ignore = "long: 200 jobs with up to 64 ranks, about 60 s"]
fn truth_is_certainly_within_the_bounds_of_200_jobs() {
    let [bounded, without] = jobs(200, &[2, 3, 4, 8, 16, 32, 64]);
    println!("{bounded} with bounds, {without} without");
    assert!(bounded > 2000 && 20 * without < bounded, "{bounded} with bounds, {without} without");
}
