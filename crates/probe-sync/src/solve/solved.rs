//! The results of `solve` in addition to the offsets that it writes.

use probe_sync_lines::Fault;

/// Results of recomputing the offsets of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solved {
    /// Exchanges used: for recorded windows, those that their fits used; for recorded packets, the
    /// packets.
    pub exchanges: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of rounds solved.
    pub rounds: usize,
    /// Lines written, without the header line.
    pub lines: usize,
    /// Input lines skipped.
    pub skipped_lines: usize,
    /// Exchanges that no fit used because their stamp source differs from the best one in their
    /// window. Unknown for recorded windows.
    pub left_out_exchanges: u64,
    /// Rounds skipped because the reference node is missing.
    pub skipped_rounds: usize,
    /// Rounds after the reference was last present, in which another node carried its timeline on;
    /// counted in `lines`, not in `rounds`.
    pub carried_rounds: usize,
    /// What was skipped and why, by file and line; at most [`MAX_NOTES`].
    pub notes: Vec<String>,
    /// Standard deviation of the asymmetry of a median path, ns.
    pub asymmetry_sd_ns: f64,
    /// Median half-width of the 95 % intervals, ns; `None` if no node but the reference was
    /// reached.
    pub half_width_95_ns: Option<f64>,
    /// Number of times that a clock was stepped or restarted.
    pub breaks: usize,
    /// Faults of clocks and paths, in order of appearance.
    pub faults: Vec<Fault>,
}

/// Most notes kept; the counters include everything.
pub const MAX_NOTES: usize = 20;
