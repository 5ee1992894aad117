//! What a finished run gives: exchanges, counters, ground truth, clocks.
//!
//! Place in the flow: the end of a simulated run; tests hold the endpoints' counters and the estimates against it.

use std::collections::BTreeMap;

use probe_sync_probe::Counters;
use probe_sync_time::{Edge, Exchange, NodeId, System, Timestamp};

use crate::world::clock::{WanderingClock, offset_ns};
use crate::world::ground_truth::Ledger;

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Finished exchanges of every edge that no cut took away, in the order in which they finished. Edges without any
    /// have an empty list.
    pub exchanges: BTreeMap<Edge, Vec<Exchange>>,
    /// What each node counted.
    pub counters: Vec<Counters>,
    /// What really happened to the packets.
    pub ledger: Ledger,
    /// Each node's clock. Node 0's shows true time unless the scenario says otherwise.
    pub clocks: Vec<WanderingClock>,
    /// The run's first instant, true time.
    pub start: Timestamp<System>,
    /// When the last packet and timer were done, true time.
    pub end: Timestamp<System>,
    /// Events handled: the cost of the run.
    pub events: u64,
}

impl Outcome {
    /// The truth: offset of `node` from node 0 when node 0's clock shows `at`, ns.
    pub fn offset_ns(&self, node: NodeId, at: Timestamp<System>) -> f64 {
        offset_ns(&self.clocks, node, at)
    }
}
