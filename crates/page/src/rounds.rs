//! Rounds as the page needs them, whatever their source.
//!
//! A recording (`run`) and a simulation (`simulation`) are [`Source`]s. `series` reads each twice,
//! because a trend must be known before the deviations from it can be thinned, and a run of days
//! does not fit into memory. It does not keep rounds in memory.

use probe_sync_time::NodeId;

use crate::Error;

/// One solved round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PageRound {
    /// Number of the round.
    pub number: u64,
    /// Time of its offsets on the reference clock, ns.
    pub at_ns: i64,
    /// By node.
    pub nodes: Vec<Estimate>,
}

/// One node in one round. Unknown values are NaN; missing bounds are infinite.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The node.
    pub node: NodeId,
    /// Packets connect it to the reference.
    pub reachable: bool,
    /// Its clock or the reference's was stepped or slewed.
    pub disturbed: bool,
    /// This clock minus the reference, ns.
    pub offset_ns: f64,
    /// Rate, ppm.
    pub rate_ppm: f64,
    /// Half-width of the 95 % interval, ns.
    pub half_width_ns: f64,
    /// Hard interval, ns.
    pub hard_ns: [f64; 2],
    /// True offset, ns.
    pub truth_ns: f64,
}

/// What was read, and what was not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Lines that are not records.
    pub unreadable_lines: u64,
    /// Rounds not later than the one before, which were left out.
    pub unordered_rounds: u64,
    /// The last line of a file is incomplete: its writer was killed, or is still writing.
    pub ends_mid_line: bool,
}

/// A source of rounds, in order of time, the same every time.
pub(crate) trait Source {
    /// Passes on every round.
    fn each(&self, take: &mut dyn FnMut(&PageRound)) -> Result<Reading, Error>;
}
