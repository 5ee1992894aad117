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
//! | `mod` | the two ends |
//! | `way` | what a way of sending is |
//! | `mailbox` | what waits to be sent and to be read; the bytes of a message |
//! | `carrier` | moves it |
//! | `collective` | gathers and broadcasts |
//!
//! What it does not do: go on without lost ranks, or end the launcher's job.

mod carrier;
mod collective;
mod mailbox;
mod way;

pub use carrier::Carrier;
pub use collective::ByMessages;
pub use way::{Messages, Threads};

/// The two ends of a launcher's way to send: what the session's thread waits at, and what moves the mail.
pub fn by_messages(messages: Box<dyn Messages>) -> (ByMessages, Carrier) {
    let (rank, size, backend) = (messages.rank(), messages.size(), messages.backend());
    let mailbox = mailbox::Mailbox::new(rank, size);
    (ByMessages::new(rank, size, backend, mailbox.clone()), Carrier::new(messages, mailbox))
}
