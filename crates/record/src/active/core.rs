//! One session as threads see it: what it records, and where.
//!
//! Threads hold a pointer to it while the gate's number says that it exists.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use probe_sync_time::SkewedClock;

use crate::detail::Details;
use crate::kind::Kinds;
use crate::layout::{Layout, WORD, definition, header, window};
use crate::memory::lock::Lock;
use crate::memory::pool::Pool;
use crate::memory::region::Region;
use crate::memory::stream::{Chunks, Stream};
use crate::site::Site;

/// Which threads' events a session records.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// All threads, including those that begin later. One such session at a time.
    #[default]
    Process,
    /// The thread that starts it, and threads that adopt it. Such sessions can be nested.
    Thread,
}

impl Reach {
    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Thread => "thread",
        }
    }
}

/// One session.
#[derive(Debug)]
pub(crate) struct Core {
    /// Number of the session, unique in the process.
    pub number: u64,
    pub reach: Reach,
    /// Serial numbers of the threads in a session that does not cover the whole process.
    pub members: Lock<Vec<u32>>,
    pub place: String,
    pub region: Region,
    pub layout: Layout,
    pub pool: Pool,
    /// Bit set of kinds.
    pub kinds: u32,
    /// One in this many scopes is recorded; 1: all.
    pub every: AtomicU32,
    /// Scopes shorter than this are not recorded, ticks.
    pub least_ticks: u64,
    /// True if full chunks are reused.
    pub recycle: bool,
    /// Groups of arguments behind `||` that are evaluated.
    pub details: Details,
    /// True if events of other kinds are counted.
    pub counts_omitted: bool,
    pub paused: AtomicBool,
    /// Number of mapped files written to the recording.
    pub modules: AtomicU32,
    /// Held while a clock pair is written; never within an event.
    pub pairs: Lock<()>,
    /// Virtual clock, laid over the system clock, to which pairs tie the events' clock.
    pub virtual_clock: SkewedClock,
    /// Present with the policy "stream"; never held within an event.
    pub stream: Option<Lock<Stream>>,
}

impl Core {
    /// Returns true if the session records a thread's events.
    pub fn covers(&self, serial: u32) -> bool {
        let of_thread = || self.members.lock().contains(&serial);
        self.reach == Reach::Process || of_thread()
    }

    /// Returns the bit set of kinds recorded or counted now.
    pub fn noticed(&self) -> u32 {
        match self.wanted() {
            0 => 0,
            _ if self.counts_omitted => Kinds::ALL.bits(),
            wanted => wanted,
        }
    }

    /// Returns the bit set of kinds recorded now.
    pub fn wanted(&self) -> u32 {
        if self.paused.load(Ordering::Acquire) { 0 } else { self.kinds }
    }

    /// Moves the content of chunks into blocks, with the policy "stream".
    pub fn drain(&self) {
        if let Some(stream) = &self.stream {
            stream.lock().drain(Chunks { layout: &self.layout, region: &self.region, pool: &self.pool });
        }
    }

    /// Returns a word of the header.
    pub fn header(&self, place: usize) -> &AtomicU64 {
        self.region.word(place * WORD)
    }

    /// Writes a site's definition.
    pub fn define_site(&self, number: u32, site: &Site) {
        let (file, line) = site.place();
        let kind = u64::from(site.kind().number()) | u64::from(line) << 32;
        let texts = [site.name(), file].into_iter().chain(site.keys().iter().copied());
        self.define(definition::SITE, u64::from(number), kind, texts);
    }

    /// Writes the name of a number.
    pub fn define_name(&self, number: u32, name: &str) {
        self.define(definition::NAME, u64::from(number), 0, std::iter::once(name));
    }

    /// Counts events lost because their thread has no slot.
    pub fn lose(&self, by: u64, first: u64, last: u64) {
        let place = |at: usize| self.header(at);
        count_loss([place(header::LOST), place(header::LOST_FIRST), place(header::LOST_LAST)], by, first, last);
    }

    /// Writes the counts of a thread's slot; returns false if there is no room.
    pub fn define_left(&self, serial: u32, counts: [u64; definition::LEFT_WORDS - 2]) -> bool {
        let Some(at) = self.take_definition(definition::LEFT_WORDS) else { return false };
        let store = |place: usize, value: u64| self.definition_word(at + place).store(value, Ordering::Release);
        store(1, u64::from(serial));
        for (place, count) in counts.into_iter().enumerate() {
            store(2 + place, count);
        }
        store(0, definition::MARK << 32 | definition::LEFT << 16 | definition::LEFT_WORDS as u64);
        true
    }

