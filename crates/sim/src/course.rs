//! What the watch has said of a simulated run so far, in the smoother's terms.
//!
//! Place in the flow: between [`Round`]s and the smoother, as the master of a live run has it in
//! `probe-sync::rounds`: every round is shown to [`Watch`], whose verdicts may concern earlier rounds; after the last round
//! [`Course::breaks`] and [`Course::left_out`] say how the run is to be smoothed.
//!
//! What it does not do: smooth, or judge whether a verdict was right (`fault_cases` does).

use std::collections::BTreeSet;

use probe_sync_estimate::faults::{DirectionCount, RoundView, Verdict, Watch};
use probe_sync_estimate::smoother::Break;
use probe_sync_probe::Counters;
use probe_sync_time::{Edge, NodeId, RoundId};

use crate::runs::rounds::{REFERENCE, Round};
use crate::runs::running::Running;

/// A run's verdicts so far.
#[derive(Debug, Default)]
pub struct Course {
    watch: Watch,
    counted: Vec<Counters>,
    breaks: Vec<Break>,
    left_out: BTreeSet<(usize, Edge)>,
    spoilt: BTreeSet<(usize, NodeId)>,
}

impl Course {
    /// Shows the watch a round, right after it was solved.
    pub fn take(&mut self, round: &Round, running: &Running<'_>) -> Verdict {
        let now: Vec<Counters> = running.counters().collect();
        let directions = directions(&self.counted, &now);
        self.counted = now;
        let verdict = self.observe(round, &directions);
        self.breaks.extend(verdict.breaks.iter().map(|of| Break { node: of.node, round: of.round.0 as usize }));
        self.left_out.extend(verdict.left_out.iter().map(|(round, edge)| (round.0 as usize, *edge)));
        self.spoilt.extend(verdict.spoilt.iter().map(|node| (round.index, *node)));
        verdict
    }

    /// Where clocks do not continue.
    pub fn breaks(&self) -> &[Break] {
        &self.breaks
    }

    /// Edges that say nothing in a round.
    pub fn left_out(&self, round: usize) -> Vec<Edge> {
        let from = self.left_out.range((round, Edge::new(0, 0))..);
        from.take_while(|(at, _)| *at == round).map(|(_, edge)| *edge).collect()
    }

    /// Every round's edges that say nothing.
    pub fn all_left_out(&self) -> &BTreeSet<(usize, Edge)> {
        &self.left_out
    }

    /// Nodes whose estimate of a round must not be used, by round.
    pub fn spoilt(&self) -> &BTreeSet<(usize, NodeId)> {
        &self.spoilt
    }

    fn observe(&mut self, round: &Round, directions: &[DirectionCount]) -> Verdict {
        let events: Vec<_> = round.clock_events().collect();
        let fitted: BTreeSet<Edge> = round.edges.iter().map(|edge| edge.edge()).collect();
        let unfitted: Vec<(Edge, u32)> = round.losses().filter(|(edge, _)| !fitted.contains(edge)).collect();
        self.watch.observe(&RoundView {
            round: RoundId(round.index as u64),
            reference: REFERENCE,
            reference_midpoint: round.reference_midpoint,
            edges: &round.edges,
            nodes: &round.solution.nodes,
            excluded: &round.solution.excluded,
            clock_events: &events,
            unfitted: &unfitted,
            directions,
        })
    }
}

/// What passed in each direction since the counters before.
fn directions(before: &[Counters], now: &[Counters]) -> Vec<DirectionCount> {
    let passed = |counters: &[Counters], of: usize, peer: NodeId| {
        counters.get(of).and_then(|counters| counters.peers.get(&peer)).copied().unwrap_or_default()
    };
    let mut all = Vec::new();
    for (from, counters) in now.iter().enumerate() {
        for (&to, counts) in &counters.peers {
            let from_id = NodeId(from as u32);
            let came = |counters: &[Counters]| passed(counters, to.index(), from_id).first_copies();
            let sent = counts.sent.saturating_sub(passed(before, from, to).sent);
            let received = came(now).saturating_sub(came(before));
            all.push(DirectionCount { from: from_id, to, sent, received });
        }
    }
    all
}
