//! The backend over a launcher's own message transport, such as an MPI that only one thread may
//! call.
//!
//! A launcher with such a transport implements [`Messages`], which starts sends and takes arrived
//! messages but never waits. [`by_messages`] splits it into two ends. [`ByMessages`] is the
//! [`crate::Collective`] of the session's thread, which sleeps until its messages have arrived.
//! [`Carrier`] moves the messages, a little on each call by the launcher; if any thread may send,
//! the session's thread does this itself ([`ByMessages::carried_by`]).
//!
//! A gather is one message from every rank to the root, from those without a part an empty one:
//! nobody is ever more than a round ahead, and a rank whose launcher has stopped to move mail is
//! named even if it measures nothing. A broadcast is one message from the root to every rank. A
//! tree was rejected: a rank between two others passes nothing on while its launcher is busy, and
//! who waits behind it would name the wrong one. A rank that ends early says why to the root, and
//! the root to all.
//!
//! | file | what |
//! |---|---|
//! | `mod` | the two ends |
//! | `way` | what a way of sending is |
//! | `mailbox` | what waits to be sent and to be read; the bytes of a message |
//! | `carrier` | moves it |
//! | `collective` | gathers and broadcasts |
//!
//! It does not continue without lost ranks, and it does not end the launcher's job.

mod carrier;
mod collective;
mod mailbox;
mod way;

pub use carrier::Carrier;
pub use collective::ByMessages;
pub use way::{Messages, Threads};

/// Returns the two ends of a launcher's transport: the one at which the session's thread waits, and
/// the one that moves the messages.
pub fn by_messages(messages: Box<dyn Messages>) -> (ByMessages, Carrier) {
    let (rank, size, backend) = (messages.rank(), messages.size(), messages.backend());
    let mailbox = mailbox::Mailbox::new(rank, size);
    (ByMessages::new(rank, size, backend, mailbox.clone()), Carrier::new(messages, mailbox))
}
