//! Existing traces in Perfetto's protobuf format (`.pftrace`).
//!
//! Only facts are read: the clock of the times, the span of the events, and markers. Later crates
//! put the traces unchanged into a TAR that states the offsets of their clocks (`perfetto_tar`) and
//! have a writer of their own for the format, which shares the numbers of [`fields`]. It does not
//! rewrite events, return them as chunks, or read counters and collectives.

mod clocks;
mod edits;
mod facts;
pub mod fields;
mod kernel;
mod packet;
mod rewrite;

use std::path::Path;

use super::{
    ChunkOptions, ChunkSink, ChunkStats, Evidence, FactOptions, MapFunction, RewriteOptions, RewriteStats, TraceFormat,
};
use crate::Error;
use crate::model::TraceFacts;
use crate::protobuf::put_bytes;

/// Perfetto protobuf.
#[derive(Copy, Clone, Debug)]
pub struct Perfetto;

impl TraceFormat for Perfetto {
    fn name(&self) -> &'static str {
        "perfetto"
    }

    /// Such a trace is only used if named: a profiler that writes one beside a database records the
    /// same events.
    fn profiler_endings(&self) -> &'static [&'static str] {
        &[]
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
                "{}: probe_sync cannot rewrite the times of a Perfetto trace; use `probe_sync merge` with an --output that ends in .tar \
                to combine such traces with their clock offsets",
                path.display()
            ),
        }
    }

    fn read_chunks(
        &self,
        path: &Path,
        _: &ChunkOptions,
        _: &mut MapFunction<'_>,
        _: &mut ChunkSink<'_>,
    ) -> Result<ChunkStats, Error> {
        Err(self.refusal(path))
    }
}

/// Returns a TracePacket with metadata of the whole trace. Trace processor lists it in its table
/// `metadata` from v58 on; earlier versions ignore it.
pub fn attributes(metadata: &[(String, String)]) -> Vec<u8> {
    let (mut packet, mut attributes, mut entry) = (Vec::new(), Vec::new(), Vec::new());
    for (key, text) in metadata {
        entry.clear();
        put_bytes(&mut entry, fields::ATTRIBUTE_KEY, key.as_bytes());
        put_bytes(&mut entry, fields::ATTRIBUTE_TEXT, text.as_bytes());
        put_bytes(&mut attributes, fields::ATTRIBUTES_ENTRY, &entry);
    }
    put_bytes(&mut packet, fields::PACKET_ATTRIBUTES, &attributes);
    packet
}

#[cfg(test)]
mod tests;
