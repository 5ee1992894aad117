//! Flags of the commands that read traces: `align`, `merge`, `convert`, `check` and `stragglers`,
//! and the flags that `query` shares with them.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{ArgAction, ArgGroup, Args};
use probe_sync_alignment::nodes::NodeList;
use probe_sync_alignment::{Bound, MAX_RATE_CHANGE_PPM, StepNames, Window};

use crate::cpu_clock::{CLOCKS, CpuClockArgs};
use crate::filter_args::FilterArgs;
use crate::output::Usage;

/// Which traces, and what is known of their clocks.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("given").multiple(true))]
pub struct TraceArgs {
    /// Traces, one per node or process, or folders of traces: XSpace (*.xplane.pb), PyTorch Kineto
    /// JSON, Chrome JSON of other programs and Perfetto traces (*.pftrace), all plain or gzip, databases
    /// of rocprofv3 (*_results.db), rocmProfileData (*.rpd) and Nsight Systems (exports, *.sqlite);
    /// except for `align` Flight Recorder dumps, in a folder of their own or by name, and logs of the
    /// NCCL Inspector, by name
    #[arg(value_name = "TRACE", group = "given")]
    files: Vec<PathBuf>,
    /// Same as TRACE; positional files are read first
    #[arg(long, visible_alias = "trace", num_args = 1.., value_name = "FILE", group = "given")]
    traces: Vec<PathBuf>,
    /// The node that wrote each trace, in the order of the traces: 0 1 2 3, 0,1,2,3 or 0-3
    /// [default: found from the host or rank in each trace]
    #[arg(long, visible_alias = "node", num_args = 1.., value_name = "N")]
    nodes: Vec<NodeList>,
    /// Assume one trace per node, listed in node order
    #[arg(long, requires = "given", conflicts_with = "nodes")]
    pub assume_order: bool,
    /// The directory of a probe_sync run, with offsets and snapshots of all nodes
    #[arg(help_heading = CLOCKS, long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// A file of offsets: offsets.jsonl of a run, or a CSV of node, node time, offset
    #[arg(help_heading = CLOCKS, long, value_name = "FILE", conflicts_with = "run_dir")]
    pub offsets: Option<PathBuf>,
    /// How far outside the measured time events may lie (2s, 500ms); clocks are extrapolated there
    /// [default: 0s]
    #[arg(help_heading = CLOCKS, long, value_name = "TIME", value_parser = probe_sync::config::duration)]
    pub extrapolate: Option<probe_sync_time::Duration>,
    /// Files with pairs of tracer clock and system clock, in the order of the traces
    /// (*.snapshot_pairs.pb or .jsonl)
    #[arg(help_heading = CLOCKS, long, num_args = 1.., value_name = "FILE")]
    pub snapshots: Vec<PathBuf>,
    /// Regular expression for events whose name contains the system time, in a group named
    /// system_ns
    #[arg(help_heading = CLOCKS, long, value_name = "REGEX")]
    pub snapshot_markers: Option<String>,
    /// Treat the traces' times as system clock times, and ignore markers and snapshots
    #[arg(help_heading = CLOCKS, long, conflicts_with_all = ["snapshots", "snapshot_markers"])]
    pub realtime_only: bool,
    /// Clock of the output: host (the reference node's system clock) or tracer (its tracer clock)
    #[arg(help_heading = CLOCKS, long, value_name = "TIMELINE", default_value = "host", value_parser = ["host", "tracer"])]
    pub timeline: String,
    /// Estimate and bound the clocks using only the collectives in the traces
    #[arg(help_heading = CLOCKS, long, conflicts_with_all = ["run_dir", "offsets"])]
    pub from_collectives: bool,
    /// Assume that no clock changes its rate by more than this within a window (10 s or more), in
    /// ppm; the bounds from collectives hold under this assumption
    #[arg(help_heading = CLOCKS, long, value_name = "PPM", default_value_t = MAX_RATE_CHANGE_PPM, requires = "from_collectives")]
    pub max_rate_change: f64,
    /// Skip traces that cannot be read, and list them; otherwise one bad file is an error
    #[arg(long)]
    pub skip_bad: bool,
    /// Maximum number of worker threads [default: the number of available processors]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    pub cpu_clock: CpuClockArgs,
}

