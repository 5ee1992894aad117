//! Runs that succeed: the report, the truth, the files.

use crate::support::{free_port, lines, output, probe_sync, report, wait};

use std::process::Stdio;

#[test]
fn eight_local_ranks_find_the_truth() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let out_text = out.to_str().expect("a UTF-8 path");
    let report = report(&[
        "run",
        "--local",
        "8",
        "--duration",
        "4s",
        "--window",
        "1s",
        "--inject-skew",
        "7",
        "--out",
        out_text,
        "--json",
    ]);
    assert_eq!(report["rounds"], 4);
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert_eq!(report["truth"]["judged"], 21, "three rounds of seven nodes: {report:#}");
    // Far above what is seen (some ten nanoseconds), far below what a wrong sign or a wrong axis
    // would give.
    assert!(report["truth"]["worst_error_ns"].as_f64().expect("a number") < 20_000.0, "{report:#}");
    assert!(report["packets"].as_array().expect("an array").iter().all(|p| p["lost"] == 0), "{report:#}");

    let offsets = lines(&out.join("offsets.jsonl"));
    assert_eq!(offsets.len(), 1 + 4 * 8, "a meta line, then a line per round and node");
    assert_eq!(offsets[0]["nodes"].as_array().expect("nodes").len(), 8);
    let keys = ["round_id", "window_id", "window_start_ns", "window_end_ns", "node_id", "offset_ns", "drift_ppm"];
    let more = ["residual", "reachable", "converged", "sigma_ns", "bound_lo_ns", "bound_hi_ns"];
    for key in keys.iter().chain(&more) {
        assert!(offsets[1].get(key).is_some(), "no {key} in {}", offsets[1]);
    }
    assert_eq!(lines(&out.join("windows/node3.jsonl")).len(), 4);
    assert_eq!(lines(&out.join("global_windows.jsonl")).len(), 4);
    let truth: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("truth.json")).expect("truth.json")).expect("JSON");
    assert_eq!(truth["nodes"]["0"]["off_ns"], 0);
    assert_ne!(truth["nodes"]["7"]["ppm"], 0.0);
}

#[test]
fn virtual_clocks_that_swing_and_step_are_followed() {
    // What the clocks do, and the fewest node-rounds of 9 that must be judged: a window in which a
    // clock steps is not.
    for (model, fewest) in [("sinusoid", 9), ("steps", 1)] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let out = directory.path().join("out");
        let out = out.to_str().expect("a UTF-8 path");
        let arguments = ["run", "--local", "4", "--duration", "4s", "--window", "1s", "--inject-skew", "7"];
        let report = report(&[&arguments[..], &["--skew-model", model, "--json", "--out", out]].concat());
        let truth = &report["truth"];
        assert!(truth["judged"].as_u64().expect("a count") >= fewest, "{report:#}");
        assert_eq!(truth["outside_hard_interval"], 0, "{report:#}");
        // Far above what is seen, far below the waves (50 us) and the steps (1 ms).
        assert!(truth["worst_error_ns"].as_f64().expect("a number") < 5_000.0, "{model}: {report:#}");
    }
}

#[test]
fn another_node_is_the_reference_in_every_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let arguments = ["run", "--local", "3", "--duration", "3s", "--window", "1s", "--inject-skew", "7", "--json"];
    let report = report(&[&arguments[..], &["--reference", "2", "--out", out.to_str().expect("UTF-8")]].concat());
    assert_eq!(report["truth"]["judged"], 4, "two rounds of two nodes: {report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert!(report["truth"]["worst_error_ns"].as_f64().expect("a number") < 20_000.0, "{report:#}");
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(out.join(name)).expect(name)).expect("JSON")
    };
    assert_eq!((&report["reference"], &read("run.json")["reference"]), (&2.into(), &2.into()));
    assert_eq!(read("truth.json")["reference_node"], 2);
    let offsets = lines(&out.join("offsets.jsonl"));
    assert_eq!((&offsets[0]["reference"], &offsets[3]["offset_ns"]), (&2.into(), &0.0.into()));
    assert!(lines(&out.join("global_windows.jsonl")).iter().all(|round| round["reference"] == 2));

    let refused = output(probe_sync(&["run", "--local", "2", "--duration", "1s", "--reference", "9"]));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("reference names node 9") && said.contains("2 nodes"), "{said}");
}

