//! Recordings of days, in small: segments, what is removed, and a disk that is full.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::support::{complaint, lines, output, probe_sync, report, text, wait};

/// Files of a folder whose names begin with this, in order.
fn files(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start));
    let mut files: Vec<PathBuf> = entries.filter(named).collect();
    files.sort();
    files
}

fn rounds(files: &[PathBuf]) -> Vec<u64> {
    let all = files.iter().flat_map(|file| lines(file));
    let mut rounds: Vec<u64> = all.filter_map(|line| line["round_id"].as_u64()).collect();
    rounds.dedup();
    rounds
}

#[test]
fn segments_of_a_run_are_read_as_one_recording() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run =
        ["run", "--local", "3", "--per-rank", "--window", "100ms", "--fixed", "--duration", "3s", "--keep-probes"];
    let report = report(&[&run[..], &["--rotate-at", "4KiB", "--json", "--out", text(&out)]].concat());
    let solved = report["rounds"].as_u64().expect("a count");
    let all: Vec<u64> = (0..solved).collect();
    for (folder, name) in [(".", "offsets."), (".", "global_windows."), ("windows", "node1."), ("probes", "node1.")] {
        let mut found = files(&out.join(folder), name);
        found.retain(|file| !file.ends_with("offsets.smoothed.jsonl"));
        assert!(found.len() > 2, "{found:?}");
        assert_eq!(rounds(&found), all, "{name}");
    }
    let header = |path: &PathBuf| lines(path)[0]["meta"].clone();
    assert!(files(&out, "offsets.0").iter().all(|file| header(file) == Value::Bool(true)));

    let solve = |kind: &str, folder: &str| {
        let target = directory.path().join(format!("{kind}.jsonl"));
        let mut command = probe_sync(&["solve", kind]);
        command.args((0..3).map(|node| out.join(format!("{folder}/node{node}.jsonl"))));
        command.args(["--knots", "rounds", "--out"]).arg(&target);
        let output = output(command);
        assert!(output.status.success(), "{}", complaint(&output));
        rounds(&[target])
    };
    assert_eq!(solve("--windows", "windows"), all);
    assert_eq!(solve("--probes", "probes"), all);
    // The oldest are gone, as keep_bytes removes them.
    for node in 0..3 {
        std::fs::remove_file(out.join(format!("windows/node{node}.000001.jsonl"))).expect("it was there");
    }
    let left = solve("--windows", "windows");
    assert!(!left.is_empty() && left.len() < all.len() && left.last() == all.last(), "{left:?}");
    let export =
        output(probe_sync(&["export", "--run-dir", text(&out), "--out", text(&directory.path().join("run.pb"))]));
    assert!(export.status.success(), "{}", complaint(&export));
}

#[test]
fn the_oldest_segments_are_removed_and_the_report_says_what_was_in_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run =
        ["run", "--local", "3", "--per-rank", "--window", "100ms", "--fixed", "--duration", "6s", "--keep-probes"];
    let report =
        report(&[&run[..], &["--keep-bytes", "64KiB", "--keep-every", "5", "--json", "--out", text(&out)]].concat());
    let file =
        |name: &str| report["files"].as_array().expect("a list").iter().find(|file| file["name"] == name).cloned();
    let probes = file("probes/node1.jsonl").unwrap_or_else(|| panic!("{}", report["files"]));
    assert!(probes["removed_rounds"].as_u64() > Some(0) && probes["reason"].is_null(), "{probes}");
    let kept = files(&out.join("probes"), "node1.");
    let bytes: u64 = kept.iter().map(|path| path.metadata().expect("there").len()).sum();
    assert!(bytes <= 64 << 10, "{bytes}");
    let solved = report["rounds"].as_u64().expect("a count");
    assert_eq!(rounds(&kept).last(), Some(&(solved - 1)));
    let mut windows = files(&out, "global_windows.");
    windows.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    let windows = windows.iter().flat_map(|path| lines(path)).collect::<Vec<_>>();
    let eventful = |line: &Value| {
        [&line["clock_events"], &line["watch"]["faults"], &line["watch"]["breaks"]]
            .iter()
            .any(|list| list.as_array().is_some_and(|list| !list.is_empty()))
    };
    assert!((windows.len() as u64) < solved, "{} of {solved}", windows.len());
    assert!(windows.iter().all(|line| line["round_id"].as_u64().is_some_and(|id| id % 5 == 0) || eventful(line)));
}

/// A file system of this size; gone when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(size: &str) -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("only root can mount a small file system".into());
        }
        let folder = tempfile::tempdir().expect("a temporary directory");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "probe_sync_test"])
            .arg(folder.path())
            .output();
        match mount {
            Ok(done) if done.status.success() => Ok(Self(folder)),
            Ok(done) => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_full_disk_stops_the_writing_and_not_the_measuring() {
    let disk = match SmallDisk::new("512k") {
        Ok(disk) => disk,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let out = disk.0.path().join("out");
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 300 << 10]).expect("there is room");
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let log = elsewhere.path().join("log");
    let page = elsewhere.path().join("clock");
    let arguments = [
        "run",
        "--local",
        "4",
        "--per-rank",
        "--window",
        "200ms",
        "--fixed",
        "--json",
        "--clock-page",
        text(&page),
        "--out",
        text(&out),
    ];
    let start = || -> Child {
        let mut command = probe_sync(&arguments);
        let log = std::fs::File::create(&log).expect("writable");
        command.stdout(Stdio::piped()).stderr(log).spawn().expect("starts")
    };
    let run = start();
    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    let solved = || said().lines().filter(|line| line.contains(" round ") && line.contains("solved")).count();
    wait_until("a full disk", || said().contains("offsets.jsonl: No space left"));
    let full_at = solved();
    wait_until("ten more rounds", || solved() >= full_at + 10);
    // Once, although it was tried with every round.
    assert_eq!(said().matches("offsets.jsonl: No space left").count(), 1, "{}", said());
    let offsets = out.join("offsets.jsonl");
    assert!(std::fs::read_to_string(&offsets).expect("text").ends_with('\n'), "whole lines only");
    std::fs::remove_file(&ballast).expect("it was there");
    wait_until("room for the files", || said().contains("offsets.jsonl is being written again"));
    let again_at = solved();
    wait_until("three more rounds", || solved() >= again_at + 3);
    kill_process(Pid::from_raw(i32::try_from(run.id()).expect("an id")).expect("not zero"), Signal::TERM)
        .expect("it runs");
    let ended = wait(run);
    assert_eq!(ended.status.code(), Some(1), "{}", said());
    assert!(said().contains("could not be written at times"), "{}", said());
    let report: Value = serde_json::from_slice(&ended.stdout).expect("a report");
    let file = |name: &str| {
        let files = report["files"].as_array().expect("a list");
        files
            .iter()
            .find(|file| file["name"] == name)
            .cloned()
            .unwrap_or_else(|| panic!("no {name}: {}", report["files"]))
    };
    let missing = file("offsets.jsonl")["rounds_missing"].as_u64().expect("a count");
    let rounds = rounds(&[offsets]);
    assert_eq!(rounds.len() as u64 + missing, report["rounds"].as_u64().expect("a count"), "{report}");
    assert!(missing >= 5 && file("offsets.jsonl")["stopped"].is_null(), "{report}");
    assert!(file("windows/node1.jsonl")["reason"].as_str().is_some_and(|reason| reason.contains("space")), "{report}");
}
