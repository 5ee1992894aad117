//! One-way packets that somebody else captured on both sides, as windows of fitted edges.
//!
//! Place in the flow: in place of recorded exchanges or fits. The files are CSV; their first line names the columns:
//! `src,dst,send_ns,recv_ns` and optionally `stamp` (`hardware`, `kernel` or `user`, which is the default), in any order. Nodes are
//! numbers; `send_ns` is on the sender's clock, `recv_ns` on the receiver's. In place of `src` and `dst` there may be `dir`: `ab` for
//! packets from node 0 to node 1, `ba` for the way back. Lines that begin with `#` are comments.
//!
//! Windows are cut on the reference's clock. For that the nodes' clocks are set against it roughly: from node to node, by half the
//! difference of the two ways' least `recv − send`, which is right to within the delays. Each pair of nodes is fitted with
//! [`fit_packets`]; the edge runs from the smaller number to the larger, forward are the packets from its source.
//!
//! What it does not do: solve, smooth.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use probe_sync_estimate::edge_fit::{FitOptions, OneWayPacket, PacketWindow, fit_packets};
use probe_sync_estimate::window::{EdgeAlphaBeta, NodeWindowData};
use probe_sync_time::{Duration, Edge, NodeId, RoundId, StampSource, System, Timestamp};

use super::plausible::{MAX_NODES, NODE_TOO_LARGE, TIME_TOO_FAR, TIMES_NS};
use super::recording::Recording;
use crate::Error;

/// The packets of all files, by sender and receiver.
#[derive(Debug, Default)]
pub(super) struct Packets(BTreeMap<Edge, Vec<(OneWayPacket, StampSource)>>);

/// Where a file has its columns.
#[derive(Copy, Clone, Debug)]
struct Columns {
    ends: Ends,
    sent: usize,
    received: usize,
    stamp: Option<usize>,
}

#[derive(Copy, Clone, Debug)]
enum Ends {
    Numbers { src: usize, dst: usize },
    Direction(usize),
}

impl Packets {
    /// Reads a file. Lines that are no packet are left out and named.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn read(&mut self, path: &Path, recording: &mut Recording) -> Result<(), Error> {
        let mut columns = None;
        recording.read(path, |recording, path, number, line| {
            let Ok(line) = std::str::from_utf8(line) else { return recording.skip(path, number, "no text") };
            let fields: Vec<&str> = line.trim().split(',').map(str::trim).collect();
            if line.starts_with('#') {
                return;
            }
            let taken = match &columns {
                None => Columns::of(&fields).map(|found| columns = Some(found)),
                Some(columns) => columns.packet(&fields).map(|(edge, packet, stamp)| {
                    recording.nodes.extend([edge.src, edge.dst]);
                    recording.solved.exchanges += 1;
                    self.0.entry(edge).or_default().push((packet, stamp));
                }),
            };
            if let Err(reason) = taken {
                recording.skip(path, number, &reason);
            }
        })
    }

    /// Cuts the packets into windows of `length` and fits every pair of nodes in each.
    ///
    /// # Errors
    /// [`Error::Configuration`] when `length` makes too many windows.
    pub(super) fn fit_into(self, recording: &mut Recording, length: Option<Duration>) -> Result<(), Error> {
        let offsets = self.rough_offsets(recording.reference());
        for node in recording.nodes.iter().copied().filter(|node| !offsets.contains_key(node)).collect::<Vec<_>>() {
            recording.note(format!("node {node}: no packets both ways join it to node {}", recording.reference()));
        }
        let on_reference = |edge: &Edge, packet: &OneWayPacket| Some(packet.sent - *offsets.get(&edge.src)?);
        let all = || self.0.iter().flat_map(|(edge, packets)| packets.iter().map(move |(packet, _)| (edge, packet)));
        let times = || all().filter_map(|(edge, packet)| on_reference(edge, packet));
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(()) };
        let length = length.unwrap_or(last - first + Duration::from_ns(1));
        if length <= Duration::ZERO || (last - first).as_ns() / length.as_ns() >= MAX_WINDOWS {
            let reason = format!("must be above zero and make fewer than {MAX_WINDOWS} windows");
            return Err(Error::Configuration { origin: "command line".into(), key: "--window".into(), reason });
        }
        let mut windows: BTreeMap<i64, Self> = BTreeMap::new();
        for (edge, packets) in &self.0 {
            for (packet, stamp) in packets {
                let Some(at) = on_reference(edge, packet) else { continue };
                let window = windows.entry((at - first).as_ns() / length.as_ns()).or_default();
                window.0.entry(*edge).or_default().push((*packet, *stamp));
            }
        }
        for (window, packets) in windows {
            let start = first + Duration::from_ns(window * length.as_ns());
            let round_id = RoundId(window.unsigned_abs());
            for (node, offset) in &offsets {
                recording.put(packets.window(*node, round_id, start + *offset, length));
            }
        }
        Ok(())
    }

    /// What `node` contributes to a round: the edges to nodes of larger numbers.
    fn window(&self, node: NodeId, round_id: RoundId, start: Timestamp<System>, length: Duration) -> NodeWindowData {
        let end = start + length;
        let edges = self.pairs().into_iter().filter(|edge| edge.src == node);
        NodeWindowData {
            node_id: node,
            round_id,
            window_start: start,
            window_end: end,
            edges: edges.filter_map(|edge| self.fitted(edge, start.midpoint(end))).collect(),
            clock_event: None,
            stop_requested: false,
            packets: Vec::new(),
            unfitted: Vec::new(),
        }
    }

    fn fitted(&self, edge: Edge, midpoint: Timestamp<System>) -> Option<EdgeAlphaBeta> {
        let [forward, reverse] = [edge, reversed(edge)].map(|way| self.0.get(&way).map_or(&[][..], Vec::as_slice));
        // The poorest: stamps of several sources are fitted as if all were of that.
        let stamp = forward.iter().chain(reverse).map(|(_, stamp)| *stamp).max()?;
        let packets = |way: &[(OneWayPacket, StampSource)]| way.iter().map(|(packet, _)| *packet).collect::<Vec<_>>();
        let (forward, reverse) = (packets(forward), packets(reverse));
        let window = PacketWindow { edge, midpoint, forward: &forward, reverse: &reverse, stamp };
        fit_packets(&window, &FitOptions { max_skew: MAX_SKEW, ..FitOptions::default() }).map(|(line, _)| line)
    }

    /// Pairs of nodes with packets both ways, from the smaller number to the larger.
    fn pairs(&self) -> BTreeSet<Edge> {
        let both = self.0.keys().filter(|edge| edge.src < edge.dst && self.0.contains_key(&reversed(**edge)));
        both.copied().collect()
    }

    /// By how much the nodes' clocks are ahead of the reference's, roughly; without the nodes that no packets join to it.
    fn rough_offsets(&self, reference: NodeId) -> BTreeMap<NodeId, Duration> {
        let least = |edge: Edge| self.0[&edge].iter().map(|(packet, _)| packet.received.ahead_of(packet.sent)).min();
        let theta = |edge: Edge| {
            let [forward, reverse] = [edge, reversed(edge)].map(|way| least(way).map_or(0, Duration::as_ns));
            Duration::from_ns((forward / 2).saturating_sub(reverse / 2))
        };
        let mut offsets = BTreeMap::from([(reference, Duration::ZERO)]);
        let mut frontier = vec![reference];
        let pairs = self.pairs();
        while let Some(node) = frontier.pop() {
            let here = offsets[&node];
            for edge in pairs.iter().flat_map(|edge| [*edge, reversed(*edge)]).filter(|edge| edge.src == node) {
                if !offsets.contains_key(&edge.dst) {
                    offsets.insert(edge.dst, here + theta(edge));
                    frontier.push(edge.dst);
                }
            }
        }
        offsets
    }
}

