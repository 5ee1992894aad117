//! Traces of rocmProfileData (`.rpd`: SQLite, written by `rpd_tracer`): facts, events and rewriting.
//!
//! [`Rpd`] is the format behind the interface of [`super`]. `crate::sqlite` opens a file so that
//! nothing in it runs and copies tables, `catalog` knows its tables and which columns are times,
//! `facts` fills `model::TraceFacts`, `collectives` finds the kernels of RCCL, `chunks` returns the
//! events by the statements of `rows`, and `rewrite` creates the output. A time is in nanoseconds of
//! the writing node's CLOCK_MONOTONIC.

mod catalog;
mod chunks;
mod collectives;
mod facts;
mod reading;
mod rewrite;
mod rows;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::{
    ChunkOptions, ChunkSink, ChunkStats, Evidence, FactOptions, MapFunction, MergeInput, MergeOptions, MergeStats,
    RewriteOptions, RewriteStats, TraceFormat,
};
use crate::Error;
use crate::model::TraceFacts;

/// Traces of rocmProfileData.
#[derive(Copy, Clone, Debug)]
pub struct Rpd;

impl TraceFormat for Rpd {
    fn name(&self) -> &'static str {
        "rpd"
    }

    fn profiler_endings(&self) -> &'static [&'static str] {
        &[".rpd"]
    }

    fn output_ending(&self) -> &'static str {
        ".rpd"
    }

    fn packs_outputs(&self) -> bool {
        false
    }

    /// By name: the first bytes of a database do not tell who wrote it, but its tables do
    /// ([`Self::accepts`]).
    fn detect(&self, evidence: Evidence<'_>) -> bool {
        matches!(evidence, Evidence::Name(name) if name.ends_with(".rpd"))
    }

    /// By its tables. A database that cannot be opened is accepted: reading it tells what is wrong.
    fn accepts(&self, path: &Path) -> bool {
        catalog::is_trace(path)
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
            "{}: traces of rocmProfileData cannot be merged into one database, because their ids repeat; merge them into .pftrace or \
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
