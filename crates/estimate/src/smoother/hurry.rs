//! How far a clock that is steered within its windows strays from their lines.
//!
//! Place in the flow: learnt from the rounds' states, by the whole run (`evidence`) and live (`online`); added to what the smoother states.
//! A rate that walks slowly (`motion`) bends a window's line by q·T³/320, which its innovations show. A servo that sets another rate each second moves the offset in each window like a
//! Brownian motion of density D, and the same innovations then explain a seventh of what the line misses. The rests do show it: with x and f the offsets and rates of the
//! windows' lines, `e = x₊ − x − T·(f + f₊)/2` has of a Brownian motion the variance 4/15·D·T and the covariance −1/30·D·T with the next one. Errors of each window for itself
//! (`evidence`, r) have 2·r² and −r². So two rests in a row tell them apart, lines twice as long in effect:
//!
//! ```text
//! Var(e + e₊) − Var(e) = D·T/5 + T²·v
//! ```
//!
//! with v the variance of a rate's measurement; r is not in it. A rate that walks leaves rests as well, but its own differences grow from one window to the second next, Var(f₊₊ − f) = 2·Var(f₊ − f), where those of a rate that is set anew do not: by that share
//! the rests count. A line through such a window misses its middle by D·T/12, its rate by 6/5·D/T, and between two
//! knots Δ apart the clock is off by D·Δ·s·(1 − s).
//!
//! By hand: a rate of 0.2 ppm, new each second: D = 200² ns²/s, windows of 4 s: 115 ns in their middles, 200 ns between them.
//!
//! What it does not do: follow such a clock. Shorter windows do (`run::windows`).

use crate::graph::linear::{Block, Pair};
use crate::motion::window_excess;
use crate::statistics::{TO_SIGMA, median};

/// A window's line: its time in s, its state, and the state's covariance.
#[derive(Copy, Clone, Debug)]
pub(super) struct Seen {
    pub(super) t: f64,
    pub(super) state: Pair,
    pub(super) noise: Block,
}

/// What the lines of one clock leave of each other.
#[derive(Clone, Debug, Default)]
struct Rests {
    /// Each, and each with the next, ns.
    one: Vec<f64>,
    two: Vec<f64>,
    /// What rates are not known by adds, ns².
    rates: Vec<f64>,
    /// Time between windows, s.
    apart: Vec<f64>,
    /// By how much rates differ from the next, and from the one after it, ns/s.
    turns: [Vec<f64>; 2],
}

impl Rests {
    fn new(seen: &[Seen]) -> Self {
        let apart: Vec<f64> = seen.windows(2).map(|pair| pair[1].t - pair[0].t).collect();
        let rest = |(pair, apart): (&[Seen], &f64)| {
            pair[1].state[0] - pair[0].state[0] - 0.5 * apart * (pair[0].state[1] + pair[1].state[1])
        };
        let one: Vec<f64> = seen.windows(2).zip(&apart).map(rest).collect();
        let two = one.windows(2).map(|pair| pair[0] + pair[1]).collect();
        let rates = seen.iter().zip(&apart).map(|(seen, apart)| apart * apart * seen.noise[2]).collect();
        let turn = |pair: &[Seen]| pair[pair.len() - 1].state[1] - pair[0].state[1];
        let turns = [2, 3].map(|length| seen.windows(length).map(turn).collect());
        Self { one, two, rates, apart, turns }
    }

    fn pooled(all: &[Self]) -> Self {
        let mut pool = Self::default();
        for rests in all {
            pool.one.extend(&rests.one);
            pool.two.extend(&rests.two);
            pool.rates.extend(&rests.rates);
            pool.apart.extend(&rests.apart);
            pool.turns.iter_mut().zip(&rests.turns).for_each(|(pool, turns)| pool.extend(turns));
        }
        pool
    }

    /// D·T/5, and the standard deviation of luck in it for one rest, ns². Medians: a round that is off, or a step, is no hurry.
    fn beyond(&self) -> [f64; 2] {
        let variance = |values: &[f64]| (TO_SIGMA * median(values.iter().map(|value| value.abs()))).powi(2);
        // A rate that walks turns twice as much in two windows, one that is set anew no more than in one.
        let [turn, turns] = [0, 1].map(|k| variance(&self.turns[k]));
        let anew = if turn > 0.0 { (2.0 - turns / turn).clamp(0.0, 1.0) } else { 0.0 };
        let (one, rates) = (variance(&self.one), median(self.rates.iter().copied()));
        [anew * (variance(&self.two) - one - rates), one + rates]
    }
}

