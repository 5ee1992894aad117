//! The rocpd writer against Python's `executemany`: rows per second, and what an event costs its
//! caller.
//!
//! `cargo bench -p probe-sync-rocpd --bench rocpd_writer [-- FOLDER]`; FOLDER defaults to /dev/shm.
//! Each round runs `bench/rocpd_executemany.py` and the writer one after the other, on the same
//! rows, and prints both; then the calls are timed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use probe_sync_rocpd::writer::{Process, Region, Report, Settings, ThreadRecorder, Writer};

const EVENTS: usize = 400_000;
const ROUNDS: usize = 5;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let folder = PathBuf::from(arguments.next().unwrap_or_else(|| "/dev/shm".to_owned()));
    let folder = folder.join(format!("rocpd_writer.{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    if Command::new("python3").arg("--version").output().is_ok() {
        let mut ratios: Vec<f64> = (0..ROUNDS).map(|_| peer_and_ours(&folder)).collect();
        ratios.sort_by(f64::total_cmp);
        println!("ours / executemany: median {:.2}, {:.2} to {:.2}", ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]);
    } else {
        println!("skipped: no python3 to compare with");
    }
    for (name, gap) in [("as fast as it goes", Duration::ZERO), ("every 10 us", Duration::from_micros(10))] {
        calls(&folder, name, gap);
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

/// One round; the ratio of the rates.
fn peer_and_ours(folder: &Path) -> f64 {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/rocpd_executemany.py");
    let file = folder.join("peer.db");
    let output = Command::new("python3").arg(script).arg(&file).arg(EVENTS.to_string()).output().expect("python3");
    let peer: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a rate");
    std::fs::remove_file(&file).expect("the peer's file");

    let (writer, thread, region) = opened(folder);
    let start = Instant::now();
    for at in 0..EVENTS as i64 {
        while !thread.region(Region { start_ns: at * 1000, end_ns: at * 1000 + 500, ..region.clone() }) {
            // Sleeping, since the machine has few cores and the writer needs one.
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    let report = finished(writer);
    let ours = report.rows as f64 / start.elapsed().as_secs_f64();
    println!("executemany {peer:.0} rows/s, writer {ours:.0} rows/s, {} commits, {:.2}", report.commits, ours / peer);
    ours / peer
}

/// What a call costs, with `gap` between them.
fn calls(folder: &Path, name: &str, gap: Duration) {
    let (writer, thread, region) = opened(folder);
    let mut took: Vec<Duration> = Vec::with_capacity(EVENTS);
    let begin = Instant::now();
    let mut next = begin;
    for at in 0..EVENTS as i64 {
        while Instant::now() < next {
            std::hint::spin_loop();
        }
        let event = Region { start_ns: at, end_ns: at + 1, ..region.clone() };
        let start = Instant::now();
        thread.region(event);
        took.push(start.elapsed());
        next = begin + gap * (at as u32 + 1);
        if begin.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    let report = finished(writer);
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_nanos();
    println!(
        "calls {name}: p50 {} ns, p99 {} ns, p99.9 {} ns, largest {} ns; {} events, {} dropped",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        report.events,
        report.dropped
    );
}

fn opened(folder: &Path) -> (Writer, ThreadRecorder, Region) {
    let settings = Settings { output: folder.join("%pid%_results.db"), ..Settings::default() };
    let writer = Writer::open(settings, Process::current()).expect("a database");
    let (name, category) = (writer.intern("step"), writer.intern("MARKER_RANGE"));
    let thread = writer.thread(1, Some("main"));
    (writer, thread, Region { name, category, ..Region::default() })
}

fn finished(writer: Writer) -> Report {
    let report = writer.finish().expect("a report");
    assert!(report.stands_alone, "{report:?}");
    std::fs::remove_file(&report.path).expect("the file");
    report
}
