//! Events of Kineto's JSON as candidates for parts of operations.

use std::borrow::Cow;

use super::scan::{self, EventSpans, Fault};
use super::words;
use crate::chunk::lossy;
use crate::torch_operations::{Candidate, Params};

/// An event in its bytes.
pub(super) struct EventInBytes<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) spans: &'a EventSpans,
}

impl Candidate for EventInBytes<'_> {
    type Fault = Fault;

    #[inline]
    fn name(&self) -> &[u8] {
        unquoted(self.spans.name.of(self.bytes))
    }

    #[inline]
    fn category(&self) -> &[u8] {
        words::category(self.spans.cat.of(self.bytes))
    }

    fn track(&self) -> Vec<u8> {
        [words::number(self.spans.pid.of(self.bytes)), b" ", words::number(self.spans.tid.of(self.bytes))].concat()
    }

    fn names_operation(&self) -> bool {
        memchr::memmem::find(self.spans.args.of(self.bytes), b"\"Collective name\"").is_some()
    }

    fn params(&self) -> Result<Params<'_>, Fault> {
        let (mut params, args) = (Params::default(), self.spans.args);
        if args.of(self.bytes).first() == Some(&b'{') {
            scan::object(&self.bytes[..args.end()], args.start(), |key, value| {
                params.add(key, || text_of(&self.bytes[value]));
                Ok(())
            })?;
        }
        Ok(params)
    }
}

/// A string without its quotes, or another value as it is.
pub(super) fn text(value: &[u8]) -> String {
    text_of(value).into_owned()
}

fn text_of(value: &[u8]) -> Cow<'_, str> {
    lossy(unquoted(value))
}

#[inline]
fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] => inner,
        other => other,
    }
}