    /// Writes the identity of a thread. Threads may use at most half of the room, because sites and
    /// names need the rest.
    pub fn define_thread(&self, serial: u32, tid: u64, name: &str) {
        if self.header(header::DEFINITIONS_TAKEN).load(Ordering::Relaxed) as usize
            > self.layout.definition_bytes / WORD / 2
        {
            self.header(header::DEFINITIONS_LOST).fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.define(definition::THREAD, u64::from(serial), tid, std::iter::once(name));
    }

    /// Writes which device queue a thread represents.
    pub fn define_track(&self, serial: u32, clock: u32, row: u32, names: [&str; 2]) {
        self.define(definition::TRACK, u64::from(serial), u64::from(clock) | u64::from(row) << 32, names.into_iter());
    }

    /// Writes a pair of a device's clock and the recorder's.
    pub fn define_pair(&self, clock: u32, device: u64, words: [u64; 2]) {
        self.define_with(definition::PAIR, u64::from(clock), device, &words, std::iter::empty());
    }

    /// Writes the clock of a device.
    pub fn define_clock(&self, clock: u32, hz: u64, backend: &str) {
        self.define(definition::CLOCK, u64::from(clock), hz, std::iter::once(backend));
    }

    /// Writes where an executable file is mapped: its path and its build ID.
    pub fn define_module(&self, number: u32, bias: u64, span: [u64; 2], texts: [&str; 2]) {
        self.define_with(definition::MODULE, u64::from(number), bias, &span, texts.into_iter());
    }

    /// Writes a note.
    pub fn define_note(&self, text: &str) {
        self.define(definition::NOTE, 0, 0, std::iter::once(text));
    }

    fn define<'a>(&self, kind: u64, number: u64, word: u64, texts: impl Iterator<Item = &'a str> + Clone) {
        self.define_with(kind, number, word, &[], texts);
    }

    /// Reserves room with a single addition, so that no thread waits for another and signal
    /// handlers may call it.
    fn define_with<'a>(
        &self,
        kind: u64,
        number: u64,
        word: u64,
        more: &[u64],
        texts: impl Iterator<Item = &'a str> + Clone,
    ) {
        let cut = |text: &'a str| &text.as_bytes()[..text.len().min(definition::TEXT_MAX)];
        let words = 3 + more.len() + texts.clone().map(|text| 1 + cut(text).len().div_ceil(WORD)).sum::<usize>();
        let Some(at) = self.take_definition(words) else { return };
        let store = |place: usize, value: u64| self.definition_word(at + place).store(value, Ordering::Release);
        store(1, number);
        store(2, word);
        for (k, word) in more.iter().enumerate() {
            store(3 + k, *word);
        }
        let mut place = 3 + more.len();
        for text in texts.map(cut) {
            store(place, text.len() as u64);
            for (k, bytes) in text.chunks(WORD).enumerate() {
                let mut word = [0; WORD];
                word[..bytes.len()].copy_from_slice(bytes);
                store(place + 1 + k, u64::from_le_bytes(word));
            }
            place += 1 + text.len().div_ceil(WORD);
        }
        store(0, definition::MARK << 32 | kind << 16 | words as u64);
    }

    /// Writes a window. Returns its place among the words of definitions, for later changes; `None`
    /// if there is no room.
    pub fn define_window(&self, number: u32, words: [u64; window::WORDS - 2]) -> Option<usize> {
        let at = self.take_definition(window::WORDS)?;
        let store = |place: usize, value: u64| self.definition_word(at + place).store(value, Ordering::Release);
        store(1, u64::from(number));
        for (place, word) in words.into_iter().enumerate() {
            store(window::FROM + place, word);
        }
        store(0, definition::MARK << 32 | definition::WINDOW << 16 | window::WORDS as u64);
        Some(at)
    }

    /// Returns a word of the definitions.
    pub fn definition_word(&self, at: usize) -> &AtomicU64 {
        self.region.word(self.layout.definitions_at() + at * WORD)
    }

    /// Reserves room for a definition of this many words; returns its place among all words.
    fn take_definition(&self, words: usize) -> Option<usize> {
        let room = self.layout.definition_bytes / WORD;
        let taken = self.header(header::DEFINITIONS_TAKEN);
        let mut at = taken.load(Ordering::Relaxed) as usize;
        loop {
            if words > definition::WORDS_MAX || at + words > room {
                self.header(header::DEFINITIONS_LOST).fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let next = (at + words) as u64;
            match taken.compare_exchange_weak(at as u64, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(at),
                Err(other) => at = other as usize,
            }
        }
    }
}

/// Adds to a count of lost events, and widens their span.
pub(crate) fn count_loss([number, first_lost, last_lost]: [&AtomicU64; 3], by: u64, first: u64, last: u64) {
    // 0 is a first time that nobody has written yet.
    let earlier = |known: u64| (known == 0 || first < known).then_some(first);
    let _ = first_lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
    last_lost.fetch_max(last, Ordering::Relaxed);
    number.fetch_add(by, Ordering::Relaxed);
}
