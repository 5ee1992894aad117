//! Recomputes a run from its recorded exchanges (`probes/nodeN.jsonl`) or from its recorded fits alone (`windows/nodeN.jsonl`).
//!
//! Exchanges of all files are grouped by round and node into windows and fitted as in the live run. A line that closes a
//! window states its limits and losses; without one (a file cut short, or written by somebody else) the window is as long as
//! its exchanges. Windows, fitted here or there, pass through the same graph and the same watch over faults; then `smoothing`
//! looks at the whole run at once, which the live run cannot. A line that is cut, corrupt or impossible is left out and named
//! with file and line number; the rest is used.
//!
//! Memory: all exchanges are held, 80 MB per million; with everything else that looking at them takes a run of a million was
//! solved in 225 MB. Fits take some 200 bytes per edge and round.
//!
//! What it does not do: measure anything that the run did not, so a clock event that only the nodes saw is known from
//! windows and not from exchanges.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use probe_sync_estimate::faults::{Culprit, Fault};
use probe_sync_estimate::record::{OffsetRecord, OffsetsHeader};
use probe_sync_estimate::round::{Decision, EdgeCut, SolvedRound, Solver, WindowCut, fit_window};
use probe_sync_estimate::run::{Recorded, Smoothed};
use probe_sync_estimate::window::{EdgeAlphaBeta, NodeWindowData};
use probe_sync_time::{Duration, Edge, Exchange, NodeId, RoundId, System, Timestamp};

use crate::files::{JsonLines, ProbeLine, ProbeWindowLine, RecordedLine};
use crate::rounds::{fit_options, solver_options};
use crate::{Config, Error, truth};

/// What a run left behind.
#[derive(Copy, Clone, Debug)]
pub enum Input<'a> {
    /// Files of exchanges: `probes/nodeN.jsonl`.
    Probes(&'a [PathBuf]),
    /// Files of fitted windows: `windows/nodeN.jsonl`.
    Windows(&'a [PathBuf]),
}

/// What was recomputed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solved {
    /// Exchanges used; of windows, those that their fits had used.
    pub exchanges: usize,
    /// Nodes seen.
    pub nodes: usize,
    /// Rounds solved.
    pub rounds: usize,
    /// Lines written, the first apart, which says only what the file is.
    pub lines: usize,
    /// Lines left out.
    pub skipped_lines: usize,
    /// Exchanges that no fit used: their stamps came from another source than their window's best. Of windows it is not known.
    pub left_out_exchanges: u64,
    /// Rounds left out for want of the reference node.
    pub skipped_rounds: usize,
    /// What was left out and why, by file and line; at most [`MAX_NOTES`].
    pub notes: Vec<String>,
    /// Standard deviation of a median path's asymmetry, ns.
    pub asymmetry_sd_ns: f64,
    /// Median half-width of the 95 % intervals, ns; None when nobody but the reference was reached.
    pub half_width_95_ns: Option<f64>,
    /// Times at which a clock was stepped or restarted.
    pub breaks: usize,
    /// Faults of clocks and paths, in the order in which they showed.
    pub faults: Vec<Fault>,
}

/// Notes kept; everything is counted.
pub const MAX_NOTES: usize = 20;

