//! Changes of fields of a message, whose other bytes are copied.

use std::ops::Range;

use super::packet::bytes;
use crate::protobuf::{Field, Value, put_bytes, put_varint};

/// Changes of one message, in the order of its fields.
#[derive(Debug, Default)]
pub(super) struct Edits(Vec<(Range<usize>, Vec<u8>)>);

impl Edits {
    /// Gives a field another number.
    pub(super) fn number(&mut self, field: &Field<'_>, new: u64) {
        if field.value != Value::Number(new) {
            let mut number = Vec::new();
            put_varint(&mut number, new);
            self.0.push((field.value_at..field.end, number));
        }
    }

    /// Gives a field other bytes.
    pub(super) fn bytes(&mut self, field: &Field<'_>, new: &[u8]) {
        if field.value != Value::Bytes(new) {
            let mut whole = Vec::with_capacity(new.len() + 8);
            put_bytes(&mut whole, field.number, new);
            self.0.push((field.at..field.end, whole));
        }
    }

    /// Changes the message in a field.
    pub(super) fn message(&mut self, field: &Field<'_>, inner: Edits) {
        if let Some(new) = bytes(field).and_then(|message| inner.apply(message)) {
            self.bytes(field, &new);
        }
    }

    /// Adds a field after the end of `message`.
    pub(super) fn append(&mut self, message: &[u8], field: Vec<u8>) {
        self.0.push((message.len()..message.len(), field));
    }

    /// The changed message; `None` if nothing changes.
    pub(super) fn apply(self, message: &[u8]) -> Option<Vec<u8>> {
        if self.0.is_empty() {
            return None;
        }
        let mut new = Vec::with_capacity(message.len() + 16 * self.0.len());
        let mut copied = 0;
        for (place, replacement) in self.0 {
            new.extend_from_slice(&message[copied..place.start]);
            new.extend_from_slice(&replacement);
            copied = place.end;
        }
        new.extend_from_slice(&message[copied..]);
        Some(new)
    }
}
