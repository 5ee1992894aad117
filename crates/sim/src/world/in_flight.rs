//! Packets in flight, kept aside so that the event heap moves small events only.
//!
//! What it does not do: decide whether or when they arrive (`network` does).

use probe_sync_probe::{PACKET_BYTES, TxContext};
use probe_sync_time::NodeId;

/// A packet in flight.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// What it was sent as; `None` for a foreign datagram.
    pub(crate) context: Option<TxContext>,
    /// How many copies were made of it.
    pub(crate) copies: u8,
    pub(crate) bytes: [u8; PACKET_BYTES],
    pub(crate) length: usize,
    /// When it came, ns since the start, where its receiver was paused then.
    pub(crate) came_at: Option<i64>,
}

/// Packets in flight, by number; numbers are used again.
#[derive(Debug, Default)]
pub(crate) struct PacketsInFlight {
    places: Vec<Packet>,
    free: Vec<u32>,
}

impl PacketsInFlight {
    /// Keeps a packet; its number.
    pub(crate) fn put(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = packet;
                number
            }
            None => {
                self.places.push(packet);
                (self.places.len() - 1) as u32
            }
        }
    }

    /// Notes when a packet came that cannot be handled yet.
    pub(crate) fn hold(&mut self, number: u32, now: i64) {
        self.places[number as usize].came_at.get_or_insert(now);
    }

    /// Who a packet is for.
    pub(crate) fn receiver(&self, number: u32) -> NodeId {
        self.places[number as usize].to
    }

    /// Takes a packet out.
    pub(crate) fn take(&mut self, number: u32) -> Packet {
        self.free.push(number);
        self.places[number as usize]
    }
}
