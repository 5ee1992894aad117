//! Configuration: every key once, with its meaning, its default and who must agree on it.
//!
//! A value comes from, in this order, a flag, the environment (`PROBE_SYNC_<KEY>`), a TOML or JSON file, the
//! default. All four pass through [`Config::set`], so that one text means the same everywhere and an error names
//! where the value came from. Unknown keys are errors. Ranks compare [`Config::shared_entries`] before they start.
//!
//! What it does not do: parse command lines (crate `cli`), check that an address exists (crate `sys`).

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use probe_sync_estimate::edge_fit::FitMethod;
use probe_sync_estimate::pacing::{Budget, PacingOptions};
use probe_sync_sys::TracerClockName;
use probe_sync_sys::udp::TimestampMode;
use probe_sync_time::{Duration, NodeId};

use crate::Error;
use crate::truth::{self, SkewModel};

/// All settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How long to run; `None` until a signal.
    pub duration: Option<Duration>,
    /// Length of a window.
    pub window: Duration,
    /// Gap between exchanges started by one host, shared by its ranks and edges in turn.
    pub cadence: Duration,
    /// Adapt cadence and edges to the target.
    pub adaptive: bool,
    /// Half-width of every node's 95 % interval to aim at; asks for adaptive probing by itself.
    pub target_error: Option<Duration>,
    /// Bits per second that a host may send for probing, UDP and IPv4 headers and answers included.
    pub budget_bps: Option<f64>,
    /// Share of one core that probing may take on a host.
    pub budget_cpu: Option<f64>,
    /// Time between the two packets of a coded pair.
    pub spacing: Duration,
    /// An exchange not finished after this long counts as lost.
    pub exchange_timeout: Duration,
    /// How long a round waits for a rank.
    pub round_timeout: Duration,
    /// Edges per node; `None` means min(10, nodes − 1).
    pub neighbors: Option<u32>,
    /// Seed of the probing graph.
    pub seed: u64,
    /// How an edge's line is fitted.
    pub fit: FitMethod,
    /// Which timestamps to use.
    pub timestamps: TimestampMode,
    /// Every rank is a node, even where ranks share a host's clock.
    pub per_rank: bool,
    /// Write every raw exchange.
    pub keep_probes: bool,
    /// The profiler's clock, to take snapshot pairs of; `None` takes none.
    pub tracer_clock: Option<TracerClockName>,
    /// Time between snapshot pairs.
    pub snapshot_pair_period: Duration,
    /// Seed of the virtual clocks laid over the real ones; `None` measures the real clocks.
    pub inject_skew: Option<u64>,
    /// Virtual offsets are drawn within ± this.
    pub skew_offset: Duration,
    /// Virtual rates are drawn within ± this, ppm.
    pub skew_ppm: f64,
    /// What virtual clocks do beside being wrong by an offset and a rate.
    pub skew_model: SkewModel,
    /// A step of one node's virtual clock.
    pub inject_step: Option<InjectedStep>,
    /// Where the run's files go.
    pub out: PathBuf,
    /// Address to probe from; `None` chooses.
    pub bind: Option<IpAddr>,
    /// UDP port to probe from; 0 lets the system choose.
    pub port: u16,
    /// Interface to probe from; `None` chooses.
    pub interface: Option<String>,
    /// Name and identity of this host; `None` asks the system.
    pub host: Option<String>,
    /// Pin the probe thread to the processors near its network interface.
    pub pin: bool,
}

/// `NODE@AFTER:STEP`, as in `3@5s:1ms` or `3@5s:-200us`: the virtual clock of a node jumps.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct InjectedStep {
    /// Whose clock.
    pub node: NodeId,
    /// When, since the run's start.
    pub after: Duration,
    /// By how much.
    pub step: Duration,
}

/// One key of the configuration.
#[derive(Copy, Clone, Debug)]
pub struct Key {
    /// The name in files; `PROBE_SYNC_` and upper case in the environment; `--` and dashes as a flag.
    pub name: &'static str,
    /// True when ranks may differ in it.
    pub local: bool,
    /// What it means.
    pub help: &'static str,
}

