//! Detects invalid JSON values (`NaN`, control characters in strings, invalid UTF-8) in copied text
//! and repairs them on request.
//!
//! `rewrite` and `merge` pass everything that they copy to it. PyTorch writes such values, and most
//! viewers accept them; strict readers reject the whole file. [`is_valid`] checks a valid file at
//! little cost; [`Mender`] works byte by byte, and only on invalid text. It does not repair
//! brackets or commas.

use super::scan;

/// Values that are no JSON, by kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Invalid {
    /// `NaN`, `inf` and anything else in place of a number.
    values: u64,
    control_characters: u64,
    bytes: u64,
    escapes: u64,
    first_at: Option<u64>,
}

impl Invalid {
    /// A note for the user; `None` if everything is valid.
    pub(super) fn note(&self, repaired: bool) -> Option<String> {
        let kinds = [
            (self.values, "values such as NaN"),
            (self.control_characters, "control characters in strings"),
            (self.bytes, "bytes that are not UTF-8"),
            (self.escapes, "unknown escapes"),
        ];
        let found: Vec<String> =
            kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
        let first = self.first_at.map_or_else(String::new, |at| format!(", the first in the event at byte {at}"));
        let fate = if repaired { "repaired" } else { "copied unchanged; use --repair to write valid JSON" };
        (!found.is_empty()).then(|| format!("not valid JSON: {}{first}: {fate}", found.join(", ")))
    }

    fn count(&self) -> u64 {
        self.values + self.control_characters + self.bytes + self.escapes
    }
}

/// Data passed from a file to an output.
#[derive(Debug, Default)]
pub(super) struct Passing {
    repair: bool,
    invalid: Invalid,
    /// State of the value that passes in pieces.
    mender: Mender,
    changed: Vec<u8>,
}

impl Passing {
    pub(super) fn new(repair: bool) -> Self {
        Self { repair, ..Self::default() }
    }

    /// What was found.
    pub(super) fn note(&self) -> Option<String> {
        self.invalid.note(self.repair)
    }

    /// Checks the event at byte `at` of the file, and lets `write` append the result; `is_valid`:
    /// whether its strings and scalars are valid JSON.
    ///
    /// # Errors
    /// Returns an error if it is to be repaired, and its brackets or commas are wrong.
    #[inline]
    pub(super) fn event(
        &mut self,
        (event, at, is_valid): (&[u8], u64, bool),
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), &'static str> {
        if !self.repair {
            if !is_valid {
                self.mended(event, at, &mut Vec::new());
            }
            write(out);
            return Ok(());
        }
        self.changed.clear();
        write(&mut self.changed);
        let written = std::mem::take(&mut self.changed);
        let from = out.len();
        if is_valid {
            out.extend_from_slice(&written);
        } else {
            self.mended(&written, at, out);
        }
        self.changed = written;
        let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(&out[from..]).is_ok();
        if is_whole { Ok(()) } else { Err(BEYOND_REPAIR) }
    }

    /// Appends a piece of anything else, at byte `at` of the file, as it is to be written.
    pub(super) fn piece(&mut self, piece: &[u8], at: u64, out: &mut Vec<u8>) {
        let before = self.invalid.count();
        let from = out.len();
        self.mender.take(piece, &mut self.invalid, out);
        if !self.repair {
            out.truncate(from);
            out.extend_from_slice(piece);
        }
        if self.invalid.count() > before {
            self.invalid.first_at.get_or_insert(at);
        }
    }

    /// Appends the rest of a value whose last piece has passed.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        let mut rest = Vec::new();
        self.mender.end(&mut self.invalid, &mut rest);
        if self.repair {
            out.append(&mut rest);
        }
    }

    /// Forgets a value that is not passed on after all.
    pub(super) fn abandon(&mut self) {
        self.mender = Mender::default();
    }

    /// Appends bytes that this program derived from the contents of a file.
    pub(super) fn made(&mut self, write: impl FnOnce(&mut Vec<u8>), out: &mut Vec<u8>) {
        let from = out.len();
        write(out);
        if self.repair && !is_valid(&out[from..]) {
            let made = out.split_off(from);
            mend(&made, &mut Invalid::default(), out);
        }
    }

    fn mended(&mut self, event: &[u8], at: u64, out: &mut Vec<u8>) {
        mend(event, &mut self.invalid, out);
        self.invalid.first_at.get_or_insert(at);
    }
}

/// Appends one or more complete values as valid JSON.
pub(super) fn mend(bytes: &[u8], invalid: &mut Invalid, out: &mut Vec<u8>) {
    let mut mender = Mender::default();
    mender.take(bytes, invalid, out);
    mender.end(invalid, out);
}

