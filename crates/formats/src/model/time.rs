//! Times of traces, in picoseconds, and their relation between two clocks.

/// A time in picoseconds since the epoch of its timeline.
pub type Picoseconds = i128;

/// Picoseconds in a nanosecond.
pub const PS_PER_NS: Picoseconds = 1000;

/// The nearest nanosecond, which keeps the order of times; `None` beyond 64 bits.
pub fn nearest_ns(time: Picoseconds) -> Option<i64> {
    i64::try_from((time + PS_PER_NS / 2).div_euclid(PS_PER_NS)).ok()
}

/// Times below this, ps, are no Unix time of a trace (they are before March 1973), but may count
/// from a machine's start, which is less than three years ago; times from it on are Unix time.
pub const UNIX_TIME_MIN_PS: Picoseconds = 100_000_000_000_000_000_000;

/// A mapped time and its uncertainty.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct MappedTime {
    /// On the common clock, ps.
    pub at: Picoseconds,
    /// Its standard deviation, ns.
    pub sigma_ns: f64,
    /// The share of it that is the trace's own, ns: how well its timeline is tied to its node's
    /// clock. What is left is the node's, and the same for all traces of the node.
    pub own_sigma_ns: f64,
    /// It may be early by as much beside, ns.
    pub early_by_ns: f64,
}
