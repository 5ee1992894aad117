//! Databases that `nsys export --type sqlite` writes of a report of Nsight Systems: facts, events and
//! rewriting.
//!
//! [`Nsys`] is the format behind the interface of [`super`]. `crate::sqlite` opens a file so that
//! nothing in it runs and copies tables, `catalog` knows which columns are times and when the session
//! began, `facts` fills `model::TraceFacts` (`calls` and `collectives` find the parts of NCCL's
//! operations by the payloads of NVTX ranges), `chunks` returns the events, and `rewrite` creates the
//! output.
//!
//! A time is in nanoseconds from the start of the session, whose Unix time on the node's system clock
//! the file states. An alignment moves that start to the common clock, and writes every time as its
//! distance from there: a constant offset changes one cell.

mod calls;
mod catalog;
mod chunks;
mod collectives;
mod events;
mod facts;
mod identity;
mod payload;
mod places;
mod reading;
mod rewrite;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::{
    ChunkOptions, ChunkSink, ChunkStats, Evidence, FactOptions, MapFunction, MergeInput, MergeOptions, MergeStats,
    RewriteOptions, RewriteStats, TraceFormat,
};
use crate::Error;
use crate::model::TraceFacts;

/// Databases exported by Nsight Systems.
#[derive(Copy, Clone, Debug)]
pub struct Nsys;

impl TraceFormat for Nsys {
    fn name(&self) -> &'static str {
        "nsys"
    }

    fn profiler_endings(&self) -> &'static [&'static str] {
        &[".sqlite"]
    }

    fn output_ending(&self) -> &'static str {
        ".sqlite"
    }

    fn packs_outputs(&self) -> bool {
        false
    }

    /// By name: the first bytes of a database do not tell who wrote it, but its tables do
    /// ([`Self::accepts`]).
    fn detect(&self, evidence: Evidence<'_>) -> bool {
        matches!(evidence, Evidence::Name(name) if name.ends_with(".sqlite"))
    }

    /// By its tables. A database that cannot be opened is accepted: reading it tells what is wrong.
    fn accepts(&self, path: &Path) -> bool {
        catalog::is_export(path)
    }

    fn read_facts(&self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
        facts::read_facts(path, options)
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

    fn merge(&self, _: &mut [MergeInput<'_>], output: &Path, _: &MergeOptions) -> Result<MergeStats, Error> {
        let problem = format!(
            "{}: exports of Nsight Systems cannot be merged into one database, because their ids repeat; merge them into .pftrace or \
            .json, or convert them",
            output.display()
        );
        Err(Error::Request { problem })
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
