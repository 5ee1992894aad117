//! Logs of the NCCL Inspector, a profiler plugin of NCCL 2.28 and later and of RCCL: a JSON object
//! per line and finished operation.
//!
//! Only verbose logs (`NCCL_INSPECTOR_DUMP_VERBOSE=1`) say when an operation was. Every stamp is
//! gettimeofday of the host, µs: the host read it in a call of NCCL (`coll_start_ts`, right after
//! the launch) or when NCCL's proxy thread noticed that a channel of the kernel had begun or ended.
//! The device's own timer only measures `coll_exec_time_us`. A line whose stamps contradict each
//! other is left out; `operation` lists the rules.
//!
//! Parts of collectives are matched by communicator, function and `coll_sn`, which NCCL counts
//! for each function. Members of communicators are not listed, so that only operations seen on all
//! `n_ranks` processes are compared. A log is evidence and is not rewritten.

mod chunks;
mod facts;
mod lines;
mod operation;
mod survey;

use std::path::Path;

use super::{BYTE_ORDER_MARK, ChunkOptions, ChunkSink, ChunkStats, Evidence, FactOptions, MapFunction, TraceFormat};
use crate::Error;
use crate::model::TraceFacts;

/// Logs of the NCCL Inspector.
#[derive(Copy, Clone, Debug)]
pub struct NcclInspector;

impl TraceFormat for NcclInspector {
    fn name(&self) -> &'static str {
        "nccl_inspector"
    }

    /// Logs are called `HOST-pidPID.log`; they are only used if named.
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
            Evidence::Head(head) => begins_log(head),
        }
    }

    fn read_facts(&self, path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
        facts::read_facts(path, options)
    }

    fn refusal(&self, path: &Path) -> Error {
        Error::Request {
            problem: format!(
                "{}: a log of the NCCL Inspector is evidence, and its times are not rewritten; merge it into a .pftrace or .json \
                file, whose times are on the wanted clock",
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

/// Returns true if a file begins with an object whose first member is `header`, and contains what
/// the plugin writes next.
fn begins_log(head: &[u8]) -> bool {
    let text = head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head).trim_ascii_start();
    let inside = text.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let holds = |key: &&str| memchr::memmem::find(head, key.as_bytes()).is_some();
    inside.is_some_and(|text| text.starts_with(b"\"header\"")) && KEYS.iter().any(holds)
}

/// Keys of a line's second or third member.
const KEYS: [&str; 3] = ["\"inspector_output_format_version\"", "\"coll_perf\"", "\"p2p_perf\""];

#[cfg(test)]
mod tests;
