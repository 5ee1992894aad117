//! Clock and path faults, named: which node or edge, what happened, how large, since which round.
//!
//! Place in the flow: after `graph` has solved a round, before the smoother and the files. `graph` keeps a fault from
//! hurting the others within its round; [`Watch`] compares the round with those before it. Its [`Verdict`] tells people what
//! happened ([`Fault`]), the smoother where a clock's course is broken ([`Break`]) and which edges of which round say nothing, and
//! everybody whose estimate of this round must not be used.
//!
//! How faults are told apart (innovation: measured minus predicted from the rounds before):
//! 1. a window that no straight line explains, on most edges of a node: its clock stepped within the window (`clocks`);
//! 2. a node's offset leaves its predicted course and stays off it: a step, or a jump of its rate; most nodes at once by
//!    the same amount: the reference did it (`clocks`);
//! 3. an edge's residual against the solved offsets leaves its own constant level: the path has become asymmetric; on several edges of
//!    one node by differing amounts: that node lies to its peers (`paths`);
//! 4. an edge's margin, half its least round trip, leaves its level: the route changed; on most edges of a node, together with
//!    its offset: its receive stamps lie (`paths`);
//! 5. edges that are not heard: silence, partition, restart, late joining (`presence`); exchanges lost (`losses`).
//!
//! All but 1 and 5 are named when two rounds running show them: one bad window is no fault. Levels of noise are learnt
//! from the data, so that a cluster of wild clocks is not a cluster of faults. A fault's end is not a fault.
//!
//! What it does not do: change estimates, or see lies told alike to all peers from the first round on: those are offsets.

mod clocks;
mod losses;
mod paths;
mod presence;
mod scale;

use probe_sync_time::{Edge, NodeId, Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

use self::clocks::Clocks;
use self::losses::Losses;
use self::paths::Paths;
use self::presence::Presence;
use crate::window::{ClockEvent, EdgeAlphaBeta, NodeEstimate};

/// What happened.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A clock was set, or its stamps lie by a constant to all peers alike. Size in ns.
    Step,
    /// A node was silent and came back, or lost its exchanges, with another offset. Size in ns.
    Restart,
    /// A clock's rate changed, or its stamps lie by a ramp to all peers alike. Size in ppm.
    RateJump,
    /// A clock was off for one window and came back. Size 0.
    Glitch,
    /// A node tells its peers different times, or stamps what it receives late or early. Size in ns.
    Liar,
    /// One way of an edge is longer than the other. Size: the difference of the ways, ns.
    AsymmetricEdge,
    /// The least delay changed. Size: change of the least round trip, ns.
    RouteChange,
    /// Packets are lost. Size: share lost, of packets in a direction where that is known, else of exchanges.
    Loss,
    /// Packets are lost one way only: from the edge's source to its destination. Size: share of packets lost.
    OneWayLoss,
    /// Nothing is heard of a node. Size 0.
    Silent,
    /// Nodes hear each other but not the reference's part. Size: number of nodes.
    Partition,
    /// Nodes are back, with the offsets that were expected. Size: number of nodes.
    Rejoined,
    /// A node was first heard after the first round. Size: rounds missed.
    JoinedLate,
}

/// Who it happened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// A node.
    Node(NodeId),
    /// Several nodes together, in order.
    Nodes(Vec<NodeId>),
    /// An edge; where a direction matters it runs from source to destination.
    Edge(Edge),
    /// The network as a whole.
    Everyone,
}

/// A fault, named once, when it is sure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// What happened.
    pub kind: FaultKind,
    /// Who it happened to.
    pub culprit: Culprit,
    /// How much, in the unit that [`FaultKind`] states.
    pub size: f64,
    /// The first round that shows it.
    pub began: RoundId,
    /// The round in which it was named.
    pub round: RoundId,
}

/// How a clock's course is broken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BreakKind {
    /// The offset is free.
    Step,
    /// Offset and rate are free.
    Restart,
}

/// A node's clock between `round − 1` and `round` is not one course. When the reference steps, everybody else's is broken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// The node.
    pub node: NodeId,
    /// The first round after the break.
    pub round: RoundId,
    /// What is free.
    pub kind: BreakKind,
}

/// Packets of one direction between two nodes during a round.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DirectionCount {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Packets that the one sent.
    pub sent: u64,
    /// Packets that came to the other, copies not counted.
    pub received: u64,
}

/// A solved round, as the watch looks at it.
#[derive(Copy, Clone, Debug)]
pub struct RoundView<'a> {
    /// The round, counted from 0; rounds come in order.
    pub round: RoundId,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// The instant of the solution on the reference's clock.
    pub reference_midpoint: Timestamp<Reference>,
    /// The fitted edges.
    pub edges: &'a [EdgeAlphaBeta],
    /// The solution, in order of node.
    pub nodes: &'a [NodeEstimate],
    /// What `graph` left out of it.
    pub excluded: &'a [(Edge, String)],
    /// What nodes saw of their own clocks.
    pub clock_events: &'a [(NodeId, ClockEvent)],
    /// Exchanges lost on edges that have no fit.
    pub unfitted: &'a [(Edge, u32)],
    /// Packets by direction, where they are counted; may be empty.
    pub directions: &'a [DirectionCount],
}

/// What the watch says about a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Faults that have become sure.
    pub faults: Vec<Fault>,
    /// Where courses are broken, in this round or one of the two before.
    pub breaks: Vec<Break>,
    /// Edges that say nothing in a round, this one or one of the two before.
    pub left_out: Vec<(RoundId, Edge)>,
    /// Nodes whose estimates of this round must not be used; the reference: nobody's.
    pub spoilt: Vec<NodeId>,
}

