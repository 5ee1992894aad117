//! A matched operation and its parts.

use probe_sync_formats::model::{Label, Picoseconds, Recipients};
use serde::Serialize;

/// Why parts are believed to be one operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Equal labels on all nodes.
    Label,
    /// Order within the group that the parts name, with equal counts.
    GroupOrder,
    /// Order, where the counts leave one group that can have done it.
    CountedOrder,
}

/// One part of an operation.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Part<'a> {
    /// Place in the list of nodes.
    pub node: usize,
    /// What it is.
    pub label: &'a Label,
    /// Start on the node's own timeline.
    pub start_ps: Picoseconds,
    /// End on it.
    pub end_ps: Picoseconds,
    /// Place among the node's parts, in order of its file.
    pub ordinal: u64,
    /// To whom it sends.
    pub recipients: Recipients,
}

/// What must follow what; nodes by their place in the list.
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
    /// What follows what.
    pub order: Order,
    /// Why the parts belong together.
    pub evidence: Evidence,
    /// Which execution or place in a sequence; 0 where only order tells.
    pub number: i64,
    /// Which turn of a loop, or which place in the order, from 0.
    pub turn: usize,
    /// In order of node.
    pub parts: Vec<Part<'a>>,
    /// How many members of its group, or devices of its program, show no part.
    pub missing: usize,
}

/// Whether two neighbours in a list of parts are of one node.
pub(super) fn same_node(one: &Part<'_>, other: &Part<'_>) -> bool {
    one.node == other.node
}

/// Whether no second node shows it.
pub(super) fn one_node(parts: &[Part<'_>]) -> bool {
    parts.chunk_by(same_node).nth(1).is_none()
}

/// The nodes of some parts, in order.
pub(super) fn places(parts: &[Part<'_>]) -> Vec<usize> {
    parts.chunk_by(same_node).map(|of_node| of_node[0].node).collect()
}
