//! The data that the round loop passes to the metrics.

use probe_sync_collective::Traffic;
use probe_sync_estimate::window::NodeWindowData;
use probe_sync_time::{NodeId, System, Timestamp};

use crate::report::parts::Parts;

/// What the root saw of a round beside its result.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Observed<'a> {
    /// What the nodes contributed.
    pub windows: &'a [NodeWindowData],
    /// How long the root's parts of the round took.
    pub parts: Parts,
    /// Bytes that were gathered, as they were serialised.
    pub gathered_bytes: usize,
    /// Bytes of the decision.
    pub decision_bytes: usize,
    /// What the backend has carried since it was made.
    pub traffic: Traffic,
    /// The root's node, and when the root decided on this window, on that node's clock; None in the
    /// first round.
    pub decided: Option<(NodeId, Timestamp<System>)>,
}
