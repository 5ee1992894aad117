//! The constants of a run: its cell, its reference node and its start time.

use probe_sync_time::{NodeId, StampSource, System, Timestamp};

/// A kind of stamps and a load.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct WarmingCell {
    /// Hardware, or kernel.
    pub stamps: StampSource,
    /// Mean share of the time in which a packet finds a queue.
    pub load: f64,
}

impl WarmingCell {
    /// All, in the order of tables.
    pub const ALL: [Self; 3] = [
        Self { stamps: StampSource::Hardware, load: 0.2 },
        Self { stamps: StampSource::Hardware, load: 0.8 },
        Self { stamps: StampSource::Kernel, load: 0.8 },
    ];

    /// Cells share no numbers, so that a seed's luck shows once and not in every cell.
    pub(super) fn seed(&self, seed: u64) -> u64 {
        let place = Self::ALL.iter().position(|cell| cell == self).unwrap_or(Self::ALL.len());
        seed.wrapping_mul(SEEDS_APART).wrapping_add(place as u64)
    }

    /// As `hw 0.8`.
    pub fn name(&self) -> String {
        let stamps = if self.stamps == StampSource::Hardware { "hw" } else { "sw" };
        format!("{stamps} {}", self.load)
    }
}

/// Between the cells' seeds.
const SEEDS_APART: u64 = 16;

/// The node whose offset is zero.
pub(super) const REFERENCE: NodeId = NodeId(0);

/// What the clocks show at the start, less their own offsets.
pub(super) const START: Timestamp<System> = Timestamp::from_ns(1_700_000_000_000_000_000);
