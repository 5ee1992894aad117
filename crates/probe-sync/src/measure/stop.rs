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
    /// Not raised by the session; the caller's flag may be.
    pub fn new(caller: &Arc<AtomicBool>) -> Self {
        Self { caller: Arc::clone(caller), own: AtomicBool::new(false) }
    }

    /// The session ends the run.
    pub fn raise(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// Whether anybody on this rank ends the run.
    pub fn raised(&self) -> bool {
        self.own.load(Ordering::Relaxed) || self.caller.load(Ordering::Relaxed)
    }

    /// Sleeps for so long, or until it is raised.
    pub fn sleep(&self, span: Duration) {
        let nap = |span| {
            std::thread::sleep(span);
            Ok::<_, Infallible>(())
        };
        let Ok(()) = self.wait(span, nap);
    }

    /// Waits for so long, or until it is raised, in pieces that `nap` waits.
    ///
    /// # Errors
    /// What `nap` ends the wait with.
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

    /// The caller's flag, for waits that a signal shortens.
    pub fn of_caller(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.caller)
    }
}

/// How soon a flag is seen that another thread has raised; one that a signal's handler raises is
/// seen at once.
const STOP_POLL: StdDuration = StdDuration::from_millis(500);
