//! A calibration request: the traces, and the source of their clocks.

use std::path::PathBuf;

use probe_sync_formats::CpuClock;
use probe_sync_time::Duration;

/// What to calibrate, and from which inputs.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The traces, one per node or rank. Empty: those in the directory of the run and in its
    /// `traces` folder.
    pub traces: Vec<PathBuf>,
    /// The nodes that wrote them, in the same order. Empty: determined from what the run recorded
    /// about the hosts and ranks of the traces.
    pub nodes: Vec<u32>,
    /// The traces are one per node, in the order of the node numbers. Hosts and ranks that they
    /// state must agree.
    pub assume_order: bool,
    /// Source of the clocks.
    pub clocks: ClockSource,
    /// Rate change within a window up to which the bounds of [`ClockSource::Collectives`] hold,
    /// ppm. `None`: [`MAX_RATE_CHANGE_PPM`](crate::MAX_RATE_CHANGE_PPM).
    pub max_rate_change_ppm: Option<f64>,
    /// How far events may lie outside the measured span.
    pub extrapolate: Duration,
    /// Files of snapshot pairs, in the order of the traces. Empty: those of the run.
    pub snapshots: Vec<PathBuf>,
    /// Additional clock markers: pattern of event names, with the system time, ns, in the group
    /// named `system_ns`.
    pub markers: Option<regex::Regex>,
    /// Treat the times of the traces as the system clock, regardless of markers and snapshots.
    pub realtime_only: bool,
    /// The clock of the resulting times.
    pub timeline: OutputClock,
    /// Skip unreadable traces with a note, instead of refusing all.
    pub skip_bad: bool,
    /// Clock of the rows that `rocprof-sys` stamped itself, in databases. `None`: the clock of all
    /// other rows. Other formats are refused.
    pub cpu_clock: Option<CpuClock>,
    /// The files that will be written; they are not taken for traces of the run directory.
    pub outputs: Vec<PathBuf>,
    /// The traces are going to be merged: what [`merge`](crate::merge()) must know about each of
    /// them is read with the rest, so that it need not read them once more for it.
    pub merging: bool,
}

/// Source of the clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClockSource {
    /// The directory of a `probe_sync` run: offsets and snapshots of all nodes.
    Run(PathBuf),
    /// A file of offsets: `offsets.jsonl` of a run, or a CSV file of node, node time and offset.
    Offsets(PathBuf),
    /// Only the collectives in the traces.
    Collectives,
    /// None: traces as they are.
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
