//! Parsing and formatting of single values: durations, rates, choices, addresses.
//!
//! The table of settings uses these. Every parser explains the error in the text; the caller adds
//! where the text came from.

use std::net::{IpAddr, SocketAddr};

use bytesize::ByteSize;
use probe_sync_estimate::edge_fit::FitMethod;
use probe_sync_global_clock::Adjust;
use probe_sync_sys::TracerClockName;
use probe_sync_sys::udp::TimestampMode;
use probe_sync_time::{Duration, NodeId};

/// `NODE@AFTER:STEP`, as in `3@5s:1ms` or `3@5s:-200us`: a step of a node's virtual clock.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct InjectedStep {
    /// Node whose clock steps.
    pub node: NodeId,
    /// Time since the run's start.
    pub after: Duration,
    /// Size of the step.
    pub step: Duration,
}

/// Round mode.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RoundMode {
    /// The master gathers all windows, solves, decides, and informs the others.
    Master,
    /// Every node cuts its windows by its own clock, all windows go to all ranks, and every rank
    /// solves.
    Timed,
    /// No rounds: every node writes its windows to files.
    Local,
}

impl RoundMode {
    /// Returns the text that is parsed to this value.
    pub fn name(self) -> &'static str {
        name_of(self, &ROUND_MODES)
    }

    /// Returns true if the run has rounds at all.
    pub fn has_rounds(self) -> bool {
        self != Self::Local
    }

    /// Returns true if one rank solves and decides for all.
    pub fn has_master(self) -> bool {
        self == Self::Master
    }

    /// Returns true if every rank solves the same windows.
    pub fn all_solve(self) -> bool {
        self == Self::Timed
    }
}

pub(super) const ROUND_MODES: [(&str, RoundMode); 3] =
    [("master", RoundMode::Master), ("timed", RoundMode::Timed), ("local", RoundMode::Local)];

/// Choice of the reference node: a number, or `auto`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ReferenceChoice {
    /// This node.
    Node(NodeId),
    /// The node with the best timestamps; the first among equals.
    Auto,
}

/// Counter of the global clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ClockCounter {
    /// `CLOCK_MONOTONIC_RAW`.
    Raw,
    /// The processor's time-stamp counter.
    Tsc,
}

/// Choice of the tracer clock for snapshot pairs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TracerClockChoice {
    /// The clock that traces on this host probably use.
    Auto,
    /// No pairs.
    None,
    /// This one.
    Named(TracerClockName),
}

impl TracerClockChoice {
    /// Returns the text that is parsed to this value.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Named(name) => name.as_str(),
        }
    }
}

impl std::fmt::Display for ReferenceChoice {
    /// Writes the text that is parsed to this value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(node) => write!(f, "{node}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl std::fmt::Display for InjectedStep {
    /// Writes the text that is parsed to this value.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}:{}", self.node, text_of(self.after), text_of(self.step))
    }
}

/// Parses the name of a region, which is also the name of a folder.
///
/// # Errors
/// States what is wrong with the text.
pub(crate) fn region_name(text: &str) -> Result<String, String> {
    let usable = |letter: char| letter.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&letter);
    if text.is_empty() || text.len() > REGION_NAME_MAX || text.starts_with('.') || !text.chars().all(usable) {
        return Err(format!(
            "\"{}\" is not a region name: use 1 to {REGION_NAME_MAX} of a-z, A-Z, 0-9, - _ and ., not starting with a dot",
            text.escape_debug()
        ));
    }
    Ok(text.to_owned())
}

/// Parses a duration with its unit, possibly negative, such as `800us`, `2s`, `-1ms`.
///
/// # Errors
/// States what is wrong with the text.
pub fn duration(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    let (sign, rest) = trimmed.strip_prefix('-').map_or((1, trimmed), |rest| (-1, rest));
    let span = humantime::parse_duration(rest).map_err(|error| {
        format!("\"{text}\": {error}; write a number with its unit, for example 800us, 2s or 10min")
    })?;
    let ns = i64::try_from(span.as_nanos()).map_err(|_| format!("\"{text}\" is longer than 292 years"))?;
    Ok(Duration::from_ns(sign * ns))
}

pub(super) fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        format!("\"{text}\" is not one of {}", names.join(", "))
    })
}

pub(super) fn tracer_clock(text: &str) -> Result<TracerClockChoice, String> {
    let others = [TracerClockChoice::Auto, TracerClockChoice::None];
    if let Some(other) = others.into_iter().find(|other| other.text() == text) {
        return Ok(other);
    }
    let named = choice(text, &TracerClockName::ALL).map(TracerClockChoice::Named);
    named.map_err(|error| format!("{error}, {}", others.map(TracerClockChoice::text).join(", ")))
}

pub(super) fn name_of<T: Copy + PartialEq>(value: T, choices: &[(&'static str, T)]) -> &'static str {
    choices.iter().find(|(_, candidate)| *candidate == value).map_or("?", |(name, _)| name)
}

pub(super) fn number<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|error| format!("\"{text}\": {error}"))
}

pub(super) fn positive(text: &str) -> Result<Duration, String> {
    duration(text)
        .and_then(|d| if d > Duration::ZERO { Ok(d) } else { Err(format!("\"{text}\" is not greater than zero")) })
}

pub(super) fn text_of(span: Duration) -> String {
    let size = humantime::format_duration(std::time::Duration::from_nanos(span.as_ns().unsigned_abs()));
    format!("{}{size}", if span < Duration::ZERO { "-" } else { "" })
}

/// Parses a number above zero, with k or M for thousands or millions, or in per cent.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let trimmed = text.trim();
    let units = [('k', 1e3), ('M', 1e6), ('G', 1e9), ('%', 0.01)];
    let unit = units.into_iter().find_map(|(unit, factor)| trimmed.strip_suffix(unit).map(|rest| (rest, factor)));
    let (digits, factor) = unit.unwrap_or((trimmed, 1.0));
    let value: f64 = number::<f64>(digits)? * factor;
    if value.is_finite() && value > 0.0 { Ok(value) } else { Err(format!("\"{text}\" is not greater than zero")) }
}