/// Every key there is.
pub const KEYS: &[Key] = &[
    shared("duration", "how long to run, as in 12s or 10min; without it until Ctrl-C or SIGTERM"),
    shared("window", "length of a measuring window; each window gives one offset per node (default 4s)"),
    shared("probe_cadence", "gap between exchanges started by one host, shared by its ranks (default 800us)"),
    shared("adaptive", "adapt cadence and edges so that the target is met at least cost (default false)"),
    shared(
        "target_error",
        "wanted half-width of the 95 % intervals, as in 200ns; asks for adaptive (default 1us then)",
    ),
    shared(
        "budget_bps",
        "bits per second that a host may send when adaptive, headers included, as in 5M (default none)",
    ),
    shared("budget_cpu", "share of one core that probing may take on a host when adaptive (default 0.2)"),
    shared("spacing", "time between the two packets of a coded pair (default 100us)"),
    shared("exchange_timeout", "an exchange not finished after this long counts as lost (default 100ms)"),
    shared("round_timeout", "how long a round waits for a rank before it names it and ends (default 10s)"),
    shared("neighbors", "edges per node in the probing graph (default: 10, or nodes − 1)"),
    shared("seed", "seed of the probing graph (default 1)"),
    shared("fit", "how an edge's line is fitted: hull, svm or min-rtt (default hull)"),
    shared("timestamps", "auto, hardware, kernel or user (default auto)"),
    shared("per_rank", "every rank is a node, even where ranks share a host's clock (default false)"),
    shared("keep_probes", "write every raw exchange to probes/nodeN.jsonl (default false)"),
    shared("snapshot_pair_period_ms", "milliseconds between pairs of tracer clock and system clock (default 4000)"),
    shared("inject_skew", "seed of virtual clocks laid over the real ones, to test against known truth"),
    shared("skew_offset", "virtual offsets are drawn within ± this (default 10ms)"),
    shared("skew_ppm", "virtual rates are drawn within ± this many ppm (default 50)"),
    shared("skew_model", "what virtual clocks do beside that: constant, sinusoid or steps (default constant)"),
    shared("inject_step", "NODE@AFTER:STEP, as in 3@5s:1ms: that node's virtual clock jumps"),
    local(
        "tracer_clock",
        "the profiler's clock: monotonic, monotonic_raw, boottime, tsc, rocprofiler, cupti or none (default boottime)",
    ),
    local("out", "directory for the run's files (default probe_sync_out)"),
    local("bind", "address to probe from (default: chosen from the route to rank 0)"),
    local("port", "UDP port to probe from (default 0: the system chooses)"),
    local("interface", "network interface to probe from"),
    local("host", "name and identity of this host (default: ask the system)"),
    local("pin", "pin the probe thread near its network interface (default true)"),
];

/// Prefix of the environment variables.
pub const ENVIRONMENT_PREFIX: &str = "PROBE_SYNC_";

const fn shared(name: &'static str, help: &'static str) -> Key {
    Key { name, local: false, help }
}

const fn local(name: &'static str, help: &'static str) -> Key {
    Key { name, local: true, help }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            duration: None,
            window: Duration::from_ms(4_000),
            cadence: Duration::from_us(800),
            adaptive: false,
            target_error: None,
            budget_bps: None,
            budget_cpu: None,
            spacing: Duration::from_us(100),
            exchange_timeout: Duration::from_ms(100),
            round_timeout: Duration::from_ms(10_000),
            neighbors: None,
            seed: 1,
            fit: FitMethod::Hull,
            timestamps: TimestampMode::Auto,
            per_rank: false,
            keep_probes: false,
            tracer_clock: Some(TracerClockName::Boottime),
            snapshot_pair_period: Duration::from_ms(4_000),
            inject_skew: None,
            skew_offset: Duration::from_ms(10),
            skew_ppm: 50.0,
            skew_model: SkewModel::default(),
            inject_step: None,
            out: PathBuf::from("probe_sync_out"),
            bind: None,
            port: 0,
            interface: None,
            host: None,
            pin: true,
        }
    }
}

