//! Where strings and brackets are in a buffer of JSON, found for all of it at once.
//!
//! 64 bytes become one word of each kind, one bit per byte, by comparing 16 bytes at a time; after
//! that the end of a string or of a nested value is the next bit of its kind, and nothing in
//! between is looked at again. Whatever this cannot answer is left to [`ByteScan`], byte by byte,
//! which also says what is wrong. On request the words also tell which bytes may not be valid JSON:
//! what has no such bit is valid (`valid::is_valid`), so most events need no second look.

use wide::u8x16;

use super::scan::{Brackets, ByteScan, Ends, Fault, scalar_end_at_once};
use super::valid::is_of_scalar;

/// The structure of a buffer that begins outside of any string.
#[derive(Default)]
pub(super) struct Structure {
    words: Vec<Word>,
    /// A backslash is outside of strings: quotes behind it may be misread.
    strange: bool,
    /// A backslash is somewhere.
    escapes: bool,
    judged: bool,
}

/// The structure of 64 bytes.
#[derive(Copy, Clone, Default)]
struct Word {
    /// Quotes that open or close a string.
    quotes: u64,
    /// Brackets outside of strings.
    brackets: u64,
    /// What may not be valid JSON.
    doubts: u64,
}

impl Structure {
    /// Replaces the structure by that of `bytes`; `judge`: with what may not be valid.
    pub(super) fn index(&mut self, bytes: &[u8], judge: bool) {
        self.words.clear();
        self.words.reserve(bytes.len().div_ceil(WIDTH));
        let mut carry = Carry::default();
        let (whole, rest) = bytes.as_chunks::<WIDTH>();
        for (index, block) in whole.iter().enumerate() {
            self.words.push(carry.word(block, bytes, index * WIDTH, judge));
        }
        if !rest.is_empty() {
            let mut last = [b' '; WIDTH];
            last[..rest.len()].copy_from_slice(rest);
            self.words.push(carry.word(&last, bytes, whole.len() * WIDTH, judge));
        }
        (self.strange, self.escapes, self.judged) = (carry.strange, carry.escapes, judge);
    }

    /// The first bit of a kind at or after `from`.
    #[inline]
    fn next(&self, from: usize, kind: impl Fn(&Word) -> u64) -> Option<usize> {
        let mut index = from / WIDTH;
        let mut bits = kind(self.words.get(index)?) & (!0 << (from % WIDTH));
        while bits == 0 {
            index += 1;
            bits = kind(self.words.get(index)?);
        }
        Some(index * WIDTH + bits.trailing_zeros() as usize)
    }
}

/// The structure from some byte on; positions count from that byte.
#[derive(Copy, Clone)]
pub(super) struct StructureView<'a> {
    structure: &'a Structure,
    base: usize,
}

impl<'a> StructureView<'a> {
    pub(super) fn new(structure: &'a Structure, base: usize) -> StructureView<'a> {
        StructureView { structure, base }
    }

    /// The view that begins `by` bytes later.
    #[inline]
    pub(super) fn moved(self, by: usize) -> StructureView<'a> {
        StructureView { base: self.base + by, ..self }
    }

    /// Whether the next `length` bytes, one or more complete values, are certainly valid.
    #[inline]
    pub(super) fn is_surely_valid(&self, length: usize) -> bool {
        let (first, last) = (self.base, self.base + length - 1);
        let is_clear = |index: usize| {
            let from = if index == first / WIDTH { !0 << (first % WIDTH) } else { !0 };
            let until = if index == last / WIDTH { !0 >> (WIDTH - 1 - last % WIDTH) } else { !0 };
            self.structure.words.get(index).is_some_and(|word| word.doubts & from & until == 0)
        };
        self.structure.judged && !self.structure.strange && (first / WIDTH..=last / WIDTH).all(is_clear)
    }
}

