//! A stat: the number of its name, and its value.

use super::fields::stat;
use crate::protobuf::{Fault, Fields, Value};

/// A stat, parsed.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Stat<'a> {
    /// The number of its metadata.
    pub(super) number: u64,
    /// Its value.
    pub(super) value: StatValue<'a>,
}

/// A stat's value, as far as anyone here looks at it.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum StatValue<'a> {
    /// `uint64_value` or `int64_value`.
    Number(u64),
    /// `str_value`.
    Text(&'a [u8]),
    /// `ref_value`: the name of a stat's metadata.
    Reference(u64),
    /// Anything else, or nothing.
    Other,
}

impl<'a> Stat<'a> {
    /// Parses a stat.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Stat<'a>, Fault> {
        let mut parsed = Stat { number: 0, value: StatValue::Other };
        for field in Fields::of(bytes) {
            let field = field?;
            match (field.number, field.value) {
                (stat::METADATA_ID, _) => parsed.number = field.number("a stat's metadata_id")?,
                (stat::UINT64 | stat::INT64, Value::Number(value)) => parsed.value = StatValue::Number(value),
                (stat::STRING, Value::Bytes(text)) => parsed.value = StatValue::Text(text),
                (stat::REFERENCE, Value::Number(value)) => parsed.value = StatValue::Reference(value),
                _ => {}
            }
        }
        Ok(parsed)
    }
}
