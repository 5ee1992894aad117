//! A rank's totals for a run, reported to the root at the end.

use probe_sync_lines::PeerPackets;
use probe_sync_time::{Edge, NodeId, StampSource};
use serde::{Deserialize, Serialize};

use crate::measure::counters::Counts;
use crate::store::{SentPairs, StreamState};

/// One rank's account of the run, gathered at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankAccount {
    /// Packets by peer, if the rank probes for a node.
    pub packets: Vec<PeerPackets>,
    /// Exchanges started, finished, lost, by out-edge.
    pub exchanges: Vec<EdgeExchanges>,
    /// All other counters: late, duplicate and foreign packets, missing stamps and so on.
    pub counters: Counts,
    /// Stamp source at the end; a socket may have been downgraded during the run.
    pub stamp: Option<StampSource>,
    /// Peers to which packets could not be sent, with the latest reason.
    pub unreachable: Vec<(NodeId, String)>,
    /// Files that this rank recorded for its node and that are incomplete.
    pub files: Vec<StreamState>,
    /// Snapshot pairs of its node, if this rank does not see the root's directory.
    pub pairs: Option<SentPairs>,
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
    /// Exchanges started.
    pub started: u64,
    /// Exchanges finished with all eight timestamps.
    pub finished: u64,
    /// Exchanges not finished in time.
    pub lost: u64,
}
