//! What JSON lacks: infinity is written as null, and read back here.
//!
//! Place in the flow: below all rooms, for the fields of reports that may be infinite. What it does not do: write; `serde_json` does.

use serde::{Deserialize, Deserializer};

/// A number, or null for +∞.
pub(crate) fn null_is_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}
