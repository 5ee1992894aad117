//! A node's offsets, round by round, as a map S_i → S_0.
//!
//! Place in the flow: last stage of a run's estimates, first of alignment. A round says: when the reference clock read M,
//! the node's clock was `offset` ahead, so the node read M + offset, and that is where a knot with this correction
//! belongs. Tables of exact offsets give the node's own reading instead ([`Axis::Own`]).
//!
//! Between rounds a straight line or a cubic through the rounds' slopes: whichever predicts left-out rounds better, by a
//! fifth at least; the slopes are the measured drifts or, failing these, those of the neighbours. A drift that is noisier
//! than the clock bends the wrong way, which is why it is not simply trusted.
//!
//! Steps: a gap between rounds breaks the segment when its slope agrees neither with the measured drifts, nor with its
//! neighbours on the left, nor with those on the right. A single round between two such gaps, whose window holds the
//! step, is dropped. What it does not do: see a step smaller than six standard deviations.

use super::curve::{CurvePoint, hermite, sample_curve};
use super::map::{Continuation, Segment, TimeMap, unusable};
use crate::Error;
use crate::statistics::{TO_SIGMA, upper_median};

/// One round's estimate for one node.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct OffsetSample {
    /// When, ns; on which clock says [`Axis`].
    pub at_ns: i64,
    /// This clock minus the reference clock, ns.
    pub offset_ns: f64,
    /// Its rate, where measured.
    pub drift_ppm: Option<f64>,
    /// Standard deviation of the offset, where known.
    pub sigma_ns: Option<f64>,
    /// Standard deviation of the rate, where known.
    pub drift_sigma_ppm: Option<f64>,
}

/// Whose clock gave the times of the samples.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The reference clock's.
    Reference,
    /// The node's own, in order of true time: a time that goes back is a step.
    Own,
}

/// How the map runs between rounds.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// Straight.
    Linear,
    /// A cubic with the measured drifts as slopes.
    MeasuredSlopes,
    /// A cubic with the neighbours' slopes.
    NeighbourSlopes,
}

/// The map of one node, and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct OffsetMap {
    /// S_i → S_0.
    pub map: TimeMap,
    /// Samples used.
    pub used: usize,
    /// Samples dropped: their window holds a step, out of order, or not numbers.
    pub dropped: usize,
    /// What runs between the samples.
    pub interpolation: Interpolation,
    /// Typical error of predicting a left-out round, ns; None with fewer than three.
    pub left_out_error_ns: Option<f64>,
}

impl TimeMap {
    /// The map of one node from its reachable rounds. `steps_ns` are times on the node's clock at which something else
    /// saw it step; the round gaps that hold them break there.
    ///
    /// # Errors
    /// [`Error::UnusableKnots`] when no sample can be used.
    pub fn from_offsets(samples: &[OffsetSample], axis: Axis, steps_ns: &[i64]) -> Result<OffsetMap, Error> {
        let first = samples.first().ok_or_else(|| unusable("there are no offsets"))?;
        let base = Base { x_ns: first.at_ns, axis };
        let mut points = base.points(samples);
        let noise = Noise::of(&points);
        for (place, (point, sample)) in points.iter_mut().enumerate() {
            let stated = sample.sigma_ns.filter(|s| s.is_finite() && *s >= 0.0);
            point.sigma_ns = stated.unwrap_or_else(|| noise.sigma_ns(place));
        }
        let mut breaks = find_breaks(&points, &base, steps_ns);
        if drop_lone_points(&mut points, &breaks) > 0 {
            breaks = find_breaks(&points, &base, steps_ns);
        }
        let ranges = ranges(points.len(), &breaks);
        let (interpolation, left_out_error_ns) = choose(&points, &ranges);
        let segments: Vec<Segment> = ranges
            .iter()
            .map(|range| base.segment(&points[range.from..range.until], interpolation, range.start_ns))
            .collect();
        Ok(OffsetMap {
            map: TimeMap::new(&segments)?,
            used: points.len(),
            dropped: samples.len() - points.len(),
            interpolation,
            left_out_error_ns,
        })
    }
}

type Point = (CurvePoint, OffsetSample);

/// Where positions are counted from.
struct Base {
    x_ns: i64,
    axis: Axis,
}

