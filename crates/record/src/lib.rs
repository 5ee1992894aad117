//! Records scopes, moments, values and flows of a process at the cost of two clock reads per event,
//! in a form that survives a kill.
//!
//! The crate depends only on `time` and `sys`, so that any library can carry it. Each thread writes
//! into its own memory ([`Session`] defines where that memory is and what happens when it is full).
//! A [`Recording`] then returns the events together with the clock pairs that place them on the
//! system clock.
//!
//! ```
//! use probe_sync_record::{Policy, Recorder, scope};
//!
//! let session = Recorder::builder().policy(Policy::Flight { bytes: 1 << 20 }).start()?;
//! {
//!     let _step = scope!("step", step = 17);
//! }
//! let recording = session.finish()?;
//! assert_eq!(recording.threads().iter().map(|thread| thread.events).sum::<u64>(), 1);
//! # Ok::<(), probe_sync_record::Error>(())
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`event`], macros | what programs call |
//! | [`typed`] | collectives, memory, backward calls: events that others understand |
//! | `tracing` | spans and events of the crate `tracing`, by a layer; with the feature of that name |
//! | `site`, `kind`, `value`, `detail` | places, sorts and arguments of events |
//! | `thread` | a thread's part, and how an event gets into it |
//! | `active` | the sessions that are under way |
//! | `memory`, `layout` | where everything lies |
//! | `session` | what programs hold |
//! | [`backend`] | devices and other tools' markers beside a session |
//! | [`control`] | asking a session from another process |
//! | [`observe`] | callbacks before and after scopes |
//! | [`hook`] | what is found out about events after the stop |
//! | [`read`] | recordings, finished or left by a kill |
//! | [`tree`] | events of a thread by who is within whom |
//! | `export`, with the feature of this name | recordings on the system clock or a reference clock, as traces |
//!
//! Mapping times to another clock and writing trace formats need later crates; the module
//! `export` does both.

mod active;
pub mod backend;
mod clock;
pub mod control;
mod detail;
mod error;
pub mod event;
#[cfg(feature = "export")]
pub mod export;
pub mod hook;
mod kind;
mod layout;
mod macros;
mod memory;
pub mod observe;
pub mod read;
mod session;
mod site;
mod thread;
#[cfg(feature = "tracing")]
pub mod tracing;
pub mod tree;
pub mod typed;
mod value;

pub use active::core::Reach;
pub use clock::{ClockPair, RecordClock};
pub use error::Error;
pub use event::{Correlation, Scope, Span, correlate};
pub use kind::{Kind, Kinds};
pub use read::Recording;
pub use session::{
    Adopted, Adopter, Builder, Counts, Facts, Phase, Policy, Prepared, Recorder, Schedule, Session, Standing, Step,
};
pub use site::Site;
#[doc(hidden)]
pub use value::ExactWords;
pub use value::{Argument, Arguments, Listed, Value, Words};
