//! Dumps of PyTorch's Flight Recorder: the last collectives and messages of a rank, as a pickle of
//! format 2.x or as JSON.
//!
//! `probe_sync-hang` reads the file; here its operations become facts and events. Times are
//! CLOCK_REALTIME of the rank's host: enqueues are exact, starts and completions are when the
//! process noticed them, not before they were. An operation with a completion is a slice, any other
//! an instant, and `finished` says whether it was. The rank is the number at the end of the file's
//! name, which the recorder puts there; a dump whose groups lack that rank is refused.
//!
//! Parts of collectives begin at the enqueue: the rank's arrival on the host, never later than on
//! the device. Only operations with members and a completion are parts. A dump is evidence and is
//! not rewritten.

mod chunks;
mod facts;
mod operations;
mod source;

use std::path::Path;

use super::{BYTE_ORDER_MARK, ChunkOptions, ChunkSink, ChunkStats, Evidence, FactOptions, MapFunction, TraceFormat};
use crate::Error;
use crate::model::TraceFacts;

/// Flight Recorder dumps.
#[derive(Copy, Clone, Debug)]
pub struct FlightRecorder;

impl TraceFormat for FlightRecorder {
    fn name(&self) -> &'static str {
        "flight_recorder"
    }

    /// Names of dumps end with the rank; they are only used if named.
    fn profiler_endings(&self) -> &'static [&'static str] {
        &[]
    }

    fn output_ending(&self) -> &'static str {
        ""
    }

    fn packs_outputs(&self) -> bool {
        false
    }

    fn accompanies_traces(&self) -> bool {
        true
    }

    fn detect(&self, evidence: Evidence<'_>) -> bool {
        match evidence {
            Evidence::Name(_) => false,
            Evidence::Head(head) => begins_dump(head),
        }
    }

    fn read_facts(&self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
        facts::read_facts(path, options)
    }

    fn refusal(&self, path: &Path) -> Error {
        Error::Request {
            problem: format!(
                "{}: a Flight Recorder dump records what a process knew, and its times are not rewritten; merge it into a .pftrace or \
                .json file, whose times are on the wanted clock",
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

/// Returns true if a file begins as a pickle, or as a JSON object, with what only the recorder
/// writes.
fn begins_dump(head: &[u8]) -> bool {
    let holds = |text: &[u8]| memchr::memmem::find(head, text).is_some();
    if !WORDS.iter().any(|word| holds(word.as_bytes())) {
        return false;
    }
    match head {
        [0x80, 2..=5, ..] | [b'(', b'd', ..] => true,
        _ => {
            let text = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head).trim_ascii_start();
            let inside =
                text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start).and_then(|text| text.strip_prefix(b"\""));
            let first = inside.and_then(|text| text.split(|byte| *byte == b'"').next());
            first.is_some_and(|first| KEYS.iter().any(|key| key.as_bytes() == first))
                && !OTHERS.iter().any(|key| holds(key.as_bytes()))
        }
    }
}

/// Keys with which a dump may begin.
const KEYS: [&str; 7] =
    ["version", "entries", "pg_config", "pg_status", "nccl_version", "comm_lib_version", "nccl_comm_state"];
/// Keys of Kineto's traces, which may list process groups too.
const OTHERS: [&str; 4] = ["\"traceEvents\"", "\"schemaVersion\"", "\"distributedInfo\"", "\"baseTimeNanoseconds\""];
/// Names that the beginning of a dump contains and that of no other trace does.
const WORDS: [&str; 7] =
    ["pg_config", "pg_status", "collective_seq_id", "record_id", "nccl_version", "comm_lib_version", "nccl_comm_state"];

#[cfg(test)]
mod tests;
