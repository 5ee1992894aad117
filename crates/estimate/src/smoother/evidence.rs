//! Estimates of the model's constants from the data: the wander of the clocks and the asymmetry of
//! the paths.
//!
//! This is empirical Bayes, around the solution of `smoother`.
//! - **Wander** q of each clock by marginal likelihood. A clock is seen against the mean of all
//!   clocks that were there all the time, so that a bad reference does not make every clock look
//!   bad. The series of its per-round states runs through a Kalman filter; with innovations ν_k of
//!   covariance S_k the log likelihood is −½ Σ (ln|S| + νᵀS⁻¹ν), the square replaced by a
//!   Student-t's so that one invalid round does not look like wander. The rounds' noise has an
//!   unknown common factor ρ, fitted too. First one q for all, then each clock's own, held near the
//!   common one.
//! - **What all edges of a node err by alike in a round**, r: the path of a packet through the node
//!   takes longer one way while its processor does something else. No loop shows it and no number
//!   of edges makes it less, but from round to round it is another, which wander is not: of a clock
//!   at 0 that shows 0, 20, 0, 0 ns, r says "one round", q says "it moved and came back". Both by
//!   the same likelihood, together, and r at most what offsets and rates leave of each other.
//! - **Asymmetry** σ: every node pair's mean residual d is drawn from N(0, σ²·scale + n), n its
//!   random part, of which the m independent loops of L node pairs show the share m/L. The
//!   posterior of σ on a grid, with a wide log-normal prior about [`PRIOR_SHARE`] of the median
//!   margin, makes the asymmetry a scale mixture of normals. The variance returned is that of the
//!   normal with the same 97.5 % point and, where loops show most, a 99.87 % point no nearer: few
//!   loops make a wide interval. What is random is itself known up to a factor, and the posterior
//!   is over both.
//!
//! It cannot detect asymmetry that every node pair of a node shares, because no loop shows it.

use super::layout::{Layout, Span};
use super::lines::seen;
use super::round::{SmootherOptions, SmootherRound};
use super::student::log_density;
use super::white_fm::{self, DENSITIES, Lapse};
use crate::graph::linear::{Block, Pair, inverse};
use crate::kalman::{Innovation, predicted_covariance, predicted_state};
use crate::motion::{apply, block, product, square, sum};
use crate::statistics::{SIGMAS_95, TO_SIGMA, median};

/// One span's states round by round, as the rounds saw them.
struct Series {
    node: usize,
    times: Vec<f64>,
    states: Vec<Pair>,
    noise: Vec<Block>,
}

/// Constants of a node.
#[derive(Copy, Clone, Debug)]
pub(super) struct Constants {
    /// Density of its rate's random walk, ns²/s³.
    pub(super) walk: f64,
    /// Variance of the error common to all its edges in a round, ns².
    pub(super) shared: f64,
    /// Density of its rate's white noise, ns²/s (`white_fm`).
    pub(super) white_fm: f64,
}

