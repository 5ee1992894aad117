//! A ThreadSanitizer test in which threads record while sessions start and end, are read, adopt
//! threads and are streamed, and while observers come and go.
//!
//! `cargo xtask races` builds it with the sanitizer, and once more with memory orderings removed
//! (`--cfg probe_sync_planted`), which must be detected. Without the sanitizer it is a short
//! version of the same test. It does not use the test harness, whose locks and channels are in the
//! uninstrumented standard library: threads communicate only by atomics and joins.
//!
//! It does not check the recorded events; `it` and `sessions` do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use probe_sync_record::observe::Observer;
use probe_sync_record::{Policy, Reach, Recorder, instant, scope};

/// Threads that record until they are told to stop.
fn recording(stop: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
    let body = |stop: Arc<AtomicBool>| {
        let mut n = 0_u64;
        while !stop.load(Ordering::Acquire) {
            let outer = scope!("outer", n = n);
            drop(scope!("inner", text = "some text"));
            instant!("moment", n = n);
            drop(outer);
            n += 1;
        }
    };
    (0..3).map(|_| Arc::clone(stop)).map(|stop| std::thread::spawn(move || body(stop))).collect()
}

fn joined(stop: &AtomicBool, threads: Vec<JoinHandle<()>>) {
    stop.store(true, Ordering::Release);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

fn policies() -> [Policy; 3] {
    let bytes = 1 << 20;
    [Policy::DropNewest { bytes }, Policy::Flight { bytes }, Policy::Stream { bytes, every: Duration::from_millis(1) }]
}

/// Sessions begin, are read and end.
fn sessions() {
    let stop = Arc::new(AtomicBool::new(false));
    let threads = recording(&stop);
    let folder = tempfile::tempdir().expect("a temporary directory");
    for round in 0..ROUNDS {
        for (number, policy) in policies().into_iter().enumerate() {
            let path = folder.path().join(format!("{round}.{number}.rec"));
            let session = Recorder::builder().policy(policy).spill(path).start().expect("the one before has ended");
            std::thread::sleep(Duration::from_millis(1));
            drop(session.snapshot().expect("it goes on"));
            drop(session.finish().expect("whole"));
        }
    }
    joined(&stop, threads);
}

/// A thread's session is adopted by others, and ends while they record.
fn adopted() {
    for _ in 0..ROUNDS {
        let policy = Policy::DropNewest { bytes: 1 << 20 };
        let session = Recorder::builder().reach(Reach::Thread).policy(policy).start().expect("few");
        let stop = Arc::new(AtomicBool::new(false));
        let adopting = |adopter: probe_sync_record::Adopter, stop: Arc<AtomicBool>| {
            while !stop.load(Ordering::Acquire) {
                let _adopted = adopter.adopt();
                drop(scope!("adopted"));
            }
        };
        let start = |_| {
            let (adopter, stop) = (session.adopter(), Arc::clone(&stop));
            std::thread::spawn(move || adopting(adopter, stop))
        };
        let threads = (0..2).map(start).collect();
        std::thread::sleep(Duration::from_millis(1));
        drop(session);
        joined(&stop, threads);
    }
}

/// Observers are added and removed while threads call them. What they use is gone with them.
fn observers() {
    let stop = Arc::new(AtomicBool::new(false));
    let threads = recording(&stop);
    let calls = Arc::new(AtomicU64::new(0));
    for round in 0..10 * ROUNDS {
        let (calls, kept) = (Arc::clone(&calls), vec![round; 8]);
        let observer =
            Observer::new().on_enter(move |_| kept.iter().sum::<u64>() + calls.fetch_add(1, Ordering::Relaxed));
        let observing = observer.add().expect("few");
        std::thread::sleep(Duration::from_micros(100));
        drop(observing);
    }
    joined(&stop, threads);
    assert!(calls.load(Ordering::Relaxed) > 0, "threads were observed");
}

/// Threads that begin and end, in chunks that they leave to each other.
fn short_threads() {
    let session =
        Recorder::builder().policy(Policy::DropNewest { bytes: 1 << 20 }).start().expect("nothing else records");
    for _ in 0..ROUNDS {
        let short = |_| std::thread::spawn(|| (0..20_u64).for_each(|n| drop(scope!("short", n = n))));
        let threads: Vec<_> = (0..4).map(short).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
    drop(session.finish().expect("whole"));
}

fn main() {
    for part in [sessions, adopted, observers, short_threads] {
        part();
    }
    println!("test result: ok. 4 passed; 0 failed");
}

const ROUNDS: u64 = 20;