impl Config {
    /// The defaults, overridden by `file` (TOML, or JSON when its name ends so), then by the environment, then by
    /// `flags` (key and text).
    ///
    /// # Errors
    /// Names the place, the key and what is wrong with the value.
    pub fn load(
        file: Option<&Path>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        flags: &[(String, String)],
    ) -> Result<Self, Error> {
        let mut config = Self::default();
        if let Some(path) = file {
            for (key, value) in read_file(path)? {
                config.set(&key, &value, &path.display().to_string())?;
            }
        }
        for (name, value) in environment {
            // Other programs' variables may be anything; ours are text.
            let Some(name) = name.to_str().filter(|name| name.starts_with(ENVIRONMENT_PREFIX)) else { continue };
            let key = &name[ENVIRONMENT_PREFIX.len()..];
            let value = value.to_string_lossy();
            if !RESERVED_ENVIRONMENT.contains(&key) {
                config.set(&key.to_lowercase(), &value, &format!("environment variable {name}"))?;
            }
        }
        for (key, value) in flags {
            config.set(key, value, &format!("--{}", flag_name(key)))?;
        }
        if let Some(duration) = config.duration {
            // A run shorter than a window is one window.
            config.window = config.window.min(duration);
        }
        if let Some(pacing) = config.pacing() {
            // The budget holds from the first window on.
            config.cadence = config.cadence.max(Duration::from_ns(pacing.budget.cadence_min_ns()));
        }
        config.check()?;
        Ok(config)
    }

    /// Sets one key from its text. `origin` says in errors where the text came from.
    ///
    /// # Errors
    /// [`Error::Configuration`] for an unknown key or an unusable value.
    pub fn set(&mut self, key: &str, text: &str, origin: &str) -> Result<(), Error> {
        let wrong = |reason: String| Error::Configuration { origin: origin.into(), key: key.into(), reason };
        let result = match key {
            "duration" => positive(text).map(|v| self.duration = Some(v)),
            "window" => positive(text).map(|v| self.window = v),
            "probe_cadence" => positive(text).map(|v| self.cadence = v),
            // The older, numeric spelling of the design documents.
            "probe_cadence_us" => positive(&format!("{text}us")).map(|v| self.cadence = v),
            "adaptive" => number(text).map(|v| self.adaptive = v),
            "target_error" => positive(text).map(|v| self.target_error = Some(v)),
            "budget_bps" => rate(text).map(|v| self.budget_bps = Some(v)),
            "budget_cpu" => rate(text).map(|v| self.budget_cpu = Some(v)),
            "spacing" => positive(text).map(|v| self.spacing = v),
            "exchange_timeout" => positive(text).map(|v| self.exchange_timeout = v),
            "round_timeout" => positive(text).map(|v| self.round_timeout = v),
            "neighbors" => number(text).map(|v| self.neighbors = Some(v)),
            "seed" => number(text).map(|v| self.seed = v),
            "fit" => choice(text, &FIT_METHODS).map(|v| self.fit = v),
            "timestamps" => choice(text, &TIMESTAMP_MODES).map(|v| self.timestamps = v),
            "per_rank" => number(text).map(|v| self.per_rank = v),
            "keep_probes" => number(text).map(|v| self.keep_probes = v),
            "tracer_clock" => tracer_clock(text).map(|v| self.tracer_clock = v),
            "snapshot_pair_period_ms" => {
                number(text).map(|v: u32| self.snapshot_pair_period = Duration::from_ms(v.into()))
            }
            "inject_skew" => number(text).map(|v| self.inject_skew = Some(v)),
            "skew_offset" => duration(text).map(|v| self.skew_offset = v),
            "skew_ppm" => number(text).map(|v| self.skew_ppm = v),
            "skew_model" => choice(text, &SkewModel::ALL).map(|v| self.skew_model = v),
            "inject_step" => injected_step(text).map(|v| self.inject_step = Some(v)),
            "out" => Ok(PathBuf::from(text)).map(|v| self.out = v),
            "bind" => own_address(text).map(|v| self.bind = Some(v)),
            "port" => number(text).map(|v| self.port = v),
            "interface" => Ok(text.to_owned()).map(|v| self.interface = Some(v)),
            "host" => Ok(text.to_owned()).map(|v| self.host = Some(v)),
            "pin" => number(text).map(|v| self.pin = v),
            _ => Err(format!("unknown key; known: {}", known_keys())),
        };
        result.map_err(wrong)
    }

