//! The command line: what can be asked, and how it becomes a configuration.
//!
//! Flags that are configuration keys are kept as text and pass through `Config::set`, so that a
//! flag, a variable and a file mean the same and fail alike.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use probe_sync::config::{Config, KEYS, Key};
use probe_sync_alignment::nodes::NodeList;

use crate::convert_guide::CONVERT_GUIDE;
use crate::guides::{GUIDE, STATUS_GUIDE, TRACE_GUIDE};
#[cfg(feature = "rocpd")]
use crate::query_args::QueryArgs;
use crate::status::help;
use crate::telling::Telling;
use crate::trace_args::{AlignArgs, CheckArgs, ConvertArgs, MergeArgs, StepArgs, StragglersArgs};

/// Measures the clock offsets between the nodes of a cluster while a job runs, and puts its traces
/// on one clock.
#[derive(Parser, Debug)]
#[command(name = "probe_sync", version, long_version = LONG_VERSION.as_str(), after_long_help = guide(GUIDE))]
#[command(help_template = crate::help::template(), mut_args(crate::help::hide_rare))]
#[command(mut_arg("json", |arg| arg.hide(true)), mut_arg("config", |arg| arg.hide(true)))]
pub struct Cli {
    /// The command [default: run]
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Show all columns of tables, even beyond 80 characters
    #[arg(long, global = true)]
    pub wide: bool,
    /// Flags of `run`
    #[command(flatten)]
    pub run: RunArgs,
    /// What is told meanwhile
    #[command(flatten)]
    pub telling: Telling,
}

impl Cli {
    /// Parses the command line of this process. Rejects flags of `run` before another command,
    /// where they would have no effect.
    ///
    /// # Errors
    /// Returns an error if the command line is invalid, or if help or the version is requested.
    pub fn read(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(arguments)?;
        if let Some(name) = matches.subcommand_name() {
            let before = arguments.iter().map(|argument| argument.to_string_lossy()).take_while(|text| text != name);
            let flags = command.get_arguments().filter(|arg| !arg.is_global_set()).filter_map(|arg| arg.get_long());
            let flags: Vec<String> = flags.map(|long| format!("--{long}")).collect();
            let of_run = |text: &str| flags.iter().any(|flag| text.split('=').next() == Some(flag));
            if let Some(flag) = before.into_iter().find(|text| of_run(text)) {
                let flag = flag.split('=').next().unwrap_or_default();
                let text = format!("{flag} has no effect before '{name}': put a command's flags after its name");
                return Err(command.error(ErrorKind::ArgumentConflict, text));
            }
        }
        Self::from_arg_matches(&matches)
    }
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Measure clock offsets: under mpirun, with torchrun-style variables, or with --local N
    #[command(after_long_help = guide(GUIDE))]
    Run(Box<RunArgs>),
    /// Show the whole workflow on this machine in about ten seconds, checked against the truth:
    /// clock offsets, aligned traces, stragglers
    #[command(after_long_help = help())]
    Demo(crate::demo::args::DemoArgs),
    /// Recompute offsets from recorded exchanges (--keep-probes) or recorded fits, using the data
    /// of the whole run for every round
    #[command(after_long_help = help(), override_usage = SOLVE_USAGE)]
    Solve(SolveArgs),
    /// Put the runs of several regions (sites, racks) on one timeline, using the run between their
    /// masters
    #[command(after_long_help = help(), override_usage = COMPOSE_USAGE)]
    Compose(ComposeArgs),
    /// Show what this machine supports (timestamps, MPI, permissions, clock discipline) and what to
    /// fix; exits with status 1 if something prevents a measurement
    #[command(after_long_help = help())]
    Doctor(DoctorArgs),
    /// Rewrite traces onto the reference clock, in their own format
    #[command(after_long_help = guide(TRACE_GUIDE))]
    Align(AlignArgs),
    /// Merge the traces of all nodes into one file, on one clock
    #[command(after_long_help = guide(TRACE_GUIDE))]
    Merge(MergeArgs),
    /// Convert traces of any format to Perfetto and other formats in one pass, on the reference
    /// clock if it is known
    #[command(after_long_help = guide(CONVERT_GUIDE))]
    Convert(ConvertArgs),
    #[cfg(feature = "rocpd")]
    Query(Box<QueryArgs>),
    /// Check that no collective ends on one rank before another rank has entered it
    #[command(after_long_help = guide(TRACE_GUIDE))]
    Check(CheckArgs),
    /// Report which ranks were late to collectives, by how much, with what certainty, and at what
    /// cost
    #[command(after_long_help = guide(TRACE_GUIDE))]
    Stragglers(StragglersArgs),
    /// Report which ranks caused a job to hang, from the dumps of PyTorch's Flight Recorder
    #[command(after_long_help = help())]
    Hang(crate::hang::HangArgs),
    /// Simulate the accuracy and cost of a run, and compare other methods on the same packets
    #[command(after_long_help = help())]
    Sim(Box<crate::sim::SimArgs>),
    /// Print the current reference time and its uncertainty, from the clock that a run maintains
    /// with --clock-page
    #[command(after_long_help = help())]
    Clock(ClockArgs),
    /// Show the state of a run: whether it is running, stalled or ended, the age of the last round,
    /// the least certain nodes, and faults. Only reads the run's files
    #[command(after_long_help = guide(STATUS_GUIDE))]
    Status(StatusArgs),
    /// Write a run as one self-contained HTML page: a summary, offsets with their intervals, rates,
    /// faults, and which nodes probed which; with --traces also corrections and stragglers
    #[command(after_long_help = help())]
    Report(ReportArgs),
    /// Control the run in a directory on this host, and wait until the command takes effect
    #[command(after_long_help = help())]
    Ctl(CtlArgs),
    /// Control the host event recorder and read its recordings: inspect them, find where a process
    /// hangs, convert them to traces
    #[command(after_long_help = help())]
    Record(crate::record::RecordArgs),
    /// Write a run directory as one protobuf file (proto/probe_sync.proto, message RunExport), or as
    /// files of the XLA distributed profiler
    #[command(after_long_help = help())]
    Export(ExportArgs),
    /// Settings of a run
    #[command(after_long_help = help())]
    Config(ConfigArgs),
    /// Print the JSON Schemas of the commands' --json output, or write them to a directory
    #[command(name = "json-schemas", hide = true)]
    Schemas(crate::shell::SchemasArgs),
    /// Print shell completions
    #[command(after_long_help = help())]
    Completions(crate::shell::CompletionsArgs),
    /// Print the manual page of probe_sync, or write the pages of all commands
    #[command(after_long_help = help())]
    Man(crate::shell::ManArgs),
}

