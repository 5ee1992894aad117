//! Clocks whose rate changes repeatedly within their windows: white frequency noise.
//!
//! The whole run (`evidence`) and the live smoother (`online`) learn it from the states of the
//! rounds, and it is added to the smoother's stated uncertainty. A rate that walks slowly
//! (`motion`) bends a window's line by q·T³/320, which its innovations show. A servo that sets
//! another rate each second moves the offset like a Brownian motion of density D, and the walk that
//! explains its innovations explains a seventh of the error of its lines. Therefore both models run
//! over the same states, and their likelihoods decide which of them a clock follows, and with which
//! D.
//!
//! **The filter.** Its state is the offset b at a window's end and the mean rate f. In a window of
//! length T the Brownian motion W has, for D = 1, the mean μ, the least-squares slope s and the end
//! value I, with
//!
//! ```text
//! Var μ = T/3,  Var s = 6/(5·T),  Var I = T,  Cov(μ, s) = 1/2,  Cov(μ, I) = T/2,  Cov(s, I) = 1.
//! ```
//!
//! The line measures `b + f·T/2 + μ` at its middle and the slope `f + s`; then `b' = b + f·T + I`.
//! That I is correlated with what is measured is what tells white from walking rates: without it
//! their likelihoods differ little.
//!
//! A line misses its window's middle, μ − W(T/2), by D·T/12 and the rate by 6/5·D/T, uncorrelated.
//! The cubic between the middles of two windows, with the slopes of both, misses the boundary
//! between them by 0.079·D·T, which is what these two variances give there: between knots nothing
//! is added.
//!
//! By hand: a rate of 0.2 ppm, new each second: D = 200² ns²/s, windows of 4 s: 115 ns in their
//! middles.
//!
//! It does not follow such a clock; shorter windows do (`run::windows`).

use super::student::log_density;
use crate::graph::linear::{Block, Pair, times};
use crate::kalman::{Belief, Innovation, predicted_state};
use crate::motion::{walk, window_excess};

/// One clock under every density.
#[derive(Clone, Debug, Default)]
pub(super) struct Filters {
    /// Before a second measurement says how long windows are.
    first: Option<(Pair, Block)>,
    /// At the end of the latest window.
    beliefs: Option<[Belief; DENSITIES]>,
    /// Log likelihood of each, forgetting.
    pub(super) likelihood: [f64; DENSITIES],
}

/// Time of a window, and the certainty of its line.
#[derive(Copy, Clone, Debug)]
pub(super) struct Lapse {
    /// Since the window before, middle to middle, s.
    pub(super) delta: f64,
    /// Length of the window, s.
    pub(super) window: f64,
}

impl Filters {
    /// Forgets the clock's state; its density stays.
    pub(super) fn forget(&mut self) {
        (self.first, self.beliefs) = (None, None);
    }

    /// Moves the clock by `by` ns.
    pub(super) fn shift(&mut self, by: f64) {
        self.first.iter_mut().for_each(|(state, _)| state[0] += by);
        self.beliefs.iter_mut().flatten().for_each(|belief| belief.state[0] += by);
    }

    /// Takes the line of a window with the covariance `noise`. What was seen before counts `forget`
    /// times as much.
    pub(super) fn observe(&mut self, Lapse { delta, window }: Lapse, measured: Pair, noise: Block, forget: f64) {
        let Some((state, known)) = self.first else {
            self.first = Some((measured, noise));
            return;
        };
        let window = window.min(delta);
        if window <= 0.0 {
            return;
        }
        let beliefs =
            self.beliefs.get_or_insert_with(|| std::array::from_fn(|at| begun(density(at), window, state, known)));
        for (at, (belief, likelihood)) in beliefs.iter_mut().zip(&mut self.likelihood).enumerate() {
            let ahead = unseen(belief, density(at), delta - window);
            let Some((next, log)) = observed(&ahead, density(at), window, measured, noise) else { continue };
            (*belief, *likelihood) = (next, forget * *likelihood + log);
        }
    }
}

/// At the end of the first window.
fn begun(density: f64, window: f64, [mean, slope]: Pair, [a, ab, b]: Block) -> Belief {
    let half = 0.5 * window;
    // Of I − μ − s·T/2 and of s: 2/15·T, 1/10 and 6/(5·T).
    let covariance = [
        a + half * (2.0 * ab + half * b) + density * window * 2.0 / 15.0,
        ab + half * b + 0.1 * density,
        b + 1.2 * density / window,
    ];
    Belief { state: [mean + half * slope, slope], covariance }
}

/// The state after `seconds` not covered by any window.
fn unseen(belief: &Belief, density: f64, seconds: f64) -> Belief {
    if seconds <= 0.0 {
        return *belief;
    }
    let Belief { state, covariance: [a, ab, b] } = belief.predicted(seconds, WALK);
    Belief { state, covariance: [a + density * seconds, ab, b] }
}

