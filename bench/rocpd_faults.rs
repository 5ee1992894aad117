//! What the rocpd writer costs its caller, and what it loses, on a full disk, on a frozen one, and
//! when it is killed.
//!
//! `cargo bench -p probe-sync-rocpd --bench rocpd_faults [-- FOLDER]`; FOLDER defaults to /dev/shm.
//! As root it mounts a tmpfs of 64 MiB and an ext4 in a file, and freezes the latter with fsfreeze;
//! another user gets the kills only. It prints the figures and ends with an error when a count is
//! wrong.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use probe_sync_rocpd::writer::{Error, Process, Region, Report, Settings, ThreadRecorder, Writer};
use rusqlite::Connection;

const KILLS: u32 = 50;
const KILL_INTERVAL: Duration = Duration::from_millis(200);
const GAP: Duration = Duration::from_micros(5);
const SECONDS: Duration = Duration::from_secs(5);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [role, folder] = arguments.as_slice()
        && role == "record"
    {
        record_until_killed(Path::new(folder));
    }
    let base = PathBuf::from(arguments.first().map_or("/dev/shm", String::as_str));
    let folder = base.join(format!("rocpd_faults.{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    kills(&folder);
    if may_mount(&folder) {
        full(&folder);
        frozen(&folder, false);
        frozen(&folder, true);
    } else {
        println!("skipped: full and frozen file systems, which this user may not mount");
    }
    std::fs::remove_dir_all(&folder).expect("our own folder");
}

fn may_mount(folder: &Path) -> bool {
    let said = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(folder).output();
    let mounted = said.is_ok_and(|output| output.status.success());
    if mounted {
        run("umount", &[folder.to_str().expect("a plain name")]);
    }
    mounted
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

fn opened(settings: Settings) -> (Writer, ThreadRecorder, Region) {
    let writer = Writer::open(settings, Process::current()).expect("a database");
    let (name, category) = (writer.intern("step"), writer.intern("MARKER_RANGE"));
    let thread = writer.thread(1, Some("main"));
    (writer, thread, Region { name, category, ..Region::default() })
}

fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Calls at a steady rate.
#[derive(Default)]
struct Calls {
    took: Vec<Duration>,
    recorded: u64,
    kept: u64,
}

impl Calls {
    /// One call every `GAP`, for as long.
    fn go_on(&mut self, thread: &ThreadRecorder, region: &Region, long: Duration) {
        let begin = Instant::now();
        let mut next = begin;
        while begin.elapsed() < long {
            while Instant::now() < next {
                std::hint::spin_loop();
            }
            let event = region.clone();
            let start = Instant::now();
            let kept = thread.region(event);
            self.took.push(start.elapsed());
            self.recorded += 1;
            self.kept += u64::from(kept);
            // Not made up for: a burst after a pause would be another load.
            next = Instant::now() + GAP;
        }
    }

    fn say(&mut self, name: &str) {
        self.took.sort();
        let at = |part: f64| self.took[((self.took.len() - 1) as f64 * part) as usize].as_nanos();
        let (p50, p99, p999, largest) = (at(0.5), at(0.99), at(0.999), at(1.0));
        println!(
            "{name}: {} calls, p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns, largest {largest} ns",
            self.took.len()
        );
        self.took.clear();
    }

    fn check(&self, report: &Report) {
        assert_eq!(report.events + report.dropped, self.recorded, "{report:?}");
        let connection = Connection::open(&report.path).expect("a database");
        let number = |query: &str| connection.query_row(query, [], |row| row.get::<_, i64>(0)).expect(query) as u64;
        let in_file = number("SELECT count(*) FROM rocpd_region");
        let tag = number("SELECT CAST(value AS INTEGER) FROM rocpd_metadata WHERE tag = 'probe_sync_dropped'");
        println!(
            "  recorded {}, in the file {in_file}, dropped {} (tag {tag}), failures {}, stands alone: {}",
            self.recorded, report.dropped, report.failures, report.stands_alone
        );
        assert_eq!(in_file, report.events);
        assert!(!report.stands_alone || tag == report.dropped, "the tag of a file that was ended");
    }
}

/// How much of its last time a killed process has lost.
fn kills(folder: &Path) {
    let mut lost = Vec::new();
    for kill in 0..KILLS {
        let own = folder.join(format!("kill{kill}"));
        std::fs::create_dir(&own).expect("a folder");
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program).arg("record").arg(&own).spawn().expect("a child");
        std::thread::sleep(Duration::from_millis(500) + Duration::from_micros(u64::from(kill) * 7_919_333 % 500_000));
        let at = now_ns();
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        let connection = Connection::open(own.join("results.db")).expect("a database");
        let text: String = connection.query_row("PRAGMA quick_check", [], |row| row.get(0)).expect("an answer");
        assert_eq!(text, "ok");
        assert!(!connection.prepare("PRAGMA foreign_key_check").expect("a pragma").exists([]).expect("an answer"));
        let last: i64 =
            connection.query_row("SELECT max(\"end\") FROM rocpd_region", [], |row| row.get(0)).expect("rows");
        lost.push((at - last) / 1_000_000);
        drop(connection);
        std::fs::remove_dir_all(&own).expect("our own folder");
    }
    lost.sort_unstable();
    let (median, largest) = (lost[lost.len() / 2], lost[lost.len() - 1]);
    println!(
        "{KILLS} kills, flush every {KILL_INTERVAL:?}: all whole; lost before the kill: median {median} ms, largest {largest} ms"
    );
}

fn record_until_killed(folder: &Path) -> ! {
    let own = Settings { output: folder.join("results.db"), flush_interval: KILL_INTERVAL, ..Settings::default() };
    let (_writer, thread, region) = opened(own);
    loop {
        let now = now_ns();
        thread.region(Region { start_ns: now, end_ns: now, ..region.clone() });
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn full(folder: &Path) {
    let place = folder.join("small");
    std::fs::create_dir(&place).expect("a folder");
    let name = place.to_str().expect("a plain name");
    run("mount", &["-t", "tmpfs", "-o", "size=64m", "none", name]);
    let ballast = place.join("ballast");
    std::fs::write(&ballast, vec![1; 48 << 20]).expect("room");
    let own = Settings { output: place.join("%pid%.db"), buffer_events: 1 << 13, ..Settings::default() };
    let (writer, thread, region) = opened(own);
    let mut calls = Calls::default();
    while writer.dropped() == 0 {
        calls.go_on(&thread, &region, Duration::from_millis(100));
    }
    calls.say("until the disk is full");
    calls.go_on(&thread, &region, SECONDS);
    calls.say("full disk");
    std::fs::remove_file(&ballast).expect("our own file");
    calls.go_on(&thread, &region, Duration::from_secs(1));
    calls.say("room again");
    let report = writer.finish().expect("a report");
    calls.check(&report);
    run("umount", &[name]);
}

/// With `until_end` the file system is still frozen when the writer is told to end.
fn frozen(folder: &Path, until_end: bool) {
    let (image, place) = (folder.join(format!("image{until_end}")), folder.join(format!("frozen{until_end}")));
    std::fs::create_dir(&place).expect("a folder");
    let (file, name) = (image.to_str().expect("a plain name"), place.to_str().expect("a plain name"));
    run("truncate", &["-s", "512M", file]);
    run("mkfs.ext4", &["-q", file]);
    run("mount", &["-o", "loop", file, name]);
    let finish_timeout = Duration::from_secs(if until_end { 1 } else { 30 });
    let own = Settings { output: place.join("%pid%.db"), finish_timeout, ..Settings::default() };
    let (writer, thread, region) = opened(own);
    let path = writer.path().to_owned();
    let mut calls = Calls::default();
    calls.go_on(&thread, &region, Duration::from_secs(2));
    calls.say("before the freeze");
    run("fsfreeze", &["-f", name]);
    calls.go_on(&thread, &region, SECONDS);
    calls.say("frozen file system");
    println!("  dropped so far {}", writer.dropped());
    if until_end {
        let start = Instant::now();
        let error = writer.finish().expect_err("it does not answer");
        println!("  finish gave up after {:?}: {error}", start.elapsed());
        let Error::Stalled { committed, open, dropped, .. } = error else { panic!("{error}") };
        run("fsfreeze", &["-u", name]);
        // The writer's thread goes on when it can; the file has all that was not dropped in the
        // end.
        std::thread::sleep(Duration::from_secs(3));
        let connection = Connection::open(&path).expect("a database");
        let rows: i64 = connection.query_row("SELECT count(*) FROM rocpd_region", [], |row| row.get(0)).expect("rows");
        println!("  recorded {}, in the file once it answers {rows}", calls.recorded);
        assert_eq!(rows as u64, committed + open, "what it said may come into the file has come");
        assert_eq!(committed + open + dropped, calls.recorded);
    } else {
        run("fsfreeze", &["-u", name]);
        calls.go_on(&thread, &region, Duration::from_secs(1));
        calls.say("after the freeze");
        calls.check(&writer.finish().expect("a report"));
    }
    drop(thread);
    run("umount", &[name]);
}
