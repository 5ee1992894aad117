//! Smooths a recorded run as a whole and makes its lines: one per round and node, or one per knot and node.
//!
//! Place in the flow: last step of `solve` and of simulations, after every round was solved as in the live run. The smoother takes the fits of
//! all rounds and, where they are at hand, all exchanges. What must not be used comes from the rounds' verdicts, which may
//! speak of rounds before their own; a round's own estimates give the hard intervals.
//!
//! At a knot t in the round with midpoint M the hard interval is the round's, carried along:
//! `[lo + d − w, hi + d + w]`, `d = x(t) − x(M)`, `w = 5·σ_rate·|t − M| + 5·√(q·|t − M|³/3)`,
//! where x is the smoothed offset, σ_rate the standard deviation of its rate and q how fast node and reference wander
//! ([`crate::smoother`]). So it is no longer unconditional: it fails when the clock wanders off by more than five standard
//! deviations. At t = M it is the round's own.
//!
//! Where a clock was stepped between two rounds that know it, nobody knows when: knots in between say that the node was not
//! reached, and lines of rounds in between that its clock was disturbed.
//!
//! What it does not do: read or write files.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_time::{Duration, Edge, Exchange, NodeId, Reference, RoundId, Timestamp};

use crate::Error;
use crate::faults::{Break, Fault};
use crate::motion::NS_PER_S_PER_PPM;
use crate::record::OffsetRecord;
use crate::round::{GlobalWindowData, SolvedRound};
use crate::smoother::{self, Exchanges, RunSolution, SmoothedOffset, SmootherOptions};
use crate::statistics::{SIGMAS_95, upper_median};
use crate::window::{EdgeAlphaBeta, NodeEstimate};

/// The exchanges of one edge in one round.
#[derive(Copy, Clone, Debug)]
pub struct Recorded<'a> {
    /// The round in whose window they finished.
    pub round_id: RoundId,
    /// The edge.
    pub edge: Edge,
    /// The exchanges.
    pub exchanges: &'a [Exchange],
}

/// A smoothed run.
#[derive(Debug)]
pub struct Smoothed {
    /// The node whose offset is zero.
    reference: NodeId,
    /// All rounds, their estimates smoothed.
    rounds: Vec<SolvedRound>,
    /// Places of the rounds that were smoothed, in order of time.
    in_order: Vec<usize>,
    solution: RunSolution,
    /// Where clocks were stepped or restarted.
    pub breaks: usize,
    gaps: StepGaps,
}

/// The gaps at steps: by node, the times between which its clock was stepped, midpoints of the last round before and of the first after that tell
/// about it, on the reference's clock.
#[derive(Clone, Debug, Default)]
struct StepGaps(BTreeMap<NodeId, Vec<[Timestamp<Reference>; 2]>>);

