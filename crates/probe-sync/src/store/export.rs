//! A run directory as one protobuf file, for readers that want types instead of JSON lines.
//!
//! Place in the flow: after a run. Reads `run.json`, `global_windows.jsonl`, `windows/*.jsonl`, `probes/*.jsonl`; writes
//! message `RunExport` of `proto/probe_sync.proto`. A last line cut short (the run was killed) is left out.

use std::fs;
use std::path::{Path, PathBuf};

use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_estimate::window::{self, EdgeAlphaBeta, NodeEstimate, NodeWindowData};
use probe_sync_time::{Edge, StampSource};
use prost::Message;
use serde::de::DeserializeOwned;

use super::proto_generated as proto;
use super::{ProbeLine, RecordedLine, write_whole};
use crate::Error;

/// Writes the run in `directory` to `out`.
///
/// # Errors
/// Names the file, and the line where one is wrong that is not the last.
pub fn run_directory(directory: &Path, out: &Path) -> Result<(), Error> {
    let run = directory.join("run.json");
    let mut export = proto::RunExport {
        run_json: fs::read_to_string(&run).map_err(Error::file(&run, "read"))?,
        rounds: lines::<GlobalWindowData>(&directory.join("global_windows.jsonl"))?.iter().map(round).collect(),
        ..proto::RunExport::default()
    };
    for path in node_files(&directory.join("windows"))? {
        export.windows.extend(lines::<NodeWindowData>(&path)?.iter().map(window));
    }
    export.windows.sort_by_key(|window| (window.round_id, window.node_id));
    for path in node_files(&directory.join("probes"))? {
        let exchanges = lines::<RecordedLine>(&path)?.into_iter().filter_map(|line| match line {
            RecordedLine::Probe(probe) => Some(exchange(&probe)),
            // Its losses are in the window's edges.
            RecordedLine::Close(_) => None,
        });
        export.exchanges.extend(exchanges);
    }
    write_whole(out, &export.encode_to_vec())
}

/// The run in the bytes of an export.
///
/// # Errors
/// When the bytes are no `RunExport`.
pub fn read(bytes: &[u8]) -> Result<proto::RunExport, prost::DecodeError> {
    proto::RunExport::decode(bytes)
}

fn node_files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(directory).map_err(Error::file(directory, "read"))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    Ok(paths)
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    let text = fs::read_to_string(path).map_err(Error::file(path, "read"))?;
    let count = text.lines().count();
    let mut values = Vec::with_capacity(count);
    for (index, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(value) => values.push(value),
            // A killed run may end in the middle of a line.
            Err(_) if index + 1 == count && !text.ends_with('\n') => {}
            Err(error) => {
                let source =
                    std::io::Error::new(std::io::ErrorKind::InvalidData, format!("line {}: {error}", index + 1));
                return Err(Error::File { path: path.into(), action: "read", source });
            }
        }
    }
    Ok(values)
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn stamp(stamp: StampSource) -> i32 {
    let stamp = match stamp {
        StampSource::Hardware => proto::StampSource::Hardware,
        StampSource::Kernel => proto::StampSource::Kernel,
        StampSource::User => proto::StampSource::User,
    };
    stamp.into()
}

fn edge(edge: Edge) -> proto::Edge {
    proto::Edge { src_node_id: edge.src.0, dst_node_id: edge.dst.0 }
}

fn clock_event(event: window::ClockEvent) -> proto::ClockEvent {
    proto::ClockEvent { step_ns: event.step_ns, slew_ppm: event.slew_ppm, at_ns: event.at.as_ns() }
}

fn line(line: &EdgeAlphaBeta) -> proto::EdgeAlphaBeta {
    let [beta_beta, beta_alpha, alpha_alpha] = line.covariance;
    proto::EdgeAlphaBeta {
        src_node_id: line.src_node_id.0,
        dst_node_id: line.dst_node_id.0,
        midpoint_ns: line.midpoint.as_ns(),
        alpha: line.alpha,
        beta: line.beta,
        pairs_count: line.pairs_count,
        lost_count: line.lost_count,
        covariance: Some(proto::LineCovariance { beta_beta, beta_alpha, alpha_alpha }),
        margin_ns: line.margin_ns,
        bound_lo_ns: finite(line.bound_lo_ns),
        bound_hi_ns: finite(line.bound_hi_ns),
        alpha_lo: finite(line.alpha_bounds[0]),
        alpha_hi: finite(line.alpha_bounds[1]),
        feasible: line.feasible,
        purity: line.purity,
        stamp: stamp(line.stamp),
    }
}

