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

/// Moves the mail of one rank.
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

    /// Whether any thread may move the mail at any time.
    pub fn any_thread(&self) -> bool {
        self.messages.threads() == Threads::Any
    }

    /// Whether this thread made it, and so may move the mail whatever the launcher's other threads
    /// do.
    pub fn made_here(&self) -> bool {
        self.made_on == thread::current().id()
    }

    /// Moves what can be moved now, for at most `budget` and one message more. It waits for no
    /// other rank, and makes no call where nothing is to be sent, nobody waits, and nobody has
    /// asked for words ([`crate::Collective::calls`]) since it last looked in vain. An error has
    /// broken the group: who waits gets it too.
    ///
    /// # Errors
    /// [`Error::Setup`] on a thread that may not; else what [`Messages`] says.
    pub fn step(&mut self, budget: Duration) -> Result<(), Error> {
        // Some libraries look at the network at every eighth call only.
        self.turns(budget, IDLE_TURNS)
    }

    /// As [`Carrier::step`], for one that looks again and again: it ends at the first look at which
    /// nothing has come.
    ///
    /// # Errors
    /// As [`Carrier::step`].
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

    /// Moves mail until all that was sent is on its way, at most for `limit`.
    ///
    /// # Errors
    /// As [`Carrier::step`].
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

    /// Tells the others that this rank ends here, and lets nobody wait here any more.
    pub fn end(&mut self, reason: &str, limit: Duration) {
        let rank = self.messages.rank();
        self.mailbox.open().tell_end(rank, reason);
        // Who cannot be told learns it from a deadline.
        let _broken_already = self.flush(limit);
        self.mailbox.broken(reason.to_owned());
    }

    /// Lets nobody wait here any more, and calls the library no more: the others learn it from a
    /// deadline. For threads that may not call it now.
    pub fn break_off(&mut self, reason: &str) {
        self.mailbox.broken(reason.to_owned());
    }

    /// Gives back what the launcher's library lent, after an end in order on all ranks.
    ///
    /// # Errors
    /// What [`Messages`] says.
    pub fn release(mut self) -> Result<(), Error> {
        self.check_thread()?;
        self.messages.release()
    }

    /// Something is to be sent, is on its way, is waited for or was asked for.
    fn is_wanted(&self) -> bool {
        let mail = self.mailbox.open();
        mail.broken.is_none() && (mail.waiting || mail.asked || mail.has_outgoing() || self.messages.sending())
    }

    /// Sends a message and takes one; whether there was any.
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
