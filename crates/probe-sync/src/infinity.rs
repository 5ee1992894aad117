//! Serialisation of infinity, which JSON lacks: it is written as null and read back here.

use serde::{Deserialize, Deserializer};

/// Deserializes a number; null is +∞.
pub(crate) fn null_is_infinite<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}
