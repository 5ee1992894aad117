//! Gathers and broadcasts through a launcher's messages.
//!
//! It does not send; [`super::Carrier`] does, on any thread that may.

use std::sync::Arc;
use std::time::Duration;

use super::carrier::Carrier;
use super::mailbox::{Mail, Mailbox};
use crate::{Call, Collective, Deadline, Error, Frames, ROOT, Rank, Traffic, Wait, check_participants, check_word};

/// One rank of a launcher's group.
#[derive(Debug)]
pub struct ByMessages {
    rank: Rank,
    size: usize,
    backend: &'static str,
    mailbox: Arc<Mailbox>,
    /// Present if this thread moves the messages itself.
    carrier: Option<Carrier>,
    /// Additional time for a wait that was asked to end.
    grace: Duration,
    gathers: u64,
    broadcasts: u64,
}

impl ByMessages {
    pub(super) fn new(rank: Rank, size: usize, backend: &'static str, mailbox: Arc<Mailbox>) -> Self {
        Self { rank, size, backend, mailbox, carrier: None, grace: Duration::ZERO, gathers: 0, broadcasts: 0 }
    }

    /// Lets waiting threads move the messages, for launchers whose library any thread may call.
    #[must_use]
    pub fn carried_by(self, carrier: Carrier) -> Self {
        Self { carrier: Some(carrier), ..self }
    }

    /// Extends the wait after a request to end by `grace`: other ranks' messages move only when
    /// their launchers step.
    #[must_use]
    pub fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Returns the resources of the launcher's library, if this thread moved the messages. All
    /// ranks have ended normally.
    ///
    /// # Errors
    /// Returns the library's error.
    pub fn release(mut self) -> Result<(), Error> {
        let Some(mut carrier) = self.carrier.take() else { return Ok(()) };
        carrier.flush(FLUSH_LIMIT)?;
        carrier.release()
    }

