//! Layouts of objects: what lies between their values.
//!
//! A writer puts the same bytes between the values of most of its events: `{"ph": `, `, "cat": `
//! and so on to `}`. An object that has these bytes of an earlier one between its values has the
//! same members in the same order, so only its values are walked over. An object of no known layout
//! is walked over member by member, and its layout is remembered.

use std::ops::Range;

use super::scan::{self, EventSpans, Fault, Member};
use super::structure::StructureView;

/// A key that somebody asks for.
pub(super) trait Key: Copy {
    /// The key that is written so.
    fn of(key: &[u8]) -> Option<Self>;
}

impl Key for Member {
    #[inline]
    fn of(key: &[u8]) -> Option<Member> {
        Member::of(key)
    }
}

/// Values that have been found.
pub(super) trait Found<K> {
    /// Adds a value.
    fn put(&mut self, key: K, value: Range<usize>);

    /// Forgets all.
    fn clear(&mut self);
}

impl Found<Member> for EventSpans {
    #[inline]
    fn put(&mut self, key: Member, value: Range<usize>) {
        *self.of_mut(key) = value.into();
    }

    #[inline]
    fn clear(&mut self) {
        *self = EventSpans::default();
    }
}

impl<K> Found<K> for Vec<(K, Range<usize>)> {
    #[inline]
    fn put(&mut self, key: K, value: Range<usize>) {
        self.push((key, value));
    }

    #[inline]
    fn clear(&mut self) {
        self.clear();
    }
}

/// The layouts seen.
pub(super) struct Layouts<K> {
    known: Vec<Layout<K>>,
    /// That of the object before.
    latest: usize,
    /// Objects of no known layout since there is no room for more.
    misses: u32,
}

struct Layout<K> {
    parts: Vec<Part<K>>,
    /// The layout that came next the last time.
    next: usize,
}

/// Up to 16 bytes.
struct Part<K> {
    bytes: u128,
    /// All ones where `bytes` counts.
    mask: u128,
    length: usize,
    behind: Behind<K>,
}

/// What comes behind a part.
#[derive(Copy, Clone)]
enum Behind<K> {
    /// The next part, or the end of the object.
    Part,
    /// The value of a key; `None` is one that nobody asks for.
    Value(Option<K>),
}

impl<K> Default for Layouts<K> {
    fn default() -> Self {
        Layouts { known: Vec::new(), latest: 0, misses: 0 }
    }
}

impl Layouts<Member> {
    /// Finds the members of the event that `bytes` begin with.
    pub(super) fn event(&mut self, bytes: &[u8], ends: &StructureView<'_>) -> Result<Option<EventSpans>, Fault> {
        let mut spans = EventSpans::default();
        if let Some(end) = self.recognized(bytes, 0, ends, &mut spans) {
            spans.end = end;
            return Ok(Some(spans));
        }
        let found = scan::event_with(bytes, ends)?;
        if found.is_some() {
            self.learn(bytes, 0, ends);
        }
        Ok(found)
    }
}

impl<K: Key> Layouts<K> {
    /// Replaces `found` by the values of the object that opens at `at`; returns the position after
    /// it.
    pub(super) fn object(
        &mut self,
        bytes: &[u8],
        at: usize,
        ends: &StructureView<'_>,
        found: &mut Vec<(K, Range<usize>)>,
    ) -> Result<Option<usize>, Fault> {
        found.clear();
        if let Some(end) = self.recognized(bytes, at, ends, found) {
            return Ok(Some(end));
        }
        let end = scan::object_with(bytes, at, ends, |key, value| {
            found.extend(K::of(key).map(|key| (key, value)));
            Ok(())
        })?;
        if end.is_some() {
            self.learn(bytes, at, ends);
        }
        Ok(end)
    }

    /// The same, if the object has a known layout; otherwise `found` is left empty.
    #[inline]
    fn recognized(
        &mut self,
        bytes: &[u8],
        at: usize,
        ends: &StructureView<'_>,
        found: &mut impl Found<K>,
    ) -> Option<usize> {
        let expected = self.known.get(self.latest)?.next;
        if let Some(end) = self.known.get(expected).and_then(|layout| layout.walk(bytes, at, ends, found)) {
            self.latest = expected;
            return Some(end);
        }
        found.clear();
        if self.misses >= MISSES_MAX {
            return None;
        }
        for index in (0..self.known.len()).filter(|index| *index != expected) {
            if let Some(end) = self.known[index].walk(bytes, at, ends, found) {
                self.follow(index);
                self.misses = self.misses.saturating_sub(1);
                return Some(end);
            }
            found.clear();
        }
        None
    }

