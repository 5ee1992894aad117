//! Entry points for fuzz targets into parsers that are otherwise private.
//!
//! Only the package in `fuzz/` enables this (feature `fuzzing`). It is not part of the public API.

use probe_sync_lines::NodeWindow;

use crate::join::{Hello, Notice, Ready, Statement};
use crate::measure::account::RankAccount;
use crate::round::messages::Broadcast;
use crate::wire;

/// Decodes the bytes as every type that a rank receives from another. The first byte is replaced by
/// the current version, because seeds outlive the version that wrote them.
///
/// # Panics
/// Panics if accepted bytes do not survive a round trip through encoding and decoding.
pub fn round_messages(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    bytes.iter_mut().take(1).for_each(|version| *version = wire::WIRE_VERSION);
    let bytes = bytes.as_slice();
    if let Ok(value) = wire::decode::<NodeWindow>(bytes, 1) {
        let again = wire::encode(&value);
        let twice = wire::decode::<NodeWindow>(&again, 1).map(|value| wire::encode(&value));
        assert_eq!(twice.ok(), Some(again));
    }
    let _ = wire::decode::<Broadcast>(bytes, 1);
    let _ = wire::decode::<RankAccount>(bytes, 1);
    let _ = wire::decode::<Result<Hello, String>>(bytes, 1);
    let _ = wire::decode::<Option<Result<Ready, String>>>(bytes, 1);
    let _ = wire::decode::<Notice>(bytes, 1);
    let _ = wire::decode::<Result<Statement, String>>(bytes, 1);
}