    /// Waits until `ready` returns a value; `missing` returns the ranks it waits for.
    fn wait<T>(
        &mut self,
        mut wait: Wait<'_>,
        missing: impl Fn(&Mail) -> Vec<Rank>,
        mut ready: impl FnMut(&mut Mail) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let operation = wait.operation();
        self.mailbox.open().waiting = true;
        let result = loop {
            self.move_mail();
            let mut mail = self.mailbox.open();
            // What was sent before an end still counts.
            match ready(&mut mail) {
                Ok(Some(value)) => break Ok(value),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
            if let Some((rank, reason)) = mail.ended.clone() {
                break Err(Error::Aborted { operation, rank, reason });
            }
            if let Some(reason) = mail.broken.clone() {
                break Err(Error::Backend { operation, reason });
            }
            let Some(slice) = wait.slice() else {
                let idle = mail.moved.elapsed();
                // What the others have sent may lie there unread: whoever is late, it is not proven
                // to be one of them.
                let own_fault = self.carrier.is_none() && idle > wait.elapsed() / 2;
                break Err(if own_fault { not_moved(operation, idle) } else { wait.late(missing(&mail)) });
            };
            if self.carrier.is_none() {
                let _woken = self.mailbox.changed.wait_timeout(mail, slice);
            } else {
                drop(mail);
                pause(&wait, slice);
            }
        };
        self.mailbox.open().waiting = false;
        if result.is_err() {
            self.flush();
        }
        result
    }

    /// If this thread moves the messages: moves what can be moved now. Failures are reported
    /// through the mailbox.
    fn move_mail(&mut self) {
        if let Some(carrier) = &mut self.carrier {
            let _in_the_mailbox = carrier.look(LOOK);
        }
    }

    /// If this thread moves the messages: moves them until they are on their way. A rank that does
    /// not receive its message is named by the next gather.
    fn flush(&mut self) {
        if let Some(carrier) = &mut self.carrier {
            let _in_the_mailbox = carrier.flush(FLUSH_LIMIT);
        }
    }

    fn with_own_grace(&self, deadline: &Deadline) -> Deadline {
        Deadline { grace: deadline.grace + self.grace, ..deadline.clone() }
    }

    /// Refuses to queue messages for a broken group, which would never be received.
    fn refuse_broken(&self, operation: &'static str) -> Result<(), Error> {
        let broken = self.mailbox.open().broken.clone();
        broken.map_or(Ok(()), |reason| Err(Error::Backend { operation, reason }))
    }
}

impl Collective for ByMessages {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        self.backend
    }

    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        const NAME: &str = "gather";
        check_participants((self.rank, ROOT), self.size, participants)?;
        self.refuse_broken(NAME)?;
        frames.clear();
        self.gathers += 1;
        let (number, size) = (self.gathers, self.size);
        if self.rank != ROOT {
            let payload = if participants[self.rank] { payload } else { &[] };
            self.mailbox.open().send(ROOT, number, payload);
            self.move_mail();
            return Ok(());
        }
        let missing = |mail: &Mail| (1..size).filter(|rank| !mail.has_come(*rank)).collect::<Vec<_>>();
        let deadline = self.with_own_grace(deadline);
        let parts: Vec<Vec<u8>> = self.wait(Wait::begin(NAME, &deadline), missing, |mail| {
            if (1..size).any(|rank| !mail.has_come(rank)) {
                return Ok(None);
            }
            (1..size).map(|rank| mail.read(rank, number, NAME)).collect::<Result<Option<_>, _>>()
        })?;
        frames.push(if participants[ROOT] { payload } else { &[] });
        parts.iter().for_each(|part| frames.push(part));
        Ok(())
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        const NAME: &str = "broadcast";
        self.refuse_broken(NAME)?;
        self.broadcasts += 1;
        let number = self.broadcasts;
        if self.rank == ROOT {
            let mut mail = self.mailbox.open();
            (1..self.size).for_each(|rank| mail.send(rank, number, buffer));
            drop(mail);
            self.flush();
            return Ok(());
        }
        let missing = |_: &Mail| vec![ROOT];
        let deadline = self.with_own_grace(deadline);
        *buffer = self.wait(Wait::begin(NAME, &deadline), missing, |mail| mail.read(ROOT, number, NAME))?;
        Ok(())
    }

    fn call(&mut self, word: &[u8]) -> Result<(), Error> {
        const NAME: &str = "call";
        check_word(self.rank, word)?;
        self.refuse_broken(NAME)?;
        if !self.mailbox.open().say(word) {
            let reason = "too many messages are waiting to be sent; call step() more often".into();
            return Err(Error::Backend { operation: NAME, reason });
        }
        self.move_mail();
        Ok(())
    }

    /// If the launcher's thread moves the messages, those that arrive with its next step are
    /// returned by the following call.
    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        self.refuse_broken("calls")?;
        self.mailbox.open().asked = true;
        self.move_mail();
        Ok(self.mailbox.open().take_heard())
    }

    fn traffic(&self) -> Traffic {
        self.mailbox.open().traffic
    }

    /// Tells the others why, and nothing else: ending the job is up to the launcher.
    fn abort(&mut self, reason: &str) {
        self.mailbox.open().tell_end(self.rank, reason);
        self.flush();
    }
}

/// Returns the error of a rank whose own launcher has kept it waiting.
fn not_moved(operation: &'static str, idle: Duration) -> Error {
    let reason =
        format!("step() has moved no messages for {idle:.1?}; call it more often, or set a longer round_timeout");
    Error::Backend { operation, reason }
}

/// Sleeps as long as a message may take: short intervals at first, then fifty times per second,
/// since a check costs some 40 µs if MPI has to ask the system, and windows are much longer.
fn pause(wait: &Wait<'_>, slice: Duration) {
    if wait.may_spin() {
        std::thread::yield_now();
    } else {
        std::thread::sleep((wait.elapsed() / 16).clamp(SLEEP_MIN, SLEEP_MAX).min(slice));
    }
}

/// Time slice for moving messages while only messages are awaited.
const LOOK: Duration = Duration::from_millis(10);

/// Longest time for sending at the end. Messages of usual length are on their way at once.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(20);
