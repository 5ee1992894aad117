//! The reference's timeline, which continues even when its node is gone.
//!
//! While the reference contributes its window the timeline is its clock. When it contributes none,
//! another node's clock continues the timeline: that node was offset c ahead of it, with rate f, in
//! the last round with an estimate, and is assumed to keep that rate. From then on rounds are
//! solved against the substitute node, and c + f·Δ is added to every offset; the standard deviation
//! of that sum grows with the elapsed time Δ by [`Growth::Walk`]. No packet bounds it, so there are
//! no hard intervals.
//!
//! A carried timeline stays carried: a reference that comes back may have another clock than
//! before, and if it has the same, its offset shows how well it was carried. When the carrying node
//! is gone too, the next one carries on.
//!
//! Two nodes by hand. Node 0 is the reference, and is gone. Node 1 was 1000 ns ahead of it at 10 s
//! (its own clock), gaining 2 ns each second. At its 15 s it is taken to be 1010 ahead. Node 2 is
//! measured 40 ns ahead of node 1: it is 1050 ahead of the timeline. The window's middle, 15 s by
//! node 1, is 15 s − 1010 ns.
//!
//! It does not determine whether the reference is gone for good, or use what its clock did
//! meanwhile.

use probe_sync_lines::{NodeEstimate, NodeWindow, Round};
use probe_sync_time::{Duration, NodeId, RoundId, System, Timestamp};

use super::{SolvedRound, Solver, SolverOptions};
use crate::Error;
use crate::series::{BEND_NS_PER_S2, Growth};

/// Solves rounds on one timeline.
#[derive(Debug)]
pub struct Timeline {
    options: SolverOptions,
    solver: Solver,
    carried: Option<Carried>,
    last: Option<Round>,
}

/// Offset of the carrying node's clock from the timeline.
#[derive(Copy, Clone, Debug)]
struct Carried {
    by: NodeId,
    /// Time of this estimate, on its clock.
    since: Timestamp<System>,
    offset_ns: f64,
    drift_ppm: f64,
    sigma_ns: f64,
    drift_sigma_ppm: f64,
}

impl Timeline {
    /// Creates the timeline of a new run.
    pub fn new(options: SolverOptions) -> Self {
        Self { solver: Solver::new(options.clone()), options, carried: None, last: None }
    }

    /// Creates the timeline of a running run, of which only this round is known.
    pub fn resume(options: SolverOptions, last: Round) -> Self {
        let carried = last.carried_by.and_then(|by| Carried::choose(&last, |node| node == by));
        let reference = carried.map_or(options.reference, |carried| carried.by);
        let solver = Solver::new(SolverOptions { reference, ..options.clone() });
        Self { options, solver, carried, last: Some(last) }
    }

    /// Returns the round that was solved last.
    pub fn last(&self) -> Option<&Round> {
        self.last.as_ref()
    }

    /// Returns the options.
    pub fn options(&self) -> &SolverOptions {
        &self.options
    }

    /// Returns the node whose window a round needs: the reference, or the node that carries its
    /// timeline.
    pub fn leader(&self) -> NodeId {
        self.carried.map_or(self.options.reference, |carried| carried.by)
    }

    /// Returns the window that defines the time of the round: the leader's, or that of the node
    /// that takes over from it. `None` if no node present can.
    pub fn leading<'w>(&mut self, windows: &'w [NodeWindow]) -> Option<&'w NodeWindow> {
        let of = |node: NodeId| windows.iter().find(|window| window.node_id == node);
        let steady = |window: &NodeWindow| window.clock_event.is_none_or(|event| event.step_ns == 0);
        // The reference's clock is the timeline, whatever it does; a clock that only carries it
        // must not take it along when it is set.
        if let Some(window) = of(self.leader()).filter(|window| self.carried.is_none() || steady(window)) {
            return Some(window);
        }
        let last = self.last.as_ref()?;
        let carried = Carried::choose(last, |node| of(node).is_some_and(steady))
            .or_else(|| Carried::choose(last, |node| of(node).is_some()))?;
        self.solver = Solver::new(SolverOptions { reference: carried.by, ..self.options.clone() });
        self.carried = Some(carried);
        of(carried.by)
    }

    /// Solves the next round. `leading` is the result of [`Self::leading`] for `windows`, which are
    /// those of all contributing nodes.
    ///
    /// # Errors
    /// Returns an error if an edge names a node that does not exist.
    pub fn solve(
        &mut self,
        round_id: RoundId,
        leading: &NodeWindow,
        windows: &[NodeWindow],
    ) -> Result<SolvedRound, Error> {
        let mut solved = self.solver.solve(round_id, leading, windows)?;
        if let Some(carried) = &self.carried {
            carried.apply(&mut solved.data, self.options.reference);
        }
        if self.last.is_none() || solved.data.knows_another_than(self.leader()) {
            self.last = Some(solved.data.clone());
        }
        Ok(solved)
    }

    /// Returns the end, on the timeline, of a window that ended at `end` on the clock of its
    /// leader.
    pub fn on_timeline(&self, end: Timestamp<System>) -> Timestamp<probe_sync_time::Reference> {
        let ahead = self.carried.map_or(0.0, |carried| carried.at(end)[0]);
        (end - Duration::from_ns_f64(ahead)).on_reference()
    }
}