    fn follow(&mut self, index: usize) {
        if let Some(latest) = self.known.get_mut(self.latest) {
            latest.next = index;
        }
        self.latest = index;
    }

    fn learn(&mut self, bytes: &[u8], at: usize, ends: &StructureView<'_>) {
        let has_room = self.known.len() < LAYOUTS_MAX && self.misses < MISSES_MAX;
        match has_room.then(|| Layout::of(bytes, at, ends)).flatten() {
            Some(layout) => {
                self.known.push(layout);
                self.follow(self.known.len() - 1);
            }
            None => self.misses = self.misses.saturating_add(1),
        }
    }
}

impl<K: Key> Layout<K> {
    /// The layout of the object that opens at `at`; `None` if it is too long.
    fn of(bytes: &[u8], at: usize, ends: &StructureView<'_>) -> Option<Layout<K>> {
        let (mut parts, mut from) = (Vec::new(), at);
        let walked = scan::object_with(bytes, at, ends, |key, value| {
            let is_put = put(&mut parts, &bytes[from..value.start], Behind::Value(K::of(key)));
            from = value.end;
            is_put.ok_or(Fault { at: from, problem: "too long for a layout" })
        });
        let end = walked.ok().flatten()?;
        put(&mut parts, &bytes[from..end], Behind::Part)?;
        Some(Layout { parts, next: 0 })
    }

    /// Finds the values of the object that opens at `at`, if it has this layout.
    #[inline]
    fn walk(&self, bytes: &[u8], mut at: usize, ends: &StructureView<'_>, found: &mut impl Found<K>) -> Option<usize> {
        for part in &self.parts {
            let rest = bytes.get(at..)?;
            let here = match rest.first_chunk() {
                Some(here) => u128::from_le_bytes(*here),
                None if rest.len() >= part.length => last_bytes(rest),
                None => return None,
            };
            if (here ^ part.bytes) & part.mask != 0 {
                return None;
            }
            at += part.length;
            if let Behind::Value(key) = part.behind {
                let end = ends.value_end(bytes, at).or_else(|| scan::value_end(bytes, at, ends).ok().flatten())?;
                if let Some(key) = key {
                    found.put(key, at..end);
                }
                at = end;
            }
        }
        Some(at)
    }
}

/// Less than 16 bytes, with zeros behind them.
#[cold]
fn last_bytes(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u128::from(*byte))
}

/// Adds bytes between values, and what comes behind them; `None` if there is no room.
fn put<K: Key>(parts: &mut Vec<Part<K>>, between: &[u8], behind: Behind<K>) -> Option<()> {
    if parts.len() + between.len().div_ceil(size_of::<u128>()) > PARTS_MAX {
        return None;
    }
    let mut pieces = between.chunks(size_of::<u128>()).peekable();
    while let Some(piece) = pieces.next() {
        let mut bytes = [0; size_of::<u128>()];
        bytes[..piece.len()].copy_from_slice(piece);
        let behind = if pieces.peek().is_some() { Behind::Part } else { behind };
        let mask = u128::MAX >> (u128::BITS as usize - 8 * piece.len());
        parts.push(Part { bytes: u128::from_le_bytes(bytes), mask, length: piece.len(), behind });
    }
    Some(())
}