/// The constants of every node.
pub(super) fn constants(
    layout: &Layout,
    nodes: usize,
    rounds: &[SmootherRound<'_>],
    options: &SmootherOptions,
) -> Vec<Constants> {
    if let Some(fixed) = options.walk_density {
        return vec![Constants { walk: fixed.clamp(WALK_MIN, 1.0 / WALK_MIN), shared: 0.0, white_fm: 0.0 }; nodes];
    }
    let (series, shrink) = all_series(layout, rounds);
    let all: Vec<&Series> = series.iter().collect();
    let (mut rho, mut common) = (1.0, [PRIOR_WALK, PRIOR_SHARED_NS]);
    for _ in 0..PASSES {
        common = likeliest(&all, rho, most_shared_ns(&all, QUARTILE), usual);
        rho = best(rho_grid(), |rho| total(&all, common, rho) + log_prior(rho, 1.0, PRIOR_NOISE_DECADES));
    }
    let near =
        |[q, r]: [f64; 2]| log_prior(q, common[0], OWN_WALK_DECADES) + log_prior(r, common[1], OWN_SHARED_DECADES);
    let own = |node: usize| series.iter().filter(move |one| one.node == node).collect::<Vec<_>>();
    let walks: Vec<[f64; 2]> = (0..nodes)
        .map(|node| {
            let own = own(node);
            let most = most_shared_ns(&own, MEDIAN).min(OWN_SHARED_TIMES * common[1].max(PRIOR_SHARED_NS));
            if own.is_empty() { common } else { likeliest(&own, rho, most, near) }
        })
        .collect();
    let white = white_densities(&series, &walks, rho, layout.window);
    let constants = |(node, [q, r]): (usize, &[f64; 2])| {
        let of_spans = series.iter().zip(&white).filter(|(one, _)| one.node == node);
        let white_fm = of_spans.map(|(_, density)| *density).fold(0.0, f64::max);
        Constants { walk: q / shrink, shared: r * r / shrink, white_fm: white_fm / shrink }
    };
    walks.iter().enumerate().map(constants).collect()
}

/// Density of the white noise of the rate in every series, ns²/s, as the posterior has it in the
/// mean: against walking rates, whose constants are `walks` by node.
fn white_densities(series: &[Series], walks: &[[f64; 2]], rho: f64, window: f64) -> Vec<f64> {
    if series.iter().all(|one| one.states.len() < WINDOWS_MIN) {
        return vec![0.0; series.len()];
    }
    let logs: Vec<([f64; DENSITIES], f64)> = series
        .iter()
        .map(|one| (one.white_log_likelihoods(rho, window), one.log_likelihood(walks[one.node], rho) - FITTED))
        .collect();
    let count = logs.len().max(1) as f64;
    let (mut white, mut walk) = ([0.0; DENSITIES], 0.0);
    for (of_white, of_walk) in &logs {
        white.iter_mut().zip(of_white).for_each(|(sum, log)| *sum += log / count);
        walk += of_walk / count;
    }
    let prior = white_fm::prior();
    let density = |(of_white, of_walk): &([f64; DENSITIES], f64)| {
        let scores = std::array::from_fn(|at| of_white[at] + OTHERS * white[at]);
        white_fm::mean_density(&white_fm::weights(&scores, of_walk + OTHERS * walk, &prior))
    };
    logs.iter().map(density).collect()
}

/// Log of how usual a wander and a shared error in ns are.
pub(super) fn usual([q, r]: [f64; 2]) -> f64 {
    log_prior(q, PRIOR_WALK, PRIOR_WALK_DECADES) + log_prior(r, PRIOR_SHARED_NS, PRIOR_SHARED_DECADES)
}

/// The likeliest wander and shared error of a round, of at most `most` ns: on a coarse grid of
/// both, then each for itself.
fn likeliest(series: &[&Series], rho: f64, most: f64, prior: impl Fn([f64; 2]) -> f64) -> [f64; 2] {
    let value = |at: [f64; 2]| total(series, at, rho) + prior(at);
    let shared_grid = || shared_grid().filter(move |r| *r <= most.max(SHARED_MIN_NS));
    let grid = || shared_grid().flat_map(|r| walk_grid().step_by(2).map(move |q| [q, r]));
    let values = grid().map(value);
    let top = grid().zip(values).max_by(|a, b| a.1.total_cmp(&b.1));
    let [_, r] = top.map_or([PRIOR_WALK, PRIOR_SHARED_NS], |(at, _)| at);
    let q = best(walk_grid(), |q| value([q, r]));
    [q, best(shared_grid(), |r| value([q, r]))]
}

/// The largest possible common error of a round, ns. From one round to the next an offset changes
/// by its mean rate, however the clock moved: `x₊ − x − Δ·(f + f₊)/2` is the difference of the
/// errors of two rounds and almost nothing else. Without this, a clock that warms up would look
/// like errors of its offsets, because nothing predicts it. A `share` of the residuals is below
/// this many `sigmas`.
fn most_shared_ns(series: &[&Series], (share, sigmas): (f64, f64)) -> f64 {
    let mut rests = Vec::new();
    for one in series {
        for k in 1..one.states.len() {
            let ([x, f], [ahead, g], delta) = (one.states[k - 1], one.states[k], one.times[k] - one.times[k - 1]);
            let [a, b] = [one.noise[k - 1], one.noise[k]];
            let known = a[0] + b[0] + 0.25 * delta * delta * (a[2] + b[2]);
            let rest = ahead - x - 0.5 * delta * (f + g);
            rests.push((rest.abs(), known));
        }
    }
    let known = median(rests.iter().map(|(_, known)| *known));
    // The lower one of two: the other may be a step.
    let place = (rests.len().saturating_sub(1) as f64 * share) as usize;
    rests.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let scatter = rests.get(place).map_or(0.0, |(rest, _)| rest / sigmas);
    SHARED_MARGIN * (0.5 * (scatter * scatter - known)).max(0.0).sqrt()
}

fn total(series: &[&Series], at: [f64; 2], rho: f64) -> f64 {
    series.iter().map(|one| one.log_likelihood(at, rho)).sum()
}

/// The series of all spans relative to the mean of the clocks that are always present; also the
/// factor by which that mean reduces a clock's own wander.
fn all_series(layout: &Layout, rounds: &[SmootherRound<'_>]) -> (Vec<Series>, f64) {
    let knots = layout.knots.len();
    let mut weight = vec![[0.0; 3]; layout.states];
    for measure in &layout.measures {
        let Some(precision) = inverse(measure.covariance) else { continue };
        for span in [measure.from, measure.to] {
            let state = &mut weight[layout.state(span, measure.knot)];
            state.iter_mut().zip(precision).for_each(|(sum, precision)| *sum += precision);
        }
    }
    let whole = |span: &&Span| span.first == 0 && span.last + 1 == knots && measured(span, &weight).all(|seen| seen);
    let core: Vec<&Span> = layout.spans.iter().filter(whole).collect();
    let mut mean = vec![[0.0; 2]; knots];
    for span in &core {
        for (k, mean) in mean.iter_mut().enumerate() {
            let state = state_of(layout, rounds, span, k);
            *mean = [mean[0] + state[0] / core.len() as f64, mean[1] + state[1] / core.len() as f64];
        }
    }
    let series = layout.spans.iter().map(|span| {
        let here = (0..span.len()).filter(|k| weight[span.base + k][0] > 0.0).map(|k| k + span.first);
        let here: Vec<usize> = here.collect();
        let state = |k: &usize| {
            let state = state_of(layout, rounds, span, *k);
            [state[0] - mean[*k][0], state[1] - mean[*k][1]]
        };
        let states: Vec<Pair> = here.iter().map(state).collect();
        let noise = here.iter().map(|k| inverse(weight[layout_state(span, *k)]).unwrap_or([1e18, 0.0, 1e18]));
        let noise: Vec<Block> = noise.collect();
        let times = here.iter().map(|k| layout.knots[*k]).collect();
        Series { node: span.node, times, states, noise }
    });
    let shrink = if core.is_empty() { 1.0 } else { (1.0 - 1.0 / core.len() as f64).max(0.5) };
    (series.collect(), shrink)
}

fn layout_state(span: &Span, knot: usize) -> usize {
    span.base + knot - span.first
}

fn measured<'a>(span: &'a Span, weight: &'a [Block]) -> impl Iterator<Item = bool> + 'a {
    (0..span.len()).map(|k| weight[span.base + k][0] > 0.0)
}

/// Estimate of a span in a round; if there is none, the previous one.
fn state_of(layout: &Layout, rounds: &[SmootherRound<'_>], span: &Span, knot: usize) -> Pair {
    seen(&rounds[knot], span.node, span.potential).unwrap_or(layout.start[layout_state(span, knot)])
}

impl Series {
    /// For every density of white frequency noise.
    fn white_log_likelihoods(&self, rho: f64, window: f64) -> [f64; DENSITIES] {
        let mut filters = white_fm::Filters::default();
        for k in 0..self.states.len() {
            let delta = if k == 0 { 0.0 } else { self.times[k] - self.times[k - 1] };
            filters.observe(Lapse { delta, window }, self.states[k], self.noise[k].map(|noise| rho * noise), 1.0);
        }
        filters.likelihood
    }

    /// For wander q and shared errors r, with the rounds' own noise times rho.
    fn log_likelihood(&self, [q, r]: [f64; 2], rho: f64) -> f64 {
        let scaled = |k: usize| {
            let [a, ab, b] = self.noise[k].map(|noise| rho * noise);
            [a + r * r, ab, b]
        };
        let Some(first) = self.states.first() else { return 0.0 };
        let (mut state, mut covariance) = (*first, square(scaled(0)));
        let mut log = 0.0;
        for k in 1..self.states.len() {
            let delta = self.times[k] - self.times[k - 1];
            let ahead = predicted_covariance(covariance, delta, q);
            let expected = predicted_state(state, delta);
            let off = [self.states[k][0] - expected[0], self.states[k][1] - expected[1]];
            let Some(innovation) = Innovation::new(block(sum(ahead, square(scaled(k)))), off) else { continue };
            log += log_density(innovation.determinant, innovation.distance);
            // The covariance stays the full matrix that the products give: it is not symmetrised
            // from step to step.
            let gain = product(ahead, square(innovation.certainty));
            let step = apply(gain, off);
            state = [expected[0] + step[0], expected[1] + step[1]];
            covariance = product(gain, square(scaled(k)));
        }
        log
    }
}

/// The factor on the variance after a measurement at this squared distance from its prediction, two
/// values of Student's t with ν = `freedom`: if both cannot be true, either may be wrong (Roth,
/// Özkan and Gustafsson, ICASSP 2013; never less than 1 here).
pub(super) fn surprise(freedom: f64, distance: f64) -> f64 {
    ((freedom + distance) / (freedom + 2.0)).max(1.0)
}

/// One node pair's mean residual.
#[derive(Copy, Clone, Debug)]
pub(super) struct Deviation {
    /// ns, squared, with less weight for outliers.
    pub(super) square: f64,
    /// The node pair's scale.
    pub(super) scale: f64,
    /// Random variance of the mean, ns².
    pub(super) random: f64,
}

/// Variance of the asymmetries, ns², from all node pairs' deviations, of which the share `visible`
/// shows in loops.
pub(super) fn asymmetry(deviations: &[Deviation], visible: f64, margin_ns: f64) -> f64 {
    let center = PRIOR_SHARE * margin_ns;
    let grid: Vec<f64> =
        (0..GRID).map(|k| center * 10f64.powf(GRID_DECADES * (k as f64 / (GRID - 1) as f64 - 0.5))).collect();
    // What is random is known up to a factor too: taken at its word where it is too large, it would
    // explain all deviations and leave none to asymmetry.
    let log = |sigma: f64, spreads: f64| {
        let factor = (RANDOM_SPREAD * spreads).exp();
        // Σ ln v = ln Π v, and a/v + b/w = (a·w + b·v)/(v·w): a logarithm and a division serve a
        // few deviations. Up to 300 years each, nothing overflows.
        let few = |some: &[Deviation]| {
            let (product, sum) = some.iter().fold((1.0, 0.0), |(product, sum), d| {
                let variance = sigma * sigma * d.scale + factor * d.random;
                (product * variance, sum * variance + d.square * product)
            });
            visible * f64::ln(product) + sum / product
        };
        let prior = (sigma / center).ln() / PRIOR_SPREAD;
        -0.5 * deviations.chunks(FEW).map(few).sum::<f64>() - 0.5 * (prior * prior + spreads * spreads)
    };
    let logs: Vec<[f64; RANDOM_FACTORS.len()]> =
        grid.iter().map(|sigma| RANDOM_FACTORS.map(|spreads| log(*sigma, spreads))).collect();
    let top = logs.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logs.iter().map(|logs| logs.iter().map(|log| (log - top).exp()).sum()).collect();
    let total: f64 = weights.iter().sum();
    let outside =
        |x: f64| grid.iter().zip(&weights).map(|(sigma, weight)| weight * tail(x / sigma)).sum::<f64>() / total;
    let beyond = |share: f64| {
        let (mut low, mut high) = (0.0, QUANTILE_MAX * grid[GRID - 1]);
        for _ in 0..BISECTIONS {
            let middle = 0.5 * (low + high);
            if outside(middle) > share { low = middle } else { high = middle }
        }
        0.5 * (low + high)
    };
    // Where loops show it, three standard deviations shall be what they are of a normal variable
    // too; of a guess nobody can say that.
    let three = if visible >= VISIBLE_MOST { beyond(BEYOND_THREE) / 3.0 } else { 0.0 };
    f64::max(beyond(0.025) / SIGMAS_95, three).powi(2)
}

/// Probability that a standard normal exceeds x ≥ 0 (Abramowitz and Stegun 26.2.17, error below
/// 1e-7).
fn tail(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x);
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let polynomial = series.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    (-0.5 * x * x).exp() / std::f64::consts::TAU.sqrt() * polynomial
}

fn log_prior(value: f64, center: f64, decades: f64) -> f64 {
    -0.5 * ((value / center).log10() / decades).powi(2)
}

/// The grid point with the largest value, refined by the parabola through its neighbours (in the
/// logarithm).
fn best(grid: impl Iterator<Item = f64>, value: impl Fn(f64) -> f64) -> f64 {
    let points: Vec<(f64, f64)> = grid.map(|x| (x.ln(), value(x))).collect();
    let top = (0..points.len()).max_by(|a, b| points[*a].1.total_cmp(&points[*b].1)).unwrap_or(0);
    if top == 0 || top + 1 >= points.len() {
        return points[top].0.exp();
    }
    let [before, at, after] = [points[top - 1], points[top], points[top + 1]];
    let bend = before.1 - 2.0 * at.1 + after.1;
    let shift = if bend < 0.0 { 0.5 * (before.1 - after.1) / bend } else { 0.0 };
    (at.0 + shift.clamp(-0.5, 0.5) * (after.0 - at.0)).exp()
}

fn walk_grid() -> impl Iterator<Item = f64> {
    (0..=22).map(|k| 10f64.powf(-4.0 + 0.5 * f64::from(k)))
}

/// From [`SHARED_MIN_NS`] to [`SHARED_MAX_NS`].
fn shared_grid() -> impl Iterator<Item = f64> {
    (0..=6).map(|k| SHARED_MIN_NS * (SHARED_MAX_NS / SHARED_MIN_NS).powf(f64::from(k) / 6.0))
}

fn rho_grid() -> impl Iterator<Item = f64> {
    (0..=12).map(|k| 10f64.powf(-1.5 + 0.25 * f64::from(k)))
}

/// Least density that can be inverted, and one over the largest, ns²/s³.
const WALK_MIN: f64 = 1e-9;

/// Alternations between wander with shared errors, and noise.
const PASSES: usize = 2;

/// A good quartz: 2 ppb after one second, (2 ns/s)² per s; and how many decades it may be wrong.
const PRIOR_WALK: f64 = 4.0;
const PRIOR_WALK_DECADES: f64 = 1.5;

/// Between ranks of one host, all edges of a rank erred alike by 1 to 5 ns (bench/LOG.md); and how
/// many decades that may be wrong.
const PRIOR_SHARED_NS: f64 = 2.0;
const PRIOR_SHARED_DECADES: f64 = 0.7;

/// Fewest windows of any clock that say something of white rates.
const WINDOWS_MIN: usize = 3;

/// Mean contribution of two fitted constants to a log likelihood.
const FITTED: f64 = 1.0;

/// Weight of the mean of all clocks relative to one clock's own rounds, in clocks.
const OTHERS: f64 = 4.0;

/// Spread of a node's shared errors relative to the others', decades.
const OWN_SHARED_DECADES: f64 = 0.5;

/// Smallest value considered, ns.
const SHARED_MIN_NS: f64 = 0.3;

/// Largest error assumed for a round, ns. Anything larger happened to a clock, and its wander has
/// to follow: as an error of the rounds, one round that is off by an unnamed step would make the
/// good rounds of that clock worthless.
const SHARED_MAX_NS: f64 = 300.0;

/// Largest error of a single round, if the rounds of a clock are otherwise better.
pub(super) const SHARED_ONCE_MAX_NS: f64 = 100.0;

/// Largest ratio of a clock's own value to the typical one: a single step of one clock is not an
/// error of all its rounds.
const OWN_SHARED_TIMES: f64 = 10.0;

/// A share of normal variables, and the number of standard deviations they are below. For all
/// clocks together a quarter: in a run of a few rounds more than half of the intervals between
/// rounds may contain a step of a clock.
const MEDIAN: (f64, f64) = (0.5, 1.0 / TO_SIGMA);
const QUARTILE: (f64, f64) = (0.25, 0.318_639);

/// Factor by which a shared error may exceed the disagreement of offsets and rates.
const SHARED_MARGIN: f64 = 1.5;

/// Possible error of the rounds' noise, decades.
const PRIOR_NOISE_DECADES: f64 = 0.5;

/// Spread of a clock's wander relative to the others', decades.
const OWN_WALK_DECADES: f64 = 0.5;

/// Asymmetry expected if no loop shows any, as a share of the median margin, and its spread in
/// e-folds.
const PRIOR_SHARE: f64 = 0.03;
const PRIOR_SPREAD: f64 = 1.0;

/// Standard deviation of the logarithm of the factor by which the random variance of deviations may
/// be wrong.
const RANDOM_SPREAD: f64 = 0.5;
/// The factors considered, in these deviations: the nodes ±√3 and 0 of the Gauss–Hermite rule,
/// which weights them nearly as the normal density does.
const RANDOM_FACTORS: [f64; 3] = [-1.732, 0.0, 1.732];

/// Deviations that share a logarithm.
const FEW: usize = 6;
const GRID: usize = 121;
const GRID_DECADES: f64 = 6.0;
const BISECTIONS: usize = 60;

/// A normal variable is beyond three standard deviations on one side with this probability.
const BEYOND_THREE: f64 = 0.001_35;

/// Loops show this much of the deviations if their number determines their variance.
const VISIBLE_MOST: f64 = 0.5;
const QUANTILE_MAX: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_normal_distribution_s() {
        for (x, expected) in [(0.0, 0.5), (1.0, 0.158_655_3), (1.959_964, 0.025), (3.0, 0.001_349_9)] {
            assert!((tail(x) - expected).abs() < 1e-6, "{x}: {}", tail(x));
        }
    }

    #[test]
    fn many_loops_find_sigma_and_few_widen_the_interval() {
        let deviations = |count: usize| vec![Deviation { square: 400.0, scale: 1.0, random: 1.0 }; count];
        let many = asymmetry(&deviations(400), 0.9, 6_000.0);
        // Of d² = 400 the share 0.9 shows: σ² is 400/0.9 less the random part.
        assert!((many / (400.0 / 0.9 - 1.0) - 1.0).abs() < 0.03, "{many}");
        let few = asymmetry(&[Deviation { square: 133.0, scale: 1.0, random: 1.0 }; 3], 0.3, 6_000.0);
        assert!(few > 2.0 * many, "{few} against {many}");
        let none = asymmetry(&[], 0.0, 6_000.0).sqrt();
        assert!((1.0..3.0).contains(&(none / (PRIOR_SHARE * 6_000.0))), "{none}");
    }
}