/// Reads `input`, solves every round, smooths the run and writes `out` in the form of `offsets.jsonl`: a line per round and
/// node, or with `knots` one every so long. The 95 % intervals are of the smoothed run; hard intervals are the rounds' own,
/// between their midpoints widened by what the clocks may have wandered and then no longer unconditional.
///
/// # Errors
/// When a file cannot be read or written, nothing in them is usable, or `knots` asks for more lines than are sensible.
pub fn solve_files(input: Input<'_>, out: &Path, knots: Option<Duration>, config: &Config) -> Result<Solved, Error> {
    let (paths, take): (_, TakeLine) = match input {
        Input::Probes(paths) => (paths, Recording::take_exchange),
        Input::Windows(paths) => (paths, Recording::take_window),
    };
    let mut recording = Recording::default();
    for path in paths {
        recording.read(path, take)?;
    }
    let same = |path: &PathBuf| fs::canonicalize(path).ok() == fs::canonicalize(out).ok();
    if out.exists() && paths.iter().any(same) {
        return Err(Error::OutputIsInput { path: out.into() });
    }
    if recording.solved.exchanges == 0 {
        let files = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Error::NothingToSolve { files });
    }
    recording.drop_strays();
    recording.fit(config);
    let rounds = recording.rounds()?;
    if rounds.is_empty() {
        return Err(Error::NothingToSolve { files: "any round: none has node 0 or an edge to it".into() });
    }
    recording.solved.rounds = rounds.len();
    let recorded: Vec<Recorded<'_>> = recording.recorded().collect();
    let recorded = Some(&recorded[..]).filter(|some| !some.is_empty());
    let smoothed = Smoothed::new(recording.node_count(), truth::REFERENCE, rounds, recorded);
    recording.report(&smoothed);
    recording.solved.lines = match knots {
        Some(spacing) => {
            let knots = smoothed.knots(spacing, recording.nodes.len()).map_err(unusable_knots)?;
            recording.write(out, smoothed.knot_lines(knots))?
        }
        None => recording.write(out, smoothed.round_lines())?,
    };
    Ok(recording.solved)
}

type TakeLine = fn(&mut Recording, &Path, usize, &[u8]);

/// Everything read from the files.
#[derive(Debug, Default)]
struct Recording {
    exchanges: BTreeMap<(RoundId, NodeId), WindowRecord>,
    /// Fitted windows by round and node.
    windows: BTreeMap<RoundId, BTreeMap<NodeId, NodeWindowData>>,
    nodes: BTreeSet<NodeId>,
    solved: Solved,
}

#[derive(Debug, Default)]
struct WindowRecord {
    edges: BTreeMap<NodeId, Vec<Exchange>>,
    close: Option<ProbeWindowLine>,
}