impl Ends for StructureView<'_> {
    #[inline]
    fn string(&self, bytes: &[u8], at: usize) -> Option<(usize, bool)> {
        let end = self.string_end(bytes, at)?;
        Some((end, self.structure.escapes && bytes[at..end].contains(&b'\\')))
    }

    #[inline]
    fn string_end(&self, bytes: &[u8], at: usize) -> Option<usize> {
        let found = match self.structure.strange {
            true => None,
            false => self.structure.next(self.base + at + 1, |word| word.quotes),
        };
        match found.map(|quote| quote + 1 - self.base).filter(|end| *end <= bytes.len()) {
            Some(end) => Some(end),
            None => ByteScan.string_end(bytes, at),
        }
    }

    #[inline]
    fn nested(&self, bytes: &[u8], at: usize) -> Result<Option<usize>, Fault> {
        match self.closed(bytes, at) {
            Some(end) => Ok(Some(end)),
            None => ByteScan.nested(bytes, at),
        }
    }
}

impl StructureView<'_> {
    /// The place after any value at `at`, if nothing is wrong with it and this is quickly told.
    #[inline]
    pub(super) fn value_end(&self, bytes: &[u8], at: usize) -> Option<usize> {
        match bytes.get(at)? {
            b'"' => self.string_end(bytes, at),
            b'{' | b'[' => self.closed(bytes, at),
            _ => scalar_end_at_once(bytes, at),
        }
    }

    /// The place after the array or object that opens at `at`, if nothing is wrong with it.
    #[inline]
    fn closed(&self, bytes: &[u8], at: usize) -> Option<usize> {
        if self.structure.strange {
            return None;
        }
        let (index, behind) = ((self.base + at) / WIDTH, (self.base + at) % WIDTH);
        let mut words = self.structure.words.get(index..)?.iter();
        let mut bits = words.next()?.brackets & (!0 << behind);
        let mut begin = index * WIDTH;
        let mut brackets = Brackets::default();
        loop {
            while bits == 0 {
                bits = words.next()?.brackets;
                begin += WIDTH;
            }
            let found = begin + bits.trailing_zeros() as usize - self.base;
            bits &= bits - 1;
            let byte = *bytes.get(found)?;
            let fits = match byte {
                b'{' | b'[' => brackets.open(byte == b'{'),
                _ => brackets.close(byte == b'}'),
            };
            if !fits {
                return None;
            }
            if brackets.is_empty() {
                return Some(found + 1);
            }
        }
    }
}

/// What a word passes on to the next: the state behind its last byte.
#[derive(Default)]
struct Carry {
    strange: bool,
    escapes: bool,
    /// The next byte is escaped.
    escaped: bool,
    /// All ones inside of a string.
    in_string: u64,
    scalar: Scalars,
}

/// What a word passes on about numbers, `true`, `false` and `null`: whether its last byte was of a
/// kind, in bit 0.
#[derive(Default)]
struct Scalars {
    any: u64,
    digit: u64,
    dot: u64,
    minus: u64,
    /// A zero that begins a number.
    zero: u64,
    /// A digit behind a dot.
    fraction: u64,
    /// Bytes of `true`, `false` and `null` that were found.
    words: u64,
}

impl Carry {
    #[inline]
    fn word(&mut self, block: &[u8; WIDTH], bytes: &[u8], at: usize, judge: bool) -> Word {
        let backslashes = bits(block, |lane| lane.simd_eq(u8x16::splat(b'\\')));
        let escaped = self.escaped_by(backslashes);
        let quotes = bits(block, |lane| lane.simd_eq(u8x16::splat(b'"'))) & !escaped;
        let in_string = prefix_xor(quotes) ^ self.in_string;
        self.in_string = ((in_string as i64) >> 63) as u64;
        // `[` and `{`, and `]` and `}`, differ by one bit.
        let brackets = bits(block, |lane| {
            let lower = lane | u8x16::splat(0x20);
            lower.simd_eq(u8x16::splat(b'{')) | lower.simd_eq(u8x16::splat(b'}'))
        });
        let brackets = brackets & !in_string;
        self.strange |= backslashes & !in_string != 0;
        let doubts = match judge {
            true => backslashes | self.scalar.doubts(block, bytes, at, in_string, in_string | quotes | brackets),
            false => 0,
        };
        Word { quotes, brackets, doubts }
    }