#[test]
fn torchrun_style_variables_on_ipv6() {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        println!("skipped: no IPv6 loopback here");
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port().to_string();
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| {
            let arguments = [
                "--duration",
                "2s",
                "--window",
                "1s",
                "--bind",
                "::1",
                "--json",
                "--out",
                out.to_str().expect("UTF-8"),
            ];
            let mut command = probe_sync(&arguments);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "3");
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
        })
        .collect();
    let root = wait(ranks.remove(0));
    let report: serde_json::Value = serde_json::from_slice(&root.stdout).expect("--json prints JSON");
    assert!(report["nodes"].as_array().expect("nodes").iter().all(|node| node["reachable"] == true), "{report:#}");
    // One real clock: the offsets are zero, and the hard intervals must say so.
    for node in report["nodes"].as_array().expect("nodes") {
        let bound = |side: usize| node["hard_interval_ns"][side].as_f64().expect("bounded");
        assert!(bound(0) <= 0.0 && 0.0 <= bound(1), "{node:#}");
    }
    for rank in ranks {
        assert!(wait(rank).status.success());
    }
    let run: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).expect("run.json")).expect("JSON");
    assert!(run["nodes"][1]["address"].as_str().expect("an address").starts_with("[::1]:"));
}

#[test]
fn ranks_of_one_host_follow_their_leader() {
    // Four ranks that call themselves two hosts: two nodes, two followers.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let port = free_port().to_string();
    let mut ranks: Vec<_> = (0..4)
        .map(|rank| {
            let out = directory.path().join("out");
            let arguments = ["--duration", "2s", "--window", "1s", "--json", "--out", out.to_str().expect("UTF-8")];
            let mut command = probe_sync(&arguments);
            command.args(["--bind", "127.0.0.1", "--host", ["left", "right"][rank % 2]]);
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "4");
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
        })
        .collect();
    let root = wait(ranks.remove(0));
    let report: serde_json::Value = serde_json::from_slice(&root.stdout).expect("--json prints JSON");
    assert_eq!(report["ranks"], 4);
    let hosts: Vec<_> = report["nodes"].as_array().expect("nodes").iter().map(|node| &node["host"]).collect();
    assert_eq!(hosts, ["left", "right"]);
    for rank in ranks {
        assert!(wait(rank).status.success());
    }
}

#[test]
fn one_rank_alone_is_its_own_reference() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let arguments = ["run", "--local", "1", "--duration", "1s", "--window", "500ms", "--json", "--out"];
    let report = report(&[&arguments[..], &[out.to_str().expect("UTF-8")]].concat());
    assert_eq!(report["nodes"].as_array().expect("nodes").len(), 1);
    assert_eq!(report["rounds"], 2);
}

#[test]
fn user_stamps_are_used_on_demand_and_counted() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let arguments =
        ["run", "--local", "2", "--duration", "2s", "--window", "1s", "--timestamps", "user", "--json", "--out"];
    let report = report(&[&arguments[..], &[out.to_str().expect("UTF-8")]].concat());
    assert_eq!(report["nodes"][1]["stamp"], "user");
    assert!(report["counters"]["stamps_user"].as_u64().expect("a count") > 100, "{report:#}");
}

#[test]
fn help_and_the_table_read_well() {
    let help = output(probe_sync(&["run", "--help"]));
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for word in ["mpirun -n 64 probe_sync", "SUBTRACT it from a time on this node", "--inject-skew", "EXIT STATUS"] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run = output(probe_sync(&[
        "run",
        "--local",
        "2",
        "--duration",
        "1s",
        "--window",
        "500ms",
        "--inject-skew",
        "1",
        "--out",
        out.to_str().expect("UTF-8"),
    ]));
    let table = String::from_utf8_lossy(&run.stdout).into_owned();
    for word in ["node", "host", "offset", "rate ppm", "±95 %", "hard interval", "edges", "lost", "error", "reference"]
    {
        assert!(table.contains(word), "no {word} in {table}");
    }
}
