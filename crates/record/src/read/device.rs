//! The devices of a recording: their clocks, their queues, and the map from a device's times to the
//! recorder's clock.
//!
//! A queue is a [`Thread`](super::Thread) with a [`Track`]; like all others, its events are in the
//! recorder's ticks.

use crate::backend::{DeviceMap, DevicePair};
use crate::clock::ClockPair;

/// A device's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Device {
    /// Its number in the recording.
    pub clock: u32,
    /// The backend that it came from.
    pub backend: String,
    /// Counts a second, as the backend states it; 0: its times are the recorder's ticks.
    pub hz: u64,
    /// Its clock and the recorder's at several moments, in order.
    pub pairs: Vec<DevicePair>,
    map: DeviceMap,
}

/// The queue of a device that a thread of the recording stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Number of the device's clock, as [`Device::clock`].
    pub clock: u32,
    /// Name of the device.
    pub device: String,
    /// Name of the queue.
    pub queue: String,
    /// Events of a queue that overlap are on several threads: which of them.
    pub row: u32,
    /// Whether times are the recorder's ticks. They are the device's own where no pair of its clock
    /// was left.
    pub placed: bool,
}

impl Device {
    pub(super) fn of_clock(clock: u32) -> Self {
        Self { clock, ..Self::default() }
    }

    /// The recorder's ticks at a time of the device; the same where there is no pair.
    pub fn ticks(&self, device: u64) -> u64 {
        if self.hz == 0 { device } else { self.map.ticks(device) }
    }

    /// Whether times can be mapped.
    pub(super) fn is_placed(&self) -> bool {
        self.hz == 0 || !self.pairs.is_empty()
    }

    /// All pairs are there.
    pub(super) fn finish(&mut self, ticks_per_second: f64) {
        let map = DeviceMap::of(std::mem::take(&mut self.pairs), ticks_per_second / self.hz.max(1) as f64);
        self.pairs = map.pairs().to_vec();
        self.map = map;
    }
}

/// How fast the recorder's clock is, by its pairs with the system's.
pub(super) fn ticks_per_second(pairs: &[ClockPair], counter: bool) -> f64 {
    let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else { return NS_PER_SECOND };
    let span_ns = last.system_ns.saturating_sub(first.system_ns);
    if !counter || span_ns <= 0 {
        return NS_PER_SECOND;
    }
    last.ticks.saturating_sub(first.ticks) as f64 / span_ns as f64 * NS_PER_SECOND
}

const NS_PER_SECOND: f64 = 1e9;
