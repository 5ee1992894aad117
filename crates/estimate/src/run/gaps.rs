//! The gaps in which clocks were stepped, by node. They are made from the breaks, placed by
//! exchanges or clock events, and queried for every line.
//!
//! [`super::Smoothed`] makes the gaps and `steps` places them. A step of the reference is a single
//! gap that concerns every node. It is placed once, by the exchanges of all its edges, rather than
//! separately for each of a thousand nodes, and the result also applies to nodes that have no edge
//! to it. If one gap contains two steps, a time is known if it lies on the same side of both.

use std::collections::{BTreeMap, BTreeSet};

use probe_sync_lines::{ClockEvent, Culprit, Fault, FaultKind, StepRecord};
use probe_sync_time::{Edge, NodeId, Reference, RoundId, Timestamp};

use super::recorded::Recorded;
use super::steps::{Gathered, Placed, Sides, StepGap};
use crate::round::SolvedRound;
use crate::smoother::{self, RunSolution};

/// All gaps of a run.
#[derive(Debug)]
pub(super) struct Gaps {
    all: Vec<StepGap>,
    /// By node, indices into `all`.
    own: Vec<Vec<usize>>,
    reference: NodeId,
}

/// Position of a time relative to the gaps that concern a node.
#[derive(Copy, Clone, Debug)]
pub(super) enum Held {
    /// Outside all gaps.
    Free,
    /// In one, on the side of its step that this end of it is on.
    Side(Timestamp<Reference>),
    /// In one, on whichever side.
    Unknown,
}

