//! A thread's part: what it holds of every session, and how an event gets into them.
//!
//! Place in the flow: `event` calls [`block::Block`] for the usual case, one session without filters, and [`slow`] for all others. A
//! [`lane::Lane`] is a thread's part of one session.

pub(crate) mod block;
pub(crate) mod define;
pub(crate) mod exclusive;
pub(crate) mod lane;
pub(crate) mod masked;
pub(crate) mod observed;
pub(crate) mod slow;
pub(crate) mod sync;
