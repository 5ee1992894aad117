//! The results of `solve` in addition to the offsets that it writes.

use probe_sync_estimate::faults::Fault;

/// What was recomputed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solved {
    /// Exchanges used; of windows, those that their fits had used; of packets, the packets.
    pub exchanges: usize,
    /// Nodes seen.
    pub nodes: usize,
    /// Rounds solved.
    pub rounds: usize,
    /// Lines written, the first apart, which says only what the file is.
    pub lines: usize,
    /// Lines left out.
    pub skipped_lines: usize,
    /// Exchanges that no fit used: their stamps came from another source than their window's best.
    /// Of windows it is not known.
    pub left_out_exchanges: u64,
    /// Rounds left out for want of the reference node.
    pub skipped_rounds: usize,
    /// Rounds after the reference was there for the last time, in which another node carried its
    /// timeline on; not among `rounds`, but among the lines.
    pub carried_rounds: usize,
    /// What was left out and why, by file and line; at most [`MAX_NOTES`].
    pub notes: Vec<String>,
    /// Standard deviation of a median path's asymmetry, ns.
    pub asymmetry_sd_ns: f64,
    /// Median half-width of the 95 % intervals, ns; None when nobody but the reference was reached.
    pub half_width_95_ns: Option<f64>,
    /// Times at which a clock was stepped or restarted.
    pub breaks: usize,
    /// Faults of clocks and paths, in the order in which they showed.
    pub faults: Vec<Fault>,
}

/// Notes kept; everything is counted.
pub const MAX_NOTES: usize = 20;
