//! The layout of a recording: one contiguous region of eight-byte words, with or without a file
//! behind it.
//!
//! This file is the only definition of the layout, for the writer (`memory`, `thread`) as well as
//! the reader (`read`); docs/recorder_format.md describes it in prose. All numbers are
//! little-endian.
//!
//! | part | holds |
//! |---|---|
//! | header | two pages: numbers ([`header`]), and facts about the process as JSON |
//! | clock pairs | counter and system clock at one moment, [`PAIR_WORDS`] each |
//! | definitions | sites, names, threads, one after the other ([`definition`]) |
//! | slots | a thread each: its open scopes, what it lost ([`slot`]) |
//! | chunks | records of threads ([`chunk`], [`record`]) |
//! | blocks | only where a writer thread streams: what chunks held before they were used again ([`block`]) |

/// First word of a recording: the name and the version of this layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"PSREC\0\0\x02");

/// Bytes of a word.
pub(crate) const WORD: usize = 8;

/// Words of the header, by their place.
pub(crate) mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// Bytes of everything before the blocks.
    pub const BYTES: usize = 1;
    /// Bytes of a chunk.
    pub const CHUNK_BYTES: usize = 2;
    /// Chunks.
    pub const CHUNKS: usize = 3;
    /// Capacity of clock pairs.
    pub const PAIRS: usize = 4;
    /// Bytes of the definitions.
    pub const DEFINITION_BYTES: usize = 5;
    /// Slots.
    pub const SLOTS: usize = 6;
    /// One of [`super::state`].
    pub const STATE: usize = 7;
    /// Clock pairs written; more than the capacity means that they were thinned out.
    pub const PAIRS_WRITTEN: usize = 8;
    /// Words of definitions in use.
    pub const DEFINITIONS_TAKEN: usize = 9;
    /// Definitions lost for lack of room.
    pub const DEFINITIONS_LOST: usize = 10;
    /// Events lost because their thread has no slot, and the ticks of the first and the last.
    pub const LOST: usize = 11;
    pub const LOST_FIRST: usize = 12;
    pub const LOST_LAST: usize = 13;
    /// Start of the recording, ticks.
    pub const START: usize = 14;
    /// End of the recording, ticks; 0 before.
    pub const END: usize = 15;
    /// One of [`super::clock`].
    pub const CLOCK: usize = 16;
    /// One of [`super::policy`].
    pub const POLICY: usize = 17;
    /// Bytes of complete blocks.
    pub const BLOCK_BYTES: usize = 18;
    /// Number of the next chunk to be put to use, or of the next thread to take part.
    pub const SEQUENCE: usize = 19;
    /// Span of a flight recorder, ticks; 0: as far as memory reaches.
    pub const KEEP_TICKS: usize = 20;
    /// Ticks at which the counter became unusable as a clock; 0: never.
    pub const CLOCK_FAILED: usize = 21;
    /// Number of pauses and resumptions; odd while paused.
    pub const PAUSES: usize = 22;
    /// Blocks that could not be written because the file system refused them.
    pub const BLOCKS_LOST: usize = 23;
    /// 1: only events within a window count ([`super::window`]), even if there is none; 0: all.
    pub const WINDOWED: usize = 24;
    /// Events that a flight recorder has replaced by newer ones, including those lost among them.
    pub const REPLACED: usize = 32;
    /// Events whose loss is in records or definitions, and no longer in slots.
    pub const LOST_TOLD: usize = 33;
    /// Events of signal handlers that interrupted another event of a thread without a slot.
    pub const INTERRUPTED: usize = 34;
    /// Events that filters omitted on threads that have no slot any more, a word for each
    /// [`super::Filter`].
    pub const OMITTED: usize = 35;
    /// Words of the header's first page.
    pub const WORDS: usize = 512;
    /// Bytes of both pages; the second holds the facts: their length in a word, then JSON.
    pub const ALL_BYTES: usize = 8192;
}

/// Values of [`header::STATE`].
pub(crate) mod state {
    /// In progress, or its process was killed.
    pub const RECORDING: u64 = 1;
    /// Ended normally.
    pub const FINISHED: u64 = 2;
    /// A copy of a recording in progress.
    pub const COPY: u64 = 3;
}

/// Values of [`header::CLOCK`].
pub(crate) mod clock {
    /// Ticks of the time-stamp counter.
    pub const TSC: u64 = 1;
    /// Nanoseconds of `CLOCK_MONOTONIC_RAW`.
    pub const RAW: u64 = 2;
}

