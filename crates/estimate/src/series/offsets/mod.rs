//! A node's offsets, line by line, as a map S_i → S_0.
//!
//! This is the last stage of a run's estimates and the first of alignment. A line states that when
//! the reference clock read M, the node's clock was `offset` ahead. The node then read M + offset,
//! and a knot with this correction belongs there. Tables of exact offsets give the node's own
//! reading instead ([`Axis::Own`]).
//!
//! [`point`] reads the lines, [`breaks`] finds where the curve is broken and which lines lie off
//! it, [`join`] runs a curve through the rest and says how sure it is, with [`law`] where lines
//! state their covariances.
//!
//! A line whose clock was disturbed is no knot. The map bridges it, and what is unknown there is
//! stated: how far the line lies from the bridge, since that may be true, and an eighth of the
//! change of rate that somebody saw times the bridge's length, which is what a cubic misses of a
//! kink in its middle. Lines off the curve that nobody flagged are treated alike, and so is a gap
//! whose ends do not fit each other. It does not detect an unreported step smaller than six
//! standard deviations.

mod breaks;
mod join;
mod law;
mod point;

pub use breaks::KnownBreaks;
pub use join::Interpolation;
pub use point::{Axis, Certainty, OffsetSample, Step};

use std::collections::BTreeMap;

use super::curve::hermite;
use super::map::{Segment, TimeMap, unusable};
use crate::Error;
use breaks::{Range, STEP_SIGMAS, Whose, ranges, sorted};
use join::{Doubt, End, Joining};
use law::{Law, seconds_between};
use point::{Base, Point};

/// The map of one node, with statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct OffsetMap {
    /// S_i → S_0.
    pub map: TimeMap,
    /// Number of samples used.
    pub used: usize,
    /// Number of samples dropped because their window contains a step, they are off the curve or
    /// out of order, or they are not numbers.
    pub dropped: usize,
    /// Number of samples marked as disturbed; not used either.
    pub disturbed: usize,
    /// Basis of the map's standard deviations, which are meaningless for [`Certainty::Unknown`].
    pub certainty: Certainty,
    /// Interpolation between the samples.
    pub interpolation: Interpolation,
    /// Typical error of predicting an omitted round, ns; `None` with fewer than three, and if
    /// covariances are stated.
    pub left_out_error_ns: Option<f64>,
}

impl TimeMap {
    /// Creates the map of one node from its reachable lines. `known` are breaks from other sources.
    ///
    /// # Errors
    /// [`Error::UnusableKnots`] if no sample is usable.
    pub fn from_offsets(samples: &[OffsetSample], axis: Axis, known: &KnownBreaks) -> Result<OffsetMap, Error> {
        let first = samples.first().ok_or_else(|| unusable("there are no offsets"))?;
        let base = Base { x_ns: first.at_ns, axis };
        let (disturbed, points): (Vec<Point>, Vec<Point>) =
            base.points(samples).into_iter().partition(|point| point.sample.disturbed);
        if points.is_empty() && !disturbed.is_empty() {
            return Err(unusable("all are from windows in which a clock was disturbed"));
        }
        if points.is_empty() {
            return Err(unusable("none of the offsets is a number"));
        }
        let law = Law::of(&points);
        let found = sorted(points, &base, known, law.as_ref());
        let points = found.points;
        let ranges = ranges(points.len(), &found.breaks);
        let joining = Joining::choose(&points, &ranges, law);
        let flagged = disturbed.len();
        let mut witnesses: Vec<Point> = disturbed.into_iter().chain(found.wild).collect();
        witnesses.sort_by(|a, b| a.at.x_ns.total_cmp(&b.at.x_ns));
        let whole = Whole { base, points: &points, witnesses: &witnesses, joining };
        let segments: Vec<Segment> = ranges.iter().map(|range| whole.segment(range)).collect();
        Ok(OffsetMap {
            map: TimeMap::new(&segments)?,
            used: points.len(),
            dropped: samples.len() - points.len() - flagged,
            disturbed: flagged,
            certainty: Certainty::of(&points, axis),
            interpolation: joining.interpolation,
            left_out_error_ns: joining.left_out_ns,
        })
    }
}

/// Input for a segment.
struct Whole<'a> {
    base: Base,
    points: &'a [Point],
    /// Points that are no knots, in order.
    witnesses: &'a [Point],
    joining: Joining,
}

