//! Databases of rocprofv3 (rocpd: SQLite, one file per process or merged): facts, rewriting and
//! merging.
//!
//! [`Rocpd`] is the format behind the interface of [`super`]. `crate::sqlite` opens a file so that
//! nothing in it runs and copies tables, `catalog` knows its tables and which columns are times,
//! `facts` fills `model::TraceFacts`, `moving` sends the times of a row through a map (`cpu_clock`
//! knows which rows of `rocprof-sys` are on another clock), and `rewrite` creates the output from one
//! input or many. A time is in nanoseconds of the writing node's CLOCK_BOOTTIME; 0 and NULL mean that it is
//! not set.

mod arguments;
mod catalog;
mod chunks;
mod collectives;
mod cpu_clock;
mod facts;
mod lift;
mod markers;
mod moving;
mod part;
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
use crate::sqlite::access::MAGIC;
pub use part::{Affinities, DatabaseFile, Part, aligned};

/// Databases written by rocprofv3.
#[derive(Copy, Clone, Debug)]
pub struct Rocpd;

impl TraceFormat for Rocpd {
    fn name(&self) -> &'static str {
        "rocpd"
    }

    fn profiler_endings(&self) -> &'static [&'static str] {
        &["_results.db"]
    }

    fn output_ending(&self) -> &'static str {
        ".db"
    }

    fn packs_outputs(&self) -> bool {
        false
    }

    fn detect(&self, evidence: Evidence<'_>) -> bool {
        match evidence {
            Evidence::Name(name) => name.ends_with(".db"),
            Evidence::Head(head) => head.starts_with(MAGIC),
        }
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

    fn merge(&self, inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error> {
        rewrite::merge(inputs, output, options)
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
