//! Stamps between two readings of the system clock, which show whether the trace's timeline R is
//! the system clock S, and how surely.
//!
//! [`judge`] turns the [`Bracket`]s of a trace into the lead of R over S, or into pairs for
//! [`super::pairs`].
//!
//! **What a bracket says.** S showed `before` ahead of the stamp and `after` behind it. At the
//! stamp it showed something in between, so that `R − S` lies in `[R − after, R − before]`. No
//! assumption is in that: not how long the profiler takes, nor where in the bracket it stamps. Both
//! readings are whole ns, R is in the file's own unit, and a virtual clock rounds, hence
//! [`slack_ps`].
//!
//! **R = S.** Profilers stamp with CLOCK_REALTIME itself (XLA), or with a counter that they fit to
//! it by one straight line (Kineto). The first is S. The second is S unless that clock was slewed
//! or stepped meanwhile, by more than brackets show. Where zero lies in every bracket, nothing
//! speaks against R = S, and it is taken: a map through the middles would be wrong by where in the
//! brackets the profiler stamps, up to half a bracket, in which it does not lie at random.
//!
//! **R = S + c.** Where zero misses one, a constant may still fit all: Kineto's line is off by the
//! errors of the readings that it was fitted to, some 10 to 100 ns. Of the constants that fit,
//! `[lo, hi]`, the one nearest to zero would be right if every stamp lay at the edge of its
//! bracket, which none does; the middle is best where nothing is known of c. Taken is
//! `lo + min(lo, (hi − lo)/2)`: near zero for a small c, the middle for a large one, without a
//! jump. By hand: stamps 30 ns behind readings 330 ns apart leave c in [30, 360], and 60 ns are
//! taken.
//!
//! Where no constant fits, or only one above [`FURTHEST_STEADY_PS`], which is no error of a fit,
//! the map goes through the middles.
//!
//! **How surely.** At a mark the map is off by at most the distance from where it puts the stamp to
//! the farther reading. That is a hard bound, given for the middle one of the marks and for the
//! worst. As a standard deviation, S being anywhere in `[l, h]` around the stamp:
//! `σ² = (l² + l·h + h²)/3`, which is width/√12 in the middle of a bracket and width/√3 at its
//! edge; that of the middle one of the marks holds for the trace, as one bracket's error is the
//! next one's. Beyond the marks the rate is known to `√2·σ` over their span, and wanders. It does
//! not detect steps or bends; `pairs` does.

use probe_sync_estimate::series::{Continuation, Growth, Knot, Segment, TimeMap};
use probe_sync_formats::model::{Bracket, ClockPair, PS_PER_NS, PairKind, Picoseconds};
use serde::Serialize;

use super::pairs::{SMALLEST_BRACKET_NS, WANDER_ALLOWANCE_PPM};

/// What the brackets of a trace say about its map R → S.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct MarkBounds {
    /// Marks with known readings.
    pub marks: usize,
    /// Of these, those that rule out R = S.
    pub apart: usize,
    /// Largest distance by which they do, ns.
    pub apart_by_ns: f64,
    /// Bound of the map's error at half of the marks, ns.
    pub half_ns: f64,
    /// Bound of the map's error at every mark, ns.
    pub all_ns: f64,
}

impl MarkBounds {
    /// Error of a trace's map R → S at its marks; `None` without marks.
    pub(super) fn of(brackets: &[Bracket], map: &TimeMap) -> Option<Self> {
        let apart: Vec<f64> =
            brackets.iter().map(|bracket| Ends::of(bracket, bracket.tracer_ps).outside_ns(bracket)).collect();
        let mapped = |bracket: &Bracket| Ends::of(bracket, map.map(bracket.tracer_ps).time_ps);
        let bounds = sorted(brackets.iter().map(|bracket| mapped(bracket).bound_ns(bracket)));
        Some(Self {
            marks: brackets.len(),
            apart: apart.iter().filter(|by| **by > 0.0).count(),
            apart_by_ns: apart.iter().copied().fold(0.0, f64::max),
            half_ns: *bounds.get(bounds.len() / 2)?,
            all_ns: *bounds.last()?,
        })
    }
}

/// The relation of R and S according to brackets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Judged {
    /// No brackets.
    Nothing,
    /// R equals S plus a constant, which is zero if zero fits every bracket.
    Steady {
        /// R − S.
        ahead_ps: Picoseconds,
    },
    /// The difference of R and S varies: pairs for a map.
    Apart(Vec<ClockPair>),
}

