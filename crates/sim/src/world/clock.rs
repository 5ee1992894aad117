//! A simulated system clock whose true error is known at any instant.
//!
//! `error(t) = skewed(t) + ∫ wander + ∫ slews + replayed(t)`: a [`SkewedClock`] (offset, rate,
//! wave, steps), a rate that wanders and drifts with temperature, slews, and a recorded series. The
//! wandering rate is constant over steps of [`STEP_NS`], so the error is a polygon, known exactly
//! everywhere. How the parts are drawn is in `oscillator`.
//!
//! It does not know why it stepped or slewed; [`WanderingClock::event_in`] returns what a node
//! notices.

use probe_sync_lines::ClockEvent;
use probe_sync_time::{Duration, NodeId, Reference, SkewedClock, System, Timestamp};

/// A simulated system clock.
#[derive(Clone, Debug, PartialEq)]
pub struct WanderingClock {
    pub(crate) skewed: SkewedClock,
    pub(crate) start: Timestamp<System>,
    /// At the beginning of each step: the error that wander has added, ns, and the wandering part
    /// of the rate, ns per ns.
    pub(crate) knots: Vec<(f64, f64)>,
    /// Temporary changes of rate.
    pub(crate) slews: Vec<Slew>,
    /// Time since the start and error, ns, in order of time; empty: none.
    pub(crate) replay: Vec<(i64, f64)>,
    /// What the node's clock watch sees, in order of time.
    pub(crate) noticed: Vec<Disturbance>,
}

/// A temporary change of rate, ns since the start.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Slew {
    pub(crate) start_ns: i64,
    pub(crate) end_ns: i64,
    pub(crate) ppm: f64,
}

/// A disturbance that a clock watch sees.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Disturbance {
    /// Time since the start, ns.
    pub(crate) at_ns: i64,
    pub(crate) step_ns: i64,
    pub(crate) slew_ppm: f64,
}

impl WanderingClock {
    /// This clock minus the true time, at true time `at`, ns.
    pub fn error_ns(&self, at: Timestamp<System>) -> f64 {
        let since = (at - self.start).as_ns();
        let slewed: f64 = self.slews.iter().map(|slew| slew.error_ns(since)).sum();
        self.skewed.error_ns(at) + self.wander(since).0 + slewed + self.replayed(since).0
    }

    /// The clock's rate error at true time `at`, ppm; steps do not count.
    pub fn rate_ppm(&self, at: Timestamp<System>) -> f64 {
        let since = (at - self.start).as_ns();
        let slewing = |slew: &&Slew| (slew.start_ns..slew.end_ns).contains(&since);
        let slews: f64 = self.slews.iter().filter(slewing).map(|slew| slew.ppm).sum();
        self.skewed.rate_ppm(at) + (self.wander(since).1 + self.replayed(since).1) * 1e6 + slews
    }

    /// Reading of this clock at true time `at`.
    pub fn apply(&self, at: Timestamp<System>) -> Timestamp<System> {
        at + Duration::from_ns_f64(self.error_ns(at))
    }

    /// The true time at which this clock shows `shown`. If a step makes it show an instant twice or
    /// never, some time near the step.
    pub fn invert(&self, shown: Timestamp<System>) -> Timestamp<System> {
        let mut at = shown;
        // Rates are below 1 %: each turn makes the error a hundred times smaller.
        for _ in 0..INVERSE_TURNS {
            at = shown - Duration::from_ns_f64(self.error_ns(at));
        }
        at
    }

    /// What the node's clock watch reports about the time after `from` up to `to`, true time: the
    /// sum of all steps and the largest change of rate, like a real one.
    pub fn event_in(&self, from: Timestamp<System>, to: Timestamp<System>) -> Option<ClockEvent> {
        let begin = self.noticed.partition_point(|seen| seen.at_ns <= (from - self.start).as_ns());
        let end = self.noticed.partition_point(|seen| seen.at_ns <= (to - self.start).as_ns());
        let seen = self.noticed.get(begin..end)?;
        let first = self.start + Duration::from_ns(seen.first()?.at_ns);
        let largest = seen.iter().map(|seen| seen.slew_ppm).max_by(|a, b| a.abs().total_cmp(&b.abs()));
        Some(ClockEvent {
            step_ns: seen.iter().map(|seen| seen.step_ns).sum(),
            slew_ppm: largest.unwrap_or(0.0),
            at: self.apply(first),
            step_between: None,
        })
    }

    /// Contribution of wander to error and rate.
    fn wander(&self, since: i64) -> (f64, f64) {
        let Some(last) = self.knots.len().checked_sub(1) else { return (0.0, 0.0) };
        let since = since.max(0);
        let step = (since / STEP_NS).min(last as i64);
        let (error, rate) = self.knots[step as usize];
        (error + rate * (since - step * STEP_NS) as f64, rate)
    }

    /// Contribution of the recorded series to error and rate.
    fn replayed(&self, since: i64) -> (f64, f64) {
        let (Some(first), Some(last)) = (self.replay.first(), self.replay.last()) else { return (0.0, 0.0) };
        let after = self.replay.partition_point(|(at, _)| *at <= since);
        let (Some(before), Some(after)) = (after.checked_sub(1), self.replay.get(after)) else {
            return (if since < first.0 { first.1 } else { last.1 }, 0.0);
        };
        let before = self.replay[before];
        let rate = (after.1 - before.1) / (after.0 - before.0) as f64;
        (before.1 + rate * (since - before.0) as f64, rate)
    }
}

impl Slew {
    fn error_ns(&self, since: i64) -> f64 {
        // In range: `start ≤ end` by construction.
        self.ppm * 1e-6 * (since.clamp(self.start_ns, self.end_ns) - self.start_ns) as f64
    }
}

/// The truth: offset of `node` from `reference` when the reference's clock shows `at`, ns.
pub(crate) fn offset_ns(clocks: &[WanderingClock], node: NodeId, reference: NodeId, at: Timestamp<Reference>) -> f64 {
    let reference = &clocks[reference.index()];
    let real = reference.invert(at.of_reference_node());
    clocks[node.index()].error_ns(real) - reference.error_ns(real)
}

/// 50 ms: many steps in a window of seconds, few enough to keep the wander of a thousand clocks for
/// minutes.
pub(crate) const STEP_NS: i64 = 50_000_000;

const INVERSE_TURNS: u32 = 6;