/// Density D of every clock, ns²/s, from its lines in windows one after the other. The clocks' common density counts for some rests of each.
pub(super) fn densities(clocks: &[Vec<Seen>]) -> Vec<f64> {
    let rests: Vec<Rests> = clocks.iter().map(|seen| Rests::new(seen)).collect();
    let pool = Rests::pooled(&rests);
    if pool.two.len() < RESTS_MIN {
        return vec![0.0; clocks.len()];
    }
    let told = |beyond: f64, luck: f64, count: f64| if beyond > LUCK * luck / count.sqrt() { beyond } else { 0.0 };
    let [all, luck] = pool.beyond();
    let (all, apart) = (told(all, luck, pool.one.len() as f64), median(pool.apart));
    let density = |rests: &Rests| {
        let enough = rests.two.len() >= RESTS_MIN;
        let count = if enough { rests.two.len() as f64 } else { 0.0 };
        let [own, luck] = if enough { rests.beyond() } else { [all, 0.0] };
        // What all clocks do one clock may do as well; alone it has to show it clearly.
        let mixed = (count * own + COMMON * all) / (count + COMMON);
        let beyond = if all > 0.0 { mixed.max(0.0) } else { told(mixed, luck, count + COMMON) };
        if apart > 0.0 { 5.0 * beyond / apart } else { 0.0 }
    };
    rests.iter().map(density).collect()
}

/// What a window's line misses of its middle and of its rate there, beyond what a walk of density `q` explains, ns² and ns²/s².
pub(super) fn excess(density: f64, q: f64, window: f64) -> Pair {
    let [offset, rate] = window_excess(q, window);
    if window <= 0.0 {
        return [0.0; 2];
    }
    [(density * window / 12.0 - offset).max(0.0), (1.2 * density / window - rate).max(0.0)]
}

/// Fewest rests, of all clocks, that tell anything.
const RESTS_MIN: usize = 4;

/// Rests of its own that the clocks' common density counts for.
const COMMON: f64 = 12.0;

/// What luck makes of the difference of two variances from medians of n values, in their sum over √n: 1.6 standard deviations.
const LUCK: f64 = 4.0;

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    /// Lines of windows of 4 s through a clock whose rate is new each second, and through one that stands while its windows err.
    #[test]
    fn a_servo_is_told_from_errors_of_each_window() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let mut normal = move || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let (mut steered, mut errs) = (Vec::new(), Vec::new());
        let mut offset = 0.0;
        for window in 0..400 {
            let rates: Vec<f64> = (0..4).map(|_| 200.0 * normal()).collect();
            // Least squares through 40 points.
            let points: Vec<[f64; 2]> = (0..40)
                .map(|k| {
                    let rate = rates[k / 10];
                    offset += 0.1 * rate;
                    [0.1 * (k as f64 - 19.5), offset]
                })
                .collect();
            let mean = points.iter().map(|p| p[1]).sum::<f64>() / 40.0;
            let slope =
                points.iter().map(|p| p[0] * p[1]).sum::<f64>() / points.iter().map(|p| p[0] * p[0]).sum::<f64>();
            let t = 4.0 * f64::from(window);
            let noise = [1.0, 0.0, 1e-2];
            steered.push(Seen { t, state: [mean, slope], noise });
            errs.push(Seen { t, state: [100.0 * normal(), 0.1 * normal()], noise });
        }
        let found = densities(&[steered.clone()])[0];
        // Windows hold whole seconds here, which is less of a Brownian motion than the formula has.
        assert!((2e4..5e4).contains(&found), "{found} of 40000 ns²/s");
        assert!(densities(&[errs.clone()])[0] < 0.05 * 1e4, "{}", densities(&[errs.clone()])[0]);
        assert_eq!(densities(&[steered[..3].to_vec()])[0], 0.0, "too few");
    }
}