/// Looks at a run round by round. Memory is bounded by the nodes and by a million edges.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    clocks: Clocks,
    paths: Paths,
    presence: Presence,
    losses: Losses,
}

impl Watch {
    /// Looks at the next round.
    pub fn observe(&mut self, view: &RoundView<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        let presence = self.presence.observe(view, &mut verdict);
        let lossy = self.losses.observe(view, &presence, &mut verdict);
        let broken = paths::broken_nodes(view);
        let course = self.clocks.compare(view, &presence, &broken);
        let lies = self.paths.observe(view, &course, &mut verdict);
        self.clocks.judge(view, &course, &lies, &lossy, &mut verdict);
        self.leave_out(view, &lies, &mut verdict);
        for fault in &mut verdict.faults {
            fault.round = view.round;
        }
        verdict
    }

    /// Lists this round's useless edges, and the edges of broken courses in the rounds in which they broke.
    fn leave_out(&self, view: &RoundView<'_>, lies: &paths::Lies, verdict: &mut Verdict) {
        let now = view.round;
        let touches = |edge: Edge, nodes: &[NodeId]| nodes.contains(&edge.src) || nodes.contains(&edge.dst);
        let all = || view.edges.iter().map(EdgeAlphaBeta::edge);
        // A reference that is spoilt takes nobody else's edges with it.
        let mut left: Vec<(RoundId, Edge)> =
            all().filter(|edge| touches(*edge, &verdict.spoilt)).map(|e| (now, e)).collect();
        left.extend(view.excluded.iter().map(|(edge, _)| (now, *edge)));
        left.extend(lies.bad_edges.iter().map(|edge| (now, *edge)));
        let moved = [FaultKind::Step, FaultKind::Restart, FaultKind::RateJump];
        for fault in verdict.faults.iter().filter(|fault| moved.contains(&fault.kind)) {
            if let Culprit::Node(node) = fault.culprit {
                left.extend(all().filter(|edge| touches(*edge, &[node])).map(|edge| (fault.began, edge)));
            }
        }
        left.sort_unstable();
        left.dedup();
        verdict.left_out = left;
        verdict.spoilt.sort_unstable();
        verdict.spoilt.dedup();
    }
}

impl FaultKind {
    /// The kind as files name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Restart => "restart",
            Self::RateJump => "rate_jump",
            Self::Glitch => "glitch",
            Self::Liar => "liar",
            Self::AsymmetricEdge => "asymmetric_edge",
            Self::RouteChange => "route_change",
            Self::Loss => "loss",
            Self::OneWayLoss => "one_way_loss",
            Self::Silent => "silent",
            Self::Partition => "partition",
            Self::Rejoined => "rejoined",
            Self::JoinedLate => "joined_late",
        }
    }
}

impl Fault {
    fn new(kind: FaultKind, culprit: Culprit, size: f64, began: RoundId) -> Self {
        Self { kind, culprit, size, began, round: began }
    }
}

impl std::fmt::Display for Culprit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Nodes(nodes) => {
                let names: Vec<String> = nodes.iter().take(NAMES_MAX).map(ToString::to_string).collect();
                let more = nodes.len().saturating_sub(NAMES_MAX);
                write!(f, "nodes {}", names.join(", "))?;
                if more > 0 { write!(f, " and {more} more") } else { Ok(()) }
            }
            Self::Edge(edge) => write!(f, "edge {edge}"),
            Self::Everyone => write!(f, "the network"),
        }
    }
}

impl std::fmt::Display for Fault {
    /// "round 7: node 5 stepped by 10.000 ms".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, culprit, size, began, .. } = self;
        write!(f, "round {began}: ")?;
        match kind {
            FaultKind::Step => write!(f, "{culprit} stepped by {}", time(*size)),
            FaultKind::Restart => write!(f, "{culprit} restarted, its clock moved by {}", time(*size)),
            FaultKind::RateJump => write!(f, "{culprit} changed its rate by {size:+.4} ppm"),
            FaultKind::Glitch => write!(f, "{culprit} was off for one window and came back"),
            FaultKind::Liar => write!(f, "{culprit} lies to its peers by {}", time(size.abs())),
            FaultKind::AsymmetricEdge => write!(f, "{culprit} is {} longer one way than the other", time(size.abs())),
            FaultKind::RouteChange => write!(f, "{culprit} changed its round trip by {}", time(*size)),
            FaultKind::Loss => write!(f, "{culprit} loses {:.0} %", 100.0 * size),
            FaultKind::OneWayLoss => write!(f, "{culprit} loses {:.0} % of its packets, one way only", 100.0 * size),
            FaultKind::Silent => write!(f, "{culprit} fell silent"),
            FaultKind::Partition => write!(f, "{culprit} are cut off from the reference"),
            FaultKind::Rejoined => write!(f, "{culprit} came back"),
            FaultKind::JoinedLate => write!(f, "{culprit} joined late"),
        }
    }
}

/// A time with the unit that suits its size.
fn time(ns: f64) -> String {
    match ns.abs() {
        size if size < 1e3 => format!("{ns:.0} ns"),
        size if size < 1e6 => format!("{:.3} µs", ns * 1e-3),
        size if size < 1e9 => format!("{:.3} ms", ns * 1e-6),
        _ => format!("{:.6} s", ns * 1e-9),
    }
}

/// Nodes named in a line for people.
const NAMES_MAX: usize = 8;

#[cfg(test)]
mod tests;
