//! The breaks in a node's curve, and the points that lie off it.
//!
//! This is the second step of [`super`], on points that are not flagged. A break is
//! - **known**: the run saw a clock step ([`Step`]), or its watch says that a clock does not go on
//!   into a round;
//! - **found**: a gap's slope agrees neither with the measured drifts, nor with its neighbours on
//!   the left, nor with those on the right.
//!
//! Points between two gaps that do not fit, up to [`LONGEST_WILD`] of them, while the points around
//! them fit each other, are off the curve: they are taken out and become witnesses of what is
//! unknown there. So is a single point between two breaks, whose window holds the step. It does not
//! detect an unreported step smaller than six standard deviations.

use std::collections::{BTreeMap, BTreeSet};

use super::law::Law;
use super::point::{Base, Point, SMALLEST_SIGMA_NS, Step, secant};

/// Known breaks, in addition to the offsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownBreaks {
    /// Steps of the node's clock, on that clock.
    pub of_node: Vec<Step>,
    /// Steps of the reference's clock, on that clock. They break every node's map.
    pub of_reference: Vec<Step>,
    /// Rounds before which this clock, or the reference, has a break.
    pub rounds: BTreeSet<u64>,
}

/// A gap after which a new segment begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    /// Between this point and the next.
    pub(super) after: usize,
    /// The step, if known, and whose it is.
    pub(super) step: Option<(Step, Whose)>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Node,
    Reference,
}

/// Points with their breaks, and what was removed from them.
pub(super) struct Sorted {
    pub(super) points: Vec<Point>,
    pub(super) breaks: Vec<Gap>,
    pub(super) wild: Vec<Point>,
}

pub(super) fn sorted(points: Vec<Point>, base: &Base, known: &KnownBreaks, law: Option<&Law>) -> Sorted {
    let breaks = find(&points, base, known);
    let wild: BTreeSet<usize> =
        between_breaks(&breaks).into_iter().chain(off_the_curve(&points, &breaks, law)).collect();
    if wild.is_empty() {
        return Sorted { points, breaks, wild: Vec::new() };
    }
    let (taken_out, kept): (Vec<_>, Vec<_>) =
        points.into_iter().enumerate().partition(|(place, _)| wild.contains(place));
    let [points, wild] = [kept, taken_out].map(|list| list.into_iter().map(|(_, point)| point).collect::<Vec<_>>());
    let breaks = find(&points, base, known);
    Sorted { points, breaks, wild }
}

/// The breaks of points in order: the known ones, each in one gap, and those that the points show.
fn find(points: &[Point], base: &Base, known: &KnownBreaks) -> Vec<Gap> {
    let secants: Vec<f64> = points.windows(2).map(|pair| secant(&pair[0].at, &pair[1].at)).collect();
    let mut breaks: BTreeMap<usize, Gap> = BTreeMap::new();
    let own: Vec<i128> = points.iter().map(|point| base.own_ns(&point.at)).collect();
    let reference: Vec<i128> = points.iter().map(|point| i128::from(point.sample.at_ns)).collect();
    for (steps, readings, whose) in
        [(&known.of_node, own, Whose::Node), (&known.of_reference, reference, Whose::Reference)]
    {
        let readings = Readings::new(readings);
        for step in steps {
            let Some(after) = readings.gap(step, points, &secants) else { continue };
            let gap = breaks.entry(after).or_insert(Gap { after, step: None });
            gap.step = Some(gap.step.map_or((*step, whose), |(other, of)| (other.and(step), of)));
        }
    }
    for (after, pair) in points.windows(2).enumerate() {
        let told = pair[0].sample.round.zip(pair[1].sample.round);
        let told = told.is_some_and(|(a, b)| a < b && known.rounds.range(a + 1..=b).next().is_some());
        if told || is_step(points, &secants, after) {
            breaks.entry(after).or_insert(Gap { after, step: None });
        }
    }
    breaks.into_values().collect()
}

/// Readings of a clock at the points.
struct Readings {
    at: Vec<i128>,
    /// The largest so far, and the smallest from here on: equal to `at` unless the clock was set
    /// back.
    up: Vec<i128>,
    down: Vec<i128>,
}

impl Readings {
    fn new(at: Vec<i128>) -> Self {
        let mut up = at.clone();
        (1..up.len()).for_each(|k| up[k] = up[k].max(up[k - 1]));
        let mut down = at.clone();
        (1..down.len()).rev().for_each(|k| down[k - 1] = down[k - 1].min(down[k]));
        Self { at, up, down }
    }

