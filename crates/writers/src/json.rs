//! Writes pieces of JSON as bytes: numbers, texts, microseconds and arguments.
//!
//! In Chrome's JSON, numbers above 2^53 are written as texts because its readers parse numbers as
//! doubles; in Kineto's they are numbers, as PyTorch writes them.

use probe_sync_formats::chunk::{ArgRange, Chunk, Value};

/// How to write integers that a double cannot represent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Large {
    Texts,
    Numbers,
}

/// Appends the arguments of an event as a member, preceded by a comma, with `more` that are not
/// among the chunk's; nothing if there are none.
#[inline]
pub(super) fn put_args(out: &mut Vec<u8>, chunk: &Chunk, range: ArgRange, more: &[(&str, i64)], large: Large) {
    if range.count == 0 && more.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"args\":");
    let mut separator = b'{';
    for index in range.first as usize..(range.first + range.count) as usize {
        out.push(separator);
        separator = b',';
        put_text(out, chunk.strings.text(chunk.args.key[index]));
        out.push(b':');
        match chunk.args.value[index] {
            Value::Integer(value) if large == Large::Numbers || value.unsigned_abs() <= EXACT_MAX => {
                put_integer(out, value);
            }
            Value::Unsigned(value) if large == Large::Numbers => put_unsigned(out, value),
            Value::Integer(value) => put_text(out, &value.to_string()),
            Value::Unsigned(value) => put_text(out, &value.to_string()),
            Value::Float(value) => put_float(out, value),
            Value::Boolean(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
            Value::Text(id) => put_text(out, chunk.strings.text(id)),
            Value::Json(id) => put_json(out, chunk.strings.text(id)),
        }
    }
    for (key, value) in more {
        out.push(separator);
        separator = b',';
        put_text(out, key);
        out.push(b':');
        put_integer(out, *value);
    }
    out.push(b'}');
}

/// A number of nanoseconds as microseconds.
#[inline]
pub(super) fn put_microseconds(out: &mut Vec<u8>, ns: i128) {
    if ns < 0 {
        out.push(b'-');
    }
    let magnitude = ns.unsigned_abs() as u64;
    put_unsigned(out, magnitude / 1000);
    let rest = (magnitude % 1000) as u32;
    out.extend_from_slice(&[b'.', b'0' + (rest / 100) as u8, b'0' + (rest / 10 % 10) as u8, b'0' + (rest % 10) as u8]);
}

/// Appends an integer.
#[inline]
pub(super) fn put_integer(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    put_unsigned(out, value.unsigned_abs());
}

#[inline]
fn put_unsigned(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a number; JSON has no infinity and no NaN, so these become texts.
pub(super) fn put_float(out: &mut Vec<u8>, value: f64) {
    if value.is_finite() {
        // Both digits and exponents as JSON reads them.
        out.extend_from_slice(format!("{value:?}").as_bytes());
    } else {
        put_text(out, &value.to_string());
    }
}

/// An array or object as it is, except for control characters inside its strings, which profilers
/// write and JSON forbids.
fn put_json(out: &mut Vec<u8>, json: &str) {
    if json.bytes().all(|byte| byte >= 0x20) {
        out.extend_from_slice(json.as_bytes());
        return;
    }
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        if byte < 0x20 && in_string {
            out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            out.push(byte);
        }
        in_string ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
    }
}

/// A JSON string.
#[inline]
pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut copied = 0;
    for (index, &byte) in bytes.iter().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[copied..index]);
        copied = index + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
        }
    }
    out.extend_from_slice(&bytes[copied..]);
    out.push(b'"');
}

/// The largest integer up to which a double represents all of them.
const EXACT_MAX: u64 = 1 << 53;
