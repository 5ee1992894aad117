//! A scanner that locates strings, nested values and the members of an object in JSON in memory.
//!
//! Nothing is decoded or copied except keys with escapes, because strings in real traces may
//! contain control characters and invalid UTF-8. Anything deeper than an object's own members is
//! only checked for balanced brackets. Every function returns `None` if the buffer ends too early,
//! and the caller retries with more data. It does not fully validate JSON.

use std::borrow::Cow;
use std::ops::Range;

use wide::u8x16;

/// What is wrong, and where relative to the scanned slice.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) problem: &'static str,
}

/// The open brackets around a place.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Brackets {
    objects: u128,
    depth: u32,
}

impl Brackets {
    /// Enters a level; returns `false` if that is too deep.
    #[inline]
    pub(super) fn open(&mut self, object: bool) -> bool {
        self.objects = (self.objects << 1) | u128::from(object);
        self.depth += 1;
        self.depth <= DEPTH_MAX
    }

    /// Leaves a level; returns `false` if the bracket does not match the opening one.
    #[inline]
    pub(super) fn close(&mut self, object: bool) -> bool {
        let matches = self.depth > 0 && (self.objects & 1 == 1) == object;
        self.objects >>= 1;
        self.depth = self.depth.saturating_sub(1);
        matches
    }

    /// Whether nothing is open.
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.depth == 0
    }
}

/// The first place at or after `at` that is not white space.
#[inline]
pub(super) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b' ' | b'\t' | b'\r' => at += 1,
            b'\n' => at = skip_indent(bytes, at + 1),
            _ => break,
        }
    }
    at
}

/// Finds the ends of strings and nested values.
pub(super) trait Ends {
    /// The place after the string that opens at `at`, and whether something in it is escaped.
    fn string(&self, bytes: &[u8], at: usize) -> Option<(usize, bool)>;

    /// The place after the string that opens at `at`.
    #[inline]
    fn string_end(&self, bytes: &[u8], at: usize) -> Option<usize> {
        self.string(bytes, at).map(|(end, _)| end)
    }

    /// The place after the array or object that opens at `at`.
    fn nested(&self, bytes: &[u8], at: usize) -> Result<Option<usize>, Fault>;
}

/// Byte by byte.
pub(super) struct ByteScan;

impl Ends for ByteScan {
    #[inline]
    fn string(&self, bytes: &[u8], at: usize) -> Option<(usize, bool)> {
        let mut at = at + 1;
        let mut escaped = false;
        loop {
            at = next_quote_or_backslash(bytes, at)?;
            if bytes[at] == b'"' {
                return Some((at + 1, escaped));
            }
            escaped = true;
            at += 2;
        }
    }

    fn nested(&self, bytes: &[u8], at: usize) -> Result<Option<usize>, Fault> {
        nested_end(bytes, at)
    }
}

/// The place after the string that opens at `at`.
#[inline]
pub(super) fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    ByteScan.string(bytes, at).map(|(end, _)| end)
}

/// Decodes a key: `"\u0074s"` is `ts`. `None` if an escape is not valid JSON.
pub(super) fn key(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    if !raw.contains(&b'\\') {
        return Some(Cow::Borrowed(raw));
    }
    let mut decoded = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        decoded.extend_from_slice(&rest[..at]);
        let escape = *rest.get(at + 1)?;
        rest = &rest[at + 2..];
        let plain = match escape {
            b'"' | b'\\' | b'/' => escape,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let (character, after) = unicode(rest)?;
                decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                rest = after;
                continue;
            }
            _ => return None,
        };
        decoded.push(plain);
    }
    decoded.extend_from_slice(rest);
    Some(Cow::Owned(decoded))
}

