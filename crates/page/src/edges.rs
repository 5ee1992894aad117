//! The map of probed edges, with each edge's residual, margin and loss.
//!
//! It combines the last windows of every node's file, or of a simulation, with the offsets of the
//! same rounds. `maps.js` draws the square, and `html` lists the worst edges. An edge from i to j
//! measures θ = offset_j − offset_i around its own midpoint, so at the round's instant M, when i's
//! clock shows M + offset_i, its residual is α·(M + offset_i − middle) + β − (offset_j − offset_i).
//! Residual and margin are medians over these rounds. Loss covers the whole run, as `report.json`
//! counts packets; without a report it covers the exchanges in these rounds. It does not read the
//! beginning of a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;

use probe_sync::report::RunReport;
use probe_sync_estimate::statistics::median;
use probe_sync_files::{newest, open_regular};
use probe_sync_lines::{EdgeFit, NodeWindow};
use probe_sync_time::NodeId;
use serde::Serialize;

use crate::number::Number;
use crate::rounds::PageRound;

/// Edges and their quality.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct EdgeMap {
    /// Rows and columns of the map, in order.
    pub nodes: Vec<NodeId>,
    /// The edges, in order of source and destination; if there are too many, those with the largest
    /// residuals.
    pub edges: Vec<EdgeCell>,
    /// Omitted edges.
    pub left_out: usize,
    /// Rounds at the end of the run that residuals and margins cover.
    pub rounds: usize,
    /// Nodes without a file of edge fits in the directory.
    pub without_file: usize,
    /// Loss is that of packets over the whole run.
    pub loss_of_packets: bool,
}

/// One edge.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub(crate) struct EdgeCell {
    /// The probing node.
    pub src: NodeId,
    /// The answering node.
    pub dst: NodeId,
    /// Median residual, ns.
    pub residual_ns: Number,
    /// Median margin, ns.
    pub margin_ns: Number,
    /// Share of lost packets, 0 to 1.
    pub loss: Number,
}

/// Sums of an edge.
#[derive(Default)]
struct Edge {
    residuals: Vec<f64>,
    margins: Vec<f64>,
    finished: u64,
    lost: u64,
}

/// The map of a run, from its last rounds.
pub(crate) fn map<'a>(
    directory: &Path,
    nodes: &[NodeId],
    latest: impl IntoIterator<Item = &'a PageRound>,
    report: Option<&RunReport>,
) -> EdgeMap {
    let mut edges = Edges::of(latest, None);
    let mut without_file = 0;
    for node in nodes.iter().take(FILES_MAX) {
        let path = directory.join("windows").join(format!("node{node}.jsonl"));
        let Ok(windows) = open_regular(&newest(&path)).and_then(|file| last_windows(&file, edges.rounds.len())) else {
            without_file += 1;
            continue;
        };
        edges.take(&windows);
    }
    without_file += nodes.len().saturating_sub(FILES_MAX);
    let packets = report.map_or(&[][..], |report| &report.packets);
    let loss: BTreeMap<_, f64> =
        packets.iter().map(|of| ((of.src, of.dst), of.lost as f64 / (of.sent.max(1)) as f64)).collect();
    EdgeMap { without_file, ..edges.map(nodes, &loss) }
}

/// The map of the given windows, from the rounds that they belong to. The rounds have no offset of
/// the `reference`: it is 0.
pub(crate) fn map_of<'a>(
    windows: &[NodeWindow],
    nodes: &[NodeId],
    latest: impl IntoIterator<Item = &'a PageRound>,
    reference: NodeId,
) -> EdgeMap {
    let fitted: BTreeSet<u64> = windows.iter().map(|window| window.round_id.0).collect();
    let mut edges = Edges::of(latest.into_iter().filter(|round| fitted.contains(&round.number)), Some(reference));
    edges.take(windows);
    edges.map(nodes, &BTreeMap::new())
}

/// Edges being collected.
struct Edges<'a> {
    rounds: BTreeMap<u64, Known<'a>>,
    edges: BTreeMap<(NodeId, NodeId), Edge>,
}

impl<'a> Edges<'a> {
    fn of(latest: impl IntoIterator<Item = &'a PageRound>, reference: Option<NodeId>) -> Self {
        let known = |round: &'a PageRound| (round.number, Known::of(round, reference));
        Self { rounds: latest.into_iter().map(known).collect(), edges: BTreeMap::new() }
    }

