//! Composition of two levels of runs into one timeline: a region's offsets against its master, and
//! the master's against the global reference.
//!
//! The smoothed lines of a region's run and of the run among the masters ([`OffsetRecord`]) become
//! lines of the region's nodes on the timeline of the masters' run. When the master's clock shows
//! m, node i shows `m + o` according to the region, and the global reference shows `m − M`
//! according to the run among the masters. So when that reference shows `g = m − M`, node i shows
//! `g + M + o`:
//!
//! - the offset is `o + M`, **at g and not at m**: M is looked up by the master's own reading, and
//!   the line's time moves by it. With M = 10 ms and a node that runs off by 50 ppm, the wrong time
//!   would be an error of 500 ns;
//! - rates multiply: `(1 + o')(1 + M') − 1`;
//! - covariances of offset and rate add, since both runs have packets of their own. What they share
//!   is the master: its clock's wander and the asymmetry of its host enter both with opposite signs
//!   and cancel in the sum, so adding is rather too wide than too narrow. Derivatives by M' of what
//!   is stated at g are of the size 10⁻⁴ and left out;
//! - hard intervals add; without one at either level there is none.
//!
//! Example: the master is 10 000 000 ns ahead of the reference of all, node i 500 ns behind the
//! master. When the master shows 1 s, node i shows 0.999 999 5 s and the reference 0.99 s: the line
//! is at 0.99 s, and says 9 999 500 ns.
//!
//! The two levels are not in step. Between two lines a and b, Δ seconds apart, the offset is the
//! cubic through offsets and rates, and its variance is `motion::variance_between`. The rate goes
//! straight from one end's to the other's: the cubic's own slope would divide the errors of both
//! offsets by Δ. Its variance is that of the less certain end and the walk between both, `q·Δ·u`
//! with u = s(1 − s). The walk adds `q·Δ²·u²·(1 − 2s)/2` to the covariance, half the slope of the
//! bridge's variance.
//!
//! It does not extrapolate beyond the lines of either level, or interpolate across a step or an
//! unreachable line. It does interpolate across a disturbed line and marks the result as disturbed.

use probe_sync_lines::{OffsetRecord, StepRecord};
use probe_sync_time::{Duration, Reference, RoundId, System, Timestamp};

use crate::edge_fit::MAX_SKEW;
use crate::graph::linear::Block;
use crate::motion::{NS_PER_S_PER_PPM, hard_between, hermite, variance_between};

/// One node's lines in order of time, as a curve.
#[derive(Clone, Debug)]
pub struct NodeLines {
    lines: Vec<OffsetRecord>,
    /// Readings of its own clock at the lines that state one, with the lines' indices.
    readings: Vec<(Timestamp<System>, usize)>,
    out_of_order: usize,
}

/// State of a node at one instant, according to its lines.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Known {
    /// The instant, on the reference clock of the lines.
    pub at: Timestamp<Reference>,
    /// This clock minus the reference clock, ns.
    pub offset_ns: f64,
    /// Rate relative to the reference, ppm.
    pub drift_ppm: f64,
    /// Standard deviation of the offset, ns.
    pub sigma_ns: f64,
    /// Part of `sigma_ns` due to path asymmetry, ns.
    pub asymmetry_sigma_ns: f64,
    /// Standard deviation of the rate, ppm.
    pub drift_sigma_ppm: f64,
    /// Covariance of the errors of offset and rate, ns·ppm.
    pub offset_drift_covariance: f64,
    /// Density of the random walk of the rate, ns²/s³.
    pub wander: f64,
    /// Hard interval, ns; infinite if there is none.
    pub bound_ns: [f64; 2],
    /// True if a clock was disturbed near the instant.
    pub disturbed: bool,
    /// Sudden rate change detected near the instant, ppm.
    pub slew_ppm: f64,
}

impl Known {
    /// Widens the hard interval for an instant that was found from this clock's own reading: the
    /// instant is as uncertain as the offset, which changes by up to 500 ppm of that.
    fn at_an_uncertain_moment(mut self) -> Self {
        let [low, high] = self.bound_ns;
        let moved = MAX_SKEW * (self.offset_ns - low).max(high - self.offset_ns);
        self.bound_ns = [low - moved, high + moved];
        self
    }
}

