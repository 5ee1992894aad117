//! The events that end a run early: its caller's flag, or the session itself.
//!
//! Code that waits for the end of a window checks it. The session never raises the caller's flag,
//! because the caller's next session would then end as soon as it begins.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use probe_sync_time::Duration;

/// Whether this rank was asked to end the run.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    caller: Arc<AtomicBool>,
    own: AtomicBool,
}

impl Stop {
    /// Creates a flag that the session has not raised; the caller's may be.
    pub fn new(caller: &Arc<AtomicBool>) -> Self {
        Self { caller: Arc::clone(caller), own: AtomicBool::new(false) }
    }

    /// Ends the run, on behalf of the session.
    pub fn raise(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// Returns true if the session or the caller ends the run on this rank.
    pub fn raised(&self) -> bool {
        self.own.load(Ordering::Relaxed) || self.caller.load(Ordering::Relaxed)
    }

    /// Sleeps for `span`, or until it is raised.
    pub fn sleep(&self, span: Duration) {
        let nap = |span| {
            std::thread::sleep(span);
            Ok::<_, Infallible>(())
        };
        let Ok(()) = self.wait(span, nap);
    }

    /// Waits for `span`, or until it is raised, in pieces during which `nap` waits.
    ///
    /// # Errors
    /// Returns the error with which `nap` ends the wait.
    pub fn wait<E>(&self, span: Duration, mut nap: impl FnMut(StdDuration) -> Result<(), E>) -> Result<(), E> {
        let deadline = Instant::now() + span.to_std();
        while !self.raised() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            nap(left.min(STOP_POLL))?;
        }
        Ok(())
    }

    /// Returns the caller's flag, for waits that a signal cuts short.
    pub fn of_caller(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.caller)
    }
}

/// Poll interval for a flag raised by another thread; one raised by a signal handler is noticed at
/// once.
const STOP_POLL: StdDuration = StdDuration::from_millis(500);
