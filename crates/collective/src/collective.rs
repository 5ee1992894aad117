//! The operations that every backend has, and access to its optional parts.

use std::fmt;
use std::sync::Arc;

use crate::admission::Admission;
use crate::arguments::check_frames;
use crate::fault_tolerance::FaultTolerance;
use crate::succession::Succession;
use crate::{Deadline, Error, Frames, ROOT, Rank};

/// Gather and broadcast between the ranks of a run. Every rank calls the same operations in the
/// same order.
///
/// Every backend has these operations. What only some support is a part of its own, which the
/// caller asks for: [`FaultTolerance`], [`Admission`], [`Succession`].
///
/// A waiting rank sleeps; it never spins on a core that training needs for longer than 50 µs.
pub trait Collective {
    /// Returns this process's rank.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Returns the rank that gathers and decides: [`ROOT`] at first, or another one that was
    /// requested ([`Led`](crate::Led)), and later the rank that took over from it
    /// ([`Succession::succeed`]).
    fn root(&self) -> Rank {
        ROOT
    }

    /// Returns the backend's display name: `"mpi"`, `"tcp"`, `"in-process"`.
    fn backend(&self) -> &'static str;

    /// Returns true if the launcher signals all ranks when it signals one. mpirun does, on Ctrl-C
    /// or when a rank has died, and kills a second later; an interrupted wait must then be short.
    /// Otherwise it must outlast the others' windows.
    fn signals_reach_all(&self) -> bool {
        false
    }

    /// Gathers every participant's `payload` at the root. `participants` is indexed by rank, equal
    /// on all ranks, and includes the root; the others contribute nothing and return at once. At
    /// the root `frames` has one frame per rank afterwards; elsewhere it is empty.
    ///
    /// # Errors
    /// [`Error::Late`] names every rank whose data did not arrive in time.
    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error>;

    /// Broadcasts the root's `buffer` to every rank, replacing the content of theirs.
    ///
    /// # Errors
    /// [`Error::Late`] if the root's data did not arrive in time.
    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error>;

    /// Sends each rank its own frame of the root's `frames`, one per rank; it replaces the content
    /// of `own`. The other ranks' `frames` are ignored. By default this is a broadcast of all
    /// frames, of which each rank keeps its own.
    ///
    /// # Errors
    /// Errors of [`Collective::broadcast`].
    fn scatter(&mut self, frames: &Frames, own: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        check_frames((self.rank(), self.root()), self.size(), frames)?;
        let (mut encoded, mut all) = (Vec::new(), Frames::default());
        if self.rank() == self.root() {
            frames.encode(&mut encoded);
        }
        self.broadcast(&mut encoded, deadline)?;
        if !all.decode(&encoded) || all.len() != self.size() {
            let what = format!("{} bytes that are not {} frames", encoded.len(), self.size());
            return Err(Error::Protocol { operation: "scatter", rank: self.root(), what });
        }
        own.clear();
        own.extend_from_slice(all.frame(self.rank()));
        Ok(())
    }

    /// Gathers every rank's `payload` at every rank (time-based rounds, Variant A). By default this
    /// is a gather and a broadcast.
    ///
    /// # Errors
    /// Errors of [`Collective::gather`] and [`Collective::broadcast`].
    fn allgather(&mut self, payload: &[u8], frames: &mut Frames, deadline: &Deadline) -> Result<(), Error> {
        self.gather(&vec![true; self.size()], payload, frames, deadline)?;
        let mut encoded = Vec::new();
        if self.rank() == self.root() {
            frames.encode(&mut encoded);
        }
        self.broadcast(&mut encoded, deadline)?;
        if !frames.decode(&encoded) || frames.len() != self.size() {
            let what = format!("{} bytes that are not {} frames", encoded.len(), self.size());
            return Err(Error::Protocol { operation: "allgather", rank: self.root(), what });
        }
        Ok(())
    }

    /// Sends `word`, a message of at most [`WORD_MAX`](crate::WORD_MAX) bytes, outside of the
    /// operations: the root to all ranks, any other rank to the root. It never waits for the
    /// receivers, which get it from [`Self::calls`] in the order of sending. A rank lost meanwhile
    /// is noticed in the next operation.
    ///
    /// # Errors
    /// Returns an error if the backend has failed, or the message is too long.
    fn call(&mut self, word: &[u8]) -> Result<(), Error>;

    /// Removes and returns the messages received since the previous call. Never waits. It also
    /// drives the backend, so a rank that waits for something else calls it a few times per second.
    ///
    /// # Errors
    /// Returns an error if the backend has failed.
    fn calls(&mut self) -> Result<Vec<Call>, Error>;

    /// Makes an operation that waits for others do `work` about ten times per second, so that
    /// messages are sent and received even if a rank hangs. Returns false if the backend does not
    /// support this; its messages arrive when the operation is over. It must be called again after
    /// another rank has taken over as root.
    fn work_while_waiting(&mut self, _work: Arc<dyn SideWork>) -> bool {
        false
    }

    /// Returns the traffic so far; zero if the backend does not count it.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }

    /// Ends the whole job at once, on every rank, after an error that this rank cannot report to
    /// the others. Does not return if the backend can kill the job (`MPI_Abort`); otherwise closes
    /// the connections, so that the others fail promptly, and returns.
    fn abort(&mut self, reason: &str);

    /// Returns the part that lets this group continue without lost ranks, if it can.
    fn fault_tolerance(&mut self) -> Option<&mut dyn FaultTolerance> {
        None
    }

    /// Returns the part that lets ranks join or rejoin this group while it runs, if they can.
    fn admission(&mut self) -> Option<&mut dyn Admission> {
        None
    }

    /// Returns the part that lets another rank take over as root, if one can.
    fn succession(&mut self) -> Option<&mut dyn Succession> {
        None
    }
}

/// Traffic of a backend since it was created, with its number of retries.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages sent by this rank.
    pub messages_sent: u64,
    /// Messages received.
    pub messages_received: u64,
    /// Bytes sent by this rank, including the backend's own headers.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Retried connections and messages.
    pub retries: u64,
}

impl Traffic {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            messages_sent: self.messages_sent + other.messages_sent,
            messages_received: self.messages_received + other.messages_received,
            bytes_sent: self.bytes_sent + other.bytes_sent,
            bytes_received: self.bytes_received + other.bytes_received,
            retries: self.retries + other.retries,
        }
    }
}

/// A message outside of the operations: the sender, and the content ([`Collective::call`]).
pub type Call = (Rank, Vec<u8>);

/// Work that a rank does while an operation waits for others.
pub trait SideWork: fmt::Debug + Send + Sync {
    /// Processes received messages ([`Collective::call`]) and returns those to send, without
    /// waiting.
    fn turn(&self, heard: Vec<Call>) -> Vec<Vec<u8>>;
}
