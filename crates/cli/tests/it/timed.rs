//! `--rounds timed` without rank 0: the next rank takes its place, because every rank has what it
//! needs.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::faults::{
    aligned_off_ns, check_loss_of_rank_zero, second_masters, signal, solved_again, started, wait_for_round,
    written_report,
};
use crate::support::{complaint, lines, output, probe_sync, text, wait};

const TIMED: [&str; 2] = ["--rounds", "timed"];

/// A trace of node 3 with an event in the middle of every window in which it was reachable is
/// aligned by the offsets of both masters, and `solve` of what the nodes have written knows all
/// their rounds.
fn check_read_again(out: &Path, folder: &Path) {
    let first: Vec<Value> = lines(&folder.join("offsets.jsonl"));
    let from = first.iter().find_map(|line| line["round_id"].as_u64()).expect("rounds");
    let of_old = lines(&out.join("offsets.jsonl"));
    let old = of_old.iter().filter(|line| line["round_id"].as_u64().is_some_and(|round| round < from));
    let of_node = |line: &&Value| line["node_id"] == 3 && line["reachable"] == true;
    let all: Vec<&Value> = old.chain(&first).filter(of_node).collect();
    let ns = |line: &Value, key: &str| line[key].as_i64().expect("ns");
    let middles: Vec<(i64, f64)> = all
        .iter()
        .map(|line| {
            let middle = ns(line, "window_start_ns").midpoint(ns(line, "window_end_ns"));
            (middle, line["offset_ns"].as_f64().expect("a number"))
        })
        .collect();
    let offs = aligned_off_ns(out, "3", &middles);
    assert!(offs.len() >= 10, "{offs:?}");
    assert!(offs.iter().all(|off| *off < 20_000.0), "{offs:?} ns from where their lines say");
    let (solved, _) = solved_again(out, "rounds", "0");
    let last = lines(&solved).iter().filter_map(|line| line["round_id"].as_u64()).max();
    assert!(last >= first.iter().filter_map(|line| line["round_id"].as_u64()).max().map(|last| last - 1), "{last:?}");
}

fn check_loss(strike: Signal, round_timeout: &str, mode: &[&str]) {
    let directory = check_loss_of_rank_zero(strike, round_timeout, mode);
    let out = directory.path().join("out");
    let folder = second_masters(&out).expect("rank 1 went on");
    assert_eq!(written_report(&folder)["round_mode"], "timed");
    assert!(!folder.join("control.sock").exists() && !out.join("control.sock").exists(), "nobody can be asked");
    check_read_again(&out, &folder);
}

#[test]
fn the_next_rank_goes_on_in_time_based_rounds_when_rank_zero_is_killed() {
    check_loss(Signal::KILL, "10s", &TIMED);
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn the_next_rank_goes_on_in_time_based_rounds_when_rank_zero_hangs() {
    check_loss(Signal::STOP, "2s", &TIMED);
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn the_next_rank_goes_on_in_time_based_rounds_of_a_tree_when_rank_zero_is_killed() {
    check_loss(Signal::KILL, "10s", &["tree", "--rounds", "timed"]);
}

/// Of five ranks two are lost, one after the other, and then the second one's master: two of three
/// go on.
#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn lost_ranks_are_named_and_do_not_come_back_and_masters_may_be_lost_one_after_the_other() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let settings = ["--window", "500ms", "--fixed", "--inject-skew", "3", "--round-timeout", "3s"];
    let (start, mut ranks) = started(&out, 5, &[&settings[..], &TIMED].concat());
    wait_for_round(&out, 4);
    // Another than rank 0: the others go on, and its process is told to come in the next run.
    signal(&ranks[4], Signal::KILL);
    wait(ranks.remove(4));
    wait_for_round(&out, lines(&out.join("global_windows.jsonl")).len() + 2);
    let again = wait(start(4));
    assert_eq!(again.status.code(), Some(1));
    assert!(complaint(&again).contains("can join the next run"), "{}", complaint(&again));
    let until = |from: &str, rounds: usize| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let folders = std::fs::read_dir(&out).expect("the run's directory").flatten().map(|entry| entry.path());
            let found = folders.into_iter().find(|path| path.to_string_lossy().contains(from));
            let so_far =
                |folder: &Path| std::fs::read_to_string(folder.join("global_windows.jsonl")).unwrap_or_default();
            if let Some(folder) = found.filter(|folder| so_far(folder).lines().count() >= rounds) {
                return folder;
            }
            assert!(Instant::now() < deadline, "{from}: nobody took over");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let mut folder = out.clone();
    for (place, from) in [(0, "rank1-from-round"), (0, "rank2-from-round")] {
        signal(&ranks[place], Signal::KILL);
        wait(ranks.remove(place));
        folder = until(from, 4);
    }
    let zero = wait(start(0));
    assert_eq!(zero.status.code(), Some(1));
    assert!(complaint(&zero).contains("can join the next run"), "{}", complaint(&zero));
    signal(&ranks[0], Signal::TERM);
    ranks.into_iter().map(wait).for_each(|ended| assert!(ended.status.success(), "{}", complaint(&ended)));
    let report = written_report(&folder);
    assert_eq!(report["taken_over"]["from_rank"], 1, "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    let export = out.join("run.pb");
    let done = output(probe_sync(&["export", "--run-dir", text(&out), "--out", text(&export)]));
    assert!(done.status.success(), "{}", complaint(&done));
    let read = probe_sync::export::read(&std::fs::read(&export).expect("written")).expect("our own");
    let rounds: Vec<u64> = read.rounds.iter().map(|round| round.round_id).collect();
    assert!(rounds.iter().copied().eq(0..rounds.len() as u64), "{rounds:?}");
}
