//! What a run's offsets look like in a file: a line of `offsets.jsonl`, for the one who writes it and the one who reads it.
//!
//! Place in the flow: written by a live run and by `solve`, read by alignment. The first ten keys of a line are what existing
//! combiners read; their names and meaning stay.
//! What it does not do: read or write files.

use probe_sync_time::{NodeId, Reference, RoundId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::round::GlobalWindowData;
use crate::window::NodeEstimate;

/// A line of `offsets.jsonl`. The first ten keys are what existing combiners read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffsetRecord {
    /// The round.
    pub round_id: RoundId,
    /// The window, which is the round's number; where lines are closer than rounds, the line's.
    pub window_id: u64,
    /// The window's start on the reference clock.
    #[serde(rename = "window_start_ns")]
    pub window_start: Timestamp<Reference>,
    /// The window's end on the reference clock; the offset holds at the middle.
    #[serde(rename = "window_end_ns")]
    pub window_end: Timestamp<Reference>,
    /// The estimate.
    #[serde(flatten)]
    pub estimate: NodeEstimate,
    /// The system clock of this node or of the reference was stepped or slewed during the window: do not trust the line.
    #[serde(default)]
    pub clock_disturbed: bool,
}

impl OffsetRecord {
    /// The lines for one solved round, one a node.
    pub fn of_round(round: &GlobalWindowData) -> impl Iterator<Item = Self> + '_ {
        round.all_nodes.iter().map(|estimate| Self {
            round_id: round.round_id,
            window_id: round.round_id.0,
            window_start: round.window_start,
            window_end: round.window_end,
            estimate: estimate.clone(),
            clock_disturbed: round.clock_disturbed(estimate.node_id),
        })
    }
}

/// The first line of `offsets.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OffsetsHeader {
    /// Always true.
    pub meta: bool,
    /// The nodes in order; empty where nothing is known of them.
    #[serde(default)]
    pub nodes: Vec<NodeRecord>,
    /// The node whose offset is zero.
    #[serde(default = "crate::round::first_node")]
    pub reference: NodeId,
    /// The launcher's ranks, as each stated itself; empty where they stated none that can be told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankRecord>,
}

/// What the first line says of one rank of the launcher: on which node's clock its traces are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRecord {
    /// The rank, as its launcher numbers it.
    pub rank: u32,
    /// Ranks in the launcher's job. A trace of a job of another size has other ranks.
    pub world_size: u32,
    /// Its number among the ranks of its host, where the launcher states one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_rank: Option<u32>,
    /// Its host.
    pub hostname: String,
    /// The node that it is, or follows.
    pub node_id: NodeId,
}

/// What the first line says of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Its host.
    pub hostname: Option<String>,
    /// The node.
    pub node_id: NodeId,
    /// Its tracer clock at the measurement's start, ns.
    pub start_gpu_ns: Option<i64>,
    /// Its system clock at the same moment, ns.
    pub start_walltime_ns: Option<i64>,
}