    /// What adaptive probing shall reach and may cost; `None` when the pace is fixed.
    pub fn pacing(&self) -> Option<PacingOptions> {
        if !self.adaptive && self.target_error.is_none() {
            return None;
        }
        let configured = Budget::cpu_share_of(self.cadence.as_ns());
        // Whoever asks for a fast cadence asks for its cost.
        let cpu_share = self.budget_cpu.or(self.budget_bps.is_none().then(|| configured.max(BUDGET_CPU)));
        Some(PacingOptions {
            target_ns: self.target_error.unwrap_or(TARGET_ERROR).as_ns_f64(),
            cadence_ns: self.cadence.as_ns(),
            budget: Budget { bits_per_second: self.budget_bps, cpu_share },
        })
    }

    /// Keys on which all ranks must agree, with their values as text.
    pub fn shared_entries(&self) -> Vec<(String, String)> {
        KEYS.iter().filter(|key| !key.local).map(|key| (key.name.to_owned(), self.text(key.name))).collect()
    }

    /// All keys with their values as text, as `run.json` records them.
    pub fn entries(&self) -> Vec<(String, String)> {
        KEYS.iter().map(|key| (key.name.to_owned(), self.text(key.name))).collect()
    }

    fn text(&self, key: &str) -> String {
        let optional = |value: Option<String>| value.unwrap_or_else(|| "auto".into());
        match key {
            "duration" => self.duration.map_or_else(|| "until stopped".into(), text_of),
            "window" => text_of(self.window),
            "probe_cadence" => text_of(self.cadence),
            "adaptive" => self.pacing().is_some().to_string(),
            "target_error" => self.target_error.map_or_else(|| "none".into(), text_of),
            "budget_bps" => self.budget_bps.map_or_else(|| "none".into(), |v| v.to_string()),
            "budget_cpu" => optional(self.budget_cpu.map(|v| v.to_string())),
            "spacing" => text_of(self.spacing),
            "exchange_timeout" => text_of(self.exchange_timeout),
            "round_timeout" => text_of(self.round_timeout),
            "neighbors" => optional(self.neighbors.map(|n| n.to_string())),
            "seed" => self.seed.to_string(),
            "fit" => name_of(self.fit, &FIT_METHODS).into(),
            "timestamps" => name_of(self.timestamps, &TIMESTAMP_MODES).into(),
            "per_rank" => self.per_rank.to_string(),
            "keep_probes" => self.keep_probes.to_string(),
            "tracer_clock" => self.tracer_clock.map_or(NO_TRACER_CLOCK, TracerClockName::as_str).into(),
            "snapshot_pair_period_ms" => (self.snapshot_pair_period.as_ns() / 1_000_000).to_string(),
            "inject_skew" => self.inject_skew.map_or_else(|| "none".into(), |seed| seed.to_string()),
            "skew_offset" => text_of(self.skew_offset),
            "skew_ppm" => self.skew_ppm.to_string(),
            "skew_model" => self.skew_model.name().into(),
            "inject_step" => self
                .inject_step
                .map_or_else(|| "none".into(), |s| format!("{}@{}:{}", s.node, text_of(s.after), text_of(s.step))),
            "out" => self.out.display().to_string(),
            "bind" => optional(self.bind.map(|address| address.to_string())),
            "port" => self.port.to_string(),
            "interface" => optional(self.interface.clone()),
            "host" => optional(self.host.clone()),
            "pin" => self.pin.to_string(),
            unknown => unreachable!("KEYS holds {unknown}, text() does not"),
        }
    }

