//! One trace, with its rank, its node and what settled them.

use std::path::PathBuf;

use probe_sync_formats::TraceFormat;
use probe_sync_formats::chunk::BETWEEN_NAMES;
use probe_sync_formats::model::{Identity, TraceFacts};

use super::known::SettledBy;

/// One rank's trace.
#[derive(Clone, Debug)]
pub struct NodeTrace {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: &'static dyn TraceFormat,
    /// What tells it from the others: its rank, else its node while that is free, else the next
    /// free number.
    pub part: u32,
    /// What all traces of its rank have in common: the first one's `part`.
    pub rank_part: u32,
    /// Which of its rank's traces it is, in the order of time; 0: the first, or the only one.
    pub span: u32,
    /// The node whose clock it is on; ranks of one host share it. The same as `part` where no
    /// node's offsets will be applied.
    pub node: u32,
    /// What settled the node.
    pub settled_by: SettledBy,
    /// For people: `rank 2 (node 1, gpu-07)`.
    pub name: String,
    /// What the file says.
    pub facts: TraceFacts,
}

impl NodeTrace {
    /// What viewers are told of it: `rank 2 · gpu-01`, or `node 2 · gpu-01` where its rank is not
    /// known.
    pub fn title(&self) -> String {
        let Identity { rank, hostname, .. } = &self.facts.identity;
        let mut which = rank.map_or_else(|| format!("node {}", self.node), |rank| format!("rank {rank}"));
        if self.span > 0 {
            which.push_str(&format!(", span {}", self.span + 1));
        }
        [Some(which), hostname.clone()].into_iter().flatten().collect::<Vec<_>>().join(BETWEEN_NAMES)
    }
}
