//! Records the spans and events of the crate `tracing` as events of the recorder.
//!
//! Programs add a [`RecordLayer`] to their subscriber. It records while a session does; otherwise
//! it costs one load.
//!
//! ```no_run
//! use tracing_subscriber::prelude::*;
//! tracing_subscriber::registry().with(probe_sync_record::tracing::RecordLayer::new()).init();
//! ```
//!
//! | `tracing` | recorder |
//! |---|---|
//! | a span, from being entered to being left | a scope; so one per poll, where a future is instrumented |
//! | the whole life of a span that is entered more than once, or on another thread than it was made on | a span, with the id of its scopes |
//! | fields of a span | arguments of its first scope and of its life; what is recorded later, of the scope that is open |
//! | an event | an instant, with level, message and fields |
//! | `follows_from` | a flow from where it is said to where the span is entered next |
//!
//! Whether spans of a place are entered more than once is not known before one is. The life of that
//! one begins there; those of all that are made afterwards in full. [`RecordLayer::lives`] says
//! otherwise.
//!
//! Spans that a field makes while it describes itself are left out, as `tracing` does itself under
//! a subscriber that is not the program's only one.
//!
//! It does not filter: the subscriber chooses levels and targets, the session chooses kinds.

mod callsite;
mod fields;
mod layer;

#[cfg(test)]
mod tests;

pub use layer::{Lives, RecordLayer};
