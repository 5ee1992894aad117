//! Signal handlers record: what they make is recorded or counted, and what they interrupt is whole.
//! In processes of their own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use probe_sync_record::{Policy, Reach, Recorder, Recording, instant, scope};

use crate::child;
use crate::support::{Stopping, alone, tallies};

pub static HANDLED: AtomicU64 = AtomicU64::new(0);

/// What a handler records, one event each time.
pub extern "C" fn record(_: libc::c_int) {
    let count = HANDLED.fetch_add(1, Ordering::Relaxed);
    match count % 3 {
        0 => instant!("handler", bytes = count),
        1 => drop(scope!("handler")),
        _ => drop(scope!("handler", text = "some words of text", n = count)),
    }
}

fn handle(signal: libc::c_int) {
    handle_with(signal, record);
}

pub fn handle_with(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the structure is zero but for the handler, which is a function for one argument; only
    // its own atomics and the recorder are used in it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// An alarm of the process at this interval, µs; 0: none.
fn every(microseconds: i64) {
    let span = libc::timeval { tv_sec: 0, tv_usec: microseconds };
    let timer = libc::itimerval { it_interval: span, it_value: span };
    // SAFETY: the structure is read.
    assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) }, 0);
}

/// Events of handlers that are recorded or counted. None of this process's own are lost.
fn accounted(recording: &Recording) -> [u64; 3] {
    let threads = tallies(recording);
    let handlers = threads.values().filter_map(|tally| tally.names.get("handler")).sum();
    let status = recording.status();
    let interrupted = threads.values().map(|tally| tally.interrupted).sum::<u64>() + status.interrupted;
    [handlers, interrupted, threads.values().map(|tally| tally.lost).sum::<u64>() + status.lost.events]
}

fn work_for(span: Duration) -> u64 {
    let (deadline, mut n) = (Instant::now() + span, 0_u64);
    while Instant::now() < deadline {
        for _ in 0..200 {
            let outer = scope!("outer", bytes = n, text = "text");
            drop(scope!("work", n = n));
            drop(outer);
            n += 1;
        }
    }
    n
}

pub fn handlers() {
    let session = Recorder::builder().policy(Policy::DropNewest { bytes: 256 << 20 }).start().expect("a fresh process");
    handle(libc::SIGALRM);
    every(20);
    let others: Vec<_> = (0..2)
        .map(|thread| {
            let body = || work_for(Duration::from_millis(400));
            std::thread::Builder::new().name(format!("w{thread}")).spawn(body).expect("a thread")
        })
        .collect();
    let made: Vec<u64> = others.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    every(0);
    // One that is on its way comes while the session is still there.
    std::thread::sleep(Duration::from_millis(50));
    let (recording, handled) = (session.finish().expect("whole"), HANDLED.load(Ordering::Relaxed));
    let threads = tallies(&recording);
    let of = |name: &str| threads.values().filter_map(|tally| tally.names.get(name)).sum::<u64>();
    let own = of("work") + of("outer");
    let [recorded, interrupted, lost] = accounted(&recording);
    eprintln!("handlers: {handled}, recorded {recorded}, interrupted {interrupted}, lost {lost}");
    assert_eq!(own + recorded + interrupted + lost, 2 * made.iter().sum::<u64>() + handled);
    assert!(interrupted > 0 && recorded > 0, "{recorded} {interrupted}");
}

pub fn first_event_in_a_handler() {
    let session = Recorder::builder().threads(4).start().expect("a fresh process");
    handle(libc::SIGUSR1);
    const THREADS: u64 = 2000;
    for _ in 0..THREADS {
        let body = || {
            // SAFETY: a signal to this thread.
            unsafe { libc::raise(libc::SIGUSR1) };
            drop(scope!("after"));
        };
        std::thread::Builder::new().name("first".into()).spawn(body).expect("a thread").join().expect("no panic");
    }
    assert_eq!(session.counts().threads, 0, "slots come back");
    let recording = session.finish().expect("whole");
    let tally = &tallies(&recording)["first"];
    assert_eq!((tally.names["handler"], tally.names["after"], tally.interrupted), (THREADS, THREADS, 0));
}

pub fn handlers_while_sessions_start_and_stop() {
    handle(libc::SIGALRM);
    every(50);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let _stopping = Stopping(&stop);
        for _ in 0..2 {
            threads.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let policy = Policy::DropNewest { bytes: 512 << 10 };
                    let builder = Recorder::builder().reach(Reach::Thread).policy(policy).threads(2);
                    let session = builder.start().expect("few sessions");
                    let around = scope!("around");
                    around.argument_named("key", &1);
                    drop(around);
                    let threads = tallies(&session.finish().expect("whole"));
                    assert_eq!(threads.values().next().and_then(|tally| tally.names.get("around")), Some(&1));
                }
            });
        }
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            let session = Recorder::builder().policy(Policy::Flight { bytes: 1 << 20 }).start().expect("the only one");
            drop(scope!("here"));
            session.pause().expect("own");
            session.resume().expect("own");
            drop(tallies(&session.finish().expect("whole")));
        }
    });
    every(0);
}

pub fn handlers_while_threads_end() {
    let session = Recorder::builder().policy(Policy::DropNewest { bytes: 256 << 20 }).start().expect("a fresh process");
    handle(libc::SIGALRM);
    every(20);
    let deadline = Instant::now() + Duration::from_secs(2);
    let mut made = 0;
    while Instant::now() < deadline {
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| (0..20_u64).for_each(|n| drop(scope!("work", n = n))));
            }
        });
        made += 80;
    }
    every(0);
    // One that is on its way comes while the session is still there.
    std::thread::sleep(Duration::from_millis(50));
    let (recording, handled) = (session.finish().expect("whole"), HANDLED.load(Ordering::Relaxed));
    let [recorded, interrupted, lost] = accounted(&recording);
    eprintln!("ending: {handled} handlers, recorded {recorded}, interrupted {interrupted}, lost {lost}");
    assert_eq!(recorded + interrupted + lost, handled);
    let work: u64 = tallies(&recording).values().filter_map(|tally| tally.names.get("work")).sum();
    assert_eq!(work, made);
}

fn check(task: &str) {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a temporary directory");
    child::succeeds(task, folder.path());
}

#[test]
fn what_handlers_record_is_there_or_counted() {
    check("handlers");
}

#[test]
fn the_first_event_of_a_thread_may_be_a_handlers() {
    check("first");
}

#[test]
fn handlers_come_while_sessions_start_and_stop() {
    check("starts");
}

#[test]
fn handlers_come_while_threads_end() {
    check("ending");
}
