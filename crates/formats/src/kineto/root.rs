//! The root of a file: an object with `traceEvents`, an array of events, or events one after the
//! other, each on a line of its own.
//!
//! Writers of arrays and lines may end without a closing bracket, because they append until they are
//! stopped; a comma may be missing between lines, and follow the last event.

use super::event::Separator;
use super::scan::{self, ByteScan, Ends, Fault};
use crate::BYTE_ORDER_MARK;

/// The kind of a root.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// An object that holds the events under a key.
    Object,
    Array,
    /// No bracket around the events.
    Lines,
}

impl Root {
    /// Finds the root, and the length up to its opening bracket, or to the first event of lines;
    /// `None` if more bytes are needed.
    pub(super) fn find(bytes: &[u8]) -> Result<Option<(usize, Root)>, Fault> {
        let mark = if bytes.starts_with(&BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let at = scan::skip_space(bytes, mark);
        match bytes.get(at) {
            None => Ok(None),
            Some(b'{') if is_first_line(bytes, at) => Ok(Some((at, Root::Lines))),
            Some(b'{') => Ok(Some((at + 1, Root::Object))),
            Some(b'[') => Ok(Some((at + 1, Root::Array))),
            Some(_) => Err(Fault { at, problem: "not a trace: the root is neither a JSON object nor an array" }),
        }
    }

    /// Returns what separates its events, after the first one.
    pub(super) fn separator(self) -> Separator {
        if self == Root::Object { Separator::Comma } else { Separator::Loose }
    }

    /// Returns true if the events may end where these bytes do, without a bracket.
    pub(super) fn may_end_with(self, bytes: &[u8]) -> bool {
        let at = scan::skip_space(bytes, 0);
        let at = if bytes.get(at) == Some(&b',') { scan::skip_space(bytes, at + 1) } else { at };
        self != Root::Object && at == bytes.len()
    }
}

/// Returns true if the object that opens at `at` is an event with another one behind it. Only what is
/// in the buffer counts: the first event of a file of lines is short.
fn is_first_line(bytes: &[u8], at: usize) -> bool {
    let Ok(Some(end)) = ByteScan.nested(bytes, at) else { return false };
    let next = scan::skip_space(bytes, end);
    let has_key = |key: &[u8]| memchr::memmem::find(&bytes[at..end], key).is_some();
    bytes.get(next) == Some(&b'{') && has_key(b"\"ph\"") && !has_key(b"\"traceEvents\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_told_by_its_first_bytes() {
        let check = |text: &str, expected: Option<(usize, Root)>| {
            assert_eq!(Root::find(text.as_bytes()).expect("a root"), expected, "{text}");
        };
        check(" \n", None);
        check(" {\"traceEvents\": [", Some((2, Root::Object)));
        check("\n[\n{\"ph\":", Some((2, Root::Array)));
        check("\u{feff}[]", Some((4, Root::Array)));
        check("{\"ph\":\"X\"}\n{\"ph\":", Some((0, Root::Lines)));
        // Whether more follows is not known yet, and other objects are no events.
        check("{\"ph\":\"X\"}\n", Some((1, Root::Object)));
        check("{\"a\":1}\n{\"ph\":", Some((1, Root::Object)));
        check("{\"traceEvents\":[{\"ph\":1}]}\n{", Some((1, Root::Object)));
        assert!(Root::find(b"3").is_err());
        for (text, expected) in [("\n", true), (" , \n", true), (",,", false), ("{", false)] {
            assert_eq!(Root::Lines.may_end_with(text.as_bytes()), expected, "{text}");
        }
        assert!(!Root::Object.may_end_with(b""));
    }
}
