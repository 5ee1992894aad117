//! The relation between offsets with covariances, and the uncertainty between them.
//!
//! Two points a and b, Δ seconds apart, state offset, rate and the covariance of both; the rate
//! wanders with density q ([`crate::motion`]).
//! - **Between them** the posterior mean is the cubic through offsets and rates. With its weights h
//!   its variance is that of both ends, through h, plus the bridge `q·Δ³·(s(1−s))³/3`. Errors of
//!   neighbouring offsets are nearly one (a path's asymmetry, a window that both have seen), so
//!   their parts are added, not their squares: `(h₀σ_a + h₁σ_b)²`. Errors of rates count as
//!   independent.
//! - **Against each other**: b lies `ν` from a's prediction, of which the standard deviation is
//!   `√(F·P_a·Fᵀ + Q + P_b)`. A ν of many of these means that one of both is wrong, or that the
//!   clock did what no wander does.
//!
//! q is what the file states; files that do not state it show it by how their lines surprise each
//! other (most likely density, with the heavy tails of Student's t, so that a few wrong lines do
//! not count).

use super::super::growth::bent;
use super::point::Point;
use crate::graph::linear::Block;
use crate::kalman::Belief;
use crate::motion::variance_between;

/// How the clock wanders, as far as a node's lines tell.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Law {
    /// ns²/s³; the default if a line states none.
    density: f64,
    /// All lines state covariances and density.
    pub(super) stated: bool,
}

/// Distance of a line from the prediction of another.
#[derive(Copy, Clone, Debug)]
pub(super) struct Surprise {
    pub(super) off_ns: f64,
    pub(super) sigma_ns: f64,
}

impl Law {
    /// `None` unless most points state a rate and both errors.
    pub(super) fn of(points: &[Point]) -> Option<Self> {
        let believed = points.iter().filter(|point| covariance(point).is_some()).count();
        if 2 * believed <= points.len() {
            return None;
        }
        let states = |point: &Point| {
            covariance(point).is_some()
                && point.sample.offset_drift_covariance.is_some()
                && point.sample.wander.is_some()
        };
        let stated = points.iter().all(states);
        Some(Self { density: if stated { 0.0 } else { likely_density(points) }, stated })
    }

    /// The density around these points.
    pub(super) fn density(&self, points: &[&Point]) -> f64 {
        let stated = points
            .iter()
            .filter_map(|point| wander(point))
            .fold(None, |most: Option<f64>, density| Some(most.map_or(density, |most| most.max(density))));
        stated.unwrap_or(self.density)
    }

    /// Distance of b from the prediction of a, or of a from that of b, whichever is larger.
    pub(super) fn surprise(&self, a: &Point, b: &Point) -> Option<Surprise> {
        let density = self.density(&[a, b]);
        let there = prediction(a, b, density)?;
        let back = prediction(b, a, density)?;
        Some(if there.off_ns.abs() > back.off_ns.abs() { there } else { back })
    }

    /// Standard deviation at the share s of the way from a to b, on the cubic; `None` if one of
    /// them states too little.
    pub(super) fn sigma_between(&self, a: &Point, b: &Point, s: f64) -> Option<f64> {
        let ends = [covariance(a)?, covariance(b)?];
        Some(variance_between(ends, self.density(&[a, b]), seconds_between(a, b), s).sqrt())
    }
}

/// Covariance of offset and rate, ns², ns²/s, ns²/s²; `None` if not stated.
pub(super) fn covariance(point: &Point) -> Option<Block> {
    let sample = &point.sample;
    let positive = |sigma: &f64| sigma.is_finite() && *sigma > 0.0;
    point.at.slope?;
    let sigma = sample.sigma_ns.filter(positive)?;
    let rate = sample.drift_sigma_ppm.filter(positive)? * NS_PER_S_PER_PPM;
    let across = sample.offset_drift_covariance.filter(|c| c.is_finite()).unwrap_or(0.0) * NS_PER_S_PER_PPM;
    let most = MOST_CORRELATED * sigma * rate;
    Some([sigma * sigma, across.clamp(-most, most), rate * rate])
}

fn wander(point: &Point) -> Option<f64> {
    point.sample.wander.filter(|density| density.is_finite() && *density >= 0.0)
}

pub(super) fn seconds_between(a: &Point, b: &Point) -> f64 {
    (b.at.x_ns - a.at.x_ns) * 1e-9
}

/// ns/s.
fn rate(point: &Point) -> f64 {
    point.at.slope.unwrap_or(0.0) * 1e9
}

