//! One-way packets captured on both sides by another tool, as windows of fitted edges.
//!
//! They replace recorded exchanges or fits. The files are CSV; their first line names the columns:
//! `src,dst,send_ns,recv_ns` and optionally `stamp` (`hardware`, `kernel` or `user`, which is the
//! default), in any order. Nodes are numbers; `send_ns` is on the sender's clock, `recv_ns` on the
//! receiver's. Instead of `src` and `dst` there may be `dir`: `ab` for packets from node 0 to node
//! 1, `ba` for the opposite direction. Lines that begin with `#` are comments.
//!
//! Each pair of nodes is an edge from the smaller number to the larger; forward are the packets
//! from its source. Both ways of an edge are cut into windows by the SOURCE's clock, where a
//! forward packet left and a reverse packet arrived, and fitted with [`fit_packets`]. Windows of
//! different nodes need to lie only roughly at the same time, because the solver moves every edge
//! to the reference's midpoint. For that the clocks are set against the reference's by one constant
//! each: from node to node, half the difference of the two ways' least `recv − send`. Where clocks
//! drift by d ppm over a capture of t s, windows are up to d·t/2 µs apart.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use probe_sync_estimate::edge_fit::{FitOptions, OneWayPacket, PacketWindow, fit_packets};
use probe_sync_lines::{EdgeFit, NodeWindow, Punctuality};
use probe_sync_time::{Duration, Edge, NodeId, RoundId, StampSource, System, Timestamp};

use super::plausible::{MAX_NODES, NODE_TOO_LARGE, TIME_TOO_FAR, TIMES_NS};
use super::recording::Recording;
use crate::Error;

/// The packets of all files, by sender and receiver.
#[derive(Debug, Default)]
pub(super) struct Packets(BTreeMap<Edge, Vec<(OneWayPacket, StampSource)>>);

/// One direction of a pair: the edge and its packets.
type Way<'a> = (Edge, &'a [(OneWayPacket, StampSource)]);

