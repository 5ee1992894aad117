//! The note on devices whose kernels begin before their launch.

use probe_sync_formats::model::BeforeLaunch;
use probe_sync_formats::words::joined;

use crate::collectives::span;

/// The sentence, if there is any such device, with the names of those that have them; `so` states
/// the consequence.
pub fn told(found: impl Iterator<Item = (String, BeforeLaunch)>, so: &str) -> Option<String> {
    let early = found.filter(|(_, found)| found.count > 0);
    let all: Vec<String> = early
        .map(|(name, found)| format!("{name} ({}, by up to {})", found.count, span(found.most_ns as f64)))
        .collect();
    let count = all.len();
    let named = joined(all.into_iter().take(NAMED), count);
    (count > 0).then(|| {
        format!("kernels begin before their launch: {named}; the profiler's times for these devices are early by at least that much, \
            and {so}")
    })
}

/// Most names listed.
const NAMED: usize = 4;
