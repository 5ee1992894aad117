//! Packets on their way, kept aside so that the event heap moves small events only.

use probe_sync_probe::{PACKET_BYTES, TxContext};
use probe_sync_time::NodeId;

/// A packet on its way.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    /// What it was sent as; `None` for a stranger's datagram.
    pub(crate) context: Option<TxContext>,
    /// How many copies were made of it.
    pub(crate) copies: u8,
    pub(crate) bytes: [u8; PACKET_BYTES],
    pub(crate) length: usize,
}

/// Packets on their way, by number; numbers are used again.
#[derive(Debug, Default)]
pub(crate) struct Parcels {
    places: Vec<Parcel>,
    free: Vec<u32>,
}

impl Parcels {
    /// Keeps a packet; its number.
    pub(crate) fn put(&mut self, parcel: Parcel) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.places[number as usize] = parcel;
                number
            }
            None => {
                self.places.push(parcel);
                (self.places.len() - 1) as u32
            }
        }
    }

    /// Takes a packet out.
    pub(crate) fn take(&mut self, number: u32) -> Parcel {
        self.free.push(number);
        self.places[number as usize]
    }
}