/// Returns true if strings and scalars are valid JSON; brackets and commas are not checked.
pub(super) fn is_valid(bytes: &[u8]) -> bool {
    if std::str::from_utf8(bytes).is_err() {
        return false;
    }
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at = match byte {
            b'"' => match string(bytes, at) {
                Some(end) => end,
                None => return false,
            },
            b'{' | b'}' | b'[' | b']' | b':' | b',' | b' ' | b'\t' | b'\r' | b'\n' => at + 1,
            _ => {
                let length = bytes[at..].iter().position(|byte| !is_of_scalar(*byte)).unwrap_or(bytes.len() - at);
                if !is_scalar(&bytes[at..at + length]) {
                    return false;
                }
                at + length
            }
        };
    }
    true
}

/// The place after a valid string that opens at `at`.
fn string(bytes: &[u8], at: usize) -> Option<usize> {
    let end = scan::string_end(bytes, at).filter(|end| *end <= bytes.len())?;
    let inside = &bytes[at + 1..end - 1];
    if inside.iter().fold(false, |found, byte| found | (*byte < b' ')) {
        return None;
    }
    let mut rest = inside;
    while let Some(escape) = memchr::memchr(b'\\', rest) {
        let width = match rest.get(escape + 1)? {
            b'u' if rest.get(escape + 2..escape + 6)?.iter().all(u8::is_ascii_hexdigit) => 6,
            byte if ESCAPES.contains(byte) => 2,
            _ => return None,
        };
        rest = &rest[escape + width..];
    }
    Some(end)
}

pub(super) fn is_of_scalar(byte: u8) -> bool {
    !matches!(byte, b'{' | b'}' | b'[' | b']' | b':' | b',' | b'"' | b' ' | b'\t' | b'\r' | b'\n')
}

