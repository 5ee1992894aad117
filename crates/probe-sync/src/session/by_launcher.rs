//! A session whose ranks communicate through the launcher's own messages, and which thread moves
//! them when.
//!
//! If any thread may call the launcher's library (`MPI_THREAD_MULTIPLE`), the session's thread
//! moves the messages and this module has nothing to do. Otherwise the launcher calls
//! `Session::step` between its own calls, and messages move only there; probing continues all
//! the time, in threads that never call the library.
//!
//! It does not end the launcher's job: a failure is a state, which is reported to the other ranks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use probe_sync_collective::{ByMessages, Carrier, Messages, by_messages};

use crate::Error;

/// Moves a session's messages on the launcher's thread.
#[derive(Debug)]
pub(super) struct Steps {
    carrier: Mutex<Carrier>,
    made_on: ThreadId,
}

/// Returns the rank's end of the group, and what moves its messages if the session's own thread may
/// not.
pub(super) fn group(messages: Box<dyn Messages>) -> (ByMessages, Option<Steps>) {
    let (group, carrier) = by_messages(messages);
    if carrier.any_thread() {
        return (group.carried_by(carrier), None);
    }
    (group.with_grace(GRACE), Some(Steps { carrier: Mutex::new(carrier), made_on: thread::current().id() }))
}

impl Steps {
    /// Moves what can be moved now, for at most `budget`.
    ///
    /// # Errors
    /// Errors of [`Carrier::step`].
    pub fn step(&self, budget: Duration) -> Result<(), Error> {
        Ok(self.carrier().step(budget)?)
    }

    /// Returns true on the launcher's thread that moves the messages: while it waits for the
    /// session, it moves the messages it waits for. Another thread only waits, and the launcher
    /// steps.
    pub fn made_here(&self) -> bool {
        self.made_on == thread::current().id()
    }

    /// Moves messages until the session's thread has ended and everything it sent is on its way.
    ///
    /// # Errors
    /// Returns an error on a thread that may not call the launcher's library, since nothing moves
    /// messages then.
    pub fn until_ended<T>(&self, thread: &JoinHandle<T>) -> Result<(), Error> {
        let mut carrier = self.carrier();
        while !thread.is_finished() {
            if let Err(error) = carrier.step(TURN) {
                // After this nothing moves, and the thread ends by itself.
                carrier.end(&error.to_string(), Duration::ZERO);
                return Err(error.into());
            }
            thread::sleep(PAUSE);
        }
        Ok(carrier.flush(FAREWELL_LIMIT)?)
    }

    /// Returns the resources of the launcher's library, after all ranks have ended normally.
    pub fn release(self) -> Result<(), Error> {
        Ok(self.carrier.into_inner().unwrap_or_else(PoisonError::into_inner).release()?)
    }

    /// Tells the others that this rank's launcher has dropped its session, and releases its thread.
    /// On another thread than the one that provided the messages it is unknown whether the library
    /// may be called; in that case the others notice by a deadline.
    pub fn let_go(&self) {
        if self.made_here() {
            self.end(LET_GO);
        } else {
            self.carrier().break_off(LET_GO);
        }
    }

    /// Tells the others why this rank ends.
    pub fn end(&self, reason: &str) {
        self.carrier().end(reason, FAREWELL_LIMIT);
    }

    fn carrier(&self) -> MutexGuard<'_, Carrier> {
        self.carrier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LET_GO: &str = "its launcher dropped the session without calling stop(), which every rank must call";

/// Additional time for which a rank that was asked to stop waits for the others: their messages
/// move when their launchers step.
const GRACE: Duration = Duration::from_secs(10);

/// Time slice for moving messages while the launcher waits for the session.
pub(super) const TURN: Duration = Duration::from_millis(1);

/// Time between two checks for messages while nothing else happens.
pub(super) const PAUSE: Duration = Duration::from_micros(200);

/// Longest time for the last messages, which are small and sent at once.
const FAREWELL_LIMIT: Duration = Duration::from_millis(200);