impl Smoothed {
    /// Smooths rounds of `nodes` nodes, in order of `round_id`; without `recorded` exchanges from their fits alone.
    pub fn new(
        nodes: usize,
        reference: NodeId,
        mut rounds: Vec<SolvedRound>,
        recorded: Option<&[Recorded<'_>]>,
    ) -> Self {
        let in_order = in_order(&rounds);
        let left_out = left_out(&rounds);
        let breaks: Vec<Break> = rounds.iter().flat_map(|round| &round.data.watch.breaks).copied().collect();
        let none = Vec::new();
        let views: Vec<smoother::Round<'_>> = in_order
            .iter()
            .map(|place| {
                let SolvedRound { data, edges, .. } = &rounds[*place];
                smoother::Round {
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
        let gaps = StepGaps::new(&views, &useful, &places);
        let solution = match recorded {
            Some(recorded) => {
                let ids = in_order.iter().map(|place| rounds[*place].data.round_id);
                let exchanges = exchanges(&ids.zip(&useful).collect(), recorded);
                smoother::smooth_packets(nodes, &views, &breaks, &exchanges, &options)
            }
            None => smoother::smooth_run(nodes, &views, &breaks, &options),
        };
        for place in &in_order {
            let data = &mut rounds[*place].data;
            let middle = data.midpoint();
            for node in &mut data.all_nodes {
                if let Some(smoothed) = solution.at(node.node_id, middle) {
                    node.take(&smoothed);
                }
            }
        }
        Self { reference, breaks: places.len(), rounds, in_order, solution, gaps }
    }

    /// All rounds, their estimates smoothed and kept inside their hard intervals.
    pub fn rounds(&self) -> &[SolvedRound] {
        &self.rounds
    }

    /// The estimate of a node at any time of the reference's clock, as a line of a knot there has it; None without rounds.
    pub fn at(&self, node: NodeId, at: Timestamp<Reference>) -> Option<NodeEstimate> {
        let boundaries = self.in_order.len().checked_sub(1)?;
        let here = (0..boundaries).position(|here| at < self.boundary(here)).unwrap_or(boundaries);
        let data = &self.rounds[self.in_order[here]].data;
        data.all_nodes.get(node.index()).map(|node| self.carried(node, data.midpoint(), at))
    }

    /// Rounds that were not smoothed: the reference's clock was set back, and they lie before a round before them.
    pub fn unsmoothed(&self) -> impl Iterator<Item = RoundId> + '_ {
        let places = (0..self.rounds.len()).filter(|place| self.in_order.binary_search(place).is_err());
        places.map(|place| self.rounds[place].data.round_id)
    }

    /// Standard deviation of a median path's asymmetry, ns.
    pub fn asymmetry_sd_ns(&self) -> f64 {
        self.solution.asymmetry_sd_ns
    }

    /// Faults in the order in which they were named.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.rounds.iter().flat_map(|round| &round.data.watch.faults)
    }

    /// Median of the 95 % intervals' half-widths, the reference's apart; None when no other node was reached.
    pub fn half_width_95_ns(&self) -> Option<f64> {
        let others = self.rounds.iter().flat_map(|round| &round.data.all_nodes);
        let mut sigmas: Vec<f64> =
            others.filter(|node| node.reachable && node.node_id != self.reference).map(|node| node.sigma_ns).collect();
        upper_median(&mut sigmas).map(|sigma| SIGMAS_95 * sigma)
    }

    /// A line per round and node.
    pub fn round_lines(&self) -> impl Iterator<Item = OffsetRecord> {
        let in_gap = |round: &GlobalWindowData, node: NodeId| self.gaps.holds(node, round.midpoint());
        self.rounds.iter().flat_map(move |SolvedRound { data, .. }| {
            OffsetRecord::of_round(data).map(move |line| OffsetRecord {
                clock_disturbed: line.clock_disturbed || in_gap(data, line.estimate.node_id),
                ..line
            })
        })
    }

    /// How many knots `spacing` makes of the smoothed rounds, from the first window's start to the last one's end.
    ///
    /// # Errors
    /// [`Error::UnusableSpacing`] when it is below a millisecond or `nodes` nodes would have too many lines.
    pub fn knots(&self, spacing: Duration, nodes: usize) -> Result<Knots, Error> {
        let wrong = |reason: String| Error::UnusableSpacing { reason };
        if spacing < SPACING_MIN {
            return Err(wrong(format!("{} ms is too close; take 1ms or more", spacing.as_ns() as f64 / NS_PER_MS)));
        }
        let ends = self.in_order.first().zip(self.in_order.last());
        let Some((first, last)) = ends else {
            return Ok(Knots { start: Timestamp::from_ns(0), spacing_ns: 1, count: 0 });
        };
        let start = self.rounds[*first].data.window_start;
        let span = i128::from(self.rounds[*last].data.window_end.as_ns()) - i128::from(start.as_ns());
        let spacing_ns = i128::from(spacing.as_ns());
        let count = (span.max(0) + spacing_ns - 1) / spacing_ns;
        if count * nodes as i128 > LINES_MAX {
            return Err(wrong(format!(
                "every {} ms makes {count} lines for each of {nodes} nodes, more than {LINES_MAX} in all; take more",
                spacing.as_ns() as f64 / NS_PER_MS
            )));
        }
        Ok(Knots { start, spacing_ns: spacing.as_ns(), count: count as u64 })
    }

    /// A line per knot and node, in order of time.
    pub fn knot_lines(&self, knots: Knots) -> impl Iterator<Item = OffsetRecord> {
        let mut here = 0;
        (0..knots.count).flat_map(move |knot| {
            let at = knots.at(knot);
            while self.in_order.get(here + 1).is_some_and(|_| self.boundary(here) <= at) {
                here += 1;
            }
            let data = &self.rounds[self.in_order[here]].data;
            let half = Duration::from_ns(knots.spacing_ns / 2);
            data.all_nodes.iter().map(move |node| OffsetRecord {
                round_id: data.round_id,
                window_id: knot,
                window_start: at - half,
                window_end: at + half,
                estimate: self.carried(node, data.midpoint(), at),
                clock_disturbed: data.clock_disturbed(node.node_id) || self.gaps.holds(node.node_id, at),
            })
        })
    }

    /// Where the smoothed round `here` gives way to the next.
    fn boundary(&self, here: usize) -> Timestamp<Reference> {
        let [this, next] = [here, here + 1].map(|at| &self.rounds[self.in_order[at]].data);
        this.window_end.midpoint(next.window_start)
    }

    /// A round's estimate taken from its midpoint to another time.
    fn carried(&self, node: &NodeEstimate, middle: Timestamp<Reference>, at: Timestamp<Reference>) -> NodeEstimate {
        let mut carried = node.clone();
        let smoothed = |at| self.solution.at(node.node_id, at);
        let known = smoothed(at).zip(smoothed(middle)).filter(|_| !self.gaps.holds(node.node_id, at));
        let Some((there, here)) = known else {
            // Reached within the round, but no packet that may be used says where the clock was.
            carried.reachable = false;
            (carried.sigma_ns, carried.drift_sigma_ppm) = (f64::INFINITY, f64::INFINITY);
            (carried.bound_lo_ns, carried.bound_hi_ns) = (f64::NEG_INFINITY, f64::INFINITY);
            return carried;
        };
        let wander = self.solution.walk_between(node.node_id, [middle, at]);
        let moved = there.offset_ns - here.offset_ns;
        let seconds = (i128::from(at.as_ns()) - i128::from(middle.as_ns())) as f64 / NS_PER_S;
        let widening = widening_ns(&here, seconds, wander);
        carried.bound_lo_ns += moved - widening;
        carried.bound_hi_ns += moved + widening;
        carried.take(&there);
        carried
    }
}

impl StepGaps {
    /// `steps`: nodes and places of the first rounds after their steps.
    fn new(views: &[smoother::Round<'_>], useful: &[BTreeSet<Edge>], steps: &[(NodeId, usize)]) -> Self {
        let mut gaps: BTreeMap<NodeId, Vec<[Timestamp<Reference>; 2]>> = BTreeMap::new();
        for (node, first) in steps {
            let tells = |place: &usize| useful[*place].iter().any(|edge| [edge.src, edge.dst].contains(node));
            let before = (0..*first).rev().find(tells).map_or(FIRST, |place| views[place].reference_midpoint);
            let after = (*first..views.len()).find(tells).map_or(LAST, |place| views[place].reference_midpoint);
            gaps.entry(*node).or_default().push([before, after]);
        }
        Self(gaps)
    }

    fn holds(&self, node: NodeId, at: Timestamp<Reference>) -> bool {
        let stretches = self.0.get(&node).into_iter().flatten();
        stretches.into_iter().any(|[before, after]| *before < at && at < *after)
    }
}

/// Knots at equal distances; each stands in the middle of its stretch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Knots {
    start: Timestamp<Reference>,
    spacing_ns: i64,
    count: u64,
}

impl Knots {
    fn at(self, knot: u64) -> Timestamp<Reference> {
        let since = i128::from(self.spacing_ns) * i128::from(knot) + i128::from(self.spacing_ns / 2);
        // Never clamped: the last knot is less than a spacing beyond a time that is an i64.
        Timestamp::from_ns((i128::from(self.start.as_ns()) + since).clamp(i64::MIN.into(), i64::MAX.into()) as i64)
    }
}

/// By how much a displacement over `seconds` may be wrong.
fn widening_ns(middle: &SmoothedOffset, seconds: f64, walk_density: f64) -> f64 {
    let seconds = seconds.abs();
    let rate = middle.drift_sigma_ppm * NS_PER_S_PER_PPM * seconds;
    WIDENING_SDS * (rate + (walk_density * seconds.powi(3) / 3.0).sqrt())
}

/// Places of the rounds whose midpoints lie after those of all before.
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
fn useful(view: &smoother::Round<'_>) -> BTreeSet<Edge> {
    let useless: BTreeSet<Edge> =
        view.excluded.iter().map(|(edge, _)| *edge).chain(view.left_out.iter().copied()).collect();
    view.edges.iter().map(EdgeAlphaBeta::edge).filter(|edge| !useless.contains(edge)).collect()
}

/// The exchanges of edges that are used in their round. Packets with inconsistent timestamps would change the distribution of the delays.
fn exchanges<'a>(useful: &BTreeMap<RoundId, &BTreeSet<Edge>>, recorded: &[Recorded<'a>]) -> Exchanges<'a> {
    let mut exchanges = Exchanges::new();
    for Recorded { round_id, edge, exchanges: some } in recorded {
        if useful.get(round_id).is_some_and(|useful| useful.contains(edge)) {
            exchanges.entry(*edge).or_default().push(some);
        }
    }
    exchanges
}

