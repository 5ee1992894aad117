//! The protobuf wire format: tags, varints and the fields of a message in memory, and a file of any
//! size as a `Source` of fields.
//!
//! Reference: the "Encoding" chapter of the Protocol Buffers documentation. Groups (wire types 3
//! and 4) are rejected, because none of these files has any.

mod source;

pub use source::{Header, RawHeader, Run, Source};

/// A varint, as its value and its width; `None` when it is cut short or longer than 64 bits.
#[inline(always)]
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    // Most longer ones are times, which end within eight bytes and have more bytes behind them.
    if let Some(word) = bytes.first_chunk() {
        let word = u64::from_le_bytes(*word);
        let ends = !word & CONTINUATION_BITS;
        if ends != 0 {
            let number = word & (ends ^ (ends - 1)) & !CONTINUATION_BITS;
            return Some((joined(number), ends.trailing_zeros() as usize / 8 + 1));
        }
    }
    bytewise_varint(bytes)
}

/// A varint of more than one byte near the end of `bytes`, or a very long one.
fn bytewise_varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(VARINT_MAX).enumerate() {
        if index == VARINT_MAX - 1 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            return Some((value, index + 1));
        }
    }
    None
}

/// Joins eight groups of seven bits, one in each byte, to a number of 56 bits.
#[inline(always)]
fn joined(groups: u64) -> u64 {
    let pairs = groups & 0x007f_007f_007f_007f | (groups & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4
}

/// Splits a number of 56 bits into eight groups of seven bits, one in each byte.
#[inline(always)]
fn split(number: u64) -> u64 {
    let fours = number & 0x0fff_ffff | (number & 0x00ff_ffff_f000_0000) << 4;
    let pairs = fours & 0x0000_3fff_0000_3fff | (fours & 0x0fff_c000_0fff_c000) << 2;
    pairs & 0x007f_007f_007f_007f | (pairs & 0x3f80_3f80_3f80_3f80) << 1
}

/// Number of bytes of the shortest varint of `value`.
#[inline]
pub fn varint_width(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Appends the shortest varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    if value < 0x80 {
        out.push(value as u8);
        return;
    }
    let width = varint_width(value);
    if width <= 8 {
        let continued = CONTINUATION_BITS & ((1 << (8 * (width - 1))) - 1);
        let end = out.len() + width;
        // Eight bytes at once, of which the last ones are dropped: one move instead of a loop.
        out.extend_from_slice(&(split(value) | continued).to_le_bytes());
        out.truncate(end);
        return;
    }
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Replaces a varint by that of `value`, which has as many bytes.
#[inline]
pub(crate) fn overwrite_varint(place: &mut [u8], mut value: u64) {
    if let [continued @ .., last] = place {
        for byte in continued {
            *byte = value as u8 | 0x80;
            value >>= 7;
        }
        *last = value as u8;
    }
}

/// A varint of exactly `width` bytes, padded if `value` needs fewer; legal protobuf, though not the
/// shortest.
pub fn padded_varint(mut value: u64, width: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(width);
    for index in 0..width {
        let more = if index + 1 < width { 0x80 } else { 0 };
        out.push((value & 0x7f) as u8 | more);
        value >>= 7;
    }
    out
}

/// Appends a varint field.
pub fn put_number(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number) << 3);
    put_varint(out, value);
}

/// Appends a field of bytes.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// One field of a message in memory.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Field<'a> {
    /// Field number.
    pub number: u32,
    /// Value.
    pub value: Value<'a>,
    /// Position of its tag in the message.
    pub at: usize,
    /// Position of its value: after the tag (numbers) or after the length (bytes).
    pub value_at: usize,
    /// Position of the next field.
    pub end: usize,
}

/// Value of a field.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Wire type 0.
    Number(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire types 1 and 5.
    Fixed(&'a [u8]),
}

impl<'a> Field<'a> {
    /// The value of a field that must be a number.
    pub fn number(&self, name: &str) -> Result<u64, Fault> {
        match self.value {
            Value::Number(value) => Ok(value),
            _ => Err(Fault { at: self.at, problem: format!("{name} is not a number") }),
        }
    }
}

/// What is wrong with a message, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bytes from the start of the message.
    pub at: usize,
    /// A sentence without a full stop.
    pub problem: String,
}

impl Fault {
    /// A fault of a whole message.
    pub fn new(problem: impl Into<String>) -> Fault {
        Fault { at: 0, problem: problem.into() }
    }

    /// The same fault, relative to a message that contains this one at `start`.
    pub fn within(self, start: usize) -> Fault {
        Fault { at: self.at + start, ..self }
    }
}