    fn check(&self) -> Result<(), Error> {
        let wrong = |key: &str, reason: &str| {
            Err(Error::Configuration { origin: "configuration".into(), key: key.into(), reason: reason.into() })
        };
        if self.pacing().is_some_and(|pacing| pacing.budget.cadence_min_ns() > CADENCE_MAX.as_ns()) {
            return wrong("budget_bps or budget_cpu", "allows less than one exchange per minute; raise it");
        }
        for (key, value, least, most) in self.limits() {
            if value < least || value > most {
                return wrong(key, &format!("must lie within {} and {}", text_of(least), text_of(most)));
            }
        }
        if self.window.as_ns() / self.cadence.as_ns() > MAX_EXCHANGES_PER_WINDOW {
            return wrong("window", "brings more than a million exchanges; take a shorter window or a longer cadence");
        }
        if self.pacing().is_none() && (self.budget_bps.is_some() || self.budget_cpu.is_some()) {
            return wrong("budget_bps or budget_cpu", "limits adaptive probing; add --target-error, or set --cadence");
        }
        let fastest = self.pacing().map_or(self.cadence.as_ns(), |pacing| pacing.budget.cadence_min_ns());
        if self.window.as_ns() / fastest > MAX_EXCHANGES_PER_WINDOW {
            return wrong(
                "budget",
                "allows more than a million exchanges per window; take a shorter window or less budget",
            );
        }
        let pair_period = Duration::from_ms(1)..=Duration::from_ms(MAX_PAIR_PERIOD_MS);
        if !pair_period.contains(&self.snapshot_pair_period) {
            return wrong("snapshot_pair_period_ms", "must lie within 1 and 3600000 (an hour)");
        }
        if !(self.skew_ppm.is_finite() && (0.0..=400.0).contains(&self.skew_ppm)) {
            return wrong("skew_ppm", "must lie within 0 and 400; real clocks stay below 500");
        }
        if self.spacing.as_ns() * 2 > self.exchange_timeout.as_ns() {
            return wrong("spacing", "more than half of exchange_timeout; no exchange could finish");
        }
        if self.inject_step.is_some_and(|step| step.node == truth::REFERENCE) {
            return wrong("inject_step", "names node 0, the reference, which has no virtual clock");
        }
        if self.inject_step.is_some() && self.inject_skew.is_none() {
            return wrong("inject_step", "needs --inject-skew: only a virtual clock can be stepped");
        }
        let windows = self.duration.map_or(i64::MAX, |duration| duration.as_ns() / self.window.as_ns());
        if windows < self.skew_model.fewest_windows() {
            return wrong(
                "skew_model",
                "steps keep a window away from both ends; give --duration three windows or more",
            );
        }
        if self.skew_model != SkewModel::Constant && self.inject_skew.is_none() {
            return wrong("skew_model", "needs --inject-skew: only a virtual clock can swing or step");
        }
        Ok(())
    }

    /// What a duration may be at least and at most: above, nothing could be measured; below, the network floods.
    fn limits(&self) -> [(&'static str, Duration, Duration, Duration); 6] {
        let (us, ms) = (Duration::from_us, Duration::from_ms);
        [
            ("window", self.window, ms(100), ms(3_600_000)),
            ("probe_cadence", self.cadence, us(20), CADENCE_MAX),
            ("spacing", self.spacing, us(1), ms(1_000)),
            ("exchange_timeout", self.exchange_timeout, ms(1), ms(10_000)),
            ("round_timeout", self.round_timeout, ms(100), ms(86_400_000)),
            ("skew_offset", self.skew_offset, ms(0), ms(86_400_000)),
        ]
    }
}

/// A duration with its unit, possibly negative, as in `800us`, `2s`, `-1ms`.
///
/// # Errors
/// Says what is wrong with the text.
pub fn duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let (sign, rest) = trimmed.strip_prefix('-').map_or((1, trimmed), |rest| (-1, rest));
    let span = humantime::parse_duration(rest)
        .map_err(|error| format!("\"{text}\": {error}; write a number with its unit, as in 800us, 2s, 10min"))?;
    let ns = i64::try_from(span.as_nanos()).map_err(|_| format!("\"{text}\" is longer than 292 years"))?;
    Ok(Duration::from_ns(sign * ns))
}

/// The spelling of a key as a flag: `probe_cadence` is `--cadence`, the others take dashes for underscores.
pub fn flag_name(key: &str) -> String {
    key.trim_start_matches("probe_").replace('_', "-")
}

/// Variables with our prefix that are no configuration keys: the log filter, and what `--local` hands to its children.
const RESERVED_ENVIRONMENT: [&str; 6] = ["LOG", "CONFIG", "MASTER_PORT", "JOB", "PARENT", "RENDEZVOUS_TIMEOUT"];
const MAX_PAIR_PERIOD_MS: i64 = 3_600_000;
const NO_TRACER_CLOCK: &str = "none";
const CADENCE_MAX: Duration = Duration::from_ms(60_000);
/// The target of `--adaptive` without one.
const TARGET_ERROR: Duration = Duration::from_us(1);
/// The budget where none is given: the default cadence takes 0.165.
const BUDGET_CPU: f64 = 0.2;
/// As many as the probe thread keeps.
const MAX_EXCHANGES_PER_WINDOW: i64 = 1 << 20;

