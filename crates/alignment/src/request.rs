//! A calibration request: the traces, and the source of their clocks.

use std::path::PathBuf;

use probe_sync_formats::CpuClock;
use probe_sync_time::Duration;

/// What to calibrate, and with what.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The traces, one per node or rank; empty: those in the run's directory and in its `traces`
    /// folder.
    pub traces: Vec<PathBuf>,
    /// The nodes that wrote them, in the same order; empty: what the run recorded of the traces'
    /// hosts and ranks.
    pub nodes: Vec<u32>,
    /// The traces are one per node, in the order of the nodes' numbers; whatever their hosts and
    /// ranks say must agree.
    pub assume_order: bool,
    /// Where the clocks are learnt from.
    pub clocks: ClockSource,
    /// The bounds of [`ClockSource::Collectives`] hold if no clock changes its rate by more than
    /// this within a window, ppm; None: by [`MAX_RATE_CHANGE_PPM`](crate::MAX_RATE_CHANGE_PPM).
    pub max_rate_change_ppm: Option<f64>,
    /// How far outside of the measured span events may lie.
    pub extrapolate: Duration,
    /// Files of snapshot pairs in the order of the traces; empty: those of the run.
    pub snapshots: Vec<PathBuf>,
    /// Further clock markers: names of events, with the system time, ns, in the group named
    /// `system_ns`.
    pub markers: Option<regex::Regex>,
    /// Take the traces' times as the system clock, whatever markers and snapshots say.
    pub realtime_only: bool,
    /// The clock on which times are afterwards.
    pub timeline: OutputClock,
    /// Leave out traces that cannot be read, and say so, instead of refusing all.
    pub skip_bad: bool,
    /// On which clock databases have the rows that `rocprof-sys` stamped itself; None: on that of
    /// all others. Other formats are refused.
    pub cpu_clock: Option<CpuClock>,
    /// What is going to be written: not taken for traces of the run's directory.
    pub outputs: Vec<PathBuf>,
}

/// Where the clocks are learnt from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClockSource {
    /// The directory of a run of `probe_sync`: offsets and snapshots of all nodes.
    Run(PathBuf),
    /// A file of offsets: `offsets.jsonl` of a run, or a CSV of node, node time, offset.
    Offsets(PathBuf),
    /// The collectives in the traces alone.
    Collectives,
    /// Nowhere: traces as they are.
    #[default]
    Nothing,
}

/// A clock of the reference node.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum OutputClock {
    /// Its system clock.
    #[default]
    System,
    /// Its tracer clock.
    Tracer,
}
