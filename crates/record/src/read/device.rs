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
    /// Number of the clock in the recording.
    pub clock: u32,
    /// Backend of the device.
    pub backend: String,
    /// Counts per second, as stated by the backend; 0: its times are the recorder's ticks.
    pub hz: u64,
    /// Simultaneous readings of its clock and the recorder's, in order.
    pub pairs: Vec<DevicePair>,
    map: DeviceMap,
}

/// The device queue that a thread of the recording represents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Number of the device's clock, see [`Device::clock`].
    pub clock: u32,
    /// Name of the device.
    pub device: String,
    /// Name of the queue.
    pub queue: String,
    /// Index among the threads of this queue; overlapping events are on several.
    pub row: u32,
    /// True if times are the recorder's ticks. They are the device's own if no pair of its clock is
    /// left.
    pub placed: bool,
}

impl Device {
    pub(super) fn of_clock(clock: u32) -> Self {
        Self { clock, ..Self::default() }
    }

    /// Returns the recorder's ticks at a time of the device, or the time itself if there are no
    /// pairs.
    pub fn ticks(&self, device: u64) -> u64 {
        if self.hz == 0 { device } else { self.map.ticks(device) }
    }

    /// Returns true if times can be mapped.
    pub(super) fn is_placed(&self) -> bool {
        self.hz == 0 || !self.pairs.is_empty()
    }

    /// Creates the map, after all pairs are known.
    pub(super) fn finish(&mut self, ticks_per_second: f64) {
        let map = DeviceMap::of(std::mem::take(&mut self.pairs), ticks_per_second / self.hz.max(1) as f64);
        self.pairs = map.pairs().to_vec();
        self.map = map;
    }
}

/// Returns the rate of the recorder's clock, by its pairs with the system clock.
pub(super) fn ticks_per_second(pairs: &[ClockPair], counter: bool) -> f64 {
    let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else { return NS_PER_SECOND };
    let span_ns = last.system_ns.saturating_sub(first.system_ns);
    if !counter || span_ns <= 0 {
        return NS_PER_SECOND;
    }
    last.ticks.saturating_sub(first.ticks) as f64 / span_ns as f64 * NS_PER_SECOND
}

const NS_PER_SECOND: f64 = 1e9;
