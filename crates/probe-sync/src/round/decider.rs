//! Solves a round and decides on the next: when it ends, how fast it probes, and whether it is the
//! last.
//!
//! In master-controlled rounds only the root has a [`Decider`]; in time-based ones every rank has
//! one, and all reach the same decision, because it depends only on the windows and the settings,
//! never on a rank's own time. The master's own time is an argument.
//!
//! Time-based rounds end at whole multiples of the window's length on the reference clock. By hand,
//! windows of 4 s: a round that ended at 12.003 s is followed by one that ends at 16 s, and so is
//! one that ended at 11.997 s.

use std::time::Duration as StdDuration;

use probe_sync_estimate::round::{SolvedRound, SolverOptions, Timeline};
use probe_sync_lines::{Decision, Hosts, NodeWindow, Round};
use probe_sync_time::{Duration, NodeId, Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

use super::request::Request;
use crate::Error;
use crate::join::Joined;
use crate::pace::adaptive::PacingReport;
use crate::pace::{Pace, Policy};

/// Solves rounds and decides on the next.
pub(crate) struct Decider {
    reference: NodeId,
    timeline: Timeline,
    policy: Policy,
    /// Duration of the run; `None`: until a signal.
    duration: Option<Duration>,
    configured: Pace,
    /// True if windows end at whole multiples of their length.
    timed: bool,
    /// True if a rank asked to end the run.
    asked: bool,
    /// True if the current window is the last.
    closing: bool,
    first_window: Option<Duration>,
    last_window: Option<Duration>,
    /// Start of the first window.
    first_start: Option<Timestamp<Reference>>,
    paused: bool,
    phase: Option<String>,
    /// Requests accepted since the last decision.
    taken: Vec<Request>,
}

/// Facts about the window that has just ended.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ended<'a> {
    /// The round.
    pub round_id: RoundId,
    /// Planned length of the window.
    pub length: Duration,
    /// The current pace.
    pub pace: &'a Pace,
    /// Times on the master's own clock.
    pub master: Option<MasterTime>,
}

/// Times on the master's own clock when a window has ended.
#[derive(Copy, Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct MasterTime {
    /// Time since the run began.
    pub begun: StdDuration,
    /// Time since the master's own window was cut.
    pub closed: StdDuration,
}

/// Result of a round.
pub(crate) enum Decided {
    /// The round is solved, and contains the decision.
    Solved(Box<SolvedRound>),
    /// The run ends with it; its window was too short to be solved.
    Ended,
}

impl Decider {
    /// Creates the decider of a run that begins now.
    pub fn new(joined: &Joined, policy: Policy) -> Self {
        let (nodes, reference) = (joined.plan.nodes(), joined.roster.reference);
        let hosts = Hosts::shared(joined.plan.host_of_node.iter().copied());
        Self {
            reference,
            timeline: Timeline::new(SolverOptions { hosts, ..SolverOptions::new(nodes, reference) }),
            policy,
            duration: joined.config.duration,
            configured: Pace::configured(&joined.config),
            timed: joined.config.rounds.all_solve(),
            asked: false,
            closing: false,
            first_window: joined.config.first_window,
            last_window: joined.config.last_window,
            first_start: None,
            paused: false,
            phase: None,
            taken: Vec::new(),
        }
    }

    /// Continues after this round of a running run, with no other knowledge.
    pub fn adopt(&mut self, round: &Round) {
        self.timeline = Timeline::resume(self.timeline.options().clone(), round.clone());
        self.take_decision(&round.decision);
    }

    /// Adopts the latest decision of another master.
    pub fn take_decision(&mut self, decision: &Decision) {
        (self.paused, self.closing) = (decision.paused, decision.closing);
        self.asked |= decision.closing;
        self.phase.clone_from(&decision.phase);
    }

    /// Applies a request from the next decision on.
    pub fn take(&mut self, request: &Request) {
        self.taken.push(request.clone());
        match request {
            Request::Pause => self.paused = true,
            Request::Resume => self.paused = false,
            Request::Phase(phase) => self.phase.clone_from(phase),
            Request::Stop => self.asked = true,
            Request::EndRound | Request::Anomaly(_) => {}
        }
    }