/// Whether times stay as they are, of the commands that put several traces side by side.
#[derive(Args, Debug)]
pub struct AsTheyAreArgs {
    /// Leave all times unchanged, on their original clocks; offsets and snapshots are ignored
    #[arg(help_heading = CLOCKS, long, requires = "given", conflicts_with = "from_collectives")]
    pub no_correction: bool,
}

impl TraceArgs {
    /// Whether some traces are given without a flag, so that the value of a flag before them may be
    /// one of them.
    pub fn are_positional(&self) -> bool {
        !self.files.is_empty()
    }

    /// The nodes in `--nodes`, in order.
    pub fn node_list(&self) -> Vec<u32> {
        NodeList::joined(&self.nodes)
    }

    /// All traces given.
    pub fn named(&self) -> Vec<PathBuf> {
        [&self.files[..], &self.traces].concat()
    }
}

/// Flags of `align`.
#[derive(Args, Debug)]
pub struct AlignArgs {
    #[command(flatten)]
    pub input: TraceArgs,
    /// The file to write, or the directory for several traces
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,
    /// Keep each event's correction (stat or argument timestamp_correction_ns)
    #[arg(long)]
    pub annotate: bool,
    /// Write the run's snapshot pairs into the output (XSpace: plane /host:snapshots), for programs
    /// that read them there. Rejects traces that already have this plane
    #[arg(long)]
    pub embed_snapshots: bool,
    /// Replace invalid JSON values in Kineto traces, such as NaN; otherwise they are copied and
    /// counted
    #[arg(long)]
    pub repair: bool,
    /// Check happens-before on the aligned times, and write nothing if it is violated
    #[arg(long)]
    pub validate: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `merge`.
#[derive(Args, Debug)]
pub struct MergeArgs {
    #[command(flatten)]
    pub input: TraceArgs,
    /// The file to write: combined.xplane.pb, combined.json.gz or combined.db for traces of that
    /// format; combined.pftrace (Perfetto) or combined.json[.gz] (Chrome's JSON) for traces of any
    /// formats; combined.tar for unchanged Perfetto traces together with their clock offsets
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Also merge traces of nodes whose clocks are unknown, unchanged and marked as such
    #[arg(long)]
    pub allow_uncalibrated: bool,
    #[command(flatten)]
    pub as_they_are: AsTheyAreArgs,
    /// Layout of XSpace planes
    #[arg(long, value_name = "LAYOUT", default_value = "xprof", value_parser = ["xprof", "gpu-tracks"])]
    pub plane_layout: String,
    /// Keep each event's correction
    #[arg(long, conflicts_with = "no_correction")]
    pub annotate: bool,
    /// Schema of the databases; 3.0.0 adds the tags that newer rocprofv3 readers expect to schema 3
    #[arg(long, value_name = "VERSION")]
    pub schema: Option<String>,
    /// Drop tables that are not rocprofv3's; otherwise a database with such tables is rejected
    #[arg(long)]
    pub drop_foreign: bool,
    /// Replace invalid JSON values in Kineto traces, such as NaN; otherwise they are copied and
    /// counted
    #[arg(long)]
    pub repair: bool,
    /// Add a track that shows which rank was late to each collective, as `stragglers` does
    #[arg(long)]
    pub mark_late: bool,
    #[command(flatten)]
    pub step_names: StepArgs,
    /// Check happens-before on the merged clock, and write nothing if it is violated
    #[arg(long)]
    pub validate: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which events are wanted, of `convert` and `query`.
#[derive(Args, Debug)]
pub struct WindowArgs {
    /// Drop everything before this time: ns on the clock of the output, or a percentage of the
    /// traces' time span (30%)
    #[arg(long, value_name = "TIME", conflicts_with = "start_marker")]
    start: Option<Bound>,
    /// Drop everything after this time
    #[arg(long, value_name = "TIME", conflicts_with = "end_marker")]
    end: Option<Bound>,
    /// Drop everything before the start of the event with this name
    #[arg(long, value_name = "NAME")]
    start_marker: Option<String>,
    /// Drop everything after the start of the event with this name
    #[arg(long, value_name = "NAME")]
    end_marker: Option<String>,
    /// true: keep only events entirely within the window; false: also keep events that overlap it
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    inclusive: bool,
}

impl WindowArgs {
    /// The window that the flags request.
    pub fn window(&self) -> Window {
        let bound = |time: &Option<Bound>, marker: &Option<String>| match (time, marker) {
            (Some(time), _) => time.clone(),
            (None, Some(name)) => Bound::Marker(name.clone()),
            (None, None) => Bound::Open,
        };
        Window {
            start: bound(&self.start, &self.start_marker),
            end: bound(&self.end, &self.end_marker),
            inclusive: self.inclusive,
        }
    }
}

/// Flags of `convert`: those of `rocpd convert`, and where the clocks are learnt from.
#[derive(Args, Debug)]
#[command(mut_arg("traces", |arg| arg.short('i').visible_alias("input")))]
pub struct ConvertArgs {
    /// Traces to convert; without offsets, times are unchanged, and traces of several hosts cannot
    /// share an output
    #[command(flatten)]
    pub input: TraceArgs,
    #[command(flatten)]
    pub as_they_are: AsTheyAreArgs,
    /// The formats to write; kineto, kineto.gz and xspace write one file per trace,
    /// NAME_TRACE.pt.trace.json and NAME_TRACE.xplane.pb
    #[arg(short = 'f', long, num_args = 1.., required = true, value_name = "FORMAT", value_parser = ["pftrace", "perfetto", "json", "json.gz", "kineto", "kineto.gz", "xspace", "csv", "otf2"])]
    pub output_format: Vec<String>,
    /// Prefix of the outputs' names
    #[arg(
        short = 'o',
        long,
        visible_alias = "output",
        value_name = "NAME",
        env = "ROCPD_OUTPUT_NAME",
        default_value = "out"
    )]
    pub output_file: String,
    /// Directory for the outputs, created if needed
    #[arg(short = 'd', long, value_name = "DIR", env = "ROCPD_OUTPUT_PATH", default_value = "./rocpd-output-data")]
    pub output_path: PathBuf,
    #[command(flatten)]
    pub window: WindowArgs,
    /// Databases: group device events by HSA queue instead of by the HIP stream that the program
    /// submitted to
    #[arg(long)]
    pub group_by_queue: bool,
    /// Databases: number devices as on the node (absolute), among those visible to the process
    /// (relative), or per type
    #[arg(long, value_name = "HOW", default_value = "relative", value_parser = ["absolute", "relative", "type-relative"])]
    pub agent_index_value: String,
    /// Join the parts of each collective operation on all ranks by a flow, from the first rank to
    /// the last
    #[arg(long)]
    pub collective_flows: bool,
    /// Perfetto: leave all times on their hosts' clocks and record how the clocks differ, so that
    /// Perfetto's trace processor maps them
    #[arg(long)]
    pub machines: bool,
    /// Omit the arguments of events
    #[arg(long)]
    pub without_args: bool,
    /// CSV of databases: omit the columns Host and Rank, as rocprofv3 does
    #[arg(long)]
    pub plain_columns: bool,
    /// CSV: omit the apostrophe before text that a spreadsheet would run as a formula (=, +, -, @)
    #[arg(long)]
    pub raw_cells: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `check`.
#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Traces to check; without offsets, they are checked as recorded
    #[command(flatten)]
    pub input: TraceArgs,
    /// Write the whole report as JSON, to standard output or a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
}

/// Flags of `stragglers`.
#[derive(Args, Debug)]
pub struct StragglersArgs {
    /// Traces to analyse; traces of several hosts need offsets
    #[command(flatten)]
    pub input: TraceArgs,
    #[command(flatten)]
    pub steps: StepArgs,
    /// Write the complete result as JSON, to standard output or a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Write every rank's part in every operation as CSV, to standard output or a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub csv: Option<PathBuf>,
}

/// Which events are steps of the program.
#[derive(Args, Debug)]
pub struct StepArgs {
    /// Regular expression for events that are steps of the program; its group named step (or else
    /// its first group) is the step number
    #[arg(long, value_name = "REGEX", default_value = probe_sync_alignment::STEP_PATTERN)]
    pub step_name: String,
}

impl StepArgs {
    /// Converts the flags to settings of the library.
    pub fn settings(&self) -> anyhow::Result<StepNames> {
        let wrong = |reason: String| anyhow::anyhow!("--step-name: {reason}").context(Usage);
        self.step_name.parse().map_err(wrong)
    }
}
