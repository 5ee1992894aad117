//! Chrome's JSON, plain or gzip, as PyTorch Kineto (`*.pt.trace.json`) and other programs write it:
//! facts, rewriting and merging, as a stream.
//!
//! [`Kineto`] and [`ChromeJson`] are the formats behind the interface of [`super`]; `facts` fills `model::TraceFacts`,
//! `rewrite` sends every time through a map, `merge` combines several nodes in one file. Kineto has
//! three dialects, distinguished by their times:
//!
//! | dialect | `ts`, µs | absolute picoseconds |
//! |---|---|---|
//! | microseconds (2022–23) | absolute, whole | `ts · 10^6` |
//! | nanoseconds | absolute, with ns digits | `ts · 10^6` |
//! | based | since `baseTimeNanoseconds` | `base · 10^3 + ts · 10^6` |
//!
//! Other programs state their times as they like; `chrome_json` says what is known of them, and
//! `root` that their files may be arrays, or lines.
//!
//! Reading goes through `document`: of long files, other threads read blocks ahead and find the
//! members of their events (`ahead`), from a map of strings and brackets made 16 bytes at a time
//! (`structure`); what these cannot answer is scanned byte by byte (`scan`).
//!
//! The base may stand before the events or after them. What is changed is written in the third
//! dialect; what is not changed keeps its very digits, and what is not a time passes byte for byte,
//! be it valid UTF-8 or not.

mod ahead;
mod base;
mod candidate;
mod chrome_json;
mod chunks;
mod decimal;
mod document;
mod edits;
mod event;
mod facts;
mod kept;
mod layout;
mod merge;
mod rewrite;
mod root;
mod rows;
mod scan;
mod source;
mod structure;
mod survey;
mod timing;
mod tracks;
mod valid;
mod words;

use std::path::Path;

pub use base::quarter_before_ns;
pub use chrome_json::ChromeJson;

use super::{
    BYTE_ORDER_MARK, ChunkOptions, ChunkSink, ChunkStats, Evidence, FactOptions, MapFunction, MergeInput, MergeOptions,
    MergeStats, RewriteOptions, RewriteStats, TraceFormat,
};
use crate::Error;
use crate::model::TraceFacts;

/// Chrome JSON as written by PyTorch Kineto.
#[derive(Copy, Clone, Debug)]
pub struct Kineto;

impl TraceFormat for Kineto {
    fn name(&self) -> &'static str {
        "kineto"
    }

    fn profiler_endings(&self) -> &'static [&'static str] {
        &[".pt.trace.json", ".pt.trace.json.gz"]
    }

    fn output_ending(&self) -> &'static str {
        ".json or .json.gz"
    }

    fn leaves_out_events(&self) -> bool {
        true
    }

    fn packs_outputs(&self) -> bool {
        true
    }

    /// JSON begins with a brace or a bracket.
    fn detect(&self, evidence: Evidence<'_>) -> bool {
        match evidence {
            Evidence::Name(name) => name.ends_with(".json"),
            Evidence::Head(head) => {
                let text = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head);
                matches!(text.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
            }
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
