//! The assignment of chunks and slots to threads.
//!
//! A thread asks for a chunk when its own is full. The lists are lock-free, so no thread waits.
//! Under the policy "flight" the chunk that was completed first is reused; under "stream" the
//! writer thread returns the chunks that it has written. A thread that ends leaves the rest of its
//! chunk to the next thread that starts.

use std::sync::atomic::Ordering;

use crossbeam_queue::ArrayQueue;

use crate::layout::{Layout, WORD, chunk, header, record, slot};
use crate::memory::chunk::{Segment, Writer, go_on, put_to_use};
use crate::memory::region::Region;

/// Chunks and slots without a writer.
#[derive(Debug)]
pub(crate) struct Pool {
    layout: Layout,
    free: ArrayQueue<u32>,
    /// In the order in which they were completed.
    full: ArrayQueue<u32>,
    /// Begun by threads that have ended.
    partial: ArrayQueue<u32>,
    slots: ArrayQueue<u32>,
}

/// A piece of a chunk that its taker alone writes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub chunk: u32,
    /// Start of its records, bytes from the chunk's beginning.
    pub from: usize,
}

impl Pool {
    /// All free.
    pub fn new(layout: Layout) -> Self {
        let queue = |length: usize| ArrayQueue::new(length.max(1));
        let pool = Self {
            layout,
            free: queue(layout.chunks),
            full: queue(layout.chunks),
            partial: queue(layout.chunks),
            slots: queue(layout.slots),
        };
        fill(&pool.free, layout.chunks);
        fill(&pool.slots, layout.slots);
        pool
    }

    /// Takes a piece for a thread; `None` if there is no room. `recycle`: full chunks may be
    /// reused.
    pub fn take(&self, region: &Region, writer: Writer, recycle: bool) -> Option<Piece> {
        if let Some(piece) = self.partial.pop().and_then(|index| self.go_on(region, index, writer)) {
            return Some(piece);
        }
        let recycled = || {
            let index = recycle.then(|| self.full.pop()).flatten()?;
            self.count_replaced(region, index);
            Some(index)
        };
        let index = self.free.pop().or_else(recycled)?;
        let at = self.layout.chunk_at(index as usize);
        let word = |place: usize| region.word(at + place * WORD);
        let empty = chunk::header_bytes(self.layout.chunk_bytes) as u64;
        // The sequence is taken last, so that chunks with a lower one than a reader knows are
        // whole.
        let sequence = || region.word(header::SEQUENCE * WORD).fetch_add(1, Ordering::Relaxed);
        put_to_use(word, Segment { writer, from: empty }, sequence);
        Some(Piece { chunk: index, from: empty as usize })
    }

    /// A thread's chunk is full.
    pub fn complete(&self, chunk: u32) {
        // There is room for every chunk there is.
        let _ = self.full.push(chunk);
    }

    /// A thread leaves its chunk unfinished.
    pub fn leave(&self, region: &Region, index: u32) {
        let word = |place: usize| region.word(self.layout.chunk_at(index as usize) + place * WORD);
        let left = self.layout.chunk_bytes as u64 - word(chunk::COMMITTED).load(Ordering::Acquire);
        let segments = word(chunk::SEGMENTS).load(Ordering::Relaxed) as usize;
        if segments < chunk::segments_max(self.layout.chunk_bytes) && left >= LEAST_LEFT {
            let _ = self.partial.push(index);
        } else {
            self.complete(index);
        }
    }

    /// The next completed chunk, for the writer thread.
    pub fn completed(&self) -> Option<u32> {
        self.full.pop()
    }

    /// Whether so many chunks are complete that they must be moved without further delay.
    pub fn is_filling(&self) -> bool {
        self.full.len() * FILLING >= self.layout.chunks
    }

    /// A chunk whose records are in blocks.
    pub fn give_back(&self, chunk: u32) {
        let _ = self.free.push(chunk);
    }

    /// Whether there is an unused chunk.
    pub fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// A slot for a thread.
    pub fn take_slot(&self) -> Option<u32> {
        self.slots.pop()
    }

