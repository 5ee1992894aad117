//! XSpace protobuf (`*.xplane.pb`): facts, rewriting and merging, streamed at the level of the wire.
//!
//! Place in the flow: [`read_facts`] fills `model::TraceFacts`; [`rewrite`] puts every time through a map; [`merge`] puts
//! several nodes into one file. The message has five levels and no recursion (space, plane, line, event, stat), so hostile
//! nesting cannot reach the stack; what these levels do not name is copied byte for byte and never parsed.
//!
//! ```text
//! XSpace  planes=1 errors=2 warnings=3 hostnames=4
//! XPlane  id=1 name=2 lines=3 event_metadata=4 stat_metadata=5 stats=6
//! XLine   id=1 name=2 timestamp_ns=3 events=4 duration_ps=9 display_id=10 display_name=11
//! XEvent  metadata_id=1 (offset_ps=2 | num_occurrences=5) duration_ps=3 stats=4
//! XStat   metadata_id=1 (double=2 | uint64=3 | int64=4 | str=5 | bytes=6 | ref=7)
//! ```
//!
//! R, the timeline of the file, is `profile_start_time + timestamp_ns + offset_ps`: `timestamp_ns` counts from the start of
//! the session, although upstream's comment calls it Unix time. What it does not do: decide what the map is.

mod facts;
mod merge;
mod names;
mod outline;
mod rewrite;
mod sink;
mod source;
#[cfg(test)]
mod tests;
mod wire;

pub use facts::read_facts;
pub use merge::{MergeInput, MergeOptions, MergeStats, PlaneLayout, merge};
pub use rewrite::{RewriteOptions, RewriteStats, rewrite};

/// The session start that a file states, Unix ns.
///
/// # Errors
/// What is wrong with the file, at which byte.
pub fn session_start_ns(path: &std::path::Path) -> Result<Option<i64>, crate::Error> {
    Ok(outline::outline(path)?.start_ns)
}
