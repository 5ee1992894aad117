//! A named fault with its kind, node or edge, size, first round and description.

use probe_sync_time::{Edge, NodeId, RoundId};
use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A clock was set, or its stamps are wrong by a constant, for all peers alike. Size in ns.
    Step,
    /// A node was silent and came back, or lost its exchanges, with another offset. Size in ns.
    Restart,
    /// A clock's rate changed, or its stamps are wrong by a ramp, for all peers alike. Size in ppm.
    RateJump,
    /// A clock was off for one window and came back. Size 0.
    Glitch,
    /// A node's timestamps are inconsistent between its peers, or it stamps what it receives late
    /// or early. Size in ns.
    Falseticker,
    /// One way of an edge is longer than the other. Size: the difference of the ways, ns.
    AsymmetricEdge,
    /// The least delay changed. Size: change of the least round trip, ns.
    RouteChange,
    /// Packets are lost. Size: share lost, of packets in a direction where that is known, else of
    /// exchanges.
    Loss,
    /// Packets are lost one way only: from the edge's source to its destination. Size: share of
    /// packets lost.
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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// A node.
    Node(NodeId),
    /// Several nodes together, in order. With a step, a change of rate or a glitch: one of two, and
    /// nothing tells which; the size is what the second did against the first.
    Nodes(Vec<NodeId>),
    /// An edge; where a direction matters it runs from source to destination.
    Edge(Edge),
    /// The network as a whole.
    Everyone,
}

/// A fault, named once, when it is sure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl FaultKind {
    /// The kind as files name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Restart => "restart",
            Self::RateJump => "rate_jump",
            Self::Glitch => "glitch",
            Self::Falseticker => "falseticker",
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
    pub(super) fn new(kind: FaultKind, culprit: Culprit, size: f64, began: RoundId) -> Self {
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
        if let Culprit::Nodes(nodes) = culprit
            && let [a, b] = nodes[..]
        {
            let unknown = "it is unclear which of the two changed";
            match kind {
                FaultKind::Step => {
                    return write!(f, "the clocks of nodes {a} and {b} stepped apart by {}; {unknown}", time(*size));
                }
                FaultKind::RateJump => {
                    return write!(f, "the rates of nodes {a} and {b} diverged by {size:+.4} ppm; {unknown}");
                }
                FaultKind::Glitch => {
                    return write!(f, "node {a} or {b} was off for one window and recovered");
                }
                _ => {}
            }
        }
        match kind {
            FaultKind::Step => write!(f, "{culprit} stepped by {}", time(*size)),
            FaultKind::Restart => write!(f, "{culprit} restarted, and its clock moved by {}", time(*size)),
            FaultKind::RateJump => write!(f, "{culprit} changed its rate by {size:+.4} ppm"),
            FaultKind::Glitch => write!(f, "{culprit} was off for one window and recovered"),
            FaultKind::Falseticker => {
                write!(f, "{culprit} gives its peers timestamps that are inconsistent by {}", time(size.abs()))
            }
            FaultKind::AsymmetricEdge => {
                write!(f, "{culprit} is {} longer in one direction than in the other", time(size.abs()))
            }
            FaultKind::RouteChange => write!(f, "{culprit} changed its round-trip time by {}", time(*size)),
            FaultKind::Loss => write!(f, "{culprit} loses {:.0} % of its packets", 100.0 * size),
            FaultKind::OneWayLoss => {
                write!(f, "{culprit} loses {:.0} % of its packets, in one direction only", 100.0 * size)
            }
            FaultKind::Silent => write!(f, "{culprit} stopped responding"),
            FaultKind::Partition => write!(f, "{culprit} are cut off from the reference"),
            FaultKind::Rejoined => write!(f, "{culprit} rejoined"),
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
