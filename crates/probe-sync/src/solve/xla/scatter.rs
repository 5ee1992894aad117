//! The uncertainty of fits without a stated covariance, from their scatter.
//!
//! For one edge in three consecutive windows, at times `t₀ < t₁ < t₂` with
//! `w = (t₁ − t₀)/(t₂ − t₀)`, the middle one's `e = θ₁ − (1 − w)·θ₀ − w·θ₂` is free of offset and
//! drift; with equal errors σ, `Var e = σ²·(1 + (1 − w)² + w²)`. For alpha, the differences of
//! neighbours have the variance `2σ²`. Medians of the absolute values are robust, and for normal
//! errors σ is 1.4826 times the median. The wander of a clock within three windows is included, so
//! the result is rather too large.
//!
//! An edge with [`FEWEST`] such values has its own, other edges have that of all; where there are
//! too few of all, errors are as the profiler's guide states them. It does not detect errors common
//! to all windows of an edge, such as asymmetric paths.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use probe_sync_time::NodeId;

use super::fit::Window;

/// Standard deviations of a fit's random errors, at its window's middle.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) alpha: f64,
    pub(super) beta_ns: f64,
}

/// The spreads of all edges.
#[derive(Debug)]
pub(super) struct Scatter {
    own: BTreeMap<(NodeId, NodeId), Spread>,
    others: Spread,
    /// True if the spread is assumed, not taken from the files.
    assumed: bool,
}

/// Errors of one edge, or of all, in units of one standard deviation's square root of the count.
#[derive(Default)]
struct Errors {
    beta: Vec<f64>,
    alpha: Vec<f64>,
}

impl Scatter {
    /// Estimates the spreads from windows in order of time.
    pub(super) fn of(windows: &[Window]) -> Self {
        let mut edges: BTreeMap<(NodeId, NodeId), Vec<[f64; 3]>> = BTreeMap::new();
        let first = windows.first().map_or(0, Window::middle_ns);
        for window in windows {
            // Times as differences: a Unix time does not fit an f64.
            let at = window.middle_ns().saturating_sub(first) as f64;
            for fit in &window.fits {
                let theta = fit.beta + fit.alpha * window.half_ns();
                edges.entry((window.node, fit.dst)).or_default().push([at, theta, fit.alpha]);
            }
        }
        let length_ns = windows.iter().map(|window| 2.0 * window.half_ns()).fold(1.0, f64::max);
        let mut all = Errors::default();
        let mut own = BTreeMap::new();
        for (edge, fits) in &edges {
            let errors = Errors::of(fits);
            own.extend(errors.spread(length_ns).map(|spread| (*edge, spread)));
            all.beta.extend(errors.beta);
            all.alpha.extend(errors.alpha);
        }
        let found = all.spread(length_ns);
        let assumed = Spread { beta_ns: ASSUMED_NS, alpha: slope(ASSUMED_NS, length_ns) };
        Self { own, others: found.unwrap_or(assumed), assumed: found.is_none() }
    }

    /// Returns the spread of one edge.
    pub(super) fn spread(&self, src: NodeId, dst: NodeId) -> Spread {
        self.own.get(&(src, dst)).copied().unwrap_or(self.others)
    }
}

impl Display for Scatter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = self.others.beta_ns / 1e3;
        if self.assumed {
            write!(f, "assuming a fit error of {us} µs (SD), because there are too few windows to estimate it")
        } else {
            write!(f, "the fit error is {us:.3} µs (SD), estimated from the scatter of each edge's fits")
        }
    }
}

impl Errors {
    /// Computes the errors from one edge's fits in order: time, theta, alpha.
    fn of(fits: &[[f64; 3]]) -> Self {
        let beta = fits.windows(3).filter_map(|fits| {
            let [[t0, a, _], [t1, b, _], [t2, c, _]] = *fits else { return None };
            let w = (t1 - t0) / (t2 - t0);
            let error = b - (1.0 - w) * a - w * c;
            let size = error.abs() / (1.0 + (1.0 - w).powi(2) + w.powi(2)).sqrt();
            (0.0..=1.0).contains(&w).then_some(size)
        });
        let alpha = fits.windows(2).map(|fits| (fits[1][2] - fits[0][2]).abs() / std::f64::consts::SQRT_2);
        Self { beta: beta.collect(), alpha: alpha.collect() }
    }

