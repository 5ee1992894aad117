//! All data read from a run's files, and the rounds made from it.
//!
//! `mod` reads files into it line by line. Exchanges of all files are grouped by round and node
//! into windows and fitted as in the live run; windows, whether fitted now or in the run, are
//! solved round by round.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use probe_sync_estimate::round::{EdgeCut, SolvedRound, Solver, SolverOptions, Timeline, WindowCut, fit_window};
use probe_sync_estimate::run::{Recorded, Smoothed};
use probe_sync_files::open_regular;
use probe_sync_lines::{Culprit, Decision, EdgeFit, Fault, NodeWindow, OffsetRecord, OffsetsHeader, Round};
use probe_sync_time::{Duration, Edge, Exchange, NodeId, RoundId, StampSource, System, Timestamp};

use super::plausible::{implausible, implausible_close, implausible_span, implausible_window};
use super::selection::Selection;
use super::solved::{MAX_NOTES, Solved};
use crate::store::{ProbeLine, ProbeWindowLine, RecordedLine, write_offsets};
use crate::{Config, Error};

/// Everything read from the files.
#[derive(Debug)]
pub(super) struct Recording {
    exchanges: BTreeMap<(RoundId, NodeId), WindowRecord>,
    /// Fitted windows by round and node.
    windows: BTreeMap<RoundId, BTreeMap<NodeId, NodeWindow>>,
    pub(super) nodes: BTreeSet<NodeId>,
    pub(super) solved: Solved,
    /// Description of the nodes by the run that recorded them.
    pub(super) origin: Option<OffsetsHeader>,
    reference: NodeId,
    /// Which fitted edges to use.
    pub(super) selection: Selection,
    /// Number of fits not used.
    pub(super) unselected: usize,
}

/// The rounds of a recording.
pub(super) struct Rounds {
    /// Rounds solved relative to the reference.
    pub(super) solved: Vec<SolvedRound>,
    /// Rounds in which another clock carried the reference's timeline on; not smoothed.
    pub(super) carried: Vec<Round>,
}

#[derive(Debug, Default)]
struct WindowRecord {
    edges: BTreeMap<NodeId, Vec<Exchange>>,
    close: Option<ProbeWindowLine>,
}

/// Processes one line of a file: the recording, the file, the line's number, its bytes.
pub(super) type TakeLine = fn(&mut Recording, &Path, usize, &[u8]);

impl Recording {
    /// Creates an empty recording of a run relative to `reference`.
    pub(super) fn new(reference: NodeId) -> Self {
        Self {
            exchanges: BTreeMap::new(),
            windows: BTreeMap::new(),
            nodes: BTreeSet::new(),
            solved: Solved::default(),
            origin: None,
            reference,
            selection: Selection::default(),
            unselected: 0,
        }
    }

