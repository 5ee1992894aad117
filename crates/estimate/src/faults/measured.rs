//! A node's state as measured in one round.
//!
//! `clocks` makes it from the solved round. It is compared with its prediction (`comparison`) and
//! with earlier rounds (`jump`).

/// What a round says of a node.
#[derive(Copy, Clone, Debug)]
pub(super) struct Measured {
    pub(super) state: [f64; 2],
    pub(super) variance: [f64; 2],
    /// How far the offset may be from this at most, by the hard interval, ns.
    pub(super) hard_ns: f64,
}