fn window(window: &NodeWindowData) -> proto::NodeWindowData {
    proto::NodeWindowData {
        node_id: window.node_id.0,
        window_id: window.round_id.0,
        round_id: window.round_id.0,
        window_start_ns: window.window_start.as_ns(),
        window_end_ns: window.window_end.as_ns(),
        edges: window.edges.iter().map(line).collect(),
        clock_event: window.clock_event.map(clock_event),
        stop_requested: window.stop_requested,
        packets: window.packets.iter().map(packets).collect(),
        unfitted: window.unfitted.iter().map(|(dst, lost)| proto::LostExchanges { dst: dst.0, lost: *lost }).collect(),
    }
}

fn packets(packets: &window::PeerPackets) -> proto::PeerPackets {
    proto::PeerPackets { peer: packets.peer.0, sent: packets.sent, received: packets.received }
}

fn node(node: &NodeEstimate) -> proto::NodeEstimate {
    proto::NodeEstimate {
        node_id: node.node_id.0,
        offset_ns: node.offset_ns,
        drift_ppm: node.drift_ppm,
        residual_ns: node.residual,
        reachable: node.reachable,
        converged: node.converged,
        sigma_ns: finite(node.sigma_ns),
        drift_sigma_ppm: finite(node.drift_sigma_ppm),
        bound_lo_ns: finite(node.bound_lo_ns),
        bound_hi_ns: finite(node.bound_hi_ns),
        edges_used: node.edges_used,
        edges_excluded: node.edges_excluded,
    }
}

fn round(round: &GlobalWindowData) -> proto::GlobalWindowData {
    let excluded = |(edge_left_out, reason): &(Edge, String)| proto::ExcludedEdge {
        edge: Some(edge(*edge_left_out)),
        reason: reason.clone(),
    };
    let events = round.clock_events.iter();
    proto::GlobalWindowData {
        window_id: round.round_id.0,
        round_id: round.round_id.0,
        sequence_number: round.round_id.0,
        window_start_ns: round.window_start.as_ns(),
        window_end_ns: round.window_end.as_ns(),
        all_nodes: round.all_nodes.iter().map(node).collect(),
        excluded_edges: round.excluded_edges.iter().map(excluded).collect(),
        worst_edge: round
            .worst_edge
            .map(|(worst, residual_ns)| proto::WorstEdge { edge: Some(edge(worst)), residual_ns }),
        asymmetry_sd_ns: round.asymmetry_sd_ns,
        loops: round.loops.0,
        loop_rms_ns: round.loops.1,
        clamped: round.clamped,
        contradictions: round
            .contradictions
            .iter()
            .map(|cycle| proto::Cycle { edges: cycle.iter().copied().map(edge).collect() })
            .collect(),
        clock_events: events
            .map(|(node, event)| proto::NodeClockEvent { node_id: node.0, event: Some(clock_event(*event)) })
            .collect(),
        decision: Some(proto::Decision {
            next_window_end_ns: round.decision.next_window_end.as_ns(),
            next_window_ns: round.decision.next_window.as_ns(),
            cadence_ns: round.decision.cadence.as_ns(),
            stop: round.decision.stop,
            extra_edges: round.decision.extra_edges.iter().copied().map(edge).collect(),
        }),
    }
}

fn exchange(probe: &ProbeLine) -> proto::Exchange {
    let [pt1_tx_ns, pt1_rx_ns, pt2_tx_ns, pt2_rx_ns, pr1_tx_ns, pr1_rx_ns, pr2_tx_ns, pr2_rx_ns] = probe.t;
    proto::Exchange {
        src_node_id: probe.src.0,
        dst_node_id: probe.dst.0,
        seq: probe.seq,
        stamp: stamp(probe.stamp),
        pt1_tx_ns,
        pt1_rx_ns,
        pt2_tx_ns,
        pt2_rx_ns,
        pr1_tx_ns,
        pr1_rx_ns,
        pr2_tx_ns,
        pr2_rx_ns,
        round_id: probe.round_id.0,
    }
}