    pub(super) fn read(
        &mut self,
        path: &Path,
        mut take: impl FnMut(&mut Self, &Path, usize, &[u8]),
    ) -> Result<(), Error> {
        let file = open_regular(path).map_err(Error::file(path, "read"))?;
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

    pub(super) fn take_exchange(&mut self, path: &Path, number: usize, line: &[u8]) {
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

    pub(super) fn take_window(&mut self, path: &Path, number: usize, line: &[u8]) {
        let mut window = match serde_json::from_slice::<NodeWindow>(line) {
            Ok(window) => window,
            Err(error) => return self.skip(path, number, &error.to_string()),
        };
        if let Some(reason) = implausible_window(&window) {
            return self.skip(path, number, reason);
        }
        let found = window.edges.len();
        window.edges.retain(|edge| self.selection.wants(edge.pairs_count, edge.lost_count));
        self.unselected += found - window.edges.len();
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

    /// Returns the reference node, whose offset is zero.
    pub(super) fn reference(&self) -> NodeId {
        self.reference
    }

    /// Adds a window that was fitted elsewhere.
    pub(super) fn put(&mut self, window: NodeWindow) {
        self.windows.entry(window.round_id).or_default().insert(window.node_id, window);
    }

    /// Counts and lists something that is skipped and is not a line.
    pub(super) fn leave_out(&mut self, what: &str) {
        self.solved.skipped_lines += 1;
        self.note(format!("ignored: {what}"));
    }

    pub(super) fn skip(&mut self, path: &Path, number: usize, reason: &str) {
        self.solved.skipped_lines += 1;
        self.note(format!("{} line {number}: ignored: {reason}", path.display()));
    }

    pub(super) fn note(&mut self, note: String) {
        if self.solved.notes.len() < MAX_NOTES {
            self.solved.notes.push(note);
        }
    }

    /// Drops nodes whose number far exceeds the number of nodes: one corrupt digit would make every
    /// round hold an estimate for each of up to 65536 nodes.
    pub(super) fn drop_strays(&mut self) {
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
            let outside = |edge: &EdgeFit| stray(&edge.src_node_id) || stray(&edge.dst_node_id);
            windows.values_mut().for_each(|window| window.edges.retain(|edge| !outside(edge)));
        }
        let count = strays.len();
        let first = strays[0];
        self.note(format!(
            "ignored {count} node(s), the first of them {first}: such numbers do not fit a run of {} nodes",
            self.nodes.len()
        ));
    }

    /// Fits the windows of the exchanges. The bounds of stamp errors on an edge hold for a whole
    /// run, so a window that was not closed takes them from the others.
    pub(super) fn fit(&mut self, config: &Config) {
        let mut stated: BTreeMap<Edge, [f64; 2]> = BTreeMap::new();
        for (edge, errors) in
            self.exchanges.values().filter_map(|record| record.close.as_ref()).flat_map(ProbeWindowLine::stamp_errors)
        {
            let largest = stated.entry(edge).or_default();
            *largest = [largest[0].max(errors[0]), largest[1].max(errors[1])];
        }
        let mut unstated = 0;
        for ((round_id, node), record) in &self.exchanges {
            let cut = record.cut(*node, &stated);
            let hardware =
                |edge: &&EdgeCut| edge.exchanges.iter().any(|exchange| exchange.stamp == StampSource::Hardware);
            unstated += cut.edges.iter().filter(hardware).filter(|edge| edge.stamp_errors_ns == [0.0; 2]).count();
            let (fitted, left_out) = fit_window(&cut, *round_id, &config.fit_options(), false);
            self.solved.left_out_exchanges += left_out;
            self.windows.entry(*round_id).or_default().insert(*node, fitted);
        }
        if unstated > 0 {
            self.note(format!(
                "{unstated} windows of hardware timestamps do not state their conversion error (they were written by an earlier \
                version); their intervals and hard bounds are too narrow by that error, often a few hundred ns"
            ));
        }
    }

    /// Returns what is known about the run before its first round.
    pub(super) fn options(&self, config: &Config) -> SolverOptions {
        let hosts = self.origin.as_ref().map(OffsetsHeader::hosts).unwrap_or_default();
        SolverOptions { hosts, fit: config.fit_options(), ..SolverOptions::new(self.node_count(), self.reference) }
    }

    /// Returns the number of nodes, numbered without gaps.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.last().map_or(0, |node| node.index() + 1)
    }

    /// Solves the rounds in order; those without the reference are solved on the timeline that
    /// another node carries on from the previous round, as the live run did. Once the reference is
    /// back, it is the timeline again, and the smoother's result is better for the time between.
    /// The windows are consumed.
    pub(super) fn rounds(&mut self, config: &Config) -> Result<Rounds, Error> {
        self.solved.nodes = self.nodes.len();
        let mut rounds: Vec<SolvedRound> = Vec::with_capacity(self.windows.len());
        let mut carried = Vec::new();
        let options = self.options(config);
        let mut solver = Solver::new(options.clone());
        let mut without: Option<Timeline> = None;
        for (round_id, windows) in std::mem::take(&mut self.windows) {
            let windows: Vec<NodeWindow> = windows.into_values().collect();
            let Some(reference) = reference_window(self.reference, &windows) else {
                let resumed = without
                    .take()
                    .or_else(|| Some(Timeline::resume(options.clone(), last_known(self.reference, &rounds)?)));
                if let Some(mut timeline) = resumed {
                    let by = carried.last().and_then(|round: &Round| round.carried_by);
                    carried.extend(self.carry(&mut timeline, by, round_id, &windows)?);
                    without = Some(timeline);
                } else {
                    self.skip_round(round_id);
                }
                continue;
            };
            without = None;
            carried.clear();
            let solved = solver.solve(round_id, &reference, &windows);
            let mut round = solved.map_err(|source| Error::Graph { round_id, source })?;
            let length = round.data.window_end - round.data.window_start;
            round.data.decision = Decision { next_window: length, stop: false, ..Decision::STOP };
            // A run may have ten thousand rounds of a thousand nodes: what only the next round
            // needed does not stay.
            round.forget_working();
            rounds.push(round);
        }
        self.solved.carried_rounds = carried.len();
        Ok(Rounds { solved: rounds, carried })
    }

    /// Solves a round without the reference; `None` if no node known in the previous round has a
    /// window in it.
    fn carry(
        &mut self,
        timeline: &mut Timeline,
        carrier: Option<NodeId>,
        round_id: RoundId,
        windows: &[NodeWindow],
    ) -> Result<Option<Round>, Error> {
        let Some(leading) = timeline.leading(windows) else {
            self.skip_round(round_id);
            return Ok(None);
        };
        let solved = timeline.solve(round_id, leading, windows);
        let data = solved.map_err(|source| Error::Graph { round_id, source })?.data;
        if let Some(by) = data.carried_by.filter(|by| carrier != Some(*by)) {
            let node = self.reference;
            self.note(format!(
                "round {round_id}: no window of node {node}; node {by} maintains its timeline from here on"
            ));
        }
        Ok(Some(data))
    }

    fn skip_round(&mut self, round_id: RoundId) {
        self.solved.skipped_rounds += 1;
        let node = self.reference;
        self.note(format!("round {round_id}: ignored: no window of node {node} and no edge to it"));
    }

    pub(super) fn recorded(&self) -> impl Iterator<Item = Recorded<'_>> {
        self.exchanges.iter().flat_map(|((round_id, src), window)| {
            window.edges.iter().map(|(dst, exchanges)| Recorded {
                round_id: *round_id,
                edge: Edge { src: *src, dst: *dst },
                exchanges,
            })
        })
    }

