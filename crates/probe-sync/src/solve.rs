//! Recomputes a run from its recorded exchanges alone (`probes/nodeN.jsonl`).
//!
//! Lines of all files are grouped by round and node into windows, and pass through the same fits and the same graph as in
//! the live run. A line that closes a window states its limits and losses; without one (a file cut short, or written by
//! somebody else) the window is as long as its exchanges. A line that is cut, corrupt or impossible is left out and
//! named with file and line number; the rest is used.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use probe_sync_estimate::window::{Decision, GlobalWindowData, NodeWindowData};
use probe_sync_time::{Edge, Exchange, NodeId, Timestamp};

use crate::files::{self, ProbeLine, ProbeWindowLine, RecordedLine};
use crate::probing::{EdgeCut, WindowCut};
use crate::rounds::{Solver, fit_window};
use crate::{Config, Error, truth};

/// What was recomputed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Solved {
    /// Exchanges used.
    pub exchanges: usize,
    /// Nodes seen.
    pub nodes: usize,
    /// Rounds solved.
    pub rounds: usize,
    /// Lines left out.
    pub skipped_lines: usize,
    /// Exchanges that no fit used: their stamps came from another source than their window's best.
    pub left_out_exchanges: u64,
    /// Rounds left out for want of the reference node.
    pub skipped_rounds: usize,
    /// What was left out and why, by file and line; at most [`MAX_NOTES`].
    pub notes: Vec<String>,
}

/// Notes kept; everything is counted.
pub const MAX_NOTES: usize = 20;

/// Reads `probes`, solves every round and writes `out` in the form of `offsets.jsonl`.
///
/// # Errors
/// When a file cannot be read or written, or nothing in them is usable.
pub fn solve_files(probes: &[PathBuf], out: &Path, config: &Config) -> Result<Solved, Error> {
    let mut recording = Recording::default();
    for path in probes {
        recording.read(path)?;
    }
    let same = |path: &PathBuf| std::fs::canonicalize(path).ok() == std::fs::canonicalize(out).ok();
    if out.exists() && probes.iter().any(same) {
        return Err(Error::OutputIsInput { path: out.into() });
    }
    if recording.solved.exchanges == 0 {
        let files = probes.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(Error::NothingToSolve { files });
    }
    let rounds = recording.solve(config)?;
    if rounds.is_empty() {
        return Err(Error::NothingToSolve { files: "any round: none has node 0 or an edge to it".into() });
    }
    write(out, &recording, &rounds)?;
    recording.solved.rounds = rounds.len();
    Ok(recording.solved)
}

/// Everything read from the files.
#[derive(Debug, Default)]
struct Recording {
    windows: BTreeMap<(u64, NodeId), WindowRecord>,
    nodes: BTreeSet<NodeId>,
    solved: Solved,
}

#[derive(Debug, Default)]
struct WindowRecord {
    edges: BTreeMap<NodeId, Vec<Exchange>>,
    close: Option<ProbeWindowLine>,
}

