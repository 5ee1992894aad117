//! Packets in flight and pending stamp reports, stored separately so that the event heap moves only
//! small events.

use probe_sync_probe::{PACKET_BYTES, TxContext};
use probe_sync_time::{NodeId, Stamp};

/// A packet in flight.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// The context it was sent with; `None` for a foreign datagram.
    pub(crate) context: Option<TxContext>,
    /// Number of copies made of it.
    pub(crate) copies: u8,
    pub(crate) bytes: [u8; PACKET_BYTES],
    pub(crate) length: usize,
    /// When it arrived, ns since the start, if its receiver was paused then.
    pub(crate) came_at: Option<i64>,
}

/// A transmit timestamp that will be reported to the node it was taken at, or will never be.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Report {
    pub(crate) from: NodeId,
    pub(crate) context: TxContext,
    pub(crate) stamp: Option<Stamp>,
}

/// Packets in flight, or timestamps to be reported, by number; numbers are reused.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    places: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T: Copy> Numbered<T> {
    /// Stores an item and returns its number.
    pub(crate) fn put(&mut self, kept: T) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = kept;
                number
            }
            None => {
                self.places.push(kept);
                (self.places.len() - 1) as u32
            }
        }
    }

    /// Returns the item with a number.
    pub(crate) fn at(&self, number: u32) -> &T {
        &self.places[number as usize]
    }

    /// Removes and returns it.
    pub(crate) fn take(&mut self, number: u32) -> T {
        self.free.push(number);
        self.places[number as usize]
    }
}

impl Numbered<Packet> {
    /// Notes when a packet arrived that cannot be handled yet.
    pub(crate) fn hold(&mut self, number: u32, now: i64) {
        self.places[number as usize].came_at.get_or_insert(now);
    }
}
