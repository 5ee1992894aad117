//! An observer as threads see it, and the list of all observers.
//!
//! A thread first announces a call and then checks whether the observer is enabled, so the code
//! that disables it either prevents the call or sees it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::memory::order::Visitors;
use crate::site::Site;
use crate::value::ArgumentValue;

/// A scope as seen by an observer.
#[derive(Debug)]
pub struct Observed<'a> {
    pub(crate) site: &'static Site,
    pub(crate) id: u64,
    pub(crate) unfinished: bool,
    pub(crate) arguments: &'a [(String, ArgumentValue)],
}

impl Observed<'_> {
    /// Returns the site: name, kind, file and line.
    pub fn site(&self) -> &'static Site {
        self.site
    }

    /// Returns the id used in recordings.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// On leaving: returns true if the scope did not end itself and was closed with the enclosing
    /// one.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Returns its arguments so far, if the observer requested them; those behind `||` are
    /// available on leaving.
    pub fn arguments(&self) -> &[(String, ArgumentValue)] {
        self.arguments
    }
}

/// Called before a scope begins; the result is passed to the other callback.
pub(crate) type Enter = dyn Fn(&Observed<'_>) -> u64 + Send + Sync;
/// Called after a scope has ended.
pub(crate) type Leave = dyn Fn(&Observed<'_>, u64) + Send + Sync;

/// One observer.
pub(crate) struct Watch {
    /// Number of the observer, unique among a process and its ancestors.
    pub number: u64,
    /// Serial number of its thread; `None`: all threads.
    pub serial: Option<u32>,
    /// Bit set of kinds.
    pub kinds: u32,
    /// It is called for one in this many scopes of a thread.
    pub every: u32,
    /// True if it receives arguments.
    pub arguments: bool,
    pub enter: Option<Box<Enter>>,
    pub leave: Option<Box<Leave>>,
    pub on: AtomicBool,
    /// Calls in progress.
    pub running: Visitors,
    pub calls: AtomicU64,
    pub panics: AtomicU64,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Watch").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Watch {
    /// Returns true if it observes scopes of these bits on this thread.
    pub fn wants(&self, bit: u32, serial: u32) -> bool {
        self.kinds & bit != 0 && self.is_for(serial) && self.on.load(Ordering::Relaxed)
    }

    /// Returns true if it observes this thread.
    pub fn is_for(&self, serial: u32) -> bool {
        self.serial.is_none_or(|own| own == serial)
    }

    /// Calls it, unless it is switched off. One that panics is switched off and counted.
    pub fn call<R>(&self, callback: impl FnOnce() -> R) -> Option<R> {
        let call = || {
            self.calls.fetch_add(1, Ordering::Relaxed);
            catch_unwind(AssertUnwindSafe(callback)).map_err(|payload| {
                self.on.store(false, Ordering::SeqCst);
                self.panics.fetch_add(1, Ordering::Relaxed);
                // Dropping what it panicked with may panic again.
                std::mem::forget(payload);
            })
        };
        self.running.visit(|| self.on.load(Ordering::SeqCst).then(call))?.ok()
    }

    /// Prevents further calls.
    pub fn switch_off(&self) {
        self.on.store(false, Ordering::SeqCst);
    }

    /// Waits until no call is in progress; returns false if one does not end.
    pub fn wait(&self) -> bool {
        let deadline = Instant::now() + CALLS_LIMIT;
        while !self.running.is_empty() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(CALLS_POLL);
        }
        true
    }
}

/// All observers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watches(pub Vec<Arc<Watch>>);

/// Most observers at a time.
pub(crate) const WATCHES_MAX: usize = 8;
/// Longest wait for calls in progress.
const CALLS_LIMIT: Duration = Duration::from_secs(10);
const CALLS_POLL: Duration = Duration::from_micros(20);
