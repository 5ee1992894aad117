//! The options for reading a trace as chunks.

use crate::calibrate::CalibratedTrace;
use crate::formats::ChunkOptions;
use crate::model::TraceFacts;

/// For trace number `part` of the conversion; `wanted` is the same for all.
pub(super) fn of(calibrated: &CalibratedTrace, part: usize, wanted: &ChunkOptions) -> ChunkOptions {
    let TraceFacts { identity, reach, .. } = &calibrated.trace.facts;
    let host = identity.hostname.clone().unwrap_or_default();
    ChunkOptions { part: part as u32, host, rank: identity.rank, reach: *reach, ..wanted.clone() }
}