    /// The bytes behind a backslash that is not itself escaped.
    #[inline]
    fn escaped_by(&mut self, backslashes: u64) -> u64 {
        let mut escaped = u64::from(std::mem::take(&mut self.escaped));
        if backslashes == 0 {
            return escaped;
        }
        self.escapes = true;
        let mut left = backslashes & !escaped;
        while left != 0 {
            let at = left.trailing_zeros();
            self.escaped = at == 63;
            let behind = (1_u64 << at) << 1;
            escaped |= behind;
            left &= !((1_u64 << at) | behind);
        }
        escaped
    }
}

impl Scalars {
    /// What may not be valid: bytes beyond ASCII; control characters, except line feeds outside of
    /// strings; and in place of numbers and words anything but the usual ones. `others` are bytes
    /// that are not of scalars.
    #[inline]
    fn doubts(&mut self, block: &[u8; WIDTH], bytes: &[u8], at: usize, in_string: u64, others: u64) -> u64 {
        let of = |byte: u8| bits(block, |lane| lane.simd_eq(u8x16::splat(byte)));
        let beyond = bits(block, |lane| lane);
        // Tabs and returns are rare: what has them is looked at again.
        let control = bits(block, |lane| lane.simd_lt(u8x16::splat(b' '))) & (in_string | !of(b'\n'));
        let between = bits(block, |lane| {
            let marks = lane.simd_eq(u8x16::splat(b':')) | lane.simd_eq(u8x16::splat(b','));
            marks | lane.simd_lt(u8x16::splat(b' ' + 1))
        });
        let scalar = !(others | between);
        let digit = scalar & bits(block, |lane| (lane - u8x16::splat(b'0')).simd_lt(u8x16::splat(10)));
        let (dot, minus) = (scalar & of(b'.'), scalar & of(b'-'));
        let begins = scalar & !(scalar << 1 | self.any);
        let behind_minus = minus << 1 | self.minus;
        let behind_dot = dot << 1 | self.dot;
        let zero = digit & of(b'0') & (begins | behind_minus);
        let words = self.words_in(bytes, at, begins & !(digit | dot | minus));
        // Digits behind a dot, added to all digits, leave a bit behind each such row of digits.
        let (sum, carried) = (digit).overflowing_add((behind_dot | self.fraction) & digit);
        let behind_fraction = (sum | (self.fraction & !digit)) & !digit;
        let doubts = scalar & !(digit | dot | minus | words)
            | minus & !begins
            | behind_minus & !digit
            | dot & !(digit << 1 | self.digit)
            | behind_dot & !digit
            | (zero << 1 | self.zero) & digit
            | behind_fraction & dot;
        [self.any, self.digit, self.dot, self.minus, self.zero] = [scalar, digit, dot, minus, zero].map(|of| of >> 63);
        self.fraction = u64::from(carried);
        doubts | beyond | control
    }

    /// The bytes of `true`, `false` and `null` that begin at one of these bits.
    #[inline]
    fn words_in(&mut self, bytes: &[u8], at: usize, mut begins: u64) -> u64 {
        let mut found = u128::from(std::mem::take(&mut self.words));
        while begins != 0 {
            let place = begins.trailing_zeros();
            begins &= begins - 1;
            let rest = bytes.get(at + place as usize..).unwrap_or_default();
            for word in [&b"true"[..], b"false", b"null"] {
                if rest.starts_with(word) && !rest.get(word.len()).is_some_and(|byte| is_of_scalar(*byte)) {
                    found |= ((1 << word.len()) - 1) << place;
                }
            }
        }
        self.words = (found >> 64) as u64;
        found as u64
    }
}

/// One bit per byte, by a test of 16 bytes that sets all bits of those that pass.
#[inline(always)]
fn bits(block: &[u8; WIDTH], test: impl Fn(u8x16) -> u8x16) -> u64 {
    let (lanes, _) = block.as_chunks::<16>();
    let mask = |lane: &[u8; 16]| u64::from(test(u8x16::new(*lane)).to_bitmask() & 0xffff);
    mask(&lanes[0]) | mask(&lanes[1]) << 16 | mask(&lanes[2]) << 32 | mask(&lanes[3]) << 48
}

