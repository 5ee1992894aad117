//! The header words of a chunk: how a chunk is put into use, handed from thread to thread, and read
//! while it is written.
//!
//! A chunk has one writer at a time.
//!
//! Records are stored in any order; [`commit`] makes them known. A chunk that is used again has
//! another generation, odd while its first words change: who has read them between two equal even
//! ones has read those of one use. Over [`Word`], so that loom runs these lines in every
//! interleaving.

use std::sync::atomic::Ordering;

use super::order::Word;
use crate::layout::chunk;

/// Words of 64 bits.
pub(crate) trait Word64: Word<Value = u64> {}

impl<W: Word<Value = u64>> Word64 for W {}

/// Contents of a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// Bytes of complete records.
    pub committed: u64,
    /// Bytes that are in blocks.
    pub drained: u64,
    pub sequence: u64,
    pub segments: Vec<Segment>,
}

/// Data that one thread has written into it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub writer: Writer,
    /// Bytes from the chunk's beginning.
    pub from: u64,
}

/// The writing thread, and how much it had written before.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// Its thread.
    pub serial: u32,
    /// Grows each time that the thread takes part anew.
    pub part: u64,
    /// Bytes of records that it has written since.
    pub written: u64,
}

impl Segment {
    /// Decodes its words.
    pub fn of([place, part, written]: [u64; chunk::SEGMENT_WORDS]) -> Self {
        Self { writer: Writer { serial: (place >> 32) as u32, part, written }, from: place & 0xffff_ffff }
    }

    /// Stores its words.
    fn store<'a, W: Word64 + 'a>(self, word: impl Fn(usize) -> &'a W, number: usize) {
        let Self { writer: Writer { serial, part, written }, from } = self;
        for (place, value) in [u64::from(serial) << 32 | from, part, written].into_iter().enumerate() {
            word(chunk::segment(number) + place).store(value, Ordering::Relaxed);
        }
    }
}

/// Assigns an unused chunk to a thread. Its `sequence` is taken while the chunk is being changed.
pub(crate) fn put_to_use<'a, W: Word64 + 'a>(
    word: impl Fn(usize) -> &'a W,
    segment: Segment,
    sequence: impl FnOnce() -> u64,
) {
    word(chunk::GENERATION).count(true, Ordering::AcqRel);
    // Whoever sees a word of the new use sees that number, too.
    W::fence(Ordering::Release);
    word(chunk::COMMITTED).store(segment.from, Ordering::Relaxed);
    word(chunk::DRAINED).store(segment.from, Ordering::Relaxed);
    word(chunk::SEGMENTS).store(1, Ordering::Relaxed);
    segment.store(&word, 0);
    word(chunk::SEQUENCE).store(sequence(), Ordering::Relaxed);
    word(chunk::GENERATION).count(true, Ordering::AcqRel);
}

/// Assigns the rest of a chunk that another thread began; returns where it begins. `None` if the
/// chunk has had the largest number of threads.
pub(crate) fn go_on<'a, W: Word64 + 'a>(
    word: impl Fn(usize) -> &'a W,
    writer: Writer,
    segments_max: usize,
) -> Option<u64> {
    let from = word(chunk::COMMITTED).load(Ordering::Acquire);
    let segments = word(chunk::SEGMENTS).load(Ordering::Acquire) as usize;
    if segments >= segments_max {
        return None;
    }
    Segment { writer, from }.store(&word, segments);
    word(chunk::SEGMENTS).store(segments as u64 + 1, Ordering::Release);
    Some(from)
}

/// Publishes what has been written up to here, bytes from the chunk's beginning.
#[inline(always)]
pub(crate) fn commit<W: Word64>(committed: &W, bytes: u64) {
    committed.store(bytes, Ordering::Release);
}

/// Reads the contents of a chunk; `None` if it has not been used, or is just being assigned.
pub(crate) fn read<'a, W: Word64 + 'a>(word: impl Fn(usize) -> &'a W, segments_max: usize) -> Option<Use> {
    let generation = word(chunk::GENERATION).load(Ordering::Acquire);
    if generation == 0 || !generation.is_multiple_of(2) {
        return None;
    }
    // Before the segments: those of all threads that have committed are then there.
    let committed = word(chunk::COMMITTED).load(Ordering::Acquire);
    let count = (word(chunk::SEGMENTS).load(Ordering::Acquire) as usize).min(segments_max);
    let words = |k: usize| [0, 1, 2].map(|at| word(chunk::segment(k) + at).load(Ordering::Acquire));
    let segments = (0..count).map(|k| Segment::of(words(k))).collect();
    let [drained, sequence] = [chunk::DRAINED, chunk::SEQUENCE].map(|place| word(place).load(Ordering::Relaxed));
    W::fence(Ordering::Acquire);
    // Else a thread has put it to use just now: the numbers are of both uses.
    let is_one = word(chunk::GENERATION).load(Ordering::Relaxed) == generation;
    is_one.then_some(Use { committed, drained, sequence, segments })
}
