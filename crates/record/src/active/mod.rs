//! Active sessions, as threads see them.
//!
//! `session` makes them, and `thread` writes into them. [`core::Core`] is one session, [`registry`]
//! the list of all, [`watch::Watch`] an observer.

pub(crate) mod core;
pub(crate) mod registry;
pub(crate) mod watch;
