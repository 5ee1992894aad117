//! The lines of `probes/nodeN.jsonl`: raw exchanges and the ends of windows.
//!
//! A node writes them with `keep_probes`, and `solve` and the export read them, through the same
//! types.

use probe_sync_estimate::round::WindowCut;
use probe_sync_lines::PeerPackets;
use probe_sync_time::{Edge, Exchange, NodeId, RoundId, StampSource, System, Timestamp};
use serde::{Deserialize, Serialize};

/// A raw exchange: a line of `probes/nodeN.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeLine {
    /// The round whose window the exchange finished in.
    pub round_id: RoundId,
    /// The node that probed.
    pub src: NodeId,
    /// The node that answered.
    pub dst: NodeId,
    /// Number of the exchange on its edge.
    pub seq: u32,
    /// Source of the stamps.
    pub stamp: StampSource,
    /// `[pt1_tx, pt1_rx, pt2_tx, pt2_rx, pr1_tx, pr1_rx, pr2_tx, pr2_rx]`, ns.
    pub t: [i64; 8],
}

impl ProbeLine {
    /// Creates the line for an exchange.
    pub fn new(round_id: RoundId, exchange: &Exchange) -> Self {
        Self {
            round_id,
            src: exchange.edge.src,
            dst: exchange.edge.dst,
            seq: exchange.seq,
            stamp: exchange.stamp,
            t: exchange.t.map(|stamp| stamp.as_ns()),
        }
    }
}

/// The end of a window in `probes/nodeN.jsonl`: its start, its end and its losses, so that `solve`
/// cuts the same windows. Readers that support only exchanges skip lines with `meta`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeWindowLine {
    /// Always true.
    pub meta: bool,
    /// The round.
    pub round_id: RoundId,
    /// The node that probed.
    pub src: NodeId,
    /// The window's start on that node's clock.
    #[serde(rename = "window_start_ns")]
    pub window_start: Timestamp<System>,
    /// The window's end on that node's clock.
    #[serde(rename = "window_end_ns")]
    pub window_end: Timestamp<System>,
    /// Lost exchanges by destination.
    pub lost: Vec<(NodeId, u32)>,
    /// Packets by peer; empty if they were not counted.
    #[serde(default)]
    pub packets: Vec<PeerPackets>,
    /// Bounds of the error that the conversion of an interface's clock causes in all stamps of this
    /// node and of a destination, ns, unless both are zero.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stamp_errors_ns: Vec<(NodeId, [f64; 2])>,
}

impl ProbeWindowLine {
    /// Creates the line for the end of a window.
    pub fn new(round_id: RoundId, cut: &WindowCut) -> Self {
        Self {
            meta: true,
            round_id,
            src: cut.node,
            window_start: cut.start,
            window_end: cut.end,
            lost: cut.edges.iter().map(|edge| (edge.edge.dst, edge.lost)).collect(),
            packets: cut.packets.clone(),
            stamp_errors_ns: cut
                .edges
                .iter()
                .filter(|edge| edge.stamp_errors_ns != [0.0; 2])
                .map(|edge| (edge.edge.dst, edge.stamp_errors_ns))
                .collect(),
        }
    }

    /// Returns the bounds of the stamps' errors, by edge.
    pub fn stamp_errors(&self) -> impl Iterator<Item = (Edge, [f64; 2])> + '_ {
        self.stamp_errors_ns.iter().map(|(dst, errors)| (Edge { src: self.src, dst: *dst }, *errors))
    }
}

/// Any line of `probes/nodeN.jsonl`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum RecordedLine {
    /// The end of a window.
    Close(ProbeWindowLine),
    /// An exchange.
    Probe(ProbeLine),
}
