//! The only module that knows how values become bytes between ranks: bincode 2 behind a version
//! byte.
//!
//! `join` and `round` encode the values they pass to a `Collective` and decode its results. No such
//! bytes reach a file; files are JSON, and exports are protobuf (`store::export`).

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Error;

/// Incremented whenever a wire type changes shape.
pub const WIRE_VERSION: u8 = 22;

/// Returns the bytes of a value.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = vec![WIRE_VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode::config::standard())
        .expect("a Vec takes any number of bytes, and our types serialise without failing");
    bytes
}

/// Decodes the value in `bytes`, which came from `rank`.
///
/// # Errors
/// [`Error::Wire`] names the rank if the version differs, or bytes are missing, wrong or left over.
pub fn decode<T: DeserializeOwned>(bytes: &[u8], rank: usize) -> Result<T, Error> {
    let wrong = |reason: String| Error::Wire { rank, reason };
    match bytes.split_first() {
        None => Err(wrong("an empty message".into())),
        Some((&version, _)) if version != WIRE_VERSION => Err(wrong(format!(
            "wire version {version} differs from ours ({WIRE_VERSION}); install one version on all nodes"
        ))),
        Some((_, body)) => {
            let config = bincode::config::standard().with_limit::<MAX_MESSAGE_BYTES>();
            let (value, used) = bincode::serde::decode_from_slice(body, config).map_err(|e| wrong(e.to_string()))?;
            if used == body.len() { Ok(value) } else { Err(wrong(format!("{} bytes too many", body.len() - used))) }
        }
    }
}

