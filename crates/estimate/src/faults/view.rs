//! The watch's input for one round.

use probe_sync_lines::{ClockEvent, EdgeFit, NodeEstimate};
use probe_sync_time::{Edge, NodeId, Reference, RoundId, Timestamp};

/// Packets of one direction between two nodes during a round.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct DirectionCount {
    /// Sender.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    /// Packets sent by the sender.
    pub sent: u64,
    /// Packets that arrived, without duplicates.
    pub received: u64,
    /// Share of itself by which the sender's window is longer than the receiver's.
    pub apart: f64,
}

/// A solved round, as input of the watch.
#[derive(Copy, Clone, Debug)]
pub struct RoundView<'a> {
    /// The round, counted from 0; rounds come in order.
    pub round: RoundId,
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
    /// Instant of the solution on the reference's clock.
    pub reference_midpoint: Timestamp<Reference>,
    /// The fitted edges.
    pub edges: &'a [EdgeFit],
    /// The solution, in order of node.
    pub nodes: &'a [NodeEstimate],
    /// Nodes whose own windows are in the round, with or without exchanges.
    pub reporting: &'a [NodeId],
    /// Edges excluded by `graph`.
    pub excluded: &'a [(Edge, String)],
    /// Events that nodes detected on their own clocks.
    pub clock_events: &'a [(NodeId, ClockEvent)],
    /// Exchanges lost on edges without a fit.
    pub unfitted: &'a [(Edge, u32)],
    /// Packets by direction, if counted; may be empty.
    pub directions: &'a [DirectionCount],
}