    /// A thread has ended.
    pub fn give_back_slot(&self, region: &Region, index: u32) {
        region.word(self.layout.slot_at(index as usize) + slot::SERIAL * WORD).store(0, Ordering::Release);
        let _ = self.slots.push(index);
    }

    /// The rest of a chunk that another thread began.
    fn go_on(&self, region: &Region, index: u32, writer: Writer) -> Option<Piece> {
        let word = |place: usize| region.word(self.layout.chunk_at(index as usize) + place * WORD);
        let from = go_on(word, writer, chunk::segments_max(self.layout.chunk_bytes));
        if from.is_none() {
            self.complete(index);
        }
        Some(Piece { chunk: index, from: from? as usize })
    }

    /// Counts the contents of a chunk that is about to be reused.
    fn count_replaced(&self, region: &Region, index: u32) {
        let at = self.layout.chunk_at(index as usize);
        let end =
            (region.word(at + chunk::COMMITTED * WORD).load(Ordering::Acquire) as usize).min(self.layout.chunk_bytes);
        let (mut place, mut events) = (chunk::header_bytes(self.layout.chunk_bytes), 0_u64);
        while place < end {
            let head = region.word(at + place).load(Ordering::Relaxed);
            let lost = head >> 32 & 0xff == record::LOSS;
            events += if lost { region.word(at + place + 3 * WORD).load(Ordering::Relaxed) } else { 1 };
            place += record::words(head).max(1) * WORD;
        }
        region.word(header::REPLACED * WORD).fetch_add(events, Ordering::Relaxed);
    }
}

fn fill(queue: &ArrayQueue<u32>, length: usize) {
    for index in 0..u32::try_from(length).unwrap_or(u32::MAX) {
        let _ = queue.push(index);
    }
}

/// One in this many.
const FILLING: usize = 4;
/// Bytes that must be left in a chunk for another thread to continue in it.
const LEAST_LEFT: u64 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_go_round_in_the_order_of_their_completion() {
        let layout = Layout { chunk_bytes: 4096, chunks: 3, pairs: 1, definition_bytes: 4096, slots: 1 };
        let region = Region::anonymous(layout.bytes()).expect("memory");
        let pool = Pool::new(layout);
        let take =
            |recycle| pool.take(&region, Writer { serial: 5, part: 0, written: 0 }, recycle).map(|piece| piece.chunk);
        assert_eq!([take(false), take(false), take(false), take(false)], [Some(0), Some(1), Some(2), None]);
        pool.complete(1);
        pool.complete(0);
        assert_eq!([take(false), take(true), take(true), take(true)], [None, Some(1), Some(0), None]);
        let generation = region.word(layout.chunk_at(1)).load(Ordering::Relaxed);
        assert_eq!(generation, 4, "put to use twice");
    }

    #[test]
    fn a_thread_goes_on_where_another_has_ended() {
        let layout = Layout { chunk_bytes: 4096, chunks: 1, pairs: 1, definition_bytes: 4096, slots: 1 };
        let region = Region::anonymous(layout.bytes()).expect("memory");
        let pool = Pool::new(layout);
        let writer = |serial, written| Writer { serial, part: 3, written };
        let first = pool.take(&region, writer(5, 0), false).expect("free");
        region.word(layout.chunk_at(0) + chunk::COMMITTED * WORD).store(1000, Ordering::Relaxed);
        pool.leave(&region, first.chunk);
        assert_eq!(pool.take(&region, writer(6, 700), false), Some(Piece { chunk: 0, from: 1000 }));
        let word = |place: usize| region.word(layout.chunk_at(0) + place * WORD).load(Ordering::Relaxed);
        let segment = |number| [0, 1, 2].map(|place| word(chunk::segment(number) + place));
        assert_eq!([segment(0), segment(1)], [[5 << 32 | first.from as u64, 3, 0], [6 << 32 | 1000, 3, 700]]);
    }
}
