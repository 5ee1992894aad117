//! The network's own books: what happened to each packet, written down without asking the endpoints.
//!
//! What is late follows from the protocol's rules alone: an answer that comes when the exchange timeout has passed since
//! the exchange's first packet left; a request packet after one of a newer exchange came, or a timeout after the first
//! packet of its own exchange came. Tests hold the endpoints' counters against these.

use std::collections::{BTreeMap, HashMap, HashSet};

use probe_sync_probe::{ForeignCounters, Kind, TxContext};
use probe_sync_time::NodeId;

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

/// The network's books of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By sender and receiver.
    pub directions: BTreeMap<(NodeId, NodeId), DirectionCounts>,
    /// Datagrams made up for each node, by what is wrong with them.
    pub foreign: Vec<ForeignCounters>,
}

/// Ledger under construction, with what it must remember to judge lateness.
#[derive(Debug)]
pub(crate) struct Bookkeeper {
    pub(crate) ledger: Ledger,
    exchange_timeout_ns: i64,
    /// When the exchange's first packet left, by prober, responder and sequence number.
    starts: HashMap<(NodeId, NodeId, u32), i64>,
    /// The newest exchange that reached the responder and when, by prober and responder.
    newest: HashMap<(NodeId, NodeId), (u32, i64)>,
    /// Packets sent twice whose first copy has arrived.
    arrived: HashSet<(NodeId, TxContext)>,
}

impl Bookkeeper {
    pub(crate) fn new(nodes: u32, exchange_timeout_ns: i64) -> Self {
        let foreign = vec![ForeignCounters::default(); nodes as usize];
        Self {
            ledger: Ledger { directions: BTreeMap::new(), foreign },
            exchange_timeout_ns,
            starts: HashMap::new(),
            newest: HashMap::new(),
            arrived: HashSet::new(),
        }
    }

    pub(crate) fn direction(&mut self, from: NodeId, to: NodeId) -> &mut DirectionCounts {
        self.ledger.directions.entry((from, to)).or_default()
    }

    /// A packet was taken from its sender.
    pub(crate) fn note_sent(&mut self, from: NodeId, context: TxContext, now: i64) {
        self.direction(from, context.peer).sent += 1;
        if context.kind == Kind::Pt1 {
            self.starts.insert((from, context.peer, context.seq), now);
        }
    }

    /// A copy of a packet arrives; `copies` were made of it.
    pub(crate) fn note_arrival(&mut self, from: NodeId, context: TxContext, copies: u8, now: i64) {
        let duplicate = copies > 1 && !self.arrived.insert((from, context));
        let late = !duplicate && self.is_late(from, context, now);
        let counts = self.direction(from, context.peer);
        counts.delivered += 1;
        counts.duplicates += u64::from(duplicate);
        counts.late += u64::from(late);
    }

    fn is_late(&mut self, from: NodeId, context: TxContext, now: i64) -> bool {
        let TxContext { peer: to, kind, seq } = context;
        if !kind.is_forward() {
            let start = self.starts.get(&(to, from, seq)).copied();
            return start.is_none_or(|start| now - start >= self.exchange_timeout_ns);
        }
        let (newest, first_at) = self.newest.entry((from, to)).or_insert((seq, now));
        if seq > *newest {
            (*newest, *first_at) = (seq, now);
        }
        seq < *newest || now - *first_at >= self.exchange_timeout_ns
    }
}
