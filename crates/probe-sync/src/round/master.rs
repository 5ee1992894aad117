//! The master's part of a round: solve, decide what comes next, keep, observe.
//!
//! Place in the flow: after all nodes' windows have come, before the broadcast; at the root only.
//! What it does not do: gather, broadcast, measure.

use std::time::{Duration as StdDuration, Instant};

use probe_sync_estimate::graph::GraphOptions;
use probe_sync_estimate::round::{Decision, Solver, SolverOptions};
use probe_sync_estimate::window::NodeWindowData;
use probe_sync_time::{Duration, NodeId, RoundId};

use super::attendants::Attendants;
use super::exchange::{Broadcast, Exchange};
use crate::Error;
use crate::join::{Back, Hello, Joined, Notice};
use crate::measure::account::RankAccount;
use crate::pace::{Pace, Policy};
use crate::report::parts::{Part, Parts};
use crate::report::{Observed, Recorder, RunReport, Stopped};

/// The root's part of a run.
pub(crate) struct Master {
    reference: NodeId,
    solver: Solver,
    policy: Policy,
    recorder: Recorder,
    begun: Instant,
    /// How long the run lasts; `None` until a signal.
    duration: Option<Duration>,
    configured: Pace,
    latency: StdDuration,
    /// Some rank asked to end the run.
    asked: bool,
    /// The last window is under way.
    closing: bool,
    first_window: Option<Duration>,
    last_window: Option<Duration>,
    attendants: Attendants,
}

/// What the master knows of the window that has just ended.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Ended<'a> {
    /// The round.
    pub round_id: RoundId,
    /// How long the window should have been.
    pub length: Duration,
    /// When the root's own window was cut.
    pub closed: Instant,
    /// The pace in force.
    pub pace: &'a Pace,
    /// Somebody asked this rank to end the run.
    pub stop: bool,
}

impl Master {
    /// The master of a run that begins now.
    pub fn new(joined: &Joined, policy: Policy, recorder: Recorder, hellos: Vec<Hello>) -> Self {
        let (nodes, reference) = (joined.plan.nodes(), joined.roster.reference);
        Self {
            reference,
            solver: Solver::new(SolverOptions { nodes, reference, graph: GraphOptions::default() }),
            policy,
            recorder,
            begun: Instant::now(),
            duration: joined.config.duration,
            configured: Pace::configured(&joined.config),
            latency: StdDuration::ZERO,
            asked: false,
            closing: false,
            first_window: joined.config.first_window,
            last_window: joined.config.last_window,
            attendants: Attendants::new(joined, hellos),
        }
    }

    /// Takes down who has left, and decides on who asks to come back: the nodes that all are to be told of.
    ///
    /// # Errors
    /// When nobody could come back any more.
    pub fn attend(&mut self, round_id: RoundId, exchange: &mut Exchange<'_>) -> Result<Vec<Back>, Error> {
        self.attendants.attend(round_id, exchange, &mut self.recorder)
    }

    /// Takes down who has left after the last round.
    pub fn attend_the_end(&mut self, round_id: RoundId, exchange: &mut Exchange<'_>) {
        self.attendants.take_down(&exchange.attendance().left, round_id, &mut self.recorder);
    }

    /// What ranks that come back are told.
    pub fn notice(&self) -> &Notice {
        self.attendants.notice()
    }