const FIT_METHODS: [(&str, FitMethod); 3] =
    [("hull", FitMethod::Hull), ("svm", FitMethod::Svm), ("min-rtt", FitMethod::MinRtt)];
const TIMESTAMP_MODES: [(&str, TimestampMode); 4] = [
    ("auto", TimestampMode::Auto),
    ("hardware", TimestampMode::Hardware),
    ("kernel", TimestampMode::Kernel),
    ("user", TimestampMode::User),
];

fn known_keys() -> String {
    KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        format!("\"{text}\" is none of {}", names.join(", "))
    })
}

fn tracer_clock(text: &str) -> Result<Option<TracerClockName>, String> {
    if text == NO_TRACER_CLOCK {
        return Ok(None);
    }
    choice(text, &TracerClockName::ALL).map(Some).map_err(|error| format!("{error}, {NO_TRACER_CLOCK}"))
}

fn name_of<T: Copy + PartialEq>(value: T, choices: &[(&'static str, T)]) -> &'static str {
    choices.iter().find(|(_, candidate)| *candidate == value).map_or("?", |(name, _)| name)
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|error| format!("\"{text}\": {error}"))
}

fn positive(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|d| if d > Duration::ZERO { Ok(d) } else { Err(format!("\"{text}\" is not above zero")) })
}

fn text_of(span: Duration) -> String {
    let size = humantime::format_duration(std::time::Duration::from_nanos(span.as_ns().unsigned_abs()));
    format!("{}{size}", if span < Duration::ZERO { "-" } else { "" })
}

/// A number above zero, with k or M for thousands or millions, or in per cent.
fn rate(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let units = [('k', 1e3), ('M', 1e6), ('G', 1e9), ('%', 0.01)];
    let unit = units.into_iter().find_map(|(unit, factor)| trimmed.strip_suffix(unit).map(|rest| (rest, factor)));
    let (digits, factor) = unit.unwrap_or((trimmed, 1.0));
    let value: f64 = number::<f64>(digits)? * factor;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(format!("\"{text}\" is not above zero")) }
}

/// An address that peers can send to.
fn own_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = number(text)?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!("\"{text}\" is no address that peers could send to; give one of this host's own"));
    }
    Ok(address)
}

fn injected_step(text: &str) -> Result<InjectedStep, String> {
    let parts = text.split_once('@').and_then(|(node, rest)| rest.split_once(':').map(|(at, step)| (node, at, step)));
    let (node, after, step) = parts.ok_or_else(|| format!("\"{text}\": write NODE@AFTER:STEP, as in 3@5s:1ms"))?;
    Ok(InjectedStep { node: NodeId(number(node)?), after: positive(after)?, step: duration(step)? })
}

