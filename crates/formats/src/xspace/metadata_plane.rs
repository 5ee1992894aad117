//! Our own planes, whose texts state how an output was created.

use super::event::put_stat_metadata;
use super::fields::{plane, stat};
use crate::ALIGNED_PLANE;
use crate::ALIGNED_TO;
use crate::protobuf::{put_bytes, put_number};

/// The plane of an aligned trace; `None` if nothing tells the clock of its times.
pub(super) fn aligned_plane(entries: &[(String, String)]) -> Option<Vec<u8>> {
    let (_, clock) = entries.iter().find(|(key, _)| key == ALIGNED_TO)?;
    Some(metadata_plane(&format!("{ALIGNED_PLANE}{clock}"), ALIGNED_PLANE_ID, entries))
}

/// The clock of an aligned trace, if a plane of this name states it.
pub(super) fn aligned_to(plane: &str) -> Option<&str> {
    plane.strip_prefix(ALIGNED_PLANE)
}

/// A plane that contains texts.
pub(super) fn metadata_plane(name: &str, id: u64, entries: &[(String, String)]) -> Vec<u8> {
    let mut message = Vec::new();
    put_number(&mut message, plane::ID, id);
    put_bytes(&mut message, plane::NAME, name.as_bytes());
    for ((key, _), number) in entries.iter().zip(1..) {
        put_stat_metadata(&mut message, number, key);
    }
    for ((_, value), number) in entries.iter().zip(1..) {
        let mut text = Vec::new();
        put_number(&mut text, stat::METADATA_ID, number);
        put_bytes(&mut text, stat::STRING, value.as_bytes());
        put_bytes(&mut message, plane::STATS, &text);
    }
    message
}

/// The plane with what the caller states about a merge.
pub(super) const METADATA_PLANE: &str = "probe_sync";
/// Above the ids of profilers and of the plane of snapshots.
const ALIGNED_PLANE_ID: u64 = (1 << 20) + 1;