/// Before and after every time.
const FIRST: Timestamp<Reference> = Timestamp::from_ns(i64::MIN);
const LAST: Timestamp<Reference> = Timestamp::from_ns(i64::MAX);

/// Closest knots.
const SPACING_MIN: Duration = Duration::from_ms(1);

/// Most lines: some 4 GB.
const LINES_MAX: i128 = 10_000_000;

/// Standard deviations by which a carried hard interval is widened.
const WIDENING_SDS: f64 = 5.0;

const NS_PER_S: f64 = 1e9;
const NS_PER_MS: f64 = 1e6;

#[cfg(test)]
mod tests {
    use probe_sync_time::StampSource;

    use super::*;
    use crate::faults;
    use crate::graph::GraphOptions;
    use crate::round::{Solver, SolverOptions};
    use crate::window::NodeWindowData;

    /// Rounds of two nodes; node 1 is ahead by `offset_ns(t)`, t in seconds, and its line of each round is exact.
    fn rounds(ids: &[u64], middle_s: impl Fn(u64) -> f64, offset_ns: impl Fn(f64) -> f64) -> Vec<SolvedRound> {
        let options = SolverOptions { nodes: 2, reference: NodeId(0), graph: GraphOptions::default() };
        let mut solver = Solver::new(options);
        let round = |id: &u64| {
            let middle = middle_s(*id);
            let middle_ns = (middle * NS_PER_S) as i64;
            let rate = (offset_ns(middle + 0.01) - offset_ns(middle - 0.01)) / 0.02;
            let beta = offset_ns(middle);
            let edge = EdgeAlphaBeta {
                src_node_id: NodeId(0),
                dst_node_id: NodeId(1),
                midpoint: Timestamp::from_ns(middle_ns),
                alpha: rate / NS_PER_S,
                beta,
                pairs_count: 500,
                lost_count: 0,
                covariance: [25.0, 0.0, 1e-16],
                margin_ns: 1_000.0,
                bound_lo_ns: beta - 1_000.0,
                bound_hi_ns: beta + 1_000.0,
                alpha_bounds: [-1e-4, 1e-4],
                feasible: true,
                purity: 1.0,
                stamp: StampSource::Kernel,
            };
            let window = serde_json::json!({
                "node_id": 0, "window_id": id, "round_id": id, "edges": [edge], "stop_requested": false,
                "window_start_ns": middle_ns - 500_000_000, "window_end_ns": middle_ns + 500_000_000,
            });
            let window: NodeWindowData = serde_json::from_value(window).expect("a line of windows/node0.jsonl");
            solver.solve(RoundId(*id), &window, std::slice::from_ref(&window)).expect("two nodes")
        };
        ids.iter().map(round).collect()
    }

