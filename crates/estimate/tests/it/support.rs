//! Where the real measurements are.

use std::path::Path;

/// A file of `../shared/data/probes`; `None`, with a message, if that folder is absent.
pub fn measured(name: &str) -> Option<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/probes").join(name);
    let bytes = std::fs::read(&path).ok();
    if bytes.is_none() {
        println!("skipped: {} is not here", path.display());
    }
    bytes
}
