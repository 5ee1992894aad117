//! A run smoothed as a whole, with its clocks at any time, around steps and up to both ends.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_lines::{ClockBreak, EdgeFit, Fault, NodeEstimate};
use probe_sync_time::{Edge, NodeId, Reference, RoundId, Timestamp};

use super::ends::{End, State};
use super::gaps::{Gaps, Held};
use super::recorded::Recorded;
use super::windows::Windows;
use crate::motion::NS_PER_S_PER_PPM;
use crate::round::{SolvedRound, SolverOptions};
use crate::smoother::{self, Exchanges, FirstPass, RunSolution, SmoothedOffset, SmootherOptions};
use crate::stamp_errors::StampErrors;
use crate::statistics::{SIGMAS_95, median, upper_median};

/// A smoothed run.
#[derive(Debug)]
pub struct Smoothed {
    /// Reference node, whose offset is zero.
    pub(super) reference: NodeId,
    /// All rounds, with smoothed estimates.
    pub(super) rounds: Vec<SolvedRound>,
    /// Indices of the smoothed rounds, in order of time.
    pub(super) in_order: Vec<usize>,
    pub(super) solution: RunSolution,
    stamp_errors: StampErrors,
    /// Number of times that a clock was stepped or restarted.
    pub breaks: usize,
    pub(super) gaps: Gaps,
    /// Extrapolation before the first round and after the last, by node.
    ends: Vec<[Option<End>; 2]>,
}

impl Smoothed {
    /// Smooths the rounds of a run, in order of `round_id`; without `recorded` exchanges, from
    /// their fits alone.
    pub fn new(run: &SolverOptions, rounds: Vec<SolvedRound>, recorded: Option<&[Recorded<'_>]>) -> Self {
        Self::watched(run, rounds, recorded, &mut |_| {})
    }

    /// Smooths like [`Self::new`], reporting progress: `told` receives the completed share of the
    /// time, 0 to 1, if there are `recorded` exchanges.
    pub fn watched(
        run: &SolverOptions,
        mut rounds: Vec<SolvedRound>,
        recorded: Option<&[Recorded<'_>]>,
        told: &mut dyn FnMut(f64),
    ) -> Self {
        let SolverOptions { nodes, reference, .. } = *run;
        let in_order = in_order(&rounds);
        let left_out = left_out(&rounds);
        let breaks: Vec<ClockBreak> = rounds.iter().flat_map(|round| &round.data.watch.breaks).copied().collect();
        let none = Vec::new();
        let views: Vec<smoother::SmootherRound<'_>> = in_order
            .iter()
            .map(|place| {
                let SolvedRound { data, edges, .. } = &rounds[*place];
                smoother::SmootherRound {
                    round_id: data.round_id,
                    reference_midpoint: data.midpoint(),
                    edges,
                    nodes: &data.all_nodes,
                    excluded: &data.excluded_edges,
                    left_out: left_out.get(&data.round_id).unwrap_or(&none),
                }
            })
            .collect();
        let options = SmootherOptions { reference, ..SmootherOptions::default() };
        let useful: Vec<BTreeSet<Edge>> = views.iter().map(useful).collect();
        let places = smoother::places(&views, &breaks);
        let faults: Vec<&Fault> = rounds.iter().flat_map(|round| &round.data.watch.faults).collect();
        let mut gaps = Gaps::new(nodes, reference, &places, &views, &useful, &faults);
        let solution = match recorded {
            Some(recorded) => {
                let ids = in_order.iter().map(|place| rounds[*place].data.round_id);
                let exchanges = exchanges(&ids.zip(&useful).collect(), recorded);
                let live = FirstPass::new(nodes, &views, &breaks, &options);
                let in_time: Vec<&SolvedRound> = in_order.iter().map(|place| &rounds[*place]).collect();
                let windows =
                    Windows::new(run, in_time, &places, recorded, |place, edge| useful[place].contains(&edge));
                let best = windows.best(&live, &options).unwrap_or(live);
                best.with_packets(nodes, &exchanges, &options, told)
            }
            None => smoother::smooth_run(nodes, &views, &breaks, &options),
        };
        gaps.place(&solution, &rounds, recorded.unwrap_or_default());
        let mut stamp_errors = StampErrors::new(nodes, reference, run.hosts.clone());
        rounds.iter().for_each(|round| stamp_errors.learn(&round.edges));
        for place in &in_order {
            let data = &mut rounds[*place].data;
            let middle = data.midpoint();
            for node in &mut data.all_nodes {
                if let Some(smoothed) = solution.at(node.node_id, middle) {
                    stamp_errors.widened(node.node_id, smoothed).put_into(node);
                }
            }
        }
        let (breaks, ends) = (places.len(), Vec::new());
        let mut smoothed = Self { reference, breaks, rounds, in_order, solution, stamp_errors, gaps, ends };
        smoothed.ends = (0..nodes as u32).map(|node| smoothed.ends_of(NodeId(node))).collect();
        smoothed
    }

    /// Returns all rounds, with estimates smoothed and kept inside their hard intervals.
    pub fn rounds(&self) -> &[SolvedRound] {
        &self.rounds
    }

    /// Returns the estimate of a node at any time of the reference's clock, equal to a line of a
    /// knot there; `None` without rounds.
    pub fn at(&self, node: NodeId, at: Timestamp<Reference>) -> Option<NodeEstimate> {
        let boundaries = self.in_order.len().checked_sub(1)?;
        let here = (0..boundaries).position(|here| at < self.boundary(here)).unwrap_or(boundaries);
        let data = &self.rounds[self.in_order[here]].data;
        data.all_nodes.get(node.index()).map(|node| self.carried(node, here, at))
    }

    /// Returns the rounds that were not smoothed because the reference's clock was set back, so
    /// that they are before an earlier round.
    pub fn unsmoothed(&self) -> impl Iterator<Item = RoundId> + '_ {
        let places = (0..self.rounds.len()).filter(|place| self.in_order.binary_search(place).is_err());
        places.map(|place| self.rounds[place].data.round_id)
    }

    /// Returns the standard deviation of the asymmetry of a median path, ns.
    pub fn asymmetry_sd_ns(&self) -> f64 {
        self.solution.asymmetry_sd_ns
    }

    /// Returns the faults in the order in which they were reported.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.rounds.iter().flat_map(|round| &round.data.watch.faults)
    }

