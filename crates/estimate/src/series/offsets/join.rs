//! The curve between and beyond a node's points, as knots with their uncertainty.
//!
//! If lines state covariances and how the clock wanders, the curve is the cubic through offsets and
//! rates, and [`super::law`] gives its uncertainty. Otherwise it is a straight line, or a cubic if
//! that predicts left-out points better by at least a fifth; the slopes are the measured drifts or,
//! without these, those of the neighbours. A drift that is noisier than the clock bends the curve
//! the wrong way, which is why drifts are not simply trusted. In this case the error of predicting
//! a left-out point over two gaps gives the interpolation error over one: a fourth of it in the
//! middle of a straight line, a sixteenth for a cubic.
//!
//! What points that were taken out say of a gap or of what lies beyond the ends ([`Doubt`]) is
//! added.

use super::super::curve::{CurvePoint, hermite, picoseconds, steps_between};
use super::super::growth::{BEND_NS_PER_S2, Growth};
use super::super::map::{Continuation, Knot};
use super::breaks::Range;
use super::law::{Law, bend, covariance, seconds_between};
use super::point::{Point, SMALLEST_SIGMA_NS, secant};
use crate::motion::{NS_PER_S_PER_PPM, bridge};
use crate::statistics::{TO_SIGMA, upper_median};

/// Interpolation of the map between rounds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Linear.
    Linear,
    /// A cubic with the measured rates as slopes.
    MeasuredSlopes,
    /// A cubic with the neighbours' slopes.
    NeighbourSlopes,
    /// The mean of the clock's wander: a cubic with the measured rates, whose error follows from
    /// the lines' covariances.
    Walk,
}

/// How to join the points of a node.
#[derive(Copy, Clone, Debug)]
pub(super) struct Joining {
    pub(super) interpolation: Interpolation,
    /// Typical error of predicting a left-out point, ns.
    pub(super) left_out_ns: Option<f64>,
    pub(super) law: Option<Law>,
}

/// Uncertainty beyond that of the points: points that were removed, or are further from the curve
/// than they may be.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Doubt {
    /// Everywhere in the gap, ns.
    pub(super) gap_ns: f64,
    /// Of the rate beyond the end, ns/s.
    pub(super) rate_ns_per_s: f64,
}

impl Joining {
    /// Straight lines unless a cubic predicts left-out points clearly better.
    pub(super) fn choose(points: &[Point], ranges: &[Range], law: Option<Law>) -> Self {
        if law.is_some_and(|law| law.stated) {
            return Self { interpolation: Interpolation::Walk, left_out_ns: None, law };
        }
        let error = |interpolation: Interpolation| {
            let mut errors: Vec<f64> = ranges
                .iter()
                .flat_map(|range| left_out(&points[range.from..range.until], interpolation))
                .map(f64::abs)
                .collect();
            (errors.len() >= FEWEST_TO_JUDGE).then(|| upper_median(&mut errors)).flatten()
        };
        let mut best = (Interpolation::Linear, error(Interpolation::Linear));
        for candidate in [Interpolation::MeasuredSlopes, Interpolation::NeighbourSlopes] {
            let (Some(found), Some(so_far)) = (error(candidate), best.1) else { continue };
            if found < CLEARLY * so_far && so_far > SMALLEST_SIGMA_NS {
                best = (candidate, Some(found));
            }
        }
        if let (None, Some(law)) = (best.1, &law)
            && rates_help(points, law)
        {
            best.0 = Interpolation::MeasuredSlopes;
        }
        Self { interpolation: best.0, left_out_ns: best.1, law }
    }

    /// The points with the slopes that the curve has there.
    pub(super) fn curve(&self, points: &[Point]) -> Vec<CurvePoint> {
        with_slopes(points, self.interpolation)
    }

    /// Knots along the curve; `doubts` holds one per gap.
    pub(super) fn knots(&self, points: &[Point], doubts: &[Doubt], base_ps: i128) -> Vec<Knot> {
        let curve = self.curve(points);
        let smallest = curve.iter().map(|point| point.sigma_ns).fold(f64::INFINITY, f64::min);
        let error_ns = (CHORD_SHARE * smallest).clamp(CHORD_ERRORS_NS[0], CHORD_ERRORS_NS[1]);
        let mut knots: Vec<Knot> = Vec::with_capacity(points.len());
        let mut push = |x_ns: f64, value_ns: f64, sigma_ns: f64| {
            let at_ps = base_ps.saturating_add(picoseconds(x_ns));
            if knots.last().is_none_or(|last| last.at_ps < at_ps) {
                knots.push(Knot { at_ps, correction_ps: picoseconds(value_ns), sigma_ns });
            }
        };
        for (index, a) in curve.iter().enumerate() {
            push(a.x_ns, a.value_ns, a.sigma_ns);
            let Some(b) = curve.get(index + 1) else { break };
            let ends = [&points[index], &points[index + 1]];
            let doubt = doubts.get(index).map_or(0.0, |doubt| doubt.gap_ns);
            let sigma = |s: f64| self.sigma(ends, s).hypot(doubt);
            let uneven = sigma(0.5) > (1.0 + UNEVEN) * 0.5 * (a.sigma_ns + b.sigma_ns);
            let steps = steps_between(a, b, error_ns).max(if uneven { UNEVEN_STEPS } else { 1 });
            let shares = (1..steps).map(|step| f64::from(step) / f64::from(steps));
            // A doubt begins at once.
            let (first, last) = if doubt > 0.0 { (Some(AT_ONCE), Some(1.0 - AT_ONCE)) } else { (None, None) };
            for s in first.into_iter().chain(shares).chain(last) {
                push(a.x_ns + s * (b.x_ns - a.x_ns), hermite(a, b, s), sigma(s));
            }
        }
        knots
    }

