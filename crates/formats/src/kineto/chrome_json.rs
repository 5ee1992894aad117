//! Chrome's JSON of programs other than Kineto: what is known of their files.
//!
//! | writer | root | clock of `ts` |
//! |---|---|---|
//! | VizTracer | object with `viztracer_metadata` | CLOCK_MONOTONIC, and since 1.0 how far the system clock was ahead |
//! | dftracer (`*.pfw`) | array or lines, which may be unclosed; phases by number in 2.2 | system clock, whole microseconds |
//! | others | object or array | not stated: Unix times are taken as the system clock's, others need pairs or markers |
//!
//! Everything else is as in Kineto's files.

use std::path::Path;

use super::Kineto;
use crate::model::TraceFacts;
use crate::{
    BYTE_ORDER_MARK, ChunkOptions, ChunkSink, ChunkStats, Error, Evidence, FactOptions, MapFunction, MergeInput,
    MergeOptions, MergeStats, RewriteOptions, RewriteStats, TraceFormat,
};

/// Chrome's JSON as written by programs other than Kineto.
#[derive(Copy, Clone, Debug)]
pub struct ChromeJson;

impl TraceFormat for ChromeJson {
    fn name(&self) -> &'static str {
        "chrome"
    }

    fn profiler_endings(&self) -> &'static [&'static str] {
        &[".pfw", ".pfw.gz"]
    }

    fn output_ending(&self) -> &'static str {
        Kineto.output_ending()
    }

    fn packs_outputs(&self) -> bool {
        true
    }

    fn leaves_out_events(&self) -> bool {
        true
    }

    /// By dftracer's name; otherwise by the first bytes, if they hold events and nothing that Kineto
    /// states before its events.
    fn detect(&self, evidence: Evidence<'_>) -> bool {
        let head = match evidence {
            Evidence::Name(name) => return name.ends_with(".pfw"),
            Evidence::Head(head) => head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head).trim_ascii_start(),
        };
        let place = |text: &[u8]| memchr::memmem::find(head, text);
        let has_events = || place(b"\"ph\"").is_some();
        match head.first() {
            Some(b'[') => has_events(),
            Some(b'{') => match place(b"\"traceEvents\"") {
                Some(events) => !OF_KINETO.iter().any(|key| place(key).is_some_and(|at| at < events)),
                // An object behind an event: each is on a line of its own.
                None => has_events() && memchr::memmem::find(head, b"}\n{").is_some(),
            },
            _ => false,
        }
    }

    fn read_facts(&self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
        Kineto.read_facts(path, options)
    }

    fn rewrite(
        &self,
        input: &Path,
        output: &Path,
        options: &RewriteOptions<'_>,
        map: &mut MapFunction<'_>,
    ) -> Result<RewriteStats, Error> {
        Kineto.rewrite(input, output, options, map)
    }

    fn merge(&self, inputs: &mut [MergeInput<'_>], output: &Path, options: &MergeOptions) -> Result<MergeStats, Error> {
        Kineto.merge(inputs, output, options)
    }

    fn read_chunks(
        &self,
        path: &Path,
        options: &ChunkOptions,
        map: &mut MapFunction<'_>,
        sink: &mut ChunkSink<'_>,
    ) -> Result<ChunkStats, Error> {
        Kineto.read_chunks(path, options, map, sink)
    }
}

/// Keys that Kineto writes before its events, with their quotes.
const OF_KINETO: [&[u8]; 4] =
    [b"\"schemaVersion\"", b"\"deviceProperties\"", b"\"distributedInfo\"", b"\"baseTimeNanoseconds\""];

#[cfg(test)]
mod tests {
    use super::super::base::BASE_KEY;
    use super::*;

    #[test]
    fn what_kineto_states_makes_a_file_its_own() {
        let check = |head: &str, expected: bool| {
            assert_eq!(ChromeJson.detect(Evidence::Head(head.as_bytes())), expected, "{head}");
        };
        check(r#" {"traceEvents": [{"ph": "M", "pid": 1"#, true);
        check(r#"{"schemaVersion": 1, "traceEvents": [{"ph": "M""#, false);
        check(r#"{"baseTimeNanoseconds": 0, "traceEvents": []}"#, false);
        check(r#"{"traceEvents": [], "schemaVersion": 1}"#, true);
        // Kineto's metadata may be longer than what is looked at.
        check(r#"{"metadata": {"num_errors": 0"#, false);
        check("\u{feff}[\n{\"name\": \"a\", \"ph\": \"X\"", true);
        check("[]", false);
        check("[1, 2]", false);
        check("{\"name\":\"HH\",\"ph\":4}\n{\"name\":\"a\",\"ph\":1", true);
        check("{\"version\": 2}\n{\"a\": 1}", false);
        assert!(ChromeJson.detect(Evidence::Name("rank0.pfw")));
        assert!(OF_KINETO[3][1..].starts_with(BASE_KEY));
    }
}