    /// Returns the median half-width of the 95 % intervals, without the reference; `None` if no
    /// other node was reached.
    pub fn half_width_95_ns(&self) -> Option<f64> {
        let others = self.rounds.iter().flat_map(|round| &round.data.all_nodes);
        let mut sigmas: Vec<f64> =
            others.filter(|node| node.reachable && node.node_id != self.reference).map(|node| node.sigma_ns).collect();
        upper_median(&mut sigmas).map(|sigma| SIGMAS_95 * sigma)
    }

    /// Returns the boundary between the smoothed round `here` and the next.
    pub(super) fn boundary(&self, here: usize) -> Timestamp<Reference> {
        let [this, next] = [here, here + 1].map(|at| &self.rounds[self.in_order[at]].data);
        this.window_end.midpoint(next.window_start)
    }

    /// Returns the wander density of the node's rate relative to the reference around a time.
    pub(super) fn wander(&self, node: NodeId, between: [Timestamp<Reference>; 2]) -> f64 {
        if node == self.reference { 0.0 } else { self.solution.walk_between(node, between) }
    }

    /// Returns the state of a clock at a time; `None` if the time may be on either side of a step.
    pub(super) fn known(&self, node: NodeId, at: Timestamp<Reference>) -> Option<SmoothedOffset> {
        self.shown(node, at).map(|shown| self.stamp_errors.widened(node, shown))
    }

    /// Returns the state shown by the packets.
    fn shown(&self, node: NodeId, at: Timestamp<Reference>) -> Option<SmoothedOffset> {
        match self.gaps.held(node, at) {
            Held::Free => {}
            Held::Unknown => return None,
            Held::Side(from) => {
                let seconds = (i128::from(at.as_ns()) - i128::from(from.as_ns())) as f64 / NS_PER_S;
                return Some(straight_on(&self.solution.at(node, from)?, seconds, self.wander(node, [from, from])));
            }
        }
        let mut known = self.solution.at(node, at)?;
        let t = self.seconds(at);
        let [first, last] = self.outermost()?;
        let end = if at < first { 0 } else { 1 };
        let beyond = self.ends.get(node.index()).and_then(|ends| ends[end]).filter(|_| at < first || at > last);
        if let Some([offset, rate, error]) = beyond.and_then(|end| end.beyond(t)) {
            known.offset_ns += offset;
            known.drift_ppm += rate / NS_PER_S_PER_PPM;
            known.sigma_ns = known.sigma_ns.hypot(error);
            known.half_width_95_ns = SIGMAS_95 * known.sigma_ns;
        }
        Some(known)
    }

    /// Returns the extrapolation of a node at both ends of the run, from its rounds there.
    fn ends_of(&self, node: NodeId) -> [Option<End>; 2] {
        // Knots closer than rounds are would show more of their errors than of the clock's bend.
        let middles: Vec<f64> =
            self.in_order.iter().map(|place| self.seconds(self.rounds[*place].data.midpoint())).collect();
        let apart = NEARLY * median(middles.windows(2).map(|pair| pair[1] - pair[0]));
        let states = |knots: &mut dyn Iterator<Item = Timestamp<Reference>>| {
            let mut states: Vec<State> = Vec::new();
            let mut first = None;
            let mut last_s = None;
            let mut far = |at: &Timestamp<Reference>| {
                let t = self.seconds(*at);
                let far = last_s.is_none_or(|last: f64| (t - last).abs() >= apart);
                last_s = if far { Some(t) } else { last_s };
                far
            };
            // Up to the first gap: a step ends what can be compared. A node that came late has
            // knots of its own.
            for at in knots.filter(|at| far(at)).take(KNOTS_OF_AN_END) {
                let stepped = first.is_some_and(|first| self.steps_between(node, first, at));
                let Some(known) = self.solution.at(node, at).filter(|_| !stepped && !self.gaps.hold(node, at)) else {
                    break;
                };
                first = first.or(Some(at));
                let above = states.first().map_or(0.0, |state| state.offset_ns);
                let offset_ns = known.offset_ns - above;
                states.push(State { t: self.seconds(at), offset_ns, rate: known.drift_ppm * NS_PER_S_PER_PPM });
            }
            if let Some(zero) = states.first_mut() {
                zero.offset_ns = 0.0;
            }
            End::of(&states)
        };
        if node == self.reference {
            return [None; 2];
        }
        [states(&mut self.solution.knots()), states(&mut self.solution.knots().rev())]
    }

