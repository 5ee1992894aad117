//! What the numbers in a recording stand for.
//!
//! Place in the flow: read once, before the events.

use std::collections::BTreeMap;

use super::source::Source;
use super::window::Window;
use crate::error::Error;
use crate::kind::Kind;
use crate::layout::{Layout, WORD, definition};

/// A place in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteFacts {
    /// What its events are called.
    pub name: String,
    /// Their kind.
    pub kind: Kind,
    /// The source file; may be empty.
    pub file: String,
    /// The line in it.
    pub line: u32,
    /// Keys of its arguments.
    pub keys: Vec<String>,
}

/// All of a recording.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    sites: BTreeMap<u32, SiteFacts>,
    names: BTreeMap<u32, String>,
    threads: BTreeMap<u32, (u64, String)>,
    windows: BTreeMap<u32, Window>,
    left: Vec<(u32, [u64; definition::LEFT_WORDS - 2])>,
}

impl Definitions {
    pub fn read(source: &Source, layout: &Layout, taken: u64) -> Result<Self, Error> {
        let room = layout.definition_bytes / WORD;
        let count = usize::try_from(taken).unwrap_or(usize::MAX).min(room);
        let words = source.words(layout.definitions_at() as u64, count)?;
        let mut found = Self::default();
        let mut at = 0;
        while at < words.len() {
            let head = words[at];
            let length = (head & definition::WORDS_MAX as u64) as usize;
            let whole = head >> 32 == definition::MARK && length >= 3;
            // One that a kill has left unfinished has no first word: the next one has.
            let Some(body) = whole.then(|| words.get(at..at + length)).flatten() else {
                at += 1;
                continue;
            };
            found.take(head >> 16 & 0xffff, body);
            at += length;
        }
        Ok(found)
    }

    fn take(&mut self, kind: u64, words: &[u64]) {
        let Ok(number) = u32::try_from(words[1]) else { return };
        if kind == definition::WINDOW {
            self.windows.extend(Window::of(words).map(|window| (number, window)));
            return;
        }
        if kind == definition::LEFT {
            let counts = words.get(2..definition::LEFT_WORDS).and_then(|counts| counts.try_into().ok());
            self.left.extend(counts.map(|counts| (number, counts)));
            return;
        }
        let mut texts = texts(&words[3..]).into_iter();
        match kind {
            definition::SITE => {
                let kind = Kind::of_number((words[2] & 0xffff_ffff) as u32).unwrap_or(Kind::Custom);
                let (name, file) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
                let line = (words[2] >> 32) as u32;
                self.sites.insert(number, SiteFacts { name, kind, file, line, keys: texts.collect() });
            }
            definition::NAME => {
                self.names.insert(number, texts.next().unwrap_or_default());
            }
            definition::THREAD => {
                self.threads.insert(number, (words[2], texts.next().unwrap_or_default()));
            }
            _ => {}
        }
    }

    pub fn site(&self, number: u32) -> Option<&SiteFacts> {
        self.sites.get(&number)
    }

    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(&number).map(String::as_str)
    }

    /// The system's number of a thread, and its name.
    pub fn thread(&self, serial: u32) -> Option<&(u64, String)> {
        self.threads.get(&serial)
    }

    /// By their numbers.
    pub fn windows(&self) -> impl Iterator<Item = (u32, Window)> {
        self.windows.iter().map(|(number, window)| (*number, *window))
    }

    /// What slots counted of threads that left them.
    pub fn left(&self) -> &[(u32, [u64; definition::LEFT_WORDS - 2])] {
        &self.left
    }

    pub fn sites(&self) -> impl Iterator<Item = &SiteFacts> {
        self.sites.values()
    }
}

/// Texts one after the other, each with its length in front.
fn texts(mut words: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    while let Some((length, rest)) = words.split_first() {
        let bytes = usize::try_from(*length).unwrap_or(usize::MAX);
        let Some(text) = rest.get(..bytes.div_ceil(WORD)) else { break };
        let all: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).collect();
        found.push(String::from_utf8_lossy(&all[..bytes]).into_owned());
        words = &rest[text.len()..];
    }
    found
}
