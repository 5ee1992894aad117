//! The bend of a window: whether packets prove that the clocks' rates changed during it, and by how
//! much.
//!
//! This runs before the line fit of `edge_fit`. Over a window of length W a clock whose rate grows
//! by c ns per ns² follows θ(x) = a + b·x + ½·c·x². The line of the largest margin then deviates by
//! up to `c·W²/16` at the midpoint (a parabola's chord and its tangent are c·W²/8 apart, and the
//! line runs midway): at 5 ppm per second and W = 2 s that is 1.2 µs. If packets prove a bend they
//! are therefore straightened to `y − ½·c·x²`, and everything else proceeds as before.
//!
//! - **Which c.** For each c the best line's gap G(c) = max over b of g(b) (see `hull`) is known; G
//!   is a concave function of c, being a linear program's optimum as a function of its right-hand
//!   side, so a golden-section search finds its peak. It looks at few packets, the lowest of each
//!   short interval, and takes in any other that turns out to bind.
//! - **When.** For delays that are exponential near their floor, of mean spacing s (see `spread`),
//!   a gap wider by ΔG makes the packets exp(ΔG/s) times as likely. A bend must gain [`GAIN`] of
//!   these, and must explain the packets: one that leaves them contradictory is no bend but a step.
//!
//! Packets whose constraint is relaxed as a probable glitch (see `packets`) say little about c. So
//! once a bend is proven their slack is taken back along the parabola where the window supports
//! them, and c is sought again.
//!
//! It does not detect smaller bends, whose error on the line is at most `GAIN/2` spacings, and it
//! cannot tell which of the two clocks bent.

use super::hull::{Envelope, Gap, Point};
use super::packets::Packets;
use super::spread::{mean_spacing, points};

/// Assumptions of a search.
#[derive(Copy, Clone, Debug)]
pub(super) struct Limits {
    /// Largest |slope|, ns per ns.
    pub(super) skew: f64,
    /// Largest |c|, per ns.
    pub(super) bend: f64,
    /// Tolerance of g for stamp noise, ns.
    pub(super) allowance: f64,
    /// Resolution of the stamps, ns; gains below it are meaningless.
    pub(super) quantum: f64,
}

/// Returns the bend c about the midpoint that the packets prove, per ns; `None` if a line explains
/// them.
pub(super) fn find(packets: &Packets, limits: &Limits) -> Option<f64> {
    let all = lists(packets);
    let span = Span::of(&all)?;
    let straight = Few::lowest(&all, 0.0, 0.0, &span).best(0.0, limits);
    let few = Few::lowest(&all, straight.slope, 0.0, &span);
    let spacing = spacing(packets, straight.slope)?.max(limits.quantum);
    // A bend that gains enough is at least this strong, and this much of it gains GAIN spacings. A
    // quarter of that is asked for before the search, which most straight windows are so spared.
    let least = (8.0 * GAIN * spacing / (span.length * span.length)).min(limits.bend);
    let base = few.best(0.0, limits).gap;
    let towards = |sign: f64| few.best(sign * least, limits).gap > base + 0.25 * GAIN * spacing;
    if !towards(1.0) && !towards(-1.0) {
        return None;
    }
    let bend = refine(packets, limits)?;
    let [bent, line] = [bend, 0.0].map(|c| exact(&all, c).map(|gap| gap.at(gap.best(limits.skew, 0.0).slope)));
    let gain = bent? - line?;
    let mut straightened = packets.clone();
    straighten(&mut straightened, bend);
    let slope = exact(&all, bend)?.best(limits.skew, limits.allowance).slope;
    let needed = GAIN * self::spacing(&straightened, slope)?.max(limits.quantum);
    (gain > needed && bent? + limits.allowance >= 0.0).then_some(bend)
}

/// Returns true if there are enough packets, well enough distributed about the midpoint, to
/// distinguish a bend from a rate.
pub(super) fn can_be_told(packets: &Packets) -> bool {
    Span::of(&lists(packets)).is_some()
}

/// Returns the bend of the widest gap, proven or not.
pub(super) fn refine(packets: &Packets, limits: &Limits) -> Option<f64> {
    let all = lists(packets);
    let span = Span::of(&all)?;
    let straight = Few::lowest(&all, 0.0, 0.0, &span).best(0.0, limits);
    let mut few = Few::lowest(&all, straight.slope, 0.0, &span);
    let mut bend = 0.0;
    for _ in 0..CUTS_MAX {
        bend = maximise([-limits.bend, limits.bend], |bend| few.best(bend, limits).gap);
        if !few.take_in(&all, few.best(bend, limits), bend, &span) {
            break;
        }
    }
    Some(bend)
}

