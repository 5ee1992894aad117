//! The messages of the design documents' `probe_sync.proto` (package `xla.profiler`): one per file.
//!
//! ```text
//! NodeWindowData   { node_id = 1, window_id = 2, round_id = 3, window_start_ns = 4, window_end_ns = 5: varints; edges = 6 }
//! GlobalWindowData { window_id = 1, round_id = 2, window_start_ns = 3, window_end_ns = 4: varints; all_nodes = 5; sequence_number = 6: varint }
//! EdgeAlphaBeta    { src_node_id = 1, dst_node_id = 2: varints; alpha = 3, beta = 4: doubles; pairs_count = 5, lost_count = 6: varints }
//! ```
//!
//! Our own messages of these names (`proto/probe_sync.proto`) have other fields, with times in 8
//! bytes each. Which message a file holds shows in how fields 5 and 6 are encoded, and ours in how
//! the times are; a file that fits neither is refused. A field that is there twice is refused too:
//! two messages one after the other would be read as a mixture of both.

use std::io::Read;
use std::path::Path;

use probe_sync_lines::Round;
use probe_sync_time::NodeId;
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

use super::fit::{Fit, Quanta, Window};
use crate::Error;

#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(int32, tag = "1")]
    node_id: i32,
    #[prost(uint64, tag = "2")]
    window_id: u64,
    #[prost(uint64, tag = "3")]
    round_id: u64,
    #[prost(uint64, tag = "4")]
    window_start_ns: u64,
    #[prost(uint64, tag = "5")]
    window_end_ns: u64,
    #[prost(message, repeated, tag = "6")]
    edges: Vec<EdgeMessage>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct EdgeMessage {
    #[prost(int32, tag = "1")]
    src_node_id: i32,
    #[prost(int32, tag = "2")]
    dst_node_id: i32,
    #[prost(double, tag = "3")]
    alpha: f64,
    #[prost(double, tag = "4")]
    beta: f64,
    #[prost(int32, tag = "5")]
    pairs_count: i32,
    #[prost(int32, tag = "6")]
    lost_count: i32,
}

/// A message; only its nodes are read, each of which states its own window.
#[derive(Clone, PartialEq, Message)]
struct Global {
    #[prost(uint64, tag = "1")]
    window_id: u64,
    #[prost(uint64, tag = "2")]
    round_id: u64,
    #[prost(uint64, tag = "3")]
    window_start_ns: u64,
    #[prost(uint64, tag = "4")]
    window_end_ns: u64,
    #[prost(bytes = "vec", repeated, tag = "5")]
    all_nodes: Vec<Vec<u8>>,
    #[prost(uint64, tag = "6")]
    sequence_number: u64,
}

/// Writes `GlobalWindowData` of a round with the windows of its nodes.
pub(super) fn bytes<'a>(round: &Round, windows: impl Iterator<Item = &'a Window>) -> Vec<u8> {
    let unsigned = |ns: i64| ns.unsigned_abs();
    let node = |window: &Window| {
        let edge = |fit: &Fit| EdgeMessage {
            src_node_id: signed(window.node.0),
            dst_node_id: signed(fit.dst.0),
            alpha: fit.alpha,
            beta: fit.beta,
            pairs_count: signed(fit.pairs),
            lost_count: signed(fit.lost),
        };
        let number = window.round.unwrap_or_default();
        Node {
            node_id: signed(window.node.0),
            window_id: number,
            round_id: number,
            window_start_ns: unsigned(window.start_ns),
            window_end_ns: unsigned(window.end_ns),
            edges: window.fits.iter().map(edge).collect(),
        }
    };
    let global = Global {
        window_id: round.round_id.0,
        round_id: round.round_id.0,
        window_start_ns: unsigned(round.window_start.as_ns()),
        window_end_ns: unsigned(round.window_end.as_ns()),
        all_nodes: windows.map(|window| node(window).encode_to_vec()).collect(),
        sequence_number: round.round_id.0,
    };
    global.encode_to_vec()
}