/// Flags of `run`.
#[derive(Args, Debug, Default)]
pub struct RunArgs {
    /// Run N ranks as processes on this machine, over TCP on loopback; no MPI needed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub local: Option<u32>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    pub json: bool,
    /// Read settings from a TOML file, or JSON when its name ends in .json
    #[arg(long, value_name = "FILE", env = "PROBE_SYNC_CONFIG")]
    pub config: Option<PathBuf>,

    /// The settings.
    #[command(flatten)]
    settings: Settings,
}

/// The flags that are configuration keys, as key and text; generated from the configuration's own
/// table.
#[derive(Clone, Debug, Default)]
struct Settings(Vec<(String, String)>);

/// Flags of `config`.
#[derive(Args, Debug)]
pub struct ConfigArgs {
    /// Print all settings with their descriptions and defaults, in the format of a --config file
    #[arg(long, required = true)]
    pub example: bool,
}

/// Flags of `clock`.
#[derive(Args, Debug)]
pub struct ClockArgs {
    /// The file given to --clock-page
    #[arg(value_name = "FILE")]
    pub page: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `status`.
#[derive(Args, Debug)]
pub struct StatusArgs {
    /// The run's directory
    #[arg(value_name = "RUN_DIR", default_value = "probe_sync_out")]
    pub run_dir: PathBuf,
    /// Show all nodes, in numerical order, instead of the ten least certain
    #[arg(long)]
    pub all: bool,
    /// Update every second until the run ends, or for half a minute after its process is gone
    #[arg(long)]
    pub watch: bool,
    /// Print JSON; with --watch, one object per line
    #[arg(long)]
    pub json: bool,
}

/// Flags of `report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// The run's directory
    #[arg(value_name = "RUN_DIR", default_value = "probe_sync_out")]
    pub run_dir: PathBuf,
    /// File for the page, or - for standard output [default: report.html in the run's directory]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the summary as JSON, with a schema number (docs/schemas)
    #[arg(long)]
    pub json: bool,
    /// Flight Recorder dumps of the job, or folders of them: adds who stopped it to the page
    /// [default: what hang --live has collected last]
    #[arg(long, num_args = 1.., value_name = "DUMP")]
    pub hang: Vec<PathBuf>,
    /// Traces of the job: adds clock corrections, broken collectives and stragglers to the page
    #[arg(long, visible_alias = "trace", num_args = 1.., value_name = "FILE")]
    pub traces: Vec<PathBuf>,
    /// The node that wrote each trace, in the order of the traces: 0 1 2 3, 0,1,2,3 or 0-3
    /// [default: found from the host or rank in each trace]
    #[arg(long, visible_alias = "node", num_args = 1.., value_name = "N", requires = "traces")]
    pub nodes: Vec<NodeList>,
    /// Assume one trace per node, listed in node order
    #[arg(long, requires = "traces", conflicts_with = "nodes")]
    pub assume_order: bool,
    /// How far outside the measured time events may lie (2s, 500ms) [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = probe_sync::config::duration, requires = "traces")]
    pub extrapolate: Option<probe_sync_time::Duration>,
    #[command(flatten)]
    pub steps: StepArgs,
}

