//! XSpace protobuf (`*.xplane.pb`): facts, rewriting and merging, streamed at the level of the wire
//! format.
//!
//! [`XSpace`] is the format behind the interface of [`super`]; `facts` fills `model::TraceFacts`,
//! `rewrite` sends every time through a map, `merge` combines several nodes in one file, and
//! `chunks` supplies events to the writers of other formats. The message has five levels and no
//! recursion (space, plane, line, event, stat), so hostile nesting cannot exhaust the stack;
//! everything outside these levels is copied byte for byte and never parsed.
//!
//! ```text
//! XSpace  planes=1 errors=2 warnings=3 hostnames=4
//! XPlane  id=1 name=2 lines=3 event_metadata=4 stat_metadata=5 stats=6
//! XLine   id=1 name=2 timestamp_ns=3 events=4 duration_ps=9 display_id=10 display_name=11
//! XEvent  metadata_id=1 (offset_ps=2 | num_occurrences=5) duration_ps=3 stats=4
//! XStat   metadata_id=1 (double=2 | uint64=3 | int64=4 | str=5 | bytes=6 | ref=7)
//! ```
//!
//! R, the timeline of the file, is `profile_start_time + timestamp_ns + offset_ps`: `timestamp_ns`
//! counts from the start of the session, although upstream's comment calls it Unix time. A plane
//! may be on another clock all the same; `plane_clock` tells from where its lines begin.

mod chunks;
mod device_groups;
mod event;
mod facts;
#[doc(hidden)]
pub mod fields;
mod kept;
mod launches;
mod merge;
mod metadata_plane;
mod names;
mod outline;
mod plane_clock;
mod programs;
mod rewrite;
mod roles;
mod runs;
mod sift;
mod sink;
mod snapshots;
mod stat;

use std::path::Path;

use super::{
    ChunkOptions, ChunkSink, ChunkStats, Evidence, FactOptions, MapFunction, MergeInput, MergeOptions, MergeStats,
    RewriteOptions, RewriteStats, TraceFormat,
};
use crate::Error;
use crate::model::TraceFacts;

/// XSpace protobuf.
#[derive(Copy, Clone, Debug)]
pub struct XSpace;

impl TraceFormat for XSpace {
    fn name(&self) -> &'static str {
        "xspace"
    }

    fn profiler_endings(&self) -> &'static [&'static str] {
        &[".xplane.pb"]
    }

    fn output_ending(&self) -> &'static str {
        ".xplane.pb"
    }

    fn leaves_out_events(&self) -> bool {
        true
    }

    fn packs_outputs(&self) -> bool {
        false
    }

    /// Fields 1 to 4 of an XSpace are all length-delimited.
    fn detect(&self, evidence: Evidence<'_>) -> bool {
        match evidence {
            Evidence::Name(name) => name.ends_with(".pb"),
            Evidence::Head(head) => matches!(head.first(), Some(0x0a | 0x12 | 0x1a | 0x22)),
        }
    }

    fn read_facts(&self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
        facts::read_facts(path, options)
    }

    fn session_start_ns(&self, path: &Path) -> Result<Option<i64>, Error> {
        Ok(outline::outline(path)?.start_ns)
    }

    fn holds_snapshots(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        input: &Path,
        output: &Path,
        options: &RewriteOptions<'_>,
        map: &mut MapFunction<'_>,
    ) -> Result<RewriteStats, Error> {
        rewrite::rewrite(input, output, options, map)
    }

    fn merge(&self, inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error> {
        merge::merge(inputs, output, options)
    }

    fn read_chunks(
        &self,
        path: &Path,
        options: &ChunkOptions,
        map: &mut MapFunction<'_>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<ChunkStats, Error> {
        chunks::read_chunks(path, options, map, sink)
    }
}

#[cfg(test)]
mod tests;
