//! Reads the facts of all traces of a command, several at once.
//!
//! The traces are compared afterwards, in their order, so that the result does not depend on which
//! was read first.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use probe_sync_formats::model::TraceFacts;
use probe_sync_formats::{FactOptions, TraceFormat, detect, side_by_side};

/// A trace's format and facts.
pub(super) type Facts = (&'static dyn TraceFormat, TraceFacts);

/// The facts of each trace, or why there are none. Unless `go_on`, no trace is begun after one that
/// cannot be read; those are `None`.
pub(super) fn read_all(paths: &[PathBuf], options: &FactOptions, go_on: bool) -> Vec<Option<Result<Facts, Error>>> {
    let stopped = AtomicBool::new(false);
    side_by_side(paths.len(), |place| {
        if stopped.load(Ordering::Relaxed) {
            return None;
        }
        let path = &paths[place];
        let facts = detect(path).and_then(|format| format.read_facts(path, options).map(|facts| (format, facts)));
        if facts.is_err() && !go_on {
            stopped.store(true, Ordering::Relaxed);
        }
        Some(facts.map_err(Error::from))
    })
}
