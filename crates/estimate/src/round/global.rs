//! The solved round as sent to all ranks and written to the files, and the decision about the next
//! one.

use probe_sync_time::{Duration, Edge, NodeId, Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::faults::Verdict;
use crate::window::{ClockEvent, NodeEstimate};

/// One solved round, as the master broadcasts it. All ranks receive identical bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "GlobalWindowKeys", into = "GlobalWindowKeys")]
pub struct GlobalWindowData {
    /// The round, which is the window's number and the broadcast's too; a gap means that a decision
    /// was missed.
    pub round_id: RoundId,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// The reference was gone before this round: its timeline goes on by the clock of this node,
    /// and every sigma says how sure that is.
    pub carried_by: Option<NodeId>,
    /// The window's start on the reference clock.
    pub window_start: Timestamp<Reference>,
    /// The window's end on the reference clock. The offsets hold at the middle.
    pub window_end: Timestamp<Reference>,
    /// Every node of the run, in order of `node_id`; in the part that a rank of a large group is
    /// sent ([`Self::part_of`]) the reference and its own.
    pub all_nodes: Vec<NodeEstimate>,
    /// Edges left out, each with the reason.
    pub excluded_edges: Vec<(Edge, String)>,
    /// The edge with the largest normalised residual, and that residual in ns.
    pub worst_edge: Option<(Edge, f64)>,
    /// Standard deviation of the paths' asymmetry as the graph's loops show it, for an edge of
    /// median margin, ns.
    pub asymmetry_sd_ns: f64,
    /// Independent loops of the graph, and the root mean square of what theta sums to around them,
    /// ns.
    pub loops: (u32, f64),
    /// Nodes whose estimate was moved into its hard interval.
    pub clamped: u32,
    /// Cycles of edges whose hard bounds contradict each other: a clock stepped or a timestamp is
    /// wrong.
    pub contradictions: Vec<Vec<Edge>>,
    /// Nodes whose system clock was disturbed during the window.
    pub clock_events: Vec<(NodeId, ClockEvent)>,
    /// What the rounds so far say of clocks and paths that went wrong.
    pub watch: Verdict,
    /// What happens next.
    pub decision: Decision,
}

impl GlobalWindowData {
    /// The instant at which the offsets hold: the middle of the window on the reference clock.
    pub const fn midpoint(&self) -> Timestamp<Reference> {
        self.window_start.midpoint(self.window_end)
    }

    /// The node whose clock the timeline was in this round: the reference, or who carried it.
    pub fn leader(&self) -> NodeId {
        self.carried_by.unwrap_or(self.reference)
    }

    /// Whether another node than this one was reached: a round without packets, because all paused,
    /// knows nobody who could carry the timeline on.
    pub fn knows_another_than(&self, leader: NodeId) -> bool {
        self.all_nodes.iter().any(|node| node.reachable && node.node_id != leader)
    }

    /// The estimate of a node; None where this is a part that leaves it out.
    pub fn node(&self, node: NodeId) -> Option<&NodeEstimate> {
        let place = self.all_nodes.binary_search_by_key(&node, |estimate| estimate.node_id).ok()?;
        self.all_nodes.get(place)
    }

    /// What a rank of `node` needs to go on and to convert its own times: the decision, the
    /// estimates of the node and of the reference, and what disturbed these two. What it says of
    /// other nodes is empty, and nobody may conclude from that.
    #[must_use]
    pub fn part_of(&self, node: NodeId) -> Self {
        let concerned = |other: NodeId| other == node || other == self.reference || Some(other) == self.carried_by;
        Self {
            all_nodes: self.all_nodes.iter().filter(|estimate| concerned(estimate.node_id)).cloned().collect(),
            excluded_edges: Vec::new(),
            worst_edge: None,
            contradictions: Vec::new(),
            clock_events: self.clock_events.iter().filter(|(node, _)| concerned(*node)).copied().collect(),
            watch: Verdict {
                invalid: self.watch.invalid.iter().copied().filter(|node| concerned(*node)).collect(),
                ..Verdict::default()
            },
            decision: self.decision.clone(),
            ..*self
        }
    }

    /// Whether the node's clock, or the reference's, was disturbed during the window: the system
    /// said so, or its packets do.
    pub fn clock_disturbed(&self, node: NodeId) -> bool {
        let concerned = |disturbed: &NodeId| *disturbed == node || *disturbed == self.leader();
        self.clock_events.iter().map(|(disturbed, _)| disturbed).chain(&self.watch.invalid).any(concerned)
    }
}

/// The master's decision about the next round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When the next window ends, on the reference clock.
    #[serde(rename = "next_window_end_ns")]
    pub next_window_end: Timestamp<Reference>,
    /// Length of the next window; what counts for a node whose offset is unknown.
    #[serde(rename = "next_window_ns")]
    pub next_window: Duration,
    /// Gap between exchanges started by one host.
    #[serde(rename = "cadence_ns")]
    pub cadence: Duration,
    /// The run is over.
    pub stop: bool,
    /// Edges to probe besides the run's own, all of them: what is missing here is no longer probed.
    #[serde(default)]
    pub extra_edges: Vec<Edge>,
    /// The run was asked to end, and the next window is the last one: nobody cuts it short.
    #[serde(default)]
    pub closing: bool,
    /// Nobody starts exchanges in the next window: somebody asked all nodes to pause.
    #[serde(default)]
    pub paused: bool,
    /// What the next window is part of, in the words of whoever leads the experiment.
    #[serde(default)]
    pub phase: Option<String>,
}

