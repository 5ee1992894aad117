//! The state of a run according to its files: in progress, stalled or over.
//!
//! It runs during a run, in another process on a host that sees its directory, and uses no socket
//! and no lock. It reads only the ends of the recorded files, whatever their length. It does not
//! query the run itself (`session::ctl`).

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use probe_sync_files::{newest, open_regular};
use probe_sync_lines::{Fault, NodeEstimate, OffsetRecord, OffsetsHeader, Round};
use probe_sync_sys::host::Host;
use probe_sync_time::{NodeId, RoundId};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::late::{LATE_FILE, LateRecord, LateStanding};
use crate::report::SIGMAS_95;

/// State of a run.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Standing {
    /// Version of this document; raised when a field is removed or changes its meaning.
    pub schema: u32,
    /// The run's directory.
    pub run_dir: PathBuf,
    /// What the run is doing.
    pub state: State,
    /// Process id of the master that holds the directory, if it is on this host.
    pub process: Option<u32>,
    /// True if the master ran on this host and no process holds the directory any longer.
    pub is_gone: bool,
    /// The last round; null before the first window ends.
    pub round: Option<LastRound>,
    /// Ranks without which the run began and that have not joined yet.
    pub missing_ranks: Vec<usize>,
    /// State of each node, in order of number.
    pub nodes: Vec<NodeStanding>,
    /// Faults that the last rounds report, oldest first, as text.
    pub faults: Vec<String>,
    /// Number of recent rounds searched for faults.
    pub faults_of_rounds: usize,
    /// Late ranks, and ranks that others wait for, according to `late.jsonl`; empty once the run
    /// has ended.
    pub late: LateStanding,
}

/// Activity of a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No window has ended yet.
    Starting,
    /// Rounds arrive on time.
    Running,
    /// Rounds arrive on time, but probing is paused on request.
    Paused,
    /// The next round is overdue by more than three quarters of a window, and the master is alive
    /// or on another host.
    Stalled,
    /// The run has written its report.
    Ended,
    /// The next round is overdue, no process holds the directory, and there is no report: the
    /// master was killed, or is on another host.
    Broken,
}

/// The last round.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LastRound {
    /// Number of the round.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub number: RoundId,
    /// Age by this host's clock, s.
    pub age_s: f64,
    /// Length of the window, s.
    pub window_s: f64,
    /// The reference node.
    #[cfg_attr(feature = "schema", schemars(with = "u32"))]
    pub reference: NodeId,
    /// The node whose clock carries the timeline of a missing reference.
    #[cfg_attr(feature = "schema", schemars(with = "Option<u32>"))]
    pub carried_by: Option<NodeId>,
    /// Phase to which the next rounds belong.
    pub phase: Option<String>,
    /// Largest half-width of a reachable node's 95 % interval, ns.
    pub worst_half_width_95_ns: Option<f64>,
}

/// State of one node.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeStanding {
    /// Number of the node.
    #[cfg_attr(feature = "schema", schemars(with = "u32"))]
    pub node: NodeId,
    /// Host name, as recorded by the run.
    pub host: String,
    /// True if its packets reach the reference; otherwise the following fields date from the last
    /// time they did.
    pub reachable: bool,
    /// True if its offset had converged.
    pub converged: bool,
    /// True if its clock was stepped or slewed in that round.
    pub clock_disturbed: bool,
    /// This clock minus the reference clock, ns; null for a node that was never reached.
    pub offset_ns: Option<f64>,
    /// Rate relative to the reference, ppm; null for a node that was never reached.
    pub rate_ppm: Option<f64>,
    /// Half-width of the 95 % interval, ns; +∞ (JSON: null) unless `reachable`.
    pub half_width_95_ns: f64,
    /// Hard interval: an offset outside cannot have produced the packets, ns; null for an end
    /// without a bound.
    pub hard_interval_ns: [Option<f64>; 2],
}

