//! Where ranks run, and what was taken of what they reported.

/// Where a rank runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its host.
    pub host: u32,
    /// Its clock; ranks of one clock are compared without clock errors.
    pub clock: u32,
}

/// What was taken and what was not.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrivals.
    pub arrivals: u64,
    /// Operations that were complete.
    pub operations: u64,
    /// Operations that lacked members; they name nobody.
    pub incomplete: u64,
    /// Complete operations of ranks whose clocks were not known.
    pub without_clock: u64,
    /// Arrivals at a step at which the rank had arrived before.
    pub repeated: u64,
    /// Arrivals that ranks dropped, because they had more than they may send.
    pub dropped: u64,
    /// Arrivals of groups beyond those that are kept.
    pub beyond: u64,
    /// Words that could not be read.
    pub unreadable: u64,
}