/// Subtracts ½·c·x² from all packets.
pub(super) fn straighten(packets: &mut Packets, bend: f64) {
    packets.forward.iter_mut().for_each(|packet| packet.y -= arc(bend, packet.x));
    // Reverse packets are mirrored.
    packets.reverse.iter_mut().for_each(|packet| packet.y += arc(bend, packet.x));
}

/// Returns the gap of all packets, straightened by `bend`.
pub(super) fn gap(packets: &Packets, bend: f64) -> Option<Gap> {
    exact(&lists(packets), bend)
}

fn exact(all: &[Vec<Point>; 2], bend: f64) -> Option<Gap> {
    let [forward, reverse] =
        [0, 1].map(|side| Envelope::new(all[side].iter().map(|&(x, y)| (x, y - SIGNS[side] * arc(bend, x)))));
    Some(Gap { forward: forward?, reverse: reverse? })
}

/// Returns the extremes over all feasible lines, for all bends that leave some line feasible:
/// intercepts and slopes, as `Gap::bounds` returns them for one bend. Each limit is a linear
/// program's optimum, hence convex or concave in c.
pub(super) fn bounds(packets: &Packets, around: f64, limits: &Limits) -> Option<([f64; 2], [f64; 2])> {
    let mut all = lists(packets);
    // Sorted once, because sorting what is sorted takes no time.
    all.iter_mut().for_each(|list| list.sort_unstable_by(|a, b| a.0.total_cmp(&b.0)));
    let at = |bend: f64| exact(&all, bend)?.bounds(limits.skew, limits.allowance);
    let (intercepts, slopes) = at(around)?;
    let mut found = [intercepts[0], intercepts[1], slopes[0], slopes[1]];
    let ends =
        [-1.0, 1.0].map(|sign| around + sign * farthest(2.0 * limits.bend, |size| at(around + sign * size).is_some()));
    let mut widen = |place: usize, sign: f64| {
        let value = |bend: f64| at(bend).map_or(f64::NEG_INFINITY, |(a, b)| sign * [a[0], a[1], b[0], b[1]][place]);
        let best = maximise(ends, value);
        // No bend is among them where lines are feasible: rates that stay within the band need
        // none.
        let farthest = [best, ends[0], ends[1], 0.0].map(value).into_iter().fold(sign * found[place], f64::max);
        found[place] = sign * farthest;
    };
    [(0, -1.0), (1, 1.0), (2, -1.0), (3, 1.0)].into_iter().for_each(|(place, sign)| widen(place, sign));
    Some(([found[0], found[1]], [found[2], found[3]]))
}

fn arc(bend: f64, x: f64) -> f64 {
    0.5 * bend * x * x
}

/// Returns the points of both directions.
fn lists(packets: &Packets) -> [Vec<Point>; 2] {
    [points(&packets.forward).collect(), points(&packets.reverse).collect()]
}

fn spacing(packets: &Packets, slope: f64) -> Option<f64> {
    Some(0.5 * (mean_spacing(&packets.forward, slope)? + mean_spacing(&packets.reverse, slope)?))
}

/// The time covered by the packets of both directions, from `start`, of length `length`.
struct Span {
    start: f64,
    length: f64,
}

impl Span {
    /// Returns the span; `None` if there are few packets, or the midpoint is not near their middle,
    /// so that a bend cannot be distinguished from a rate.
    fn of(all: &[Vec<Point>; 2]) -> Option<Self> {
        if all.iter().any(|list| list.len() < PACKETS_MIN) {
            return None;
        }
        let ends = all.each_ref().map(|list| {
            list.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], &(x, _)| [low.min(x), high.max(x)])
        });
        // Reverse times are mirrored.
        let start = ends[0][0].max(-ends[1][1]);
        let end = ends[0][1].min(-ends[1][0]);
        let length = end - start;
        (length > 0.0 && (0.5 * (start + end)).abs() < CENTRAL * length).then_some(Self { start, length })
    }

    /// Returns the index of the short interval that contains `x`.
    fn interval(&self, x: f64) -> usize {
        let share = ((x - self.start) / self.length).clamp(0.0, 1.0);
        ((share * INTERVALS as f64) as usize).min(INTERVALS - 1)
    }
}

/// The few packets that can be binding.
struct Few {
    sides: [Vec<Point>; 2],
}