/// What is asked of a run.
#[derive(Args, Debug)]
pub struct CtlArgs {
    /// The run's directory, on the host of rank 0
    #[arg(long, value_name = "DIR", default_value = "probe_sync_out", global = true)]
    pub run_dir: PathBuf,
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub ask: Ask,
}

/// What can be asked of a run.
#[derive(Subcommand, Debug)]
pub enum Ask {
    /// Stop probing on all nodes. Rounds continue, and bounds grow
    Pause,
    /// Resume probing on all nodes
    Resume,
    /// Begin a named phase, which report.json lists; without a name, end the current phase
    Phase {
        /// The phase's name, at most 64 bytes
        name: Option<String>,
    },
    /// End the current window early on all nodes
    EndRound,
    /// End the run
    Stop,
}

/// Flags of `solve`.
#[derive(Args, Debug)]
pub struct SolveArgs {
    /// What was recorded
    #[command(flatten)]
    pub input: SolveInput,
    /// With --packets: split the packets into windows of this length [default: one window]. With
    /// --at: the length of the window that begins then [default: 4s]
    #[arg(long, value_name = "TIME", value_parser = probe_sync::config::duration, conflicts_with = "probes")]
    pub window: Option<probe_sync_time::Duration>,
    /// Ignore fits with fewer exchanges
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "packets")]
    pub min_pairs: u32,
    /// Ignore fits with more losses per exchange than this (for example 0.6) [default: no limit]
    #[arg(long, value_name = "RATIO", value_parser = ratio, conflicts_with = "packets")]
    pub max_loss_ratio: Option<f64>,
    /// Start of the window of alpha_beta_nodeN.csv, in ns since 1970 on the nodes' clocks; these
    /// files do not contain it
    #[arg(long, value_name = "NS", conflicts_with_all = ["probes", "packets"])]
    pub at: Option<i64>,
    /// File to write the offsets to
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "FILE")]
    pub out: PathBuf,
    /// Which lines to write: auto (as many as linear interpolation needs), rounds (one per round),
    /// or one per interval (500ms, 1s; at least 1ms). Between the midpoints of two rounds, hard
    /// intervals assume that no clock's rate changes by more than 3 ppm from one to the next
    #[arg(long, value_name = "auto|rounds|TIME", default_value = "auto")]
    pub knots: probe_sync::solve::Lines,
    /// The node whose clock is the reference [default: that of the recorded run, from the
    /// offsets.jsonl in its directory; otherwise node 0]
    #[arg(long, value_name = "NODE")]
    pub reference: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// How an edge's line is fitted: hull, svm or min-rtt
    #[arg(long, default_value = "hull", conflicts_with_all = ["windows", "packets"])]
    pub fit: String,
}

/// Flags of `compose`.
#[derive(Args, Debug)]
pub struct ComposeArgs {
    /// The directory of the run between the regions' masters, or a file of its smoothed offsets.
    /// Its reference becomes the reference of all regions
    #[arg(long, value_name = "RUN")]
    pub masters: PathBuf,
    /// A region's name and the directory of its run, or a file of its smoothed offsets. Repeat for
    /// each region
    #[arg(long = "region", value_name = "NAME=RUN", required = true, value_parser = named::<PathBuf>)]
    pub regions: Vec<(String, PathBuf)>,
    /// The node of the masters' run that is this region's reference [default: the node on the same
    /// host, if there is only one]
    #[arg(long = "master", value_name = "NAME=NODE", value_parser = named::<u32>)]
    pub masters_of: Vec<(String, u32)>,
    /// File to write the offsets of all nodes to
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "FILE")]
    pub out: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Parses `NAME=VALUE`.
