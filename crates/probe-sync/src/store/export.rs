//! A run directory as one protobuf file, for readers that prefer types to JSON lines.
//!
//! It runs after a run, reads `run.json`, `global_windows.jsonl`, `windows/*.jsonl`,
//! `probes/*.jsonl` and `snapshots/*.jsonl`, and writes the message `RunExport` of `proto/probe_sync.proto`. The files of
//! ranks that took a lost master's place are merged into it. A truncated last line (the run was
//! killed) is omitted.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use probe_sync_files::{continuations, no_more_open_than, open_regular, segments};
use probe_sync_lines::{
    ClockBreak, ClockEvent, Culprit, Decision, EdgeFit, Fault, Findings, NodeEstimate, NodeWindow, PeerPackets,
    Punctuality, Round, SnapshotCounts,
};
use probe_sync_time::{Edge, NodeId, RoundId, StampSource, Timestamp};
use prost::Message;
use serde::de::DeserializeOwned;

use super::{ProbeLine, RecordedLine, proto_generated as proto, write_whole};
use crate::Error;
use crate::measure::snapshots::PairLine;

/// Writes the run in `directory` to `out`; returns the nodes that took part in rounds but whose
/// windows are missing, because nodes keep them on their own hosts.
///
/// # Errors
/// Names the file, and the line if one other than the last is invalid.
pub fn run_directory(directory: &Path, out: &Path) -> Result<Vec<NodeId>, Error> {
    let run = directory.join("run.json");
    let run_json = open_regular(&run).and_then(std::io::read_to_string).map_err(Error::file(&run, "read"))?;
    let (rounds, windows) = (rounds(directory)?, windows(directory)?);
    let mut export = proto::RunExport {
        run_json,
        rounds: rounds.iter().map(round).collect(),
        windows: windows.iter().map(window).collect(),
        ..proto::RunExport::default()
    };
    for path in node_files(&directory.join("probes"))? {
        let exchanges = lines::<RecordedLine>(&path)?.into_iter().filter_map(|line| match line {
            RecordedLine::Probe(probe) => Some(exchange(&probe)),
            // Its losses are in the window's edges.
            RecordedLine::Close(_) => None,
        });
        export.exchanges.extend(exchanges);
    }
    export.snapshots = snapshots(&directory.join("snapshots"))?;
    no_more_open_than(&[run, directory.join(ROUNDS)], &[out]);
    write_whole(out, &export.encode_to_vec())?;
    Ok(lacking(&rounds, &windows))
}

/// Reads the solved rounds of a run, in order.
pub(crate) fn rounds(directory: &Path) -> Result<Vec<Round>, Error> {
    let recording = directory.join(ROUNDS);
    let mut rounds: Vec<Round> = Vec::new();
    for (first_round, recording) in std::iter::once((0, recording.clone())).chain(continuations(&recording)) {
        // A master that only hung may have written once more when it woke: its successor's rounds
        // count.
        rounds.retain(|round| round.round_id.0 < first_round);
        for path in segments(&recording) {
            rounds.extend(lines::<Round>(&path)?);
        }
    }
    Ok(rounds)
}

/// Reads the windows of all nodes, in order of rounds and nodes.
pub(crate) fn windows(directory: &Path) -> Result<Vec<NodeWindow>, Error> {
    let mut windows: Vec<NodeWindow> = Vec::new();
    for path in node_files(&directory.join("windows"))? {
        windows.extend(lines::<NodeWindow>(&path)?);
    }
    windows.sort_by_key(|window| (window.round_id, window.node_id));
    Ok(windows)
}

/// Returns the nodes that took part in rounds but have no windows here.
pub(crate) fn lacking(rounds: &[Round], windows: &[NodeWindow]) -> Vec<NodeId> {
    let reached = rounds.iter().flat_map(|round| &round.all_nodes).filter(|node| node.reachable);
    let mut lacking: BTreeSet<NodeId> = reached.map(|node| node.node_id).collect();
    for window in windows {
        lacking.remove(&window.node_id);
    }
    lacking.into_iter().collect()
}

