//! The options for reading a trace as chunks.

use probe_sync_formats::ChunkOptions;
use probe_sync_formats::model::TraceFacts;

use crate::calibrated::CalibratedTrace;

/// For trace number `part` of the conversion; `wanted` is the same for all.
pub(crate) fn chunk_options(calibrated: &CalibratedTrace, part: usize, wanted: &ChunkOptions) -> ChunkOptions {
    let TraceFacts { identity, reach, base_ns, .. } = &calibrated.trace.facts;
    let host = identity.hostname.clone().unwrap_or_default();
    ChunkOptions { part: part as u32, host, rank: identity.rank, reach: *reach, base_ns: *base_ns, ..wanted.clone() }
}
