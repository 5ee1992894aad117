//! The texts of a chunk, each stored once if it is interned.
//!
//! A table belongs to one chunk, so memory does not grow with a trace. It does not remember texts
//! of earlier chunks; writers whose format supports back references do.

use std::borrow::Cow;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// A text in the table of a chunk.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StringId(pub u32);

impl StringId {
    /// The empty text, which every table contains.
    pub const EMPTY: StringId = StringId(0);
}

/// Texts by number, from 0; number 0 is the empty text.
#[derive(Clone, Debug)]
pub struct Strings {
    text: String,
    ends: Vec<u32>,
    /// Numbers of interned texts, by their hash.
    interned: HashTable<u32>,
}

impl Default for Strings {
    fn default() -> Self {
        Self { text: String::new(), ends: vec![0], interned: HashTable::new() }
    }
}

impl Strings {
    /// Number of texts; at least one.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Total bytes, which limit the size of a chunk.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }

    /// Returns the text with a number; empty if there is none.
    #[inline]
    pub fn text(&self, id: StringId) -> &str {
        let index = id.0 as usize;
        let Some(&end) = self.ends.get(index) else { return "" };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start as usize..end as usize]
    }

    /// Returns the number of a text, the same for equal texts: for names, categories and keys.
    ///
    /// # Panics
    /// Returns an error if the texts of a chunk exceed 4 GiB; readers end a chunk at a few
    /// megabytes.
    #[inline]
    pub fn intern(&mut self, text: &str) -> StringId {
        if text.is_empty() {
            return StringId::EMPTY;
        }
        if let Some(id) = self.interned(text.as_bytes()) {
            return id;
        }
        let id = self.push(text);
        let (texts, ends) = (&self.text, &self.ends);
        let of = |index: u32| &texts[ends[index as usize - 1] as usize..ends[index as usize] as usize];
        let hash = HASHER.hash_one(text.as_bytes());
        self.interned.insert_unique(hash, id.0, |&index| HASHER.hash_one(of(index).as_bytes()));
        id
    }

    /// The same for bytes; what is not UTF-8 is replaced. A text that is known need not be checked.
    #[inline]
    pub(crate) fn intern_lossy(&mut self, bytes: &[u8]) -> StringId {
        self.interned(bytes).unwrap_or_else(|| self.intern(&lossy(bytes)))
    }

    /// The number of an interned text.
    #[inline]
    fn interned(&self, bytes: &[u8]) -> Option<StringId> {
        let is_it = |&index: &u32| self.text(StringId(index)).as_bytes() == bytes;
        self.interned.find(HASHER.hash_one(bytes), is_it).map(|&index| StringId(index))
    }

    /// Assigns a new number to a text that is unlikely to repeat: for values.
    ///
    /// # Panics
    /// As [`Self::intern`].
    pub fn push(&mut self, text: &str) -> StringId {
        self.text.push_str(text);
        let end = u32::try_from(self.text.len()).expect("readers end a chunk long before 4 GiB of text");
        self.ends.push(end);
        StringId(self.ends.len() as u32 - 1)
    }

    /// Empties the table and keeps its memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.ends.truncate(1);
        self.interned.clear();
    }
}

/// Deterministic: numbers must not depend on a run.
const HASHER: FixedState = FixedState::with_seed(0);

/// Text with what is not UTF-8 replaced. What is, is checked several bytes at a time;
/// [`String::from_utf8_lossy`] alone looks at each.
#[inline]
pub(crate) fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_one_number() {
        let mut strings = Strings::default();
        let names: Vec<String> = (0..1000).map(|index| format!("name {}", index % 100)).collect();
        let ids: Vec<StringId> = names.iter().map(|name| strings.intern(name)).collect();
        assert_eq!(strings.count(), 101);
        assert!(names.iter().zip(&ids).all(|(name, id)| strings.text(*id) == name));
        assert_eq!((strings.intern(""), strings.text(StringId(5000))), (StringId::EMPTY, ""));
        let pushed = strings.push("name 1");
        assert_ne!(pushed, strings.intern("name 1"));
        strings.clear();
        assert_eq!((strings.count(), strings.bytes()), (1, 0));
        let again = strings.intern("other");
        assert_eq!(strings.text(again), "other");
    }
}