/// File of the solved rounds.
pub(crate) const ROUNDS: &str = "global_windows.jsonl";

/// Parses the run from the bytes of an export.
///
/// # Errors
/// Returns an error if the bytes are not a `RunExport` message.
pub fn read(bytes: &[u8]) -> Result<proto::RunExport, prost::DecodeError> {
    proto::RunExport::decode(bytes)
}

/// Reads the pairs of all nodes, a message per node and clock.
fn snapshots(directory: &Path) -> Result<Vec<proto::SnapshotPairs>, Error> {
    let mut found: Vec<proto::SnapshotPairs> = Vec::new();
    // Without a profiler's clock there are no pairs.
    if !directory.exists() {
        return Ok(found);
    }
    for path in node_files(directory)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let node = name.strip_prefix("node").and_then(|rest| rest.split('.').next()?.parse().ok());
        for line in lines::<PairLine<'static>>(&path)? {
            let same = |last: &&mut proto::SnapshotPairs| {
                (last.node_id, last.namespace_ns) == (node, line.namespace_ns) && last.tracer_clock == line.tracer_clock
            };
            let pair = proto::SnapshotPair {
                sys_clock_ns: line.sys_clock_ns,
                tracer_clock_ns: line.tracer_clock_ns,
                bracket_ns: line.bracket_ns,
            };
            match found.last_mut().filter(same) {
                Some(pairs) => pairs.pairs.push(pair),
                None => found.push(proto::SnapshotPairs {
                    pairs: vec![pair],
                    sampling_period_ns: line.sampling_period_ns,
                    tracer_clock: line.tracer_clock.into_owned(),
                    tracer_clock_reason: line.tracer_clock_reason.unwrap_or_default().into_owned(),
                    namespace_ns: line.namespace_ns,
                    node_id: node,
                }),
            }
        }
    }
    found.sort_by_key(|pairs| pairs.node_id);
    Ok(found)
}

fn node_files(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(directory).map_err(Error::file(directory, "read"))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    paths.sort();
    Ok(paths)
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    let text = open_regular(path).and_then(std::io::read_to_string).map_err(Error::file(path, "read"))?;
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
    let Edge { src, dst } = edge;
    proto::Edge { src_node_id: src.0, dst_node_id: dst.0 }
}

fn clock_event(event: ClockEvent) -> proto::ClockEvent {
    let ClockEvent { step_ns, slew_ppm, at, step_between } = event;
    let step_between_ns = step_between.into_iter().flatten().map(|reading| reading.as_ns()).collect();
    proto::ClockEvent { step_ns, slew_ppm, at_ns: at.as_ns(), step_between_ns }
}

// What follows takes its argument apart without `..`: a field that is added there does not compile
// until it is exported.

fn line(line: &EdgeFit) -> proto::EdgeAlphaBeta {
    let EdgeFit {
        src_node_id,
        dst_node_id,
        midpoint,
        alpha,
        beta,
        pairs_count,
        lost_count,
        covariance: [beta_beta, beta_alpha, alpha_alpha],
        margin_ns,
        bound_lo_ns,
        bound_hi_ns,
        alpha_bounds: [alpha_lo, alpha_hi],
        feasible,
        purity,
        stamp: source,
        stamp_errors_ns: [src_stamp_error_ns, dst_stamp_error_ns],
    } = *line;
    proto::EdgeAlphaBeta {
        src_node_id: src_node_id.0,
        dst_node_id: dst_node_id.0,
        midpoint_ns: midpoint.as_ns(),
        alpha,
        beta,
        pairs_count,
        lost_count,
        covariance: Some(proto::LineCovariance { beta_beta, beta_alpha, alpha_alpha }),
        margin_ns,
        bound_lo_ns: finite(bound_lo_ns),
        bound_hi_ns: finite(bound_hi_ns),
        alpha_lo: finite(alpha_lo),
        alpha_hi: finite(alpha_hi),
        feasible,
        purity,
        stamp: stamp(source),
        src_stamp_error_ns,
        dst_stamp_error_ns,
    }
}