impl Columns {
    fn of(names: &[&str]) -> Result<Self, String> {
        let place = |wanted: &str| names.iter().position(|name| *name == wanted);
        let needed = |wanted: &str| place(wanted).ok_or_else(|| format!("the first line names no column {wanted}"));
        let ends = match place("dir") {
            Some(direction) => Ends::Direction(direction),
            None => Ends::Numbers { src: needed("src")?, dst: needed("dst")? },
        };
        Ok(Self { ends, sent: needed("send_ns")?, received: needed("recv_ns")?, stamp: place("stamp") })
    }

    fn packet(&self, fields: &[&str]) -> Result<(Edge, OneWayPacket, StampSource), String> {
        let field = |place: usize| fields.get(place).copied().ok_or("too few columns");
        let node = |place: usize| {
            let text = field(place)?;
            text.parse().map(NodeId).map_err(|error| format!("node \"{text}\": {error}"))
        };
        let time = |place: usize| {
            let text = field(place)?;
            let ns: i64 = text.parse().map_err(|error| format!("time \"{text}\": {error}"))?;
            TIMES_NS.contains(&ns).then_some(Timestamp::from_ns(ns)).ok_or_else(|| TIME_TOO_FAR.to_owned())
        };
        let edge = match self.ends {
            Ends::Numbers { src, dst } => Edge { src: node(src)?, dst: node(dst)? },
            Ends::Direction(place) => match field(place)? {
                "ab" => Edge::new(0, 1),
                "ba" => Edge::new(1, 0),
                other => return Err(format!("direction \"{other}\" is neither ab nor ba")),
            },
        };
        if edge.src == edge.dst {
            return Err("source and destination are the same node".into());
        }
        if edge.src.0.max(edge.dst.0) >= MAX_NODES {
            return Err(NODE_TOO_LARGE.into());
        }
        let stamp = match self.stamp.map(field).transpose()? {
            None | Some("user" | "") => StampSource::User,
            Some("kernel") => StampSource::Kernel,
            Some("hardware") => StampSource::Hardware,
            Some(other) => return Err(format!("stamp \"{other}\" is none of hardware, kernel, user")),
        };
        Ok((edge, OneWayPacket { sent: time(self.sent)?, received: time(self.received)? }, stamp))
    }
}

fn reversed(edge: Edge) -> Edge {
    Edge { src: edge.dst, dst: edge.src }
}

/// Captures may be short, and packets of a tenth of a second leave a thousandth of the rate open.
const MAX_SKEW: f64 = 0.01;
/// More than a month of windows of a second.
const MAX_WINDOWS: i64 = 1 << 22;
