//! The definitions of a recording, which give its numbers their meaning.
//!
//! They are read once, before the events.

use std::collections::BTreeMap;

use super::device::{Device, Track};
use super::source::Source;
use super::window::Window;
use crate::backend::DevicePair;
use crate::error::Error;
use crate::kind::Kind;
use crate::layout::{Layout, WORD, definition};
use crate::session::modules::Module;

/// A site in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteFacts {
    /// Name of its events.
    pub name: String,
    /// Kind of its events.
    pub kind: Kind,
    /// Source file; may be empty.
    pub file: String,
    /// Line in the source file.
    pub line: u32,
    /// Keys of its events' arguments.
    pub keys: Vec<String>,
}

/// All definitions of a recording.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    sites: BTreeMap<u32, SiteFacts>,
    names: BTreeMap<u32, String>,
    threads: BTreeMap<u32, (u64, String)>,
    tracks: BTreeMap<u32, Track>,
    devices: BTreeMap<u32, Device>,
    notes: Vec<String>,
    modules: BTreeMap<u32, Module>,
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
        let more = if matches!(kind, definition::PAIR | definition::MODULE) { 2 } else { 0 };
        let Some(behind) = words.get(3 + more..) else { return };
        let mut texts = texts(behind).into_iter();
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
            definition::TRACK => {
                let (device, queue) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
                let (clock, row) = (words[2] as u32, (words[2] >> 32) as u32);
                self.tracks.insert(number, Track { clock, device, queue, row, placed: false });
            }
            definition::PAIR => {
                let pair = DevicePair { device: words[2], ticks: words[3], bracket_ticks: words[4] };
                self.device(number).pairs.push(pair);
            }
            definition::CLOCK => {
                let device = self.device(number);
                (device.hz, device.backend) = (words[2], texts.next().unwrap_or_default());
            }
            definition::MODULE => {
                let (path, build_id) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
                self.modules.insert(number, Module { path, bias: words[2], span: [words[3], words[4]], build_id });
            }
            definition::NOTE => self.notes.extend(texts),
            _ => {}
        }
    }

    fn device(&mut self, clock: u32) -> &mut Device {
        self.devices.entry(clock).or_insert_with(|| Device::of_clock(clock))
    }

    /// Makes the maps of devices' clocks.
    pub fn finish(&mut self, ticks_per_second: f64) {
        self.devices.values_mut().for_each(|device| device.finish(ticks_per_second));
        for track in self.tracks.values_mut() {
            track.placed = self.devices.get(&track.clock).is_some_and(Device::is_placed);
        }
    }

    /// The device whose events a thread has.
    pub fn device_of(&self, serial: u32) -> Option<&Device> {
        self.devices.get(&self.tracks.get(&serial)?.clock)
    }

    pub fn track(&self, serial: u32) -> Option<&Track> {
        self.tracks.get(&serial)
    }

    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.values()
    }

    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.modules.values()
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
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

    /// By number.
    pub fn windows(&self) -> impl Iterator<Item = (u32, Window)> {
        self.windows.iter().map(|(number, window)| (*number, *window))
    }

    /// Counts of slots for threads that left them.
    pub fn left(&self) -> &[(u32, [u64; definition::LEFT_WORDS - 2])] {
        &self.left
    }

    /// Whether any site or event may have an argument with this key.
    pub fn has_key(&self, key: &str) -> bool {
        self.names.values().any(|name| name == key)
            || self.sites.values().any(|site| site.keys.iter().any(|own| own == key))
    }

    pub fn sites(&self) -> impl Iterator<Item = &SiteFacts> {
        self.sites.values()
    }
}

/// Consecutive texts, each preceded by its length.
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
