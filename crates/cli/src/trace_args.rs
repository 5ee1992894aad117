//! Flags that say which traces are meant and what is known of their clocks, the same for every command that reads traces.
//!
//! Place in the flow: under `args`; `traces` makes a request of them. What it does not do: read a trace.

use std::path::PathBuf;

use clap::Args;

/// Which traces, and what is known of their clocks.
#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Traces, one per node or process: XSpace (*.xplane.pb), PyTorch Kineto JSON (plain or gzip), databases of rocprofv3 (*_results.db)
    #[arg(long, visible_alias = "trace", num_args = 1.., value_name = "FILE")]
    pub traces: Vec<PathBuf>,
    /// The nodes that wrote them, in the same order [default: those for which the run recorded the traces' hosts or ranks]
    #[arg(long, visible_alias = "node", num_args = 1.., value_name = "N")]
    pub nodes: Vec<u32>,
    /// The traces are one per node, listed in the order of the nodes. Without it the order of a list decides nothing
    #[arg(long, requires = "traces", conflicts_with = "nodes")]
    pub assume_order: bool,
    /// The directory of a run of probe_sync: offsets and snapshots of all nodes
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Offsets: offsets.jsonl of a run, or a CSV of node, node time, offset
    #[arg(long, value_name = "FILE", conflicts_with = "run_dir")]
    pub offsets: Option<PathBuf>,
    /// How far outside of the measured span events may lie (2s, 500ms); clocks are extrapolated there [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = probe_sync::config::duration)]
    pub extrapolate: Option<probe_sync_time::Duration>,
    /// Pairs of tracer clock and system clock, in the order of the traces (*.snapshot_pairs.pb or .jsonl)
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub snapshots: Vec<PathBuf>,
    /// Events whose name tells the system time: a pattern with a group named system_ns
    #[arg(long, value_name = "REGEX")]
    pub snapshot_markers: Option<String>,
    /// Take the traces' times as the system clock, whatever markers and snapshots say
    #[arg(long, conflicts_with_all = ["snapshots", "snapshot_markers"])]
    pub realtime_only: bool,
    /// Times of the output: host (the reference node's system clock) or tracer (its tracer clock)
    #[arg(long, value_name = "TIMELINE", default_value = "host", value_parser = ["host", "tracer"])]
    pub timeline: String,
    /// Bound and estimate the clocks from the collectives in the traces alone
    #[arg(long, conflicts_with_all = ["run_dir", "offsets"])]
    pub from_collectives: bool,
}