/// The fields of a message in memory, in order.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    /// Iterates over the fields of `message`.
    pub fn of(message: &'a [u8]) -> Fields<'a> {
        Fields { message, at: 0 }
    }

    /// Ends the iteration with a fault.
    #[cold]
    fn fault(&mut self, problem: impl Into<String>) -> Option<Result<Field<'a>, Fault>> {
        let at = self.at;
        self.at = self.message.len();
        Some(Err(Fault { at, problem: problem.into() }))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Fault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        if at >= self.message.len() {
            return None;
        }
        let Some((tag, tag_width)) = varint(&self.message[at..]) else {
            return self.fault("a field's tag is truncated or too long");
        };
        let Some(number) = field_number(tag) else {
            return self.fault(bad_tag(tag));
        };
        let after_tag = at + tag_width;
        let rest = &self.message[after_tag..];
        let (value, value_at, end) = match tag & 7 {
            0 => match varint(rest) {
                Some((value, width)) => (Value::Number(value), after_tag, after_tag + width),
                None => return self.fault("a number is truncated or longer than 64 bits"),
            },
            2 => {
                let Some((length, width)) = varint(rest) else {
                    return self.fault("a length is truncated or longer than 64 bits");
                };
                let value_at = after_tag + width;
                if length > (self.message.len() - value_at) as u64 {
                    return self.fault(format!("a length of {length} bytes extends past the end of its message"));
                }
                let end = value_at + length as usize;
                (Value::Bytes(&self.message[value_at..end]), value_at, end)
            }
            wire => {
                let size = if wire == 1 { 8 } else { 4 };
                let Some(value) = rest.get(..size) else {
                    return self.fault("a fixed-size number is truncated");
                };
                (Value::Fixed(value), after_tag, after_tag + size)
            }
        };
        self.at = end;
        Some(Ok(Field { number, value, at, value_at, end }))
    }
}

/// The field number of a tag whose number and wire type these files can have.
#[inline]
pub fn field_number(tag: u64) -> Option<u32> {
    let number = tag >> 3;
    let known_type = matches!(tag & 7, 0 | 1 | 2 | 5);
    (known_type && number > 0 && number < 1 << 29).then_some(number as u32)
}

/// Why [`field_number`] refused a tag.
pub fn bad_tag(tag: u64) -> String {
    let (number, wire) = (tag >> 3, tag & 7);
    format!("not the expected protobuf: field {number} has wire type {wire}")
}

/// The bit in each of eight bytes that says that another byte follows.
const CONTINUATION_BITS: u64 = 0x8080_8080_8080_8080;
/// Bytes of the longest varint.
pub const VARINT_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes, decodes, and compares the width with the predicted one.
    fn check_varint(value: u64) {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(varint(&out), Some((value, out.len())));
        assert_eq!(varint_width(value), out.len(), "{value}");
        let padded = padded_varint(value, VARINT_MAX);
        assert_eq!(varint(&padded), Some((value, VARINT_MAX)), "{value} padded");
        let width = out.len();
        for cut in 0..width {
            assert_eq!(varint(&out[..cut]), None, "{value} cut");
        }
        // Whatever follows, and however the bytes are read.
        assert_eq!(bytewise_varint(&out), Some((value, width)));
        out.extend([0xff; VARINT_MAX]);
        assert_eq!(varint(&out), Some((value, width)), "{value} before others");
        let mut written = vec![1];
        put_varint(&mut written, value);
        assert_eq!(written[1..], out[..width], "{value} behind another");
    }

    #[test]
    fn varints_survive_at_every_width() {
        for bits in 0..64 {
            let value = 1u64 << bits;
            for value in [value - 1, value, value + 1, u64::MAX] {
                check_varint(value);
            }
        }
    }

    #[test]
    fn malformed_messages_are_named_with_their_place() {
        let check = |bytes: &[u8], at: usize, part: &str| {
            let fault = Fields::of(bytes).find_map(Result::err).expect("a fault");
            assert_eq!(fault.at, at, "{bytes:?}");
            assert!(fault.problem.contains(part), "{}", fault.problem);
        };
        check(&[0x08], 0, "number is truncated");
        check(&[0x08, 0x01, 0x12, 0x05, 0x00], 2, "5 bytes extends past");
        check(&[0x0b], 0, "wire type 3");
        check(&[0x00, 0x00], 0, "field 0");
        check(&[0x09, 1, 2, 3], 0, "fixed-size number");
        check(&[0x80], 0, "tag");
        check(&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], 0, "64 bits");
    }
}