/// At the end of a window, and the log likelihood of its line. With M and E the transitions to the
/// middle and to the end, `S = M·P·Mᵀ + L`, `C = E·P·Mᵀ + N`, `P' = E·P·Eᵀ + Q − C·S⁻¹·Cᵀ`, written
/// out: ten filters per node run live.
fn observed(belief: &Belief, density: f64, window: f64, measured: Pair, [a, ab, b]: Block) -> Option<(Belief, f64)> {
    let half = 0.5 * window;
    let ([p, pf, ff], brownian) = (belief.covariance, density * window);
    let (halfway, whole) = (pf + half * ff, pf + window * ff);
    let total =
        [p + half * (pf + halfway) + a + brownian / 3.0, halfway + ab + 0.5 * density, ff + b + 1.2 * density / window];
    let across = [p + window * pf + half * whole + density * half, whole + density, halfway, ff];
    let [x, xf, f] = walk(WALK, window);
    let ahead = [p + window * (pf + whole) + x + brownian, whole + xf, ff + f];
    let expected = predicted_state(belief.state, half);
    let off = [measured[0] - expected[0], measured[1] - expected[1]];
    let innovation = Innovation::new(total, off)?;
    let [top, bottom] = [0, 2].map(|row| times(innovation.certainty, [across[row], across[row + 1]]));
    let covariance = [
        ahead[0] - (top[0] * across[0] + top[1] * across[1]),
        ahead[1] - (top[0] * across[2] + top[1] * across[3]),
        ahead[2] - (bottom[0] * across[2] + bottom[1] * across[3]),
    ];
    (covariance[0] > 0.0 && covariance[2] > 0.0).then(|| {
        let [offset, rate] = predicted_state(belief.state, window);
        let state = [offset + top[0] * off[0] + top[1] * off[1], rate + bottom[0] * off[0] + bottom[1] * off[1]];
        (Belief { state, covariance }, log_density(innovation.determinant, innovation.distance))
    })
}

/// Log of how probable each density is before anything is seen.
pub(super) fn prior() -> [f64; DENSITIES] {
    let usual: [f64; DENSITIES] = std::array::from_fn(usual);
    let norm = log_sum(&usual);
    usual.map(|log| log - norm + SHARE.ln())
}

/// The probability of each density, the rest being that of walking rates. `scores` are log
/// likelihoods, `walks` that of all walks together.
pub(super) fn weights(scores: &[f64; DENSITIES], walks: f64, prior: &[f64; DENSITIES]) -> [f64; DENSITIES] {
    let scores: [f64; DENSITIES] = std::array::from_fn(|at| scores[at] + prior[at]);
    let walks = walks + (1.0 - SHARE).ln();
    let total = log_sum(&[log_sum(&scores), walks]);
    scores.map(|score| (score - total).exp())
}

/// The geometric mean of densities with these weights, times the sum of the weights, ns²/s: a few
/// large densities of little weight do not rule it.
pub(super) fn mean_density(weights: &[f64; DENSITIES]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let doublings: f64 = weights.iter().enumerate().map(|(at, weight)| weight * at as f64).sum();
    if sum > 0.0 { sum * SMALLEST.powi(2) * (2.0 * doublings / sum).exp2() } else { 0.0 }
}

/// ln Σ exp.
pub(super) fn log_sum(logs: &[f64]) -> f64 {
    let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let counts = |log: &f64| log - top > NEGLIGIBLE;
    let sum = || logs.iter().copied().filter(counts).map(|log| (log - top).exp()).sum::<f64>();
    if top.is_finite() { top + sum().ln() } else { top }
}

/// The density of a filter, ns²/s.
pub(super) fn density(at: usize) -> f64 {
    (SMALLEST * 2f64.powi(at as i32)).powi(2)
}

/// Log of how usual a density is.
fn usual(at: usize) -> f64 {
    let decades = (density(at) / USUAL).log10() / USUAL_DECADES;
    -0.5 * decades * decades
}

/// Returns how far a window's line misses its midpoint and the rate there, beyond what a walk of
/// density `q` explains, in ns² and ns²/s².
///
/// The mean over windows is `D·T/12`. A servo sets a rate once in one to two windows of the length
/// that suits it, so some windows hold no change and those that hold one miss by more: [`MIXED`]
/// times the mean keeps the share beyond three standard deviations.
pub(super) fn excess(density: f64, q: f64, window: f64) -> Pair {
    let [offset, rate] = window_excess(q, window);
    if window <= 0.0 {
        return [0.0; 2];
    }
    [(MIXED * density * window / 12.0 - offset).max(0.0), (1.2 * density / window - rate).max(0.0)]
}

/// Variance of the windows that hold a change of rate, as a multiple of the mean over all windows.
pub(super) const MIXED: f64 = 1.4;