/// Whether R is S, or S and a constant.
pub(super) fn judge(brackets: &[Bracket]) -> Judged {
    // R − S, as little and as much as a bracket allows.
    let least = |bracket: &Bracket| bracket.tracer_ps.saturating_sub(reading(bracket.after_ns) + slack_ps(bracket));
    let most = |bracket: &Bracket| bracket.tracer_ps.saturating_sub(reading(bracket.before_ns) - slack_ps(bracket));
    let (Some(lo), Some(hi)) = (brackets.iter().map(least).max(), brackets.iter().map(most).min()) else {
        return Judged::Nothing;
    };
    if lo > hi || lo.max(hi.saturating_neg()) > FURTHEST_STEADY_PS {
        return Judged::Apart(brackets.iter().map(pair).collect());
    }
    let half = hi.saturating_sub(lo) / 2;
    let ahead_ps = if lo > 0 {
        lo.saturating_add(lo.min(half))
    } else if hi < 0 {
        hi.saturating_add(hi.max(-half))
    } else {
        0
    };
    Judged::Steady { ahead_ps }
}

/// The map that subtracts `ahead_ps`, as certain as the brackets are; `None` without brackets.
pub(super) fn steady(brackets: &[Bracket], ahead_ps: Picoseconds) -> Option<TimeMap> {
    let at = |bracket: &Bracket| bracket.tracer_ps.saturating_sub(ahead_ps);
    let sigmas = sorted(brackets.iter().map(|bracket| Ends::of(bracket, at(bracket)).sigma_ns()));
    let sigma_ns = *sigmas.get(sigmas.len() / 2)?;
    let times = || brackets.iter().map(|bracket| bracket.tracer_ps);
    let (first, last) = (times().min()?, times().max()?);
    let span_s = last.saturating_sub(first) as f64 * 1e-12;
    let rate_ppm = if span_s > 0.0 { std::f64::consts::SQRT_2 * sigma_ns / span_s * 1e-3 } else { f64::INFINITY };
    let growth = Growth::Linear { ppm: rate_ppm.min(WORST_RATE_PPM).hypot(WANDER_ALLOWANCE_PPM) };
    let outside = Some(Continuation { slope_ppm: 0.0, growth });
    let mut ends = vec![first, last];
    ends.dedup();
    let knots = ends.into_iter().map(|at_ps| Knot { at_ps, correction_ps: ahead_ps, sigma_ns }).collect();
    TimeMap::new(&[Segment { knots, before: outside, after: outside, ..Segment::default() }]).ok()
}

/// A time minus the readings around it, ns: its possible error.
#[derive(Copy, Clone)]
struct Ends {
    least_ns: f64,
    most_ns: f64,
}

impl Ends {
    fn of(bracket: &Bracket, time: Picoseconds) -> Self {
        let since = |reading_ns: i64| time.saturating_sub(reading(reading_ns)) as f64 * 1e-3;
        Self { least_ns: since(bracket.after_ns), most_ns: since(bracket.before_ns) }
    }

    /// Distance from the bracket; 0 within.
    fn outside_ns(self, bracket: &Bracket) -> f64 {
        let by = self.least_ns.max(-self.most_ns);
        if by > slack_ps(bracket) as f64 * 1e-3 { by } else { 0.0 }
    }

    fn bound_ns(self, bracket: &Bracket) -> f64 {
        self.most_ns.abs().max(self.least_ns.abs()) + slack_ps(bracket) as f64 * 1e-3
    }

    fn sigma_ns(self) -> f64 {
        let (l, h) = (self.least_ns.min(0.0), self.most_ns.max(0.0));
        ((l * l + l * h + h * h) / 3.0).sqrt().max(SMALLEST_BRACKET_NS / 12f64.sqrt())
    }
}

/// How far a stamp may be outside its bracket in the file due to rounding.
fn slack_ps(bracket: &Bracket) -> Picoseconds {
    bracket.unit_ps.max(PS_PER_NS)
}

fn reading(ns: i64) -> Picoseconds {
    i128::from(ns) * PS_PER_NS
}

fn pair(bracket: &Bracket) -> ClockPair {
    let Bracket { tracer_ps, before_ns, after_ns, .. } = *bracket;
    let width_ns = (i128::from(after_ns) - i128::from(before_ns)) as f64;
    ClockPair { tracer_ps, system_ns: i64::midpoint(before_ns, after_ns), kind: PairKind::Bracketed(width_ns) }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// Seen of Kineto: up to 0.7 µs.
const FURTHEST_STEADY_PS: Picoseconds = 1_000 * PS_PER_NS;
/// No system clock is slewed faster, and a single mark says nothing of rates.
const WORST_RATE_PPM: f64 = 500.0;

#[cfg(test)]
mod tests;
