//! The per-thread part of recording: a thread's state for every session, and the path of an event
//! into them.
//!
//! `event` calls [`block::Block`] for the fast path, one session without filters, and [`slow`] for
//! everything else. A [`lane::Lane`] is a thread's part of one session.

pub(crate) mod block;
pub(crate) mod define;
pub(crate) mod exclusive;
pub(crate) mod lane;
pub(crate) mod masked;
pub(crate) mod observed;
pub(crate) mod slow;
pub(crate) mod sync;
