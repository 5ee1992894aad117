//! That what the root keeps of a run does not grow with the run.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_collective::Traffic;
use probe_sync_lines::{Decision, EdgeFit, NodeEstimate, Round};
use probe_sync_time::{Duration, Edge, NodeId, RoundId, RunId, SessionKey, StampSource, Timestamp};

use super::super::Observed;
use super::super::parts::Parts;
use super::{Latencies, Recorder, Stopped};
use crate::Config;
use crate::join::{Joined, Plan, Ready, Roster};
use crate::store::RunDirectory;

const NODES: u32 = 1000;
const DEGREE: u32 = 10;

fn joined(config: Config) -> Arc<Joined> {
    let ready = Ready {
        address: "127.0.0.1:9".parse().expect("an address"),
        stamp: StampSource::Kernel,
        stamp_error_ns: 0,
        tracer_clock: None,
    };
    let plan = Plan {
        successors: Vec::new(),
        run: RunId(1),
        drawn_key: SessionKey([0; 32]),
        secret: false,
        node_of_rank: (0..NODES).map(NodeId).collect(),
        rank_of_node: (0..NODES).collect(),
        clock_numbers: (0..NODES).collect(),
        place_on_host: vec![(0, 1); NODES as usize],
        host_of_node: (0..NODES).map(NodeId).collect(),
        sources: Vec::new(),
        sources_reason: String::new(),
        edges: None,
        hostnames: (0..NODES).map(|node| format!("host{node}")).collect(),
        clocks: NODES,
    };
    let nodes = vec![ready; NODES as usize];
    let roster = Roster { nodes, start: Timestamp::from_ns(0), reference: NodeId(0) };
    let session_key = SessionKey([0; 32]);
    Arc::new(Joined { config, plan, session_key, roster, edges: Vec::new(), backend: "none", ranks: NODES as usize })
}

fn round(number: u64) -> (Round, Vec<EdgeFit>) {
    let start = number as i64 * 4_000_000_000;
    let estimate = |node: u32| NodeEstimate {
        node_id: NodeId(node),
        offset_ns: f64::from(node) * 1234.5 + number as f64 * 0.321,
        drift_ppm: 2.345,
        residual: 3.456,
        reachable: true,
        converged: true,
        sigma_ns: 12.34,
        asymmetry_sigma_ns: 1.234,
        drift_sigma_ppm: 0.123,
        bound_lo_ns: -123_456.7,
        bound_hi_ns: 12_345_678.9,
        edges_used: 2 * DEGREE,
        edges_excluded: 0,
    };
    let data = Round {
        round_id: RoundId(number),
        carried_by: None,
        reference: NodeId(0),
        window_start: Timestamp::from_ns(start),
        window_end: Timestamp::from_ns(start + 4_000_000_000),
        all_nodes: (0..NODES).map(estimate).collect(),
        excluded_edges: Vec::new(),
        worst_edge: Some((Edge::new(0, 1), 5.0)),
        asymmetry_sd_ns: 6.0,
        loops: (9001, 12.5),
        clamped: 0,
        contradictions: Vec::new(),
        clock_events: Vec::new(),
        watch: Default::default(),
        decision: Decision { next_window: Duration::from_ms(4_000), ..Decision::STOP },
    };
    let edge = |index: u32| EdgeFit {
        src_node_id: NodeId(index / DEGREE),
        dst_node_id: NodeId((index / DEGREE + 1 + index % DEGREE) % NODES),
        midpoint: Timestamp::from_ns(start + 2_000_000_000),
        alpha: 1e-6,
        beta: 1234.5,
        pairs_count: 500,
        lost_count: 0,
        covariance: [1.0, 0.0, 1.0],
        margin_ns: 107.0,
        bound_lo_ns: 1000.0,
        bound_hi_ns: 2000.0,
        alpha_bounds: [-1.0, 1.0],
        feasible: true,
        purity: 0.5,
        stamp: StampSource::Kernel,
        stamp_errors_ns: [0.0; 2],
    };
    (data, (0..NODES * DEGREE).map(edge).collect())
}

fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("resident memory");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") / 1024
}

/// 300 rounds of 1000 nodes: kept, their fits alone would be 660 MB. In a process of its own, whose
/// memory no other test uses.
#[test]
fn memory_and_files_do_not_grow_with_the_rounds_of_a_thousand_nodes() {
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().expect("this program"));
        child.args([
            "--exact",
            "report::recorder::tests::memory_and_files_do_not_grow_with_the_rounds_of_a_thousand_nodes",
        ]);
        let done = child.arg("--nocapture").env(CHILD, "1").output().expect("it starts");
        let said = String::from_utf8_lossy(&done.stdout);
        println!("{said}");
        assert!(done.status.success() && said.contains("1 passed"), "{}", String::from_utf8_lossy(&done.stderr));
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let config = Config { out: out.clone(), keep_bytes: Some(8 << 20), ..Config::default() };
    let claimed = RunDirectory::claim(&out).expect("writable");
    let mut recorder = Recorder::begin(joined(config), &[], claimed, None).expect("writable");
    let mut resident = Vec::new();
    for number in 0..ROUNDS {
        let (data, edges) = round(number);
        recorder.record(&data, StdDuration::from_millis(3));
        recorder.keep(&data, edges);
        let observed = Observed {
            windows: &[],
            parts: Parts::default(),
            gathered_bytes: 1,
            decision_bytes: 1,
            traffic: Traffic::default(),
            decided: None,
        };
        recorder.refresh_metrics(StdDuration::from_millis(3), &observed);
        resident.push(resident_mib());
    }
    let (third, last) = (resident[resident.len() / 3], resident[resident.len() - 1]);
    println!("resident: {third} MiB after {} rounds, {last} MiB after {ROUNDS}", ROUNDS / 3);
    assert!(last < third + 20, "{resident:?}");
    let report = recorder.end(&[], Stopped { asked: true, killed_soon: false }, None, None).expect("a report");
    let size = |name: &str| {
        let files = std::fs::read_dir(&out).expect("the run").flatten();
        let named = files.filter(|file| file.file_name().to_string_lossy().starts_with(name));
        named.map(|file| file.metadata().map_or(0, |known| known.len())).sum::<u64>()
    };
    assert!(size("offsets.") <= 8 << 20 && size("global_windows.") <= 8 << 20);
    let removed: u64 =
        report.files.iter().filter(|file| file.name == "offsets.jsonl").map(|file| file.removed_rounds).sum();
    assert!(removed > ROUNDS / 2, "{:?}", report.files);
}

const ROUNDS: u64 = 300;
const CHILD: &str = "PROBE_SYNC_TEST_CHILD";

#[test]
fn latencies_in_any_order() {
    let of = |all: &[f64]| {
        let mut latencies = Latencies::default();
        all.iter().for_each(|us| latencies.add(*us));
        latencies.median_and_largest_us()
    };
    assert_eq!((of(&[]), of(&[3.0, 1.0, 2.0]), of(&[4.0, 1.0])), ([0.0, 0.0], [2.0, 3.0], [4.0, 4.0]));
}