impl Recording {
    fn read(&mut self, path: &Path, take: TakeLine) -> Result<(), Error> {
        let file = File::open(path).map_err(Error::file(path, "read"))?;
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let limit = MAX_LINE_BYTES as u64;
            let read = reader.by_ref().take(limit).read_until(b'\n', &mut line).map_err(Error::file(path, "read"))?;
            if read == 0 {
                break;
            }
            if read == MAX_LINE_BYTES && line.last() != Some(&b'\n') {
                self.skip(path, number, "longer than a megabyte");
                reader.skip_until(b'\n').map_err(Error::file(path, "read"))?;
                continue;
            }
            if !line.trim_ascii().is_empty() {
                take(self, path, number, &line);
            }
        }
        Ok(())
    }

    fn take_exchange(&mut self, path: &Path, number: usize, line: &[u8]) {
        match serde_json::from_slice::<RecordedLine>(line) {
            // Untagged enums do not say what is wrong; the commoner kind of line does.
            Err(_) => {
                let reason = serde_json::from_slice::<ProbeLine>(line).err().map(|e| e.to_string());
                self.skip(path, number, reason.as_deref().unwrap_or("no exchange"));
            }
            Ok(RecordedLine::Close(close)) => match implausible_close(&close) {
                Some(reason) => self.skip(path, number, reason),
                None => {
                    let key = (close.round_id, close.src);
                    self.exchanges.entry(key).or_default().close = Some(close);
                }
            },
            Ok(RecordedLine::Probe(probe)) => match implausible(&probe) {
                Some(reason) => self.skip(path, number, reason),
                None => self.keep(&probe),
            },
        }
    }

    fn take_window(&mut self, path: &Path, number: usize, line: &[u8]) {
        let window = match serde_json::from_slice::<NodeWindowData>(line) {
            Ok(window) => window,
            Err(error) => return self.skip(path, number, &error.to_string()),
        };
        if let Some(reason) = implausible_window(&window) {
            return self.skip(path, number, reason);
        }
        let of_round = self.windows.entry(window.round_id).or_default();
        if of_round.contains_key(&window.node_id) {
            return self.skip(path, number, "a second window of the same node and round");
        }
        self.nodes.insert(window.node_id);
        self.nodes.extend(window.edges.iter().map(|edge| edge.dst_node_id));
        self.solved.exchanges += window.edges.iter().map(|edge| edge.pairs_count as usize).sum::<usize>();
        of_round.insert(window.node_id, window);
    }

    fn keep(&mut self, probe: &ProbeLine) {
        let edge = Edge { src: probe.src, dst: probe.dst };
        let exchange = Exchange { edge, seq: probe.seq, stamp: probe.stamp, t: probe.t.map(Timestamp::from_ns) };
        let window = self.exchanges.entry((probe.round_id, probe.src)).or_default();
        window.edges.entry(probe.dst).or_default().push(exchange);
        self.nodes.extend([probe.src, probe.dst]);
        self.solved.exchanges += 1;
    }

    fn skip(&mut self, path: &Path, number: usize, reason: &str) {
        self.solved.skipped_lines += 1;
        self.note(format!("{} line {number}: left out: {reason}", path.display()));
    }

    fn note(&mut self, note: String) {
        if self.solved.notes.len() < MAX_NOTES {
            self.solved.notes.push(note);
        }
    }

    /// Leaves out nodes whose number is far beyond how many nodes there are: one corrupt digit would make every round
    /// hold an estimate for each of up to 65536 nodes.
    fn drop_strays(&mut self) {
        let limit = STRAY_BASE + STRAY_FACTOR * self.nodes.len();
        let stray = |node: &NodeId| node.index() >= limit;
        let strays: Vec<NodeId> = self.nodes.iter().copied().filter(stray).collect();
        if strays.is_empty() {
            return;
        }
        self.nodes.retain(|node| !stray(node));
        self.exchanges.retain(|(_, node), _| !stray(node));
        self.exchanges.values_mut().for_each(|window| window.edges.retain(|node, _| !stray(node)));
        for windows in self.windows.values_mut() {
            windows.retain(|node, _| !stray(node));
            let outside = |edge: &EdgeAlphaBeta| stray(&edge.src_node_id) || stray(&edge.dst_node_id);
            windows.values_mut().for_each(|window| window.edges.retain(|edge| !outside(edge)));
        }
        let count = strays.len();
        let first = strays[0];
        self.note(format!(
            "{count} node(s) left out, the first of them {first}: such numbers do not fit a run of {} nodes",
            self.nodes.len()
        ));
    }

    /// Fits the windows of the exchanges.
    fn fit(&mut self, config: &Config) {
        for ((round_id, node), record) in &self.exchanges {
            let (fitted, left_out) = fit_window(&record.cut(*node), *round_id, &fit_options(config), false);
            self.solved.left_out_exchanges += left_out;
            self.windows.entry(*round_id).or_default().insert(*node, fitted);
        }
    }

    /// Nodes are numbered without gaps up to here.
    fn node_count(&self) -> usize {
        self.nodes.last().map_or(0, |node| node.index() + 1)
    }

    /// Solves the rounds in order. Their windows are used up.
    fn rounds(&mut self) -> Result<Vec<SolvedRound>, Error> {
        let nodes = self.node_count();
        self.solved.nodes = self.nodes.len();
        let mut rounds = Vec::with_capacity(self.windows.len());
        let mut solver = Solver::new(solver_options(nodes));
        for (round_id, windows) in std::mem::take(&mut self.windows) {
            let windows: Vec<NodeWindowData> = windows.into_values().collect();
            let Some(reference) = reference_window(&windows) else {
                self.solved.skipped_rounds += 1;
                self.note(format!("round {round_id}: left out: no window of node 0 and no edge to it"));
                continue;
            };
            let solved = solver.solve(round_id, &reference, &windows);
            let mut round = solved.map_err(|source| Error::Graph { round_id, source })?;
            let length = round.data.window_end - round.data.window_start;
            round.data.decision = Decision { next_window: length, stop: false, ..Decision::STOP };
            rounds.push(round);
        }
        Ok(rounds)
    }

    fn recorded(&self) -> impl Iterator<Item = Recorded<'_>> {
        self.exchanges.iter().flat_map(|((round_id, src), window)| {
            window.edges.iter().map(|(dst, exchanges)| Recorded {
                round_id: *round_id,
                edge: Edge { src: *src, dst: *dst },
                exchanges,
            })
        })
    }

    fn report(&mut self, smoothed: &Smoothed) {
        for round in smoothed.unsmoothed() {
            self.note(format!(
                "round {round}: not smoothed: node 0's clock was set back, and rounds before it lie later"
            ));
        }
        self.solved.asymmetry_sd_ns = smoothed.asymmetry_sd_ns();
        self.solved.half_width_95_ns = smoothed.half_width_95_ns();
        self.solved.breaks = smoothed.breaks;
        // Numbers that nobody bears are not silent nodes.
        let known = |fault: &&Fault| match &fault.culprit {
            Culprit::Node(node) => self.nodes.contains(node),
            _ => true,
        };
        self.solved.faults = smoothed.faults().filter(known).cloned().collect();
    }

    /// Writes the lines of nodes that were seen, beside their place first; returns how many.
    fn write(&self, out: &Path, lines: impl Iterator<Item = OffsetRecord>) -> Result<usize, Error> {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(".partial");
        let beside = out.with_file_name(name);
        let write = || {
            let mut file = JsonLines::create(&beside)?;
            file.append(&OffsetsHeader { meta: true, nodes: Vec::new(), reference: truth::REFERENCE })?;
            let mut count = 0;
            // A stray large node number must not fill the file with nodes that nobody saw.
            for line in lines.filter(|line| self.nodes.contains(&line.estimate.node_id)) {
                file.append(&line)?;
                count += 1;
            }
            file.flush()?;
            let synced = File::open(&beside).and_then(|file| file.sync_data());
            synced.and_then(|()| fs::rename(&beside, out)).map_err(Error::file(out, "write"))?;
            Ok(count)
        };
        write().inspect_err(|_| {
            // Nothing half-written stays; that it cannot be removed either is no news.
            let _ = fs::remove_file(&beside);
        })
    }
}