impl Recording {
    fn read(&mut self, path: &Path) -> Result<(), Error> {
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
                self.take(path, number, &line);
            }
        }
        Ok(())
    }

    fn take(&mut self, path: &Path, number: usize, line: &[u8]) {
        match serde_json::from_slice::<RecordedLine>(line) {
            // Untagged enums do not say what is wrong; the commoner kind of line does.
            Err(_) => {
                let reason = serde_json::from_slice::<ProbeLine>(line).err().map(|e| e.to_string());
                self.skip(path, number, reason.as_deref().unwrap_or("no exchange"));
            }
            Ok(RecordedLine::Close(close)) => {
                let key = (close.round_id, close.src);
                self.windows.entry(key).or_default().close = Some(close);
            }
            Ok(RecordedLine::Probe(probe)) => match implausible(&probe) {
                Some(reason) => self.skip(path, number, reason),
                None => self.keep(&probe),
            },
        }
    }

    fn keep(&mut self, probe: &ProbeLine) {
        let edge = Edge { src: probe.src, dst: probe.dst };
        let exchange = Exchange { edge, seq: probe.seq, stamp: probe.stamp, t: probe.t.map(Timestamp::from_ns) };
        let window = self.windows.entry((probe.round_id, probe.src)).or_default();
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

    fn solve(&mut self, config: &Config) -> Result<Vec<GlobalWindowData>, Error> {
        let nodes = self.nodes.iter().next_back().map_or(0, |node| node.index() + 1);
        self.solved.nodes = self.nodes.len();
        let mut by_round: BTreeMap<u64, Vec<NodeWindowData>> = BTreeMap::new();
        for ((round_id, node), record) in &self.windows {
            let (fitted, left_out) = fit_window(config, *node, *round_id, &record.cut(*node), false);
            self.solved.left_out_exchanges += left_out;
            by_round.entry(*round_id).or_default().push(fitted);
        }
        let mut rounds = Vec::new();
        let mut solver = Solver::new(nodes);
        for (round_id, windows) in by_round {
            let Some(reference) = reference_window(&windows) else {
                self.solved.skipped_rounds += 1;
                self.note(format!("round {round_id}: left out: no window of node 0 and no edge to it"));
                continue;
            };
            let mut round = solver.solve(round_id, &reference, &windows, nodes)?;
            let length = round.window_end_ns.saturating_sub(round.window_start_ns);
            round.decision = Decision { next_window_ns: length, ..Decision::default() };
            rounds.push(round);
        }
        Ok(rounds)
    }
}

impl WindowRecord {
    fn cut(&self, node: NodeId) -> WindowCut {
        let sends = || self.edges.values().flatten().map(|exchange| exchange.t[0].as_ns());
        let (start_ns, end_ns) = match &self.close {
            Some(close) => (close.window_start_ns, close.window_end_ns),
            None => (sends().min().unwrap_or(0), sends().max().unwrap_or(0)),
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
        WindowCut { start_ns, end_ns, edges, clock_event: None }
    }
}

/// The reference node's window; if it probed nobody, the window of a node that probed it, taken over to its clock.
fn reference_window(windows: &[NodeWindowData]) -> Option<NodeWindowData> {
    if let Some(own) = windows.iter().find(|window| window.node_id == truth::REFERENCE) {
        return Some(own.clone());
    }
    windows.iter().find_map(|window| {
        let edge = window.edges.iter().find(|edge| edge.dst_node_id == truth::REFERENCE)?;
        let theta = edge.beta as i64;
        Some(NodeWindowData {
            node_id: truth::REFERENCE,
            window_start_ns: window.window_start_ns.saturating_add(theta),
            window_end_ns: window.window_end_ns.saturating_add(theta),
            edges: Vec::new(),
            ..window.clone()
        })
    })
}

fn write(out: &Path, recording: &Recording, rounds: &[GlobalWindowData]) -> Result<(), Error> {
    let mut text = files::offsets_meta(&[]).to_string();
    for line in rounds.iter().flat_map(files::offset_lines) {
        // A stray large node number must not fill the file with nodes that nobody saw.
        if recording.nodes.contains(&line.estimate.node_id) {
            text.push('\n');
            text.push_str(&serde_json::to_string(&line).expect("our types serialise to JSON"));
        }
    }
    text.push('\n');
    files::write_whole(out, text.as_bytes())
}

/// What cannot have been measured.
fn implausible(probe: &ProbeLine) -> Option<&'static str> {
    let t = &probe.t;
    if probe.src == probe.dst {
        Some("source and destination are the same node")
    } else if probe.src.0.max(probe.dst.0) >= MAX_NODES {
        Some("a node number above 65535")
    } else if t[2] < t[0] || t[6] < t[4] {
        Some("the second packet of a pair was sent before the first")
    } else {
        None
    }
}

const MAX_LINE_BYTES: usize = 1 << 20;
const MAX_NODES: u32 = 1 << 16;