/// Values of [`header::POLICY`].
pub(crate) mod policy {
    /// New events are lost when there is no room.
    pub const DROP_NEWEST: u64 = 1;
    /// The oldest chunk is reused.
    pub const FLIGHT: u64 = 2;
    /// A writer thread moves chunks into blocks.
    pub const STREAM: u64 = 3;
}

/// Words of a clock pair: ticks, system clock in ns, width of the bracket in ticks, and the
/// exclusive or of the three with [`MAGIC`].
pub(crate) const PAIR_WORDS: usize = 4;

/// A definition: its first word is `MARK << 32 | kind << 16 | total words`, written last; the
/// second its number. The words of its content follow.
pub(crate) mod definition {
    /// Upper half of the first word of a complete definition.
    pub const MARK: u64 = 0x5053_4446;
    /// Kind of event, line << 32; then texts: name, file, keys of arguments.
    pub const SITE: u64 = 1;
    /// Texts: one, the name.
    pub const NAME: u64 = 2;
    /// Thread id; then texts: one, the name. Its number is the thread's serial number.
    pub const THREAD: u64 = 3;
    /// A window: see [`super::window`]. Its number counts from 0.
    pub const WINDOW: u64 = 4;
    /// Counts of a thread's slot when the thread left it: lost events, ticks of the first and the
    /// last, events of signal handlers that interrupted another, arguments without room, scopes
    /// opened too deep. Its number is the thread's serial number; a thread may have several.
    pub const LEFT: u64 = 5;
    /// Words of [`LEFT`].
    pub const LEFT_WORDS: usize = 8;
    /// A virtual thread for events of a device: its serial number; the number of the device's
    /// clock, and which of the queue's threads it is, << 32; then texts: device, queue.
    pub const TRACK: u64 = 6;
    /// Number of a device's clock; its count; then two words: the recorder's ticks, and the
    /// distance between its readings around the device's.
    pub const PAIR: u64 = 7;
    /// Number of a device's clock; stated counts per second, 0 for the recorder's own ticks; then
    /// texts: one, the backend.
    pub const CLOCK: u64 = 8;
    /// A mapped executable file: its number; the shift of its addresses; then two words: its start
    /// and end; then texts: its path, its GNU build ID in hexadecimal digits.
    pub const MODULE: u64 = 9;
    /// A note on the recording; then texts: one.
    pub const NOTE: u64 = 10;
    /// Longest text stored completely, bytes.
    pub const TEXT_MAX: usize = 4096;
    /// Largest length of a definition in words.
    pub const WORDS_MAX: usize = 0xffff;
}

/// Words of the definition of a window, by their place. They are rewritten when its limits are
/// known better.
pub(crate) mod window {
    /// Start, ticks.
    pub const FROM: usize = 2;
    /// End, ticks; 0: still open.
    pub const TO: usize = 3;
    /// Requested span, ns on the reference clock; both 0 if it was not requested by that clock.
    pub const ASKED_FROM: usize = 4;
    pub const ASKED_TO: usize = 5;
    /// 1: its start had passed before anything was recorded, as given by [`FROM`].
    pub const LATE: usize = 6;
    pub const WORDS: usize = 7;
}

/// Words of a slot, by their place.
pub(crate) mod slot {
    /// Serial number of its thread; 0: unused.
    pub const SERIAL: usize = 0;
    /// Thread id.
    pub const TID: usize = 1;
    /// Position of the innermost open scope, in words from the slot's beginning; 0: none is open.
    pub const LAST: usize = 2;
    /// Events that were lost, and the ticks of the first and the last.
    pub const LOST: usize = 3;
    pub const LOST_FIRST: usize = 4;
    pub const LOST_LAST: usize = 5;
    /// Events of signal handlers that interrupted another event of the thread.
    pub const INTERRUPTED: usize = 6;
    /// Arguments lost for lack of room.
    pub const ARGUMENTS_LOST: usize = 7;
    /// Number of scopes opened; it changes with every one, so that a reader can tell whether what
    /// it has read is consistent.
    pub const OPENED: usize = 8;
    /// Number of scopes opened deeper than there is room.
    pub const TOO_DEEP: usize = 9;
    /// Events that filters omitted, a word for each [`super::Filter`].
    pub const OMITTED: usize = 10;
    /// Start of open scopes.
    pub const STACK: usize = 16;
    /// Words of it all.
    pub const WORDS: usize = 2048;
}

/// A filter of a session, by the place of its count.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Kinds,
    OneIn,
    LongerThan,
}

/// Number of [`Filter`]s.
pub(crate) const FILTERS: usize = 3;