impl Gaps {
    /// `steps`: nodes and indices, among the views, of the first rounds after them. `useful`: by
    /// view, the edges that are used.
    pub(super) fn new(
        nodes: usize,
        reference: NodeId,
        steps: &[(NodeId, usize)],
        views: &[smoother::SmootherRound<'_>],
        useful: &[BTreeSet<Edge>],
        faults: &[&Fault],
    ) -> Self {
        let steps = by_culprit(reference, steps, views, faults);
        let ends = |edges: &BTreeSet<Edge>| edges.iter().flat_map(|edge| [edge.src, edge.dst]).collect();
        let told: Vec<BTreeSet<NodeId>> = if steps.is_empty() { Vec::new() } else { useful.iter().map(ends).collect() };
        let gap = |(node, first): &(NodeId, usize)| {
            let tells = |place: &usize| told[*place].contains(node);
            let before = (0..*first).rev().find(tells).map_or(FIRST, |place| views[place].reference_midpoint);
            let after = (*first..views.len()).find(tells).map_or(LAST, |place| views[place].reference_midpoint);
            StepGap { node: *node, between: [before, after], placed: None }
        };
        let all: Vec<StepGap> = steps.iter().map(gap).collect();
        let mut own = vec![Vec::new(); nodes];
        for (place, gap) in all.iter().enumerate() {
            own.get_mut(gap.node.index()).into_iter().for_each(|own| own.push(place));
        }
        Self { all, own, reference }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The positions of all steps that are known.
    pub(super) fn sides(&self) -> impl Iterator<Item = Timestamp<Reference>> {
        self.all.iter().filter_map(|gap| gap.placed).flat_map(|placed| placed.between)
    }

    /// A node's own gaps, with their numbers.
    pub(super) fn own(&self, node: NodeId) -> impl Iterator<Item = (usize, &StepGap)> {
        let own = self.own.get(node.index()).into_iter().flatten();
        own.map(|place| (*place, &self.all[*place]))
    }

    /// A node's own gaps and the reference's.
    pub(super) fn of(&self, node: NodeId) -> impl Iterator<Item = &StepGap> {
        let reference = self.own(self.reference).filter(move |_| node != self.reference);
        self.own(node).chain(reference).map(|(_, gap)| gap)
    }

    /// Whether a time is in any gap that concerns a node.
    pub(super) fn hold(&self, node: NodeId, at: Timestamp<Reference>) -> bool {
        self.of(node).any(|gap| gap.holds(at))
    }

    /// Position of a time relative to the gaps that concern a node.
    pub(super) fn held(&self, node: NodeId, at: Timestamp<Reference>) -> Held {
        let mut held = Held::Free;
        for gap in self.of(node).filter(|gap| gap.holds(at)) {
            let Some(side) = gap.side(at) else { return Held::Unknown };
            let from = gap.between[side];
            held = match held {
                Held::Side(other) if other != from => return Held::Unknown,
                _ => Held::Side(from),
            };
        }
        held
    }

    /// Locates the steps of the clocks: from the exchanges of the surrounding rounds, if available,
    /// otherwise from clock events.
    pub(super) fn place(&mut self, solution: &RunSolution, rounds: &[SolvedRound], recorded: &[Recorded<'_>]) {
        if self.all.is_empty() {
            return;
        }
        let gathered = self.gathered(rounds, recorded);
        let mut events: BTreeMap<NodeId, Vec<&ClockEvent>> = BTreeMap::new();
        for (node, event) in rounds.iter().flat_map(|round| &round.data.clock_events) {
            events.entry(*node).or_default().push(event);
        }
        for (gap, exchanges) in self.all.iter_mut().zip(gathered) {
            if gap.between[0] == FIRST || gap.between[1] == LAST {
                continue;
            }
            let at = |node: NodeId, side: usize| solution.at(node, gap.between[side]);
            let sides = Sides { between: gap.between, at: &at };
            let placed = sides.by_exchanges(gap.node, exchanges.into_iter()).or_else(|| {
                let seen = events.get(&gap.node).into_iter().flatten();
                let mut found = seen.filter_map(|event| sides.by_event(gap.node, StepRecord::of_event(event)?));
                // Two steps in one gap: between them nothing is known.
                found.next().filter(|_| found.next().is_none())
            });
            let within = |at: &Timestamp<Reference>| gap.between[0] <= *at && *at <= gap.between[1];
            gap.placed = placed.filter(|placed: &Placed| placed.between.iter().all(within));
        }
    }

    /// For every gap the exchanges of its node's edges in the rounds that reach into it.
    fn gathered<'a>(&self, rounds: &[SolvedRound], recorded: &[Recorded<'a>]) -> Vec<Gathered<'a>> {
        let mut gathered: Vec<Gathered<'a>> = self.all.iter().map(|_| Gathered::new()).collect();
        let span = |round: &SolvedRound| (round.data.round_id, [round.data.window_start, round.data.window_end]);
        let windows: BTreeMap<RoundId, [Timestamp<Reference>; 2]> = rounds.iter().map(span).collect();
        for Recorded { round_id, edge, exchanges } in recorded {
            let Some([start, end]) = windows.get(round_id) else { continue };
            for (place, gap) in [edge.src, edge.dst].into_iter().flat_map(|node| self.own(node)) {
                // Where the reference was set back, a window ends before it starts.
                if gap.between[0] < (*start).max(*end) && (*start).min(*end) < gap.between[1] {
                    gathered[place].extend(exchanges.iter().map(|exchange| (*edge, exchange)));
                }
            }
        }
        gathered
    }
}

/// Attributes the steps: seen from a reference that was stepped, every clock is interrupted, but
/// the step is the reference's.
fn by_culprit(
    reference: NodeId,
    steps: &[(NodeId, usize)],
    views: &[smoother::SmootherRound<'_>],
    faults: &[&Fault],
) -> BTreeSet<(NodeId, usize)> {
    let first = |fault: &Fault| views.partition_point(|view| view.round_id < fault.began);
    let named = |fault: &&Fault| match (fault.kind, &fault.culprit) {
        (FaultKind::Step | FaultKind::Restart, Culprit::Node(node)) => Some((*node, first(fault))),
        _ => None,
    };
    let named: BTreeSet<(NodeId, usize)> = faults.iter().filter_map(named).collect();
    let of_reference = |place: usize| named.contains(&(reference, place));
    let whose = |step: &(NodeId, usize)| {
        let own = !of_reference(step.1) || named.contains(step);
        if own { *step } else { (reference, step.1) }
    };
    steps
        .iter()
        .map(whose)
        .chain(steps.iter().filter(|step| of_reference(step.1)).map(|step| (reference, step.1)))
        .collect()
}

/// Before and after every time.
const FIRST: Timestamp<Reference> = Timestamp::from_ns(i64::MIN);
const LAST: Timestamp<Reference> = Timestamp::from_ns(i64::MAX);