/// PyTorch's files have some five.
const LAYOUTS_MAX: usize = 16;
/// Objects of no known layout, more than of one that was not expected, until only the expected one
/// is tried.
const MISSES_MAX: u32 = 1000;
/// Parts of the longest layout that is remembered.
const PARTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::structure::Structure;
    use super::*;

    /// Compares what layouts find in these events, one after the other, with a walk over each alone.
    fn check(events: &[String], cut: usize) {
        let text: String = events.iter().map(|event| format!("{event},\n  ")).collect();
        let text = &text.as_bytes()[..text.len() - cut.min(text.len())];
        let (mut structure, mut layouts, mut at) = (Structure::default(), Layouts::default(), 0);
        structure.index(text, true);
        for event in events {
            let rest = &text[at.min(text.len())..];
            let found = layouts.event(rest, &StructureView::new(&structure, at));
            assert_eq!(found, scan::event(rest), "{}", String::from_utf8_lossy(rest));
            // Behind a broken event nobody knows what is inside of strings.
            if !matches!(found, Ok(Some(_))) {
                break;
            }
            at += event.len() + 4;
        }
        // The same as objects that end where the text does.
        let (mut layouts, mut values) = (Layouts::<Member>::default(), Vec::new());
        for event in events {
            structure.index(event.as_bytes(), false);
            let found = layouts.object(event.as_bytes(), 0, &StructureView::new(&structure, 0), &mut values);
            let mut expected = Vec::new();
            let walked = scan::object(event.as_bytes(), 0, |key, value| {
                expected.extend(Member::of(key).map(|key| (key, value)));
                Ok(())
            });
            assert_eq!(found, walked, "{event}");
            assert!(!matches!(walked, Ok(Some(_))) || values == expected, "{event}: {values:?}");
        }
    }

    #[test]
    fn an_event_is_recognized_by_what_lies_between_its_values() {
        let event = |ts: &str| format!(r#"{{"ph": "X", "ts": {ts}, "args": {{"a": [1, "}}"]}}, "name": "aten::mm"}}"#);
        let others =
            [r#"{"ph": "X", "ts": 3, "args": {}, "name": 4} "#, r#"{"ph": "X", "ts": 3, "args": 5, "Name": ""}"#];
        let twice = r#"{"ph": "X", "ts": 3, "args": 5, "ts": "aten::mm"}"#;
        let usual = [&event("1.5"), &event("\"\""), others[0], others[1], &event("null"), &event("-1"), "{}", "{}"];
        check(&usual.map(str::to_owned), 0);
        for wrong in [twice, &event("x:y"), &event("1 2"), &event("")] {
            check(&[event("1"), event("2"), wrong.to_owned()], 0);
        }
        let [first, later] = [event("1"), event("23.125")];
        let both = format!("{first}{later}                ");
        let mut structure = Structure::default();
        structure.index(both.as_bytes(), true);
        let mut layouts = Layouts::default();
        for at in [0, first.len()] {
            layouts.event(&both.as_bytes()[at..], &StructureView::new(&structure, at)).expect("sound").expect("whole");
        }
        assert_eq!(layouts.known.len(), 1);
        let mut found = EventSpans::default();
        let ends = StructureView::new(&structure, first.len());
        let end = layouts.known[0].walk(later.as_bytes(), 0, &ends, &mut found).expect("the same layout");
        assert_eq!(Some(EventSpans { end, ..found }), scan::event(later.as_bytes()).expect("sound"));
    }

    #[test]
    fn more_layouts_than_are_remembered_change_nothing() {
        let event = |at: usize| format!("{{{}\"ph\": \"X\", \"ts\": {at}}}", " ".repeat(at % 40));
        check(&(0..3000).map(event).collect::<Vec<_>>(), 0);
        let long: String = (0..100).map(|at| format!("\"key{at}\": {at}, ")).collect();
        check(&vec![format!("{{{long}\"ts\": 1}}"); 3], 0);
    }

    proptest! {
        #[test]
        fn layouts_find_what_a_walk_finds(
            events in proptest::collection::vec(
                proptest::collection::vec(
                    (
                        proptest::sample::select(&["ph", "ts", "dur", "args", "name", "other", "t\\u0073"][..]),
                        proptest::sample::select(&["1", "-2.5", "\"X\"", "\"\\\"\"", "{}", "[{\"ts\": 1}]", "nu ll", "\"", "\\"][..]),
                        proptest::sample::select(&[", ", ",\n    ", ",\n                     "][..]),
                    ),
                    0..5,
                ),
                1..12,
            ),
            cut in 0..60_usize,
        ) {
            let event = |members: &Vec<(&str, &str, &str)>| {
                let inside: String = members.iter().map(|(key, value, between)| format!("\"{key}\": {value}{between}")).collect();
                format!("{{{}}}", inside.trim_end().trim_end_matches(','))
            };
            check(&events.iter().map(event).collect::<Vec<_>>(), cut);
        }
    }
}
