//! The queue of packets waiting for the driver to send them.
//!
//! The prober and the responder add packets, and the endpoint takes them out. The queue is bounded:
//! when a driver stops sending, exchanges fail and are counted, but memory does not grow.
//!
//! It does not send, or repeat a packet that could not be sent.

use std::collections::VecDeque;

use probe_sync_time::{NodeId, SessionKey};

use crate::packet::{Kind, PACKET_BYTES, Packet};

/// Names the packet that a transmit stamp, or its absence, belongs to.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxContext {
    /// The node that the packet goes to.
    pub peer: NodeId,
    /// Which of the six packets.
    pub kind: Kind,
    /// The exchange's sequence number.
    pub seq: u32,
    /// Which repetition of a third packet it is; 0 for the others.
    pub repetition: u8,
}

/// A packet to send now.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The node that it goes to.
    pub to: NodeId,
    /// The datagram.
    pub bytes: [u8; PACKET_BYTES],
    /// To be handed back with the transmit stamp. Third packets need none: see
    /// [`Kind::needs_tx_stamp`].
    pub context: TxContext,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    key: Option<SessionKey>,
    queue: VecDeque<Transmit>,
}

impl Outbox {
    /// An empty queue; packets leave it with the tag that `key` gives.
    pub(crate) fn new(key: Option<SessionKey>) -> Self {
        Self { key, queue: VecDeque::new() }
    }

    /// Queues a packet; false when the queue is full.
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

/// A driver sends after every call; more than a few waiting packets mean that it does not.
const MAX_QUEUED: usize = 1024;
