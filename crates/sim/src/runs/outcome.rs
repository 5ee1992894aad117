//! The results of a finished run: exchanges, counters, ground truth and clocks.
//!
//! Tests compare the endpoints' counters and the estimates with the ground truth.

use std::collections::BTreeMap;

use probe_sync_probe::Counters;
use probe_sync_time::{Edge, Exchange, NodeId, Reference, System, Timestamp};

use crate::world::clock::{WanderingClock, offset_ns};
use crate::world::ground_truth::GroundTruth;

/// Result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Finished exchanges of every edge that no cut has taken, in the order in which they finished.
    /// Edges without any have an empty list.
    pub exchanges: BTreeMap<Edge, Vec<Exchange>>,
    /// Counters of each node.
    pub counters: Vec<Counters>,
    /// What really happened to the packets.
    pub ground_truth: GroundTruth,
    /// Each node's clock. Node 0's shows true time unless the scenario says otherwise.
    pub clocks: Vec<WanderingClock>,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// The first instant of the run, true time.
    pub start: Timestamp<System>,
    /// When the last packet and timer were done, true time.
    pub end: Timestamp<System>,
    /// Events processed: the cost of the run.
    pub events: u64,
}

impl Outcome {
    /// The truth: offset of `node` from the reference when the reference's clock shows `at`, ns.
    pub fn offset_ns(&self, node: NodeId, at: Timestamp<Reference>) -> f64 {
        offset_ns(&self.clocks, node, self.reference, at)
    }
}
