//! Moves a rank's messages, a little on each call.
//!
//! The launcher's thread calls it between its own MPI calls, or the session's thread does if any
//! thread may.

use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::mailbox::Mailbox;
use super::way::{Messages, Threads};
use crate::Error;

/// Moves the messages of one rank.
#[derive(Debug)]
pub struct Carrier {
    messages: Box<dyn Messages>,
    mailbox: Arc<Mailbox>,
    made_on: ThreadId,
}

impl Carrier {
    pub(super) fn new(messages: Box<dyn Messages>, mailbox: Arc<Mailbox>) -> Self {
        Self { messages, mailbox, made_on: thread::current().id() }
    }

    /// Returns true if any thread may move messages at any time.
    pub fn any_thread(&self) -> bool {
        self.messages.threads() == Threads::Any
    }

    /// Returns true if this thread created it, and so may move messages whatever the launcher's
    /// other threads do.
    pub fn made_here(&self) -> bool {
        self.made_on == thread::current().id()
    }

    /// Moves what can be moved now, for at most `budget` plus one message. It waits for no other
    /// rank, and makes no calls if nothing is to be sent, no thread waits, and no messages were
    /// requested ([`crate::Collective::calls`]) since it last found none. An error breaks the
    /// group, and waiting threads receive it too.
    ///
    /// # Errors
    /// [`Error::Setup`] on a thread that may not call it; otherwise errors of [`Messages`].
    pub fn step(&mut self, budget: Duration) -> Result<(), Error> {
        // Some libraries look at the network at every eighth call only.
        self.turns(budget, IDLE_TURNS)
    }

    /// Works like [`Carrier::step`], for repeated calls: it ends as soon as nothing has arrived.
    ///
    /// # Errors
    /// Errors of [`Carrier::step`].
    pub(super) fn look(&mut self, budget: Duration) -> Result<(), Error> {
        self.turns(budget, 1)
    }

    fn turns(&mut self, budget: Duration, idle_turns: u32) -> Result<(), Error> {
        self.check_thread()?;
        let started = Instant::now();
        self.mailbox.open().moved = started;
        let mut idle = 0;
        while self.is_wanted() {
            match self.turn() {
                Ok(true) => idle = 0,
                Ok(false) => idle += 1,
                Err(error) => {
                    self.mailbox.broken(error.to_string());
                    return Err(error);
                }
            }
            if idle >= idle_turns {
                // Who has asked for words finds in the mailbox what there is.
                self.mailbox.open().asked = false;
                break;
            }
            if started.elapsed() >= budget {
                break;
            }
        }
        Ok(())
    }

    /// Moves messages until everything sent is on its way, at most for `limit`.
    ///
    /// # Errors
    /// Errors of [`Carrier::step`].
    pub fn flush(&mut self, limit: Duration) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            self.step(limit.saturating_sub(started.elapsed()))?;
            if !self.mailbox.open().has_outgoing() && !self.messages.sending() || started.elapsed() >= limit {
                return Ok(());
            }
            thread::sleep(FLUSH_PAUSE);
        }
    }

    /// Tells the others that this rank ends here, and releases all waiting threads.
    pub fn end(&mut self, reason: &str, limit: Duration) {
        let rank = self.messages.rank();
        self.mailbox.open().tell_end(rank, reason);
        // Who cannot be told learns it from a deadline.
        let _broken_already = self.flush(limit);
        self.mailbox.broken(reason.to_owned());
    }

    /// Releases all waiting threads without calling the library again; the others notice by a
    /// deadline. For threads that may not call the library now.
    pub fn break_off(&mut self, reason: &str) {
        self.mailbox.broken(reason.to_owned());
    }

    /// Returns the resources of the launcher's library, after a normal end on all ranks.
    ///
    /// # Errors
    /// Errors of [`Messages`].
    pub fn release(mut self) -> Result<(), Error> {
        self.check_thread()?;
        self.messages.release()
    }

    /// Returns true if something is to be sent, is on its way, is expected or was requested.
    fn is_wanted(&self) -> bool {
        let mail = self.mailbox.open();
        mail.broken.is_none() && (mail.waiting || mail.asked || mail.has_outgoing() || self.messages.sending())
    }

    /// Sends one message and receives one; returns true if there was any.
    fn turn(&mut self) -> Result<bool, Error> {
        let outgoing = self.mailbox.open().next_outgoing();
        let mut moved = outgoing.is_some();
        if let Some((to, message)) = outgoing {
            self.messages.send(to, message)?;
        }
        if let Some((from, message)) = self.messages.receive()? {
            self.mailbox.deliver(from, &message);
            moved = true;
        }
        Ok(moved)
    }

    fn check_thread(&self) -> Result<(), Error> {
        if self.made_here() || self.messages.threads() != Threads::Own {
            return Ok(());
        }
        let reason =
            "called from the wrong thread: at this thread level only the thread that started the session may call MPI";
        Err(Error::Setup { what: "MPI".into(), reason: reason.into() })
    }
}

const IDLE_TURNS: u32 = 16;

const FLUSH_PAUSE: Duration = Duration::from_micros(50);
