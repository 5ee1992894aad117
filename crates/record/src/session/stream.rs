//! Moves what is in chunks into blocks behind them, in the session's file.
//!
//! Place in the flow: called by the session's thread. Threads that record are not waited for: what is committed is copied, a chunk that is
//! completed and copied is free again. A block counts when [`header::BLOCK_BYTES`] says so; what is in the chunks meanwhile is found there.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;

use crate::active::core::Core;
use crate::layout::{MAGIC, WORD, block, chunk, header};
use crate::memory;
use crate::memory::chunk::Segment;

/// The end of the file.
#[derive(Debug)]
pub(super) struct Stream {
    file: File,
    /// Blocks that are not written yet.
    bytes: Vec<u8>,
    /// How far chunks are in blocks once these are written.
    drained: Vec<(usize, u64)>,
}

impl Stream {
    /// Of a session's file, which is open for writing.
    pub fn of(file: File) -> Self {
        Self { file, bytes: Vec::new(), drained: Vec::new() }
    }

    /// Moves everything that is there. What the file system refuses stays where it is and is tried again; threads lose what finds no room then.
    pub fn drain(&mut self, core: &Core) {
        // Those that are completed now have all their records committed. They come first, and are free as soon as they are written: a slow disk holds up
        // few of them.
        let mut completed = Vec::new();
        while let Some(index) = core.pool.completed() {
            completed.push(index);
        }
        let mut moved = 0;
        for (number, index) in completed.iter().enumerate() {
            self.collect(core, *index as usize);
            if self.bytes.len() >= WRITE_BYTES {
                self.append(core);
                completed[moved..=number].iter().for_each(|index| free(core, *index));
                moved = number + 1;
            }
        }
        self.append(core);
        completed[moved..].iter().for_each(|index| free(core, *index));
        for index in 0..core.layout.chunks {
            self.collect(core, index);
            if self.bytes.len() >= WRITE_BYTES {
                self.append(core);
            }
        }
        self.append(core);
    }

    /// Copies what a chunk has that is in no block.
    fn collect(&mut self, core: &Core, index: usize) {
        let at = core.layout.chunk_at(index);
        let word = |place: usize| core.region.word(at + place * WORD);
        let Some(used) = memory::chunk::read(word, chunk::segments_max(core.layout.chunk_bytes)) else { return };
        let mut from = used.drained;
        for (k, Segment { writer, from: begin }) in used.segments.iter().enumerate() {
            let end = used.segments.get(k + 1).map_or(used.committed, |next| next.from);
            if from < end {
                let (mark, place) = (block::MARK << 32 | (end - from), u64::from(writer.serial) << 32 | from);
                let words = [mark, place, used.sequence, writer.part, writer.written.wrapping_add(from - begin)];
                let check = words.iter().fold(MAGIC, |check, word| check ^ word);
                self.bytes.extend(words.into_iter().chain([check]).flat_map(u64::to_le_bytes));
                for byte in (from..end).step_by(WORD) {
                    let record = core.region.word(at + byte as usize).load(Ordering::Relaxed);
                    self.bytes.extend(record.to_le_bytes());
                }
                from = end;
            }
        }
        // Not before the block is written is it counted as such; see `append`. A chunk of which nothing was copied may be free, and in use again by then.
        if from > used.drained {
            self.drained.push((index, from));
        }
    }

    fn append(&mut self, core: &Core) {
        if self.bytes.is_empty() {
            return;
        }
        let end = core.header(header::BLOCK_BYTES);
        let written = end.load(Ordering::Relaxed);
        let place = core.region.bytes() as u64 + written;
        match self.file.write_all_at(&self.bytes, place) {
            Ok(()) => {
                end.store(written + self.bytes.len() as u64, Ordering::Release);
                for (index, drained) in self.drained.drain(..) {
                    let word = core.region.word(core.layout.chunk_at(index) + chunk::DRAINED * WORD);
                    word.store(drained, Ordering::Release);
                }
            }
            Err(_) => {
                core.header(header::BLOCKS_LOST).fetch_add(1, Ordering::Relaxed);
                self.drained.clear();
            }
        }
        self.bytes.clear();
    }
}

/// A chunk that is completed is free, if all of it is in blocks.
fn free(core: &Core, index: u32) {
    let word = |place: usize| core.region.word(core.layout.chunk_at(index as usize) + place * WORD);
    if word(chunk::DRAINED).load(Ordering::Relaxed) == word(chunk::COMMITTED).load(Ordering::Acquire) {
        core.pool.give_back(index);
    } else {
        core.pool.complete(index);
    }
}

/// How much is written at once, about.
const WRITE_BYTES: usize = 1 << 20;
