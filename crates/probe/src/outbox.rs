//! The queue of packets waiting for the driver to send them.
//!
//! The prober and the responder add packets, and the endpoint takes them out. The queue is bounded:
//! when a driver stops sending, exchanges fail and are counted, but memory does not grow.
//!
//! It does not send, or repeat a packet that could not be sent.

use std::collections::VecDeque;

use probe_sync_time::{NodeId, SessionKey};

use crate::packet::{Kind, PACKET_BYTES, Packet};

/// Identifies the packet to which a transmit stamp, or its absence, belongs.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxContext {
    /// Destination node of the packet.
    pub peer: NodeId,
    /// Kind of packet.
    pub kind: Kind,
    /// Sequence number of the exchange.
    pub seq: u32,
    /// Repetition of a third packet; 0 for the others.
    pub repetition: u8,
}

/// A packet to send now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination node.
    pub to: NodeId,
    /// The datagram.
    pub bytes: [u8; PACKET_BYTES],
    /// To be returned with the transmit stamp. Third packets need none: see
    /// [`Kind::needs_tx_stamp`].
    pub context: TxContext,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    key: Option<SessionKey>,
    queue: VecDeque<Transmit>,
}

impl Outbox {
    /// Creates an empty queue; packets leave it with a tag made with `key`.
    pub(crate) fn new(key: Option<SessionKey>) -> Self {
        Self { key, queue: VecDeque::new() }
    }

    /// Queues a packet; returns false if the queue is full.
    #[must_use]
    pub(crate) fn push(&mut self, packet: &Packet) -> bool {
        if self.queue.len() >= MAX_QUEUED {
            return false;
        }
        let Packet { kind, seq, repetition, .. } = *packet;
        let context = TxContext { peer: packet.dst, kind, seq, repetition };
        self.queue.push_back(Transmit { to: packet.dst, bytes: packet.encode(self.key.as_ref()), context });
        true
    }

    pub(crate) fn pop(&mut self) -> Option<Transmit> {
        self.queue.pop_front()
    }
}

/// Limit of the queue. A driver sends after every call, so more than a few waiting packets mean
/// that it does not.
const MAX_QUEUED: usize = 1024;