/// Largest message, bytes; a corrupt length must not cause a larger allocation.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sync_lines::{
        Culprit, Decision, EdgeFit, Fault, FaultKind, Findings, NodeEstimate, NodeWindow, PeerPackets, Punctuality,
        Round, SnapshotCounts,
    };
    use probe_sync_time::{Duration, Edge, NodeId, RoundId, StampSource, Timestamp};
    use proptest::prelude::*;

    fn window() -> NodeWindow {
        let edge = EdgeFit {
            src_node_id: NodeId(3),
            dst_node_id: NodeId(0),
            midpoint: Timestamp::from_ns(i64::MIN),
            alpha: -5e-5,
            beta: 1e13,
            pairs_count: 9,
            lost_count: 1,
            covariance: [1.0, -2.0, 3.0],
            margin_ns: 107.0,
            bound_lo_ns: f64::NEG_INFINITY,
            bound_hi_ns: f64::INFINITY,
            alpha_bounds: [-1.0, 1.0],
            feasible: false,
            purity: 0.5,
            stamp: StampSource::User,
            stamp_errors_ns: [250.0, 0.5],
        };
        NodeWindow {
            node_id: NodeId(3),
            round_id: RoundId(2),
            window_start: Timestamp::from_ns(-1),
            window_end: Timestamp::from_ns(i64::MAX),
            edges: vec![edge],
            clock_event: None,
            stop_requested: true,
            packets: vec![PeerPackets { peer: NodeId(0), sent: 240, received: u64::MAX }],
            unfitted: vec![(NodeId(7), 2)],
            punctuality: Punctuality {
                end_late_ns: Some(-1),
                decision_at: Some(Timestamp::from_ns(7)),
                commands_waiting: 2,
                exchanges: vec![(StampSource::Kernel, 9)],
                files_stopped: 1,
                control_retries: 3,
                snapshots: SnapshotCounts { taken: 9, wide: 1, ..SnapshotCounts::default() },
            },
        }
    }

    fn verdict() -> Findings {
        let fault = Fault {
            kind: FaultKind::Partition,
            culprit: Culprit::Nodes(vec![NodeId(1), NodeId(2)]),
            size: 2.0,
            began: RoundId(3),
            round: RoundId(4),
        };
        Findings {
            faults: vec![fault],
            left_out: vec![(RoundId(3), Edge::new(0, 1))],
            invalid: vec![NodeId(1)],
            breaks: Vec::new(),
        }
    }

    #[test]
    fn values_survive_the_wire_and_json_with_their_infinities() {
        let node = window();
        assert_eq!(decode::<NodeWindow>(&encode(&node), 3).expect("our own bytes"), node);
        let json = serde_json::to_string(&node).expect("json");
        assert!(json.contains("\"bound_lo_ns\":null"));
        assert_eq!(serde_json::from_str::<NodeWindow>(&json).expect("our own json"), node);
        let estimate = NodeEstimate {
            node_id: NodeId(1),
            offset_ns: 1.0,
            drift_ppm: 2.0,
            residual: 3.0,
            reachable: false,
            converged: true,
            sigma_ns: 4.0,
            asymmetry_sigma_ns: 0.0,
            drift_sigma_ppm: 5.0,
            bound_lo_ns: f64::NEG_INFINITY,
            bound_hi_ns: f64::INFINITY,
            edges_used: 6,
            edges_excluded: 7,
        };
        let extra_edges = vec![Edge::new(3, 1)];
        let decision = Decision {
            next_window_end: Timestamp::from_ns(1),
            next_window: Duration::from_ns(2),
            cadence: Duration::from_ns(3),
            stop: true,
            extra_edges,
            closing: true,
            paused: true,
            phase: Some("warm-up".into()),
        };
        let global = Round {
            round_id: RoundId(1),
            reference: NodeId(1),
            carried_by: Some(NodeId(2)),
            window_start: Timestamp::from_ns(0),
            window_end: Timestamp::from_ns(1),
            all_nodes: vec![estimate],
            excluded_edges: vec![(Edge::new(0, 1), "MAD outlier".into())],
            worst_edge: Some((Edge::new(0, 1), 5.0)),
            asymmetry_sd_ns: 6.0,
            loops: (3, 2.5),
            clamped: 1,
            contradictions: vec![vec![Edge::new(0, 1), Edge::new(1, 0)]],
            clock_events: Vec::new(),
            watch: verdict(),
            decision,
        };
        assert_eq!(decode::<Round>(&encode(&global), 0).expect("our own bytes"), global);
        let json = serde_json::to_string(&global).expect("json");
        assert_eq!(serde_json::from_str::<Round>(&json).expect("our own json"), global);
    }

    #[test]
    fn packet_counts_cost_few_bytes_and_old_files_lack_them() {
        let counted = |packets: &[PeerPackets]| NodeWindow { packets: packets.to_vec(), ..window() };
        let bytes = |packets: &[PeerPackets]| encode(&counted(packets)).len() - encode(&counted(&[])).len();
        let packets = |peer, count| PeerPackets { peer: NodeId(peer), sent: count, received: count };
        assert_eq!(bytes(&[packets(5, 250)]), 3);
        assert_eq!(bytes(&[packets(1023, 60_000), packets(1022, 60_000)]), 18);
        let mut old = serde_json::to_value(window()).expect("json");
        let fields = old.as_object_mut().expect("an object");
        for later in ["packets", "unfitted", "punctuality"] {
            assert!(fields.remove(later).is_some(), "{later}");
        }
        let edge = fields["edges"][0].as_object_mut().expect("an object");
        assert!(edge.remove("stamp_errors_ns").is_some());
        let read: NodeWindow = serde_json::from_value(old).expect("what older versions wrote");
        let punctuality = Punctuality::default();
        let mut expected = NodeWindow { packets: Vec::new(), unfitted: Vec::new(), punctuality, ..window() };
        expected.edges[0].stamp_errors_ns = [0.0; 2];
        assert_eq!(read, expected);
    }

    #[test]
    fn the_fuzzers_seed_is_a_window_of_this_version() {
        let seed = include_bytes!("../../../fuzz/corpus/round_messages/node_window");
        let read = decode::<NodeWindow>(seed, 1).expect("change the seed with the type");
        assert!(!read.edges.is_empty() && !read.packets.is_empty() && !read.unfitted.is_empty());
    }

    #[test]
    fn another_version_and_a_cut_message_name_the_rank() {
        let mut bytes = encode(&window());
        let cut = decode::<NodeWindow>(&bytes[..bytes.len() - 1], 3).expect_err("cut");
        assert!(cut.to_string().contains("rank 3"), "{cut}");
        bytes[0] = WIRE_VERSION + 1;
        let other = decode::<NodeWindow>(&bytes, 3).expect_err("another version");
        assert!(other.to_string().contains(&format!("wire version {}", WIRE_VERSION + 1)), "{other}");
        bytes[0] = WIRE_VERSION;
        bytes.push(0);
        assert!(decode::<NodeWindow>(&bytes, 3).expect_err("too long").to_string().contains("1 bytes too many"));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = vec![WIRE_VERSION];
            framed.extend(bytes);
            let _ = decode::<NodeWindow>(&framed, 1);
            let _ = decode::<Round>(&framed, 1);
        }
    }
}
