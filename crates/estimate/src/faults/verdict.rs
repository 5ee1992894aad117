//! The watch's findings about a round.

use probe_sync_time::{Edge, NodeId, RoundId};
use serde::{Deserialize, Serialize};

use super::fault::Fault;

/// What the watch says about a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Faults that have become sure.
    pub faults: Vec<Fault>,
    /// Where clocks do not continue, in this round or one of the two before.
    pub breaks: Vec<Break>,
    /// Edges that say nothing in a round, this one or one of the two before.
    pub left_out: Vec<(RoundId, Edge)>,
    /// Nodes whose estimates of this round must not be used; the reference: nobody's.
    pub invalid: Vec<NodeId>,
}

/// A node's clock does not continue from the round before: it was stepped or restarted. When the
/// reference steps, everybody else's is broken.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// The node.
    pub node: NodeId,
    /// The first round after the break.
    pub round: RoundId,
}
