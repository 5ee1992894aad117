//! The smoother's input: the rounds of a run, and the assumptions it may make.

use probe_sync_lines::{ClockBreak, EdgeFit, NodeEstimate};
use probe_sync_time::{Edge, NodeId, Reference, RoundId, Timestamp};

use crate::graph::GraphSolution;

/// A solved round, as input of the smoother.
#[derive(Copy, Clone, Debug)]
pub struct SmootherRound<'a> {
    /// The round; rounds are in order of this.
    pub round_id: RoundId,
    /// Instant at which the round's offsets hold, on the reference's clock. Rounds are in order of
    /// this.
    pub reference_midpoint: Timestamp<Reference>,
    /// The round's fitted edges.
    pub edges: &'a [EdgeFit],
    /// Estimates of the graph, in order of node.
    pub nodes: &'a [NodeEstimate],
    /// Edges excluded by the graph, and therefore here.
    pub excluded: &'a [(Edge, String)],
    /// Further edges to be excluded.
    pub left_out: &'a [Edge],
}

impl<'a> SmootherRound<'a> {
    /// Creates a round from the graph's solution.
    pub fn solved(
        round_id: RoundId,
        reference_midpoint: Timestamp<Reference>,
        edges: &'a [EdgeFit],
        solution: &'a GraphSolution,
        left_out: &'a [Edge],
    ) -> Self {
        let GraphSolution { nodes, excluded, .. } = solution;
        Self { round_id, reference_midpoint, edges, nodes, excluded, left_out }
    }
}

/// Assumptions of the smoother.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct SmootherOptions {
    /// Index of the reference node.
    pub reference: NodeId,
    /// Density of the rates' random walk, ns²/s³, positive, if it is known; otherwise it is
    /// estimated.
    pub walk_density: Option<f64>,
    /// Variance of path asymmetry, ns², if it is known; otherwise it is estimated.
    pub asymmetry_variance: Option<f64>,
    /// Scale the edges' covariances to their residuals.
    pub rescale: bool,
    /// Reduce the weight of lines and asymmetries far from the rest (Student-t).
    pub robust: bool,
}

impl Default for SmootherOptions {
    fn default() -> Self {
        Self { reference: NodeId(0), walk_density: None, asymmetry_variance: None, rescale: true, robust: true }
    }
}

/// Breaks as nodes and indices among the rounds, in order, each once. A break in a missing round
/// applies to the next round present.
pub(crate) fn places(rounds: &[SmootherRound<'_>], breaks: &[ClockBreak]) -> Vec<(NodeId, usize)> {
    let place = |id: RoundId| rounds.partition_point(|round| round.round_id < id);
    let mut places: Vec<(NodeId, usize)> =
        breaks.iter().map(|named| (named.node, place(named.round))).filter(|(_, at)| *at < rounds.len()).collect();
    places.sort_unstable();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_break_in_a_missing_round_concerns_the_next() {
        let round = |id: u64| SmootherRound {
            round_id: RoundId(id),
            reference_midpoint: Timestamp::from_ns(0),
            edges: &[],
            nodes: &[],
            excluded: &[],
            left_out: &[],
        };
        let rounds = [0, 1, 3, 4].map(round);
        let named = |node: u32, id: u64| ClockBreak { node: NodeId(node), round: RoundId(id) };
        let breaks = [named(1, 2), named(0, 4), named(1, 3), named(2, 9)];
        assert_eq!(places(&rounds, &breaks), [(NodeId(0), 3), (NodeId(1), 2)], "round 3 is the third, 9 is none");
    }
}