fn named<T: std::str::FromStr>(text: &str) -> Result<(String, T), String> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("give NAME=VALUE")?;
    let value = value.parse().map_err(|_| format!("invalid value {value:?} after ="))?;
    Ok((name.to_owned(), value))
}

/// What `solve` takes.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub struct SolveInput {
    /// Recorded exchanges: probes/nodeN.jsonl of a run with --keep-probes
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub probes: Vec<PathBuf>,
    /// Recorded fits: windows/nodeN.jsonl of any run. Almost as good as exchanges, and no packets
    /// are needed. Also those of the XLA distributed profiler: probe_windows_nodeN.jsonl,
    /// alpha_beta_nodeN.csv, protobuf messages (docs/xla.md)
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub windows: Vec<PathBuf>,
    /// One-way packets captured on both sides: CSV files with the columns src,dst,send_ns,recv_ns
    /// and optionally stamp
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pub packets: Vec<PathBuf>,
}

/// Flags of `doctor`.
#[derive(Args, Debug)]
#[command(mut_args(crate::help::hide_rare))]
pub struct DoctorArgs {
    /// Survey all hosts of the job and the paths between them, under mpirun, torchrun-style
    /// variables or --local N. Accepts every flag of `run`; they apply to the probe packets
    #[arg(long)]
    pub peers: bool,

    /// With --peers: print one line per host, and exit with status 3 if a host's clock, UDP paths,
    /// timestamps or settings would degrade a measurement
    #[arg(long, requires = "peers")]
    pub strict: bool,

    /// With --strict: largest offset of a host's clock from the reference (100ms, 2s)
    #[arg(long, value_name = "TIME", value_parser = probe_sync::config::duration, default_value = "100ms", requires = "strict")]
    pub max_offset: probe_sync_time::Duration,

    /// With --strict: largest rate of a host's clock against the reference, in ppm (100, 100ppm)
    #[arg(long, value_name = "PPM", value_parser = ppm, default_value = "100", requires = "strict")]
    pub max_rate: f64,

    /// How the hosts are looked at.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Program whose files `export` writes.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    /// probe_sync: one file
    #[default]
    ProbeSync,
    /// The XLA distributed profiler: probe_windows_nodeN.jsonl and, per round, global_window_R.pb
    Xla,
}

/// Flags of `export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The directory of a run
    #[arg(long, value_name = "DIR")]
    pub run_dir: PathBuf,
    /// The protobuf file to write; with --dialect xla, a folder
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "FILE")]
    pub out: PathBuf,
    /// Format of the output
    #[arg(long, value_enum, default_value_t)]
    pub dialect: Dialect,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    /// Returns the configuration from flags, environment and file.
    ///
    /// # Errors
    /// Names the source, the key and the remedy.
    pub fn configuration(&self) -> Result<Config, probe_sync::Error> {
        self.configuration_after(&[])
    }

    /// The same, with settings (key and text) that override the environment and the defaults; flags
    /// override them.
    ///
    /// # Errors
    /// As [`Self::configuration`].
    pub fn configuration_after(&self, settings: &[(String, String)]) -> Result<Config, probe_sync::Error> {
        Config::load(self.config.as_deref(), std::env::vars_os(), &[settings, &self.settings.0].concat())
    }

    /// Whether any flag but --json was given.
    pub fn asks_for_a_run(&self) -> bool {
        self.local.is_some() || self.config.is_some() || !self.settings.0.is_empty()
    }
}

