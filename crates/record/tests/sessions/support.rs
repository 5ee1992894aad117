//! How the tests of this process share its sessions, and what a recording holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use probe_sync_record::read::What;
use probe_sync_record::{Builder, Error, Policy, Reach, Recorder, Recording};

/// A test's share of the eight sessions that a process may have open at once.
///
/// Every test holds one, however many threads the harness runs: no test opens more than three
/// sessions at once, and there are two places.
pub struct Place(usize);

/// Waits for one place.
pub fn place() -> Place {
    take(1)
}

/// Waits until no other test has a session open.
pub fn every_place() -> Place {
    take(PLACES)
}

fn take(count: usize) -> Place {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut free = FREED.wait_while(free, |free| *free < count).unwrap_or_else(PoisonError::into_inner);
    *free -= count;
    Place(count)
}

impl Drop for Place {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        FREED.notify_all();
    }
}

const PLACES: usize = 2;
static FREE: Mutex<usize> = Mutex::new(PLACES);
static FREED: Condvar = Condvar::new();

/// Held by a test that records the whole process: there is one such session at a time.
pub fn whole_process() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells other threads to stop when it goes, also where its test fails: the scope of threads waits
/// for them.
pub struct Stopping<'a>(pub &'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A small session of this thread.
pub fn of_thread() -> Builder {
    Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 })
}

/// Names and depths of all events, thread by thread in the order of their ends.
pub fn names(recording: &Recording) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for thread in recording.threads() {
        let take = |event: &probe_sync_record::read::Event<'_>| {
            if !matches!(event.what, What::Lost { .. }) {
                found.push((event.name().to_owned(), event.depth));
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
    }
    found
}

/// As of [`names`].
pub fn expected(names: &[(&str, u32)]) -> Vec<(String, u32)> {
    names.iter().map(|(name, depth)| ((*name).to_owned(), *depth)).collect()
}

/// Scopes as start, end and id, by thread.
pub fn scopes(recording: &Recording) -> Vec<(u32, u64, u64, u64)> {
    let mut found = Vec::new();
    for thread in recording.threads() {
        let take = |event: &probe_sync_record::read::Event<'_>| {
            if let What::Scope { start, end, id, .. } = event.what {
                found.push((thread.serial, start, end, id));
            }
            Ok::<(), Error>(())
        };
        recording.visit(thread.serial, take).expect("sound");
    }
    found
}
