//! The watch's input for one round.

use probe_sync_time::{Edge, NodeId, Reference, RoundId, Timestamp};

use crate::window::{ClockEvent, EdgeAlphaBeta, NodeEstimate};

/// Packets of one direction between two nodes during a round.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct DirectionCount {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// Packets that the one sent.
    pub sent: u64,
    /// Packets that came to the other, copies not counted.
    pub received: u64,
    /// By what share of itself the sender's window is longer than the receiver's.
    pub apart: f64,
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
    /// Whose own windows are in the round, with exchanges or without.
    pub reporting: &'a [NodeId],
    /// What `graph` left out of it.
    pub excluded: &'a [(Edge, String)],
    /// What nodes saw of their own clocks.
    pub clock_events: &'a [(NodeId, ClockEvent)],
    /// Exchanges lost on edges that have no fit.
    pub unfitted: &'a [(Edge, u32)],
    /// Packets by direction, where they are counted; may be empty.
    pub directions: &'a [DirectionCount],
}