impl Base {
    /// Samples as points of a curve, positions ascending in true time.
    fn points(&self, samples: &[OffsetSample]) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::with_capacity(samples.len());
        for sample in samples.iter().filter(|sample| sample.offset_ns.abs() <= FARTHEST_OFFSET_NS) {
            let x_ns = (i128::from(sample.at_ns) - i128::from(self.x_ns)) as f64;
            let slope = sample.drift_ppm.filter(|ppm| ppm.abs() <= STEEPEST_PPM).map(|ppm| ppm * 1e-6);
            let repeated = points.last().is_some_and(|last| last.0.x_ns == x_ns);
            let back = points.last().is_some_and(|last| last.0.x_ns > x_ns);
            if !(repeated || back && self.axis == Axis::Reference) {
                points.push((CurvePoint { x_ns, value_ns: sample.offset_ns, slope, sigma_ns: 0.0 }, *sample));
            }
        }
        points
    }

    /// Where a point lies on the node's own clock, ns.
    fn own_ns(&self, point: &CurvePoint) -> i128 {
        let shift = if self.axis == Axis::Reference { point.value_ns } else { 0.0 };
        i128::from(self.x_ns) + (point.x_ns + shift) as i128
    }

    /// Knots of one segment. On the reference's axis the curve is sampled there first, then moved to the node's axis.
    fn segment(&self, points: &[Point], interpolation: Interpolation, start_ns: Option<i64>) -> Segment {
        let curve = with_slopes(points, interpolation);
        let mut knots = sample_curve(&curve, i128::from(self.x_ns) * 1000, 0);
        if self.axis == Axis::Reference {
            for knot in &mut knots {
                knot.at_ps += knot.correction_ps;
            }
            // A curve that falls faster than time runs has no place on a clock.
            knots.dedup_by(|later, kept| later.at_ps <= kept.at_ps);
        }
        let growth_ppm = slope_uncertainty_ppm(points);
        let outside = |point: Option<&Point>, secant: Option<f64>| {
            let slope = point.and_then(|point| point.0.slope).or(secant)?;
            let own = if self.axis == Axis::Reference { slope / (1.0 + slope) } else { slope };
            Some(Continuation { slope_ppm: own * 1e6, growth_ppm })
        };
        Segment {
            before: outside(points.first(), points.get(..2).map(|pair| secant(&pair[0].0, &pair[1].0))),
            after: outside(points.last(), points.windows(2).last().map(|pair| secant(&pair[0].0, &pair[1].0))),
            start_ps: start_ns.map(|ns| i128::from(ns) * 1000),
            knots,
        }
    }
}

/// How much samples scatter, for those that do not say.
struct Noise {
    /// |Second difference| at each inner point, ns.
    bends: Vec<f64>,
    /// The median of all.
    overall: f64,
}

impl Noise {
    /// Second differences of white noise have a standard deviation of √6; bends of the clock count as noise.
    fn of(points: &[Point]) -> Self {
        let bends: Vec<f64> = points
            .windows(3)
            .map(|w| {
                let share = (w[1].0.x_ns - w[0].0.x_ns) / (w[2].0.x_ns - w[0].0.x_ns);
                2.0 * (w[1].0.value_ns - w[0].0.value_ns - share * (w[2].0.value_ns - w[0].0.value_ns)).abs()
            })
            .collect();
        let mut finite: Vec<f64> = bends.iter().copied().filter(|bend| bend.is_finite()).collect();
        let overall = upper_median(&mut finite).unwrap_or(0.0);
        Self { bends, overall }
    }

    /// The noise around a point, never below that of all: a recorder may write one value for minutes, and then again
    /// readings that scatter.
    fn sigma_ns(&self, place: usize) -> f64 {
        let near = place.saturating_sub(LOCAL_BENDS + 1)..(place + LOCAL_BENDS).min(self.bends.len());
        let mut near: Vec<f64> = self.bends[near].iter().copied().filter(|bend| bend.is_finite()).collect();
        let typical = upper_median(&mut near).unwrap_or(0.0).max(self.overall);
        (TO_SIGMA * typical / 6f64.sqrt()).max(SMALLEST_SIGMA_NS)
    }
}