/// The best line for one bend.
#[derive(Copy, Clone)]
struct BestLine {
    slope: f64,
    gap: f64,
}

const SIGNS: [f64; 2] = [1.0, -1.0];

impl Few {
    /// Returns the lowest packets of each interval, relative to a parabola of this slope and bend.
    fn lowest(all: &[Vec<Point>; 2], slope: f64, bend: f64, span: &Span) -> Self {
        let side = |(list, sign): (&Vec<Point>, f64)| {
            let mut lowest: [Option<(f64, Point)>; INTERVALS] = [None; INTERVALS];
            for &(x, y) in list {
                let height = y - slope * x - sign * arc(bend, x);
                let slot = &mut lowest[span.interval(sign * x)];
                if slot.is_none_or(|(least, _)| height < least) {
                    *slot = Some((height, (x, y)));
                }
            }
            lowest.into_iter().flatten().map(|(_, point)| point).collect()
        };
        let [forward, reverse] = all;
        Self { sides: [side((forward, SIGNS[0])), side((reverse, SIGNS[1]))] }
    }

    /// Returns the best line after straightening these packets by `bend`.
    fn best(&self, bend: f64, limits: &Limits) -> BestLine {
        let envelope = |side: usize| {
            let straight = self.sides[side].iter().map(|&(x, y)| (x, y - SIGNS[side] * arc(bend, x)));
            Envelope::new(straight).expect("each side holds the lowest packet of some interval")
        };
        let gap = Gap { forward: envelope(0), reverse: envelope(1) };
        let slope = gap.best(limits.skew, 0.0).slope;
        BestLine { slope, gap: gap.at(slope) }
    }

    /// Adds packets below those already included; returns false if there are none.
    fn take_in(&mut self, all: &[Vec<Point>; 2], line: BestLine, bend: f64, span: &Span) -> bool {
        let lower = Self::lowest(all, line.slope, bend, span);
        let mut changed = false;
        for (side, (mine, found)) in self.sides.iter_mut().zip(lower.sides).enumerate() {
            let height = |&(x, y): &Point| y - line.slope * x - SIGNS[side] * arc(bend, x);
            let floor = mine.iter().map(height).fold(f64::INFINITY, f64::min);
            let before = mine.len();
            mine.extend(found.into_iter().filter(|point| height(point) < floor - TOLERANCE_NS));
            changed |= mine.len() > before;
        }
        changed
    }
}

/// Returns the maximum position of a concave function between two ends, by golden section.
fn maximise([mut low, mut high]: [f64; 2], value: impl Fn(f64) -> f64) -> f64 {
    let golden = 0.5 * (5f64.sqrt() - 1.0);
    let mut inner = [high - golden * (high - low), low + golden * (high - low)];
    let mut values = inner.map(&value);
    for _ in 0..SEARCH_STEPS {
        if values[0] >= values[1] {
            high = inner[1];
            inner = [high - golden * (high - low), inner[0]];
            values = [value(inner[0]), values[0]];
        } else {
            low = inner[0];
            inner = [inner[1], low + golden * (high - low)];
            values = [values[1], value(inner[1])];
        }
    }
    if values[0] >= values[1] { inner[0] } else { inner[1] }
}

/// Returns the last position between 0 (where it holds) and `end` up to which a property holds,
/// from outside, by bisection.
fn farthest(end: f64, holds: impl Fn(f64) -> bool) -> f64 {
    let (mut inside, mut outside) = (0.0, end);
    if holds(outside) {
        return outside;
    }
    for _ in 0..SEARCH_STEPS {
        let middle = 0.5 * (inside + outside);
        if holds(middle) { inside = middle } else { outside = middle }
    }
    inside
}

/// Log-likelihood by which a bend must exceed a straight line: chance alone gains as much in some
/// thousandth of windows.
const GAIN: f64 = 7.0;

/// Fewest packets per direction.
const PACKETS_MIN: usize = 24;

/// Largest distance of the midpoint from the middle of the span, as a share of the span.
const CENTRAL: f64 = 0.25;

/// Number of short intervals of a window.
const INTERVALS: usize = 32;

/// Most rounds of adding packets; two or three suffice in practice.
const CUTS_MAX: usize = 8;

/// A packet that is lower than the others by less than this makes no difference.
const TOLERANCE_NS: f64 = 1e-3;

/// Steps of bisection or golden section: 0.618³⁴ is below a ten-millionth.
const SEARCH_STEPS: usize = 34;
