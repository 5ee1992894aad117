//! A matched operation and its parts.

use probe_sync_formats::model::{Label, Picoseconds, Recipients};
use serde::Serialize;

/// Evidence that parts belong to one operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Equal labels on all nodes.
    Label,
    /// Order within the group named by the parts, with equal counts.
    GroupOrder,
    /// Order, where the counts leave only one possible group.
    CountedOrder,
}

/// One part of an operation.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Part<'a> {
    /// Index in the list of nodes.
    pub node: usize,
    /// Label of the part.
    pub label: &'a Label,
    /// Start on the node's own timeline.
    pub start_ps: Picoseconds,
    /// End on the node's own timeline.
    pub end_ps: Picoseconds,
    /// Index among the node's parts, in file order.
    pub ordinal: u64,
    /// Ranks to which it sends.
    pub recipients: Recipients,
}

/// Required order of ends and starts; nodes are indices into the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Every end follows every start.
    AllToAll,
    /// Every end follows the start of this node.
    From(usize),
    /// The end of this node follows every start.
    To(usize),
    /// The end of the receiver follows the start of the sender.
    Between {
        /// The sender.
        source: usize,
        /// The receiver.
        destination: usize,
    },
    /// The end of each receiver follows the starts of those that send to it: (receiver, senders),
    /// in order of receiver.
    Exchange(Vec<(usize, Vec<usize>)>),
}

/// The parts of one operation, on at least two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation<'a> {
    /// Required order of ends and starts.
    pub order: Order,
    /// Evidence that the parts belong together.
    pub evidence: Evidence,
    /// Number of the execution, or in a sequence; 0 if only the order is known.
    pub number: i64,
    /// Turn of a loop, or place in the order, from 0.
    pub turn: usize,
    /// The parts, in order of node.
    pub parts: Vec<Part<'a>>,
    /// Number of members of its group, or devices of its program, without a part.
    pub missing: usize,
}

/// Returns true if two adjacent parts of a list are on one node.
pub(super) fn same_node(one: &Part<'_>, other: &Part<'_>) -> bool {
    one.node == other.node
}

/// Returns true if all parts are on one node.
pub(super) fn one_node(parts: &[Part<'_>]) -> bool {
    parts.chunk_by(same_node).nth(1).is_none()
}

/// Returns the nodes of the parts, in order.
pub(super) fn places(parts: &[Part<'_>]) -> Vec<usize> {
    parts.chunk_by(same_node).map(|of_node| of_node[0].node).collect()
}
