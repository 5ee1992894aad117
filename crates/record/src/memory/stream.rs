//! Moves the contents of chunks into blocks behind them, in the session's file.
//!
//! The session's thread calls it every period; so does code that hands over a device's events and
//! finds no room. It does not wait for recording threads: it copies what is committed, and frees a
//! chunk that is completed and copied. A block becomes valid through [`header::BLOCK_BYTES`]; until
//! then its contents are found in the chunks.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};

use super::chunk::Segment;
use crate::layout::{Layout, MAGIC, WORD, block, chunk, header};
use crate::memory::pool::Pool;
use crate::memory::region::Region;

/// The end of the file.
#[derive(Debug)]
pub(crate) struct Stream {
    file: File,
    /// Blocks that are not written yet.
    bytes: Vec<u8>,
    /// How much of each chunk is in blocks once these are written.
    drained: Vec<(usize, u64)>,
}

/// The source of the data moved.
#[derive(Copy, Clone)]
pub(crate) struct Chunks<'a> {
    pub layout: &'a Layout,
    pub region: &'a Region,
    pub pool: &'a Pool,
}

impl Chunks<'_> {
    fn word(&self, index: usize, place: usize) -> &AtomicU64 {
        self.region.word(self.layout.chunk_at(index) + place * WORD)
    }

    fn header(&self, place: usize) -> &AtomicU64 {
        self.region.word(place * WORD)
    }
}

impl Stream {
    /// For a session's file, which must be open for writing.
    pub fn of(file: File) -> Self {
        Self { file, bytes: Vec::new(), drained: Vec::new() }
    }

    /// Moves all available data. Data that the file system rejects stays in place and is retried;
    /// threads lose what then does not fit.
    pub fn drain(&mut self, chunks: Chunks<'_>) {
        // Those that are completed now have all their records committed. They come first, and are
        // free as soon as they are written: a slow disk holds up few of them.
        let mut completed = Vec::new();
        while let Some(index) = chunks.pool.completed() {
            completed.push(index);
        }
        let mut moved = 0;
        for (number, index) in completed.iter().enumerate() {
            self.collect(chunks, *index as usize);
            if self.bytes.len() >= WRITE_BYTES {
                self.append(chunks);
                completed[moved..=number].iter().for_each(|index| free(chunks, *index));
                moved = number + 1;
            }
        }
        self.append(chunks);
        completed[moved..].iter().for_each(|index| free(chunks, *index));
        for index in 0..chunks.layout.chunks {
            self.collect(chunks, index);
            if self.bytes.len() >= WRITE_BYTES {
                self.append(chunks);
            }
        }
        self.append(chunks);
    }

    /// Copies the part of a chunk that is in no block.
    fn collect(&mut self, chunks: Chunks<'_>, index: usize) {
        let word = |place: usize| chunks.word(index, place);
        let Some(used) = super::chunk::read(word, chunk::segments_max(chunks.layout.chunk_bytes)) else { return };
        let mut from = used.drained;
        for (k, Segment { writer, from: begin }) in used.segments.iter().enumerate() {
            let end = used.segments.get(k + 1).map_or(used.committed, |next| next.from);
            if from < end {
                let (mark, place) = (block::MARK << 32 | (end - from), u64::from(writer.serial) << 32 | from);
                let words = [mark, place, used.sequence, writer.part, writer.written.wrapping_add(from - begin)];
                let check = words.iter().fold(MAGIC, |check, word| check ^ word);
                self.bytes.extend(words.into_iter().chain([check]).flat_map(u64::to_le_bytes));
                for byte in (from..end).step_by(WORD) {
                    let record = word(byte as usize / WORD).load(Ordering::Relaxed);
                    self.bytes.extend(record.to_le_bytes());
                }
                from = end;
            }
        }
        // Not before the block is written is it counted as such; see `append`. A chunk of which
        // nothing was copied may be free, and in use again by then.
        if from > used.drained {
            self.drained.push((index, from));
        }
    }

    fn append(&mut self, chunks: Chunks<'_>) {
        if self.bytes.is_empty() {
            return;
        }
        let end = chunks.header(header::BLOCK_BYTES);
        let written = end.load(Ordering::Relaxed);
        let place = chunks.region.bytes() as u64 + written;
        match self.file.write_all_at(&self.bytes, place) {
            Ok(()) => {
                end.store(written + self.bytes.len() as u64, Ordering::Release);
                for (index, drained) in self.drained.drain(..) {
                    chunks.word(index, chunk::DRAINED).store(drained, Ordering::Release);
                }
            }
            Err(_) => {
                chunks.header(header::BLOCKS_LOST).fetch_add(1, Ordering::Relaxed);
                self.drained.clear();
            }
        }
        self.bytes.clear();
    }
}

/// A chunk that is completed is free, if all of it is in blocks.
fn free(chunks: Chunks<'_>, index: u32) {
    let word = |place: usize| chunks.word(index as usize, place);
    if word(chunk::DRAINED).load(Ordering::Relaxed) == word(chunk::COMMITTED).load(Ordering::Acquire) {
        chunks.pool.give_back(index);
    } else {
        chunks.pool.complete(index);
    }
}

/// Approximate amount written at once.
const WRITE_BYTES: usize = 1 << 20;
