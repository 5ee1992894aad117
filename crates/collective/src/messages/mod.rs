//! The backend over a launcher's own way to send messages: its MPI, of which perhaps one thread alone may make calls.
//!
//! Place in the flow: a session beside a launcher. Whoever has such a way implements [`Messages`]: start to send, take what has come, never
//! wait. [`by_messages`] makes two ends of it. [`ByMessages`] is the [`crate::Collective`] of the session's thread, which sleeps until its mail has
//! come. [`Carrier`] moves the mail, a little whenever the launcher says so; where any thread may send, the session's thread does it itself
//! ([`ByMessages::carried_by`]).
//!
//! A gather is one message from every rank to the root, from those without a part an empty one: nobody is ever more than a round ahead, and a
//! rank whose launcher has stopped to move mail is named even if it measures nothing. A broadcast is one message from the root to every rank.
//! A tree was rejected: a rank between two others passes nothing on while its launcher is busy, and who waits behind it would name the wrong one.
//! A rank that ends early says why to the root, and the root to all.
//!
//! | file | what |
//! |---|---|
//! | `mod` | what a way of sending is |
//! | `mailbox` | what waits to be sent and to be read; the bytes of a message |
//! | `carrier` | moves it |
//! | `collective` | gathers and broadcasts |
//!
//! What it does not do: go on without lost ranks, or end the launcher's job.

mod carrier;
mod collective;
mod mailbox;

use std::fmt::Debug;

use crate::{Error, Rank};

pub use carrier::Carrier;
pub use collective::ByMessages;

/// A launcher's way to send messages between its ranks. No call waits for another rank; what one rank sends to another arrives in order.
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

    /// Gives back what the launcher's library lent. All ranks have ended in order; nothing is called afterwards.
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

/// The two ends of a launcher's way to send: what the session's thread waits at, and what moves the mail.
pub fn by_messages(messages: Box<dyn Messages>) -> (ByMessages, Carrier) {
    let (rank, size, backend) = (messages.rank(), messages.size(), messages.backend());
    let mailbox = mailbox::Mailbox::new(rank, size);
    (ByMessages::new(rank, size, backend, mailbox.clone()), Carrier::new(messages, mailbox))
}