    /// Solves the round and decides on the next.
    ///
    /// # Errors
    /// Returns an error if no window is from a node that knows the reference time, or the graph
    /// cannot be solved.
    pub fn decide(&mut self, ended: &Ended<'_>, windows: &[NodeWindow]) -> Result<Decided, Error> {
        let Ended { round_id, length, pace, master } = *ended;
        let leading = self.timeline.leading(windows);
        let leading = leading.ok_or(Error::ReferenceMissing { round_id, reference: self.reference })?;
        let first_start = *self.first_start.get_or_insert(self.timeline.on_timeline(leading.window_start));
        let lasted = (self.timeline.on_timeline(leading.window_end) - first_start).as_ns().max(0);
        let lasted = master.map_or(lasted, |master| Duration::from_std(master.begun).as_ns());
        self.asked |= windows.iter().any(|window| window.stop_requested);
        let over = self.over(lasted);
        // Once more, so that what was recorded until now is not at the edge of what was measured.
        let closing = if self.asked && !over && !self.closing { self.last_window } else { None };
        self.closing |= closing.is_some();
        let ends = closing.is_none() && (self.asked || over);
        if ends && too_short(leading, length) {
            return Ok(Decided::Ended);
        }
        let solved = self.timeline.solve(round_id, leading, windows);
        let mut solved = solved.map_err(|source| Error::Graph { round_id, source })?;
        let next = match (closing, self.first_windows(round_id)) {
            // A pace for long windows leaves hardly a packet in a short one.
            (Some(window), _) => Pace { window, cadence: pace.cadence.min(self.configured.cadence), ..pace.clone() },
            (None, Some(window)) => Pace { window, ..pace.clone() },
            (None, None) => {
                let long = Pace { window: pace.window.max(self.configured.window), ..pace.clone() };
                let next = self.policy.next(&solved, &long);
                Pace { window: self.within_duration(next.window, lasted), ..next }
            }
        };
        let mut start = solved.data.window_end;
        if let Some(MasterTime { closed, .. }) = master.filter(|_| closing.is_some()) {
            // The master may have cut its window long before the others ended theirs: their last
            // one is to be whole.
            start += Duration::from_std(closed);
        }
        let decision = next.decision(start, ends);
        let next_window_end = if self.timed { on_the_grid(start, next.window) } else { decision.next_window_end };
        // The last window is everybody's own; nobody would be left to end a pause.
        let paused = self.paused && closing.is_none();
        solved.data.decision =
            Decision { next_window_end, closing: closing.is_some(), paused, phase: self.phase.clone(), ..decision };
        Ok(Decided::Solved(Box::new(solved)))
    }

    /// Removes and returns the requests accepted since the previous call.
    pub fn taken(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.taken)
    }

    /// Returns true if the end of the run was requested.
    pub fn asked(&self) -> bool {
        self.asked
    }

    /// Returns the results of the policy, for the run's report.
    pub fn pacing(&self) -> Option<PacingReport> {
        self.policy.report()
    }

    /// Returns the length of the window after this round, if it is one of the first, shorter ones.
    fn first_windows(&self, round_id: RoundId) -> Option<Duration> {
        self.first_window.filter(|first| round_id.0 + 1 < FIRST_WINDOWS && *first < self.configured.window)
    }

    /// Limits a window to the run's duration: one that would outlast the run ends with it, and one
    /// that would leave too little time for another is extended to the end.
    fn within_duration(&self, window: Duration, lasted_ns: i64) -> Duration {
        let Some(duration) = self.duration.filter(|_| window > self.configured.window) else { return window };
        let left = Duration::from_ns(duration.as_ns().saturating_sub(lasted_ns));
        let rest = left - window;
        let last = rest < Duration::from_ns(self.configured.window.as_ns() / 2);
        if last && left > Duration::ZERO { left } else { window }
    }

    /// Returns true if less than half a window of the configured duration is left.
    fn over(&self, lasted_ns: i64) -> bool {
        let half = self.configured.window.as_ns() / 2;
        self.duration.is_some_and(|duration| lasted_ns.saturating_add(half) >= duration.as_ns())
    }
}

/// Returns the end of the window that begins at `start`, if windows end at whole multiples of their
/// length: half a length to one and a half later.
pub(super) fn on_the_grid(start: Timestamp<Reference>, window: Duration) -> Timestamp<Reference> {
    let length = window.as_ns().max(1);
    let ended = (start.as_ns().saturating_add(length / 2)).div_euclid(length);
    Timestamp::from_ns((ended + 1).saturating_mul(length))
}

/// Number of short windows; these bound the clocks' rates within a second.
const FIRST_WINDOWS: u64 = 4;

/// Returns true if a last window cut short by a signal has less than half its length and is not
/// solved.
fn too_short(leading: &NodeWindow, length: Duration) -> bool {
    (leading.window_end - leading.window_start).as_ns() < length.as_ns() / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_end_at_whole_multiples_of_their_length() {
        let end = |start_ms: i64, window_ms: i64| {
            let (start, window) = (Timestamp::from_ns(start_ms * 1_000_000), Duration::from_ms(window_ms));
            on_the_grid(start, window).as_ns() / 1_000_000
        };
        assert_eq!((end(12_003, 4_000), end(11_997, 4_000)), (16_000, 16_000));
        assert_eq!((end(13_999, 4_000), end(14_001, 4_000)), (16_000, 20_000));
        // After four short windows the first long one ends at its own multiple.
        assert_eq!((end(1_000, 250), end(1_000, 4_000)), (1_250, 4_000));
        assert_eq!(end(-1_000, 4_000), 4_000);
    }
}
