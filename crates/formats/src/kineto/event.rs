//! A single event: its bytes and the positions of its members, and how it is found.
//!
//! It does not read values.

use super::layout::Layouts;
use super::scan::{self, EventSpans, Fault, Member};
use super::structure::StructureView;
use super::valid::is_valid;

/// One event.
pub(super) struct Event<'a> {
    /// Comma and white space before it.
    pub(super) lead: &'a [u8],
    /// From brace to brace.
    pub(super) bytes: &'a [u8],
    /// Positions of its members in `bytes`.
    pub(super) spans: &'a EventSpans,
    /// Position in the file.
    pub(super) offset: u64,
    /// Finds what is in `bytes`.
    pub(super) ends: StructureView<'a>,
}

impl Event<'_> {
    /// Its bytes, its position in the file, and whether strings and scalars are valid JSON.
    #[inline]
    pub(super) fn judged(&self) -> (&[u8], u64, bool) {
        let is_valid = self.ends.is_surely_valid(self.bytes.len()) || is_valid(self.bytes);
        (self.bytes, self.offset, is_valid)
    }
}

/// What separates events.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    /// Nothing: no event precedes.
    Nothing,
    Comma,
    /// A comma or white space, as in files of one event per line; after the last one, too.
    Loose,
}

/// The next event: what precedes it, and its members; or the bracket behind the last one. `None`
/// if more bytes are needed.
pub(super) fn find_event(
    bytes: &[u8],
    separator: Separator,
    ends: StructureView<'_>,
    layouts: &mut Layouts<Member>,
) -> Result<Option<(usize, Option<EventSpans>)>, Fault> {
    let mut at = scan::skip_space(bytes, 0);
    match bytes.get(at) {
        None => return Ok(None),
        Some(b']') => return Ok(Some((at + 1, None))),
        Some(b',') if separator != Separator::Nothing => at = scan::skip_space(bytes, at + 1),
        Some(_) if separator != Separator::Comma => {}
        Some(_) => return Err(Fault { at, problem: "a comma or the end of traceEvents was expected here" }),
    }
    match bytes.get(at) {
        None => Ok(None),
        Some(b']') if separator == Separator::Loose => Ok(Some((at + 1, None))),
        Some(b'{') => match layouts.event(&bytes[at..], &ends.moved(at)) {
            Ok(spans) => Ok(spans.map(|spans| (at, Some(spans)))),
            Err(fault) => Err(Fault { at: at + fault.at, ..fault }),
        },
        Some(_) => Err(Fault { at, problem: "an event that is not an object" }),
    }
}
