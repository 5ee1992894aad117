//! Ground truth counters: what happened to each packet, counted by the network without asking the endpoints.
//!
//! Place in the flow: the event loop notes every packet that is sent and every copy that arrives; the counts leave with the run's
//! outcome.
//! What is late follows from the protocol's rules alone: an answer that comes when the exchange timeout has passed since
//! the exchange's first packet left; a request packet after one of a newer exchange came, or a timeout after the first
//! packet of its own exchange came. Tests hold the endpoints' counters against these.
//!
//! What it does not do: lose or delay packets (`network` does).

use std::collections::{BTreeMap, HashSet, VecDeque};

use probe_sync_probe::{ForeignCounters, Kind, TxContext};
use probe_sync_time::NodeId;

use crate::world::pairs::PairMap;

/// What happened to the packets of one direction between two nodes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionCounts {
    /// Taken by the network.
    pub sent: u64,
    /// Refused at the sender.
    pub unsendable: u64,
    /// Lost on the way.
    pub dropped: u64,
    /// Copies that arrived.
    pub delivered: u64,
    /// Second copies that arrived.
    pub duplicates: u64,
    /// First copies that arrived too late to matter.
    pub late: u64,
    /// Coded packets whose transmit stamp was withheld from the sender.
    pub stamps_withheld: u64,
}

/// What really happened to the packets of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroundTruth {
    /// By sender and receiver.
    pub directions: BTreeMap<(NodeId, NodeId), DirectionCounts>,
    /// Datagrams made up for each node, by what is wrong with them.
    pub foreign: Vec<ForeignCounters>,
}

/// Counts while the run goes on, with what must be remembered to judge lateness.
#[derive(Debug)]
pub(crate) struct PacketCounter {
    directions: PairMap<Direction>,
    pub(crate) foreign: Vec<ForeignCounters>,
    exchange_timeout_ns: i64,
    /// Packets sent twice whose first copy has arrived.
    arrived: HashSet<(NodeId, TxContext)>,
}

/// One direction's counts.
#[derive(Debug, Default)]
struct Direction {
    counts: DirectionCounts,
    /// Sequence number and time of each exchange that the sender started within the last exchange timeout.
    starts: VecDeque<(u32, i64)>,
    /// The newest exchange of the sender that reached the receiver, and when.
    newest: Option<(u32, i64)>,
}

impl PacketCounter {
    pub(crate) fn new(nodes: u32, exchange_timeout_ns: i64) -> Self {
        Self {
            directions: PairMap::new(nodes),
            foreign: vec![ForeignCounters::default(); nodes as usize],
            exchange_timeout_ns,
            arrived: HashSet::new(),
        }
    }

    /// The counts of the finished run.
    pub(crate) fn finish(self) -> GroundTruth {
        let directions = self.directions.into_iter();
        let used = directions
            .map(|(pair, direction)| (pair, direction.counts))
            .filter(|(_, counts)| *counts != DirectionCounts::default());
        GroundTruth { directions: used.collect(), foreign: self.foreign }
    }

    pub(crate) fn counts(&mut self, from: NodeId, to: NodeId) -> &mut DirectionCounts {
        &mut self.direction(from, to).counts
    }

    /// A packet was taken from its sender; `copies` of it will arrive.
    pub(crate) fn note_sent(&mut self, from: NodeId, context: TxContext, copies: u8, now: i64) {
        let timeout_ns = self.exchange_timeout_ns;
        let direction = self.direction(from, context.peer);
        direction.counts.sent += 1;
        direction.counts.dropped += u64::from(copies == 0);
        if context.kind == Kind::Pt1 {
            // Answers to what is older are late whatever comes: no need to remember.
            while direction.starts.front().is_some_and(|(_, start)| now - start >= timeout_ns) {
                direction.starts.pop_front();
            }
            direction.starts.push_back((context.seq, now));
        }
    }

    /// A copy of a packet arrives; `copies` were made of it.
    pub(crate) fn note_arrival(&mut self, from: NodeId, context: TxContext, copies: u8, now: i64) {
        let duplicate = copies > 1 && !self.arrived.insert((from, context));
        let late = !duplicate && self.is_late(from, context, now);
        let counts = self.counts(from, context.peer);
        counts.delivered += 1;
        counts.duplicates += u64::from(duplicate);
        counts.late += u64::from(late);
    }

    fn is_late(&mut self, from: NodeId, context: TxContext, now: i64) -> bool {
        let TxContext { peer: to, kind, seq } = context;
        let timeout_ns = self.exchange_timeout_ns;
        if !kind.is_forward() {
            let starts = &self.direction(to, from).starts;
            let start = starts.iter().rev().find(|(started, _)| *started == seq);
            return start.is_none_or(|(_, start)| now - start >= timeout_ns);
        }
        let (newest, first_at) = self.direction(from, to).newest.get_or_insert((seq, now));
        if seq > *newest {
            (*newest, *first_at) = (seq, now);
        }
        seq < *newest || now - *first_at >= timeout_ns
    }

    fn direction(&mut self, from: NodeId, to: NodeId) -> &mut Direction {
        self.directions.entry(from, to, Direction::default)
    }
}