/// Number of densities considered: rates of [`SMALLEST`] ns/s that are new each second, and each
/// twice as large.
pub(super) const DENSITIES: usize = 10;
const SMALLEST: f64 = 8.0;

/// Terms less likely than the likeliest by this logarithm change no sum in f64.
const NEGLIGIBLE: f64 = -40.0;

/// The usual density, ns²/s, and how many decades it may be wrong.
const USUAL: f64 = 1e3;
const USUAL_DECADES: f64 = 2.0;

/// The walk of the mean rate, of a good quartz, ns²/s³.
const WALK: f64 = 4.0;

/// Share of clocks assumed to have white rates before any is seen.
const SHARE: f64 = 0.3;

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::graph::linear::inverse;
    use crate::motion::{apply, block, difference, product, square, sum, transition, transposed};

    fn normals(seed: u64) -> impl FnMut() -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        move || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
    }

    /// Mean and slope of 40 points over 4 s.
    fn line(points: &[[f64; 2]]) -> Pair {
        let mean = points.iter().map(|point| point[1]).sum::<f64>() / points.len() as f64;
        let products: f64 = points.iter().map(|[t, x]| t * x).sum();
        [mean, products / points.iter().map(|[t, _]| t * t).sum::<f64>()]
    }

    /// The likeliest density from lines of windows of 4 s, known to 1 ns and 0.1 ns/s.
    fn likeliest(mut line: impl FnMut() -> Pair) -> f64 {
        let mut filters = Filters::default();
        for window in 0..300 {
            let delta = if window == 0 { 0.0 } else { 4.0 };
            filters.observe(Lapse { delta, window: 4.0 }, line(), [1.0, 0.0, 1e-2], 1.0);
        }
        let best = (0..DENSITIES).max_by(|a, b| filters.likelihood[*a].total_cmp(&filters.likelihood[*b]));
        density(best.expect("densities"))
    }

    #[test]
    fn the_density_of_a_servo_is_found() {
        let (mut normal, mut offset) = (normals(5), 0.0);
        let steered = || {
            let rates: Vec<f64> = (0..4).map(|_| 200.0 * normal()).collect();
            let point = |k: usize| {
                offset += 0.1 * rates[k / 10];
                [0.1 * (k as f64 - 19.5), offset]
            };
            line(&(0..40).map(point).collect::<Vec<_>>())
        };
        let found = likeliest(steered);
        assert!((1e4..1e5).contains(&found), "{found} of 40000 ns²/s");
        let mut normal = normals(6);
        let errs = likeliest(|| [normal(), 0.1 * normal()]);
        assert_eq!(errs, density(0), "a clock that stands");
    }

    #[test]
    fn a_window_is_the_matrix_formula() {
        let belief = Belief { state: [40.0, -3.0], covariance: [90.0, 7.0, 5.0] };
        let (measured, noise, window, density) = ([55.0, 2.0], [4.0, 0.5, 1.5], 4.0, 300.0);
        let [before, middle, end] = [square(belief.covariance), transition(0.5 * window), transition(window)];
        let line = square([density * window / 3.0, 0.5 * density, 1.2 * density / window]);
        let total = sum(product(product(middle, before), transposed(middle)), sum(line, square(noise)));
        let moved = [[density * 0.5 * window, density], [0.0, 0.0]];
        let across = sum(product(product(end, before), transposed(middle)), moved);
        let [x, xf, f] = walk(WALK, window);
        let ahead = sum(product(product(end, before), transposed(end)), square([x + density * window, xf, f]));
        let gain = product(across, square(inverse(block(total)).expect("positive")));
        let expected = predicted_state(belief.state, 0.5 * window);
        let step = apply(gain, [measured[0] - expected[0], measured[1] - expected[1]]);
        let state = predicted_state(belief.state, window);
        let covariance = block(difference(ahead, product(gain, transposed(across))));
        let (found, _) = observed(&belief, density, window, measured, noise).expect("positive");
        let near = |found: f64, expected: f64| (found - expected).abs() < 1e-9 * (1.0 + expected.abs());
        assert!((0..2).all(|k| near(found.state[k], state[k] + step[k])), "{found:?}");
        assert!((0..3).all(|k| near(found.covariance[k], covariance[k])), "{found:?} for {covariance:?}");
    }

    #[test]
    fn weights_follow_the_likelier_model() {
        let mut scores = [0.0; DENSITIES];
        let prior = prior();
        let weights = |scores: &[f64; DENSITIES], walks: f64| weights(scores, walks, &prior);
        assert!((weights(&scores, 0.0).iter().sum::<f64>() - SHARE).abs() < 1e-9, "nothing seen");
        scores[4] = 30.0;
        let found = weights(&scores, 10.0);
        assert!(found[4] > 0.999 && (mean_density(&found) / density(4) - 1.0).abs() < 0.01);
        assert!(mean_density(&weights(&scores, 60.0)) < 1e-6, "walks explain it");
    }
}
