//! Rounds as the page needs them, whatever their source.
//!
//! A recording (`run`) and a simulation (`simulation`) are [`Source`]s. `series` reads each twice,
//! because a trend must be known before the deviations from it can be thinned, and a run of days
//! does not fit into memory. It does not keep rounds in memory.

use probe_sync_time::NodeId;

use crate::Error;

/// One solved round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Round {
    /// Its number.
    pub number: u64,
    /// When its offsets hold, on the reference clock, ns.
    pub at_ns: i64,
    /// By node.
    pub nodes: Vec<Estimate>,
}

/// One node in one round. What is not known is NaN; a bound that nothing sets is infinite.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The node.
    pub node: NodeId,
    /// Its packets reach the reference's.
    pub reachable: bool,
    /// Its clock or the reference's was stepped or slewed.
    pub disturbed: bool,
    /// This clock minus the reference, ns.
    pub offset_ns: f64,
    /// Its rate, ppm.
    pub rate_ppm: f64,
    /// Half-width of the 95 % interval, ns.
    pub half_width_ns: f64,
    /// The hard interval, ns.
    pub hard_ns: [f64; 2],
    /// The true offset, ns.
    pub truth_ns: f64,
}

/// What was read, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Lines that are no records.
    pub unreadable_lines: u64,
    /// Rounds that are not later than the one before, and were left out.
    pub unordered_rounds: u64,
    /// The last line of a file has no end: its writer was killed, or is writing it.
    pub ends_mid_line: bool,
}

/// Where rounds come from, in order of time, the same every time.
pub(crate) trait Source {
    /// Shows every round.
    fn each(&self, take: &mut dyn FnMut(&Round)) -> Result<Reading, Error>;
}