    /// Returns the spread; `None` if there are too few values. The slope of a line cannot be more
    /// accurate than points spread over the window permit.
    fn spread(&self, length_ns: f64) -> Option<Spread> {
        let median = |sizes: &[f64]| {
            let mut sorted = sizes.to_vec();
            sorted.sort_unstable_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).map(|middle| NORMAL_OVER_MEDIAN * middle)
        };
        let beta_ns = median(&self.beta).filter(|_| self.beta.len() >= FEWEST)?.max(LEAST_NS);
        let alpha = median(&self.alpha)?.max(slope(LEAST_NS, length_ns));
        Some(Spread { alpha, beta_ns })
    }
}

/// Returns the error of the slope of a line through points all over a window, in whose middle the
/// line has the error `beta_ns`.
fn slope(beta_ns: f64, length_ns: f64) -> f64 {
    12f64.sqrt() * beta_ns / length_ns
}

/// Fewest values; from eight the estimate is accurate to within a half.
const FEWEST: usize = 8;
/// Accuracy that the profiler's guide states for its default settings: ±50 to 100 µs.
const ASSUMED_NS: f64 = 50_000.0;
/// Lower limit of the spread, since files contain whole ns.
const LEAST_NS: f64 = 1.0;
/// Ratio of the standard deviation to the median magnitude of a normal distribution.
const NORMAL_OVER_MEDIAN: f64 = 1.4826;

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::super::fit::{Fit, Quanta};
    use super::*;

    /// Windows of 4 s from node 0 to nodes 1 and 2, each with errors of its own.
    fn windows(count: i64, errors_ns: [f64; 2]) -> Vec<Window> {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        // Nearly normal, with standard deviation 1.
        let mut normal = move || (0..12).map(|_| random.random_range(0.0..1.0)).sum::<f64>() - 6.0;
        let window = |number: i64| {
            let mut fit = |to: usize| {
                let alpha = 20e-6 + 1e-9 * errors_ns[to] * normal();
                let theta = 5e6 + 20e-6 * 4e9 * number as f64 + errors_ns[to] * normal();
                let beta = theta - alpha * 2e9;
                Fit { dst: NodeId(to as u32 + 1), alpha, beta, pairs: 9, lost: 0, quanta: Quanta::default() }
            };
            let start_ns = 1_700_000_000_000_000_000 + number * 4_000_000_000;
            let fits = vec![fit(0), fit(1)];
            Window { node: NodeId(0), round: None, start_ns, end_ns: start_ns + 4_000_000_000, fits }
        };
        (0..count).map(window).collect()
    }

    #[test]
    fn an_edge_is_as_uncertain_as_its_fits_scatter() {
        let scatter = Scatter::of(&windows(100, [2_000.0, 100.0]));
        for (dst, error_ns) in [(1, 2_000.0), (2, 100.0)] {
            let Spread { alpha, beta_ns } = scatter.spread(NodeId(0), NodeId(dst));
            assert!((0.75..1.35).contains(&(beta_ns / error_ns)), "{beta_ns} of {error_ns}");
            assert!((0.75..1.35).contains(&(alpha / (1e-9 * error_ns))), "{alpha} of {error_ns}");
        }
        assert!(!scatter.to_string().contains("too few"));
    }

    #[test]
    fn few_windows_are_worth_what_the_guide_says() {
        // Seven triples of one edge and seven of another are fourteen of all.
        let together = Scatter::of(&windows(9, [300.0, 300.0]));
        assert!(together.spread(NodeId(0), NodeId(1)).beta_ns < 3_000.0, "{together:?}");
        let few = Scatter::of(&windows(5, [300.0, 300.0]));
        let assumed = Spread { beta_ns: ASSUMED_NS, alpha: 12f64.sqrt() * ASSUMED_NS / 4e9 };
        assert_eq!(few.spread(NodeId(0), NodeId(1)), assumed);
        assert!(few.to_string().contains("50 µs (SD), because there are too few windows"), "{few}");
        assert_eq!(Scatter::of(&[]).spread(NodeId(0), NodeId(1)).beta_ns, ASSUMED_NS);
    }
}