    fn swing(t: f64) -> f64 {
        3e6 + 2_000.0 * (t / 4.0).sin()
    }

    #[test]
    fn knots_lie_on_the_curve_inside_their_hard_intervals() {
        let smoothed = Smoothed::new(2, NodeId(0), rounds(&[0, 1, 2, 3, 4, 5, 6, 7], |id| id as f64, swing), None);
        let knots = smoothed.knots(Duration::from_ms(125), 2).expect("not many");
        let lines: Vec<OffsetRecord> = smoothed.knot_lines(knots).collect();
        assert_eq!(lines.len(), 2 * 8 * 8, "eight rounds of a second");
        for (number, line) in lines.iter().enumerate() {
            let middle_ns = line.window_start.midpoint(line.window_end).as_ns();
            assert_eq!(line.window_id, number as u64 / 2);
            assert_eq!(line.round_id.0, number as u64 / 16, "each knot is in the round that it lies in");
            assert_eq!(middle_ns, -437_500_000 + 125_000_000 * (number as i64 / 2));
            let expected = if line.estimate.node_id == NodeId(1) { swing(middle_ns as f64 / NS_PER_S) } else { 0.0 };
            let NodeEstimate { offset_ns, bound_lo_ns, bound_hi_ns, sigma_ns, reachable, .. } = line.estimate;
            assert!((offset_ns - expected).abs() <= 20.0, "{offset_ns} instead of {expected} at {middle_ns}");
            assert!(bound_lo_ns <= expected && expected <= bound_hi_ns, "{expected} outside of {line:?}");
            assert!(bound_hi_ns - bound_lo_ns < 10_000.0 && sigma_ns < 1_000.0 && reachable, "{line:?}");
        }
    }