/// `to` as `from` predicts it, forward or backward in time.
fn prediction(from: &Point, to: &Point, density: f64) -> Option<Surprise> {
    let (own, other) = (covariance(from)?, covariance(to)?);
    let delta = seconds_between(from, to);
    let off_ns = to.at.value_ns - from.at.value_ns - delta * rate(from);
    // Backward the same wander adds; only the covariance of offset and rate changes its sign.
    let known = own[0] + delta * (2.0 * own[1] + delta * own[2]);
    let variance = known.max(0.0) + density * delta.abs().powi(3) / 3.0 + other[0];
    Some(Surprise { off_ns, sigma_ns: variance.sqrt() })
}

/// Bend of the clock beyond what a walk of this density explains, ns/s²: the mean square of each
/// point's prediction error for those some seconds later (`backward`: earlier). A clock that warmed
/// up once may do so again, and nothing shows it beyond the last packet.
pub(super) fn bend(points: &[Point], backward: bool, density: f64) -> f64 {
    let stride = points.len().div_ceil(MOST_GAPS).max(1);
    let at_lag = |lag_s: f64| {
        let bends = (0..points.len()).step_by(stride).filter_map(|k| {
            let later = points.partition_point(|point| point.at.x_ns < points[k].at.x_ns + lag_s * 1e9);
            let (early, late) = (&points[k], points.get(later)?);
            let found = if backward { prediction(late, early, density) } else { prediction(early, late, density) }?;
            let one = bent(seconds_between(early, late));
            Some((found.off_ns.powi(2) - found.sigma_ns.powi(2)) / (one * one))
        });
        let (sum, count) = bends.fold((0.0, 0), |(sum, count), square| (sum + square, count + 1));
        if count < FEWEST_BENDS { 0.0 } else { (sum / f64::from(count)).max(0.0).sqrt() }
    };
    LAGS_S.map(at_lag).into_iter().fold(0.0, f64::max)
}

/// The density under which the points surprise each other least.
fn likely_density(points: &[Point]) -> f64 {
    let stride = points.len().div_ceil(MOST_GAPS).max(1);
    let gaps: Vec<[&Point; 2]> = points.windows(2).step_by(stride).map(|pair| [&pair[0], &pair[1]]).collect();
    let grid = (0..GRID).map(|power| SMALLEST_DENSITY * 4f64.powi(power));
    let likelihood = |density: f64| gaps.iter().filter_map(|gap| log_likelihood(*gap, density)).sum::<f64>();
    let best = grid.map(|density| (density, likelihood(density))).max_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(0.0, |(density, _)| density)
}

fn log_likelihood([a, b]: [&Point; 2], density: f64) -> Option<f64> {
    let delta = seconds_between(a, b);
    if delta <= 0.0 {
        return None;
    }
    let belief = Belief { state: [0.0, rate(a)], covariance: covariance(a)? };
    let measured = [b.at.value_ns - a.at.value_ns, rate(b)];
    let innovation = belief.predicted(delta, density).innovation(measured, covariance(b)?)?;
    // Of a covariance, not of a scale: where errors have no heavy tails, rather too much wander
    // than too little.
    let tails = 0.5 * (FREEDOM + 2.0) * (innovation.distance / (FREEDOM - 2.0)).ln_1p();
    Some(-0.5 * innovation.determinant.ln() - tails)
}

