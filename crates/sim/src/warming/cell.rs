//! The constants of a run: its cell, its reference node and its start time.

use probe_sync_time::{NodeId, StampSource, System, Timestamp};

/// A kind of timestamps and a load.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct WarmingCell {
    /// Hardware, or kernel.
    pub stamps: StampSource,
    /// Mean share of the time in which a packet finds a queue.
    pub load: f64,
}

impl WarmingCell {
    /// All cells, in the order of tables.
    pub const ALL: [Self; 3] = [
        Self { stamps: StampSource::Hardware, load: 0.2 },
        Self { stamps: StampSource::Hardware, load: 0.8 },
        Self { stamps: StampSource::Kernel, load: 0.8 },
    ];

    /// Cells use different random numbers, so that the luck of a seed does not affect every cell.
    pub(super) fn seed(&self, seed: u64) -> u64 {
        let place = Self::ALL.iter().position(|cell| cell == self).unwrap_or(Self::ALL.len());
        seed.wrapping_mul(SEEDS_APART).wrapping_add(place as u64)
    }

    /// Name, for example `hw 0.8`.
    pub fn name(&self) -> String {
        let stamps = if self.stamps == StampSource::Hardware { "hw" } else { "sw" };
        format!("{stamps} {}", self.load)
    }
}

/// Distance between the seeds of the cells.
const SEEDS_APART: u64 = 16;

/// The node whose offset is zero.
pub(super) const REFERENCE: NodeId = NodeId(0);

/// Reading of the clocks at the start, without their own offsets.
pub(super) const START: Timestamp<System> = Timestamp::from_ns(1_700_000_000_000_000_000);
