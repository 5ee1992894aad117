//! `--keep-probes`, `solve` and `export`.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::{complaint, lines, output, probe_sync, report};

struct Recorded {
    directory: tempfile::TempDir,
    out: PathBuf,
}

fn record() -> Recorded {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let arguments =
        ["run", "--local", "3", "--duration", "2s", "--window", "1s", "--inject-skew", "3", "--keep-probes"];
    report(&[&arguments[..], &["--json", "--out", out.to_str().expect("UTF-8")]].concat());
    Recorded { directory, out }
}

impl Recorded {
    fn solve(&self) -> (Vec<Value>, String) {
        let solved = self.directory.path().join("solved.jsonl");
        let mut command = probe_sync(&["solve", "--out", solved.to_str().expect("UTF-8"), "--probes"]);
        command.args((0..3).map(|node| self.probes(node)));
        let output = output(command);
        assert!(output.status.success(), "{}", complaint(&output));
        (lines(&solved), complaint(&output))
    }

    fn probes(&self, node: u32) -> PathBuf {
        self.out.join(format!("probes/node{node}.jsonl"))
    }
}

#[test]
fn solve_repeats_the_run_from_its_probes_alone() {
    let recorded = record();
    let (solved, _) = recorded.solve();
    let live = lines(&recorded.out.join("offsets.jsonl"));
    assert_eq!(solved[1..], live[1..], "the same packets give the same offsets to the last digit");
    let refused = output(probe_sync(&[
        "solve",
        "--out",
        recorded.probes(0).to_str().expect("UTF-8"),
        "--probes",
        recorded.probes(0).to_str().expect("UTF-8"),
    ]));
    assert!(complaint(&refused).contains("one of the inputs"), "{}", complaint(&refused));
}

#[test]
fn corrupt_lines_are_named_and_the_rest_is_used() {
    let recorded = record();
    let path = recorded.probes(1);
    let text = std::fs::read_to_string(&path).expect("recorded probes");
    let mut damaged: Vec<&str> = text.lines().collect();
    damaged.insert(2, "{\"round_id\":0,\"src\":1,");
    damaged.insert(5, "\u{0}\u{1}garbage");
    damaged.insert(7, "{\"round_id\":0,\"src\":1,\"dst\":1,\"seq\":0,\"stamp\":\"kernel\",\"t\":[0,0,0,0,0,0,0,0]}");
    let mut damaged = damaged.join("\n");
    damaged.truncate(damaged.len() - 30);
    std::fs::write(&path, damaged).expect("writable");
    let (solved, complaint) = recorded.solve();
    for part in ["node1.jsonl line 3", "node1.jsonl line 6", "node1.jsonl line 8: left out: source and destination"] {
        assert!(complaint.contains(part), "no {part} in {complaint}");
    }
    assert_eq!(solved.len(), 1 + 2 * 3);
    assert!(solved[1..].iter().all(|line| line["reachable"] == true));
}

#[test]
fn nothing_usable_is_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let empty = directory.path().join("empty.jsonl");
    std::fs::write(&empty, "").expect("writable");
    let missing = directory.path().join("missing.jsonl");
    let out = directory.path().join("o.jsonl");
    for path in [&empty, &missing] {
        let mut command = probe_sync(&["solve", "--out", out.to_str().expect("UTF-8"), "--probes"]);
        command.arg(path);
        let output = output(command);
        assert_eq!(output.status.code(), Some(1));
        assert!(complaint(&output).contains(path.to_str().expect("UTF-8")), "{}", complaint(&output));
        assert!(!out.exists(), "nothing half-written is left");
    }
}

#[test]
fn export_holds_the_whole_run() {
    let recorded = record();
    let pb = recorded.directory.path().join("run.pb");
    let output = output(probe_sync(&[
        "export",
        "--run-dir",
        recorded.out.to_str().expect("UTF-8"),
        "--out",
        pb.to_str().expect("UTF-8"),
    ]));
    assert!(output.status.success(), "{}", complaint(&output));
    let bytes = std::fs::read(&pb).expect("the export");
    let export = probe_sync::export::read(&bytes).expect("our own protobuf");
    assert_eq!(export.rounds.len(), 2);
    assert_eq!(export.windows.len(), 2 * 3);
    let finished: u32 = export.windows.iter().flat_map(|w| &w.edges).map(|edge| edge.pairs_count).sum();
    assert_eq!(export.exchanges.len(), finished as usize);
    assert!(export.run_json.contains("\"run_id\""));
}
