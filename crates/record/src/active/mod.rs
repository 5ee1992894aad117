//! Sessions that are under way, as threads see them.
//!
//! Place in the flow: `session` makes them, `thread` writes into them. [`core::Core`] is one session, [`registry`] the list of all, [`watch::Watch`] an observer.

pub(crate) mod core;
pub(crate) mod registry;
pub(crate) mod watch;