/// A number of nodes, pairs or losses in the type that the messages have for it.
fn signed(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Reads a file.
///
/// # Errors
/// Returns an error if it cannot be read, or is not a message of the XLA profiler.
pub(super) fn read(path: &Path, mut take: impl FnMut(Window) -> Result<(), String>) -> Result<(), Error> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(Error::file(path, "read"))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(Error::file(path, "read"))?;
    let wrong =
        |reason: String| Error::Configuration { origin: "command line".into(), key: "--windows".into(), reason };
    let wrong = |reason: String| wrong(format!("{}: {reason}", path.display()));
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(format!("longer than {} MiB, more than any message", FILE_BYTES_MAX >> 20)));
    }
    let nodes = match kind(&bytes).map_err(wrong)? {
        Kind::Node => vec![bytes],
        Kind::Global => Global::decode(&bytes[..]).map_err(|error| wrong(error.to_string()))?.all_nodes,
    };
    nodes.iter().try_for_each(|node| window(node).and_then(&mut take)).map_err(wrong)
}

fn window(bytes: &[u8]) -> Result<Window, String> {
    if kind(bytes)? != Kind::Node {
        return Err("all_nodes contains a message other than NodeWindowData".into());
    }
    let node = Node::decode(bytes).map_err(|error| error.to_string())?;
    let number = |value: i32, what: &str| u32::try_from(value).map_err(|_| format!("a negative {what}, {value}"));
    let time = |ns: u64| i64::try_from(ns).map_err(|_| format!("a time of {ns} ns, after the year 2262"));
    let fit = |edge: &EdgeMessage| {
        if edge.src_node_id != node.node_id {
            return Err(format!("an edge from node {} in the window of node {}", edge.src_node_id, node.node_id));
        }
        Ok(Fit {
            dst: NodeId(number(edge.dst_node_id, "dst_node_id")?),
            alpha: edge.alpha,
            beta: edge.beta,
            pairs: number(edge.pairs_count, "pairs_count")?,
            lost: number(edge.lost_count, "lost_count")?,
            quanta: Quanta::default(),
        })
    };
    Ok(Window {
        node: NodeId(number(node.node_id, "node_id")?),
        round: Some(node.round_id),
        start_ns: time(node.window_start_ns)?,
        end_ns: time(node.window_end_ns)?,
        fits: node.edges.iter().map(fit).collect::<Result<_, _>>()?,
    })
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Global,
}

/// Returns the kind of message, by the encoding of its fields.
fn kind(bytes: &[u8]) -> Result<Kind, String> {
    let mut seen: [Option<WireType>; FIELDS + 1] = [None; FIELDS + 1];
    let mut rest = bytes;
    // Bounded: each turn takes bytes off.
    while !rest.is_empty() {
        let read = |error: prost::DecodeError| format!("not a protobuf message: {error}");
        let (tag, wire) = decode_key(&mut rest).map_err(read)?;
        skip_field(wire, tag, &mut rest, DecodeContext::default()).map_err(read)?;
        let Some(place) = seen.get_mut(tag as usize).filter(|_| tag > 0) else {
            return Err(format!("field {tag} is not part of any message of the XLA distributed profiler"));
        };
        if wire == WireType::SixtyFourBit {
            return Err(
                "these are messages of probe_sync itself (proto/probe_sync.proto), not of the XLA distributed profiler; give the run's \
                 windows/*.jsonl"
                    .into(),
            );
        }
        let repeats = wire == WireType::LengthDelimited;
        match place.replace(wire) {
            Some(before) if before != wire || !repeats => {
                return Err(format!("field {tag} occurs twice; give one message per file"));
            }
            _ => {}
        }
    }
    let is = |tag: usize, wire: WireType| seen[tag].is_none_or(|found| found == wire);
    let varints = |tags: std::ops::RangeInclusive<usize>| tags.into_iter().all(|tag| is(tag, WireType::Varint));
    let node = varints(1..=5) && is(6, WireType::LengthDelimited);
    let global = varints(1..=4) && is(5, WireType::LengthDelimited) && is(6, WireType::Varint);
    match (node, global) {
        (true, false) => Ok(Kind::Node),
        (false, true) => Ok(Kind::Global),
        (true, true) => Err("a message without windows, or truncated".into()),
        (false, false) => Err("neither NodeWindowData nor GlobalWindowData of the XLA distributed profiler".into()),
    }
}

/// Highest field number of both messages.
const FIELDS: usize = 6;
/// Largest file, bytes; enough for ten thousand nodes with ten edges each.
const FILE_BYTES_MAX: u64 = 8 << 20;
