//! Ground truth counters: the fate of each packet, counted by the network without asking the
//! endpoints.
//!
//! The event loop counts every packet sent and every copy that arrives; the run's outcome contains
//! the counts. Tests compare the endpoints' counters with them.

use std::collections::{BTreeMap, HashSet};

use probe_sync_probe::{ForeignCounters, TxContext};
use probe_sync_time::NodeId;

use crate::world::pairs::PairMap;

/// What happened to the packets of one direction between two nodes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    /// Accepted by the network.
    pub sent: u64,
    /// Refused at the sender.
    pub unsendable: u64,
    /// Lost on the way.
    pub dropped: u64,
    /// Copies that arrived.
    pub delivered: u64,
    /// Second copies that arrived.
    pub duplicates: u64,
    /// Coded packets whose transmit timestamp was withheld from the sender.
    pub stamps_withheld: u64,
}

/// What really happened to the packets of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroundTruth {
    /// By sender and receiver.
    pub directions: BTreeMap<(NodeId, NodeId), DirectionCounts>,
    /// Datagrams fabricated for each node, by defect.
    pub foreign: Vec<ForeignCounters>,
}

/// Counts during a run.
#[derive(Debug)]
pub(crate) struct PacketCounter {
    directions: PairMap<DirectionCounts>,
    pub(crate) foreign: Vec<ForeignCounters>,
    /// Packets sent twice whose first copy has arrived, by sender.
    arrived: HashSet<(NodeId, TxContext)>,
}

impl PacketCounter {
    pub(crate) fn new(nodes: u32) -> Self {
        Self {
            directions: PairMap::new(nodes),
            foreign: vec![ForeignCounters::default(); nodes as usize],
            arrived: HashSet::new(),
        }
    }

    /// The counts of the finished run.
    pub(crate) fn finish(self) -> GroundTruth {
        let directions = self.directions.into_iter();
        let used = directions.filter(|(_, counts)| *counts != DirectionCounts::default());
        GroundTruth { directions: used.collect(), foreign: self.foreign }
    }

    pub(crate) fn counts(&mut self, from: NodeId, to: NodeId) -> &mut DirectionCounts {
        self.directions.entry(from, to, DirectionCounts::default)
    }

    /// A packet was accepted from its sender; `copies` of it will arrive.
    pub(crate) fn note_sent(&mut self, from: NodeId, to: NodeId, copies: u8) {
        let counts = self.counts(from, to);
        counts.sent += 1;
        counts.dropped += u64::from(copies == 0);
    }

    /// A copy of a packet arrives; `copies` were made of it.
    pub(crate) fn note_arrival(&mut self, from: NodeId, context: TxContext, copies: u8) {
        let duplicate = copies > 1 && !self.arrived.insert((from, context));
        let counts = self.counts(from, context.peer);
        counts.delivered += 1;
        counts.duplicates += u64::from(duplicate);
    }
}