    /// Solves the round, decides the next, and keeps both; what all ranks are to be told, together with the nodes that are `back`.
    ///
    /// # Errors
    /// When the reference contributed no window, the graph cannot be solved, or a file cannot be written.
    pub fn solve(
        &mut self,
        ended: Ended<'_>,
        windows: &[NodeWindowData],
        back: Vec<Back>,
        parts: &mut Parts,
    ) -> Result<Broadcast, Error> {
        let Ended { round_id, length, closed, pace, stop } = ended;
        let reference = windows.iter().find(|window| window.node_id == self.reference);
        let reference = reference.ok_or(Error::ReferenceMissing { round_id, reference: self.reference })?;
        self.asked |= stop || windows.iter().any(|window| window.stop_requested);
        let over = self.duration_over(self.configured.window);
        // Once more, so that what was recorded until now is not at the edge of what was measured.
        let closing = if self.asked && !over && !self.closing { self.last_window } else { None };
        self.closing |= closing.is_some();
        let ends = closing.is_none() && (self.asked || over);
        if ends && too_short(reference, length) {
            return Ok(Broadcast::Ended { round_id });
        }
        let solved = parts.time(Part::Solve, || self.solver.solve(round_id, reference, windows));
        let mut solved = solved.map_err(|source| Error::Graph { round_id, source })?;
        let next = match (closing, self.first_windows(round_id)) {
            // A pace for long windows leaves hardly a packet in a short one.
            (Some(window), _) => Pace { window, cadence: pace.cadence.min(self.configured.cadence), ..pace.clone() },
            (None, Some(window)) => Pace { window, ..pace.clone() },
            (None, None) => {
                let long = Pace { window: pace.window.max(self.configured.window), ..pace.clone() };
                let next = self.policy.next(&solved, &long);
                Pace { window: self.within_duration(next.window), ..next }
            }
        };
        let mut start = solved.data.window_end;
        if closing.is_some() {
            // This rank may have cut its window long before the others ended theirs: their last one is to be whole.
            start += Duration::from_ns(i64::try_from(closed.elapsed().as_nanos()).unwrap_or(0));
        }
        let decision = next.decision(start, ends);
        solved.data.decision = Decision { closing: closing.is_some(), ..decision };
        self.latency = closed.elapsed();
        parts.time(Part::Record, || self.recorder.record(&solved.data, self.latency));
        self.recorder.keep(&solved.data, solved.edges);
        Ok(Broadcast::Solved(Box::new(solved.data), back))
    }

    /// How long the window after this round is, where it is one of the first, short ones.
    fn first_windows(&self, round_id: RoundId) -> Option<Duration> {
        self.first_window.filter(|first| round_id.0 + 1 < FIRST_WINDOWS && *first < self.configured.window)
    }

    /// What can wait until all ranks have the round.
    pub fn after_broadcast(&mut self, observed: &Observed<'_>) {
        self.recorder.refresh_metrics(self.latency, observed);
    }

    /// Time from the end of the root's own window to the last solved round: its fits, the gather and the graph.
    pub fn latency(&self) -> StdDuration {
        self.latency
    }

    /// Makes and writes the report. Without accounts (the run failed) it speaks of finished rounds only.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn report(self, accounts: &[RankAccount], stopped: Stopped, error: Option<String>) -> Result<RunReport, Error> {
        let pacing = self.policy.report();
        let stopped = Stopped { asked: stopped.asked || self.asked, ..stopped };
        self.recorder.end(accounts, stopped, error, pacing)
    }

    /// A window that has grown and would outlast the run ends with it; so does one after which too little for another would be left.
    fn within_duration(&self, window: Duration) -> Duration {
        let Some(duration) = self.duration.filter(|_| window > self.configured.window) else { return window };
        let begun = i64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let left = Duration::from_ns(duration.as_ns().saturating_sub(begun));
        let rest = left - window;
        let last = rest < Duration::from_ns(self.configured.window.as_ns() / 2);
        if last && left > Duration::ZERO { left } else { window }
    }

    /// True when less than half a window of the configured duration is left.
    fn duration_over(&self, window: Duration) -> bool {
        self.duration.is_some_and(|duration| {
            let half = StdDuration::from_nanos(window.as_ns().unsigned_abs() / 2);
            self.begun.elapsed() + half >= StdDuration::from_nanos(duration.as_ns().unsigned_abs())
        })
    }
}

/// So many short ones bound the clocks' rates within a second.
const FIRST_WINDOWS: u64 = 4;

/// A last window cut short by a signal is solved only if it has half its length.
fn too_short(reference: &NodeWindowData, length: Duration) -> bool {
    (reference.window_end - reference.window_start).as_ns() < length.as_ns() / 2
}