fn window(window: &NodeWindow) -> proto::NodeWindowData {
    let NodeWindow {
        node_id,
        round_id,
        window_start,
        window_end,
        edges,
        clock_event: event,
        stop_requested,
        packets: counted,
        unfitted,
        punctuality: kept,
    } = window;
    proto::NodeWindowData {
        node_id: node_id.0,
        window_id: round_id.0,
        round_id: round_id.0,
        window_start_ns: window_start.as_ns(),
        window_end_ns: window_end.as_ns(),
        edges: edges.iter().map(line).collect(),
        clock_event: event.map(clock_event),
        stop_requested: *stop_requested,
        packets: counted.iter().map(packets).collect(),
        unfitted: unfitted.iter().map(|(dst, lost)| proto::LostExchanges { dst: dst.0, lost: *lost }).collect(),
        punctuality: Some(punctuality(kept)),
    }
}

fn punctuality(kept: &Punctuality) -> proto::Punctuality {
    let Punctuality {
        end_late_ns,
        decision_at,
        commands_waiting,
        exchanges,
        files_stopped,
        control_retries,
        snapshots,
    } = kept;
    let SnapshotCounts { taken, failed, missed_deadline, dropped, wide } = *snapshots;
    let of_source =
        |(source, count): &(StampSource, u32)| proto::StampedExchanges { stamp: stamp(*source), count: *count };
    proto::Punctuality {
        end_late_ns: *end_late_ns,
        decision_at_ns: decision_at.map(Timestamp::as_ns),
        commands_waiting: *commands_waiting,
        exchanges: exchanges.iter().map(of_source).collect(),
        files_stopped: *files_stopped,
        control_retries: *control_retries,
        snapshots: Some(proto::SnapshotCounts { taken, failed, missed_deadline, dropped, wide }),
    }
}

fn packets(packets: &PeerPackets) -> proto::PeerPackets {
    let PeerPackets { peer, sent, received } = *packets;
    proto::PeerPackets { peer: peer.0, sent, received }
}

fn node(node: &NodeEstimate) -> proto::NodeEstimate {
    let NodeEstimate {
        node_id,
        offset_ns,
        drift_ppm,
        residual,
        reachable,
        converged,
        sigma_ns,
        asymmetry_sigma_ns,
        drift_sigma_ppm,
        bound_lo_ns,
        bound_hi_ns,
        edges_used,
        edges_excluded,
    } = *node;
    proto::NodeEstimate {
        node_id: node_id.0,
        offset_ns,
        drift_ppm,
        residual_ns: residual,
        reachable,
        converged,
        sigma_ns: finite(sigma_ns),
        asymmetry_sigma_ns,
        drift_sigma_ppm: finite(drift_sigma_ppm),
        bound_lo_ns: finite(bound_lo_ns),
        bound_hi_ns: finite(bound_hi_ns),
        edges_used,
        edges_excluded,
    }
}

