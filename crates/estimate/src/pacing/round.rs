//! The properties of a solved round on which the pace depends.

use probe_sync_time::{Edge, NodeId};

use crate::window::{EdgeAlphaBeta, NodeEstimate};

/// A solved round, as far as the pace depends on it.
#[derive(Copy, Clone, Debug)]
pub struct PacingRound<'a> {
    /// Every node, in order.
    pub nodes: &'a [NodeEstimate],
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// Every fitted edge.
    pub edges: &'a [EdgeAlphaBeta],
    /// Edges that the graph left out.
    pub excluded: &'a [(Edge, String)],
    /// Standard deviation of path asymmetry, for an edge of median margin, ns.
    pub asymmetry_sd_ns: f64,
    /// By node, the part of `sigma_ns` that asymmetry causes, where the estimator states it (the
    /// smoother does), ns; otherwise it is worked out from the edges.
    pub asymmetry_sigma_ns: Option<&'a [f64]>,
    /// Nodes whose clocks were disturbed.
    pub disturbed: &'a [NodeId],
}