/// The character whose `\u` has been read, from two escapes if UTF-16 needs two; and the rest.
fn unicode(rest: &[u8]) -> Option<(char, &[u8])> {
    let unit = |bytes: &[u8]| {
        let digits = bytes.get(..4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(rest)?;
    let second = rest[4..].strip_prefix(b"\\u").and_then(unit).filter(|_| (0xd800..0xdc00).contains(&first));
    let units = [Some(first), second];
    let character = char::decode_utf16(units.into_iter().flatten()).next()?.ok()?;
    Some((character, &rest[if second.is_some() { 10 } else { 4 }..]))
}

/// The place after the array or object that opens at `at`.
fn nested_end(bytes: &[u8], at: usize) -> Result<Option<usize>, Fault> {
    let mut brackets = Brackets::default();
    let mut at = at;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => match string_end(bytes, at) {
                Some(end) => {
                    at = end;
                    continue;
                }
                None => return Ok(None),
            },
            b'{' | b'[' if !brackets.open(byte == b'{') => {
                return Err(Fault { at, problem: "values nest too deep" });
            }
            b'}' | b']' => {
                if !brackets.close(byte == b'}') {
                    return Err(Fault { at, problem: "mismatched closing bracket" });
                }
                if brackets.is_empty() {
                    return Ok(Some(at + 1));
                }
            }
            b'\n' => {
                at = skip_indent(bytes, at + 1);
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    Ok(None)
}

/// The place after the number, `true`, `false` or `null` at `at`.
fn scalar_end(bytes: &[u8], at: usize) -> Result<Option<usize>, Fault> {
    if let Some(end) = scalar_end_at_once(bytes, at) {
        return Ok(Some(end));
    }
    let mut end = at;
    while bytes.get(end).is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+')) {
        end += 1;
    }
    match bytes.get(end) {
        None => Ok(None),
        Some(byte) if end > at && is_behind_scalar(*byte) => Ok(Some(end)),
        Some(_) => Err(Fault { at: end, problem: "a value was expected here" }),
    }
}

/// The same, by comparing 16 bytes at a time; `None` if that does not tell.
#[inline]
pub(super) fn scalar_end_at_once(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    loop {
        let chunk = bytes.get(end..)?.first_chunk::<16>()?;
        let others = !of_scalars(u8x16::new(*chunk)).to_bitmask() & 0xffff;
        if others == 0 {
            end += 16;
            continue;
        }
        let length = others.trailing_zeros() as usize;
        end += length;
        return (end > at && is_behind_scalar(chunk[length])).then_some(end);
    }
}

#[inline]
fn is_behind_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n')
}

/// Sets all bits of the bytes that numbers, `true`, `false` and `null` consist of, and of other
/// letters.
#[inline]
fn of_scalars(bytes: u8x16) -> u8x16 {
    let of = |byte: u8| u8x16::splat(byte);
    let digits = (bytes - of(b'0')).simd_lt(of(10));
    let letters = ((bytes | of(0x20)) - of(b'a')).simd_lt(of(26));
    digits | letters | bytes.simd_eq(of(b'.')) | bytes.simd_eq(of(b'-')) | bytes.simd_eq(of(b'+'))
}

/// The place after any value at `at`.
#[inline]
pub(super) fn value_end(bytes: &[u8], at: usize, ends: &impl Ends) -> Result<Option<usize>, Fault> {
    match bytes.get(at) {
        None => Ok(None),
        Some(b'"') => Ok(ends.string_end(bytes, at)),
        Some(b'{' | b'[') => ends.nested(bytes, at),
        Some(_) => scalar_end(bytes, at),
    }
}

/// Passes each key (without its quotes, escapes decoded) and the position of its value to `member`,
/// for the object that opens at `at`; returns the position after it.
#[inline]
pub(super) fn object(
    bytes: &[u8],
    at: usize,
    member: impl FnMut(&[u8], Range<usize>) -> Result<(), Fault>,
) -> Result<Option<usize>, Fault> {
    object_with(bytes, at, &ByteScan, member)
}

/// Like [`object`], with another way to find the ends of strings and nested values.
#[inline]
pub(super) fn object_with(
    bytes: &[u8],
    at: usize,
    ends: &impl Ends,
    mut member: impl FnMut(&[u8], Range<usize>) -> Result<(), Fault>,
) -> Result<Option<usize>, Fault> {
    let mut at = skip_space(bytes, at + 1);
    if bytes.get(at) == Some(&b'}') {
        return Ok(Some(at + 1));
    }
    loop {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'"') => {}
            Some(_) => return Err(Fault { at, problem: "a key was expected here" }),
        }
        let Some((key_end, escaped)) = ends.string(bytes, at) else { return Ok(None) };
        let name = at + 1..key_end - 1;
        at = skip_space(bytes, key_end);
        match bytes.get(at) {
            None => return Ok(None),
            Some(b':') => {}
            Some(_) => return Err(Fault { at, problem: "a colon was expected here" }),
        }
        at = skip_space(bytes, at + 1);
        let Some(end) = value_end(bytes, at, ends)? else { return Ok(None) };
        if escaped {
            let decoded = key(&bytes[name.clone()]).ok_or(Fault { at: name.start, problem: WRONG_ESCAPE })?;
            member(&decoded, at..end)?;
        } else {
            member(&bytes[name], at..end)?;
        }
        at = skip_space(bytes, end);
        match bytes.get(at) {
            None => return Ok(None),
            Some(b',') => at = skip_space(bytes, at + 1),
            Some(b'}') => return Ok(Some(at + 1)),
            Some(_) => return Err(Fault { at, problem: "a comma or the end of the object was expected here" }),
        }
    }
}

