//! The result of an export.

use std::path::PathBuf;

use serde::Serialize;

use super::clock::Doubt;

/// Contents of an exported trace, with notes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Exported {
    /// File written.
    pub path: PathBuf,
    /// Events of threads: scopes, instants, counter values, flows, ends of spans, losses.
    pub events: u64,
    /// Number of scopes.
    pub scopes: u64,
    /// Scopes without an end of their own: closed with the enclosing scope, or open when the
    /// recording ended.
    pub unfinished: u64,
    /// Spans that may end on another thread.
    pub spans: u64,
    /// Lost events; the trace shows them as losses.
    pub lost: u64,
    /// Events before the first or after the last clock pair; marked in the trace.
    pub outside: u64,
    /// Events between the clock pairs around a step of the system clock; marked in the trace.
    pub near_step: u64,
    /// Events after the counter was found unusable as a clock; marked in the trace.
    pub clock_failed: u64,
    /// Size of the file, bytes; 0 for a database.
    pub bytes: u64,
    /// File of the pairs that tie a database's boot clock to the system clock, for `align
    /// --snapshots`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PathBuf>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

impl Exported {
    /// Counts one more event.
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
