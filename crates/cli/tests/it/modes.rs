//! How rounds come about, and what is asked of them from outside.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{complaint, lines, output, probe_sync, report, wait};

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

#[test]
fn time_based_rounds_find_the_truth_and_solving_their_windows_again_gives_the_same_offsets() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for mode in ["timed", "master"] {
        let out = directory.path().join(mode);
        let run = ["run", "--local", "4", "--duration", "3s", "--window", "500ms", "--inject-skew", "7", "--fixed"];
        let report = report(&[&run[..], &["--rounds", mode, "--json", "--out", text(&out)]].concat());
        assert_eq!((&report["round_mode"], &report["truth"]["outside_hard_interval"]), (&mode.into(), &0.into()));
        let again = directory.path().join(format!("{mode}.jsonl"));
        let windows: Vec<_> = (0..4).map(|node| out.join(format!("windows/node{node}.jsonl"))).collect();
        let mut solve = vec!["solve", "--out", text(&again), "--windows"];
        solve.extend(windows.iter().map(|path| text(path)));
        assert!(output(probe_sync(&solve)).status.success());
        // What is written at the end of a run is made of the same windows in the same way.
        let [live, solved] = [&out.join("offsets.smoothed.jsonl"), &again].map(|path| {
            let offsets =
                lines(path).into_iter().filter(|line| line["node_id"] == 3 && line.get("offset_ns").is_some());
            offsets.map(|line| line["offset_ns"].as_f64().expect("a number")).collect::<Vec<_>>()
        });
        assert!(!live.is_empty() && live.len() == solved.len(), "{} and {} lines", live.len(), solved.len());
        for (live, solved) in live.iter().zip(&solved) {
            assert!((live - solved).abs() < 1.0, "{mode}: {live} in the run, {solved} of its windows");
        }
    }
}

#[test]
fn verbose_describes_the_window_of_every_rank() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for mode in ["timed", "master"] {
        let out = directory.path().join(mode);
        let run = ["run", "-v", "--local", "3", "--duration", "2s", "--window", "500ms", "--fixed", "--rounds", mode];
        let ended = output(probe_sync(&[&run[..], &["--out", text(&out)]].concat()));
        let log = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(ended.status.success(), "{}", complaint(&ended));
        let solved: Vec<_> =
            lines(&out.join("global_windows.jsonl"))[1..].iter().map(|round| round["round_id"].clone()).collect();
        assert!(!solved.is_empty());
        for node in 0..3 {
            let windows = lines(&out.join(format!("windows/node{node}.jsonl")));
            for window in windows.iter().filter(|window| solved.contains(&window["round_id"])) {
                let edges = window["edges"].as_array().expect("a list").len();
                let expected = format!("round {}, rank {node} (node {node}): {edges} edges, ", window["round_id"]);
                assert!(log.contains(&expected), "{mode}: \"{expected}\" is not in\n{log}");
            }
        }
    }
}

#[test]
fn local_windows_are_solved_afterwards() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run =
        ["run", "--local", "3", "--duration", "3s", "--window", "500ms", "--inject-skew", "7", "--rounds", "local"];
    let ended = output(probe_sync(&[&run[..], &["--out", text(&out)]].concat()));
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success() && said.contains("probe_sync solve --windows"), "{said}{}", complaint(&ended));
    assert!(!out.join("global_windows.jsonl").exists() || lines(&out.join("global_windows.jsonl")).is_empty());
    let windows: Vec<_> = (0..3).map(|node| out.join(format!("windows/node{node}.jsonl"))).collect();
    let solved = directory.path().join("solved.jsonl");
    let mut solve = vec!["solve", "--out", text(&solved), "--windows"];
    solve.extend(windows.iter().map(|path| text(path)));
    let ended = output(probe_sync(&solve));
    assert!(ended.status.success(), "{}", complaint(&ended));
    let truth: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("truth.json")).expect("truth")).expect("JSON");
    let offsets: Vec<_> = lines(&solved).into_iter().filter(|line| line["node_id"] == 2).collect();
    assert!(offsets.len() >= 4, "{} lines", offsets.len());
    let (injected, found) = (&truth["nodes"]["2"]["off_ns"], offsets[0]["offset_ns"].as_f64().expect("a number"));
    let apart = (found - injected.as_f64().expect("a number")).abs();
    // Rates of up to 100 ppm in the seconds of the run.
    assert!(apart < 1e6, "{found} ns found, {injected} injected at the start");
}

#[test]
fn a_run_is_paused_named_and_ended_from_outside() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run = ["run", "--local", "3", "--window", "4s", "--first-window", "250ms", "--fixed", "--json"];
    let mut command = probe_sync(&[&run[..], &["--out", text(&out)]].concat());
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let ctl = |asked: &[&str]| output(probe_sync(&[&["ctl", "--run-dir", text(&out), "--json"], asked].concat()));
    let begun = Instant::now();
    while !out.join("control.sock").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the run does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    let since = |asked: &[&str]| -> u64 {
        let ended = ctl(asked);
        assert!(ended.status.success(), "{asked:?}: {}", complaint(&ended));
        let answer: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
        assert!(answer["start_ns"].is_i64(), "{answer}");
        answer["round"].as_u64().expect("a round")
    };
    let warm = since(&["phase", "warm up"]);
    let (paused, resumed) = (since(&["pause"]), since(&["resume"]));
    assert!(warm < paused && paused < resumed);
    let unnamed = since(&["phase"]);
    assert!(unnamed > resumed && since(&["end-round"]) > unnamed);
    let refused = ctl(&["phase", "two\nlines"]);
    assert!(!refused.status.success() && complaint(&refused).contains("one line"), "{}", complaint(&refused));
    since(&["stop"]);
    let ended = wait(running);
    assert!(ended.status.success(), "{}", complaint(&ended));
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    let phase = &report["phases"][0];
    assert_eq!(
        (&phase["name"], &phase["first"], &phase["last"]),
        (&"warm up".into(), &warm.into(), &(unnamed - 1).into())
    );
    assert!(!out.join("control.sock").exists(), "the socket goes with the run");
    let nobody = ctl(&["pause"]);
    assert!(!nobody.status.success() && complaint(&nobody).contains("in progress"), "{}", complaint(&nobody));
}
