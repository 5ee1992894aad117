//! The network's own books: what happened to each packet, written down without asking the endpoints.
//!
//! What is late follows from the protocol's rules alone: an answer that comes when the exchange timeout has passed since
//! the exchange's first packet left; a request packet after one of a newer exchange came, or a timeout after the first
//! packet of its own exchange came. Tests hold the endpoints' counters against these.

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
    directions: PairMap<Book>,
    pub(crate) foreign: Vec<ForeignCounters>,
    exchange_timeout_ns: i64,
    /// Packets sent twice whose first copy has arrived.
    arrived: HashSet<(NodeId, TxContext)>,
}

/// One direction's book.
#[derive(Debug, Default)]
struct Book {
    counts: DirectionCounts,
    /// Sequence number and time of each exchange that the sender started within the last exchange timeout.
    starts: VecDeque<(u32, i64)>,
    /// The newest exchange of the sender that reached the receiver, and when.
    newest: Option<(u32, i64)>,
}

impl Bookkeeper {
    pub(crate) fn new(nodes: u32, exchange_timeout_ns: i64) -> Self {
        Self {
            directions: PairMap::new(nodes),
            foreign: vec![ForeignCounters::default(); nodes as usize],
            exchange_timeout_ns,
            arrived: HashSet::new(),
        }
    }

    /// The finished ledger.
    pub(crate) fn close(self) -> Ledger {
        let directions = self.directions.into_iter();
        let used = directions
            .map(|(pair, book)| (pair, book.counts))
            .filter(|(_, counts)| *counts != DirectionCounts::default());
        Ledger { directions: used.collect(), foreign: self.foreign }
    }

    pub(crate) fn direction(&mut self, from: NodeId, to: NodeId) -> &mut DirectionCounts {
        &mut self.book(from, to).counts
    }

    /// A packet was taken from its sender; `copies` of it will arrive.
    pub(crate) fn note_sent(&mut self, from: NodeId, context: TxContext, copies: u8, now: i64) {
        let timeout_ns = self.exchange_timeout_ns;
        let book = self.book(from, context.peer);
        book.counts.sent += 1;
        book.counts.dropped += u64::from(copies == 0);
        if context.kind == Kind::Pt1 {
            // Answers to what is older are late whatever comes: no need to remember.
            while book.starts.front().is_some_and(|(_, start)| now - start >= timeout_ns) {
                book.starts.pop_front();
            }
            book.starts.push_back((context.seq, now));
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
        let timeout_ns = self.exchange_timeout_ns;
        if !kind.is_forward() {
            let starts = &self.book(to, from).starts;
            let start = starts.iter().rev().find(|(started, _)| *started == seq);
            return start.is_none_or(|(_, start)| now - start >= timeout_ns);
        }
        let (newest, first_at) = self.book(from, to).newest.get_or_insert((seq, now));
        if seq > *newest {
            (*newest, *first_at) = (seq, now);
        }
        seq < *newest || now - *first_at >= timeout_ns
    }

    fn book(&mut self, from: NodeId, to: NodeId) -> &mut Book {
        self.directions.entry(from, to, Book::default)
    }
}
