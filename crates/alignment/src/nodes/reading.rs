//! Reads the facts of all traces of a command, several at once.
//!
//! The traces are compared afterwards, in their order, so that the result does not depend on which
//! was read first.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::Error;
use probe_sync_formats::model::TraceFacts;
use probe_sync_formats::{FactOptions, TraceFormat, detect, workers};

/// A trace's format and facts.
pub(super) type Facts = (&'static dyn TraceFormat, TraceFacts);

/// The facts of each trace, or why there are none. Unless `go_on`, no trace is begun after one that
/// cannot be read; those are `None`.
pub(super) fn read_all(paths: &[PathBuf], options: &FactOptions, go_on: bool) -> Vec<Option<Result<Facts, Error>>> {
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut done = Vec::new();
        while !stopped.load(Ordering::Relaxed)
            && let place = next.fetch_add(1, Ordering::Relaxed)
            && let Some(path) = paths.get(place)
        {
            let facts = detect(path).and_then(|format| format.read_facts(path, options).map(|facts| (format, facts)));
            if facts.is_err() && !go_on {
                stopped.store(true, Ordering::Relaxed);
            }
            done.push((place, facts));
        }
        done
    };
    let workers = workers().min(paths.len());
    let mut all: Vec<Option<Result<Facts, Error>>> = paths.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            for (place, facts) in worker.join().unwrap_or_else(|panic| resume_unwind(panic)) {
                all[place] = Some(facts.map_err(Error::from));
            }
        }
    });
    all
}
