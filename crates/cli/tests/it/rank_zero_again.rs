//! Rank 0 is started again while the others go on, as launchers do whatever the others say.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::faults::{rank, signal, started, wait_for_round, written_report};
use crate::support::{complaint, free_port, lines, text, wait};

const SETTINGS: [&str; 7] = ["--window", "500ms", "--fixed", "--inject-skew", "3", "--round-timeout", "3s"];

/// Waits until a folder of this master has `holds`; the folder.
fn master_with(out: &Path, name: &str, holds: impl Fn(&Path) -> bool) -> PathBuf {
    let deadline = Instant::now() + Duration::from_secs(80);
    loop {
        let folders = std::fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut of_it = folders.filter(|path| path.to_string_lossy().contains(name));
        if let Some(folder) = of_it.find(|path| path.join("run.json").exists() && holds(path)) {
            return folder;
        }
        assert!(Instant::now() < deadline, "{name} of {}", out.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn rounds(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("global_windows.jsonl")).map_or(0, |text| text.lines().count())
}

fn away(folder: &Path, count: usize) -> bool {
    let metrics = std::fs::read_to_string(folder.join("metrics.prom")).unwrap_or_default();
    metrics.contains(&format!("probe_sync_ranks_away {count}"))
}

/// Rank 0 is killed and started again at once, with the same arguments; it is an ordinary rank
/// then, and has a voice when its master is lost.
fn check_return(mode: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let (start, mut ranks) = started(&out, 4, &[&SETTINGS[..], mode].concat());
    wait_for_round(&out, 4);
    signal(&ranks[0], Signal::KILL);
    ranks[0].wait().expect("our own child");
    assert!(out.join("successors/rank0.json").exists(), "its next process finds the others by it");
    ranks[0] = start(0);
    let folder = master_with(&out, "rank1-from-round", |folder| rounds(folder) >= 2 && away(folder, 0));
    let so_far = rounds(&folder);
    master_with(&out, "rank1-from-round", |folder| rounds(folder) >= so_far + 4);
    let last = lines(&folder.join("global_windows.jsonl")).pop().expect("rounds");
    assert!(last["all_nodes"][0]["reachable"] == true, "node 0 is measured again: {last}");

    signal(&ranks[1], Signal::KILL);
    wait(ranks.remove(1));
    let folder = master_with(&out, "rank2-from-round", |folder| rounds(folder) >= 4);
    signal(&ranks[0], Signal::TERM);
    let ended: Vec<_> = ranks.into_iter().map(wait).collect();
    for (rank, ended) in [0, 2, 3].into_iter().zip(&ended) {
        assert!(ended.status.success(), "rank {rank}: {}", complaint(ended));
    }
    let report = written_report(&folder);
    assert_eq!(report["taken_over"]["from_rank"], 1, "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    for rank in [0, 2, 3] {
        let kept = out.join(format!("successors/rank{rank}.json"));
        assert!(!kept.exists(), "nobody is to come back to a run that has ended well: {}", kept.display());
    }
    // One run, whoever led it: every round once.
    let export = probe_sync_rounds(&out);
    assert!(export.iter().copied().eq(0..export.len() as u64), "{export:?}");
}

fn probe_sync_rounds(out: &Path) -> Vec<u64> {
    let export = out.join("run.pb");
    let done =
        crate::support::output(crate::support::probe_sync(&["export", "--run-dir", text(out), "--out", text(&export)]));
    assert!(done.status.success(), "{}", complaint(&done));
    let read = probe_sync::export::read(&std::fs::read(&export).expect("written")).expect("our own");
    read.rounds.iter().map(|round| round.round_id).collect()
}

#[test]
#[ignore = "long: waits for the limits of ranks that were killed"]
fn rank_0_comes_back_to_the_master_that_took_its_place_and_has_a_voice() {
    check_return(&[]);
}

#[test]
#[ignore = "long: waits for the limits of ranks that were killed"]
fn rank_0_with_another_out_takes_no_rank_of_the_run_that_goes_on() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let [out, other] = ["out", "other"].map(|name| directory.path().join(name));
    let port = free_port();
    let start = |r: usize, out: &Path| {
        let arguments = [&SETTINGS[..], &["--out", text(out)]].concat();
        rank(port, r, 4, &arguments).env("PROBE_SYNC_RENDEZVOUS_TIMEOUT", "15s").spawn().expect("starts")
    };
    let mut ranks: Vec<Child> = (0..4).map(|r| start(r, &out)).collect();
    wait_for_round(&out, 4);
    signal(&ranks[0], Signal::KILL);
    ranks[0].wait().expect("our own child");
    ranks[0] = start(0, &other);
    let folder = master_with(&out, "rank1-from-round", |folder| rounds(folder) >= 3);
    signal(&ranks[3], Signal::KILL);
    ranks[3].wait().expect("our own child");
    let so_far = rounds(&folder);
    master_with(&out, "rank1-from-round", |folder| away(folder, 2) && rounds(folder) > so_far);
    // It finds rank 0 first, which begins a new run.
    ranks[3] = start(3, &out);
    master_with(&out, "rank1-from-round", |folder| away(folder, 1));
    let zero = wait(ranks.remove(0));
    assert_eq!(zero.status.code(), Some(1));
    let said = complaint(&zero);
    assert!(said.contains("rank(s) 1, 2, 3") && said.contains("OtherRun"), "{said}");
    assert!(!other.exists(), "nothing was begun");
    let so_far = rounds(&folder);
    master_with(&out, "rank1-from-round", |folder| rounds(folder) >= so_far + 2);
    signal(&ranks[0], Signal::TERM);
    ranks.into_iter().map(wait).for_each(|ended| assert!(ended.status.success(), "{}", complaint(&ended)));
    let report = written_report(&folder);
    let absence = report["absences"].as_array().expect("a list").iter().find(|one| one["rank"] == 3);
    assert!(absence.is_some_and(|absence| absence["back"].is_u64()), "{report:#}");
}

/// Rank 2 leads; it is killed and started again, and after it rank 1, which comes back too: both to
/// rank 3.
#[test]
#[ignore = "long: waits for the limits of ranks that were killed"]
fn another_master_that_is_started_again_comes_back_to_the_rank_that_took_its_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let (start, mut ranks) = started(&out, 5, &[&SETTINGS[..], &["--master", "2"]].concat());
    wait_for_round(&out, 4);
    for (lost, rest) in [(2, 0), (1, 0)] {
        signal(&ranks[lost], Signal::KILL);
        ranks[lost].wait().expect("our own child");
        assert!(out.join(format!("successors/rank{lost}.json")).exists(), "its next process finds the others by it");
        if lost == 1 {
            master_with(&out, "rank3-from-round", |folder| away(folder, 1));
        }
        ranks[lost] = start(lost);
        let folder = master_with(&out, "rank3-from-round", |folder| rounds(folder) >= 2 && away(folder, rest));
        let so_far = rounds(&folder);
        master_with(&out, "rank3-from-round", |folder| rounds(folder) >= so_far + 3);
    }
    signal(&ranks[3], Signal::TERM);
    ranks.into_iter().map(wait).for_each(|ended| assert!(ended.status.success(), "{}", complaint(&ended)));
    let folder = master_with(&out, "rank3-from-round", |_| true);
    let report = written_report(&folder);
    assert_eq!(report["taken_over"]["from_rank"], 2, "{report:#}");
    let mut named: Vec<u64> =
        report["absences"].as_array().expect("a list").iter().filter_map(|one| one["rank"].as_u64()).collect();
    named.sort_unstable();
    assert_eq!(named, [1, 2], "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert!(!out.join("successors").exists(), "the run has ended well");
}

/// All are killed, and all are started again, with what they had: nobody is left of the run before,
/// and the next one begins.
#[test]
fn ranks_that_are_all_started_again_begin_a_new_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let (start, mut ranks) = started(&out, 3, &SETTINGS);
    wait_for_round(&out, 2);
    for rank in &ranks {
        signal(rank, Signal::KILL);
    }
    ranks.drain(..).for_each(|rank| _ = wait(rank));
    assert!(["rank0", "rank1", "rank2"].iter().all(|rank| out.join(format!("successors/{rank}.json")).exists()));
    let ranks: Vec<Child> = (0..3).map(start).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !directory.path().join("out.1").exists() {
        assert!(Instant::now() < deadline, "no new run begins");
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for_round(&out, 2);
    signal(&ranks[0], Signal::TERM);
    ranks.into_iter().map(wait).for_each(|ended| assert!(ended.status.success(), "{}", complaint(&ended)));
    assert_eq!(written_report(&out)["taken_over"], serde_json::Value::Null);
}