impl WindowRecord {
    fn cut(&self, node: NodeId) -> WindowCut {
        let sends = || self.edges.values().flatten().map(|exchange| exchange.t[0]);
        let (start, end) = match &self.close {
            Some(close) => (close.window_start, close.window_end),
            None => (sends().min().unwrap_or(NEVER), sends().max().unwrap_or(NEVER)),
        };
        let lost: BTreeMap<NodeId, u32> = self.close.iter().flat_map(|close| close.lost.iter().copied()).collect();
        let peers: BTreeSet<NodeId> = self.edges.keys().chain(lost.keys()).copied().collect();
        let edges = peers
            .into_iter()
            .map(|dst| EdgeCut {
                edge: Edge { src: node, dst },
                exchanges: self.edges.get(&dst).cloned().unwrap_or_default(),
                lost: lost.get(&dst).copied().unwrap_or(0),
            })
            .collect();
        let packets = self.close.iter().flat_map(|close| close.packets.iter().copied()).collect();
        WindowCut { node, start, end, edges, clock_event: None, packets }
    }
}

/// The reference node's window; if it probed nobody, the window of a node that probed it, taken over to its clock.
fn reference_window(windows: &[NodeWindowData]) -> Option<NodeWindowData> {
    if let Some(own) = windows.iter().find(|window| window.node_id == truth::REFERENCE) {
        return Some(own.clone());
    }
    windows.iter().find_map(|window| {
        let edge = window.edges.iter().find(|edge| edge.dst_node_id == truth::REFERENCE)?;
        let theta = Duration::from_ns(edge.beta as i64);
        let [start, end] = [window.window_start + theta, window.window_end + theta];
        implausible_span(start, end).is_none().then(|| NodeWindowData {
            node_id: truth::REFERENCE,
            window_start: start,
            window_end: end,
            edges: Vec::new(),
            ..window.clone()
        })
    })
}

