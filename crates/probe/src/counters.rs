//! The counters of an endpoint. Every event of a packet or an exchange is counted.
//!
//! Packets lost from node i to node j, exactly, once both have stopped sending and the network has
//! drained: `lost = sent(i towards j) − first_copies(j from i)`.
//!
//! Every received packet has one fate:
//! `received = accepted + duplicates + late + too_old + out_of_state`. Every exchange too:
//! `started = finished + lost + in flight`.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use probe_sync_time::NodeId;
use serde::{Deserialize, Serialize};

use crate::packet::Reject;

/// Everything an endpoint has counted since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Counts by peer; only peers with any traffic or with an edge from this node.
    pub peers: BTreeMap<NodeId, PeerCounters>,
    /// Datagrams that were not for this node.
    pub foreign: ForeignCounters,
    /// Starts skipped because the process ran too late for them.
    pub skipped_starts: u64,
    /// Starts refused because too many exchanges were in flight.
    pub refused_starts: u64,
    /// Transmit stamps for exchanges that had ended, or given twice.
    pub stray_tx_stamps: u64,
    /// Finished exchanges dropped because they were not collected from the endpoint.
    pub unread_exchanges: u64,
}

impl Counters {
    /// Returns the sum over all peers.
    pub fn total(&self) -> PeerCounters {
        let mut total = PeerCounters::default();
        for peer in self.peers.values() {
            total += *peer;
        }
        total
    }
}

/// Traffic between this node and one peer.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerCounters {
    /// Packets passed to the network for the peer, without those whose sending failed at once.
    pub sent: u64,
    /// Packets that the system refused to send.
    pub send_failed: u64,
    /// Well-formed packets of this run from the peer, duplicates included.
    pub received: u64,
    /// Second and further copies of packets; ignored.
    pub duplicates: u64,
    /// First copies that arrived after their exchange had ended; ignored.
    pub late: u64,
    /// Packets too old to distinguish a first copy from a replay; ignored, and not counted as
    /// arrived.
    pub too_old: u64,
    /// Packets that no exchange of this node can have caused; ignored.
    pub out_of_state: u64,
    /// Coded packets to the peer whose transmit stamp never arrived.
    pub missing_tx_stamps: u64,
    /// Exchanges that this node started with the peer.
    pub exchanges: ExchangeCounters,
    /// Exchanges that the peer started with this node.
    pub answers: AnswerCounters,
}

impl PeerCounters {
    /// Returns the number of packets received without duplicates and possible replays.
    pub const fn first_copies(&self) -> u64 {
        self.received.saturating_sub(self.duplicates).saturating_sub(self.too_old)
    }

    /// Returns the number of packets received that advanced an exchange.
    pub const fn accepted(&self) -> u64 {
        self.first_copies().saturating_sub(self.late).saturating_sub(self.out_of_state)
    }
}

impl AddAssign for PeerCounters {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.send_failed += other.send_failed;
        self.received += other.received;
        self.duplicates += other.duplicates;
        self.late += other.late;
        self.too_old += other.too_old;
        self.out_of_state += other.out_of_state;
        self.missing_tx_stamps += other.missing_tx_stamps;
        self.exchanges += other.exchanges;
        self.answers += other.answers;
    }
}

/// Counts of exchanges, at the prober.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeCounters {
    /// Started: the first packet was queued.
    pub started: u64,
    /// Finished: at least one packet of each direction has both stamps.
    pub finished: u64,
    /// Finished without one packet of a coded pair, or of both.
    pub incomplete: u64,
    /// Ended by the exchange timeout.
    pub timed_out: u64,
    /// Ended because a transmit stamp of this node never arrived.
    pub stamp_missing: u64,
    /// Ended because a packet could not be sent.
    pub send_failed: u64,
}

impl ExchangeCounters {
    /// Returns the number of exchanges that ended without a result, for whatever reason.
    pub const fn lost(&self) -> u64 {
        self.timed_out + self.stamp_missing + self.send_failed
    }

    /// Returns the number of exchanges neither finished nor lost yet.
    pub const fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.finished + self.lost())
    }
}

impl AddAssign for ExchangeCounters {
    fn add_assign(&mut self, other: Self) {
        self.started += other.started;
        self.finished += other.finished;
        self.incomplete += other.incomplete;
        self.timed_out += other.timed_out;
        self.stamp_missing += other.stamp_missing;
        self.send_failed += other.send_failed;
    }
}

/// Counts of exchanges, at the responder.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerCounters {
    /// Started: all three packets arrived and the answer's first packet was queued.
    pub started: u64,
    /// Finished: the answer's third packet was queued.
    pub finished: u64,
    /// Ended because a transmit stamp of this node never arrived.
    pub stamp_missing: u64,
    /// Ended because a packet could not be sent.
    pub send_failed: u64,
    /// Requests and answers in progress dropped because the peer had too many.
    pub superseded: u64,
    /// Requests dropped because their packets never became complete.
    pub incomplete: u64,
}

impl AddAssign for AnswerCounters {
    fn add_assign(&mut self, other: Self) {
        self.started += other.started;
        self.finished += other.finished;
        self.stamp_missing += other.stamp_missing;
        self.send_failed += other.send_failed;
        self.superseded += other.superseded;
        self.incomplete += other.incomplete;
    }
}

/// Datagrams that are not probe packets for this node, by the reason ([`Reject`]).
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignCounters {
    /// Wrong length.
    pub length: u64,
    /// Traffic of another program.
    pub magic: u64,
    /// Packets of another release.
    pub version: u64,
    /// Unknown kind of packet, or a nonzero reserved byte.
    pub kind: u64,
    /// Packets of another run on the same port.
    pub run: u64,
    /// Packets from an address that is not of a node of the run.
    pub address: u64,
    /// Packets with a tag not made with this run's key: forged, or of another session.
    pub tag: u64,
    /// Packets for another node.
    pub destination: u64,
    /// Packets from a node that is not in the run, or from this node itself.
    pub source: u64,
    /// Packets with other stamps than their kind carries.
    pub stamps: u64,
}

impl ForeignCounters {
    /// Counts one datagram.
    pub const fn count(&mut self, reason: Reject) {
        let counter = match reason {
            Reject::Length => &mut self.length,
            Reject::Magic => &mut self.magic,
            Reject::Version => &mut self.version,
            Reject::Kind => &mut self.kind,
            Reject::Run => &mut self.run,
            Reject::Address => &mut self.address,
            Reject::Tag => &mut self.tag,
            Reject::Destination => &mut self.destination,
            Reject::Source => &mut self.source,
            Reject::Stamps => &mut self.stamps,
        };
        *counter += 1;
    }

    /// Returns the sum over all reasons.
    pub const fn total(&self) -> u64 {
        self.length
            + self.magic
            + self.version
            + self.kind
            + self.run
            + self.address
            + self.tag
            + self.destination
            + self.source
            + self.stamps
    }
}

/// Counts of one edge from this node since the previous window was cut.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeWindowCounts {
    /// The edge's destination.
    pub peer: NodeId,
    /// Exchanges started in the window.
    pub started: u32,
    /// Exchanges finished in the window, whenever they started.
    pub finished: u32,
    /// Exchanges given up in the window, whenever they started.
    pub lost: u32,
}

/// Outcome of a well-formed packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Accepted,
    Duplicate,
    Late,
    TooOld,
    OutOfState,
}
