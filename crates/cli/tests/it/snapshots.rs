//! Snapshot pairs of tracer clock and system clock: taken in a run, refused where the clock cannot
//! be had.

use std::path::Path;
use std::process::Output;

use probe_sync::snapshots;
use serde_json::Value;

#[cfg(feature = "mpi")]
use crate::support::mpirun;
use crate::support::{complaint, free_port, lines, output, probe_sync, report, text};

/// Runs two local ranks with a pair every 50 ms and returns the report.
fn run(out: &Path, more: &[&str]) -> Value {
    let out = out.to_str().expect("a UTF-8 path");
    let common = ["run", "--local", "2", "--duration", "1s", "--window", "500ms", "--json", "--out", out];
    report(&[&common, more].concat())
}

#[test]
fn every_node_leaves_its_pairs_on_its_own_clock() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let report = run(&out, &["--snapshot-pair-period-ms", "50", "--inject-skew", "7", "--skew-offset", "1h"]);
    let counter = |name: &str| report["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}: {report:#}"));
    assert_eq!(counter("snapshots_dropped"), 0);
    let truth: Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("truth.json")).expect("truth.json")).expect("JSON");
    let (mut taken, mut starts) = (0, Vec::new());
    for node in [0, 1] {
        let file = |end: &str| out.join(format!("snapshots/node{node}.snapshot_pairs.{end}"));
        let (lines, bytes) = (lines(&file("jsonl")), std::fs::read(file("pb")).expect("written at the end"));
        let document = snapshots::read(&bytes).expect("our own bytes");
        assert_eq!((document.pairs.len(), document.sampling_period_ns), (lines.len(), 50_000_000));
        taken += lines.len() as u64;
        // One at the start and one at the end at least, and on an idle machine one every 50 ms.
        assert!(lines.len() >= 2, "{lines:?}");
        // All processes share one boot clock, so the nodes' system times differ by the virtual
        // clock alone.
        let parameters = &truth["nodes"][node.to_string()];
        let real_ns = |pair: &snapshots::SnapshotPair| {
            let without_offset = pair.sys_clock_ns - parameters["off_ns"].as_i64().expect("a number");
            let since = without_offset - parameters["t0_ns"].as_i64().expect("a number");
            let rate = parameters["ppm"].as_f64().expect("a number") * 1e-6;
            without_offset - (since as f64 * rate) as i64
        };
        let boot_ns = |pair: &snapshots::SnapshotPair| real_ns(pair) - pair.tracer_clock_ns;
        let (first, last) = (boot_ns(&document.pairs[0]), boot_ns(document.pairs.last().expect("two at least")));
        assert!((first - last).abs() < 1_000_000, "node {node}: {first} and {last}");
        starts.push(first);
    }
    // Far below the virtual offset, far above what a bracket leaves.
    assert!((starts[0] - starts[1]).abs() < 1_000_000, "{starts:?}");
    assert_ne!(truth["nodes"]["1"]["off_ns"], 0);
    // An export holds the same pairs.
    let exported = directory.path().join("run.pb");
    assert!(output(probe_sync(&["export", "--run-dir", text(&out), "-o", text(&exported)])).status.success());
    let export = probe_sync::export::read(&std::fs::read(&exported).expect("written")).expect("our own bytes");
    let expected = [0, 1].map(|node| {
        let bytes = std::fs::read(out.join(format!("snapshots/node{node}.snapshot_pairs.pb"))).expect("written");
        snapshots::SnapshotPairs { node_id: Some(node), ..snapshots::read(&bytes).expect("our own bytes") }
    });
    assert_eq!(export.snapshots, expected);
    assert_eq!(counter("snapshots_taken"), taken);
}

/// Starts ranks 0 and 1 with a directory each, and compares node 1's pairs in both.
fn check_sent(start: fn([Vec<&str>; 2]) -> Option<Vec<Output>>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let outs = [0, 1].map(|rank| directory.path().join(format!("host{rank}/out")));
    let common = ["run", "--duration", "1s", "--window", "500ms", "--snapshot-pair-period-ms", "50", "--json", "--out"];
    let Some(ended) = start([0, 1].map(|rank: usize| [&common[..], &[text(&outs[rank])]].concat())) else { return };
    for output in &ended {
        assert!(output.status.success(), "{}", complaint(output));
    }
    let report: Value = serde_json::from_slice(&ended[0].stdout).expect("--json prints JSON");
    let pairs = |out: &Path| lines(&out.join("snapshots/node1.snapshot_pairs.jsonl"));
    assert_eq!(pairs(&outs[0]), pairs(&outs[1]));
    assert!(pairs(&outs[0]).len() >= 2 && !outs[1].join("run.json").exists());
    assert_eq!(report["counters"]["snapshots_not_sent"], 0, "{report:#}");
}

#[test]
fn pairs_of_a_rank_with_a_directory_of_its_own_reach_rank_0_over_tcp() {
    check_sent(|arguments| {
        let port = free_port().to_string();
        let ranks = arguments.into_iter().enumerate().map(|(rank, arguments)| {
            let mut command = probe_sync(&arguments);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port).env("PROBE_SYNC_JOB", &port);
            std::thread::spawn(move || output(command))
        });
        let ranks: Vec<_> = ranks.collect();
        Some(ranks.into_iter().map(|rank| rank.join().expect("it ends")).collect())
    });
}

#[cfg(feature = "mpi")]
#[test]
fn pairs_of_a_rank_with_a_directory_of_its_own_reach_rank_0_over_mpi() {
    check_sent(|[zero, one]| {
        if mpirun().arg("--version").output().is_err() {
            println!("skipped: mpirun is not installed");
            return None;
        }
        let (mut command, program) = (mpirun(), env!("CARGO_BIN_EXE_probe_sync"));
        command.stdin(std::process::Stdio::null()).args(["--timeout", "120", "-n", "1", program]).args(zero);
        command.args([":", "-n", "1", program]).args(one);
        Some(vec![output(command)])
    });
}

#[test]
fn without_a_tracer_clock_there_are_no_pairs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let report = run(&out, &["--tracer-clock", "none"]);
    assert_eq!(report["counters"].get("snapshots_taken"), None, "{report:#}");
    assert!(!out.join("snapshots/node0.snapshot_pairs.jsonl").exists());
}

#[test]
fn a_clock_that_is_not_there_is_refused_on_all_ranks_by_name() {
    if let Ok(clock) = probe_sync_sys::TracerClock::open(probe_sync_sys::TracerClockName::Rocprofiler) {
        println!("skipped: this machine has {clock:?}");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let out = out.to_str().expect("a UTF-8 path");
    let arguments = ["run", "--local", "2", "--duration", "1s", "--tracer-clock", "rocprofiler", "--out", out];
    let refused = output(probe_sync(&arguments));
    assert_eq!(refused.status.code(), Some(2));
    let said = complaint(&refused);
    assert!(said.contains("tracer clock rocprofiler") && said.contains("install rocprofiler-sdk"), "{said}");
}