    /// The gap that contains a step: of those whose readings allow it, the one with the largest
    /// jump of the offset.
    fn gap(&self, step: &Step, points: &[Point], secants: &[f64]) -> Option<usize> {
        let [low, high] = step.hull();
        let first = self.up.partition_point(|reading| *reading < low).saturating_sub(1);
        let last = self.down.partition_point(|reading| *reading <= high).min(secants.len());
        let allowed = (first..last).take(MOST_CANDIDATES).filter(|&k| {
            let ends = [self.at[k], self.at[k + 1]];
            ends[0].max(ends[1]) >= low && ends[0].min(ends[1]) <= high
        });
        let jump = |k: &usize| {
            let run = points[k + 1].at.x_ns - points[*k].at.x_ns;
            let slopes = [points[*k].at.slope, points[k + 1].at.slope, k.checked_sub(1).map(|k| secants[k])];
            let usual = slopes.into_iter().flatten().next().or(secants.get(k + 1).copied()).unwrap_or(0.0);
            ((secants[*k] - usual) * run).abs()
        };
        allowed.max_by(|a, b| jump(a).total_cmp(&jump(b)))
    }
}

fn is_step(points: &[Point], secants: &[f64], gap: usize) -> bool {
    let (a, b) = (&points[gap].at, &points[gap + 1].at);
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

/// Single points between two breaks.
fn between_breaks(breaks: &[Gap]) -> Vec<usize> {
    let lone = breaks.windows(2).filter(|pair| pair[0].after + 1 == pair[1].after);
    lone.map(|pair| pair[1].after).collect()
}

/// Points between two gaps that do not fit and about which nothing is known, while their neighbours
/// fit each other.
fn off_the_curve(points: &[Point], breaks: &[Gap], law: Option<&Law>) -> Vec<usize> {
    let known: BTreeSet<usize> = breaks.iter().filter(|gap| gap.step.is_some()).map(|gap| gap.after).collect();
    let found: BTreeSet<usize> = breaks.iter().map(|gap| gap.after).collect();
    let surprising = |after: usize| {
        let surprise = law.and_then(|law| law.surprise(&points[after], &points[after + 1]));
        surprise.is_some_and(|surprise| surprise.off_ns.abs() > STEP_SIGMAS * surprise.sigma_ns)
    };
    let odd = |after: &usize| !known.contains(after) && (found.contains(after) || surprising(*after));
    let odd: Vec<usize> = (0..points.len().saturating_sub(1)).filter(odd).collect();
    let mut off = Vec::new();
    let mut next = 0;
    while let Some(&begins) = odd.get(next) {
        next += 1;
        // The longest stretch whose surroundings fit each other: taking out one of two would leave
        // the other.
        let ends = odd[next..].iter().take_while(|ends| **ends - begins <= LONGEST_WILD).copied();
        let ends: Vec<usize> = ends.filter(|ends| fits_without(points, begins, *ends, law)).collect();
        if let Some(ends) = ends.last() {
            off.extend(begins + 1..=*ends);
            next = odd.partition_point(|gap| gap <= ends);
        }
    }
    off
}

/// Whether the curve continues from `begins` to the point after `ends` as if there were nothing
/// between them.
fn fits_without(points: &[Point], begins: usize, ends: usize, law: Option<&Law>) -> bool {
    let around: Vec<Point> = points[begins.saturating_sub(2)..=begins]
        .iter()
        .chain(&points[ends + 1..(ends + 4).min(points.len())])
        .copied()
        .collect();
    let gap = begins.min(2);
    let secants: Vec<f64> = around.windows(2).map(|pair| secant(&pair[0].at, &pair[1].at)).collect();
    let surprise = law.and_then(|law| law.surprise(&around[gap], &around[gap + 1]));
    let expected = surprise.is_none_or(|surprise| surprise.off_ns.abs() <= STEP_SIGMAS * surprise.sigma_ns);
    // Without rates a gap needs a neighbour to be compared with.
    expected && (surprise.is_some() || secants.len() > 1) && !is_step(&around, &secants, gap)
}

/// Points `from..until` make a segment; with what is known of the surrounding steps.
pub(super) struct Range {
    pub(super) from: usize,
    pub(super) until: usize,
    pub(super) steps: [Option<(Step, Whose)>; 2],
}

pub(super) fn ranges(count: usize, breaks: &[Gap]) -> Vec<Range> {
    let mut ranges = Vec::with_capacity(breaks.len() + 1);
    let (mut from, mut before) = (0, None);
    for gap in breaks {
        ranges.push(Range { from, until: gap.after + 1, steps: [before, gap.step] });
        (from, before) = (gap.after + 1, gap.step);
    }
    ranges.push(Range { from, until: count, steps: [before, None] });
    ranges
}

pub(super) const STEP_SIGMAS: f64 = 6.0;
/// A rate may change by 20 ppm between rounds without a step: 80 µs in a window of 4 s.
const STEP_ALLOWANCE: f64 = 20e-6;
/// Nothing below this is worth a break.
const SMALLEST_STEP_NS: f64 = 500.0;
/// With one gap only: adjtimex keeps clocks within 500 ppm.
const LONELY_SLOPE: f64 = 1e-3;
/// Number of consecutive points that may be off the curve; if more are, the clock was there.
const LONGEST_WILD: usize = 3;
/// Most gaps examined for one step.
const MOST_CANDIDATES: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::super::super::curve::CurvePoint;
    use super::super::point::OffsetSample;
    use super::*;

    /// Points at times in s with values in ns, without slopes or errors of their own.
    fn points(list: &[(f64, f64)]) -> Vec<Point> {
        let point = |(s, value_ns): &(f64, f64)| Point {
            at: CurvePoint { x_ns: s * 1e9, value_ns: *value_ns, slope: None, sigma_ns: 0.0 },
            sample: OffsetSample::bare((s * 1e9) as i64, *value_ns),
        };
        list.iter().map(point).collect()
    }

    fn stepped(points: &[Point], gap: usize) -> bool {
        let secants: Vec<f64> = points.windows(2).map(|pair| secant(&pair[0].at, &pair[1].at)).collect();
        is_step(points, &secants, gap)
    }

    /// The point at the end of the gap may be moved up and down from `expected` by just less than
    /// `most` without a step, and not by just more.
    #[track_caller]
    fn check(what: &str, list: &[Point], moved: usize, gap: usize, [low, high]: [f64; 2], most: f64) {
        for (base, sign) in [(low, -1.0), (high, 1.0)] {
            for (by, expected) in [(most - 5.0, false), (most + 5.0, true)] {
                let mut list = list.to_vec();
                // All that come on the same side keep their distances.
                let (from, until) = if moved <= gap { (0, moved + 1) } else { (moved, list.len()) };
                let shift = base + sign * by - list[moved].at.value_ns;
                list[from..until].iter_mut().for_each(|point| point.at.value_ns += shift);
                assert_eq!(stepped(&list, gap), expected, "{what}: {by} ns beyond {base}, sign {sign}");
            }
        }
    }

    #[test]
    fn a_step_is_what_no_expected_slope_reaches() {
        // Over 4 s: six sigma of 0.3 ns, 20 ppm, and 500 ns.
        const FREE_NS: f64 = 1.8 + 80_000.0 + 500.0;
        let two = points(&[(0.0, 0.0), (4.0, 0.0)]);
        check("one gap alone: a thousandth", &two, 1, 0, [-4e6, 4e6], FREE_NS);
        let mut turning = two.clone();
        (turning[0].at.slope, turning[1].at.slope) = (Some(10e-6), Some(110e-6));
        check("their mean, and as much as they differ", &turning, 1, 0, [240e3, 240e3], FREE_NS + 200_000.0);
        let three = points(&[(0.0, 0.0), (2.0, 60e3), (6.0, 0.0)]);
        check("as on the left", &three, 2, 1, [180e3, 180e3], FREE_NS);
        let four = points(&[(0.0, 0.0), (2.0, 20e3), (4.0, 80e3), (8.0, 0.0)]);
        // 10, then 30 ppm on the left: 30 or 50 ppm.
        check("as on the left, or going on so", &four, 3, 2, [200e3, 280e3], FREE_NS);
        let four = points(&[(0.0, 0.0), (4.0, 0.0), (6.0, 60e3), (8.0, 80e3)]);
        // 30, then 10 ppm on the right: before them 30 or 50 ppm.
        check("as on the right, or coming so", &four, 0, 0, [-200e3, -120e3], FREE_NS);
        let mut noisy = three;
        (noisy[1].at.sigma_ns, noisy[2].at.sigma_ns) = (3e3, 4e3);
        check("six standard deviations", &noisy, 2, 1, [180e3, 180e3], FREE_NS - 1.8 + 30_000.0);
        assert!(
            stepped(&points(&[(0.0, 0.0), (0.0, 0.0)]), 0) && stepped(&points(&[(4.0, 0.0), (0.0, 0.0)]), 0),
            "back"
        );
    }
}