impl Args for Settings {
    fn augment_args(command: clap::Command) -> clap::Command {
        let flag = |key: &'static Key| {
            let flag = Arg::new(key.name).long(key.flag).help(key.help()).help_heading(key.section.title());
            // The run's directory is its output, as a file is that of other commands.
            let flag = if key.name == "out" { flag.short('o').visible_alias("output") } else { flag };
            match key.value_name {
                "" => flag.action(ArgAction::SetTrue),
                value => flag.value_name(value),
            }
        };
        command.args(KEYS.iter().map(flag))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let text = |key: &Key| match key.value_name {
            "" => matches.get_flag(key.name).then(|| "true".to_owned()),
            _ => matches.get_one::<String>(key.name).cloned(),
        };
        Ok(Self(KEYS.iter().filter_map(|key| text(key).map(|text| (key.name.to_owned(), text))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Parses a rate, with or without its unit.
fn ppm(text: &str) -> Result<f64, String> {
    ratio(text.trim_end_matches("ppm").trim_end())
}

/// Parses a number of at least zero.
fn ratio(text: &str) -> Result<f64, String> {
    let ratio: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if ratio >= 0.0 { Ok(ratio) } else { Err("not at least 0".into()) }
}

/// The version and the build features.
fn long_version() -> String {
    let all = [
        ("mpi", cfg!(feature = "mpi")),
        ("hwloc", cfg!(feature = "hwloc")),
        ("rocpd", cfg!(feature = "rocpd")),
        ("otf2", cfg!(feature = "otf2")),
        ("otlp", cfg!(feature = "otlp")),
    ];
    let of = |wanted: bool| {
        let names: Vec<&str> = all.iter().filter(|(_, built)| *built == wanted).map(|(name, _)| *name).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    format!("{}\nfeatures: {}\nnot built in: {}", env!("CARGO_PKG_VERSION"), of(true), of(false))
}

/// clap does not wrap usage lines, and its own would be wider than a terminal.
const COMPOSE_USAGE: &str = "probe_sync compose [OPTIONS] --masters RUN --region NAME=RUN -o FILE";
const SOLVE_USAGE: &str = "probe_sync solve [OPTIONS] -o FILE --probes|--windows|--packets FILE...";

/// Constant while the command runs.
static LONG_VERSION: LazyLock<String> = LazyLock::new(long_version);

/// Formats the guide and the list of exit statuses.
fn guide(text: &str) -> String {
    format!("{text}\n\n{}", help())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_flag_and_its_help() {
        let mut command = Cli::command();
        for key in KEYS {
            assert!(command.get_arguments().any(|arg| arg.get_long() == Some(key.flag)), "no --{}", key.flag);
        }
        // Lines are broken where the terminal is narrow.
        let run = command.find_subcommand_mut("run").expect("a command");
        let help = run.render_long_help().to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            help.contains("[default: 800us at first, then as the target requires]")
                && help.contains("Testing against known truth"),
            "{help}"
        );
        command.debug_assert();
    }

    #[test]
    fn flags_reach_the_configuration() {
        let cli = Cli::try_parse_from(["probe_sync", "run", "--window", "2s", "--cadence", "400us", "--keep-probes"])
            .expect("valid flags");
        let Some(Command::Run(run)) = cli.command else { panic!("{cli:?}") };
        let config = run.configuration().expect("valid values");
        assert_eq!(config.window(), probe_sync_time::Duration::from_ms(2000));
        assert_eq!(config.cadence(), probe_sync_time::Duration::from_us(400));
        assert!(config.keep_probes);
    }

    #[test]
    fn messages_are_asked_for_before_and_behind_a_command_and_flags_of_a_run_behind_it() {
        let read = |line: &str| Cli::read(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["probe_sync -q", "probe_sync -q run", "probe_sync run -q", "probe_sync --window 2s -q"] {
            assert!(read(line).expect(line).telling.quiet, "{line}");
        }
        let refused = read("probe_sync --window 2s run").expect_err("it would do nothing").to_string();
        assert!(refused.contains("--window has no effect before 'run'"), "{refused}");
        assert!(read("probe_sync -q -v run").is_err());
    }
    /// Checks all commands that have a result: the output of `demo` is for people, and
    /// `completions`, `man` and `config` print files in their own formats.
    #[test]
    fn every_command_answers_in_json() {
        fn without(command: &clap::Command, path: &str, found: &mut Vec<String>) {
            for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
                let path = format!("{path} {}", verb.get_name());
                let flags: Vec<&str> = verb.get_arguments().filter_map(Arg::get_long).collect();
                match verb.has_subcommands() && !flags.contains(&"json") {
                    true => without(verb, &path, found),
                    false if flags.contains(&"json") => {}
                    false => found.push(path),
                }
            }
        }
        let mut found = Vec::new();
        without(&Cli::command(), "", &mut found);
        assert_eq!(found, [" demo", " config", " json-schemas", " completions", " man"]);
    }
}
