//! The properties of a solved round on which the pace depends.

use probe_sync_lines::{EdgeFit, NodeEstimate};
use probe_sync_time::{Edge, NodeId};

/// The data of a solved round on which the pace depends.
#[derive(Copy, Clone, Debug)]
pub struct PacingRound<'a> {
    /// Every node, in order.
    pub nodes: &'a [NodeEstimate],
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
    /// Every fitted edge.
    pub edges: &'a [EdgeFit],
    /// Edges excluded by the graph.
    pub excluded: &'a [(Edge, String)],
    /// Standard deviation of path asymmetry, for an edge of median margin, ns.
    pub asymmetry_sd_ns: f64,
    /// Part of `sigma_ns` due to asymmetry, by node, ns, if the estimator states it (the smoother
    /// does); otherwise it is computed from the edges.
    pub asymmetry_sigma_ns: Option<&'a [f64]>,
    /// Nodes whose clocks were disturbed.
    pub disturbed: &'a [NodeId],
}
