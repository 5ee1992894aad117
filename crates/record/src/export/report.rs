//! The result of an export.

use std::path::PathBuf;

use serde::Serialize;

use super::clock::Doubt;

/// What is in a trace, and what is to be known of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exported {
    /// The file.
    pub path: PathBuf,
    /// Events of threads: scopes, moments, values, flows, ends of spans, losses.
    pub events: u64,
    /// Scopes.
    pub scopes: u64,
    /// Scopes that did not end themselves: closed with the scope around them, or open when the
    /// recording ended.
    pub unfinished: u64,
    /// Spans that may end on another thread.
    pub spans: u64,
    /// Events that were lost; they stand in the trace as what they are.
    pub lost: u64,
    /// Events before the first clock pair or after the last; marked.
    pub outside: u64,
    /// Events between the clock pairs around a step of the system clock; marked.
    pub near_step: u64,
    /// Events that came when the counter had been seen to be no clock any more; marked.
    pub clock_failed: u64,
    /// Bytes of the file; 0 for a database.
    pub bytes: u64,
    /// Of a database on its machine's boot clock: the file with the pairs that tie it to the system
    /// clock, for `align --snapshots`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PathBuf>,
    /// Worth telling the user.
    pub notes: Vec<String>,
}

impl Exported {
    /// One more event.
    #[inline]
    pub(super) fn count(&mut self, doubt: Doubt) {
        self.events += 1;
        match doubt {
            Doubt::None => {}
            Doubt::Outside => self.outside += 1,
            Doubt::Step => self.near_step += 1,
            Doubt::Failed => self.clock_failed += 1,
        }
    }
}
