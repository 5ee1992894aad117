//! Where ranks run, and what was taken of what they reported.

/// Where a rank runs.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Number of the host.
    pub host: u32,
    /// Number of the clock; ranks on one clock are compared without clock errors.
    pub clock: u32,
}

/// Counts of arrivals and operations, processed and dropped.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrivals processed.
    pub arrivals: u64,
    /// Complete operations.
    pub operations: u64,
    /// Operations with missing members; they are not judged.
    pub incomplete: u64,
    /// Complete operations of ranks with unknown clocks.
    pub without_clock: u64,
    /// Arrivals at a step that the rank had already reached.
    pub repeated: u64,
    /// Arrivals that ranks dropped because of the limit on what they may send.
    pub dropped: u64,
    /// Arrivals of groups beyond the limit on groups kept.
    pub beyond: u64,
    /// Messages that could not be parsed.
    pub unreadable: u64,
}
