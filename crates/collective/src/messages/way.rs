//! The interface that a launcher implements: its message transport.
//!
//! `mpi::MpiMessages` implements it over MPI, and C functions implement it in `capi`. No call
//! waits.

use std::fmt::Debug;

use crate::{Error, Rank};

/// A launcher's way to send messages between its ranks. No call waits for another rank; what one
/// rank sends to another arrives in order.
pub trait Messages: Debug + Send {
    /// This process's rank.
    fn rank(&self) -> Rank;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Its name for people, as [`crate::Collective::backend`].
    fn backend(&self) -> &'static str;

    /// Which threads may call it.
    fn threads(&self) -> Threads;

    /// Starts to send.
    ///
    /// # Errors
    /// What the launcher's library says; nothing can be sent afterwards.
    fn send(&mut self, to: Rank, message: Vec<u8>) -> Result<(), Error>;

    /// Lets messages move and takes the next that has come whole.
    ///
    /// # Errors
    /// As [`Messages::send`].
    fn receive(&mut self) -> Result<Option<(Rank, Vec<u8>)>, Error>;

    /// Whether something is still being sent, as of the last call of [`Messages::receive`].
    fn sending(&self) -> bool;

    /// Gives back what the launcher's library lent. All ranks have ended in order; nothing is
    /// called afterwards.
    ///
    /// # Errors
    /// As [`Messages::send`].
    fn release(&mut self) -> Result<(), Error>;
}

/// Which threads may call a launcher's library.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The one that made the [`Messages`] (MPI: SINGLE and FUNNELED).
    Own,
    /// Any, never two at a time; the launcher sees to that (MPI: SERIALIZED).
    OneAtATime,
    /// Any, at any time (MPI: MULTIPLE).
    Any,
}
