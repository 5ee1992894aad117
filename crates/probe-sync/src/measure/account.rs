//! A rank's totals for a run, reported to the root at the end.

use probe_sync_estimate::window::PeerPackets;
use probe_sync_time::{Edge, NodeId, StampSource};
use serde::{Deserialize, Serialize};

use crate::measure::counters::Counts;
use crate::store::StreamState;

/// What one rank did, gathered at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankAccount {
    /// Packets by peer, if the rank probes for a node.
    pub packets: Vec<PeerPackets>,
    /// Exchanges started, finished, lost, by out-edge.
    pub exchanges: Vec<EdgeExchanges>,
    /// Everything else that was counted: late, duplicate, foreign packets, missing stamps and so
    /// on.
    pub counters: Counts,
    /// Where stamps came from in the end; a socket may have stepped down during the run.
    pub stamp: Option<StampSource>,
    /// Peers that packets could not be sent to, with the latest reason.
    pub unreachable: Vec<(NodeId, String)>,
    /// The files that this rank records for its node, where something is missing in them.
    pub files: Vec<StreamState>,
    /// Processor time since the rounds began, ns.
    pub cpu_ns: u64,
    /// Wall time since the rounds began, ns.
    pub wall_ns: u64,
}

/// Exchanges of one out-edge.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeExchanges {
    /// The edge.
    pub edge: Edge,
    /// Begun.
    pub started: u64,
    /// Finished with all eight timestamps.
    pub finished: u64,
    /// Not finished in time.
    pub lost: u64,
}
