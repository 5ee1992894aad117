//! One trace, with its rank, its node and what settled them.

use std::path::PathBuf;

use probe_sync_formats::TraceFormat;
use probe_sync_formats::chunk::BETWEEN_NAMES;
use probe_sync_formats::model::{Identity, TraceFacts};

use super::known::SettledBy;

/// A trace of one rank.
#[derive(Clone, Debug)]
pub struct NodeTrace {
    /// The file.
    pub path: PathBuf,
    /// Format of the trace.
    pub format: &'static dyn TraceFormat,
    /// Number that distinguishes it from the others: its rank, otherwise its node if that is free,
    /// otherwise the next free number.
    pub part: u32,
    /// Number shared by all traces of its rank: the first one's `part`.
    pub rank_part: u32,
    /// Number of the trace among those of its rank, in order of time; 0 for the first or only one.
    pub span: u32,
    /// Node whose clock it is on; ranks of one host share it. Equal to `part` if no node's offsets
    /// will be applied.
    pub node: u32,
    /// How the node was determined.
    pub settled_by: SettledBy,
    /// Display name: `rank 2 (node 1, gpu-07)`.
    pub name: String,
    /// Facts stated in the file.
    pub facts: TraceFacts,
}

impl NodeTrace {
    /// Returns the title for viewers: `rank 2 · gpu-01`, or `node 2 · gpu-01` if its rank is
    /// unknown.
    pub fn title(&self) -> String {
        let Identity { rank, hostname, .. } = &self.facts.identity;
        let mut which = rank.map_or_else(|| format!("node {}", self.node), |rank| format!("rank {rank}"));
        if self.span > 0 {
            which.push_str(&format!(", span {}", self.span + 1));
        }
        [Some(which), hostname.clone()].into_iter().flatten().collect::<Vec<_>>().join(BETWEEN_NAMES)
    }
}
