//! Observers: callbacks before a scope begins and after it has ended, for one thread or the whole
//! process, with or without a session.
//!
//! The registry lists each [`Observer`]; threads then leave the fast path of events and call it
//! (`thread::observed`). Without observers, events cost no more than usual.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::sync::Arc;
//! use probe_sync_record::{observe::Observer, scope};
//!
//! let seen = Arc::new(AtomicU64::new(0));
//! let counter = Arc::clone(&seen);
//! let observing = Observer::new()
//!     .on_enter(|scope| scope.site().place().1.into())
//!     .on_leave(move |_, line| { counter.fetch_add(line, Ordering::Relaxed); })
//!     .add()?;
//! drop(scope!("step"));
//! assert!(observing.remove(), "no call is under way, and none will come");
//! assert_ne!(seen.load(Ordering::Relaxed), 0);
//! # Ok::<(), probe_sync_record::Error>(())
//! ```
//!
//! What holds:
//! * Both are called on the thread of the scope, outside of what is measured: before the scope's
//!   first reading of the clock, after its last.
//! * What the first gives back is handed to the other. Only those are told of the end who were told
//!   of the beginning.
//! * Events within a callback are recorded, but observed by nobody.
//! * A callback that panics is not called again, the panic is counted ([`Observing::counts`]), and
//!   the program goes on. Where panics abort, it aborts.
//! * When [`Observing::remove`] gives back true no call is under way and none will come. From
//!   within a callback of any observer it does not wait, since two that remove each other would
//!   wait for ever: it gives back false, no call begins any more, but some may be under way.
//! * A scope of a signal handler that interrupts another event is not observed. Others of signal
//!   handlers are: memory is taken for it, so that programs with observers had better not record
//!   there.
//! * In a forked child there are no observers.

mod observer;

#[cfg(test)]
mod tests;

pub use crate::active::watch::Observed;
pub use observer::{Observer, ObserverCounts, Observing};
