//! Memory stays what was asked for, however much is recorded and however many threads come and go;
//! what was made is recorded or counted, exactly.
//!
//! In processes of their own: what others leave behind counts, too. `bench/record -- --memory` does
//! the same with 10^8 scopes and 64 MiB.

use std::path::Path;
use std::time::Duration;

use probe_sync_record::{Policy, Recorder, scope};

use crate::child;
use crate::support::{alone, most_resident, sums};

fn work(count: u64) {
    for n in 0..count {
        drop(scope!("work", n = n));
    }
}

/// Runs in the child.
pub fn stays(policy: &str, folder: &Path) {
    let policy = match policy {
        "drop_newest" => Policy::DropNewest { bytes: LIMIT as usize },
        "flight" => Policy::Flight { bytes: LIMIT as usize },
        _ => Policy::Stream { bytes: LIMIT as usize, every: Duration::from_millis(20) },
    };
    let before = most_resident();
    let session = Recorder::builder().policy(policy).spill(folder.join("large.rec")).start().expect("a fresh process");
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| work(LONG));
        }
    });
    for _ in 0..THREADS / 4 {
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| work(SHORT));
            }
        });
    }
    let most = most_resident();
    let [recorded, lost, replaced] = sums(&session.finish().expect("whole"));
    eprintln!("{policy:?}: {} MiB at most; {recorded} recorded, {lost} lost, {replaced} replaced", most >> 20);
    assert!(most <= before + LIMIT + (16 << 20), "{policy:?}: {before} before, {most} at most");
    assert_eq!(recorded + lost + replaced, 2 * LONG + THREADS * SHORT, "{policy:?}");
}

fn check(policy: &str) {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    child::succeeds(&format!("memory {policy}"), folder.path());
}

#[test]
fn memory_stays_where_the_newest_are_dropped() {
    check("drop_newest");
}

#[test]
fn memory_stays_where_the_oldest_are_replaced() {
    check("flight");
}

#[test]
fn memory_stays_where_all_is_streamed() {
    check("stream");
}

const LIMIT: u64 = 8 << 20;
/// Scopes of each of two threads.
const LONG: u64 = 1_000_000;
/// Threads that come and go, and scopes of each.
const THREADS: u64 = 2000;
const SHORT: u64 = 100;
