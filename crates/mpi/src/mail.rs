//! Non-blocking point-to-point messages: outgoing ones stay here until MPI is done with them,
//! incoming ones are taken as a whole.
//!
//! [`crate::MpiMessages`] and the words between the operations ([`crate::words`]) use it, each on
//! its own communicator. It does not wait.

use std::ffi::c_int;

use probe_sync_collective::{Error, Rank};

use crate::raw::{Communicator, Requests};

/// Messages in progress on one communicator.
#[derive(Debug)]
pub(crate) struct Mail {
    sends: Requests,
    /// A message in progress: its sender, and the one request.
    incoming: Option<(Rank, Requests)>,
}

impl Mail {
    pub(crate) fn new() -> Self {
        Self { sends: Requests::new(), incoming: None }
    }

    /// Starts to send.
    pub(crate) fn send(&mut self, comm: &Communicator, to: Rank, message: Vec<u8>) -> Result<(), Error> {
        comm.start_send(message, to, TAG, &mut self.sends).map(|_| ())
    }

    /// Whether something is still being sent, as of the last call of [`Mail::next`].
    pub(crate) fn sending(&self) -> bool {
        self.sends.pending().next().is_some()
    }

    /// Whether anything is being sent or received.
    pub(crate) fn under_way(&self) -> bool {
        self.sending() || self.incoming.is_some()
    }

    /// Number of messages still being sent.
    pub(crate) fn unsent(&self) -> usize {
        self.sends.pending().count()
    }

    /// Lets MPI make progress; returns the next complete message.
    pub(crate) fn next(&mut self, comm: &Communicator) -> Result<Option<(Rank, Vec<u8>)>, Error> {
        if self.sending() {
            self.sends.poll()?;
            if !self.sending() {
                self.sends = Requests::new();
            }
        }
        let (from, mut request) = match self.incoming.take() {
            Some(incoming) => incoming,
            None => {
                let Some(waiting) = comm.probe()? else { return Ok(None) };
                let mut request = Requests::new();
                comm.start_receive(vec![0; waiting.bytes], waiting.from, waiting.tag, &mut request)?;
                (waiting.from, request)
            }
        };
        if request.poll()?.is_empty() {
            self.incoming = Some((from, request));
            return Ok(None);
        }
        Ok(Some((from, request.take(0))))
    }
}

const TAG: c_int = 0x7073;
