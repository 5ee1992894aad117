//! A named fault with its kind, node or edge, size, first round and description.

use probe_sync_time::{Edge, NodeId, RoundId, with_unit};
use serde::{Deserialize, Serialize};

/// Kind of fault.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    /// A clock was set, or its stamps are wrong by a constant, for all peers alike. Size: the step,
    /// ns.
    Step,
    /// A node was silent, or lost its exchanges, and came back with another offset. Size: the
    /// change, ns.
    Restart,
    /// A clock's rate changed, or its stamps are wrong by a ramp, for all peers alike. Size: the
    /// change, ppm.
    RateJump,
    /// A clock was wrong for one window only. Size: 0.
    Glitch,
    /// A node's timestamps are inconsistent between its peers, or its receive stamps are late or
    /// early. Size in ns.
    Falseticker,
    /// One direction of an edge is longer than the other. Size: the difference between the
    /// directions, ns.
    AsymmetricEdge,
    /// The smallest delay changed. Size: change of the smallest round trip, ns.
    RouteChange,
    /// Packets are lost. Size: share lost, of the packets of a direction if known, otherwise of the
    /// exchanges.
    Loss,
    /// Packets are lost in one direction only, from the edge's source to its destination. Size:
    /// share of packets lost.
    OneWayLoss,
    /// No packets arrive from a node. Size: 0.
    Silent,
    /// Nodes hear each other but not the part of the network with the reference. Size: number of
    /// nodes.
    Partition,
    /// Nodes are back with the expected offsets. Size: number of nodes.
    Rejoined,
    /// A node was first heard after the first round. Size: number of rounds missed.
    JoinedLate,
}

/// The node, nodes or edge that a fault affects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Culprit {
    /// One node.
    Node(NodeId),
    /// Several nodes together, in order. For a step, rate change or glitch: one of the two, but it
    /// is unknown which; the size is the change of the second relative to the first.
    Nodes(Vec<NodeId>),
    /// An edge, from source to destination if the direction matters.
    Edge(Edge),
    /// The whole network.
    Everyone,
}

/// A fault, reported once, when it is certain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fault {
    /// Kind of the fault.
    pub kind: FaultKind,
    /// The node, nodes or edge affected.
    pub culprit: Culprit,
    /// Size, in the unit given by [`FaultKind`].
    pub size: f64,
    /// First round that shows the fault.
    pub began: RoundId,
    /// Round in which the fault was reported.
    pub round: RoundId,
}

impl FaultKind {
    /// Returns the name of the kind as used in files.
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
    /// Returns a fault that is reported in the round in which it began.
    pub fn new(kind: FaultKind, culprit: Culprit, size: f64, began: RoundId) -> Self {
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

fn time(ns: f64) -> String {
    with_unit(ns, [0, 3, 3, 6])
}

/// Most nodes listed in a message.
const NAMES_MAX: usize = 8;
