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

/// A scope, as an observer is shown it.
#[derive(Debug)]
pub struct Observed<'a> {
    pub(crate) site: &'static Site,
    pub(crate) id: u64,
    pub(crate) unfinished: bool,
    pub(crate) arguments: &'a [(String, ArgumentValue)],
}

impl Observed<'_> {
    /// The place in the program: name, kind, file and line.
    pub fn site(&self) -> &'static Site {
        self.site
    }

    /// The id that recordings know it by.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Where it leaves: it never ended itself, and is closed with the scope around it.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }

    /// Its arguments so far, where the observer asked for them; those behind `||` are there when it
    /// leaves.
    pub fn arguments(&self) -> &[(String, ArgumentValue)] {
        self.arguments
    }
}

/// Called before a scope begins; what it gives back is handed to the other.
pub(crate) type Enter = dyn Fn(&Observed<'_>) -> u64 + Send + Sync;
/// Called after a scope has ended.
pub(crate) type Leave = dyn Fn(&Observed<'_>, u64) + Send + Sync;

/// One observer.
pub(crate) struct Watch {
    /// No two observers of a process and its ancestors have one number.
    pub number: u64,
    /// Its thread, by serial number; None: all.
    pub serial: Option<u32>,
    /// Bits of kinds.
    pub kinds: u32,
    /// Of so many scopes of a thread it is called for one.
    pub every: u32,
    /// Whether it is shown arguments.
    pub arguments: bool,
    pub enter: Option<Box<Enter>>,
    pub leave: Option<Box<Leave>>,
    pub on: AtomicBool,
    /// Calls that are under way.
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
    /// Whether it is for scopes of these bits of this thread.
    pub fn wants(&self, bit: u32, serial: u32) -> bool {
        self.kinds & bit != 0 && self.is_for(serial) && self.on.load(Ordering::Relaxed)
    }

    /// Whether a thread is within its reach.
    pub fn is_for(&self, serial: u32) -> bool {
        self.serial.is_none_or(|own| own == serial)
    }

    /// Calls it, if it is not switched off. One that panics is switched off and counted.
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

    /// No call begins any more.
    pub fn switch_off(&self) {
        self.on.store(false, Ordering::SeqCst);
    }

    /// Waits until no call is under way; false where one stays.
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

/// Observers at once.
pub(crate) const WATCHES_MAX: usize = 8;
/// How long calls that are under way are waited for.
const CALLS_LIMIT: Duration = Duration::from_secs(10);
const CALLS_POLL: Duration = Duration::from_micros(20);