impl Whole<'_> {
    /// Knots of one segment. On the reference's axis the curve is sampled there first, then moved
    /// to the node's axis.
    fn segment(&self, range: &Range) -> Segment {
        let points = &self.points[range.from..range.until];
        let doubts = self.doubts(points);
        let mut knots = self.joining.knots(points, &doubts, i128::from(self.base.x_ns) * 1000);
        let on_reference = self.base.axis == Axis::Reference;
        if on_reference {
            for knot in &mut knots {
                knot.at_ps += knot.correction_ps;
            }
            // A curve that falls faster than time runs has no place on a clock.
            knots.dedup_by(|later, kept| later.at_ps <= kept.at_ps);
        }
        let outside = |end: End| self.joining.outside(points, end, self.doubt_beyond(range, end), on_reference);
        let [begin, end] = range.steps;
        let reading = |at_ns: i64, whose: Whose, end: End| match whose {
            Whose::Node => i128::from(at_ns) * 1000,
            Whose::Reference => self.own_reading_ps(points, at_ns, end),
        };
        Segment {
            before: outside(End::First),
            after: outside(End::Last),
            start_ps: None,
            reach_ps: [
                begin.map(|(step, whose)| reading(step.before_ns, whose, End::First)),
                end.map(|(step, whose)| reading(step.after_ns, whose, End::Last)),
            ],
            knots,
        }
    }

    /// Reading of the node's clock when the reference's shows `at_ns`, beyond an end of its points.
    fn own_reading_ps(&self, points: &[Point], at_ns: i64, end: End) -> i128 {
        let point = if end == End::First { points.first() } else { points.last() };
        let Some(point) = point else { return i128::from(at_ns) * 1000 };
        let beyond = (i128::from(at_ns) - i128::from(point.sample.at_ns)) as f64;
        let offset = point.at.value_ns + beyond * point.at.slope.unwrap_or(0.0);
        i128::from(at_ns) * 1000 + (offset * 1e3) as i128
    }

    /// Uncertainty in each gap.
    fn doubts(&self, points: &[Point]) -> Vec<Doubt> {
        let curve = self.joining.curve(points);
        let law = self.joining.law.as_ref();
        let gap = |k: usize| {
            let (a, b) = (&points[k], &points[k + 1]);
            let surprise = law.and_then(|law| law.surprise(a, b));
            let misfit = surprise.filter(|surprise| surprise.off_ns.abs() > MISFIT_SIGMAS * surprise.sigma_ns);
            let mut unknown_ns = misfit.map_or(0.0, |surprise| surprise.off_ns.abs());
            // All lines of a round state the same slew.
            let mut slews: BTreeMap<Option<u64>, f64> = BTreeMap::new();
            for witness in self.witnesses_between(a.at.x_ns, b.at.x_ns) {
                let s = (witness.at.x_ns - a.at.x_ns) / (b.at.x_ns - a.at.x_ns);
                let away = (witness.at.value_ns - hermite(&curve[k], &curve[k + 1], s)).abs();
                let usual = self.joining.sigma([a, b], s).hypot(witness.at.sigma_ns);
                unknown_ns = unknown_ns.max(if away > MISFIT_SIGMAS * usual { away } else { 0.0 });
                let of_round = slews.entry(witness.sample.round).or_default();
                *of_round = of_round.max(witness.sample.slew_ppm.abs());
            }
            let kink_ns = slews.values().sum::<f64>() * 1e-6 * (b.at.x_ns - a.at.x_ns) / 8.0;
            Doubt { gap_ns: unknown_ns.hypot(if kink_ns.is_finite() { kink_ns } else { 0.0 }), ..Doubt::default() }
        };
        (0..points.len().saturating_sub(1)).map(gap).collect()
    }

    /// Uncertainty of the rate beyond an end: as seen there, and how fast lines that are not knots
    /// deviate.
    fn doubt_beyond(&self, range: &Range, end: End) -> Doubt {
        let (from, point, until) = match end {
            End::First => {
                let other = range.from.checked_sub(1).map_or(f64::NEG_INFINITY, |other| self.points[other].at.x_ns);
                (other, &self.points[range.from], self.points[range.from].at.x_ns)
            }
            End::Last => {
                let other = self.points.get(range.until).map_or(f64::INFINITY, |other| other.at.x_ns);
                (self.points[range.until - 1].at.x_ns, &self.points[range.until - 1], other)
            }
        };
        // Towards another segment lines are off by the step, and by nothing that a rate explains.
        let outermost = from == f64::NEG_INFINITY || until == f64::INFINITY;
        let mut rate_ns_per_s = 0.0f64;
        for witness in self.witnesses_between(from, until) {
            let beyond = seconds_between(point, witness);
            let off = witness.at.value_ns - point.at.value_ns - beyond * 1e9 * point.at.slope.unwrap_or(0.0);
            let usual = STEP_SIGMAS * point.at.sigma_ns.hypot(witness.at.sigma_ns);
            let away = if outermost && off.abs() > usual { (off / beyond).abs() } else { 0.0 };
            let seen = away.hypot(1e3 * witness.sample.slew_ppm);
            rate_ns_per_s = rate_ns_per_s.max(if seen.is_finite() { seen } else { 0.0 });
        }
        Doubt { rate_ns_per_s, ..Doubt::default() }
    }

    fn witnesses_between(&self, from: f64, until: f64) -> &[Point] {
        let first = self.witnesses.partition_point(|witness| witness.at.x_ns <= from);
        let last = self.witnesses.partition_point(|witness| witness.at.x_ns < until);
        self.witnesses.get(first..last).unwrap_or_default()
    }
}

/// Lines further from the curve than this many standard deviations are in doubt, and so is the
/// curve.
const MISFIT_SIGMAS: f64 = 4.0;

#[cfg(test)]
mod tests;
