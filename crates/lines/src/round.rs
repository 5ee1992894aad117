//! The solved round as sent to all ranks and written to the files, and the decision about the next
//! one.

use probe_sync_time::{Duration, Edge, NodeId, Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::findings::Findings;
use crate::window::{ClockEvent, NodeEstimate};

/// One solved round, as the master broadcasts it. All ranks receive identical bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "RoundKeys", into = "RoundKeys")]
pub struct Round {
    /// The round, whose number is also that of the window and of the broadcast; a gap means that a
    /// decision was missed.
    pub round_id: RoundId,
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
    /// Node whose clock carries the timeline of a reference that was lost before this round; every
    /// sigma includes the resulting uncertainty.
    pub carried_by: Option<NodeId>,
    /// The window's start on the reference clock.
    pub window_start: Timestamp<Reference>,
    /// The window's end on the reference clock. The offsets hold at the midpoint.
    pub window_end: Timestamp<Reference>,
    /// Every node of the run, in order of `node_id`; in the part sent to a rank of a large group
    /// ([`Self::part_of`]), only the reference and the rank's own node.
    pub all_nodes: Vec<NodeEstimate>,
    /// Excluded edges, each with the reason.
    pub excluded_edges: Vec<(Edge, String)>,
    /// The edge with the largest normalised residual, and that residual in ns.
    pub worst_edge: Option<(Edge, f64)>,
    /// Standard deviation of path asymmetry estimated from the graph's loops, for an edge of median
    /// margin, ns.
    pub asymmetry_sd_ns: f64,
    /// Number of independent loops of the graph, and the root mean square of the sum of theta
    /// around them, ns.
    pub loops: (u32, f64),
    /// Nodes whose estimate was moved into its hard interval.
    pub clamped: u32,
    /// Cycles of edges with contradictory hard bounds: a clock stepped or a timestamp is wrong.
    pub contradictions: Vec<Vec<Edge>>,
    /// Nodes whose system clock was disturbed during the window.
    pub clock_events: Vec<(NodeId, ClockEvent)>,
    /// Findings about clocks and paths from the rounds so far.
    pub watch: Findings,
    /// Decision about the next round.
    pub decision: Decision,
}

impl Round {
    /// Returns the instant at which the offsets hold: the midpoint of the window on the reference
    /// clock.
    pub const fn midpoint(&self) -> Timestamp<Reference> {
        self.window_start.midpoint(self.window_end)
    }

    /// Returns the node whose clock was the timeline in this round: the reference, or the node that
    /// carried it.
    pub fn leader(&self) -> NodeId {
        self.carried_by.unwrap_or(self.reference)
    }

    /// Returns true if a node other than this one was reached: after a round without packets,
    /// because all paused, no node can carry the timeline on.
    pub fn knows_another_than(&self, leader: NodeId) -> bool {
        self.all_nodes.iter().any(|node| node.reachable && node.node_id != leader)
    }

    /// Returns the estimate of a node; `None` if this is a part without it.
    pub fn node(&self, node: NodeId) -> Option<&NodeEstimate> {
        let place = self.all_nodes.binary_search_by_key(&node, |estimate| estimate.node_id).ok()?;
        self.all_nodes.get(place)
    }

    /// Returns what a rank of `node` needs to continue and to convert its own times: the decision,
    /// the estimates of the node and of the reference, and the disturbances of these two. All data
    /// on other nodes is empty and must not be interpreted.
    #[must_use]
    pub fn part_of(&self, node: NodeId) -> Self {
        let concerned = |other: NodeId| other == node || other == self.reference || Some(other) == self.carried_by;
        Self {
            all_nodes: self.all_nodes.iter().filter(|estimate| concerned(estimate.node_id)).cloned().collect(),
            excluded_edges: Vec::new(),
            worst_edge: None,
            contradictions: Vec::new(),
            clock_events: self.clock_events.iter().filter(|(node, _)| concerned(*node)).copied().collect(),
            watch: Findings {
                invalid: self.watch.invalid.iter().copied().filter(|node| concerned(*node)).collect(),
                ..Findings::default()
            },
            decision: self.decision.clone(),
            ..*self
        }
    }

    /// Returns true if the clock of the node or of the reference was disturbed during the window,
    /// as reported by the system or shown by packets.
    pub fn clock_disturbed(&self, node: NodeId) -> bool {
        let concerned = |disturbed: &NodeId| *disturbed == node || *disturbed == self.leader();
        self.clock_events.iter().map(|(disturbed, _)| disturbed).chain(&self.watch.invalid).any(concerned)
    }
}

/// The master's decision about the next round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// End of the next window, on the reference clock.
    #[serde(rename = "next_window_end_ns")]
    pub next_window_end: Timestamp<Reference>,
    /// Length of the next window; used by a node whose offset is unknown.
    #[serde(rename = "next_window_ns")]
    pub next_window: Duration,
    /// Gap between exchanges started by one host.
    #[serde(rename = "cadence_ns")]
    pub cadence: Duration,
    /// True if the run is over.
    pub stop: bool,
    /// All edges to probe in addition to the run's own; those missing here are no longer probed.
    #[serde(default)]
    pub extra_edges: Vec<Edge>,
    /// True if the run was asked to end and the next window is the last one, which is not cut
    /// short.
    #[serde(default)]
    pub closing: bool,
    /// True if no node starts exchanges in the next window, because a pause was requested.
    #[serde(default)]
    pub paused: bool,
    /// Name of the phase of the experiment to which the next window belongs.
    #[serde(default)]
    pub phase: Option<String>,
}

impl Decision {
    /// The decision that ends the run.
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

/// The keys of [`Round`] in files and on the wire, which have three names for the number
/// of a round.
#[derive(Serialize, Deserialize)]
struct RoundKeys {
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
    watch: Findings,
    decision: Decision,
}

/// Returns the reference of files that do not state it.
pub(crate) fn first_node() -> NodeId {
    NodeId(0)
}

impl From<Round> for RoundKeys {
    fn from(data: Round) -> Self {
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

impl From<RoundKeys> for Round {
    fn from(keys: RoundKeys) -> Self {
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