/// A gap after which a new segment begins, and where, if that is known.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Gap {
    /// Between this point and the next.
    after: usize,
    start_ns: Option<i64>,
}

fn find_breaks(points: &[Point], base: &Base, steps_ns: &[i64]) -> Vec<Gap> {
    let secants: Vec<f64> = points.windows(2).map(|pair| secant(&pair[0].0, &pair[1].0)).collect();
    (0..secants.len())
        .filter_map(|after| {
            let ends = [base.own_ns(&points[after].0), base.own_ns(&points[after + 1].0)];
            let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            let seen = steps_ns.iter().copied().find(|&ns| low <= i128::from(ns) && i128::from(ns) <= high);
            (seen.is_some() || is_step(points, &secants, after)).then_some(Gap { after, start_ns: seen })
        })
        .collect()
}

fn is_step(points: &[Point], secants: &[f64], gap: usize) -> bool {
    let (a, b) = (&points[gap].0, &points[gap + 1].0);
    let run = b.x_ns - a.x_ns;
    if run <= 0.0 {
        return true;
    }
    let own = secants[gap];
    let near = |index: Option<usize>| index.and_then(|index| secants.get(index)).copied();
    let (left, left2) = (near(gap.checked_sub(1)), near(gap.checked_sub(2)));
    let (right, right2) = (near(Some(gap + 1)), near(Some(gap + 2)));
    let straight = |one: Option<f64>, two: Option<f64>| Some(2.0 * one? - two?);
    let measured = a.slope.zip(b.slope);
    let expected = [measured.map(|(a, b)| 0.5 * (a + b)), left, right, straight(left, left2), straight(right, right2)];
    let expected: Vec<f64> = expected.into_iter().flatten().collect();
    // One gap alone: nothing to compare with but that clocks do not run off by a thousandth.
    let nearest = expected.iter().map(|slope| (own - slope).abs()).fold(f64::INFINITY, f64::min);
    let nearest = if expected.is_empty() { own.abs() - LONELY_SLOPE } else { nearest };
    // A rate that changes on the way may change by as much as its neighbours differ.
    let bend = measured.map_or(0.0, |(a, b)| 0.5 * (a - b).abs());
    let noise = STEP_SIGMAS * a.sigma_ns.hypot(b.sigma_ns).max(SMALLEST_SIGMA_NS);
    nearest * run > noise + run * (bend + STEP_ALLOWANCE) + SMALLEST_STEP_NS
}

/// Drops single points between two breaks; returns how many.
fn drop_lone_points(points: &mut Vec<Point>, breaks: &[Gap]) -> usize {
    let before = points.len();
    let lone: Vec<usize> =
        breaks.windows(2).filter(|pair| pair[0].after + 1 == pair[1].after).map(|pair| pair[1].after).collect();
    let mut index = 0;
    points.retain(|_| {
        let keep = lone.binary_search(&index).is_err();
        index += 1;
        keep
    });
    before - points.len()
}

/// Points `from..until` make a segment that takes over at `start_ns`.
struct Range {
    from: usize,
    until: usize,
    start_ns: Option<i64>,
}

fn ranges(count: usize, breaks: &[Gap]) -> Vec<Range> {
    let mut ranges = Vec::with_capacity(breaks.len() + 1);
    let (mut from, mut start_ns) = (0, None);
    for gap in breaks {
        ranges.push(Range { from, until: gap.after + 1, start_ns });
        (from, start_ns) = (gap.after + 1, gap.start_ns);
    }
    ranges.push(Range { from, until: count, start_ns });
    ranges
}

/// Straight lines unless a cubic predicts left-out points clearly better.
fn choose(points: &[Point], ranges: &[Range]) -> (Interpolation, Option<f64>) {
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
    best
}

/// How far each inner point is from what its neighbours predict without it.
fn left_out(points: &[Point], interpolation: Interpolation) -> impl Iterator<Item = f64> {
    (2..points.len().saturating_sub(2)).map(move |k| {
        let near: Vec<Point> = [k - 2, k - 1, k + 1, k + 2].iter().map(|&index| points[index]).collect();
        let curve = with_slopes(&near, interpolation);
        let share = (points[k].0.x_ns - curve[1].x_ns) / (curve[2].x_ns - curve[1].x_ns);
        points[k].0.value_ns - hermite(&curve[1], &curve[2], share)
    })
}