    /// Standard deviation at the share s of a gap, doubts apart, ns.
    pub(super) fn sigma(&self, [a, b]: [&Point; 2], s: f64) -> f64 {
        let law = self.law.as_ref();
        let posterior = law.filter(|_| self.interpolation == Interpolation::Walk);
        if let Some(sigma) = posterior.and_then(|law| law.sigma_between(a, b, s)) {
            return sigma;
        }
        let straight = a.at.sigma_ns + s * (b.at.sigma_ns - a.at.sigma_ns);
        let share = s * (1.0 - s);
        let missed = match (self.left_out_ns, law, self.interpolation) {
            (Some(error), _, Interpolation::Linear) => error * share,
            (Some(error), ..) => error * share * share,
            (None, Some(law), Interpolation::Linear) => {
                chord_variance(law.density(&[a, b]), seconds_between(a, b), s).sqrt()
            }
            (None, Some(law), _) => return law.sigma_between(a, b, s).unwrap_or(straight),
            (None, None, _) => 0.0,
        };
        straight.hypot(missed)
    }

    /// Continuation of the curve before the first point, or after the last.
    pub(super) fn outside(&self, points: &[Point], end: End, doubt: Doubt, on_reference: bool) -> Option<Continuation> {
        let (point, pair) = match end {
            End::First => (points.first()?, points.get(..2)),
            End::Last => (points.last()?, points.windows(2).last()),
        };
        let slope = point.at.slope.or_else(|| pair.map(|pair| secant(&pair[0].at, &pair[1].at)))?;
        let own = if on_reference { slope / (1.0 + slope) } else { slope };
        let known = self.law.as_ref().zip(covariance(point));
        let growth = match known {
            Some((law, [_, across, rate])) => {
                let disagreement = if law.stated { 0.0 } else { rate_disagreement_ppm(points) * NS_PER_S_PER_PPM };
                let outward = if end == End::First { -across } else { across };
                let near: Vec<&Point> = pair.map_or(vec![point], |pair| pair.iter().collect());
                let density = law.density(&near);
                Growth::Walk {
                    covariance: outward,
                    rate: rate + disagreement * disagreement + doubt.rate_ns_per_s * doubt.rate_ns_per_s,
                    density,
                    bend: bend(points, end == End::First, density).max(BEND_NS_PER_S2),
                }
            }
            None => {
                let ppm = slope_uncertainty_ppm(points).hypot(doubt.rate_ns_per_s / NS_PER_S_PER_PPM);
                Growth::Linear { ppm }
            }
        };
        Some(Continuation { slope_ppm: own * 1e6, growth })
    }
}

/// An end of a segment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    First,
    Last,
}

/// Whether a cubic through the stated rates is more certain than straight lines, in the middle of
/// most gaps.
fn rates_help(points: &[Point], law: &Law) -> bool {
    let gaps = || points.windows(2).map(|pair| [&pair[0], &pair[1]]);
    let helps = |[a, b]: [&Point; 2]| {
        let rates = covariance(a).zip(covariance(b)).map(|(a, b)| a[2] + b[2]).unwrap_or(f64::INFINITY);
        let (delta, density) = (seconds_between(a, b), law.density(&[a, b]));
        delta * delta / 64.0 * rates + bridge(density, delta, 0.5) < chord_variance(density, delta, 0.5)
    };
    2 * gaps().filter(|gap| helps(*gap)).count() > gaps().count()
}

/// How far a walk deviates from the chord between two offsets, ns².
fn chord_variance(density: f64, delta: f64, s: f64) -> f64 {
    density * delta.powi(3) * (s * (1.0 - s)).powi(2) / 3.0
}

