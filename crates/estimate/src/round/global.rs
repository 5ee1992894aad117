//! The solved round as it travels to all ranks and into the files, and the decision about the next one.
//!
//! Place in the flow: made by [`super::Solver`]; the master adds its [`Decision`] and broadcasts it.
//! What it does not do: decide, or say how bytes look on the wire.

use probe_sync_time::{Edge, NodeId};
use serde::{Deserialize, Serialize};

use crate::faults::Verdict;
use crate::window::{ClockEvent, NodeEstimate};

/// One solved round, as the master broadcasts it. All ranks receive identical bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlobalWindowData {
    /// The window.
    pub window_id: u64,
    /// The round.
    pub round_id: u64,
    /// Counts the master's broadcasts; a gap means that a decision was missed.
    pub sequence_number: u64,
    /// The window's start on the reference clock.
    pub window_start_ns: i64,
    /// The window's end on the reference clock. The offsets hold at the middle.
    pub window_end_ns: i64,
    /// Every node of the run, in order of `node_id`.
    pub all_nodes: Vec<NodeEstimate>,
    /// Edges left out, each with the reason.
    pub excluded_edges: Vec<(Edge, String)>,
    /// The edge with the largest normalised residual, and that residual in ns.
    pub worst_edge: Option<(Edge, f64)>,
    /// Standard deviation of the paths' asymmetry as the graph's loops show it, for an edge of median margin, ns.
    pub asymmetry_sd_ns: f64,
    /// Independent loops of the graph, and the root mean square of what theta sums to around them, ns.
    pub loops: (u32, f64),
    /// Nodes whose estimate was moved into its hard interval.
    pub clamped: u32,
    /// Cycles of edges whose hard bounds contradict each other: a clock stepped or a stamp lies.
    pub contradictions: Vec<Vec<Edge>>,
    /// Nodes whose system clock was disturbed during the window.
    pub clock_events: Vec<(NodeId, ClockEvent)>,
    /// What the rounds so far say of clocks and paths that went wrong.
    #[serde(default)]
    pub watch: Verdict,
    /// What happens next.
    pub decision: Decision,
}

impl GlobalWindowData {
    /// Whether the node's clock, or the reference's, was disturbed during the window: the system said so, or its packets do.
    pub fn clock_disturbed(&self, node: NodeId) -> bool {
        let concerned = |disturbed: &NodeId| *disturbed == node || *disturbed == NodeId(0);
        self.clock_events.iter().map(|(disturbed, _)| disturbed).chain(&self.watch.spoilt).any(concerned)
    }
}

/// The master's decision about the next round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When the next window ends, on the reference clock.
    pub next_window_end_ns: i64,
    /// Length of the next window, ns; what counts for a node whose offset is unknown.
    pub next_window_ns: i64,
    /// Gap between exchanges started by one host, ns.
    pub cadence_ns: i64,
    /// The run is over.
    pub stop: bool,
    /// Edges to probe besides the run's own, all of them: what is missing here is no longer probed.
    #[serde(default)]
    pub extra_edges: Vec<Edge>,
}