impl NodeStanding {
    /// Returns the state of a node on this host after the round of this estimate.
    pub fn new(estimate: &NodeEstimate, host: String, clock_disturbed: bool) -> Self {
        let bound = |bound: f64| Some(bound).filter(|bound| bound.is_finite());
        // An estimate begins at zero, and that of a node that is out of reach stays what it was.
        let is_known = estimate.reachable || estimate.offset_ns != 0.0;
        Self {
            node: estimate.node_id,
            host,
            reachable: estimate.reachable,
            converged: estimate.converged,
            clock_disturbed,
            offset_ns: Some(estimate.offset_ns).filter(|_| is_known),
            rate_ppm: Some(estimate.drift_ppm).filter(|_| is_known),
            half_width_95_ns: estimate.sigma_ns * SIGMAS_95,
            hard_interval_ns: [estimate.bound_lo_ns, estimate.bound_hi_ns].map(bound),
        }
    }
}

/// The fields of report.json that are read here.
#[derive(Deserialize)]
struct Report {
    rounds: usize,
    faults: Vec<Fault>,
}

/// Returns the current state of the run in a directory.
///
/// # Errors
/// [`Error::File`] names what is missing or unreadable.
pub fn standing(directory: &Path) -> Result<Standing, Error> {
    expect_run(directory)?;
    let offsets = newest(&directory.join("offsets.jsonl"));
    // A master that took a lost one's place has a folder of its own.
    let folder = offsets.parent().unwrap_or(directory);
    let process = holder(folder).or_else(|| holder(&folder.join(".lock")));
    let has_report = folder.join("report.json").is_file();
    let holder = Holder::of(directory, folder, process);
    let mut standing = Standing {
        schema: 3,
        run_dir: directory.into(),
        state: if has_report { State::Ended } else { State::Starting },
        process,
        is_gone: holder == Holder::Gone,
        round: None,
        missing_ranks: missing_ranks(folder),
        nodes: Vec::new(),
        faults: Vec::new(),
        faults_of_rounds: 0,
        late: if has_report { LateStanding::default() } else { late(folder) },
    };
    if !has_report && standing.is_gone {
        standing.state = State::Broken;
    }
    let Ok(file) = open_regular(&offsets) else { return Ok(standing) };
    let failed = || Error::file(&offsets, "read");
    let written = file.metadata().and_then(|metadata| metadata.modified()).map_err(failed())?;
    let header = header(&file, &offsets)?;
    let lines = last_lines(&file, |lines: &[OffsetRecord]| lines.iter().any(|line| line.round_id != lines[0].round_id))
        .map_err(failed())?;
    let Some(last) = lines.first() else { return Ok(standing) };
    let of_last = lines.iter().filter(|line| line.round_id == last.round_id);
    standing.nodes = of_last.map(|line| node(line, &header)).collect();
    standing.nodes.sort_by_key(|node| node.node);
    let rounds = rounds(&newest(&directory.join("global_windows.jsonl")))?;
    let decided = rounds.first().filter(|round| round.round_id == last.round_id);
    let age = SystemTime::now().duration_since(written).unwrap_or_default();
    let window = (last.window_end - last.window_start).to_std();
    let next = decided.and_then(|round| u64::try_from(round.decision.next_window.as_ns()).ok());
    let next = next.filter(|ns| *ns > 0).map_or(window, Duration::from_nanos);
    let is_paused = decided.is_some_and(|round| round.decision.paused);
    standing.state = state(has_report, holder, age, next, is_paused);
    let reached = standing.nodes.iter().filter(|node| node.reachable && node.node != header.reference);
    standing.round = Some(LastRound {
        number: last.round_id,
        age_s: age.as_secs_f64(),
        window_s: window.as_secs_f64(),
        reference: header.reference,
        carried_by: decided.and_then(|round| round.carried_by),
        phase: decided.and_then(|round| round.decision.phase.clone()),
        worst_half_width_95_ns: reached.map(|node| node.half_width_95_ns).reduce(f64::max),
    });
    standing.faults_of_rounds = rounds.len();
    standing.faults = rounds.iter().rev().flat_map(|round| &round.watch.faults).map(Fault::to_string).collect();
    if let Some(report) = report(folder) {
        standing.faults = report.faults.iter().map(Fault::to_string).collect();
        standing.faults_of_rounds = report.rounds;
    }
    Ok(standing)
}