/// Returns true for a number of JSON, `true`, `false` and `null`.
fn is_scalar(text: &[u8]) -> bool {
    fn digits(text: &[u8]) -> (&[u8], usize) {
        let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        (&text[count..], count)
    }
    if matches!(text, b"true" | b"false" | b"null") {
        return true;
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let leads_with_zero = text.first() == Some(&b'0');
    let (mut rest, whole) = digits(text);
    if whole == 0 || leads_with_zero && whole > 1 {
        return false;
    }
    if let Some(fraction) = rest.strip_prefix(b".") {
        let (after, count) = digits(fraction);
        if count == 0 {
            return false;
        }
        rest = after;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = exponent.strip_prefix(b"-").or(exponent.strip_prefix(b"+")).unwrap_or(exponent);
        let (after, count) = digits(exponent);
        if count == 0 {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

/// Mends strings and scalars, in pieces of any length.
#[derive(Debug, Default)]
struct Mender {
    in_string: bool,
    /// The beginning of an escape, from its backslash on.
    escape: Vec<u8>,
    /// The beginning of a multi-byte character.
    character: Vec<u8>,
    /// The beginning of a scalar.
    scalar: Vec<u8>,
}

impl Mender {
    fn take(&mut self, bytes: &[u8], invalid: &mut Invalid, out: &mut Vec<u8>) {
        for &byte in bytes {
            if self.in_string {
                self.in_string(byte, invalid, out);
            } else if is_of_scalar(byte) {
                self.scalar.push(byte);
            } else {
                self.end_scalar(invalid, out);
                self.in_string = byte == b'"';
                out.push(byte);
            }
        }
    }

    fn end(&mut self, invalid: &mut Invalid, out: &mut Vec<u8>) {
        self.end_scalar(invalid, out);
    }

    fn in_string(&mut self, byte: u8, invalid: &mut Invalid, out: &mut Vec<u8>) {
        if !self.escape.is_empty() {
            self.escape.push(byte);
            let is_open = match self.escape[1..] {
                [b'u', ref hex @ ..] => hex.iter().all(u8::is_ascii_hexdigit) && hex.len() < 4,
                _ => false,
            };
            if is_open {
                return;
            }
            let escape = std::mem::take(&mut self.escape);
            let known = match escape[1..] {
                [b'u', ref hex @ ..] => hex.iter().all(u8::is_ascii_hexdigit),
                [ref byte] => ESCAPES.contains(byte),
                _ => false,
            };
            if known {
                out.extend_from_slice(&escape);
                return;
            }
            // The backslash stands for itself then.
            invalid.escapes += 1;
            out.extend_from_slice(br"\\");
            escape[1..].iter().for_each(|byte| self.in_string(*byte, invalid, out));
            return;
        }
        match byte {
            0x80.. => return self.of_character(byte, invalid, out),
            _ => self.end_character(invalid, out),
        }
        match byte {
            b'\\' => self.escape.push(byte),
            b'"' => {
                self.in_string = false;
                out.push(byte);
            }
            ..b' ' => {
                invalid.control_characters += 1;
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            }
            _ => out.push(byte),
        }
    }

    fn of_character(&mut self, byte: u8, invalid: &mut Invalid, out: &mut Vec<u8>) {
        self.character.push(byte);
        match std::str::from_utf8(&self.character) {
            Ok(character) => {
                out.extend_from_slice(character.as_bytes());
                self.character.clear();
            }
            Err(error) if error.error_len().is_none() => {}
            Err(_) => {
                // What the byte could not continue is wrong; the byte itself may begin another
                // character.
                let begun = self.character.len() > 1;
                if begun {
                    self.character.pop();
                }
                self.end_character(invalid, out);
                if begun {
                    self.of_character(byte, invalid, out);
                }
            }
        }
    }

    fn end_character(&mut self, invalid: &mut Invalid, out: &mut Vec<u8>) {
        if !self.character.is_empty() {
            invalid.bytes += self.character.len() as u64;
            self.character.clear();
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }

    /// A value that is not valid JSON becomes a text.
    fn end_scalar(&mut self, invalid: &mut Invalid, out: &mut Vec<u8>) {
        if self.scalar.is_empty() {
            return;
        }
        if is_scalar(&self.scalar) {
            out.extend_from_slice(&self.scalar);
        } else {
            invalid.values += 1;
            let text = serde_json::Value::from(String::from_utf8_lossy(&self.scalar));
            out.extend_from_slice(text.to_string().as_bytes());
        }
        self.scalar.clear();
    }
}

/// What may follow a backslash, except `u`.
const ESCAPES: &[u8] = b"\"\\/bfnrt";
const BEYOND_REPAIR: &str = "cannot be repaired: the event's brackets, commas or colons are not valid JSON";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &[u8], expected: &[u8], note: &str) {
        let (mut invalid, mut out) = (Invalid::default(), Vec::new());
        mend(text, &mut invalid, &mut out);
        let shown = String::from_utf8_lossy(text);
        assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(expected), "{shown}");
        assert_eq!(is_valid(text), text == expected, "{shown}");
        assert!(invalid.note(false).unwrap_or_default().contains(note), "{invalid:?}");
        serde_json::from_slice::<serde::de::IgnoredAny>(&out).expect("valid JSON");
    }

    #[test]
    fn what_is_no_json_is_mended() {
        for valid in [
            &br#"{"a": [1, -0.5, 1e-05, 12E+3, true, false, null, "x\"\\\/\b\f\n\r\t\u00e9"], "b": {}}"#[..],
            "\"é😀\"".as_bytes(),
            b"0",
        ] {
            check(valid, valid, "");
        }
        check(
            br#"{"a": NaN, "b": [-inf, Infinity, nan]}"#,
            br#"{"a": "NaN", "b": ["-inf", "Infinity", "nan"]}"#,
            "4 values",
        );
        check(br#"[01, 1., .5, +1, 1e, -]"#, br#"["01", "1.", ".5", "+1", "1e", "-"]"#, "6 values");
        check(b"\"a\x01\tb\"", br#""a\u0001\u0009b""#, "2 control characters");
        check(b"\"a\xffb\xc3\"", "\"a\u{fffd}b\u{fffd}\"".as_bytes(), "2 bytes");
        check(b"\"\xc3\xc3\xa9\"", "\"\u{fffd}é\"".as_bytes(), "1 bytes");
        check(br#""\x \u12g4 \"""#, br#""\\x \\u12g4 \"""#, "2 unknown escapes");
    }

    #[test]
    fn a_note_says_what_becomes_of_them() {
        let invalid = Invalid { values: 2, first_at: Some(9), ..Invalid::default() };
        let said = "not valid JSON: 2 values such as NaN, the first in the event at byte 9: ";
        assert_eq!(invalid.note(true), Some(format!("{said}repaired")));
        assert!(invalid.note(false).is_some_and(|note| note.starts_with(said) && note.contains("--repair")));
        assert_eq!(Invalid::default().note(true), None);
    }

    proptest! {
        #[test]
        fn any_string_becomes_valid_in_any_pieces(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\\'), Just(b'u')], 0..60), cut in 0_usize..60) {
            let mut text = b"[\"".to_vec();
            text.extend(bytes.iter().filter(|byte| **byte != b'"'));
            text.extend_from_slice(b"..\", NaN]");
            let (mut invalid, mut whole) = (Invalid::default(), Vec::new());
            mend(&text, &mut invalid, &mut whole);
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&whole).is_ok() || whole.windows(2).any(|pair| pair == b"\\u"));
            let mut passing = Passing::new(true);
            let mut pieces = Vec::new();
            let cut = cut.min(text.len());
            passing.piece(&text[..cut], 0, &mut pieces);
            passing.piece(&text[cut..], 0, &mut pieces);
            prop_assert_eq!(whole, pieces);
            prop_assert_eq!(passing.invalid, Invalid { first_at: Some(0), ..invalid });
        }
    }
}
