//! The interface that a launcher implements: its message transport.
//!
//! `mpi::MpiMessages` implements it over MPI, and C functions implement it in `capi`. No call
//! waits.

use std::fmt::Debug;

use crate::{Error, Rank};

/// A launcher's transport for messages between its ranks. No call waits for another rank; messages
/// from one rank to another arrive in order.
pub trait Messages: Debug + Send {
    /// Returns this process's rank.
    fn rank(&self) -> Rank;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Returns its display name, like [`crate::Collective::backend`].
    fn backend(&self) -> &'static str;

    /// Returns which threads may call it.
    fn threads(&self) -> Threads;

    /// Starts to send a message.
    ///
    /// # Errors
    /// Error of the launcher's library; nothing can be sent afterwards.
    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<(), Error>;

    /// Makes progress on messages and returns the next complete one.
    ///
    /// # Errors
    /// Errors of [`Messages::send`].
    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>, Error>;

    /// Returns true if messages were still being sent at the last call of [`Messages::receive`].
    fn sending(&self) -> bool;

    /// Returns the resources of the launcher's library. All ranks have ended normally; nothing is
    /// called afterwards.
    ///
    /// # Errors
    /// Errors of [`Messages::send`].
    fn release(&mut self) -> Result<(), Error>;
}

/// Which threads may call a launcher's library.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The thread that created the [`Messages`] (MPI: SINGLE and FUNNELED).
    Own,
    /// Any thread, but only one at a time, which the launcher ensures (MPI: SERIALIZED).
    OneAtATime,
    /// Any thread, at any time (MPI: MULTIPLE).
    Any,
}
