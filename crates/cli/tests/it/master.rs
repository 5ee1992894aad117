//! Runs that another rank than 0 leads (`--master`), over TCP: who records, who takes its place,
//! and what is refused.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::faults::{rank, second_masters, signal, wait_for_round, written_report};
use crate::support::{complaint, free_port, lines, output, probe_sync, report, text, wait};

const SETTINGS: [&str; 7] = ["--window", "500ms", "--fixed", "--inject-skew", "3", "--master", "2"];

/// Four ranks with a directory each.
fn four(directory: &Path, port: u16, settings: &[&str]) -> (Vec<PathBuf>, Vec<Child>) {
    let outs: Vec<PathBuf> = (0..4).map(|own| directory.join(format!("rank{own}"))).collect();
    let start = |(own, out): (usize, &PathBuf)| {
        let arguments = [&SETTINGS[..], settings, &["--out", text(out)]].concat();
        rank(port, own, 4, &arguments).spawn().expect("starts")
    };
    let ranks = outs.iter().enumerate().map(start).collect();
    (outs, ranks)
}

#[test]
fn the_process_that_starts_the_others_is_the_master_and_has_the_report() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run = ["run", "--local", "4", "--duration", "3s", "--json", "--out", text(&out)];
    let report = report(&[&run[..], &SETTINGS[..]].concat());
    assert_eq!((&report["nodes"].as_array().map(Vec::len), &report["reference"]), (&Some(4), &0.into()), "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    for mode in ["timed", "local"] {
        let out = directory.path().join(mode);
        let run = ["run", "--local", "3", "--duration", "2s", "--rounds", mode, "--out", text(&out)];
        let ended = output(probe_sync(&[&run[..], &SETTINGS[..]].concat()));
        assert!(ended.status.success() && out.join("report.json").exists(), "{mode}: {}", complaint(&ended));
    }
}

#[test]
fn the_files_are_at_the_master() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (outs, ranks) = four(directory.path(), free_port(), &["--duration", "3s"]);
    let ended: Vec<_> = ranks.into_iter().map(wait).collect();
    ended.iter().for_each(|ended| assert!(ended.status.success(), "{}", complaint(ended)));
    let printed: Vec<bool> = ended.iter().map(|ended| !ended.stdout.is_empty()).collect();
    assert_eq!(printed, [false, false, true, false], "the master prints the table");
    let recorded: Vec<bool> = outs.iter().map(|out| out.join("report.json").exists()).collect();
    assert_eq!(recorded, [false, false, true, false]);
    let report = written_report(&outs[2]);
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    let offsets = lines(&outs[2].join("offsets.jsonl"));
    let zero = offsets.iter().filter(|line| line["node_id"] == 0 && line.get("offset_ns").is_some());
    assert!(zero.clone().count() > 0 && zero.clone().all(|line| line["offset_ns"] == 0.0), "node 0 is the reference");
}

#[test]
fn the_rank_after_the_master_takes_its_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (outs, mut ranks) = four(directory.path(), free_port(), &[]);
    wait_for_round(&outs[2], 4);
    signal(&ranks[2], Signal::KILL);
    wait(ranks.remove(2));
    let deadline = Instant::now() + Duration::from_secs(60);
    let folder = loop {
        match second_masters(&outs[3]) {
            Some(folder) if folder.join("global_windows.jsonl").exists() => break folder,
            _ => assert!(Instant::now() < deadline, "nobody took over"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    wait_for_round(&folder, 4);
    signal(&ranks[2], Signal::TERM);
    for ended in ranks.into_iter().map(wait) {
        assert!(ended.status.success(), "{}", complaint(&ended));
    }
    let report = written_report(&folder);
    assert_eq!((&report["taken_over"]["from_rank"], &report["absences"][0]["rank"]), (&2.into(), &2.into()));
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    let [first, second] = [&outs[2], &folder].map(|out| {
        let numbers = lines(&out.join("global_windows.jsonl"));
        numbers.iter().filter_map(|round| round["round_id"].as_u64()).collect::<Vec<u64>>()
    });
    for rounds in [&first, &second] {
        assert!(rounds.windows(2).all(|pair| pair[1] == pair[0] + 1), "a decided round is lost: {rounds:?}");
    }
    // The master may have been killed between writing a round and telling the others.
    let (last, next) = (first.last().expect("rounds"), second.first().expect("rounds"));
    assert!((*last..=last + 1).contains(next), "a decided round is lost: {first:?}, {second:?}");
}

#[test]
fn a_rank_other_than_the_master_comes_back() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (port, settings) = (free_port(), []);
    let (outs, mut ranks) = four(directory.path(), port, &settings);
    wait_for_round(&outs[2], 2);
    signal(&ranks[0], Signal::KILL);
    wait(ranks.remove(0));
    let metrics = || std::fs::read_to_string(outs[2].join("metrics.prom")).unwrap_or_default();
    let until = |line: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !metrics().contains(line) {
            assert!(Instant::now() < deadline, "{line} does not come: {}", metrics());
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until("probe_sync_ranks_away 1");
    let arguments = [&SETTINGS[..], &["--out", text(&outs[0])]].concat();
    ranks.push(rank(port, 0, 4, &arguments).spawn().expect("starts"));
    until("probe_sync_ranks_away 0");
    signal(&ranks[1], Signal::TERM);
    for ended in ranks.into_iter().map(wait) {
        assert!(ended.status.success(), "{}", complaint(&ended));
    }
    let report = written_report(&outs[2]);
    assert_eq!(report["absences"][0]["rank"], 0, "{report:#}");
    assert!(report["absences"][0]["back"].as_u64().is_some(), "{report:#}");
}

#[test]
fn a_master_that_there_is_not_is_refused_on_all_ranks_alike() {
    let port = free_port();
    let start = |own: usize| {
        rank(port, own, 2, &["--duration", "1s", "--master", "2", "--out", "never_made"]).spawn().expect("starts")
    };
    let ranks: Vec<Child> = (0..2).map(start).collect();
    let ended: Vec<_> = ranks.into_iter().map(wait).collect();
    assert!(ended.iter().all(|ended| ended.status.code() == Some(2)));
    let said = complaint(&ended[0]);
    assert!(said.contains("--master 2: there is no such rank; the run has 2"), "{said}");
    assert!(!Path::new("never_made").exists());
}

#[test]
fn ranks_that_were_told_different_masters_are_refused() {
    let port = free_port();
    let start = |own: usize, master: &str| {
        rank(port, own, 3, &["--duration", "1s", "--master", master, "--out", "never_made"]).spawn().expect("starts")
    };
    let ranks = [start(0, "0"), start(1, "2"), start(2, "0")];
    let ended = ranks.map(wait);
    assert!(ended.iter().all(|ended| ended.status.code() == Some(2)));
    let said = complaint(&ended[0]);
    assert!(said.contains("--master 2: this group is led by rank 0") || said.contains("master is \"2\""), "{said}");
}