/// Each bit: whether an odd number of bits up to it is set.
#[inline]
fn prefix_xor(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// Bytes of a word.
const WIDTH: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::scan;
    use super::super::valid::is_valid;
    use super::*;

    /// Compares what a view and `ByteScan` find in `text`, and checks that what the view calls valid
    /// is.
    fn check(text: &[u8]) {
        for lead in [0, 1, 63] {
            let padded = [&vec![b' '; lead][..], text].concat();
            let mut structure = Structure::default();
            structure.index(&padded, true);
            let from = StructureView::new(&structure, lead);
            let shown = String::from_utf8_lossy(text);
            assert_eq!(scan::event_with(text, &from), scan::event(text), "{lead}: {shown}");
            if let Ok(Some(spans)) = scan::event(text) {
                assert!(!from.is_surely_valid(spans.end) || is_valid(&text[..spans.end]), "{lead}: {shown}");
            }
        }
    }

    #[test]
    fn numbers_and_words_are_valid_or_doubtful() {
        let check = |value: &str, expected: bool| {
            for lead in 0..130 {
                let text = format!("{}{{\"a\": {value}, \"b\": [{value}]}}", " ".repeat(lead));
                let mut structure = Structure::default();
                structure.index(text.as_bytes(), true);
                let found = StructureView::new(&structure, lead).is_surely_valid(text.len() - lead);
                assert_eq!(found, expected, "{value} behind {lead}");
                assert!(!found || is_valid(&text.as_bytes()[lead..]), "{value}");
            }
        };
        for valid in
            ["0", "7", "10.25", "-3", "-0.5", "0.0", "true", "false", "null", "\"a b\"", "1234567890123456.789"]
        {
            check(valid, true);
        }
        let doubtful = [
            "NaN",
            "-",
            "--1",
            "1-",
            "01",
            "-01",
            "1.",
            ".5",
            "1.2.3",
            "1..2",
            "truer",
            "tru",
            "nul",
            "1e5",
            "-true",
            "true1",
            "\"a\tb\"",
            "\"\\n\"",
            "\"é\"",
            "1.5.",
            "+1",
            "1.22222222222222222222222222222222222222222222222222222222222222222.1",
        ];
        for doubtful in doubtful {
            check(doubtful, false);
        }
    }

    #[test]
    fn odd_events_are_read_as_byte_by_byte() {
        for text in [
            &b"{}"[..],
            br#"{"a": "\\\"", "\u0074s": 5, "args": {"x": "}]{["}, "b": [[1, {"c": []}], "\\"]} tail"#,
            br#"{"a": \"b", "c": 1}"#,
            br#"{"a": [}}"#,
            br#"{"a": {"b": [1, 2}, "c": 3}"#,
            br#"{"a": "not ended"#,
            br#"{"ts": 1, "ts": 2}"#,
        ] {
            check(text);
        }
        let backslashes = format!(r#"{{"a": "{}", "b": 1}}"#, r"\\".repeat(100));
        check(backslashes.as_bytes());
        check(format!("{{\"a\": {}", "[".repeat(200)).as_bytes());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_bytes_are_read_as_byte_by_byte(
            inner in proptest::collection::vec(
                prop_oneof![
                    3 => proptest::sample::select(&b"{}[]\",:\\ \n1-.0te\x01\xc3"[..]).prop_map(|byte| vec![byte]),
                    2 => Just(br#""name": "x", "#.to_vec()),
                    2 => Just(br#""ts": 12.5, "#.to_vec()),
                    1 => Just(br#""args": {"a": [1, {"b": "c\""}], "d": true}, "#.to_vec()),
                ],
                0..40,
            ),
            ends in any::<bool>(),
        ) {
            let end: &[u8] = if ends { br#""z": null}"# } else { b"" };
            check(&[b"{", &inner.concat()[..], end].concat());
        }
    }
}
