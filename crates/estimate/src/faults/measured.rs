//! A node's state as a round measures it.
//!
//! Place in the flow: made by `clocks` of the solved round; compared with what was predicted (`comparison`) and with the rounds before
//! (`jump`).

/// What a round says of a node.
#[derive(Copy, Clone, Debug)]
pub(super) struct Measured {
    pub(super) state: [f64; 2],
    pub(super) variance: [f64; 2],
    /// How far the offset may be from this at most, by the hard interval, ns.
    pub(super) hard_ns: f64,
}
