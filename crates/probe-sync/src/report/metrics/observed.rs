//! The data that the round loop passes to the metrics.

use probe_sync_collective::Traffic;
use probe_sync_lines::NodeWindow;
use probe_sync_time::{NodeId, System, Timestamp};

use crate::report::parts::Parts;

/// The root's observations of a round, besides its result.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Observed<'a> {
    /// The nodes' contributions.
    pub windows: &'a [NodeWindow],
    /// Durations of the root's parts of the round.
    pub parts: Parts,
    /// Size of the gathered messages, bytes.
    pub gathered_bytes: usize,
    /// Size of the decision, bytes.
    pub decision_bytes: usize,
    /// Traffic of the backend since it was created.
    pub traffic: Traffic,
    /// The root's node, and when the root decided on this window, on that node's clock; `None` in
    /// the first round.
    pub decided: Option<(NodeId, Timestamp<System>)>,
}
