//! How a run ends that one rank stops in the middle of a window.

use std::time::Duration as StdDuration;

use probe_sync::collective::Meeting;
use probe_sync::{Config, Session};

const LONG: StdDuration = StdDuration::from_secs(60);
const RANKS: usize = 4;

#[test]
fn every_node_is_measured_in_the_last_window_though_only_rank_0_stops() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut config = Config { out: directory.path().join("out"), ..Config::default() };
    for (key, text) in [("window", "4s"), ("tracer_clock", "none"), ("inject_skew", "5")] {
        config.set(key, text, "test").expect("a key");
    }
    let meeting = Meeting::open(&["127.0.0.1".parse().expect("an address")]).expect("loopback");
    let id = meeting.id().clone();
    let zero = Session::builder(config.clone()).host(meeting, RANKS).start().expect("a thread");
    let others: Vec<_> = (1..RANKS)
        .map(|rank| Session::builder(config.clone()).join(id.clone(), rank, RANKS).start().expect("a thread"))
        .collect();
    // The short windows are over: the next one is of 4 s.
    let mut seen = None;
    while seen.as_deref().is_none_or(|round: &probe_sync_lines::Round| round.round_id.0 < 3) {
        seen = zero.next_round(seen.as_deref(), LONG).expect("it goes on");
    }
    std::thread::sleep(StdDuration::from_millis(300));
    let stopped = std::thread::spawn(move || zero.stop());
    for other in &others {
        let mut latest = None;
        while let Some(round) = other.next_round(latest.as_deref(), LONG).expect("it ends in order") {
            latest = Some(round);
        }
        let last = latest.expect("some were solved");
        assert!(last.all_nodes.iter().all(|node| node.reachable), "{:?}", last.all_nodes);
    }
    stopped.join().expect("no panic").expect("in order");
    for other in others {
        other.stop().expect("in order");
    }
    for node in 0..RANKS {
        let path = directory.path().join(format!("out/windows/node{node}.jsonl"));
        let text = std::fs::read_to_string(path).expect("kept");
        let last: serde_json::Value = serde_json::from_str(text.lines().last().expect("windows")).expect("JSON");
        let length = |key: &str| last[key].as_i64().expect("a time");
        assert!(length("window_end_ns") - length("window_start_ns") >= 200_000_000, "node {node}: {last}");
        let pairs = |edge: &serde_json::Value| edge["pairs"].as_u64().expect("a number");
        assert!(last["edges"].as_array().expect("edges").iter().all(|edge| pairs(edge) >= 4), "node {node}: {last}");
    }
}
