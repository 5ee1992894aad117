//! What bounds from collectives assume about the clocks.

use super::super::matching::MatchOptions;

/// What may be assumed about the clocks.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct OffsetOptions {
    /// How cautious pairing is.
    pub matching: MatchOptions,
    /// The node whose offset is zero, by its number.
    pub reference: u32,
    /// Largest |rate| of one clock against another, ns per ns.
    pub max_skew: f64,
    /// Largest difference between any two rates that one clock has within a window, ppm; widens the bounds.
    pub max_rate_change_ppm: f64,
}

impl Default for OffsetOptions {
    fn default() -> Self {
        Self {
            matching: MatchOptions::default(),
            reference: 0,
            max_skew: 500e-6,
            max_rate_change_ppm: MAX_RATE_CHANGE_PPM,
        }
    }
}

/// By how much a clock may change its rate within a window unless the caller says otherwise, ppm.
/// Crystals change by a fraction of a ppm in some seconds, and time daemons steer by a few. A daemon
/// that slews out an offset of milliseconds does more; then the caller has to give the figure.
pub const MAX_RATE_CHANGE_PPM: f64 = 10.0;
