//! A node's statement about its edges.

use probe_sync_time::NodeId;
use serde::{Deserialize, Serialize};

use crate::Config;

/// A node's lists of its edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbors {
    /// Nodes that it probes; empty for a node that only answers.
    pub(super) out: Option<Vec<NodeId>>,
    /// Nodes that probe it.
    pub(super) into: Option<Vec<NodeId>>,
}

impl Neighbors {
    pub(super) fn of(config: &Config) -> Self {
        Self { out: config.out_neighbors.clone(), into: config.in_neighbors.clone() }
    }
}
