//! The memory use of a session, and whether every event is recorded or counted, both at full speed
//! and at a steady pace.
//!
//! `--memory` and `--stream` run separately from the time measurements. Each policy runs in its own
//! process, because peak resident memory is a property of a process. The recording is read back and
//! counted. It does not fail when a target is missed; its line reports it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use probe_sync_record::read::What;
use probe_sync_record::{Policy, Recorder, Recording, scope};

/// 10^8 scopes on two threads, then 10^4 threads of 100, under each policy.
///
/// # Errors
/// A process of them fails.
pub fn every_policy() -> Result<()> {
    for policy in ["drop_newest", "flight", "stream"] {
        let own = std::env::current_exe().context("this program's own path")?;
        let status = Command::new(own).args(["--memory-of", policy]).status().context("starting this program again")?;
        ensure!(status.success(), "{policy}: {status}");
    }
    Ok(())
}

/// The same under one policy, in this process.
///
/// # Errors
/// There is no such policy, or its recording cannot be read.
pub fn one_policy(name: &str) -> Result<()> {
    let bytes = LIMIT as usize;
    let policy = match name {
        "drop_newest" => Policy::DropNewest { bytes },
        "flight" => Policy::Flight { bytes },
        "stream" => Policy::Stream { bytes, every: EVERY },
        _ => anyhow::bail!("there are drop_newest, flight and stream, and no {name}"),
    };
    let folder = Folder::new()?;
    let before = most_resident()?;
    let session = Recorder::builder().policy(policy).spill(folder.0.join("memory.rec")).start()?;
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| (0..LONG).for_each(|n| drop(scope!("work", n = n))));
        }
    });
    for _ in 0..THREADS {
        std::thread::scope(|threads| drop(threads.spawn(|| (0..SHORT).for_each(|n| drop(scope!("work", n = n))))));
    }
    let most = most_resident()?;
    let sums = sums(&session.finish()?)?;
    let (emitted, told) = (2 * LONG + THREADS * SHORT, sums.iter().sum::<u64>());
    let is_well = most <= LIMIT + (16 << 20) && told == emitted;
    let [recorded, lost, replaced] = sums;
    println!(
        "{name:12} {:6.1} MiB resident at most ({:.1} before), limit {} MiB; {recorded} recorded + {lost} lost + {replaced} replaced = {told} of {emitted}: {}",
        mib(most),
        mib(before),
        LIMIT >> 20,
        if is_well { "as asked" } else { "MISSED" },
    );
    Ok(())
}

/// A steady 2·10^6 scopes per second from two threads, streamed for this long.
///
/// # Errors
/// The recording cannot be made or read.
pub fn steady_stream(span: Duration) -> Result<()> {
    let folder = Folder::new()?;
    let policy = Policy::Stream { bytes: LIMIT as usize, every: EVERY };
    let session = Recorder::builder().policy(policy).spill(folder.0.join("stream.rec")).start()?;
    let begun = Instant::now();
    let pieces = (span.as_secs_f64() / PIECE.as_secs_f64()) as u32;
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                for piece in 0..pieces {
                    (0..PIECE_SCOPES).for_each(|n| drop(scope!("work", n = n)));
                    // Late pieces follow at once.
                    std::thread::sleep((PIECE * (piece + 1)).saturating_sub(begun.elapsed()));
                }
            });
        }
    });
    let took = begun.elapsed().as_secs_f64();
    let most = most_resident()?;
    let [recorded, lost, replaced] = sums(&session.finish()?)?;
    let emitted = 2 * u64::from(pieces) * PIECE_SCOPES;
    println!(
        "stream       {:.2} million scopes/s for {took:.1} s, {:.1} MiB resident at most; {recorded} recorded + {lost} lost of {emitted}: {}",
        emitted as f64 / took / 1e6,
        mib(most),
        if lost + replaced == 0 && recorded == emitted { "as asked" } else { "MISSED" },
    );
    Ok(())
}

/// Events that are there, those that were lost, and those that newer ones have replaced.
fn sums(recording: &Recording) -> Result<[u64; 3]> {
    let (mut recorded, status) = (0, recording.status());
    let mut lost = status.lost.events;
    for thread in recording.threads() {
        lost += thread.lost.events;
        recording.visit(thread.serial, |event| {
            recorded += u64::from(!matches!(event.what, What::Lost { .. }));
            Ok::<(), probe_sync_record::Error>(())
        })?;
    }
    Ok([recorded, lost, status.replaced])
}

fn most_resident() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the kernel says no VmHWM")?;
    Ok(1024 * line.trim().trim_end_matches("kB").trim().parse::<u64>()?)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A folder that is removed with all that is in it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("bench-record-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Nobody misses it.
        let _ = std::fs::remove_dir_all::<&Path>(&self.0);
    }
}

const LIMIT: u64 = 64 << 20;
const EVERY: Duration = Duration::from_millis(200);
/// Scopes of each of two threads.
const LONG: u64 = 50_000_000;
/// Threads that come and go, and scopes of each.
const THREADS: u64 = 10_000;
const SHORT: u64 = 100;
/// A thread records this many at this interval.
const PIECE: Duration = Duration::from_millis(1);
const PIECE_SCOPES: u64 = 1000;