/// Words of a chunk, by their place.
pub(crate) mod chunk {
    /// Odd while it is being put to use; a different even number for every use.
    pub const GENERATION: usize = 0;
    /// Number of the chunk's use, unique in a recording.
    pub const SEQUENCE: usize = 1;
    /// Bytes completely written, including the header.
    pub const COMMITTED: usize = 2;
    /// Bytes copied to blocks.
    pub const DRAINED: usize = 3;
    /// Number of segments, one for each thread that has written to it.
    pub const SEGMENTS: usize = 4;
    /// For each, [`SEGMENT_WORDS`]: serial number << 32 | bytes from the chunk's beginning; a
    /// number that increases each time the thread takes part again; bytes of records written by the
    /// thread since then, before this segment. Segments of 100 and 60 bytes begin at 0 and 100: if
    /// the next one found does not begin at the end of the previous one, there is a gap.
    pub const FIRST_SEGMENT: usize = 5;
    /// Words that describe a segment.
    pub const SEGMENT_WORDS: usize = 3;

    /// Returns the position of the words of a segment.
    pub const fn segment(number: usize) -> usize {
        FIRST_SEGMENT + SEGMENT_WORDS * number
    }

    /// Returns the largest number of segments in a chunk of this many bytes: threads that record
    /// little and end leave the rest to others.
    pub const fn segments_max(chunk_bytes: usize) -> usize {
        chunk_bytes / 512
    }

    /// Returns the number of words before the records.
    pub const fn header_words(chunk_bytes: usize) -> usize {
        segment(segments_max(chunk_bytes)).next_multiple_of(8)
    }

    /// Returns the number of bytes before the records.
    pub const fn header_bytes(chunk_bytes: usize) -> usize {
        header_words(chunk_bytes) * super::WORD
    }
}

/// A record: `site | kind << 32 | words << 40 | depth << 48`, then words by its kind, then
/// arguments.
pub(crate) mod record {
    /// Begin, end, id. While it is open in a slot, the second is the place of the enclosing scope
    /// instead.
    pub const SCOPE: u64 = 1;
    /// A scope that did not end itself: closed with the enclosing one.
    pub const UNFINISHED: u64 = 2;
    /// Time, id.
    pub const INSTANT: u64 = 3;
    /// Time, value as the bits of a double.
    pub const COUNTER: u64 = 4;
    /// Time, flow.
    pub const FLOW_OUT: u64 = 5;
    pub const FLOW_STEP: u64 = 6;
    pub const FLOW_IN: u64 = 7;
    /// Time, span.
    pub const ASYNC_BEGIN: u64 = 8;
    pub const ASYNC_END: u64 = 9;
    /// Time of the first, time of the last, number: events of this thread that were lost here. Its
    /// site is 0.
    pub const LOSS: u64 = 10;
    /// Words of a scope without arguments.
    pub const SCOPE_WORDS: usize = 4;
    /// Most words of a record.
    pub const WORDS_MAX: usize = 255;

    /// Returns the first word of a record.
    #[inline]
    pub const fn head(site: u32, kind: u64, words: usize, depth: u32) -> u64 {
        let depth = if depth > 0xffff { 0xffff } else { depth };
        site as u64 | kind << 32 | (words as u64) << 40 | (depth as u64) << 48
    }

    /// Returns the number of words of a record, from its first word.
    #[inline]
    pub const fn words(head: u64) -> usize {
        (head >> 40 & 0xff) as usize
    }
}

/// An argument: `key | type << 32 | words << 40 | bytes of text << 48`, then its value.
pub(crate) mod argument {
    /// Set in a key that is a place among the site's keys; otherwise the key is the number of a
    /// name.
    pub const OF_SITE: u32 = 1 << 31;
    pub const INTEGER: u64 = 1;
    pub const UNSIGNED: u64 = 2;
    pub const FLOAT: u64 = 3;
    pub const BOOLEAN: u64 = 4;
    /// Bytes, padded with zeros.
    pub const TEXT: u64 = 5;
    /// JSON.
    pub const JSON: u64 = 6;
    /// One address, or several: a stack.
    pub const ADDRESSES: u64 = 7;
    /// Longest text or JSON, bytes; longer ones are truncated, and the type has [`CUT`].
    pub const TEXT_MAX: usize = 1024;
    /// Set in the type of a truncated text.
    pub const CUT: u64 = 0x80;

    /// Returns the first word of an argument.
    #[inline]
    pub const fn head(key: u32, kind: u64, words: usize, bytes: usize) -> u64 {
        key as u64 | kind << 32 | (words as u64) << 40 | (bytes as u64) << 48
    }
}

