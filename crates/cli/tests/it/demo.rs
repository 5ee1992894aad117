//! `probe_sync demo`: it shows what it promises, and leaves files that the ordinary commands take.
//!
//! It measures for six seconds: a shorter run would have fewer rounds than its figures need.

use crate::support::{complaint, output, probe_sync, text};

#[test]
fn the_demo_is_judged_against_the_truth_and_leaves_a_run_and_traces() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let demo = folder.path().join("demo");
    // Settings of the caller do not reach the demonstration's run.
    let mut command = probe_sync(&["demo", "--output", text(&demo)]);
    command.env("PROBE_SYNC_NO_SUCH_KEY", "1").env("PROBE_SYNC_WINDOW", "9s");
    let done = output(command);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", complaint(&done));
    for part in [
        "   aligned       0 of 92 happens-before edges are broken\n",
        "11492 event times",
        "WHICH RANKS WERE LATE",
        "report.html",
        "Next:\n  probe_sync doctor",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let held = said.lines().find_map(|line| line.trim().strip_prefix("The hard interval contained the truth in "));
    let (held, judged) = held.and_then(|line| line.trim_end_matches('.').split_once(" of ")).expect("a line");
    assert_eq!(held, judged, "{said}");
    let recorded = said.lines().find(|line| line.contains("as recorded")).expect("a line");
    assert!(!recorded.contains(" 0 of 92"), "{recorded}");
    let page = std::fs::read_to_string(demo.join("report.html")).expect("the report page");
    assert!(page.contains("happens-before edges"), "the page says nothing of the traces");

    let (recorded, run) = (demo.join("recorded"), demo.join("run"));
    let checked = output(probe_sync(&["check", text(&recorded), "--run-dir", text(&run)]));
    assert!(checked.status.success(), "{}", complaint(&checked));
    assert_eq!(output(probe_sync(&["check", text(&recorded)])).status.code(), Some(3), "as recorded");
}
