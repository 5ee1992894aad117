//! Traces in Perfetto's protobuf format (`.pftrace`), as Perfetto's library and service, PyTorch,
//! rocprofv3 and this program write them.
//!
//! [`Perfetto`] is the format behind the interface of [`super`]. `packet` finds packets and what they
//! contain, `clocks` and `kernel` the times of packets and of the kernel's events, `facts` fills
//! `model::TraceFacts` (`operations`: the parts of collectives), `rewrite` moves all times in place, and `chunks` returns the events: it
//! matches begins with ends (`slices`), resolves texts (`sequences`) and tracks (`tracks`), and adds
//! events to columns (`out`). `writers` has a writer of its own for the format, which shares the
//! numbers of [`fields`].

mod arguments;
mod attributes;
mod chunks;
mod clocks;
mod edits;
mod event;
mod facts;
pub mod fields;
mod flows;
mod gpu;
mod kernel;
mod operations;
mod out;
mod packet;
mod rewrite;
mod sequences;
mod slices;
mod tracks;

use std::path::Path;

pub use attributes::attributes;

use super::{
    ChunkOptions, ChunkSink, ChunkStats, Evidence, FactOptions, MapFunction, RewriteOptions, RewriteStats, TraceFormat,
};
use crate::Error;
use crate::model::TraceFacts;

/// Perfetto protobuf.
#[derive(Copy, Clone, Debug)]
pub struct Perfetto;

impl TraceFormat for Perfetto {
    fn name(&self) -> &'static str {
        "perfetto"
    }

    fn profiler_endings(&self) -> &'static [&'static str] {
        &[".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz"]
    }

    fn output_ending(&self) -> &'static str {
        ".pftrace"
    }

    fn packs_outputs(&self) -> bool {
        true
    }

    fn detect(&self, evidence: Evidence<'_>) -> bool {
        match evidence {
            Evidence::Name(name) => name.ends_with(".pftrace") || name.ends_with(".perfetto-trace"),
            Evidence::Head(head) => packet::begins_trace(head),
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

    fn refusal(&self, path: &Path) -> Error {
        Error::Request {
            problem: format!(
                "{}: Perfetto traces are merged into an --output that ends in .pftrace or .json, or unchanged and with the offsets \
                of their clocks into one that ends in .tar",
                path.display()
            ),
        }
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
