//! What bounds from collectives assume about the clocks.

use super::super::matching::{MatchOptions, Operation};

/// Assumptions about the clocks.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct OffsetOptions {
    /// How cautiously to pair.
    pub matching: MatchOptions,
    /// Number of the node whose offset is zero.
    pub reference: u32,
    /// Largest |rate| of one clock relative to another, ns per ns.
    pub max_skew: f64,
    /// Largest rate change of one clock within a window, ppm; widens the bounds.
    pub max_rate_change_ppm: f64,
    /// Half of the operations to learn from; `None`: all.
    pub half: Option<Half>,
}

/// Half of the operations, so that the other half can be judged by the result.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    One,
    Other,
}

impl Half {
    /// Whether an operation is in it: a hash of a time in its trace decides, which is the same
    /// however operations are paired, and follows no period of the job.
    pub(crate) fn holds(self, operation: &Operation<'_>) -> bool {
        let at = operation.parts.first().map_or(0, |part| part.start_ps) as u64;
        let is_other = at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 1;
        is_other == (self == Self::Other)
    }
}

impl Default for OffsetOptions {
    fn default() -> Self {
        Self {
            matching: MatchOptions::default(),
            reference: 0,
            max_skew: 500e-6,
            max_rate_change_ppm: MAX_RATE_CHANGE_PPM,
            half: None,
        }
    }
}

/// Default for the largest rate change of a clock within a window, ppm. Crystals change by a
/// fraction of a ppm within seconds, and time daemons steer by a few ppm. A daemon that slews out
/// an offset of milliseconds changes the rate by more; the caller must then give the figure.
pub const MAX_RATE_CHANGE_PPM: f64 = 10.0;