/// Distance of each inner point from the prediction of its neighbours.
fn left_out(points: &[Point], interpolation: Interpolation) -> impl Iterator<Item = f64> {
    (2..points.len().saturating_sub(2)).map(move |k| {
        let near: Vec<Point> = [k - 2, k - 1, k + 1, k + 2].iter().map(|&index| points[index]).collect();
        let curve = with_slopes(&near, interpolation);
        let share = (points[k].at.x_ns - curve[1].x_ns) / (curve[2].x_ns - curve[1].x_ns);
        points[k].at.value_ns - hermite(&curve[1], &curve[2], share)
    })
}

fn with_slopes(points: &[Point], interpolation: Interpolation) -> Vec<CurvePoint> {
    let neighbours = |k: usize| {
        let (a, b) = (k.saturating_sub(1), (k + 1).min(points.len() - 1));
        (a < k && k < b).then(|| {
            // The parabola through three points: each side's slope weighs with the other side's
            // length.
            let (left, right) = (secant(&points[a].at, &points[k].at), secant(&points[k].at, &points[b].at));
            let (run_left, run_right) = (points[k].at.x_ns - points[a].at.x_ns, points[b].at.x_ns - points[k].at.x_ns);
            (left * run_right + right * run_left) / (run_left + run_right)
        })
    };
    let slope = |k: usize| match interpolation {
        Interpolation::Linear => None,
        Interpolation::MeasuredSlopes | Interpolation::Walk => points[k].at.slope,
        Interpolation::NeighbourSlopes => neighbours(k),
    };
    (0..points.len()).map(|k| CurvePoint { slope: slope(k), ..points[k].at }).collect()
}

/// Disagreement of drifts and slopes between rounds, ppm: the uncertainty of a drift as a
/// prediction.
fn slope_uncertainty_ppm(points: &[Point]) -> f64 {
    if let [only] = points {
        // Nothing to compare with: what was said of the rate, or what rates of free-running clocks
        // are like.
        let unknown = if only.sample.drift_ppm.is_some() { RATE_PRIOR_PPM / 10.0 } else { RATE_PRIOR_PPM };
        return only.sample.drift_sigma_ppm.filter(|sigma| sigma.is_finite() && *sigma > 0.0).unwrap_or(unknown);
    }
    let ends = points.windows(2).last().map_or(0.0, |pair| {
        pair[0].at.sigma_ns.hypot(pair[1].at.sigma_ns) / (pair[1].at.x_ns - pair[0].at.x_ns).abs().max(1.0) * 1e6
    });
    let ends = if points.last().is_some_and(|point| point.at.slope.is_some()) { 0.0 } else { ends };
    rate_disagreement_ppm(points).hypot(ends).max(WANDER_ALLOWANCE_PPM)
}

fn rate_disagreement_ppm(points: &[Point]) -> f64 {
    let mut departures: Vec<f64> = points
        .windows(3)
        .map(|w| {
            let around = secant(&w[0].at, &w[2].at);
            let own = w[1].at.slope.unwrap_or_else(|| secant(&w[0].at, &w[1].at));
            (own - around).abs() * 1e6
        })
        .filter(|departure| departure.is_finite())
        .collect();
    TO_SIGMA * upper_median(&mut departures).unwrap_or(0.0)
}

/// A chord may miss the curve by this share of the smallest standard deviation,
const CHORD_SHARE: f64 = 0.1;
/// but by no less and no more than these, ns.
const CHORD_ERRORS_NS: [f64; 2] = [0.2, 5.0];
/// A standard deviation that is larger in the middle of a gap by this share is followed
const UNEVEN: f64 = 0.02;
/// in this many parts.
const UNEVEN_STEPS: u32 = 16;
/// The share of a gap within which a doubt begins.
const AT_ONCE: f64 = 1e-6;
/// A cubic must beat the straight line by a fifth.
const CLEARLY: f64 = 0.8;
const FEWEST_TO_JUDGE: usize = 3;
/// Beyond the rounds the clock's rate may wander by at least this much.
const WANDER_ALLOWANCE_PPM: f64 = 0.1;
/// Rates of free-running clocks against each other, standard deviation.
const RATE_PRIOR_PPM: f64 = 50.0;

#[cfg(test)]
mod tests {
    use super::super::OffsetSample;
    use super::*;

    #[test]
    fn neighbours_give_the_slope_of_the_parabola_and_ends_have_none() {
        // y = x² at 0, 1 and 4.
        let point = |x_ns: f64| {
            let at = CurvePoint { x_ns, value_ns: x_ns * x_ns, slope: Some(9.0), sigma_ns: 1.0 };
            Point { at, sample: OffsetSample::bare(0, 0.0) }
        };
        let points = [0.0, 1.0, 4.0].map(point);
        let slopes = |way| with_slopes(&points, way).iter().map(|point| point.slope).collect::<Vec<_>>();
        assert_eq!(slopes(Interpolation::NeighbourSlopes), [None, Some(2.0), None]);
        assert_eq!(slopes(Interpolation::MeasuredSlopes), [Some(9.0); 3]);
        assert_eq!(slopes(Interpolation::Linear), [None; 3]);
    }
}
