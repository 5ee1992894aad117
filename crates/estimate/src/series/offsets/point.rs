//! A node's offsets as read from a file, and as points of a curve.

use probe_sync_lines::StepRecord;

use super::super::curve::CurvePoint;
use crate::statistics::{TO_SIGMA, upper_median};

/// One line's estimate for one node.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct OffsetSample {
    /// Time, ns, on the clock given by [`Axis`].
    pub at_ns: i64,
    /// This clock minus the reference clock, ns.
    pub offset_ns: f64,
    /// Rate of the clock, ppm, if measured.
    pub drift_ppm: Option<f64>,
    /// Standard deviation of the offset, ns, if known.
    pub sigma_ns: Option<f64>,
    /// Standard deviation of the rate, ppm, if known.
    pub drift_sigma_ppm: Option<f64>,
    /// Covariance of offset and rate, ns·ppm, if known.
    pub offset_drift_covariance: Option<f64>,
    /// Density of the rate's random walk, ns²/s³, if stated.
    pub wander: Option<f64>,
    /// True if the clock or the reference was stepped or slewed, or its stamps must not be used; it
    /// is not a knot then.
    pub disturbed: bool,
    /// Detected change of both clocks' rates in the line's window, ppm; 0 if none was detected.
    pub slew_ppm: f64,
    /// A step of the clock in the line's window, on the clock itself.
    pub step: Option<Step>,
    /// Round of the line, if stated.
    pub round: Option<u64>,
    /// Round, its own or an earlier one, before which the line reports a break of the clock.
    pub broken_into: Option<u64>,
}

impl OffsetSample {
    /// Creates a sample of which only the offset is known.
    pub const fn bare(at_ns: i64, offset_ns: f64) -> Self {
        Self {
            at_ns,
            offset_ns,
            drift_ppm: None,
            sigma_ns: None,
            drift_sigma_ppm: None,
            offset_drift_covariance: None,
            wander: None,
            disturbed: false,
            slew_ppm: 0.0,
            step: None,
            round: None,
            broken_into: None,
        }
    }

    /// The standard deviation, if it is stated and plausible.
    fn stated_sigma_ns(&self) -> Option<f64> {
        self.sigma_ns.filter(|sigma| sigma.is_finite() && *sigma >= 0.0)
    }
}

/// A step of a clock, or a restart with another offset, after it had shown `after_ns` and before it
/// showed `before_ns`. If the clock was set back, the latter may be smaller.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Last reading known to be before the step, ns.
    pub after_ns: i64,
    /// First reading known to be after the step, ns.
    pub before_ns: i64,
}

impl From<StepRecord> for Step {
    fn from(record: StepRecord) -> Self {
        Self { after_ns: record.after.as_ns(), before_ns: record.before.as_ns() }
    }
}

impl Step {
    /// Two statements about one gap: their intersection for one step, or from the first step to the
    /// second.
    pub(super) fn and(self, other: &Self) -> Self {
        let ([low, high], [other_low, other_high]) = (self.hull(), other.hull());
        if low.max(other_low) <= high.min(other_high) {
            Self { after_ns: self.after_ns.max(other.after_ns), before_ns: self.before_ns.min(other.before_ns) }
        } else {
            Self { after_ns: self.after_ns.min(other.after_ns), before_ns: self.before_ns.max(other.before_ns) }
        }
    }

    /// Its readings in order of size.
    pub(super) fn hull(&self) -> [i128; 2] {
        [self.after_ns.min(self.before_ns), self.after_ns.max(self.before_ns)].map(i128::from)
    }
}

/// Basis of the standard deviations of a node's map.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Every sample states its own.
    Stated,
    /// Samples state none, but are numerous enough to estimate it from their scatter. An error
    /// common to all of them does not show.
    Scatter,
    /// Samples state none, and are too few to estimate it from their scatter.
    Unknown,
}

impl Certainty {
    /// Looks at the points of a curve. A table on the node's own clock holds exact offsets: few of
    /// them suffice.
    pub(super) fn of(points: &[Point], axis: Axis) -> Self {
        match points.iter().all(|point| point.sample.stated_sigma_ns().is_some()) {
            true => Self::Stated,
            false if axis == Axis::Reference && points.len() < FEWEST_TO_SCATTER => Self::Unknown,
            false => Self::Scatter,
        }
    }
}

/// Clock of the samples' times.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Axis {
    /// The reference clock.
    Reference,
    /// The node's own clock, in order of true time: a time that goes back is a step.
    Own,
}

/// A sample as a point of the node's curve.
#[derive(Copy, Clone, Debug)]
pub(super) struct Point {
    pub(super) at: CurvePoint,
    pub(super) sample: OffsetSample,
}

/// Origin of positions.
pub(super) struct Base {
    pub(super) x_ns: i64,
    pub(super) axis: Axis,
}