/// A millionth is 1000 ns per s.
const NS_PER_S_PER_PPM: f64 = crate::motion::NS_PER_S_PER_PPM;
/// Offset and rate are never known as one number.
const MOST_CORRELATED: f64 = 0.999;
/// Gaps from which a density is learnt.
const MOST_GAPS: usize = 4096;
/// Densities from 10⁻⁴ ns²/s³ to beyond 10¹² that are tried.
const SMALLEST_DENSITY: f64 = 1e-4;
const GRID: i32 = 28;
/// How much later the clock is checked, s, and by how many points at least.
const LAGS_S: [f64; 4] = [2.0, 4.0, 8.0, 16.0];
const FEWEST_BENDS: u32 = 4;
/// Degrees of freedom of Student's t.
const FREEDOM: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::super::super::curve::CurvePoint;
    use super::super::OffsetSample;
    use super::*;

    fn point(x_ns: f64, value_ns: f64, [sigma_ns, rate_sigma, across]: [f64; 3], rate: f64, wander: f64) -> Point {
        let sample = OffsetSample {
            sigma_ns: Some(sigma_ns),
            drift_sigma_ppm: Some(rate_sigma * 1e-3),
            offset_drift_covariance: Some(across * 1e-3),
            wander: Some(wander),
            ..OffsetSample::bare(0, value_ns)
        };
        Point { at: CurvePoint { x_ns, value_ns, slope: Some(rate * 1e-9), sigma_ns }, sample }
    }

    /// Two lines 2 s apart: errors of 3 and 4 ns, of 2 and 3 ns/s, covariances of 4 and −6 ns²/s,
    /// wander of 5 ns²/s³.
    fn two() -> [Point; 2] {
        [point(1e9, 10.0, [3.0, 2.0, 4.0], 5.0, 5.0), point(3e9, 17.0, [4.0, 3.0, -6.0], 6.0, 2.0)]
    }

    fn check(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected.abs(), "{found} instead of {expected}");
    }

    #[test]
    fn the_error_between_two_lines_is_that_of_the_formula() {
        let [a, b] = two();
        let law = Law { density: 0.0, stated: true };
        // At a quarter the weights are 0.84375 and 0.15625 of the offsets, 0.28125 s and −0.09375 s
        // of the rates: (0.84375·3 + 0.15625·4)² = 9.9619140625; 0.28125²·4 + 0.09375²·9 =
        // 0.3955078125; 2(0.84375·0.28125·4 + 0.15625·0.09375·6) = 2.07421875; the bridge
        // 5·2³·0.1875³/3 = 0.087890625.
        check(law.sigma_between(&a, &b, 0.25).expect("both state all"), 12.51953125f64.sqrt());
        // From the other side: what is at s is what was at 1 − s, but for the signs of the rates.
        let turned = |p: Point| point(-p.at.x_ns, p.at.value_ns, [p.at.sigma_ns, 0.0, 0.0], 0.0, 5.0);
        assert_eq!(law.sigma_between(&turned(b), &turned(a), 0.75), None, "rates without errors say nothing");
    }

    #[test]
    fn a_prediction_is_as_sure_as_the_formula_says() {
        let [a, b] = two();
        // 17 − 10 − 2·5 = −3; 9 + 2·(2·4 + 2·4) + 5·8/3 + 16.
        let there = prediction(&a, &b, 5.0).expect("both state all");
        check(there.off_ns, -3.0);
        check(there.sigma_ns, (57.0 + 40.0 / 3.0f64).sqrt());
        // 10 − 17 + 2·6 = 5; 16 − 2·(2·(−6) − 2·9) + 5·8/3 + 9.
        let back = prediction(&b, &a, 5.0).expect("both state all");
        check(back.off_ns, 5.0);
        check(back.sigma_ns, (85.0 + 40.0 / 3.0f64).sqrt());
        let further = Law { density: 0.0, stated: true }.surprise(&a, &b).expect("both state all");
        check(further.off_ns, 5.0);
    }

    #[test]
    fn a_wander_that_is_no_density_is_not_stated() {
        let law = Law { density: 7.0, stated: false };
        let density = |wander: f64| law.density(&[&point(0.0, 0.0, [1.0, 1.0, 0.0], 0.0, wander)]);
        assert_eq!([-1.0, f64::NAN, f64::INFINITY, 0.0, 3.0].map(density), [7.0, 7.0, 7.0, 0.0, 3.0]);
        let [a, b] = two();
        assert_eq!(law.density(&[&b, &a]), 5.0);
    }

    #[test]
    fn a_rate_beyond_the_end_adds_what_it_is_uncertain_by() {
        use super::super::super::growth::Growth;
        use super::super::join::{Doubt, End, Interpolation, Joining};
        let law = Some(Law { density: 0.0, stated: true });
        let joining = Joining { interpolation: Interpolation::Walk, left_out_ns: None, law };
        let doubt = Doubt { rate_ns_per_s: 3.0, ..Doubt::default() };
        let walk = |end| {
            let found = joining.outside(&two(), end, doubt, false).expect("a rate is stated");
            let Growth::Walk { covariance, rate, density, .. } = found.growth else { panic!("{found:?}") };
            [covariance, rate, density, found.slope_ppm]
        };
        let near = |found: [f64; 4], expected: [f64; 4]| {
            for (found, expected) in found.into_iter().zip(expected) {
                check(found, expected);
            }
        };
        near(walk(End::First), [-4.0, 13.0, 5.0, 0.005]);
        near(walk(End::Last), [-6.0, 18.0, 5.0, 0.006]);
    }
}
