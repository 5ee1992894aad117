//! A node's state as measured in one round.
//!
//! `clocks` makes it from the solved round. It is compared with its prediction (`comparison`) and
//! with earlier rounds (`jump`).

/// Measurement of a node in a round.
#[derive(Copy, Clone, Debug)]
pub(super) struct Measured {
    pub(super) state: [f64; 2],
    pub(super) variance: [f64; 2],
    /// Largest possible distance of the offset from this, by the hard interval, ns.
    pub(super) hard_ns: f64,
}
