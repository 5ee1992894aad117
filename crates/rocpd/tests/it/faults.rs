//! Kills, a full disk, and a database that somebody else has locked: what was committed stays, and
//! what is not in the file is counted.
//!
//! Processes to kill, and one with a small disk of its own, are this test's program again, told by
//! a variable what to do.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use probe_sync_rocpd::writer::{Journal, Process, Region, Report, Settings, ThreadRecorder, Writer};
use rusqlite::Connection;

use crate::writer::{check_alone, check_whole, number, read};

/// What a process of this test does, and where.
const ROLE: &str = "PROBE_SYNC_ROCPD_ROLE";
const FOLDER: &str = "PROBE_SYNC_ROCPD_FOLDER";

/// What a process says that has done all of its part.
const PLAYED: &str = "role played";

const KILLS: u64 = 50;
const DEADLINE: Duration = Duration::from_secs(120);

/// This program, playing a role; with `around` it is started by a shell that makes its
/// surroundings.
pub(crate) fn role(role: &str, folder: &Path, around: Option<&str>) -> Command {
    let program = std::env::current_exe().expect("this program");
    let mut command = match around {
        Some(script) => {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--mount", "sh", "-c", script]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(["--exact", "faults::plays_a_role", "--ignored", "--nocapture"]);
    command.env(ROLE, role).env(FOLDER, folder);
    command
}

pub(crate) fn check_played(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(PLAYED), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "started by the tests of this file"]
fn plays_a_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = PathBuf::from(std::env::var(FOLDER).expect("a folder"));
    match role.as_str() {
        "record until killed" => record_until_killed(&folder, Journal::WriteAhead),
        "record until killed, with a rollback journal" => record_until_killed(&folder, Journal::Rollback),
        "fill the disk" => fill_the_disk(&folder),
        "fill the disk and make room" => fill_and_make_room(&folder),
        "read meanwhile" => crate::writer::read_meanwhile(&folder),
        other => panic!("{other}"),
    }
    println!("{PLAYED}");
}

fn opened(settings: Settings) -> (Writer, ThreadRecorder, Region) {
    let writer = Writer::open(settings, Process::current()).expect("a writer");
    let (name, category) = (writer.intern("step"), writer.intern("MARKER_RANGE"));
    let thread = writer.thread(1, None);
    (writer, thread, Region { name, category, ..Region::default() })
}

fn at(folder: &Path) -> PathBuf {
    folder.join("results.db")
}

fn record_until_killed(folder: &Path, journal: Journal) {
    let (flush_interval, journal) = (Duration::from_millis(5), Some(journal));
    let own = Settings { output: at(folder), flush_interval, flush_rows: 500, journal, ..Settings::default() };
    let (writer, thread, region) = opened(own);
    let mut next = 0;
    loop {
        if thread.region(Region { start_ns: next, end_ns: next + 1, ..region.clone() }) {
            next += 1;
        }
        if next % 200 == 0 {
            // A new name now and then: strings and the rows that name them come together or not at
            // all.
            writer.intern(&format!("name {next}"));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn wait_for(child: &mut Child, path: &Path) {
    let deadline = Instant::now() + DEADLINE;
    while !path.exists() {
        assert!(Instant::now() < deadline && child.try_wait().expect("a child").is_none(), "it has made no file");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Fifty processes, killed from 0 to 100 ms after they have made their file.
#[test]
fn a_killed_process_leaves_a_whole_file() {
    let mut rows = 0;
    for kill in 0..KILLS {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child =
            role("record until killed", folder.path(), None).stdout(Stdio::null()).spawn().expect("a child");
        wait_for(&mut child, &at(folder.path()));
        // Multiples of a large prime: as if by chance, and the same in each run.
        std::thread::sleep(Duration::from_micros(kill * 7_919_333 % 100_000));
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        rows += check_killed(&at(folder.path()));
    }
    assert!(rows > 0, "no process has committed anything before it was killed");
}

/// Rows that are there once, each with all that it names; gives their number.
///
/// Some may be missing before the newest: the two halves of a buffer are taken one after the other,
/// and a kill between two commits loses an event of one that is older than what the other brought.
/// It is of the last interval, which a kill may cost.
fn check_killed(path: &Path) -> i64 {
    // With its log, which the next one who opens it reads.
    let connection = Connection::open(path).expect("a database");
    let tables =
        number(&connection, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name GLOB 'rocpd_region_*'");
    drop(connection);
    if tables == 0 {
        // Killed while the tables were made, which is one transaction.
        return 0;
    }
    check_whole(path);
    let connection = read(path);
    let rows = number(&connection, "SELECT count(*) FROM rocpd_region");
    assert_eq!(number(&connection, "SELECT count(DISTINCT start) FROM rocpd_region"), rows, "a row is there twice");
    assert_eq!(number(&connection, "SELECT count(*) FROM regions"), rows, "a row refers to nothing");
    assert_eq!(number(&connection, "SELECT count(*) FROM rocpd_event"), rows, "an event without its region");
    rows
}

/// Events that the caller counts itself.
fn record(thread: &ThreadRecorder, region: &Region, events: u64) -> u64 {
    (0..events).filter(|_| thread.region(region.clone())).count() as u64
}

/// What the report says is what the file has, and with what was dropped it is all.
fn check_counts(report: &Report, kept: u64, recorded: u64) {
    assert_eq!(report.events + report.dropped, recorded, "{report:?}");
    assert!(report.events <= kept, "{report:?}");
    let connection = read(&report.path);
    assert_eq!(number(&connection, "SELECT count(*) FROM rocpd_region") as u64, report.events);
    drop(connection);
    check_whole(&report.path);
}

fn dropped_in_file(path: &Path) -> u64 {
    let query = "SELECT CAST(value AS INTEGER) FROM rocpd_metadata WHERE tag = 'probe_sync_dropped'";
    number(&read(path), query) as u64
}

/// Records until the disk is full and the buffers have refused everything for a while; returns how
/// many events were kept and how many were recorded.
///
/// Refusals alone would not show it: a flusher that gets no processor time refuses as well.
fn fill(folder: &Path, thread: &ThreadRecorder, region: &Region) -> (u64, u64) {
    const REFUSED_ROUNDS: u32 = 400;
    let deadline = Instant::now() + DEADLINE;
    let (mut kept, mut recorded) = (0, 0);
    let (probe, mut refused) = (folder.join("probe"), 0);
    while refused < REFUSED_ROUNDS {
        let taken = record(thread, region, 1_000);
        (kept, recorded) = (kept + taken, recorded + 1_000);
        let full = taken == 0 && (refused > 0 || std::fs::write(&probe, [1; 16 << 10]).is_err());
        let _ = std::fs::remove_file(&probe);
        refused = if full { refused + 1 } else { 0 };
        std::thread::sleep(Duration::from_micros(500));
        assert!(Instant::now() < deadline, "the disk does not fill");
    }
    (kept, recorded)
}

/// A disk that stays full: the writer gives up when it was told to, and accounts for every event.
fn fill_the_disk(folder: &Path) {
    let finish_timeout = Duration::from_secs(2);
    let (writer, thread, region) = opened(Settings { output: at(folder), finish_timeout, ..Settings::default() });
    let (kept, recorded) = fill(folder, &thread, &region);
    let report = writer.finish().expect("a report");
    assert!(report.dropped > 0 && report.failures > 0, "{report:?}");
    assert!(report.problem.as_deref().is_some_and(|problem| problem.contains("full")), "{report:?}");
    check_counts(&report, kept, recorded);
}

/// A full disk that has room again: everything that was kept gets in, and the count of the rest is
/// in the file.
fn fill_and_make_room(folder: &Path) {
    let ballast = folder.join("ballast");
    std::fs::write(&ballast, vec![1; 24 << 20]).expect("room for the ballast");
    let own = Settings { output: at(folder), buffer_events: 4_000, flush_rows: 2_000, ..Settings::default() };
    let (writer, thread, region) = opened(own);
    let (mut kept, mut recorded) = fill(folder, &thread, &region);
    let deadline = Instant::now() + DEADLINE;
    std::fs::remove_file(&ballast).expect("our own file");
    let mut again = 0;
    while again == 0 {
        again = record(&thread, &region, 10);
        kept += again;
        recorded += 10;
        std::thread::sleep(Duration::from_millis(1));
        assert!(Instant::now() < deadline, "nothing is kept again");
    }
    let report = writer.finish().expect("a report");
    assert_eq!(report.events, kept, "{report:?}");
    assert!(report.stands_alone && report.failures > 0, "{report:?}");
    check_counts(&report, kept, recorded);
    assert_eq!(dropped_in_file(&report.path), report.dropped);
    check_alone(&report.path);
}

/// In a file system of 32 MiB that only this process sees.
#[test]
fn a_full_disk_drops_and_counts() {
    let own = Command::new("unshare").args(["--map-root-user", "--mount", "true"]).status();
    if !own.is_ok_and(|status| status.success()) {
        return println!("skipped: this user may not mount a file system of its own");
    }
    for name in ["fill the disk", "fill the disk and make room"] {
        let folder = tempfile::tempdir().expect("a folder");
        let script = format!("mount -t tmpfs -o size=32m none \"${FOLDER}\" && exec \"$0\" \"$@\"");
        let output = role(name, folder.path(), Some(&script)).output().expect("a child");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("role played"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Another process holds the lock, so no commit succeeds: the caller continues, and everything adds
/// up.
fn stalled(journal: Journal) {
    let folder = tempfile::tempdir().expect("a folder");
    let own = Settings {
        output: at(folder.path()),
        journal: Some(journal),
        buffer_events: 1_000,
        flush_interval: Duration::from_millis(10),
        flush_rows: 1_000,
        ..Settings::default()
    };
    let (writer, thread, region) = opened(own);
    let other = Connection::open(writer.path()).expect("a database");
    other.busy_timeout(DEADLINE).expect("a number");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let deadline = Instant::now() + DEADLINE;
    let (mut kept, mut recorded) = (0, 0);
    while writer.dropped() < 10_000 {
        kept += record(&thread, &region, 1_000);
        recorded += 1_000;
        assert!(Instant::now() < deadline, "the buffers do not fill");
    }
    assert_eq!(number(&other, "SELECT count(*) FROM rocpd_region"), 0, "nothing passes a lock");
    other.execute_batch("ROLLBACK").expect("the lock");
    drop(other);
    let report = writer.finish().expect("a report");
    assert_eq!((report.events, report.dropped), (kept, recorded - kept), "{report:?}");
    check_counts(&report, kept, recorded);
    assert_eq!(dropped_in_file(&report.path), report.dropped);
    check_alone(&report.path);
}

#[test]
fn a_stalled_file_drops_and_counts() {
    stalled(Journal::WriteAhead);
    stalled(Journal::Rollback);
}

/// The lock is still held when the time is over: what could not be committed is dropped, and the
/// report says so and why.
#[test]
fn an_end_that_is_in_vain_counts_what_it_gives_up() {
    for journal in [Journal::WriteAhead, Journal::Rollback] {
        let folder = tempfile::tempdir().expect("a folder");
        let finish_timeout = Duration::from_millis(100);
        let own = Settings { output: at(folder.path()), finish_timeout, journal: Some(journal), ..Settings::default() };
        let (writer, thread, region) = opened(own);
        let other = Connection::open(writer.path()).expect("a database");
        other.busy_timeout(DEADLINE).expect("a number");
        other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
        assert_eq!(record(&thread, &region, 1_000), 1_000);
        let report = writer.finish().expect("a report");
        assert_eq!((report.events, report.dropped, report.stands_alone), (0, 1_000, false), "{report:?}");
        assert!(report.problem.as_deref().is_some_and(|problem| problem.contains("locked")), "{report:?}");
        other.execute_batch("ROLLBACK").expect("the lock");
        drop(other);
        check_counts(&report, 1_000, 1_000);
    }
}

/// A reader that stays: the file keeps its log, nothing of it is lost, and the report says so.
#[test]
fn a_reader_that_stays_leaves_the_log_beside() {
    let folder = tempfile::tempdir().expect("a folder");
    let finish_timeout = Duration::from_millis(200);
    let own = Settings {
        output: at(folder.path()),
        finish_timeout,
        journal: Some(Journal::WriteAhead),
        ..Settings::default()
    };
    let (writer, thread, region) = opened(own);
    let reader = read(writer.path());
    reader.execute_batch("BEGIN").expect("a snapshot");
    assert_eq!(number(&reader, "SELECT count(*) FROM rocpd_region"), 0);
    assert_eq!(record(&thread, &region, 100), 100);
    let report = writer.finish().expect("a report");
    assert!(!report.stands_alone && report.problem.is_some(), "{report:?}");
    assert_eq!((report.events, report.dropped), (100, 0));
    reader.execute_batch("COMMIT").expect("a snapshot");
    assert_eq!(number(&reader, "SELECT count(*) FROM rocpd_region"), 100);
}
