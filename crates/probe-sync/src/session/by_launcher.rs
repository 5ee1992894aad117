//! A session whose ranks communicate through the launcher's own messages, and which thread moves
//! them when.
//!
//! If any thread may call the launcher's library (`MPI_THREAD_MULTIPLE`), the session's thread
//! moves the messages and this module has nothing to do. Otherwise the launcher calls
//! `SessionHandle::step` between its own calls, and messages move only there; probing continues all
//! the time, in threads that never call the library.
//!
//! It does not end the launcher's job: a failure is a state, which is reported to the other ranks.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use probe_sync_collective::{ByMessages, Carrier, Messages, by_messages};

use crate::Error;

/// What moves a session's messages on the launcher's thread.
#[derive(Debug)]
pub(super) struct Steps {
    carrier: Mutex<Carrier>,
    made_on: ThreadId,
}

/// The rank's end of the group, and what moves its messages where the session's own thread may not.
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
    /// As [`Carrier::step`].
    pub fn step(&self, budget: Duration) -> Result<(), Error> {
        Ok(self.carrier().step(budget)?)
    }

    /// Whether this is the launcher's thread that moves the messages: while it waits for the
    /// session it moves what is waited for. Another thread waits, and the launcher steps.
    pub fn made_here(&self) -> bool {
        self.made_on == thread::current().id()
    }

    /// Moves messages until the session's thread has ended and all that it had to say is on its
    /// way.
    ///
    /// # Errors
    /// On a thread that may not call the launcher's library: then nobody moves anything any more.
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

    /// Gives back what the launcher's library lent; all ranks have ended in order.
    pub fn release(self) -> Result<(), Error> {
        Ok(self.carrier.into_inner().unwrap_or_else(PoisonError::into_inner).release()?)
    }

    /// Tells the others that this rank's launcher has let go of its session, and lets its thread
    /// wait no more. On another thread than the one that gave the messages nobody knows whether the
    /// library may be called just now: there the others learn it from a deadline.
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

/// How much longer a rank that was asked to stop waits for the others: their messages move when
/// their launchers step.
const GRACE: Duration = Duration::from_secs(10);

/// How long messages are moved at a time while the launcher waits for the session.
pub(super) const TURN: Duration = Duration::from_millis(1);

/// Between two looks for messages while nothing else is done.
pub(super) const PAUSE: Duration = Duration::from_micros(200);

/// How long the last messages may take; they are small, and on their way at once.
const FAREWELL_LIMIT: Duration = Duration::from_millis(200);