    pub(super) fn report(&mut self, smoothed: &Smoothed) {
        let node = self.reference;
        for round in smoothed.unsmoothed() {
            self.note(format!(
                "round {round}: not smoothed, because node {node}'s clock was set back and earlier rounds lie later in time"
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

    /// Writes the lines of nodes that were seen, to a temporary file first; returns their number.
    pub(super) fn write(&self, out: &Path, lines: impl Iterator<Item = OffsetRecord>) -> Result<usize, Error> {
        let (nodes, ranks) = self.origin.clone().map(|origin| (origin.nodes, origin.ranks)).unwrap_or_default();
        let header = OffsetsHeader { meta: true, nodes, reference: self.reference, ranks };
        // A stray large node number must not fill the file with nodes that nobody saw.
        let seen = lines.filter(|line| self.nodes.contains(&line.estimate.node_id));
        write_offsets(out, &header, seen)
    }
}

impl WindowRecord {
    fn cut(&self, node: NodeId, stamp_errors: &BTreeMap<Edge, [f64; 2]>) -> WindowCut {
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
                stamp_errors_ns: stamp_errors.get(&Edge { src: node, dst }).copied().unwrap_or_default(),
            })
            .collect();
        let packets = self.close.iter().flat_map(|close| close.packets.iter().copied()).collect();
        WindowCut { node, start, end, edges, clock_event: None, packets }
    }
}

/// Returns the last round in which a node other than the reference was known.
fn last_known(reference: NodeId, rounds: &[SolvedRound]) -> Option<Round> {
    rounds.iter().rev().find(|round| round.data.knows_another_than(reference)).map(|round| round.data.clone())
}

/// Returns the reference node's window; if it probed no node, the window of a node that probed it,
/// converted to its clock.
fn reference_window(reference: NodeId, windows: &[NodeWindow]) -> Option<NodeWindow> {
    if let Some(own) = windows.iter().find(|window| window.node_id == reference) {
        return Some(own.clone());
    }
    windows.iter().find_map(|window| {
        let edge = window.edges.iter().find(|edge| edge.dst_node_id == reference)?;
        let theta = Duration::from_ns(edge.beta as i64);
        let [start, end] = [window.window_start + theta, window.window_end + theta];
        implausible_span(start, end).is_none().then(|| NodeWindow {
            node_id: reference,
            window_start: start,
            window_end: end,
            edges: Vec::new(),
            ..window.clone()
        })
    })
}

const MAX_LINE_BYTES: usize = 1 << 20;
/// Node numbers below this plus the factor times the number of nodes are considered plausible.
const STRAY_BASE: usize = 64;
const STRAY_FACTOR: usize = 16;
/// Time of a window without recorded data.
const NEVER: Timestamp<System> = Timestamp::from_ns(0);
