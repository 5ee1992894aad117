//! A node's statement about its edges.

use probe_sync_time::NodeId;
use serde::{Deserialize, Serialize};

use crate::Config;

/// What a node says of its edges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbors {
    /// Whom it probes; empty for a node that only answers.
    pub(super) out: Option<Vec<NodeId>>,
    /// Who probes it.
    pub(super) into: Option<Vec<NodeId>>,
}

impl Neighbors {
    pub(super) fn of(config: &Config) -> Self {
        Self { out: config.out_neighbors.clone(), into: config.in_neighbors.clone() }
    }
}