/// Reads the state from `late.jsonl`; empty if there is no such file. A wait's length is extended
/// by the time since it was written.
fn late(folder: &Path) -> LateStanding {
    let Ok(file) = open_regular(&newest(&folder.join(LATE_FILE))) else { return LateStanding::default() };
    let lines = records(&file);
    let written_ns = lines.last().map_or(0, |last| last.at_ns);
    let mut standing = LateStanding::after(lines);
    let written = file.metadata().and_then(|metadata| metadata.modified());
    let since = written.ok().and_then(|written| SystemTime::now().duration_since(written).ok()).unwrap_or_default();
    let now_ns = written_ns.saturating_add(i64::try_from(since.as_nanos()).unwrap_or(0));
    standing.waiting.iter_mut().for_each(|wait| wait.waited_ns = wait.waited_ns.max(now_ns - wait.since_ns));
    standing
}

/// Returns the lines of a run's `late.jsonl`, oldest first; for a long file those at its end, and
/// none if there is no such file.
pub fn late_records(folder: &Path) -> Vec<LateRecord> {
    open_regular(&newest(&folder.join(LATE_FILE))).map_or_else(|_| Vec::new(), |file| records(&file))
}

fn records(file: &File) -> Vec<LateRecord> {
    let mut lines = last_lines(file, |_| false).unwrap_or_default();
    lines.reverse();
    lines
}

/// Checks that a directory belongs to a run.
///
/// # Errors
/// [`Error::File`] names what is missing, and what to do.
pub fn expect_run(directory: &Path) -> Result<(), Error> {
    let run = directory.join("run.json");
    if run.is_file() {
        return Ok(());
    }
    let reason = "there is no probe_sync run here; give the directory that was given to --output";
    Err(Error::file(&run, "read")(std::io::Error::new(std::io::ErrorKind::NotFound, reason)))
}

/// Returns the activity. The next round is due one window after the last, plus the time that
/// gathering takes.
fn state(has_report: bool, holder: Holder, age: Duration, window: Duration, is_paused: bool) -> State {
    let is_late = age > window.mul_f64(LATE_WINDOWS) + GATHER;
    match (has_report, is_late, holder) {
        (true, ..) => State::Ended,
        (false, _, Holder::Gone) => State::Broken,
        (false, true, Holder::There) => State::Stalled,
        (false, true, Holder::Unseen) => State::Broken,
        _ if is_paused => State::Paused,
        _ => State::Running,
    }
}

/// Whether a run's master holds its directory.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// A process on this host holds it.
    There,
    /// The master ran on this host, and no process holds it.
    Gone,
    /// The master may hold it on a host whose locks are not visible here.
    Unseen,
}