impl Carried {
    /// Returns the present node with the most accurate estimate; the first among equals.
    fn choose(last: &Round, here: impl Fn(NodeId) -> bool) -> Option<Self> {
        let known = |node: &&NodeEstimate| node.reachable && node.sigma_ns.is_finite() && here(node.node_id);
        let sound = |node: &&NodeEstimate| !last.clock_disturbed(node.node_id);
        let candidates = last.all_nodes.iter().filter(known);
        let best = |nodes: &mut dyn Iterator<Item = &NodeEstimate>| {
            nodes.min_by(|a, b| a.sigma_ns.total_cmp(&b.sigma_ns)).map(|node| Self {
                by: node.node_id,
                since: last.midpoint().of_reference_node() + Duration::from_ns_f64(node.offset_ns),
                offset_ns: node.offset_ns,
                drift_ppm: node.drift_ppm,
                sigma_ns: node.sigma_ns,
                drift_sigma_ppm: if node.drift_sigma_ppm.is_finite() { node.drift_sigma_ppm } else { ANY_RATE_PPM },
            })
        };
        best(&mut candidates.clone().filter(sound)).or_else(|| best(&mut candidates.clone()))
    }

    /// Returns how far it is ahead at this instant of its clock, and the standard deviation, ns.
    fn at(&self, instant: Timestamp<System>) -> [f64; 2] {
        let seconds = self.seconds(instant);
        let rate = self.drift_sigma_ppm * NS_PER_S_PER_PPM;
        // Offset and rate of a line come from the same packets; the worst is that their errors add
        // up.
        let growth = Growth::Walk {
            covariance: self.sigma_ns * rate,
            rate: rate * rate,
            density: DENSITY,
            bend: BEND_NS_PER_S2,
        };
        let ahead = self.offset_ns + self.drift_ppm * NS_PER_S_PER_PPM * seconds;
        [ahead, growth.sigma(self.sigma_ns, seconds.abs())]
    }

    fn seconds(&self, instant: Timestamp<System>) -> f64 {
        (instant - self.since).as_ns_f64() * 1e-9
    }

    /// Converts a round that was solved relative to the carrying node to the timeline.
    fn apply(&self, round: &mut Round, reference: NodeId) {
        let on_its_clock = round.midpoint().of_reference_node();
        let [ahead, sigma] = self.at(on_its_clock);
        // Its rate has wandered since, as its offset has.
        let wandered_ppm = (DENSITY * self.seconds(on_its_clock).abs()).sqrt() / NS_PER_S_PER_PPM;
        let rate_sigma_ppm = self.drift_sigma_ppm.hypot(wandered_ppm);
        for node in &mut round.all_nodes {
            // No packet of this round says where the timeline is.
            (node.bound_lo_ns, node.bound_hi_ns) = (f64::NEG_INFINITY, f64::INFINITY);
            node.offset_ns += ahead;
            node.drift_ppm += self.drift_ppm;
            node.sigma_ns = node.sigma_ns.hypot(sigma);
            // More packets do not reduce it.
            node.asymmetry_sigma_ns = node.asymmetry_sigma_ns.hypot(sigma).min(node.sigma_ns);
            node.drift_sigma_ppm = node.drift_sigma_ppm.hypot(rate_sigma_ppm);
        }
        let shift = Duration::from_ns_f64(ahead);
        (round.window_start, round.window_end) = (round.window_start - shift, round.window_end - shift);
        (round.reference, round.carried_by) = (reference, Some(self.by));
    }
}

/// ns/s of a millionth.
const NS_PER_S_PER_PPM: f64 = 1000.0;

/// Typical wander of clock rates in machine rooms from second to second, ns²/s³: a rate that moves
/// by 1 ns/s in a second.
const DENSITY: f64 = 1.0;

/// No oscillator and no daemon does more.
const ANY_RATE_PPM: f64 = 600.0;