/// A block of data from chunks: [`block::WORDS`] words, then the bytes of records.
pub(crate) mod block {
    /// The first word: this mark << 32 | bytes.
    pub const MARK: u64 = 0x5053_424c;
    /// The second: serial number of the thread << 32 | where in the chunk the bytes lay. The third:
    /// the chunk's sequence. The fourth and the fifth: how often its thread had taken part, and
    /// bytes of records before these, as of a segment. The sixth: the exclusive or of the five with
    /// [`super::MAGIC`].
    pub const WORDS: usize = 6;
}

/// Sizes of the parts.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub chunk_bytes: usize,
    pub chunks: usize,
    pub pairs: usize,
    pub definition_bytes: usize,
    pub slots: usize,
}

impl Layout {
    /// Divides this many bytes; `None` if they are too few.
    pub fn dividing(bytes: usize, threads: usize) -> Option<Self> {
        if !(BYTES_MIN..=BYTES_LIMIT).contains(&bytes) {
            return None;
        }
        let chunk_bytes = (bytes / 128).next_power_of_two().clamp(CHUNK_MIN, CHUNK_MAX);
        let pairs = (bytes / 16 / (PAIR_WORDS * WORD)).min(PAIRS_MAX);
        let definition_bytes = (bytes / 16).clamp(DEFINITIONS_MIN, DEFINITIONS_MAX) / CHUNK_MIN * CHUNK_MIN;
        let slots = threads.clamp(1, bytes / 4 / (slot::WORDS * WORD));
        let mut layout = Self { chunk_bytes, chunks: 0, pairs, definition_bytes, slots };
        layout.chunks = bytes.saturating_sub(layout.chunks_at()) / chunk_bytes;
        (layout.chunks >= 2).then_some(layout)
    }

    pub fn pairs_at(&self) -> usize {
        header::ALL_BYTES
    }

    pub fn definitions_at(&self) -> usize {
        self.pairs_at() + self.pairs * PAIR_WORDS * WORD
    }

    pub fn slots_at(&self) -> usize {
        self.definitions_at() + self.definition_bytes
    }

    pub fn chunks_at(&self) -> usize {
        (self.slots_at() + self.slots * slot::WORDS * WORD).next_multiple_of(CHUNK_MIN)
    }

    pub fn slot_at(&self, index: usize) -> usize {
        self.slots_at() + index * slot::WORDS * WORD
    }

    pub fn chunk_at(&self, index: usize) -> usize {
        self.chunks_at() + index * self.chunk_bytes
    }

    /// Returns the bytes of everything before the blocks.
    pub fn bytes(&self) -> usize {
        self.chunk_at(self.chunks)
    }

    /// Parses the layout from a file's header, if valid.
    pub fn of_header(words: &[u64]) -> Option<Self> {
        let number = |at: usize| words.get(at).and_then(|word| usize::try_from(*word).ok());
        let layout = Self {
            chunk_bytes: number(header::CHUNK_BYTES)?,
            chunks: number(header::CHUNKS)?,
            pairs: number(header::PAIRS)?,
            definition_bytes: number(header::DEFINITION_BYTES)?,
            slots: number(header::SLOTS)?,
        };
        let sound = layout.chunk_bytes.is_power_of_two()
            && (CHUNK_MIN..=CHUNK_MAX).contains(&layout.chunk_bytes)
            && layout.chunks <= BYTES_LIMIT / layout.chunk_bytes
            && layout.pairs <= PAIRS_MAX
            && layout.definition_bytes <= DEFINITIONS_MAX
            && layout.definition_bytes.is_multiple_of(WORD)
            && layout.slots <= BYTES_LIMIT / (slot::WORDS * WORD);
        (sound && number(header::BYTES)? == layout.bytes()).then_some(layout)
    }
}