fn unusable_knots(error: probe_sync_estimate::Error) -> Error {
    Error::Configuration { origin: "command line".into(), key: "--knots".into(), reason: error.to_string() }
}

/// What cannot have been measured.
fn implausible(probe: &ProbeLine) -> Option<&'static str> {
    let t = &probe.t;
    if probe.src == probe.dst {
        Some("source and destination are the same node")
    } else if probe.src.0.max(probe.dst.0) >= MAX_NODES {
        Some(NODE_TOO_LARGE)
    } else if !t.iter().all(|stamp| TIMES_NS.contains(stamp)) {
        Some(TIME_TOO_FAR)
    } else if t[2] < t[0] || t[6] < t[4] {
        Some("the second packet of a pair was sent before the first")
    } else {
        None
    }
}

fn implausible_close(close: &ProbeWindowLine) -> Option<&'static str> {
    let peers = close.lost.iter().map(|(dst, _)| *dst).chain(close.packets.iter().map(|packets| packets.peer));
    let largest = peers.map(|peer| peer.0).fold(close.src.0, u32::max);
    if largest >= MAX_NODES { Some(NODE_TOO_LARGE) } else { implausible_span(close.window_start, close.window_end) }
}

fn implausible_window(window: &NodeWindowData) -> Option<&'static str> {
    let probed = window.edges.iter().map(|edge| edge.dst_node_id).chain(window.unfitted.iter().map(|(dst, _)| *dst));
    let peers = probed.chain(window.packets.iter().map(|packets| packets.peer));
    let largest = peers.map(|peer| peer.0).fold(window.node_id.0, u32::max);
    if largest >= MAX_NODES {
        Some(NODE_TOO_LARGE)
    } else if window.edges.iter().any(|edge| edge.src_node_id != window.node_id) {
        Some("an edge of another node")
    } else if window.edges.iter().any(|edge| edge.src_node_id == edge.dst_node_id) {
        Some("source and destination are the same node")
    } else if window.edges.iter().any(|edge| !TIMES_NS.contains(&edge.midpoint.as_ns())) {
        Some(TIME_TOO_FAR)
    } else {
        implausible_span(window.window_start, window.window_end)
    }
}

/// A clock that is set back ends its window before it started it: that is no mistake.
fn implausible_span(start: Timestamp<System>, end: Timestamp<System>) -> Option<&'static str> {
    let near = TIMES_NS.contains(&start.as_ns()) && TIMES_NS.contains(&end.as_ns());
    (!near).then_some(TIME_TOO_FAR)
}

/// Where a window lies of which nothing was recorded.
const NEVER: Timestamp<System> = Timestamp::from_ns(0);
const MAX_LINE_BYTES: usize = 1 << 20;
const MAX_NODES: u32 = 1 << 16;
const NODE_TOO_LARGE: &str = "a node number above 65535";

/// Differences of such times fit an i64.
const TIMES_NS: std::ops::RangeInclusive<i64> = -(1 << 62)..=(1 << 62);
const TIME_TOO_FAR: &str = "a time more than 146 years from 1970";

/// Node numbers below this plus the factor times the number of nodes are believed.
const STRAY_BASE: usize = 64;
const STRAY_FACTOR: usize = 16;