impl NodeLines {
    /// Creates the curve of one node. Lines that do not follow the previous one in time are
    /// dropped; a step that one of them reports is moved to the first kept line that is not before
    /// it.
    pub fn new(lines: impl IntoIterator<Item = OffsetRecord>) -> Self {
        let mut kept: Vec<OffsetRecord> = Vec::new();
        let mut out_of_order = 0;
        for line in lines {
            if kept.last().is_none_or(|last| midpoint(last) < midpoint(&line)) {
                kept.push(line);
                continue;
            }
            out_of_order += 1;
            let next = kept.partition_point(|kept| midpoint(kept) < midpoint(&line));
            Break::of(&line).tell(&mut kept[next]);
        }
        let readings = kept.iter().enumerate().filter_map(|(place, line)| Some((reading(line)?, place))).collect();
        Self { lines: kept, readings, out_of_order }
    }

    /// Returns the lines.
    pub fn lines(&self) -> &[OffsetRecord] {
        &self.lines
    }

    /// Returns how many lines were dropped because they did not follow the previous one in time.
    pub fn out_of_order(&self) -> usize {
        self.out_of_order
    }

    /// Returns until when the node was the reference: the time of its last line before the first
    /// that gives it an offset, or does not reach it. `None` if it never was.
    pub fn reference_until(&self) -> Option<Timestamp<Reference>> {
        let is_reference = |line: &&OffsetRecord| line.estimate.reachable && line.estimate.offset_ns == 0.0;
        self.lines.iter().take_while(is_reference).last().map(midpoint)
    }

    /// Returns the first line up to this time that reports a step or a break of the clock.
    pub fn first_break(&self, until: Timestamp<Reference>) -> Option<&OffsetRecord> {
        let broken = |line: &&OffsetRecord| line.step.is_some() || line.broken_into.is_some();
        self.lines.iter().find(broken).filter(|line| midpoint(line) <= until)
    }

    /// Returns the state when the reference shows `at`; `None` beyond the lines, across a step and
    /// next to lines without an estimate.
    pub fn when_reference_shows(&self, at: Timestamp<Reference>) -> Option<Known> {
        let after = self.lines.partition_point(|line| midpoint(line) <= at);
        let before = after.checked_sub(1)?;
        let since_ns = (at - midpoint(&self.lines[before])).as_ns();
        if since_ns == 0 {
            return known(&self.lines[before]);
        }
        let gap = self.gap(before)?;
        Some(gap.at(since_ns as f64 * 1e-9 / gap.seconds))
    }

    /// Returns the state when the node's own clock shows `own`; `None` in the same cases as for
    /// [`Self::when_reference_shows`].
    pub fn when_it_shows(&self, own: Timestamp<System>) -> Option<Known> {
        // Among all lines one that reaches nobody would end the search in the middle of others.
        let after = self.readings.partition_point(|(shown, _)| *shown <= own);
        let (shown, before) = *self.readings.get(after.checked_sub(1)?)?;
        let first = known(&self.lines[before])?;
        let since_ns = (own - shown).as_ns() as f64;
        if since_ns == 0.0 {
            return Some(first.at_an_uncertain_moment());
        }
        let gap = self.gap(before)?;
        // The clock's rate is within a thousandth of one: each turn makes the error a thousandth.
        let mut s = since_ns * 1e-9 / gap.seconds;
        for _ in 0..TURNS {
            s = (since_ns - gap.moved_ns(s)) * 1e-9 / gap.seconds;
        }
        (0.0..=1.0).contains(&s).then(|| gap.at(s).at_an_uncertain_moment())
    }

    /// Two lines that a curve may join.
    fn gap(&self, before: usize) -> Option<Gap> {
        let (a, b) = (self.lines.get(before)?, self.lines.get(before + 1)?);
        if b.step.is_some() || b.broken_into.is_some() {
            return None;
        }
        let seconds = (midpoint(b) - midpoint(a)).as_ns() as f64 * 1e-9;
        Some(Gap { ends: [known(a)?, known(b)?], seconds })
    }
}