impl Decision {
    /// The run ends; nothing comes next.
    pub const STOP: Self = Self {
        next_window_end: Timestamp::from_ns(0),
        next_window: Duration::ZERO,
        cadence: Duration::ZERO,
        stop: true,
        extra_edges: Vec::new(),
        closing: false,
        paused: false,
        phase: None,
    };
}

/// The keys of [`GlobalWindowData`] in files and on the wire, where the one number of a round has
/// three names.
#[derive(Serialize, Deserialize)]
struct GlobalWindowKeys {
    window_id: RoundId,
    round_id: RoundId,
    sequence_number: RoundId,
    /// Older files do not state it; it was node 0.
    #[serde(default = "first_node")]
    reference: NodeId,
    #[serde(default)]
    carried_by: Option<NodeId>,
    window_start_ns: Timestamp<Reference>,
    window_end_ns: Timestamp<Reference>,
    all_nodes: Vec<NodeEstimate>,
    excluded_edges: Vec<(Edge, String)>,
    worst_edge: Option<(Edge, f64)>,
    asymmetry_sd_ns: f64,
    loops: (u32, f64),
    clamped: u32,
    contradictions: Vec<Vec<Edge>>,
    clock_events: Vec<(NodeId, ClockEvent)>,
    #[serde(default)]
    watch: Verdict,
    decision: Decision,
}

/// The reference of files that do not state it.
pub(crate) fn first_node() -> NodeId {
    NodeId(0)
}

impl From<GlobalWindowData> for GlobalWindowKeys {
    fn from(data: GlobalWindowData) -> Self {
        Self {
            window_id: data.round_id,
            round_id: data.round_id,
            sequence_number: data.round_id,
            reference: data.reference,
            carried_by: data.carried_by,
            window_start_ns: data.window_start,
            window_end_ns: data.window_end,
            all_nodes: data.all_nodes,
            excluded_edges: data.excluded_edges,
            worst_edge: data.worst_edge,
            asymmetry_sd_ns: data.asymmetry_sd_ns,
            loops: data.loops,
            clamped: data.clamped,
            contradictions: data.contradictions,
            clock_events: data.clock_events,
            watch: data.watch,
            decision: data.decision,
        }
    }
}

impl From<GlobalWindowKeys> for GlobalWindowData {
    fn from(keys: GlobalWindowKeys) -> Self {
        Self {
            round_id: keys.round_id,
            reference: keys.reference,
            carried_by: keys.carried_by,
            window_start: keys.window_start_ns,
            window_end: keys.window_end_ns,
            all_nodes: keys.all_nodes,
            excluded_edges: keys.excluded_edges,
            worst_edge: keys.worst_edge,
            asymmetry_sd_ns: keys.asymmetry_sd_ns,
            loops: keys.loops,
            clamped: keys.clamped,
            contradictions: keys.contradictions,
            clock_events: keys.clock_events,
            watch: keys.watch,
            decision: keys.decision,
        }
    }
}