fn with_slopes(points: &[Point], interpolation: Interpolation) -> Vec<CurvePoint> {
    let neighbours = |k: usize| {
        let (a, b) = (k.saturating_sub(1), (k + 1).min(points.len() - 1));
        (a < k && k < b).then(|| {
            // The parabola through three points: each side's slope weighs with the other side's length.
            let (left, right) = (secant(&points[a].0, &points[k].0), secant(&points[k].0, &points[b].0));
            let (run_left, run_right) = (points[k].0.x_ns - points[a].0.x_ns, points[b].0.x_ns - points[k].0.x_ns);
            (left * run_right + right * run_left) / (run_left + run_right)
        })
    };
    let slope = |k: usize| match interpolation {
        Interpolation::Linear => None,
        Interpolation::MeasuredSlopes => points[k].0.slope,
        Interpolation::NeighbourSlopes => neighbours(k),
    };
    (0..points.len()).map(|k| CurvePoint { slope: slope(k), ..points[k].0 }).collect()
}

/// How far drifts and the slopes between rounds disagree, ppm: what a drift is worth as a prediction.
fn slope_uncertainty_ppm(points: &[Point]) -> f64 {
    if let [(_, only)] = points {
        // Nothing to compare with: what was said of the rate, or what rates of free-running clocks are like.
        let unknown = if only.drift_ppm.is_some() { RATE_PRIOR_PPM / 10.0 } else { RATE_PRIOR_PPM };
        return only.drift_sigma_ppm.filter(|sigma| sigma.is_finite() && *sigma > 0.0).unwrap_or(unknown);
    }
    let mut departures: Vec<f64> = points
        .windows(3)
        .map(|w| {
            let around = secant(&w[0].0, &w[2].0);
            let own = w[1].0.slope.unwrap_or_else(|| secant(&w[0].0, &w[1].0));
            (own - around).abs() * 1e6
        })
        .filter(|departure| departure.is_finite())
        .collect();
    let ends = points.windows(2).last().map_or(0.0, |pair| {
        pair[0].0.sigma_ns.hypot(pair[1].0.sigma_ns) / (pair[1].0.x_ns - pair[0].0.x_ns).abs().max(1.0) * 1e6
    });
    let ends = if points.last().is_some_and(|point| point.0.slope.is_some()) { 0.0 } else { ends };
    let typical = TO_SIGMA * upper_median(&mut departures).unwrap_or(0.0);
    typical.hypot(ends).max(WANDER_ALLOWANCE_PPM)
}

fn secant(a: &CurvePoint, b: &CurvePoint) -> f64 {
    (b.value_ns - a.value_ns) / (b.x_ns - a.x_ns)
}

/// Offsets are written in whole ns by some: 1/√12.
const SMALLEST_SIGMA_NS: f64 = 0.3;
/// Second differences on each side that say how much samples scatter here.
const LOCAL_BENDS: usize = 6;
/// 300 years: beyond it a file says nonsense.
const FARTHEST_OFFSET_NS: f64 = 9.0e18;
/// Clocks that run off faster than 10 % are not clocks.
const STEEPEST_PPM: f64 = 1e5;
const STEP_SIGMAS: f64 = 6.0;
/// A rate may change by 20 ppm between rounds without a step: 80 µs in a window of 4 s.
const STEP_ALLOWANCE: f64 = 20e-6;
/// Nothing below this is worth a break.
const SMALLEST_STEP_NS: f64 = 500.0;
/// With one gap only: adjtimex holds clocks within 500 ppm.
const LONELY_SLOPE: f64 = 1e-3;
/// A cubic must beat the straight line by a fifth.
const CLEARLY: f64 = 0.8;
const FEWEST_TO_JUDGE: usize = 3;
/// Beyond the rounds the clock's rate may wander by at least this much.
const WANDER_ALLOWANCE_PPM: f64 = 0.1;

/// Rates of free-running clocks against each other, standard deviation.
const RATE_PRIOR_PPM: f64 = 50.0;

#[cfg(test)]
mod tests;
