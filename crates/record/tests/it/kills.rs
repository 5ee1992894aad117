//! Processes that end without ending their session: what they had recorded is there, and what was
//! open has a name.
//!
//! `RECORD_KILLS=67 cargo test -p probe-sync-record --test it kills` kills 201 and aborts 67 of
//! them.

use std::path::Path;
use std::process::Child;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use probe_sync_record::Recording;
use tempfile::TempDir;

use crate::child::{self, LIMIT, Progress, THREADS};
use crate::support::{alone, tallies, tallies_of};

/// A process that records, and its progress so far.
fn begun(policy: &str) -> (TempDir, Child, Progress) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let child = child::start(&format!("record {policy}"), folder.path());
    let (path, deadline) = (folder.path().join("progress"), Instant::now() + LIMIT);
    while !path.exists() {
        assert!(Instant::now() < deadline, "it does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    let progress = Progress::open(&path);
    while (0..THREADS).any(|thread| progress.of(thread).load(Ordering::Acquire) == 0) {
        assert!(Instant::now() < deadline, "it does not go on");
        std::thread::sleep(Duration::from_millis(1));
    }
    (folder, child, progress)
}

/// Whether a recording has what its threads had ended by `progress`.
fn check(path: &Path, policy: &str, progress: [u64; THREADS]) {
    let recording = Recording::open(path).unwrap_or_else(|error| panic!("{policy}: {error}"));
    assert!(!recording.status().finished);
    let threads = tallies(&recording);
    for (thread, made) in progress.into_iter().enumerate() {
        let tally = &threads.get(&format!("w{thread}")).unwrap_or_else(|| panic!("{policy}: w{thread} is missing"));
        assert_eq!(tally.open.first().map(String::as_str), Some("outer"), "{policy} {thread}: {:?}", tally.open);
        assert!(tally.open.iter().skip(1).all(|name| name == "work" || name == "inner"), "{:?}", tally.open);
        let (first, last) = (tally.numbers.first().copied(), tally.numbers.last().copied());
        match policy {
            // The newest is there, or what was lost is counted.
            "flight" => assert!(last.is_some_and(|last| last + 1 >= made) || tally.lost > 0, "{last:?} of {made}"),
            _ => {
                let scopes = made + made.div_ceil(3);
                let begins = first.is_none_or(|first| first <= tally.lost);
                assert!(begins, "{policy}: begins with {first:?}, {} are counted", tally.lost);
                assert!(tally.events() + tally.lost >= scopes, "{policy} {thread}: {} of {scopes}", tally.events());
            }
        }
    }
}

/// How often a test kills a process: as often as the environment's `RECORD_KILLS` says.
fn rounds() -> u64 {
    std::env::var("RECORD_KILLS").map_or(10, |times| times.parse().expect("RECORD_KILLS is a number"))
}

fn killed(policy: &str, signal: libc::c_int) {
    let _alone = alone();
    for round in 0..rounds() {
        let (folder, mut child, progress) = begun(policy);
        // Some are killed at once, some after memory has been full for long.
        let wait = round * 7 % 10;
        std::thread::sleep(Duration::from_micros(wait * wait * 1700 + round * 37));
        let pid = libc::pid_t::try_from(child.id()).expect("a process");
        // SAFETY: a signal to a child that was not waited for.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        child.wait().expect("a child");
        let made = std::array::from_fn(|thread| progress.of(thread).load(Ordering::Acquire));
        check(&folder.path().join("killed.rec"), policy, made);
    }
}

#[test]
fn a_killed_process_leaves_what_it_had_recorded() {
    killed("drop_newest", libc::SIGKILL);
}

#[test]
fn a_killed_flight_recorder_leaves_the_newest() {
    killed("flight", libc::SIGKILL);
}

#[test]
fn a_killed_stream_leaves_what_it_had_recorded() {
    killed("stream", libc::SIGKILL);
}

#[test]
fn a_process_that_aborts_anywhere_leaves_what_it_had_recorded() {
    killed("stream", libc::SIGABRT);
}

#[test]
fn a_recording_is_read_while_it_is_written() {
    let _alone = alone();
    for policy in ["drop_newest", "flight", "stream"] {
        let (folder, mut child, progress) = begun(policy);
        // A stream grows meanwhile, and is read from its beginning each time.
        let enough = Instant::now() + Duration::from_secs(2);
        for _ in (0..34).take_while(|reading| *reading < 3 || Instant::now() < enough) {
            let path = folder.path().join("killed.rec");
            let made = std::array::from_fn(|thread| progress.of(thread).load(Ordering::Acquire));
            // What is read afterwards may have been overwritten meanwhile.
            match policy {
                "flight" => drop(tallies_of(&Recording::open(&path).expect("sound"), false)),
                _ => check(&path, policy, made),
            }
        }
        child.kill().expect("it runs");
        child.wait().expect("a child");
    }
}

#[test]
fn a_process_that_exits_or_aborts_without_a_stop_leaves_its_recording() {
    let _alone = alone();
    for (task, ends_well) in [("exit drop_newest", true), ("exit stream", true), ("exit abort", false)] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let status = child::start(task, folder.path()).wait().expect("a child");
        assert_eq!(status.success(), ends_well, "{task}");
        let recording = Recording::open(&folder.path().join("killed.rec")).expect("sound");
        let (_, tally) = tallies(&recording).pop_first().expect("a thread");
        assert_eq!((tally.numbers.len(), tally.open), (1000, vec!["open".to_owned()]), "{task}");
    }
}
