//! The table of settings, which defines the name, flag, type, default, reader, writer, check and
//! help of every key once.
//!
//! [`Config`], its defaults, [`KEYS`], the flags and `--help` of the command line, `run.json` and
//! the comparison of the ranks' settings all derive from this table. A new key is one entry here.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use probe_sync_estimate::edge_fit::FitMethod;
use probe_sync_global_clock::Adjust;
use probe_sync_sys::udp::TimestampMode;
use probe_sync_time::{Duration, NodeId};

use super::skew_model::SkewModel;
use super::values::{
    CLOCK_ADJUSTMENTS, CLOCK_COUNTERS, ClockCounter, FIT_METHODS, InjectedStep, ROUND_MODES, ReferenceChoice,
    RoundMode, TIMESTAMP_MODES, TracerClockChoice, at_least, choice, duration, injected_step, listening_address,
    name_of, nodes, nodes_text, number, or_auto, or_none, own_address, positive, rate, reference, region_name, size,
    size_text, text_of, tracer_clock, within,
};

/// One key of the configuration.
#[derive(Copy, Clone, Debug)]
pub struct Key {
    /// Name in files; in the environment, in upper case with the prefix `PROBE_SYNC_`.
    pub name: &'static str,
    /// The flag, without dashes.
    pub flag: &'static str,
    /// Name of the value in `--help`; empty for a switch, which takes none.
    pub value_name: &'static str,
    /// Section of `--help`.
    pub section: Section,
    /// True if the value may differ between ranks.
    pub local: bool,
    help: &'static str,
    default_shown: bool,
    pub(super) read: fn(&mut Config, &str) -> Result<(), String>,
    pub(super) write: fn(&Config) -> String,
    pub(super) check: fn(&Config) -> Result<(), String>,
}

/// A section of `--help`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Section {
    /// What is measured and how.
    Measuring,
    /// Target of adaptive probing.
    Adaptive,
    /// Files written.
    Output,
    /// Settings that may differ between hosts.
    Host,
    /// Virtual clocks.
    Truth,
}

impl Section {
    /// Returns the title of the section.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Measuring => "Measuring",
            Self::Adaptive => "Adaptive probing",
            Self::Output => "Output",
            Self::Host => "This host",
            Self::Truth => "Testing against known truth",
        }
    }
}

impl Key {
    /// Returns the help text, with the default.
    pub fn help(&self) -> String {
        let default = self.default_shown.then(|| format!(" [default: {}]", (self.write)(&Config::default())));
        format!("{}{}", self.help, default.unwrap_or_default())
    }

    /// Returns the help text without the default.
    pub(super) fn own_help(&self) -> &'static str {
        self.help
    }

    /// Returns true if a file may give the value as a list.
    pub(super) fn is_list(&self) -> bool {
        self.value_name == "NODES"
    }

    /// Returns the key of this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }
}

