//! A device's clock compared with the recorder's: pairs of readings, and the map through them.
//!
//! Backends take pairs, the session writes them into the recording, and `read` maps events with
//! them. Between two pairs the map is the straight line through both; before the first and after
//! the last it extends the nearest segment; with a single pair the device's stated rate applies.
//!
//! It does not smooth. A pair is wrong by at most half of its bracket, and so is the map at that
//! point.

use crate::clock::Ticks;

/// Clock of a device's events.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DeviceClock {
    /// The recorder's own ticks, as returned by [`HostClock::now`].
    Recorder,
    /// The device's own clock, with this approximate rate; pairs determine the rest.
    Own {
        /// Stated counts per second.
        hz: u64,
    },
}

/// Simultaneous readings of a device's clock and the recorder's.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct DevicePair {
    /// Count of the device.
    pub device: u64,
    /// Ticks of the recorder.
    pub ticks: u64,
    /// Distance between the recorder's readings before and after the device's, ticks.
    pub bracket_ticks: u64,
}

/// The recorder's clock, for backends.
#[derive(Copy, Clone, Debug)]
pub struct HostClock(pub(crate) Ticks);

impl HostClock {
    /// Returns the recorder's current ticks.
    pub fn now(self) -> u64 {
        self.0.now()
    }

    /// Reads a device's clock several times between two readings of this one; returns the narrowest
    /// pair.
    pub fn bracket(self, mut device: impl FnMut() -> u64) -> DevicePair {
        let mut best = DevicePair { bracket_ticks: u64::MAX, ..DevicePair::default() };
        for _ in 0..ATTEMPTS {
            let before = self.now();
            let device = device();
            let bracket_ticks = self.now().saturating_sub(before);
            if bracket_ticks < best.bracket_ticks {
                best = DevicePair { device, ticks: before + bracket_ticks / 2, bracket_ticks };
            }
        }
        best
    }
}

/// Map from a device's counts to the recorder's ticks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DeviceMap {
    pairs: Vec<DevicePair>,
    /// Ticks per count, if there is a single pair.
    rate: f64,
}

impl DeviceMap {
    /// Creates the map through pairs in any order. Pairs that go back on either clock are dropped.
    pub fn of(mut pairs: Vec<DevicePair>, rate: f64) -> Self {
        pairs.sort_by_key(|pair| pair.device);
        let mut kept: Vec<DevicePair> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            if kept.last().is_none_or(|last| pair.device > last.device && pair.ticks > last.ticks) {
                kept.push(pair);
            }
        }
        Self { pairs: kept, rate }
    }

    /// Adds a pair that is later than all others; returns false, dropping it, if it is not.
    pub fn add(&mut self, pair: DevicePair) -> bool {
        let later = self.pairs.last().is_none_or(|last| pair.device > last.device && pair.ticks > last.ticks);
        if later {
            self.pairs.push(pair);
        }
        later
    }

    /// Returns the pairs, in order.
    pub fn pairs(&self) -> &[DevicePair] {
        &self.pairs
    }

    /// Returns the recorder's ticks at a count, or the count itself if there are no pairs.
    pub fn ticks(&self, device: u64) -> u64 {
        let after = self.pairs.partition_point(|pair| pair.device <= device);
        let Some(last) = self.pairs.len().checked_sub(1) else { return device };
        let at = after.saturating_sub(1);
        let (from, to) = if last == 0 { (0, 0) } else { (at.min(last - 1), at.min(last - 1) + 1) };
        let (a, b) = (self.pairs[from], self.pairs[to]);
        let rate = if from == to { self.rate } else { (b.ticks - a.ticks) as f64 / (b.device - a.device) as f64 };
        // From the nearer end: differences are small numbers, which a double holds exactly.
        let anchor = self.pairs[at];
        let offset = (device.wrapping_sub(anchor.device) as i64 as f64 * rate).round() as i64;
        anchor.ticks.saturating_add_signed(offset)
    }
}

/// Number of readings; the narrowest is used.
const ATTEMPTS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(u64, u64)], rate: f64, expected: &[(u64, u64)]) {
        let pairs = pairs.iter().map(|&(device, ticks)| DevicePair { device, ticks, bracket_ticks: 1 });
        let map = DeviceMap::of(pairs.collect(), rate);
        for (device, ticks) in expected {
            assert_eq!(map.ticks(*device), *ticks, "{device} by {map:?}");
        }
    }

    #[test]
    fn the_map_goes_through_its_pairs_and_on() {
        check(&[], 2.0, &[(7, 7)]);
        check(&[(100, 1000)], 2.0, &[(100, 1000), (110, 1020), (90, 980)]);
        let bent = [(100, 1000), (200, 1100), (300, 1300)];
        check(&bent, 9.0, &[(100, 1000), (150, 1050), (200, 1100), (250, 1200), (300, 1300), (310, 1320), (90, 990)]);
        // Out of order, twice, and back in time.
        check(&[(300, 1300), (100, 1000), (200, 900), (100, 1000)], 9.0, &[(200, 1150)]);
        check(&[(10, 5)], 1.0, &[(0, 0)]);
    }
}
