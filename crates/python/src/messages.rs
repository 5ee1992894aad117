//! Messages between ranks that Python threads carry through a launcher's key-value store.
//!
//! The session's thread only appends to a queue and takes from another, so it never waits for the
//! interpreter lock or the store. `probe_sync/_carried.py` has the threads.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use probe_sync::collective::{self, MAX_RANKS, Threads};
use pyo3::prelude::*;

use crate::errors::Failure;

/// Queues between a session and the threads that carry its messages.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct Messages {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queues: Mutex<Queues>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queues {
    outgoing: VecDeque<(usize, Vec<u8>)>,
    /// True while a thread sends the message that it took last.
    sending: bool,
    incoming: VecDeque<(usize, Vec<u8>)>,
    /// Reason why no more messages can be carried.
    failure: Option<String>,
    /// True once a session uses the queues.
    given: bool,
    /// True once the session has ended.
    closed: bool,
}

#[pymethods]
impl Messages {
    #[new]
    fn new(rank: usize, size: usize) -> PyResult<Self> {
        if rank >= size || size > MAX_RANKS {
            let text =
                format!("rank {rank} of {size}: ranks are numbered from 0 to size - 1, with at most {MAX_RANKS} ranks");
            return Err(Failure::config(text).into());
        }
        Ok(Self { rank, size, shared: Arc::default() })
    }

    /// Waits for the next message to send and returns its destination and bytes, or None after the
    /// end of the session. The message taken before counts as sent.
    fn take(&self, py: Python<'_>) -> PyResult<Option<(usize, Vec<u8>)>> {
        loop {
            let found = py.detach(|| {
                let mut queues = self.shared.lock();
                queues.sending = false;
                if queues.outgoing.is_empty() && !queues.closed {
                    queues = self.shared.wait(queues, SLICE);
                }
                match queues.outgoing.pop_front() {
                    Some(message) => {
                        queues.sending = true;
                        Some(Some(message))
                    }
                    None => queues.closed.then_some(None),
                }
            });
            if let Some(message) = found {
                return Ok(message);
            }
            py.check_signals()?;
        }
    }

    /// Adds a received message.
    fn deliver(&self, source: usize, message: Vec<u8>) {
        let mut queues = self.shared.lock();
        if queues.incoming.len() >= INCOMING_MAX {
            queues.failure.get_or_insert_with(|| format!("more than {INCOMING_MAX} messages were not read"));
        } else if source < self.size {
            queues.incoming.push_back((source, message));
        }
    }

    /// Ends the session with this reason.
    fn fail(&self, reason: String) {
        let mut queues = self.shared.lock();
        queues.sending = false;
        queues.failure.get_or_insert(reason);
    }

    /// Returns True after the end of the session.
    fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }

    /// Closes the queues, whether or not the session has ended.
    fn close(&self) {
        self.shared.close();
    }

    /// Closes the queues if no session has used them.
    fn close_unused(&self) {
        if !self.shared.lock().given {
            self.shared.close();
        }
    }
}

impl Messages {
    /// Returns the session's end, once.
    pub fn carried(&self) -> Result<Carried, Failure> {
        let mut queues = self.shared.lock();
        if std::mem::replace(&mut queues.given, true) || queues.closed {
            let text = "this group was already used to start a session; call the adapter again on all ranks";
            return Err(Failure::config(text));
        }
        drop(queues);
        Ok(Carried { rank: self.rank, size: self.size, shared: Arc::clone(&self.shared) })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn wait<'q>(&self, queues: MutexGuard<'q, Queues>, limit: Duration) -> MutexGuard<'q, Queues> {
        self.changed.wait_timeout(queues, limit).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The session's end of the queues.
#[derive(Debug)]
pub struct Carried {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
}

impl Carried {
    fn queues(&self, operation: &'static str) -> Result<MutexGuard<'_, Queues>, collective::Error> {
        let queues = self.shared.lock();
        match queues.failure.clone() {
            Some(reason) => Err(collective::Error::Backend { operation, reason }),
            None => Ok(queues),
        }
    }
}

impl collective::Messages for Carried {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        "store"
    }

    fn threads(&self) -> Threads {
        Threads::Any
    }

    fn send(&mut self, to: usize, message: Vec<u8>) -> Result<(), collective::Error> {
        self.queues("send")?.outgoing.push_back((to, message));
        self.shared.changed.notify_all();
        Ok(())
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, collective::Error> {
        Ok(self.queues("receive")?.incoming.pop_front())
    }

    fn sending(&self) -> bool {
        let queues = self.shared.lock();
        queues.failure.is_none() && (queues.sending || !queues.outgoing.is_empty())
    }

    fn release(&mut self) -> Result<(), collective::Error> {
        Ok(())
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Time between two checks for signals.
const SLICE: Duration = Duration::from_millis(500);

/// Most messages that wait for the session, which reads them several times a second.
const INCOMING_MAX: usize = 1 << 16;