    /// Returns true if a step of the node or of the reference lies between two times.
    fn steps_between(&self, node: NodeId, a: Timestamp<Reference>, b: Timestamp<Reference>) -> bool {
        let (low, high) = (a.min(b), a.max(b));
        self.gaps.of(node).any(|gap| gap.between[0] < high && low < gap.between[1])
    }

    /// Returns the first and the last of the smoother's knots.
    fn outermost(&self) -> Option<[Timestamp<Reference>; 2]> {
        let mut knots = self.solution.knots();
        let first = knots.next()?;
        Some([first, knots.next_back().unwrap_or(first)])
    }

    /// Returns the time since the first knot, s.
    pub(super) fn seconds(&self, at: Timestamp<Reference>) -> f64 {
        let origin = self.solution.knots().next().map_or(0, Timestamp::as_ns);
        (i128::from(at.as_ns()) - i128::from(origin)) as f64 / NS_PER_S
    }
}

/// A smoothed offset carried straight on by `seconds`: the mean of a rate that wanders, and its
/// variance F·P·Fᵀ + Q.
fn straight_on(known: &SmoothedOffset, seconds: f64, wander: f64) -> SmoothedOffset {
    let rate_sd = known.drift_sigma_ppm * NS_PER_S_PER_PPM;
    let across = known.offset_drift_covariance * NS_PER_S_PER_PPM;
    let walked = crate::motion::walk(wander, seconds.abs());
    let variance = known.sigma_ns.powi(2) + seconds * (2.0 * across + seconds * rate_sd * rate_sd) + walked[0];
    let sigma_ns = variance.max(0.25 * known.sigma_ns.powi(2)).sqrt();
    SmoothedOffset {
        offset_ns: known.offset_ns + known.drift_ppm * NS_PER_S_PER_PPM * seconds,
        sigma_ns,
        half_width_95_ns: SIGMAS_95 * sigma_ns,
        drift_sigma_ppm: (rate_sd * rate_sd + walked[2]).sqrt() / NS_PER_S_PER_PPM,
        offset_drift_covariance: (across + seconds * rate_sd * rate_sd + seconds.signum() * walked[1])
            / NS_PER_S_PER_PPM,
        ..*known
    }
}

/// Indices of the rounds whose midpoints are later than those of all before.
fn in_order(rounds: &[SolvedRound]) -> Vec<usize> {
    let mut last = None;
    let later = |round: &SolvedRound| {
        let middle = round.data.midpoint();
        let later = last.is_none_or(|last| middle > last);
        last = if later { Some(middle) } else { last };
        later
    };
    let later: Vec<bool> = rounds.iter().map(later).collect();
    (0..rounds.len()).filter(|place| later[*place]).collect()
}

/// By round, the edges that the verdicts call useless.
fn left_out(rounds: &[SolvedRound]) -> BTreeMap<RoundId, Vec<Edge>> {
    let mut left_out: BTreeMap<RoundId, Vec<Edge>> = BTreeMap::new();
    for (round, edge) in rounds.iter().flat_map(|round| &round.data.watch.left_out) {
        left_out.entry(*round).or_default().push(*edge);
    }
    left_out
}

/// The edges that the smoother uses of a round.
fn useful(view: &smoother::SmootherRound<'_>) -> BTreeSet<Edge> {
    let useless: BTreeSet<Edge> =
        view.excluded.iter().map(|(edge, _)| *edge).chain(view.left_out.iter().copied()).collect();
    view.edges.iter().map(EdgeFit::edge).filter(|edge| !useless.contains(edge)).collect()
}

/// The exchanges of edges that are used in their round. Packets with inconsistent timestamps would
/// change the distribution of the delays.
fn exchanges<'a>(useful: &BTreeMap<RoundId, &BTreeSet<Edge>>, recorded: &[Recorded<'a>]) -> Exchanges<'a> {
    let mut exchanges = Exchanges::new();
    for Recorded { round_id, edge, exchanges: some } in recorded {
        if useful.get(round_id).is_some_and(|useful| useful.contains(edge)) {
            exchanges.entry(*edge).or_default().push(some);
        }
    }
    exchanges
}

/// Relative to the distance between rounds.
const NEARLY: f64 = 0.9;

/// Number of knots from an end that are examined.
const KNOTS_OF_AN_END: usize = 16;

const NS_PER_S: f64 = 1e9;
