//! Replacements within one event, applied in one copy.
//!
//! Buffers are reused from event to event.

use std::ops::Range;

/// Replacements that do not overlap, in any order.
#[derive(Default)]
pub(super) struct Edits {
    list: Vec<(Range<usize>, Range<usize>)>,
    scratch: Vec<u8>,
}

impl Edits {
    /// Forgets everything.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.scratch.clear();
    }

    /// Replaces `span` by what `write` appends; an empty span inserts.
    #[inline]
    pub(super) fn replace(&mut self, span: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.scratch.len();
        write(&mut self.scratch);
        self.list.push((span, from..self.scratch.len()));
    }

    /// Appends `bytes` to `out`, with the changes.
    #[inline]
    pub(super) fn apply(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.list.sort_by_key(|(span, _)| span.start);
        let mut done = 0;
        for (span, with) in &self.list {
            out.extend_from_slice(&bytes[done..span.start]);
            out.extend_from_slice(&self.scratch[with.clone()]);
            done = span.end;
        }
        out.extend_from_slice(&bytes[done..]);
    }
}