/// Positions of a file's columns.
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
    /// Reads a file. Lines that are not valid packets are skipped and listed.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or its first line does not name the columns.
    pub(super) fn read(&mut self, path: &Path, recording: &mut Recording) -> Result<(), Error> {
        let mut columns: Option<Result<Columns, String>> = None;
        recording.read(path, |recording, path, number, line| {
            let Ok(line) = std::str::from_utf8(line) else { return recording.skip(path, number, "no text") };
            let line = line.strip_prefix('\u{feff}').unwrap_or(line);
            let fields: Vec<&str> = line.trim().split(',').map(str::trim).collect();
            if line.starts_with('#') {
                return;
            }
            let taken = match &columns {
                None => {
                    columns = Some(Columns::of(&fields));
                    return;
                }
                // Told once, at the end of the file.
                Some(Err(_)) => return,
                Some(Ok(columns)) => columns.packet(&fields).map(|(edge, packet, stamp)| {
                    recording.nodes.extend([edge.src, edge.dst]);
                    recording.solved.exchanges += 1;
                    self.0.entry(edge).or_default().push((packet, stamp));
                }),
            };
            if let Err(reason) = taken {
                recording.skip(path, number, &reason);
            }
        })?;
        match columns {
            Some(Err(reason)) => Err(Error::Table { path: path.into(), reason }),
            _ => Ok(()),
        }
    }

    /// Divides the packets into windows of `length` and fits every pair of nodes in each.
    ///
    /// # Errors
    /// [`Error::Configuration`] if `length` gives too many windows.
    pub(super) fn fit_into(self, recording: &mut Recording, length: Option<Duration>) -> Result<(), Error> {
        let offsets = self.rough_offsets(recording.reference());
        for node in recording.nodes.iter().copied().filter(|node| !offsets.contains_key(node)).collect::<Vec<_>>() {
            recording.note(format!(
                "node {node}: not connected to node {} by packets in both directions",
                recording.reference()
            ));
        }
        let times = || self.pairs().flat_map(|(pair, ways)| ways.map(|way| times_at_source(pair, way)));
        let times = || times().flatten().filter_map(|(node, at)| Some(at - *offsets.get(&node)?));
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(()) };
        let length = length.unwrap_or(last - first + Duration::from_ns(1));
        let count = (last - first).as_ns() / length.as_ns().max(1) + 1;
        if length <= Duration::ZERO || count.saturating_mul(offsets.len() as i64) > MAX_NODE_WINDOWS {
            let nodes = offsets.len();
            let reason = format!(
                "must be greater than zero and give fewer windows: {count} windows of {nodes} nodes exceed the limit of \
                {MAX_NODE_WINDOWS} in total"
            );
            return Err(Error::Configuration { origin: "command line".into(), key: "--window".into(), reason });
        }
        let mut windows: BTreeMap<i64, Self> = BTreeMap::new();
        for (pair, ways) in self.pairs() {
            let Some(offset) = offsets.get(&pair.src) else { continue };
            for (edge, packets) in ways {
                for (packet, stamp) in packets {
                    let at = at_source(pair, edge, packet) - *offset;
                    let window = windows.entry((at - first).as_ns() / length.as_ns()).or_default();
                    window.0.entry(edge).or_default().push((*packet, *stamp));
                }
            }
        }
        let mut used = 0;
        for (window, packets) in windows {
            let start = first + Duration::from_ns(window * length.as_ns());
            let round_id = RoundId(window.unsigned_abs());
            let mut of_nodes: BTreeMap<NodeId, Vec<EdgeFit>> = BTreeMap::from([(recording.reference(), Vec::new())]);
            for (pair, ways) in packets.pairs() {
                let own_start = start + offsets[&pair.src];
                if let Some(line) = packets.fitted(pair, own_start.midpoint(own_start + length)) {
                    used += ways.iter().map(|(_, packets)| packets.len()).sum::<usize>();
                    of_nodes.entry(pair.src).or_default().push(line);
                }
            }
            for (node, edges) in of_nodes {
                recording.put(contribution(node, round_id, start + offsets[&node], length, edges));
            }
        }
        let all: usize = self.0.values().map(Vec::len).sum();
        if used < all {
            recording.solved.exchanges = used;
            recording.note(format!(
                "{} of {all} packets are in no fit, because their window has no packets in the other direction",
                all - used
            ));
        }
        Ok(())
    }

    fn fitted(&self, edge: Edge, midpoint: Timestamp<System>) -> Option<EdgeFit> {
        let [forward, reverse] = [edge, reversed(edge)].map(|way| self.0.get(&way).map_or(&[][..], Vec::as_slice));
        // The poorest: stamps of several sources are fitted as if all were of that.
        let stamp = forward.iter().chain(reverse).map(|(_, stamp)| *stamp).max()?;
        let packets = |way: &[(OneWayPacket, StampSource)]| way.iter().map(|(packet, _)| *packet).collect::<Vec<_>>();
        let (forward, reverse) = (packets(forward), packets(reverse));
        let window = PacketWindow { edge, midpoint, forward: &forward, reverse: &reverse, stamp };
        fit_packets(&window, &FitOptions { max_skew: MAX_SKEW, ..FitOptions::default() }).map(|(line, _)| line)
    }

    /// Returns the pairs of nodes with packets in both directions, from the smaller number to the
    /// larger, with the packets of each direction.
    fn pairs(&self) -> impl Iterator<Item = (Edge, [Way<'_>; 2])> {
        let upward = self.0.iter().filter(|(edge, _)| edge.src < edge.dst);
        upward.filter_map(|(edge, forward)| {
            let back = reversed(*edge);
            let reverse = self.0.get(&back)?;
            Some((*edge, [(*edge, forward.as_slice()), (back, reverse.as_slice())]))
        })
    }

    /// Returns the approximate offsets of the nodes from the reference, without nodes that no
    /// packets join to it.
    fn rough_offsets(&self, reference: NodeId) -> BTreeMap<NodeId, Duration> {
        let least = |edge: Edge| self.0[&edge].iter().map(|(packet, _)| packet.received.ahead_of(packet.sent)).min();
        let theta = |edge: Edge| {
            let [forward, reverse] = [edge, reversed(edge)].map(|way| least(way).map_or(0, Duration::as_ns));
            Duration::from_ns((forward / 2).saturating_sub(reverse / 2))
        };
        let mut neighbors: BTreeMap<NodeId, Vec<Edge>> = BTreeMap::new();
        for edge in self.pairs().flat_map(|(pair, _)| [pair, reversed(pair)]) {
            neighbors.entry(edge.src).or_default().push(edge);
        }
        let mut offsets = BTreeMap::from([(reference, Duration::ZERO)]);
        let mut frontier = vec![reference];
        while let Some(node) = frontier.pop() {
            let here = offsets[&node];
            for edge in neighbors.get(&node).into_iter().flatten() {
                if let Entry::Vacant(unknown) = offsets.entry(edge.dst) {
                    unknown.insert(here + theta(*edge));
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
        let needed = |wanted: &str| place(wanted).ok_or_else(|| format!("the first line has no column {wanted}"));
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
            let ns: i64 =
                text.parse().map_err(|error| format!("time \"{text}\": {error}; times are whole nanoseconds"))?;
            if ns <= 0 {
                return Err(format!("the timestamp {ns} is in 1970, which no capture clock shows; is it missing?"));
            }
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
            Some(other) => return Err(format!("stamp \"{other}\" is not one of hardware, kernel, user")),
        };
        Ok((edge, OneWayPacket { sent: time(self.sent)?, received: time(self.received)? }, stamp))
    }
}

/// Returns when the source of `pair` sent or received a packet of `edge`, on the source's own
/// clock.
fn at_source(pair: Edge, edge: Edge, packet: &OneWayPacket) -> Timestamp<System> {
    if edge == pair { packet.sent } else { packet.received }
}

fn times_at_source<'a>(pair: Edge, (edge, packets): Way<'a>) -> impl Iterator<Item = (NodeId, Timestamp<System>)> + 'a {
    packets.iter().map(move |(packet, _)| (pair.src, at_source(pair, edge, packet)))
}

/// Returns the contribution of `node` to a round.
fn contribution(
    node: NodeId,
    round_id: RoundId,
    start: Timestamp<System>,
    length: Duration,
    edges: Vec<EdgeFit>,
) -> NodeWindow {
    NodeWindow {
        node_id: node,
        round_id,
        window_start: start,
        window_end: start + length,
        edges,
        clock_event: None,
        stop_requested: false,
        packets: Vec::new(),
        unfitted: Vec::new(),
        punctuality: Punctuality::default(),
    }
}

fn reversed(edge: Edge) -> Edge {
    Edge { src: edge.dst, dst: edge.src }
}

/// Largest rate difference; captures may be short, and packets of a tenth of a second leave the
/// rate uncertain by a thousandth.
const MAX_SKEW: f64 = 0.01;
/// Most estimates: as many as the lines that `--knots` may write.
const MAX_NODE_WINDOWS: i64 = 10_000_000;