    #[test]
    fn a_step_leaves_no_knots_between_the_rounds_around_it() {
        let stepped = |t: f64| if t < 3.2 { 0.0 } else { 50_000.0 };
        let mut rounds = rounds(&[0, 1, 2, 3, 4, 5, 6], |id| id as f64, stepped);
        // Whatever the watch made of it, the verdict of round 5 is that round 4 was the first after a step.
        for round in &mut rounds {
            round.data.watch = faults::Verdict::default();
        }
        let step = Break { node: NodeId(1), round: RoundId(4) };
        rounds[5].data.watch.breaks = vec![step, step];
        let smoothed = Smoothed::new(2, NodeId(0), rounds, None);
        assert_eq!(smoothed.breaks, 1, "one step, told twice");
        let knots = smoothed.knots(Duration::from_ms(100), 2).expect("not many");
        for line in smoothed.knot_lines(knots).filter(|line| line.estimate.node_id == NodeId(1)) {
            let middle = line.window_start.midpoint(line.window_end).as_ns() as f64 / NS_PER_S;
            let gap = middle > 3.0 && middle < 4.0;
            assert_eq!((line.clock_disturbed, line.estimate.reachable), (gap, !gap), "{middle} s");
            let wrong = (line.estimate.offset_ns - stepped(middle)).abs();
            assert!(gap || wrong < 20.0, "{wrong} ns at {middle} s");
        }
    }

    #[test]
    fn missing_and_misplaced_rounds_are_survived() {
        // Round 2 is missing, and the reference is set back by two seconds before round 5.
        let set_back = |id: u64| if id < 5 { id as f64 } else { id as f64 - 2.0 };
        let mut rounds = rounds(&[0, 1, 3, 4, 5, 6, 7, 8], set_back, |_| 700.0);
        for round in &mut rounds {
            round.data.watch = faults::Verdict::default();
        }
        rounds[2].data.watch.breaks = vec![Break { node: NodeId(1), round: RoundId(2) }];
        let smoothed = Smoothed::new(2, NodeId(0), rounds, None);
        assert_eq!(smoothed.unsmoothed().collect::<Vec<RoundId>>(), [RoundId(5), RoundId(6)]);
        assert_eq!(smoothed.round_lines().count(), 2 * 8);
        for line in smoothed.round_lines().filter(|line| line.estimate.node_id == NodeId(1)) {
            assert!((line.estimate.offset_ns - 700.0).abs() < 20.0, "{line:?}");
        }
    }

    #[test]
    fn too_many_knots_are_refused() {
        let smoothed = Smoothed::new(2, NodeId(0), rounds(&[0, 7_000], |id| id as f64, |_| 0.0), None);
        for (spacing, nodes, fits) in [
            (Duration::from_ms(1), 1, true),
            (Duration::from_ms(1), 2, false),
            (Duration::from_ms(2), 2, true),
            (Duration::from_us(999), 1, false),
            (Duration::from_ms(-5), 1, false),
        ] {
            let knots = smoothed.knots(spacing, nodes);
            assert_eq!(knots.is_ok(), fits, "{spacing:?} for {nodes} nodes: {knots:?}");
        }
    }
}