fn read_file(path: &Path) -> Result<Vec<(String, String)>, Error> {
    let wrong = |reason: String| Error::ConfigurationFile { path: path.into(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let json = path.extension().is_some_and(|extension| extension == "json");
    let table: serde_json::Map<String, serde_json::Value> = if json {
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
    } else {
        toml::from_str(&text).map_err(|error| wrong(error.to_string()))?
    };
    table
        .into_iter()
        .map(|(key, value)| match value {
            serde_json::Value::String(text) => Ok((key, text)),
            serde_json::Value::Number(number) => Ok((key, number.to_string())),
            serde_json::Value::Bool(flag) => Ok((key, flag.to_string())),
            other => Err(wrong(format!("key {key}: expected a text, a number or true/false, found {other}"))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)], expected: Result<(&str, &str), &str>) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("probe_sync.toml");
        std::fs::write(&path, file).expect("a writable directory");
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let environment = own(environment).into_iter().map(|(name, value)| (name.into(), value.into()));
        let loaded = Config::load(Some(&path), environment, &own(flags));
        match (loaded, expected) {
            (Ok(config), Ok((key, value))) => assert_eq!(config.text(key), value),
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error} lacks {part}"),
            (Ok(config), Err(part)) => panic!("{config:?} accepted, expected an error with {part}"),
            (Err(error), Ok(_)) => panic!("{error}"),
        }
    }

    #[test]
    fn precedence_is_flag_environment_file_default() {
        let environment = [("PROBE_SYNC_WINDOW", "3s"), ("HOME", "/"), ("PROBE_SYNC_LOG", "debug")];
        check("", &[], &[], Ok(("window", "4s")));
        check("window = '2s'", &[], &[], Ok(("window", "2s")));
        check("window = '2s'", &environment, &[], Ok(("window", "3s")));
        check("window = '2s'", &environment, &[("window", "1s")], Ok(("window", "1s")));
        check("probe_cadence_us = 400", &[], &[], Ok(("probe_cadence", "400us")));
        check("keep_probes = true", &[], &[], Ok(("keep_probes", "true")));
        check("", &[], &[("duration", "1s")], Ok(("window", "1s")));
        check("", &[], &[], Ok(("tracer_clock", "boottime")));
        check("tracer_clock = 'tsc'", &[], &[("tracer_clock", "none")], Ok(("tracer_clock", "none")));
        let period = [("PROBE_SYNC_SNAPSHOT_PAIR_PERIOD_MS", "250")];
        check("snapshot_pair_period_ms = 2000", &period, &[], Ok(("snapshot_pair_period_ms", "250")));
        check("inject_skew = 7", &[], &[("inject_step", "3@5s:-200us")], Ok(("inject_step", "3@5s:-200us")));
    }

    #[test]
    fn a_budget_holds_from_the_first_window_on() {
        let target = ("target_error", "200ns");
        check("", &[], &[target], Ok(("adaptive", "true")));
        check("", &[], &[target], Ok(("probe_cadence", "800us")));
        // 6 packets of 88 bytes are 4224 bits.
        check("", &[], &[target, ("budget_bps", "1.056M")], Ok(("probe_cadence", "4ms")));
        // 6 packets of 22 µs are 132 µs.
        check("", &[], &[("adaptive", "true"), ("budget_cpu", "1%")], Ok(("probe_cadence", "13ms 200us")));
        check("", &[], &[target, ("probe_cadence", "100us")], Ok(("probe_cadence", "100us")));
    }

    #[test]
    fn errors_name_place_key_and_remedy() {
        check("windw = '2s'", &[], &[], Err("unknown key"));
        check("window = '2s'", &[], &[("window", "2")], Err("--window"));
        check("", &[("PROBE_SYNC_NEIGHBOURS", "3")], &[], Err("PROBE_SYNC_NEIGHBOURS"));
        check("", &[], &[("probe_cadence", "-1s")], Err("--cadence"));
        check("window = [1]", &[], &[], Err("key window"));
        check("window = ", &[], &[], Err("probe_sync.toml"));
        check("", &[], &[("window", "1ms")], Err("100ms"));
        check("", &[], &[("window", "250years")], Err("must lie within"));
        check("", &[], &[("window", "30min"), ("probe_cadence", "20us")], Err("million exchanges"));
        check("", &[], &[("bind", "0.0.0.0")], Err("peers could send to"));
        check("", &[], &[("inject_skew", "1"), ("inject_step", "0@5s:1ms")], Err("the reference"));
        check("", &[], &[("tracer_clock", "sundial")], Err("cupti, none"));
        check("snapshot_pair_period_ms = 0", &[], &[], Err("3600000"));
        check("", &[], &[("snapshot_pair_period_ms", "4s")], Err("--snapshot-pair-period-ms"));
        check("", &[], &[("fit", "magic")], Err("hull, svm, min-rtt"));
        check("", &[], &[("inject_step", "3@5s:1ms")], Err("--inject-skew"));
        check("", &[], &[("budget_bps", "1M")], Err("--target-error"));
        check("", &[], &[("target_error", "1us"), ("budget_cpu", "-1")], Err("above zero"));
        check("", &[], &[("target_error", "1us"), ("budget_bps", "50")], Err("per minute"));
        check("", &[], &[("target_error", "1us"), ("budget_cpu", "900%"), ("window", "1min")], Err("less budget"));
        check("", &[], &[("skew_model", "sinusoid")], Err("--inject-skew"));
        check("", &[], &[("inject_skew", "1"), ("skew_model", "wild")], Err("constant, sinusoid, steps"));
        check("duration = '8s'", &[], &[("inject_skew", "1"), ("skew_model", "steps")], Err("three windows"));
    }
}