fn round(round: &Round) -> proto::GlobalWindowData {
    let Round {
        round_id,
        reference,
        carried_by,
        window_start,
        window_end,
        all_nodes,
        excluded_edges,
        worst_edge,
        asymmetry_sd_ns,
        loops: (loops, loop_rms_ns),
        clamped,
        contradictions,
        clock_events,
        watch,
        decision: next,
    } = round;
    let excluded = |(left_out, reason): &(Edge, String)| proto::ExcludedEdge {
        edge: Some(edge(*left_out)),
        reason: reason.clone(),
    };
    let cycle = |edges: &Vec<Edge>| proto::Cycle { edges: edges.iter().copied().map(edge).collect() };
    let event = |(node, event): &(NodeId, ClockEvent)| proto::NodeClockEvent {
        node_id: node.0,
        event: Some(clock_event(*event)),
    };
    proto::GlobalWindowData {
        window_id: round_id.0,
        round_id: round_id.0,
        sequence_number: round_id.0,
        reference: reference.0,
        carried_by: carried_by.map(|node| node.0),
        window_start_ns: window_start.as_ns(),
        window_end_ns: window_end.as_ns(),
        all_nodes: all_nodes.iter().map(node).collect(),
        excluded_edges: excluded_edges.iter().map(excluded).collect(),
        worst_edge: worst_edge.map(|(worst, residual_ns)| proto::WorstEdge { edge: Some(edge(worst)), residual_ns }),
        asymmetry_sd_ns: *asymmetry_sd_ns,
        loops: *loops,
        loop_rms_ns: *loop_rms_ns,
        clamped: *clamped,
        contradictions: contradictions.iter().map(cycle).collect(),
        clock_events: clock_events.iter().map(event).collect(),
        watch: Some(verdict(watch)),
        decision: Some(decision(next)),
    }
}

fn verdict(verdict: &Findings) -> proto::Verdict {
    let Findings { faults, breaks, left_out, invalid } = verdict;
    let broken = |ClockBreak { node, round }: &ClockBreak| proto::Break { node_id: node.0, round: round.0 };
    let left = |(round, left_out): &(RoundId, Edge)| proto::LeftOut { round: round.0, edge: Some(edge(*left_out)) };
    proto::Verdict {
        faults: faults.iter().map(fault).collect(),
        breaks: breaks.iter().map(broken).collect(),
        left_out: left_out.iter().map(left).collect(),
        invalid: invalid.iter().map(|node| node.0).collect(),
    }
}

fn fault(fault: &Fault) -> proto::Fault {
    let Fault { kind, culprit, size, began, round } = fault;
    let culprit = match culprit {
        Culprit::Node(node) => proto::fault::Culprit::Node(node.0),
        Culprit::Nodes(nodes) => {
            proto::fault::Culprit::Nodes(proto::Nodes { node_ids: nodes.iter().map(|node| node.0).collect() })
        }
        Culprit::Edge(one) => proto::fault::Culprit::Edge(edge(*one)),
        Culprit::Everyone => proto::fault::Culprit::Everyone(true),
    };
    proto::Fault { kind: kind.as_str().to_owned(), culprit: Some(culprit), size: *size, began: began.0, round: round.0 }
}

fn decision(decision: &Decision) -> proto::Decision {
    let Decision { next_window_end, next_window, cadence, stop, extra_edges, closing, paused, phase } = decision;
    proto::Decision {
        next_window_end_ns: next_window_end.as_ns(),
        next_window_ns: next_window.as_ns(),
        cadence_ns: cadence.as_ns(),
        stop: *stop,
        extra_edges: extra_edges.iter().copied().map(edge).collect(),
        closing: *closing,
        paused: *paused,
        phase: phase.clone(),
    }
}