impl Holder {
    /// Determines the holder of the run in `directory`, whose master writes to `folder`; `process`
    /// holds a lock on it, if visible.
    fn of(directory: &Path, folder: &Path, process: Option<u32>) -> Self {
        let locked = |path: &Path| {
            let file = File::open(path).ok()?;
            Some(matches!(file.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
        };
        // Processes of other containers have their locks, and are not in /proc/locks.
        let is_held = || [folder.to_owned(), folder.join(".lock")].iter().any(|path| locked(path) == Some(true));
        match () {
            () if process.is_some() || is_held() => Self::There,
            () if ran_here(directory) == Some(true) && folder == directory => Self::Gone,
            () => Self::Unseen,
        }
    }
}

/// Reads the ranks that have not joined from `run.json`; empty if it cannot be read.
fn missing_ranks(folder: &Path) -> Vec<usize> {
    #[derive(Default, Deserialize)]
    struct Begun {
        #[serde(default)]
        missing_ranks: Vec<usize>,
    }
    let text = std::fs::read_to_string(folder.join("run.json")).unwrap_or_default();
    serde_json::from_str::<Begun>(&text).unwrap_or_default().missing_ranks
}

/// Returns true if the run's master was on this host since its last boot; `None` if the run did not
/// record it.
fn ran_here(directory: &Path) -> Option<bool> {
    let document: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(directory.join("run.json")).ok()?).ok()?;
    let master = document["configuration"]["master"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    let node = document["node_of_rank"].get(master)?.as_u64()?;
    let of_node = document["nodes"].as_array()?.iter().find(|known| known["node_id"] == node)?;
    let own = Host::detect();
    let is_own = |facts: &serde_json::Value| {
        facts["host"]["boot_id"] == own.boot_id.as_str() && facts["host"]["hostname"] == of_node["hostname"]
    };
    Some(document["hosts"].as_object()?.values().any(is_own))
}

/// Reads the first line, which describes the nodes.
fn header(file: &File, path: &Path) -> Result<OffsetsHeader, Error> {
    let mut line = String::new();
    let mut reader = BufReader::new(file).take(META_MAX);
    reader.read_line(&mut line).map_err(Error::file(path, "read"))?;
    // A run that has begun just now has none.
    let unknown = OffsetsHeader { meta: true, nodes: Vec::new(), reference: NodeId(0), ranks: Vec::new() };
    Ok(serde_json::from_str(&line).unwrap_or(unknown))
}

fn node(line: &OffsetRecord, header: &OffsetsHeader) -> NodeStanding {
    let named = header.nodes.iter().find(|node| node.node_id == line.estimate.node_id);
    let host = named.and_then(|node| node.hostname.clone()).unwrap_or_default();
    NodeStanding::new(&line.estimate, host, line.clock_disturbed)
}

/// Reads the last rounds, newest first.
fn rounds(path: &Path) -> Result<Vec<Round>, Error> {
    let Ok(file) = open_regular(path) else { return Ok(Vec::new()) };
    last_lines(&file, |rounds: &[Round]| rounds.len() >= ROUNDS_MAX).map_err(Error::file(path, "read"))
}

/// Reads lines from the end of a recorded file, newest first, until there are enough or 8 MiB have
/// been read. Incomplete lines and lines of another type, such as the header, are skipped.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn last_lines<T: for<'a> Deserialize<'a>>(
    file: &File,
    is_enough: impl Fn(&[T]) -> bool,
) -> std::io::Result<Vec<T>> {
    let mut begin = file.metadata()?.len();
    let end = begin;
    // The beginning of a line whose end was read before.
    let (mut values, mut rest) = (Vec::new(), Vec::new());
    let mut is_whole = false;
    while begin > 0 && end - begin < BYTES_MAX {
        let length = begin.min(READ_BYTES);
        begin -= length;
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, begin)?;
        bytes.append(&mut rest);
        let mut lines = bytes.split(|byte| *byte == b'\n').rev().peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_none() && begin > 0 {
                rest = line.to_vec();
                break;
            }
            // What stands behind the last end of a line is not whole.
            if std::mem::replace(&mut is_whole, true)
                && let Ok(value) = serde_json::from_slice(line)
            {
                values.push(value);
                if is_enough(&values) {
                    return Ok(values);
                }
            }
        }
    }
    Ok(values)
}

fn report(folder: &Path) -> Option<Report> {
    serde_json::from_reader(BufReader::new(open_regular(&folder.join("report.json")).ok()?)).ok()
}

/// Returns the process on this host that holds a file by `flock`. Trying to take the lock instead
/// would keep a run from starting at that moment.
fn holder(path: &Path) -> Option<u32> {
    let file = std::fs::metadata(path).ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    // "1: FLOCK  ADVISORY  WRITE 4711 fe:00:123456 0 EOF"
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, place, ..] = words[..] else { return None };
        let mut numbers = place.split(':');
        let [major, minor] = [numbers.next()?, numbers.next()?].map(|hex| u32::from_str_radix(hex, 16));
        let inode: u64 = numbers.next()?.parse().ok()?;
        let device = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
        ((major.ok()?, minor.ok()?) == device && inode == file.ino()).then(|| process.parse().ok()).flatten()
    })
}