/// Generates [`Config`], its defaults and [`KEYS`] from one list of entries: `field: type =
/// default; agreement "key" "--flag" "VALUE" in section;`, followed by how it is read, written and
/// checked, and the help. A flag without a VALUE is a switch. `shown` adds the default's text to
/// the help.
macro_rules! settings {
    ($(
        $(#[doc = $meaning:literal])+
        $field:ident: $type:ty = $default:expr; $agreement:ident $name:literal $flag:literal $value:literal in $section:ident;
        read $read:expr; write $write:expr; check $check:expr; help $help:literal $($shown:ident)?;
    )+) => {
        /// All settings of a run.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config { $( $(#[doc = $meaning])+ pub $field: $type, )+ }

        impl Default for Config {
            fn default() -> Self {
                Self { $( $field: $default, )+ }
            }
        }

        /// All keys, in the order of `--help`.
        pub const KEYS: &[Key] = &[ $( Key {
            name: $name,
            flag: $flag,
            value_name: $value,
            section: Section::$section,
            local: settings!(@local $agreement),
            help: $help,
            default_shown: settings!(@shown $($shown)?),
            read: |config, text| $read(text).map(|value| config.$field = value),
            write: $write,
            check: $check,
        }, )+ ];
    };
    (@local shared) => { false };
    (@local local) => { true };
    (@shown shown) => { true };
    (@shown) => { false };
}

settings! {
    /// Duration of the run; `None`: until a signal.
    duration: Option<Duration> = None; shared "duration" "duration" "DURATION" in Measuring;
    read |text| positive(text).map(Some); write |c| c.duration.map_or_else(|| "until stopped".into(), text_of);
    check |_| Ok(()); help "How long to run, for example 12s or 10min [default: until Ctrl-C or SIGTERM]";

    /// Length of a window; `None`: automatic, see [`Config::window`].
    window: Option<Duration> = None; shared "window" "window" "DURATION" in Measuring;
    read |text| positive(text).map(Some); write |c| c.window.map_or_else(|| "auto".into(), text_of);
    check |c| within(c.window(), Duration::from_ms(100), Duration::from_ms(3_600_000));
    help "Length of every window. Each window gives one offset per node [default: 1s at first, up to 16s while clocks are calm; 4s with --fixed]";

    /// Length of the first four windows, if shorter than the others; `None`: no shorter windows.
    first_window: Option<Duration> = None; shared "first_window" "first-window" "DURATION" in Measuring;
    read |text| positive(text).map(Some); write |c| or_none(c.first_window.map(text_of));
    check |c| c.first_window.map_or(Ok(()), |first| within(first, Duration::from_ms(100), Duration::from_ms(60_000)));
    help "Length of the first four windows, if shorter, so that the clocks are known soon [default: none; 250ms if a program links \
        the library]";

    /// Length of an additional window after the run was asked to end; `None`: the run ends with the
    /// current window.
    last_window: Option<Duration> = None; shared "last_window" "last-window" "DURATION" in Measuring;
    read |text| positive(text).map(Some); write |c| or_none(c.last_window.map(text_of));
    check |c| c.last_window.map_or(Ok(()), |last| within(last, Duration::from_ms(100), Duration::from_ms(60_000)));
    help "Length of an additional window after a request to stop, so that every earlier event lies within the measured time [default: \
        none; 250ms if a program links the library]";

    /// Gap between exchanges started by one host, shared by its ranks and edges in turn; `None`:
    /// automatic, see [`Config::cadence`].
    cadence: Option<Duration> = None; shared "cadence" "cadence" "DURATION" in Measuring;
    read |text| positive(text).map(Some); write |c| c.cadence.map_or_else(|| "auto".into(), text_of);
    check |c| within(c.cadence(), Duration::from_us(20), CADENCE_MAX);
    help "Interval between exchanges started by one host, which its ranks and edges take in turn. Fixed, unless --target-error is \
        also given: then it is only the initial value [default: 800us at first, then as the target requires]";

    /// Keep the configured cadence and window throughout.
    fixed: bool = false; shared "fixed" "fixed" "" in Measuring;
    read number; write |c| c.pacing().is_none().to_string(); check |_| Ok(());
    help "Keep cadence and window fixed as configured (by default 800us and 4s) instead of adapting them";

    /// Time between the two packets of a coded pair.
    spacing: Duration = Duration::from_us(100); shared "spacing" "spacing" "DURATION" in Measuring;
    read duration; write |c| text_of(c.spacing); check |c| within(c.spacing, Duration::ZERO, Duration::from_ms(1_000));
    help "Time between the two packets of a coded pair" shown;

    /// Fewest finished exchanges of an edge whose fit is used in a round.
    min_pairs: u32 = 0; shared "min_pairs" "min-pairs" "N" in Measuring;
    read number; write |c| c.min_pairs.to_string(); check |_| Ok(());
    help "Ignore an edge in rounds in which fewer exchanges than this finished; few exchanges already weigh less" shown;

    /// Largest ratio of lost to finished exchanges of an edge whose fit is used in a round; `None`:
    /// unlimited.
    max_loss_ratio: Option<f64> = None; shared "max_loss_ratio" "max-loss-ratio" "RATIO" in Measuring;
    read |text| rate(text).map(Some); write |c| or_none(c.max_loss_ratio);
    check |_| Ok(());
    help "Ignore an edge in rounds in which more exchanges were lost than this times those that finished [default: none]";

    /// An exchange not finished after this long is lost; extended to up to 2 s if nodes poll for
    /// packets less often.
    exchange_timeout: Duration = Duration::from_ms(1_000); shared "exchange_timeout" "exchange-timeout" "DURATION" in Measuring;
    read positive; write |c| text_of(c.exchange_timeout);
    check |c| within(c.exchange_timeout, Duration::from_ms(100), Duration::from_ms(10_000));
    help "An exchange that has not finished after this time counts as lost; up to 2 s at a slow cadence" shown;

    /// Longest time that a round waits for a rank.
    round_timeout: Duration = Duration::from_ms(10_000); shared "round_timeout" "round-timeout" "DURATION" in Measuring;
    read positive; write |c| text_of(c.round_timeout);
    check |c| within(c.round_timeout, Duration::from_ms(100), Duration::from_ms(86_400_000));
    help "How long a round waits for a rank before reporting it as missing; over TCP the other ranks continue, over MPI the run ends" shown;

    /// Time after which the run begins with the ranks that have joined; `None`: wait for all.
    start_timeout: Option<Duration> = None; local "start_timeout" "start-timeout" "DURATION" in Measuring;
    read |text| positive(text).map(Some); write |c| or_none(c.start_timeout.map(text_of));
    check |c| match c.start_timeout {
        Some(_) if c.rounds != RoundMode::Master => {
            Err("needs --rounds master, because only a master can tell a late rank what it missed".into())
        }
        Some(limit) => within(limit, Duration::from_ms(1), Duration::from_ms(600_000)),
        None => Ok(()),
    };
    help "How long rank 0 (or --master) waits for all ranks over TCP before it starts with those that have joined, at least two. It \
        reports the missing ranks, which can join later [default: wait for all ranks, and fail after PROBE_SYNC_RENDEZVOUS_TIMEOUT]";

    /// How long a rank that lost its connection to the master tries to reconnect.
    reconnect_timeout: Duration = Duration::from_ms(600_000); local "reconnect_timeout" "reconnect-timeout" "DURATION" in Measuring;
    read duration; write |c| text_of(c.reconnect_timeout);
    check |c| within(c.reconnect_timeout, Duration::ZERO, Duration::from_ms(86_400_000));
    help "How long a rank whose TCP connection to rank 0 (or --master) broke tries to reconnect; with 0s it ends at once" shown;

    /// Round mode.
    rounds: RoundMode = RoundMode::Master; shared "rounds" "rounds" "MODE" in Measuring;
    read |text| choice(text, &ROUND_MODES); write |c| c.rounds.name().into(); check |_| Ok(());
    help "How rounds work: master (rank 0, or --master, gathers the windows, solves and decides), timed (every node ends windows by \
        its own clock, and every rank receives and solves all windows) or local (no rounds: windows are written to files for \
        probe_sync solve)" shown;

    /// The rank that gathers, solves and records.
    master: u32 = 0; shared "master" "master" "RANK" in Measuring;
    read number; write |c| c.master.to_string(); check |_| Ok(());
    help "The rank that leads the run: it gathers the windows, solves, decides, and writes the run's files to its --out. With \
        MASTER_ADDR and MASTER_PORT this rank listens, so MASTER_ADDR must name its host. Node numbers and the reference do not change" shown;

    /// Number of ranks that may take over the master's role, one after the other.
    successors: u32 = 3; shared "successors" "successors" "N" in Measuring;
    read number; write |c| c.successors.to_string(); check |_| Ok(());
    help "How many ranks may take over from rank 0 (or --master) over TCP, one after another, if it is lost; with 0 the run ends" shown;

    /// Send every node's estimate to every rank; `None`: in groups of up to 65536 (ranks times
    /// nodes).
    share_rounds: Option<bool> = None; shared "share_rounds" "share-rounds" "BOOL" in Measuring;
    read |text| number(text).map(Some); write |c| or_auto(c.share_rounds); check |_| Ok(());
    help "Send the estimates of all nodes to every rank, rather than only its own and the reference's: true or false [default: true \
        if ranks times nodes is at most 65536]";

    /// Region of this rank; `None`: no region, or the one given by `region_file`.
    region: Option<String> = None; local "region" "region" "NAME" in Measuring;
    read |text| region_name(text).map(Some); write |c| or_none(c.region.clone()); check |_| Ok(());
    help "The region (site, rack) of this rank. Each region measures itself against its first rank, these first ranks measure each \
        other, and at the end rank 0 puts all regions on one timeline. Give a region to every rank or to none";

    /// File that names each rank's region; `None`: no such file.
    region_file: Option<PathBuf> = None; local "region_file" "region-file" "FILE" in Measuring;
    read |text: &str| Ok::<_, String>(Some(PathBuf::from(text)));
    write |c| or_none(c.region_file.as_ref().map(|path| path.display())); check |_| Ok(());
    help "File with the regions of all ranks; each line has a region's name and its ranks, for example: west 0-3,8";

    /// Reference node, whose offset is zero.
    reference: ReferenceChoice = ReferenceChoice::Node(NodeId(0)); shared "reference" "reference" "NODE|auto" in Measuring;
    read reference; write |c| c.reference.to_string(); check |_| Ok(());
    help "The node whose clock is the reference: its number, or auto for the node with the best timestamps" shown;

    /// Edges per node; `None`: min(10, nodes − 1).
    neighbors: Option<u32> = None; shared "neighbors" "neighbors" "K" in Measuring;
    read |text| number(text).map(Some); write |c| or_auto(c.neighbors);
    check |c| if c.neighbors == Some(0) { Err("must be at least 1: a node without edges is not measured".into()) } else { Ok(()) };
    help "Edges per node in the probing graph [default: 10, or nodes − 1]";

    /// Nodes that this node probes; `None`: the graph is drawn, for all nodes together.
    out_neighbors: Option<Vec<NodeId>> = None; local "out_neighbors" "out-neighbors" "NODES" in Measuring;
    read nodes; write |c| or_auto(c.out_neighbors.as_deref().map(nodes_text)); check |_| Ok(());
    help "Nodes that this node probes, for example 1,2,5, instead of a random graph; none for a node that only answers. Every node \
        must give its list, and the lists must connect all nodes; no edges are added";

    /// Nodes that probe this node, for comparison with the others' lists.
    in_neighbors: Option<Vec<NodeId>> = None; local "in_neighbors" "in-neighbors" "NODES" in Measuring;
    read nodes; write |c| or_auto(c.in_neighbors.as_deref().map(nodes_text)); check |_| Ok(());
    help "Nodes that probe this node; the run fails to start if the other nodes' --out-neighbors disagree";

    /// Seed of the probing graph.
    seed: u64 = 1; shared "seed" "seed" "SEED" in Measuring;
    read number; write |c| c.seed.to_string(); check |_| Ok(()); help "Seed of the probing graph" shown;

    /// Method of fitting an edge's line.
    fit: FitMethod = FitMethod::Hull; shared "fit" "fit" "METHOD" in Measuring;
    read |text| choice(text, &FIT_METHODS); write |c| name_of(c.fit, &FIT_METHODS).into(); check |_| Ok(());
    help "How an edge's line is fitted: hull, svm or min-rtt" shown;

    /// Stamp source to use.
    timestamps: TimestampMode = TimestampMode::Auto; shared "timestamps" "timestamps" "SOURCE" in Measuring;
    read |text| choice(text, &TIMESTAMP_MODES); write |c| name_of(c.timestamps, &TIMESTAMP_MODES).into(); check |_| Ok(());
    help "Timestamps to use: auto, hardware, kernel or user" shown;

    /// Make every rank a node, even if ranks share a host's clock.
    per_rank: bool = false; shared "per_rank" "per-rank" "" in Measuring;
    read number; write |c| c.per_rank.to_string(); check |_| Ok(());
    help "Make every rank a node, even if ranks share a host's clock";

    /// The profiler's clock, of which snapshot pairs are taken.
    tracer_clock: TracerClockChoice = TracerClockChoice::Auto;
    local "tracer_clock" "tracer-clock" "CLOCK" in Measuring;
    read tracer_clock; write |c| c.tracer_clock.text().into(); check |_| Ok(());
    help "The profiler's clock, which is recorded in pairs with the system clock in snapshots/: monotonic, monotonic_raw, boottime, \
        tsc, rocprofiler, cupti, none, or auto (the clock of the profiler that is loaded or whose devices are present, otherwise \
        boottime)" shown;

    /// Time between snapshot pairs of this node.
    snapshot_pair_period: Duration = Duration::from_ms(4_000);
    local "snapshot_pair_period_ms" "snapshot-pair-period-ms" "MS" in Measuring;
    read |text| number(text).map(|ms: u32| Duration::from_ms(ms.into()));
    write |c| (c.snapshot_pair_period.as_ns() / 1_000_000).to_string();
    check |c| if PAIR_PERIODS.contains(&(c.snapshot_pair_period.as_ns() / 1_000_000)) { Ok(()) } else {
        Err("must be between 1 and 3600000 (an hour)".into())
    };
    help "Milliseconds between pairs of --tracer-clock and system clock; may differ between nodes" shown;

    /// Adapt cadence, window and edges to the target even if a cadence is given.
    adaptive: bool = false; shared "adaptive" "adaptive" "" in Adaptive;
    read number; write |c| c.pacing().is_some().to_string(); check |_| Ok(());
    help "Adapt probing to the target, starting from --cadence. Always on without --cadence and --fixed";

    /// Target half-width of every node's 95 % interval; setting it enables adaptive probing.
    target_error: Option<Duration> = None; shared "target_error" "target-error" "DURATION" in Adaptive;
    read |text| positive(text).map(Some); write |c| c.target_error.map_or_else(|| "none".into(), text_of); check |_| Ok(());
    help "Target half-width of the 95 % intervals, to which probing adapts, for example 200ns [default: 1us]";

    /// Bits per second that a host may send for probing, including UDP and IPv4 headers and
    /// answers.
    budget_bps: Option<f64> = None; shared "budget_bps" "budget-bps" "BITS" in Adaptive;
    read |text| rate(text).map(Some); write |c| or_none(c.budget_bps); check |_| Ok(());
    help "Maximum bits per second sent by a host, including UDP and IPv4 headers and answers, for example 500k or 5M [default: none]";

    /// Share of one core that probing may use on a host.
    budget_cpu: Option<f64> = None; shared "budget_cpu" "budget-cpu" "SHARE" in Adaptive;
    read |text| rate(text).map(Some); write |c| or_auto(c.budget_cpu); check |_| Ok(());
    help "Maximum share of one core that probing uses on a host, for example 0.1 or 10% [default: 0.1 unless --budget-bps is given]";

    /// Directory of the run's files.
    out: PathBuf = PathBuf::from("probe_sync_out"); local "out" "out" "DIR" in Output;
    read |text| Ok::<_, String>(PathBuf::from(text)); write |c| c.out.display().to_string(); check |_| Ok(());
    help "Directory for the run's files. An earlier run there is renamed" shown;

    /// File through which other processes of this host read the global clock; `None`: no file.
    clock_page: Option<PathBuf> = None; local "clock_page" "clock-page" "FILE" in Output;
    read |text: &str| Ok::<_, String>(Some(PathBuf::from(text)));
    write |c| or_none(c.clock_page.as_ref().map(|path| path.display())); check |_| Ok(());
    help "Maintain the reference time in this file for other processes on the host, for example /dev/shm/probe_sync.clock; probe_sync \
        clock FILE reads it. The first rank on each host writes it";

    /// How the global clock follows new estimates.
    clock_adjust: Adjust = Adjust::Slew; local "clock_adjust" "clock-adjust" "HOW" in Output;
    read |text| choice(text, &CLOCK_ADJUSTMENTS); write |c| name_of(c.clock_adjust, &CLOCK_ADJUSTMENTS).into(); check |_| Ok(());
    help "How the clock in --clock-page follows new estimates: slew (at 500 ppm, never back) or step (at once)" shown;

    /// Counter of the global clock.
    clock_counter: ClockCounter = ClockCounter::Raw; local "clock_counter" "clock-counter" "COUNTER" in Output;
    read |text| choice(text, &CLOCK_COUNTERS); write |c| name_of(c.clock_counter, &CLOCK_COUNTERS).into(); check |_| Ok(());
    help "The counter that readers of --clock-page use: raw (CLOCK_MONOTONIC_RAW) or tsc (the processor's time-stamp counter; faster, \
        but only allowed if it is the kernel's clocksource)" shown;

    /// Largest deviation of clock rates from their measured values, ppm.
    max_wander_ppm: f64 = 3.0; local "max_wander_ppm" "max-wander-ppm" "PPM" in Output;
    read number; write |c| c.max_wander_ppm.to_string();
    check |c| if c.max_wander_ppm.is_finite() && (0.0..=500.0).contains(&c.max_wander_ppm) { Ok(()) } else {
        Err("must be between 0 and 500".into())
    };
    help "Largest assumed change of a clock's rate until the next round, in ppm, for the hard interval of the clock in --clock-page" shown;

    /// Size at which a recorded file is closed and the next one begun, bytes; `None`: never.
    rotate_at: Option<u64> = Some(1 << 30); local "rotate_at" "rotate-at" "SIZE" in Output;
    read size; write |c| size_text(c.rotate_at);
    check |c| c.rotate_at.map_or(Ok(()), |size| at_least(size, 4 << 10));
    help "Size at which a recorded file (offsets, global_windows, windows, probes) is closed with a number, as in \
        offsets.000001.jsonl, and a new one is started; all commands read both. none turns this off" shown;

    /// Bytes kept of each recorded file over all its segments; `None`: all.
    keep_bytes: Option<u64> = None; local "keep_bytes" "keep-bytes" "SIZE" in Output;
    read size; write |c| size_text(c.keep_bytes);
    check |c| c.keep_bytes.map_or(Ok(()), |size| at_least(size, 64 << 10));
    help "Keep at most this much of each recorded file, for example 20GiB; older segments are removed and counted in report.json. \
        none keeps everything" shown;

    /// One in this many rounds is written to `global_windows.jsonl`.
    keep_every: u64 = 1; local "keep_every" "keep-every" "ROUNDS" in Output;
    read number; write |c| c.keep_every.to_string();
    check |c| if c.keep_every > 0 { Ok(()) } else { Err("must be at least 1".into()) };
    help "Write every N-th round to global_windows.jsonl, and every round with a clock or path event" shown;

    /// Directory in which every rank records its own activity; `None`: not recorded.
    record: Option<PathBuf> = None; local "record" "record" "DIR" in Output;
    read |text: &str| Ok::<_, String>(Some(PathBuf::from(text)));
    write |c| or_none(c.record.as_ref().map(|path| path.display())); check |_| Ok(());
    help "Record this run's own activity on every rank (windows, fits, gathers, broadcasts) in DIR/nodeN.rec, readable with \
        probe_sync record even after a kill";

    /// Write every raw exchange.
    keep_probes: bool = false; shared "keep_probes" "keep-probes" "" in Output;
    read number; write |c| c.keep_probes.to_string(); check |_| Ok(());
    help "Write every raw exchange to probes/nodeN.jsonl";

    /// Address at which rank 0 serves its metrics over HTTP; `None`: not served.
    metrics_listen: Option<SocketAddr> = None; local "metrics_listen" "metrics-listen" "ADDRESS:PORT" in Output;
    read |text| listening_address(text).map(Some); write |c| or_none(c.metrics_listen); check |_| Ok(());
    help "Serve metrics over HTTP on rank 0, without authentication, for example at 127.0.0.1:9464. They are always written to \
        metrics.prom [default: none]";

    /// Address to probe from; `None`: automatic.
    bind: Option<IpAddr> = None; local "bind" "bind" "ADDRESS" in Host;
    read |text| own_address(text).map(Some); write |c| or_auto(c.bind); check |_| Ok(());
    help "Address to probe from [default: chosen from the route to rank 0]";

    /// UDP port to probe from; 0: chosen by the system.
    port: u16 = 0; local "port" "port" "PORT" in Host;
    read number; write |c| c.port.to_string(); check |_| Ok(());
    help "UDP port to probe from. 0 lets the system choose" shown;

    /// Interface to probe from; `None`: automatic.
    interface: Option<String> = None; local "interface" "interface" "NAME" in Host;
    read |text: &str| Ok::<_, String>(Some(text.to_owned())); write |c| or_auto(c.interface.clone()); check |_| Ok(());
    help "Network interface to probe from";

    /// Name and identity of this host; `None`: those of the system.
    host: Option<String> = None; local "host" "host" "NAME" in Host;
    read |text: &str| Ok::<_, String>(Some(text.to_owned())); write |c| or_auto(c.host.clone()); check |_| Ok(());
    help "Name and identity of this host [default: the system's]";

    /// File with the secret of the run; `None`: no secret.
    key_file: Option<PathBuf> = None; local "key_file" "key-file" "FILE" in Host;
    read |text: &str| Ok::<_, String>(Some(PathBuf::from(text)));
    write |c| or_none(c.key_file.as_ref().map(|path| path.display())); check |_| Ok(());
    help "File with mode 600 that contains a secret of at least 32 bytes, the same on all hosts, which authenticates ranks and \
        packets. Required if probes cross public networks";

    /// Pin the probe thread to processors near its network interface.
    pin: bool = true; local "pin" "pin" "BOOL" in Host;
    read number; write |c| c.pin.to_string(); check |_| Ok(());
    help "Pin the probe thread near its network interface: true or false" shown;

    /// Seed of virtual clocks laid over the real ones; `None`: measure the real clocks.
    inject_skew: Option<u64> = None; shared "inject_skew" "inject-skew" "SEED" in Truth;
    read |text| number(text).map(Some); write |c| or_none(c.inject_skew); check |_| Ok(());
    help "Add known clock errors, drawn from this seed, to packet timestamps, and compare the result with the truth";

    /// Limit of the virtual offsets, in both directions.
    skew_offset: Duration = Duration::from_ms(10); shared "skew_offset" "skew-offset" "DURATION" in Truth;
    read duration; write |c| text_of(c.skew_offset);
    check |c| within(c.skew_offset, Duration::from_ms(0), Duration::from_ms(86_400_000));
    help "Range of the injected offsets: ± this time" shown;

    /// Limit of the virtual rates, in both directions, ppm.
    skew_ppm: f64 = 50.0; shared "skew_ppm" "skew-ppm" "PPM" in Truth;
    read number; write |c| c.skew_ppm.to_string();
    check |c| if c.skew_ppm.is_finite() && (0.0..=400.0).contains(&c.skew_ppm) { Ok(()) } else {
        Err("must be between 0 and 400; real clocks stay below 500".into())
    };
    help "Range of the injected rates: ± this many ppm" shown;

    /// Errors of virtual clocks in addition to an offset and a rate.
    skew_model: SkewModel = SkewModel::Constant; shared "skew_model" "skew-model" "MODEL" in Truth;
    read |text| choice(text, &SkewModel::ALL); write |c| c.skew_model.name().into(); check |_| Ok(());
    help "How injected errors vary beyond offset and rate: constant, sinusoid or steps" shown;

    /// A step of one node's virtual clock.
    inject_step: Option<InjectedStep> = None; shared "inject_step" "inject-step" "NODE@AFTER:STEP" in Truth;
    read |text| injected_step(text).map(Some); write |c| or_none(c.inject_step); check |_| Ok(());
    help "Step one node's clock once, for example 3@5s:1ms";
}

/// Longest gap between exchanges.
pub(super) const CADENCE_MAX: Duration = Duration::from_ms(60_000);
/// Milliseconds between snapshot pairs.
const PAIR_PERIODS: std::ops::RangeInclusive<i64> = 1..=3_600_000;