/// Smallest size of a recording, bytes.
pub(crate) const BYTES_MIN: usize = 512 << 10;
/// Largest size of a recording without blocks, bytes.
pub(crate) const BYTES_LIMIT: usize = 1 << 36;
/// Smallest size of a chunk; also a page.
const CHUNK_MIN: usize = 4096;
/// Largest size of a chunk.
const CHUNK_MAX: usize = 64 << 10;
/// Most pairs: four and a half hours at one per second, before every other one is removed.
const PAIRS_MAX: usize = 16 << 10;
const DEFINITIONS_MIN: usize = 32 << 10;
const DEFINITIONS_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_follow_each_other_within_the_bytes() {
        for (bytes, threads) in [(BYTES_MIN, 1), (1 << 20, 256), (64 << 20, 256), (1 << 30, 4096), (777_777_777, 3)] {
            let layout = Layout::dividing(bytes, threads).expect("enough bytes");
            assert!(layout.bytes() <= bytes, "{layout:?} of {bytes}");
            assert!(layout.bytes() > bytes / 2, "{layout:?} of {bytes}");
            assert!(layout.chunk_at(0).is_multiple_of(CHUNK_MIN) && layout.chunks >= 2);
            let mut words = vec![0_u64; header::WORDS];
            words[header::BYTES] = layout.bytes() as u64;
            words[header::CHUNK_BYTES] = layout.chunk_bytes as u64;
            words[header::CHUNKS] = layout.chunks as u64;
            words[header::PAIRS] = layout.pairs as u64;
            words[header::DEFINITION_BYTES] = layout.definition_bytes as u64;
            words[header::SLOTS] = layout.slots as u64;
            assert_eq!(Layout::of_header(&words), Some(layout));
            words[header::CHUNKS] += 1;
            assert_eq!(Layout::of_header(&words), None);
        }
        assert_eq!(Layout::dividing(BYTES_MIN - 1, 1), None);
        assert_eq!(Layout::dividing(BYTES_LIMIT + 1, 1), None, "it could not be read");
    }

    #[test]
    fn a_head_says_what_it_was_made_of() {
        let head = record::head(7, record::SCOPE, 4, 70_000);
        assert_eq!((head & 0xffff_ffff, head >> 32 & 0xff, record::words(head), head >> 48), (7, 1, 4, 0xffff));
    }

    /// Checks docs/recorder_format.md against these numbers.
    #[test]
    fn the_page_about_the_format_has_these_numbers() {
        let page = include_str!("../../../docs/recorder_format.md");
        let line =
            |number: usize, what: &str| assert!(page.contains(&format!("| {number} | {what}")), "{number} {what}");
        line(header::BYTES, "bytes of everything before the blocks");
        line(header::CHUNK_BYTES, &format!("bytes of a chunk: a power of two, {CHUNK_MIN} to {CHUNK_MAX}"));
        line(header::STATE, "1: in progress");
        line(header::PAIRS_WRITTEN, "clock pairs written");
        line(header::DEFINITIONS_TAKEN, "words of definitions taken");
        line(header::CLOCK, "clock: 1 time-stamp counter, 2");
        line(header::POLICY, "policy: 1 drop newest, 2 flight, 3 stream");
        line(header::BLOCK_BYTES, "bytes of blocks that are whole");
        line(header::SEQUENCE, "number that the next use of a chunk gets");
        line(header::KEEP_TICKS, "ticks that a flight recorder looks back");
        line(header::PAUSES, "how often it was paused");
        line(header::BLOCKS_LOST, "times that blocks could not be written");
        line(header::REPLACED, "events that a flight recorder has replaced");
        line(header::LOST_TOLD, "lost events that stand in records");
        line(header::INTERRUPTED, "events of signal handlers");
        line(header::OMITTED, "events that were omitted");
        line(slot::LAST, "where the innermost open scope lies");
        line(slot::OPENED, "scopes opened; changes with each");
        line(slot::TOO_DEEP, "scopes opened deeper");
        line(slot::OMITTED, "events that were omitted");
        line(slot::STACK, "open scopes begin");
        line(chunk::COMMITTED, "bytes that are whole");
        line(chunk::SEGMENTS, "segments");
        line(chunk::FIRST_SEGMENT, "of each segment three words");
        for (number, what) in [
            (definition::SITE, "site"),
            (definition::NAME, "name"),
            (definition::THREAD, "thread"),
            (definition::LEFT, "left"),
            (record::SCOPE, "scope |"),
            (record::UNFINISHED, "scope that never ended |"),
            (record::INSTANT, "moment |"),
            (record::COUNTER, "counter |"),
            (record::LOSS, "losses |"),
        ] {
            assert!(page.contains(&format!("| {number} {what}")), "{number} {what}");
        }
        line(argument::INTEGER as usize, "integer |");
        line(argument::ADDRESSES as usize, "addresses |");
        for text in [
            format!("{:#x} << 32 | kind << 16", definition::MARK),
            format!("{:#x} << 32 | bytes of records", block::MARK),
            format!("word {} in chunks of {CHUNK_MIN} bytes", chunk::header_words(CHUNK_MIN)),
            format!("at most {} words", record::WORDS_MAX),
            format!("A thread each, {} words", slot::WORDS),
            format!("{} bytes: numbers, then facts", header::ALL_BYTES),
            format!("Word {} is the length of the facts", header::WORDS),
            format!("at most {}.", definition::TEXT_MAX),
            format!("has {} added to its type", argument::CUT),
        ] {
            assert!(page.contains(&text), "{text}");
        }
    }
}
