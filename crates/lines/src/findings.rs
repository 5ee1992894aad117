//! The watch's findings about a round.

use probe_sync_time::{Edge, NodeId, RoundId};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// Findings of the watch in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// Faults that have become certain.
    pub faults: Vec<Fault>,
    /// Breaks of clocks, in this round or one of the two before.
    pub breaks: Vec<ClockBreak>,
    /// Edges without information in a round: this one or one of the two before.
    pub left_out: Vec<(RoundId, Edge)>,
    /// Nodes whose estimates of this round must not be used; if the reference is among them, all
    /// estimates are invalid.
    pub invalid: Vec<NodeId>,
}

/// A break: a node's clock was stepped or restarted between two rounds. If the reference steps, all
/// other clocks have a break.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockBreak {
    /// The node.
    pub node: NodeId,
    /// The first round after the break.
    pub round: RoundId,
}