    fn take(&mut self, windows: &[NodeWindow]) {
        let known = windows.iter().filter_map(|window| Some((window, self.rounds.get(&window.round_id.0)?)));
        for (fit, known) in known.flat_map(|(window, known)| window.edges.iter().map(move |fit| (fit, known))) {
            self.edges.entry((fit.src_node_id, fit.dst_node_id)).or_default().take(fit, known);
        }
    }

    /// Finishes the map, with the shares of lost packets, if they were counted.
    fn map(mut self, nodes: &[NodeId], loss: &BTreeMap<(NodeId, NodeId), f64>) -> EdgeMap {
        for direction in loss.keys() {
            self.edges.entry(*direction).or_default();
        }
        let cell = |((src, dst), edge): ((NodeId, NodeId), Edge)| EdgeCell {
            src,
            dst,
            residual_ns: middle(edge.residuals),
            margin_ns: middle(edge.margins),
            loss: match loss.get(&(src, dst)) {
                Some(share) => Number((share * 1e5).round() / 1e5),
                None if edge.finished + edge.lost == 0 || !loss.is_empty() => Number::NONE,
                None => Number((edge.lost as f64 / (edge.finished + edge.lost) as f64 * 1e5).round() / 1e5),
            },
        };
        let mut edges: Vec<EdgeCell> = self.edges.into_iter().map(cell).collect();
        let left_out = keep_worst(&mut edges);
        let (nodes, rounds) = (nodes.to_vec(), self.rounds.len());
        EdgeMap { nodes, edges, left_out, rounds, without_file: 0, loss_of_packets: !loss.is_empty() }
    }
}

impl EdgeMap {
    /// The edges with the largest residuals, then loss.
    pub fn worst(&self, count: usize) -> Vec<&EdgeCell> {
        let mut worst: Vec<&EdgeCell> = self.edges.iter().collect();
        worst.sort_by(|a, b| size(b).total_cmp(&size(a)).then(b.loss.0.total_cmp(&a.loss.0)));
        worst.truncate(count);
        worst
    }
}

/// Offsets of a round by node.
struct Known<'a> {
    round: &'a PageRound,
    offsets: BTreeMap<NodeId, f64>,
}

impl<'a> Known<'a> {
    fn of(round: &'a PageRound, reference: Option<NodeId>) -> Self {
        let known = round.nodes.iter().filter(|node| node.reachable && !node.disturbed && node.offset_ns.is_finite());
        let known = known.map(|node| (node.node, node.offset_ns));
        Self { round, offsets: reference.map(|node| (node, 0.0)).into_iter().chain(known).collect() }
    }
}

impl Edge {
    fn take(&mut self, fit: &EdgeFit, known: &Known<'_>) {
        self.finished += u64::from(fit.pairs_count);
        self.lost += u64::from(fit.lost_count);
        self.margins.push(fit.margin_ns);
        let of = |node| known.offsets.get(&node).copied();
        if let Some((src, dst)) = of(fit.src_node_id).zip(of(fit.dst_node_id)) {
            // Integers first: absolute times do not fit into a float.
            let x = (i128::from(known.round.at_ns) - i128::from(fit.midpoint.as_ns())) as f64 + src;
            self.residuals.push(fit.alpha * x + fit.beta - (dst - src));
        }
    }
}

fn middle(values: Vec<f64>) -> Number {
    if values.is_empty() { Number::NONE } else { Number::tenth(median(values)) }
}

fn size(edge: &EdgeCell) -> f64 {
    if edge.residual_ns.0.is_nan() { -1.0 } else { edge.residual_ns.0.abs() }
}

/// Omits the edges with the smallest residuals if there are too many; returns how many.
fn keep_worst(edges: &mut Vec<EdgeCell>) -> usize {
    let left_out = edges.len().saturating_sub(EDGES_MAX);
    if left_out > 0 {
        edges.sort_by(|a, b| size(b).total_cmp(&size(a)));
        edges.truncate(EDGES_MAX);
        edges.sort_by_key(|edge| (edge.src, edge.dst));
    }
    left_out
}

fn last_windows(file: &File, count: usize) -> std::io::Result<Vec<NodeWindow>> {
    probe_sync::standing::last_lines(file, |windows: &[NodeWindow]| windows.len() >= count)
}

/// Most files opened.
const FILES_MAX: usize = 4096;
/// Most edges in the page: two hundred kilobytes.
const EDGES_MAX: usize = 3_000;