/// A position in an event: short, because there are many, and events are not long.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    #[inline]
    pub(super) fn start(self) -> usize {
        self.start as usize
    }

    #[inline]
    pub(super) fn end(self) -> usize {
        self.end as usize
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// What it covers.
    #[inline]
    pub(super) fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start()..self.end()]
    }
}

impl From<Range<usize>> for Span {
    /// Buffers are shorter than 4 GiB.
    #[inline]
    fn from(range: Range<usize>) -> Span {
        Span { start: range.start as u32, end: range.end as u32 }
    }
}

impl From<Span> for Range<usize> {
    #[inline]
    fn from(span: Span) -> Range<usize> {
        span.start()..span.end()
    }
}

/// Positions of the members of an event that this program knows; empty if absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventSpans {
    /// The length of the whole event.
    pub(super) end: usize,
    pub(super) ph: Span,
    pub(super) name: Span,
    pub(super) cat: Span,
    pub(super) ts: Span,
    pub(super) dur: Span,
    pub(super) pid: Span,
    pub(super) tid: Span,
    pub(super) id: Span,
    pub(super) bind_id: Span,
    pub(super) args: Span,
}

/// Finds the members of the event that `bytes` begin with.
#[cfg(test)]
pub(super) fn event(bytes: &[u8]) -> Result<Option<EventSpans>, Fault> {
    event_with(bytes, &ByteScan)
}

/// Finds the members of the event that `bytes` begin with.
pub(super) fn event_with(bytes: &[u8], ends: &impl Ends) -> Result<Option<EventSpans>, Fault> {
    let mut spans = EventSpans::default();
    let end = object_with(bytes, 0, ends, |key, value| {
        let Some(member) = Member::of(key) else { return Ok(()) };
        let place = spans.of_mut(member);
        if !place.is_empty() {
            // Readers differ in which of the two they believe; a corrected file must not depend on
            // that.
            return Err(Fault { at: value.start, problem: "an event has this key twice" });
        }
        *place = value.into();
        Ok(())
    })?;
    Ok(end.map(|end| {
        spans.end = end;
        spans
    }))
}

/// A member of an event that this program knows.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Ph,
    Name,
    Cat,
    Ts,
    Dur,
    Pid,
    Tid,
    Id,
    BindId,
    Args,
}

impl Member {
    /// The member of this key.
    #[inline]
    pub(super) fn of(key: &[u8]) -> Option<Member> {
        Some(match key {
            b"ts" => Member::Ts,
            b"dur" => Member::Dur,
            b"ph" => Member::Ph,
            b"name" => Member::Name,
            b"cat" => Member::Cat,
            b"pid" => Member::Pid,
            b"tid" => Member::Tid,
            b"id" => Member::Id,
            b"bind_id" => Member::BindId,
            b"args" => Member::Args,
            _ => return None,
        })
    }
}

impl EventSpans {
    #[inline]
    pub(super) fn of_mut(&mut self, member: Member) -> &mut Span {
        match member {
            Member::Ph => &mut self.ph,
            Member::Name => &mut self.name,
            Member::Cat => &mut self.cat,
            Member::Ts => &mut self.ts,
            Member::Dur => &mut self.dur,
            Member::Pid => &mut self.pid,
            Member::Tid => &mut self.tid,
            Member::Id => &mut self.id,
            Member::BindId => &mut self.bind_id,
            Member::Args => &mut self.args,
        }
    }
}