pub(super) fn reference(text: &str) -> Result<ReferenceChoice, String> {
    match text.trim() {
        "auto" => Ok(ReferenceChoice::Auto),
        node => node
            .parse()
            .map(|node| ReferenceChoice::Node(NodeId(node)))
            .map_err(|_| format!("\"{text}\" is neither a node's number nor auto")),
    }
}

/// Parses node numbers separated by commas, with or without brackets, or `none` for no nodes, or
/// `auto`, which leaves the choice to the program.
pub(super) fn nodes(text: &str) -> Result<Option<Vec<NodeId>>, String> {
    let trimmed = text.trim();
    let inner = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(trimmed).trim();
    match (trimmed, inner) {
        ("auto", _) => return Ok(None),
        ("", _) => return Err("is an empty list; write none for no nodes".into()),
        (_, "" | "none") => return Ok(Some(Vec::new())),
        _ => {}
    }
    let node = |part: &str| part.trim().parse().map(NodeId).map_err(|_| part.to_owned());
    let found: Result<Vec<NodeId>, String> = inner.split(',').map(node).collect();
    found.map(Some).map_err(|part| format!("\"{part}\" is not a node number; write for example 1,2,5, or none"))
}

pub(super) fn nodes_text(nodes: &[NodeId]) -> String {
    let numbers: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    if numbers.is_empty() { "none".into() } else { numbers.join(",") }
}

/// Parses an address that peers can send to.
pub(super) fn own_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = number(text)?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!(
            "\"{text}\" is not an address that peers can send to; give one of this host's own addresses"
        ));
    }
    Ok(address)
}

/// Parses a number of bytes, such as `64MiB` or `400M`.
///
/// # Errors
/// Shows the expected form.
pub fn bytes(text: &str) -> Result<u64, String> {
    let size: Result<ByteSize, _> = text.trim().parse();
    size.map(|size| size.as_u64()).map_err(|_| format!("\"{text}\" is not a size; write for example 400M or 1GiB"))
}

/// Parses a number of bytes, such as `64MiB` or `1G`, or `none`.
pub(super) fn size(text: &str) -> Result<Option<u64>, String> {
    if text.trim() == "none" {
        return Ok(None);
    }
    bytes(text).map(Some).map_err(|_| format!("\"{text}\" is not a size; write for example 64MiB, 20GB or none"))
}

pub(super) fn size_text(size: Option<u64>) -> String {
    size.map_or_else(
        || "none".into(),
        |bytes| match bytes.trailing_zeros() / 10 {
            3.. => format!("{}GiB", bytes >> 30),
            2 => format!("{}MiB", bytes >> 20),
            1 => format!("{}KiB", bytes >> 10),
            0 => bytes.to_string(),
        },
    )
}

pub(super) fn at_least(bytes: u64, least: u64) -> Result<(), String> {
    if bytes >= least { Ok(()) } else { Err(format!("must be at least {}", size_text(Some(least)))) }
}

pub(super) fn listening_address(text: &str) -> Result<SocketAddr, String> {
    text.trim().parse().map_err(|_| {
        format!(
            "\"{text}\" is not ADDRESS:PORT; write for example 127.0.0.1:9464 or [::1]:9464, or \
        0.0.0.0:9464 for all interfaces"
        )
    })
}

pub(super) fn injected_step(text: &str) -> Result<InjectedStep, String> {
    let parts = text.split_once('@').and_then(|(node, rest)| rest.split_once(':').map(|(at, step)| (node, at, step)));
    let (node, after, step) =
        parts.ok_or_else(|| format!("\"{text}\": write NODE@AFTER:STEP, for example 3@5s:1ms"))?;
    Ok(InjectedStep { node: NodeId(number(node)?), after: positive(after)?, step: duration(step)? })
}

/// Formats a value, or `auto` if the program chooses it.
pub(super) fn or_auto<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "auto".into(), |value| value.to_string())
}

/// Formats a value, or `none` if there is none.
pub(super) fn or_none<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "none".into(), |value| value.to_string())
}

/// Checks the limits of a duration: above, nothing could be measured; below, the network would be
/// flooded.
pub(super) fn within(value: Duration, least: Duration, most: Duration) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("must be between {} and {}", text_of(least), text_of(most)))
}

pub(super) const FIT_METHODS: [(&str, FitMethod); 3] =
    [("hull", FitMethod::Hull), ("svm", FitMethod::Svm), ("min-rtt", FitMethod::MinRtt)];
pub(super) const CLOCK_COUNTERS: [(&str, ClockCounter); 2] = [("raw", ClockCounter::Raw), ("tsc", ClockCounter::Tsc)];
pub(super) const CLOCK_ADJUSTMENTS: [(&str, Adjust); 2] = [("slew", Adjust::Slew), ("step", Adjust::Step)];
pub(super) const TIMESTAMP_MODES: [(&str, TimestampMode); 4] = [
    ("auto", TimestampMode::Auto),
    ("hardware", TimestampMode::Hardware),
    ("kernel", TimestampMode::Kernel),
    ("user", TimestampMode::User),
];

/// Longest name of a region.
const REGION_NAME_MAX: usize = 64;
