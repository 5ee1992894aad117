//! `probe_sync sim` as its users run it: the planner's answer, the cells, the files, and what it
//! refuses.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use crate::support::{complaint, output, probe_sync, wait};

/// A run that takes a moment.
const SMALL: &[&str] =
    &["sim", "--nodes", "5", "--neighbors", "3", "--load", "0.5", "--rate", "20", "--duration", "12s", "--seeds", "3"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(more).copied().collect()
}

fn stdout_of(arguments: &[&str]) -> String {
    let output = output(probe_sync(arguments));
    assert!(output.status.success(), "{}", complaint(&output));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_planner_gets_error_bounds_cost_and_floor() {
    let text = stdout_of(SMALL);
    for part in
        ["5 nodes, 7 edges", "3 seed(s)", "error p50", "probe_sync", "asymmetry floor", "packets/s", "% of one core"]
    {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(!text.contains("NaN") && !text.contains('∞'), "{text}");
}

#[test]
fn the_same_seeds_give_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = |name: &str| {
        let out = directory.path().join(name);
        let out = out.to_str().expect("a plain path");
        let text = stdout_of(&with(&["--methods", "ntp,huygens,svm,mean,hull,probe_sync", "--truth", "--out", out]));
        let files = ["accuracy.csv", "truth.csv", "p99.svg", "cdf.svg"];
        let read = |file| std::fs::read_to_string(Path::new(out).join(file)).expect("a file of text");
        (text.replace(out, "OUT"), files.map(read))
    };
    let (first, again) = (run("first"), run("again"));
    assert_eq!(first, again);
    let [accuracy, truth, ..] = &first.1;
    assert!(accuracy.starts_with("cell,method,seeds,"), "{accuracy}");
    assert_eq!(accuracy.lines().count(), 1 + 6 + 1, "a row per method, and ours in between");
    // 4 nodes in 3 windows of 3 seeds by 6 methods; ours in between, twice in every window and once
    // between windows.
    assert_eq!(truth.lines().count(), 1 + 4 * 3 * 3 * 6 + 4 * 3 * (2 * 3 + 2), "rows of truth.csv");
}

#[test]
fn the_cells_end_with_their_demands() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().to_str().expect("a plain path");
    let arguments =
        ["sim", "--cells", "--seeds", "1", "--duration", "1s", "--window", "500ms", "--methods", "ntp,probe_sync"];
    let text = stdout_of(&[&arguments[..], &["--out", out]].concat());
    for part in ["20 hw 0.2", "200 sw 0.8", "of ntp", "hard intervals are never violated"] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
    assert!(!text.contains("huygens"), "not asked for: {text}");
    let markdown = std::fs::read_to_string(directory.path().join("accuracy.md")).expect("written");
    assert!(markdown.contains("| 20 hw 0.2 |"), "{markdown}");
}

#[test]
fn wrong_arguments_are_refused_with_status_2() {
    let mut scenario = tempfile::NamedTempFile::new().expect("a file");
    scenario.write_all(b"nodes = 4\nneighbours = 2\n").expect("a line");
    let path = scenario.path().to_str().expect("a plain path");
    let cases: &[(&[&str], &str)] = &[
        (&["sim", "--nodes", "1"], "1"),
        (&["sim", "--nodes", "5", "--reference", "5"], "reference = 5 is out of range"),
        (&["sim", "--faults", "--reference", "16"], "reference = 16 is out of range"),
        (&["sim", "--load", "2"], "0 to 0.95"),
        (&["sim", "--rate", "many"], "pairs per second"),
        (&["sim", "--methods", "ntp,best"], "known methods: ntp, ntp+, huygens"),
        (&["sim", "--cells", "--nodes", "5"], "cannot be used with"),
        (&["sim", "--seed", "1", "--seeds", "2"], "cannot be used with"),
        (&["sim", "--truth"], "--out"),
        (&["sim", "--window", "10s", "--duration", "4s"], "--window must"),
        (&["sim", "--window", "0s"], "--window must"),
        (&["sim", "--duration", "900h"], "longer than a day"),
        (&["sim", "--scenario", "no/such.toml"], "no/such.toml"),
        (&["sim", "--scenario", path], "neighbours"),
    ];
    for (arguments, part) in cases {
        let output = output(probe_sync(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", complaint(&output));
        assert!(complaint(&output).contains(part), "{arguments:?}: {part} is missing in {}", complaint(&output));
    }
}

#[test]
fn a_signal_ends_it_cleanly() {
    let mut command = probe_sync(&["sim", "--cells", "--seeds", "50"]);
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("starts");
    let process = rustix::process::Pid::from_raw(child.id().cast_signed()).expect("a process");
    std::thread::sleep(Duration::from_millis(500));
    rustix::process::kill_process(process, rustix::process::Signal::INT).expect("our own child");
    let output = wait(child);
    assert_eq!(output.status.code(), Some(1), "{}", complaint(&output));
    assert!(complaint(&output).contains("stopped by a signal after 0 of 12 cells"), "{}", complaint(&output));
}