const fn repeat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// Spaces after a line's end, eight at a time.
#[inline]
fn skip_indent(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let different = u64::from_le_bytes(*chunk) ^ repeat(b' ');
        if different != 0 {
            return at + (different.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at
}

/// The next `"` or `\` at or after `at`. Most strings are short, so the first 32 bytes are examined
/// here, eight at a time: a byte of `x` is zero if it matches, and `(x − 1) & !x & 0x80` marks the
/// lowest such byte for certain.
#[inline]
fn next_quote_or_backslash(bytes: &[u8], mut at: usize) -> Option<usize> {
    for _ in 0..4 {
        let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else { break };
        let word = u64::from_le_bytes(*chunk);
        let (quote, backslash) = (word ^ repeat(b'"'), word ^ repeat(b'\\'));
        let zero = |x: u64| x.wrapping_sub(repeat(1)) & !x & repeat(0x80);
        let found = zero(quote) | zero(backslash);
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    memchr::memchr2(b'"', b'\\', bytes.get(at..)?).map(|offset| at + offset)
}

/// Said of a key that another reader could take for another one.
pub(super) const WRONG_ESCAPE: &str = "a key contains an escape that is not valid JSON";
/// How deep values may be nested; Kineto's own are nested six deep. One bit per level is kept in
/// 128 bits.
pub(super) const DEPTH_MAX: u32 = 120;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn strings_end_where_they_end() {
        for (text, expected) in [
            (&b"\"\""[..], Some(2)),
            (b"\"abc\" x", Some(5)),
            (b"\"a\\\"b\"", Some(6)),
            (b"\"a\\\\\"", Some(5)),
            (b"\"a\\", None),
            (b"\"a\\\"", None),
            (b"\"\x01\xff\xfe and more than forty bytes of text, all in one\"tail", Some(54 - 3)),
        ] {
            assert_eq!(string_end(text, 0), expected, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn members_of_an_event_are_found() {
        let text = br#"{ "ph": "X", "args": {"ts": 1, "x": [{"ts":"}"}]}, "ts": 4.5 ,"dur":2,"tid":"a" }, more"#;
        let spans = event(text).unwrap().unwrap();
        let at = |span: &Span| std::str::from_utf8(span.of(text)).unwrap().to_owned();
        assert_eq!(
            (at(&spans.ph), at(&spans.ts), at(&spans.dur), at(&spans.tid)),
            (r#""X""#.into(), "4.5".into(), "2".into(), r#""a""#.into())
        );
        assert_eq!(at(&spans.args), r#"{"ts": 1, "x": [{"ts":"}"}]}"#);
        assert_eq!(spans.end, text.len() - 6);
        assert!(spans.pid.is_empty());
    }

    #[test]
    fn keys_with_escapes_say_what_json_says() {
        let check = |raw: &str, expected: Option<&str>| {
            assert_eq!(key(raw.as_bytes()).as_deref(), expected.map(str::as_bytes), "{raw}");
        };
        check("ts", Some("ts"));
        check(r"\u0074s", Some("ts"));
        check(r"t\u0073", Some("ts"));
        check(r#"\"\\\/\b\f\n\r\t"#, Some("\"\\/\u{8}\u{c}\n\r\t"));
        check(r"\u00e9\ud83d\ude00!", Some("é😀!"));
        for wrong in [r"\x74s", r"\u007", r"\u00zz", r"\u+074", r"\ud83d", r"\ud83d\u0041", r"\ude00", r"ts\"] {
            check(wrong, None);
        }
        let text = br#"{"\u0074s":4,"d\u0075r":2,"args":{"ts":1},"\u0070id":3}"#;
        let spans = event(text).unwrap().unwrap();
        let at = |span: &Span| std::str::from_utf8(span.of(text)).unwrap();
        assert_eq!((at(&spans.ts), at(&spans.dur), at(&spans.pid)), ("4", "2", "3"));
        let twice = event(br#"{"ts":4,"\u0074s":5}"#).unwrap_err();
        assert_eq!((twice.at, twice.problem), (18, "an event has this key twice"));
        assert_eq!(event(br#"{"\x74s":5}"#).unwrap_err(), Fault { at: 2, problem: WRONG_ESCAPE });
    }

    #[test]
    fn faults_name_their_place() {
        let deep = format!("{{\"a\":{}", "[".repeat(200));
        for (text, at) in [
            ("{\"a\" 1}", 5),
            ("{1:2}", 1),
            ("{\"a\":1 \"b\":2}", 7),
            ("{\"a\":[}}", 6),
            ("{\"a\":}", 5),
            ("{\"ts\":1,\"ts\":2}", 13),
            ("{\"a\":1,}", 7),
            (deep.as_str(), 5 + DEPTH_MAX as usize),
        ] {
            assert_eq!(event(text.as_bytes()).unwrap_err().at, at, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_cut_event_is_incomplete_never_wrong(cut in 0_usize..84) {
            let text = br#"{"ph":"X","cat":"a\"b","name":"n","ts":1.5,"dur":2,"args":{"a":[1,{"b":"c\\"}]},"x":1}"#;
            prop_assert_eq!(event(&text[..cut.min(text.len() - 1)]), Ok(None));
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(&b"{}[]\",:\\ \n1"[..])], 0..200)) {
            let _ = event(&bytes);
        }

        #[test]
        fn fast_and_plain_search_agree(bytes in proptest::collection::vec(prop_oneof![Just(b'"'), Just(b'\\'), any::<u8>(), Just(b'!'), Just(b'#'), Just(b'[')], 0..80), at in 0_usize..80) {
            let plain = bytes.iter().enumerate().skip(at).find(|(_, byte)| matches!(byte, b'"' | b'\\')).map(|(index, _)| index);
            prop_assert_eq!(next_quote_or_backslash(&bytes, at), plain);
        }
    }
}