fn exchange(probe: &ProbeLine) -> proto::Exchange {
    let ProbeLine { round_id, src, dst, seq, stamp: source, t } = probe;
    let [pt1_tx_ns, pt1_rx_ns, pt2_tx_ns, pt2_rx_ns, pr1_tx_ns, pr1_rx_ns, pr2_tx_ns, pr2_rx_ns] = *t;
    proto::Exchange {
        src_node_id: src.0,
        dst_node_id: dst.0,
        seq: *seq,
        stamp: stamp(*source),
        pt1_tx_ns,
        pt1_rx_ns,
        pt2_tx_ns,
        pt2_rx_ns,
        pr1_tx_ns,
        pr1_rx_ns,
        pr2_tx_ns,
        pr2_rx_ns,
        round_id: round_id.0,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use probe_sync_lines::{FaultKind, OffsetRecord};
    use probe_sync_time::System;
    use serde::Serialize;

    use super::*;

    /// Returns the names of a message's fields in the schema.
    fn fields(message: &str) -> BTreeSet<String> {
        const SCHEMA: &str = include_str!("../../../../proto/probe_sync.proto");
        let body = SCHEMA.split(&format!("\nmessage {message} {{\n")).nth(1).expect(message);
        let declared = body.split("\n}").next().expect("its end").lines().map(str::trim);
        let declared = declared.filter(|line| !line.starts_with("//")).filter_map(|line| line.split_once(" = "));
        declared.filter_map(|(field, _)| Some(field.split(' ').next_back()?.to_owned())).collect()
    }

    /// Checks that every key of `value` in the files is a field of the messages, under its own name
    /// or the one that `renamed` gives, and that nothing in `exported`, made of values that are
    /// nowhere zero or absent, has its default.
    fn check(messages: &[&str], value: &impl Serialize, renamed: &[(&str, &str)], exported: &impl std::fmt::Debug) {
        let known: BTreeSet<String> = messages.iter().flat_map(|message| fields(message)).collect();
        let json = serde_json::to_value(value).expect("JSON");
        for key in json.as_object().expect("an object").keys() {
            let name =
                renamed.iter().find(|(key_of_file, _)| key_of_file == key).map_or(key.as_str(), |(_, name)| name);
            assert!(known.contains(name), "{messages:?} of the schema lack {key}: {known:?}");
        }
        let text = format!("{exported:#?}");
        let unset = |line: &&str| {
            [": 0,", ": 0.0,", ": None,", ": [],", ": false,", ": \"\","].iter().any(|end| line.ends_with(end))
        };
        assert_eq!(text.lines().find(unset), None, "not exported: {text}");
    }

    /// A round in which nothing is zero or absent.
    fn full_round() -> Round {
        let mut round = solved();
        round.all_nodes[0].bound_lo_ns = -8.0;
        round.excluded_edges[0].0 = Edge::new(3, 1);
        round.worst_edge = Some((Edge::new(3, 1), 5.0));
        round.contradictions = vec![vec![Edge::new(2, 1), Edge::new(1, 2)]];
        let at = Timestamp::from_ns;
        let event = ClockEvent { step_ns: 1, slew_ppm: 2.0, at: at(3), step_between: Some([at(1), at(2)]) };
        round.clock_events = vec![(NodeId(1), event)];
        round.watch.faults.retain(|fault| fault.culprit != Culprit::Node(NodeId(0)));
        round.watch.breaks = vec![ClockBreak { node: NodeId(1), round: RoundId(4) }];
        round.watch.left_out = vec![(RoundId(3), Edge::new(2, 1))];
        round.watch.invalid = vec![NodeId(2)];
        round.carried_by = Some(NodeId(1));
        round.decision = Decision {
            next_window_end: Timestamp::from_ns(30),
            next_window: probe_sync_time::Duration::from_ns(10),
            cadence: probe_sync_time::Duration::from_ns(1),
            stop: true,
            extra_edges: vec![Edge::new(2, 1)],
            closing: true,
            paused: true,
            phase: Some("warm-up".into()),
        };
        round
    }

    fn full_window() -> NodeWindow {
        let at = Timestamp::<System>::from_ns;
        let edge = EdgeFit {
            src_node_id: NodeId(1),
            dst_node_id: NodeId(2),
            midpoint: at(15),
            alpha: 1.0,
            beta: 2.0,
            pairs_count: 3,
            lost_count: 4,
            covariance: [5.0, 6.0, 7.0],
            margin_ns: 8.0,
            bound_lo_ns: 9.0,
            bound_hi_ns: 10.0,
            alpha_bounds: [-11.0, 11.0],
            feasible: true,
            purity: 0.5,
            stamp: StampSource::Kernel,
            stamp_errors_ns: [12.0, 13.0],
        };
        NodeWindow {
            node_id: NodeId(1),
            round_id: RoundId(4),
            window_start: at(10),
            window_end: at(20),
            edges: vec![edge],
            clock_event: Some(ClockEvent { step_ns: 1, slew_ppm: 2.0, at: at(3), step_between: Some([at(1), at(2)]) }),
            stop_requested: true,
            packets: vec![PeerPackets { peer: NodeId(2), sent: 1, received: 2 }],
            unfitted: vec![(NodeId(3), 1)],
            punctuality: Punctuality {
                end_late_ns: Some(5),
                decision_at: Some(at(6)),
                commands_waiting: 7,
                exchanges: vec![(StampSource::Kernel, 8)],
                files_stopped: 9,
                control_retries: 10,
                snapshots: SnapshotCounts { taken: 11, failed: 12, missed_deadline: 13, dropped: 14, wide: 15 },
            },
        }
    }

    #[test]
    fn the_schema_is_field_for_field_what_the_files_say() {
        let (full, contributed) = (full_round(), full_window());
        // What a line of offsets flags comes from the round's clock events and its watch. A run's
        // own lines say no more; those of `solve` do, and an export holds none.
        let of_node = [
            ("residual", "residual_ns"),
            ("clock_disturbed", "clock_events"),
            ("slew_ppm", "clock_events"),
            ("step", "clock_events"),
            ("broken_into", "watch"),
        ];
        check(&["GlobalWindowData"], &full, &[], &round(&full));
        check(&["NodeEstimate"], &full.all_nodes[0], &of_node, &node(&full.all_nodes[0]));
        let line = OffsetRecord::of_round(&full).next().expect("a node");
        check(&["GlobalWindowData", "NodeEstimate"], &line, &of_node, &round(&full));
        check(&["Verdict"], &full.watch, &[], &verdict(&full.watch));
        let named = &full.watch.faults[0];
        check(&["Fault"], named, &[("culprit", "nodes")], &fault(named));
        check(&["Decision"], &full.decision, &[], &decision(&full.decision));
        check(&["NodeWindowData"], &contributed, &[], &window(&contributed));
        let of_edge = [
            ("src", "src_node_id"),
            ("dst", "dst_node_id"),
            ("pairs", "pairs_count"),
            ("lost", "lost_count"),
            ("alpha_bounds", "alpha_lo"),
            ("stamp_errors_ns", "dst_stamp_error_ns"),
        ];
        check(&["EdgeAlphaBeta"], &contributed.edges[0], &of_edge, &line_of(&contributed));
        let kept = punctuality(&contributed.punctuality);
        check(&["Punctuality"], &contributed.punctuality, &[], &kept);
        check(&["SnapshotCounts"], &contributed.punctuality.snapshots, &[], &kept.snapshots.expect("exported"));
        check(&["PeerPackets"], &contributed.packets[0], &[], &packets(&contributed.packets[0]));
        let probe = ProbeLine {
            round_id: RoundId(4),
            src: NodeId(1),
            dst: NodeId(2),
            seq: 3,
            stamp: StampSource::User,
            t: [1, 2, 3, 4, 5, 6, 7, 8],
        };
        check(
            &["Exchange"],
            &probe,
            &[("src", "src_node_id"), ("dst", "dst_node_id"), ("t", "pr2_rx_ns")],
            &exchange(&probe),
        );
    }

    fn line_of(window: &NodeWindow) -> proto::EdgeAlphaBeta {
        line(&window.edges[0])
    }

    #[test]
    fn an_export_says_whose_windows_it_lacks() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for part in ["windows", "probes"] {
            fs::create_dir(directory.path().join(part)).expect("writable");
        }
        let mut recorded = full_round();
        let node = |id: u32| NodeEstimate { node_id: NodeId(id), reachable: id != 3, ..recorded.all_nodes[0] };
        recorded.all_nodes = (0..4).map(node).collect();
        fs::write(directory.path().join("run.json"), "{}").expect("writable");
        fs::write(
            directory.path().join("global_windows.jsonl"),
            serde_json::to_string(&recorded).expect("JSON") + "\n",
        )
        .expect("writable");
        let out = directory.path().join("run.pb");
        let check = |expected: &[u32]| {
            let lacking = run_directory(directory.path(), &out).expect("exported");
            assert_eq!(lacking.iter().map(|node| node.0).collect::<Vec<_>>(), expected);
        };
        // Node 3 was out of reach, and has none.
        check(&[0, 1, 2]);
        fs::write(
            directory.path().join("windows/node1.jsonl"),
            serde_json::to_string(&full_window()).expect("JSON") + "\n",
        )
        .expect("writable");
        check(&[0, 2]);
    }

    fn solved() -> Round {
        let estimate = NodeEstimate {
            node_id: NodeId(1),
            offset_ns: 1.0,
            drift_ppm: 2.0,
            residual: 3.0,
            reachable: true,
            converged: true,
            sigma_ns: 4.0,
            asymmetry_sigma_ns: 3.5,
            drift_sigma_ppm: 5.0,
            bound_lo_ns: f64::NEG_INFINITY,
            bound_hi_ns: 9.0,
            edges_used: 6,
            edges_excluded: 7,
        };
        let fault = |kind, culprit| Fault { kind, culprit, size: 0.5, began: RoundId(3), round: RoundId(4) };
        let faults = vec![
            fault(FaultKind::Silent, Culprit::Node(NodeId(0))),
            fault(FaultKind::Partition, Culprit::Nodes(vec![NodeId(1), NodeId(2)])),
            fault(FaultKind::OneWayLoss, Culprit::Edge(Edge::new(2, 1))),
        ];
        let watch = Findings { faults, left_out: vec![(RoundId(3), Edge::new(0, 1))], ..Findings::default() };
        Round {
            round_id: RoundId(4),
            reference: NodeId(2),
            carried_by: None,
            window_start: Timestamp::from_ns(10),
            window_end: Timestamp::from_ns(20),
            all_nodes: vec![estimate],
            excluded_edges: vec![(Edge::new(0, 1), "MAD outlier".into())],
            worst_edge: Some((Edge::new(0, 1), 5.0)),
            asymmetry_sd_ns: 6.0,
            loops: (3, 2.5),
            clamped: 1,
            contradictions: vec![vec![Edge::new(0, 1), Edge::new(1, 0)]],
            clock_events: Vec::new(),
            watch,
            decision: Decision { extra_edges: vec![Edge::new(2, 0)], ..Decision::STOP },
        }
    }

    #[test]
    fn an_exported_round_says_what_the_json_says() {
        let export = proto::RunExport { rounds: vec![round(&solved())], ..proto::RunExport::default() };
        let read = read(&export.encode_to_vec()).expect("our own bytes");
        let round = &read.rounds[0];
        assert_eq!((round.round_id, round.sequence_number, round.reference), (4, 4, 2));
        assert_eq!(round.all_nodes[0].asymmetry_sigma_ns, 3.5);
        assert_eq!((round.all_nodes[0].bound_lo_ns, round.all_nodes[0].bound_hi_ns), (None, Some(9.0)));
        let decision = round.decision.as_ref().expect("a decision");
        assert_eq!(decision.extra_edges, [edge(Edge::new(2, 0))]);
        let watch = round.watch.as_ref().expect("a verdict");
        let kinds: Vec<&str> = watch.faults.iter().map(|fault| fault.kind.as_str()).collect();
        assert_eq!(kinds, ["silent", "partition", "one_way_loss"]);
        // Node 0 is a culprit like any other: a oneof tells zero from nothing.
        assert_eq!(watch.faults[0].culprit, Some(proto::fault::Culprit::Node(0)));
        let nodes = proto::Nodes { node_ids: vec![1, 2] };
        assert_eq!(watch.faults[1].culprit, Some(proto::fault::Culprit::Nodes(nodes)));
        assert_eq!((watch.left_out[0].round, watch.left_out[0].edge), (3, Some(edge(Edge::new(0, 1)))));
    }
}
