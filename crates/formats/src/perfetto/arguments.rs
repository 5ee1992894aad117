//! The arguments of events: DebugAnnotations as values, nested ones as JSON.

use serde_json::{Map, Number};

use super::fields as field;
use super::packet::{bytes, inside};
use super::sequences::{Sequence, Texts};
use crate::WantedArgs;
use crate::chunk::{ArgRange, Chunk, Value, lossy};
use crate::protobuf::{Fault, Field, Value as Raw};

/// Adds the wanted ones of an event's arguments to a chunk.
///
/// # Errors
/// One cannot be read.
pub(super) fn put<'a>(
    arguments: impl Iterator<Item = Field<'a>>,
    sequence: &Sequence,
    wanted: WantedArgs,
    chunk: &mut Chunk,
) -> Result<ArgRange, Fault> {
    let first = chunk.args.key.len() as u32;
    for argument in arguments {
        let (key, value) = (key(&argument, sequence)?, value(&argument, sequence, 0)?);
        let Some(value) = value.filter(|_| wanted.takes(key.as_bytes())) else { continue };
        let value = match value {
            serde_json::Value::Bool(value) => Value::Boolean(value),
            serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(value), _) => Value::Integer(value),
                (None, Some(value)) => Value::Unsigned(value),
                (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(text) => Value::Text(chunk.strings.push(&text)),
            // What JSON has no number for.
            serde_json::Value::Null => Value::Float(f64::NAN),
            nested => Value::Json(chunk.strings.push(&nested.to_string())),
        };
        chunk.args.key.push(chunk.strings.intern(&key));
        chunk.args.value.push(value);
    }
    Ok(ArgRange { first, count: chunk.args.key.len() as u32 - first })
}

fn key(argument: &Field<'_>, sequence: &Sequence) -> Result<String, Fault> {
    for found in inside(argument) {
        let found = found?;
        match found.number {
            field::ARGUMENT_KEY_ID => {
                let known = sequence.text(Texts::Key, found.number("name_iid")?);
                return Ok(known.unwrap_or_default().to_owned());
            }
            field::ARGUMENT_KEY => return Ok(lossy(bytes(&found).unwrap_or_default()).into_owned()),
            _ => {}
        }
    }
    Ok(String::new())
}

/// A value; `None` if it states none of a known kind.
fn value(argument: &Field<'_>, sequence: &Sequence, depth: u32) -> Result<Option<serde_json::Value>, Fault> {
    let (mut single, mut entries, mut elements) = (None, Map::new(), Vec::new());
    for found in inside(argument) {
        let found = found?;
        match (found.number, found.value) {
            (field::ARGUMENT_BOOLEAN, Raw::Number(value)) => single = Some((value != 0).into()),
            (field::ARGUMENT_UNSIGNED | field::ARGUMENT_POINTER, Raw::Number(value)) => single = Some(value.into()),
            (field::ARGUMENT_INTEGER, Raw::Number(value)) => single = Some((value as i64).into()),
            (field::ARGUMENT_FLOAT, Raw::Fixed(value)) => {
                let value = value.try_into().map_or(f64::NAN, f64::from_le_bytes);
                single = Some(Number::from_f64(value).map_or(serde_json::Value::Null, serde_json::Value::Number));
            }
            (field::ARGUMENT_TEXT, Raw::Bytes(value)) => single = Some(lossy(value).into()),
            (field::ARGUMENT_TEXT_ID, Raw::Number(number)) => {
                single = sequence.text(Texts::Value, number).map(Into::into);
            }
            (field::ARGUMENT_JSON, Raw::Bytes(value)) => {
                let parsed = serde_json::from_slice(value);
                single = Some(parsed.unwrap_or_else(|_| lossy(value).into()));
            }
            _ if depth >= DEPTH_MAX => {}
            (field::ARGUMENT_ENTRY, _) => {
                let inner = value_of(&found, sequence, depth)?;
                entries.insert(key(&found, sequence)?, inner);
            }
            (field::ARGUMENT_ELEMENT, _) => elements.push(value_of(&found, sequence, depth)?),
            (field::ARGUMENT_NESTED, _) => single = Some(nested(&found, depth + 1)?),
            _ => {}
        }
    }
    Ok(match (elements.is_empty(), entries.is_empty()) {
        (false, _) => Some(elements.into()),
        (true, false) => Some(entries.into()),
        (true, true) => single,
    })
}

fn value_of(argument: &Field<'_>, sequence: &Sequence, depth: u32) -> Result<serde_json::Value, Fault> {
    value(argument, sequence, depth + 1).map(Option::unwrap_or_default)
}

/// A value as older writers nest it.
fn nested(message: &Field<'_>, depth: u32) -> Result<serde_json::Value, Fault> {
    let (mut single, mut keys, mut values, mut elements) = (None, Vec::new(), Vec::new(), Vec::new());
    for found in inside(message) {
        let found = found?;
        match (found.number, found.value) {
            (field::NESTED_KEY, Raw::Bytes(key)) => keys.push(lossy(key).into_owned()),
            (field::NESTED_VALUE, _) if depth < DEPTH_MAX => values.push(nested(&found, depth + 1)?),
            (field::NESTED_ELEMENT, _) if depth < DEPTH_MAX => elements.push(nested(&found, depth + 1)?),
            (field::NESTED_INTEGER, Raw::Number(value)) => single = Some((value as i64).into()),
            (field::NESTED_FLOAT, Raw::Fixed(value)) => {
                single = value.try_into().ok().map(|value| f64::from_le_bytes(value).into());
            }
            (field::NESTED_BOOLEAN, Raw::Number(value)) => single = Some((value != 0).into()),
            (field::NESTED_TEXT, Raw::Bytes(value)) => single = Some(lossy(value).into()),
            _ => {}
        }
    }
    Ok(match (elements.is_empty(), keys.is_empty()) {
        (false, _) => elements.into(),
        (true, false) => keys.into_iter().zip(values).collect::<Map<_, _>>().into(),
        (true, true) => single.unwrap_or_default(),
    })
}

/// Values inside of values.
const DEPTH_MAX: u32 = 32;
