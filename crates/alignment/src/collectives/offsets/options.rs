//! What bounds from collectives assume about the clocks.

use super::super::matching::{MatchOptions, Operation};

/// What may be assumed about the clocks.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct OffsetOptions {
    /// How cautious pairing is.
    pub matching: MatchOptions,
    /// The node whose offset is zero, by its number.
    pub reference: u32,
    /// Largest |rate| of one clock against another, ns per ns.
    pub max_skew: f64,
    /// Largest difference between any two rates that one clock has within a window, ppm; widens the
    /// bounds.
    pub max_rate_change_ppm: f64,
    /// Only these operations are learnt from; None: all.
    pub half: Option<Half>,
}

/// Half of the operations, so that those of the other half can be judged by what was learnt.
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

/// By how much a clock may change its rate within a window unless the caller says otherwise, ppm.
/// Crystals change by a fraction of a ppm in some seconds, and time daemons steer by a few. A
/// daemon that slews out an offset of milliseconds does more; then the caller has to give the
/// figure.
pub const MAX_RATE_CHANGE_PPM: f64 = 10.0;