/// Returns the lines of a region's node on the timeline of the run among the masters: one at each
/// of its own, and where the master's curve has a line between them. `until` is when the master
/// ceased to be the region's reference. Lines for which the masters' run has no estimate of this
/// master are dropped; their number is returned too. A step is reported by one line only: if that
/// is dropped, by the next one that is kept.
pub fn compose(node: &NodeLines, master: &NodeLines, until: Timestamp<Reference>) -> (Vec<OffsetRecord>, usize) {
    let mut composed = Vec::new();
    let (mut left_out, mut untold) = (0, Break::default());
    // When the master's clock shows these, its own curve bends.
    let bends: Vec<Timestamp<Reference>> = master.readings.iter().map(|(shown, _)| shown.on_reference()).collect();
    let mut bend = 0;
    let mut add = |mut whole: OffsetRecord, untold: &mut Break| {
        std::mem::take(untold).tell(&mut whole);
        composed.push(whole);
    };
    for line in &node.lines {
        let at = midpoint(line);
        while let Some(between) = bends.get(bend).filter(|between| **between < at && **between <= until) {
            bend += 1;
            let here = node.when_reference_shows(*between).zip(master.when_it_shows(between.of_reference_node()));
            if let Some((own, above)) = here {
                add(on_timeline(line, Some(own), &above, Duration::from_ns(0)), &mut untold);
            }
        }
        if bends.get(bend) == Some(&at) {
            bend += 1;
        }
        match master.when_it_shows(at.of_reference_node()).filter(|_| at <= until) {
            Some(above) => {
                let half = Duration::from_ns((line.window_end - line.window_start).as_ns() / 2);
                add(on_timeline(line, known(line), &above, half), &mut untold);
            }
            None => {
                left_out += 1;
                untold = untold.and(Break::of(line));
            }
        }
    }
    (composed, left_out)
}

/// A break stated by a line, before it.
#[derive(Copy, Clone, Debug, Default)]
struct Break {
    step: Option<StepRecord>,
    into: Option<RoundId>,
}

impl Break {
    fn of(line: &OffsetRecord) -> Self {
        Self { step: line.step, into: line.broken_into }
    }

    /// Combined with that of a later line. A line can state only one step: from the last reading
    /// before the first to the first one after the last.
    fn and(self, later: Self) -> Self {
        let joined = |(first, last): (StepRecord, StepRecord)| StepRecord { after: first.after, before: last.before };
        Self {
            step: self.step.zip(later.step).map(joined).or(self.step).or(later.step),
            into: self.into.or(later.into),
        }
    }

    fn tell(self, line: &mut OffsetRecord) {
        let Self { step, into } = self.and(Self::of(line));
        (line.step, line.broken_into) = (step, into);
    }
}

/// Moves `line`, with `own` known at its place, to the timeline on which the master is known as
/// `above`.
fn on_timeline(line: &OffsetRecord, own: Option<Known>, above: &Known, half: Duration) -> OffsetRecord {
    let mut whole = line.clone();
    (whole.window_start, whole.window_end) = (above.at - half, above.at + half);
    let estimate = &mut whole.estimate;
    let Some(own) = own else {
        (estimate.reachable, estimate.sigma_ns, estimate.drift_sigma_ppm) = (false, f64::INFINITY, f64::INFINITY);
        (estimate.bound_lo_ns, estimate.bound_hi_ns) = (f64::NEG_INFINITY, f64::INFINITY);
        (whole.offset_drift_covariance, whole.wander) = (None, None);
        return whole;
    };
    estimate.offset_ns = own.offset_ns + above.offset_ns;
    estimate.drift_ppm = own.drift_ppm + above.drift_ppm + own.drift_ppm * above.drift_ppm * 1e-6;
    estimate.sigma_ns = own.sigma_ns.hypot(above.sigma_ns);
    estimate.asymmetry_sigma_ns = own.asymmetry_sigma_ns.hypot(above.asymmetry_sigma_ns);
    estimate.drift_sigma_ppm = own.drift_sigma_ppm.hypot(above.drift_sigma_ppm);
    estimate.bound_lo_ns = own.bound_ns[0] + above.bound_ns[0];
    estimate.bound_hi_ns = own.bound_ns[1] + above.bound_ns[1];
    whole.offset_drift_covariance = Some(own.offset_drift_covariance + above.offset_drift_covariance);
    whole.wander = Some(own.wander + above.wander);
    whole.clock_disturbed = own.disturbed || above.disturbed;
    whole.slew_ppm = own.slew_ppm + above.slew_ppm;
    whole
}