/// A round is overdue when this many windows have passed since the last one, plus
const LATE_WINDOWS: f64 = 1.75;
/// the time that gathering may take.
const GATHER: Duration = Duration::from_millis(50);
/// Recent rounds whose faults are reported.
const ROUNDS_MAX: usize = 256;
/// Most bytes read from the end of a file.
const BYTES_MAX: u64 = 8 << 20;
const READ_BYTES: u64 = 64 << 10;
const META_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_found_whatever_their_length() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("lines.jsonl");
        let check = |text: String, enough: usize, expected: &[&str]| {
            std::fs::write(&path, text).expect("room");
            let file = File::open(&path).expect("it is there");
            let found = last_lines(&file, |lines: &[String]| lines.len() >= enough).expect("readable");
            assert_eq!(found, expected);
        };
        check(String::new(), 1, &[]);
        check("\"one\"\n\"two\"\n".into(), 5, &["two", "one"]);
        check("\"one\"\n\"two\"\n\"three\"\n".into(), 2, &["three", "two"]);
        // One that is being written is none, and neither is what is no such value.
        check("\"one\"\n{\"meta\":true}\n\"two\"\n\"three\"".into(), 5, &["two", "one"]);
        check("\"cut off".into(), 5, &[]);
        let long = "x".repeat(3 * READ_BYTES as usize + 17);
        check(format!("\"first\"\n\"{long}\"\n\"last\"\n"), 5, &["last", &long, "first"]);
    }

    #[test]
    fn a_node_that_is_out_of_reach_is_there() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let line = |node: u32, reachable: bool, sigma: &str| {
            format!(
                "{{\"round_id\":3,\"window_id\":3,\"window_start_ns\":0,\"window_end_ns\":1000000000,\"node_id\":{node},\"offset_ns\":5.0,\"drift_ppm\":0.0,\
                 \"residual\":0.0,\"reachable\":{reachable},\"converged\":true,\"sigma_ns\":{sigma},\"drift_sigma_ppm\":{sigma},\"bound_lo_ns\":null,\"bound_hi_ns\":9.0,\
                 \"edges_used\":1,\"edges_excluded\":0}}\n"
            )
        };
        let head = "{\"meta\":true,\"nodes\":[{\"hostname\":\"one\",\"node_id\":1}],\"reference\":0}\n";
        let text = [head.to_owned(), line(0, true, "0.0"), line(1, false, "null")].concat();
        std::fs::write(folder.path().join("offsets.jsonl"), text).expect("room");
        std::fs::write(folder.path().join("run.json"), "{}").expect("room");
        let found = standing(folder.path()).expect("a run");
        let told = found.nodes.iter().map(|node| (node.host.as_str(), node.reachable, node.hard_interval_ns));
        assert_eq!(told.collect::<Vec<_>>(), [("", true, [None, Some(9.0)]), ("one", false, [None, Some(9.0)])]);
        assert_eq!(found.round.map(|round| round.window_s), Some(1.0));
    }

    #[test]
    fn a_round_is_late_after_a_window_and_three_quarters() {
        use Holder::{Gone, There, Unseen};
        let at = |ms: u64, holder| state(false, holder, Duration::from_millis(ms), Duration::from_secs(4), false);
        assert_eq!(
            [at(4000, There), at(4000, Unseen), at(7040, There), at(7060, There), at(7060, Unseen), at(1, Gone)],
            [State::Running, State::Running, State::Running, State::Stalled, State::Broken, State::Broken]
        );
        assert_eq!(state(true, Gone, Duration::MAX, Duration::from_secs(4), false), State::Ended);
    }
}