impl Base {
    /// Samples as points of a curve, positions ascending in true time; those that state no error
    /// get that of their scatter.
    pub(super) fn points(&self, samples: &[OffsetSample]) -> Vec<Point> {
        let mut points: Vec<Point> = Vec::with_capacity(samples.len());
        for sample in samples.iter().filter(|sample| sample.offset_ns.abs() <= FARTHEST_OFFSET_NS) {
            let x_ns = (i128::from(sample.at_ns) - i128::from(self.x_ns)) as f64;
            let slope = sample.drift_ppm.filter(|ppm| ppm.abs() <= STEEPEST_PPM).map(|ppm| ppm * 1e-6);
            let repeated = points.last().is_some_and(|last| last.at.x_ns == x_ns);
            let back = points.last().is_some_and(|last| last.at.x_ns > x_ns);
            if !(repeated || back && self.axis == Axis::Reference) {
                let at = CurvePoint { x_ns, value_ns: sample.offset_ns, slope, sigma_ns: 0.0 };
                points.push(Point { at, sample: *sample });
            }
        }
        let noise = Noise::of(&points);
        for (place, point) in points.iter_mut().enumerate() {
            let scatter_ns = || noise.sigma_ns(place).max(SHARED_SIGMA_NS);
            point.at.sigma_ns = point.sample.stated_sigma_ns().unwrap_or_else(scatter_ns);
        }
        points
    }

    /// Position of a point on the node's own clock, ns.
    pub(super) fn own_ns(&self, point: &CurvePoint) -> i128 {
        let shift = if self.axis == Axis::Reference { point.value_ns } else { 0.0 };
        i128::from(self.x_ns) + (point.x_ns + shift) as i128
    }
}

/// Scatter of samples, for those that state no error.
struct Noise {
    /// |Second difference| at each inner point, ns.
    bends: Vec<f64>,
    /// The median of all.
    overall: f64,
}

impl Noise {
    /// Second differences of white noise have a standard deviation of √6; bends of the clock count
    /// as noise.
    fn of(points: &[Point]) -> Self {
        let bends: Vec<f64> = points
            .windows(3)
            .map(|w| {
                let share = (w[1].at.x_ns - w[0].at.x_ns) / (w[2].at.x_ns - w[0].at.x_ns);
                2.0 * (w[1].at.value_ns - w[0].at.value_ns - share * (w[2].at.value_ns - w[0].at.value_ns)).abs()
            })
            .collect();
        let mut finite: Vec<f64> = bends.iter().copied().filter(|bend| bend.is_finite()).collect();
        let overall = upper_median(&mut finite).unwrap_or(0.0);
        Self { bends, overall }
    }

    /// The noise around a point, never below that of all: a recorder may write one value for
    /// minutes, and then again readings that scatter.
    fn sigma_ns(&self, place: usize) -> f64 {
        let near = place.saturating_sub(LOCAL_BENDS + 1)..(place + LOCAL_BENDS).min(self.bends.len());
        let mut near: Vec<f64> = self.bends[near].iter().copied().filter(|bend| bend.is_finite()).collect();
        let typical = upper_median(&mut near).unwrap_or(0.0).max(self.overall);
        (TO_SIGMA * typical / 6f64.sqrt()).max(SMALLEST_SIGMA_NS)
    }
}

pub(super) fn secant(a: &CurvePoint, b: &CurvePoint) -> f64 {
    (b.value_ns - a.value_ns) / (b.x_ns - a.x_ns)
}

/// Some programs write offsets in integer ns: 1/√12.
pub(super) const SMALLEST_SIGMA_NS: f64 = 0.3;
/// Fewer samples than these do not show how much they scatter.
const FEWEST_TO_SCATTER: usize = 8;
/// An error common to all samples, such as that of one path's asymmetry, does not scatter: this is
/// what the best measurements between hosts reach.
const SHARED_SIGMA_NS: f64 = 100.0;
/// Second differences on each side that say how much samples scatter here.
const LOCAL_BENDS: usize = 6;
/// 300 years: beyond it a file says nonsense.
const FARTHEST_OFFSET_NS: f64 = 9.0e18;
/// Clocks that run off faster than 10 % are not clocks.
const STEEPEST_PPM: f64 = 1e5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_lies_on_its_own_clock_with_its_offset_added() {
        let at = CurvePoint { x_ns: 50.0, value_ns: 7.0, slope: None, sigma_ns: 1.0 };
        assert_eq!(Base { x_ns: 1000, axis: Axis::Reference }.own_ns(&at), 1057);
        assert_eq!(Base { x_ns: 1000, axis: Axis::Own }.own_ns(&at), 1050);
    }

    #[test]
    fn what_unevenly_spaced_samples_scatter_by_is_their_second_difference() {
        let point = |(x_ns, value_ns): (f64, f64)| {
            let at = CurvePoint { x_ns, value_ns, slope: None, sigma_ns: 0.0 };
            Point { at, sample: OffsetSample::bare(0, value_ns) }
        };
        // The chord from (1, 3) to (5, 7) is at 4 where x is 2; 13 is 9 above it.
        let noise = Noise::of(&[(1.0, 3.0), (2.0, 13.0), (5.0, 7.0)].map(point));
        assert_eq!((noise.bends.as_slice(), noise.overall), (&[18.0][..], 18.0));
        assert!((noise.sigma_ns(1) - TO_SIGMA * 18.0 / 6f64.sqrt()).abs() < 1e-9);
    }
}