fn midpoint(line: &OffsetRecord) -> Timestamp<Reference> {
    line.window_start.midpoint(line.window_end)
}

/// The reading of the node's own clock at a line.
fn reading(line: &OffsetRecord) -> Option<Timestamp<System>> {
    let offset_ns = known(line)?.offset_ns;
    Some(midpoint(line).of_reference_node() + Duration::from_ns_f64(offset_ns.round()))
}

/// The content of a line; `None` if it does not reach the reference, or does not state its
/// uncertainty.
fn known(line: &OffsetRecord) -> Option<Known> {
    let estimate = &line.estimate;
    let stated = [estimate.offset_ns, estimate.drift_ppm, estimate.sigma_ns, estimate.drift_sigma_ppm];
    if !estimate.reachable || !stated.iter().all(|number| number.is_finite()) {
        return None;
    }
    Some(Known {
        at: midpoint(line),
        offset_ns: estimate.offset_ns,
        drift_ppm: estimate.drift_ppm,
        sigma_ns: estimate.sigma_ns,
        asymmetry_sigma_ns: estimate.asymmetry_sigma_ns,
        drift_sigma_ppm: estimate.drift_sigma_ppm,
        offset_drift_covariance: line.offset_drift_covariance?,
        wander: line.wander?,
        bound_ns: [estimate.bound_lo_ns, estimate.bound_hi_ns],
        disturbed: line.clock_disturbed,
        slew_ppm: line.slew_ppm,
    })
}

/// Two neighbouring lines.
struct Gap {
    ends: [Known; 2],
    seconds: f64,
}

impl Gap {
    /// Change of the offset since the first line, ns.
    fn moved_ns(&self, s: f64) -> f64 {
        let [a, b] = &self.ends;
        let [[wa, wb], _] = hermite(s, self.seconds);
        wb[0] * (b.offset_ns - a.offset_ns) + (wa[1] * a.drift_ppm + wb[1] * b.drift_ppm) * NS_PER_S_PER_PPM
    }

    fn at(&self, s: f64) -> Known {
        let [a, b] = &self.ends;
        let moved_ns = self.moved_ns(s);
        let wander = a.wander.max(b.wander);
        let covariance = self.covariance(s, wander);
        Known {
            at: a.at + Duration::from_ns_f64((s * self.seconds * 1e9).round()),
            offset_ns: a.offset_ns + moved_ns,
            drift_ppm: (1.0 - s) * a.drift_ppm + s * b.drift_ppm,
            sigma_ns: covariance[0].sqrt(),
            asymmetry_sigma_ns: a.asymmetry_sigma_ns.max(b.asymmetry_sigma_ns),
            drift_sigma_ppm: covariance[2].sqrt() / NS_PER_S_PER_PPM,
            offset_drift_covariance: covariance[1] / NS_PER_S_PER_PPM,
            wander,
            bound_ns: hard_between([a.bound_ns, b.bound_ns], self.seconds, s),
            disturbed: a.disturbed || b.disturbed,
            slew_ppm: a.slew_ppm.max(b.slew_ppm),
        }
    }

    /// ns², ns²/s, ns²/s².
    fn covariance(&self, s: f64, wander: f64) -> Block {
        let ends = self.ends.map(|end| {
            let rate = end.drift_sigma_ppm * NS_PER_S_PER_PPM;
            [end.sigma_ns.powi(2), end.offset_drift_covariance * NS_PER_S_PER_PPM, rate * rate]
        });
        let u = s * (1.0 - s);
        let across = (1.0 - s) * ends[0][1] + s * ends[1][1];
        [
            variance_between(ends, wander, self.seconds, s),
            across + wander * (self.seconds * u).powi(2) * (1.0 - 2.0 * s) / 2.0,
            ends[0][2].max(ends[1][2]) + wander * self.seconds * u,
        ]
    }
}

/// Until a reading of the node's own clock is found: the error becomes a thousandth with each.
const TURNS: usize = 6;

#[cfg(test)]
mod tests;
