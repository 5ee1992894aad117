//! The source of a recording: a file, the memory of a finished session, or a copy of a running one.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::active::core::Core;
use crate::error::Error;
use crate::layout::{Layout, WORD, header, policy, record, slot, state};

/// Words by their place.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file and its name.
    File(File, PathBuf),
    /// A session without writers.
    Core(Arc<Core>),
    /// A copy.
    Copy(Vec<u64>),
    /// A copy of a file's parts, and the file for its blocks.
    Held(Vec<u64>, File, PathBuf),
}

impl Source {
    /// Copies a running session.
    pub fn copied(core: &Arc<Core>) -> Result<Self, Error> {
        let load = |byte: usize| core.region.word(byte).load(Ordering::Acquire);
        let read = |at: u64, count: usize| Ok((0..count).map(|word| load(at as usize + word * WORD)).collect());
        let mut words = copy(&core.layout, read)?;
        words[header::STATE] = state::COPY;
        if let Some((file, path)) = core.region.file().filter(|_| words[header::POLICY] == policy::STREAM) {
            let blocks = usize::try_from(words[header::BLOCK_BYTES]).unwrap_or(usize::MAX) / WORD;
            words.extend(words_of(file, path, core.region.bytes() as u64, blocks)?);
        }
        Ok(Self::Copy(words))
    }

    /// A file that may be written meanwhile, and whose chunks are reused: they are copied. Data
    /// behind them does not change.
    pub fn held(self, layout: &Layout) -> Result<Self, Error> {
        let words = copy(layout, |at, count| self.words(at, count))?;
        match self {
            Self::File(file, path) => Ok(Self::Held(words, file, path)),
            other => Ok(other),
        }
    }

    /// Name of its file.
    #[cfg(feature = "export")]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(_, path) | Self::Held(.., path) => Some(path),
            Self::Core(_) | Self::Copy(_) => None,
        }
    }

    /// Length in bytes.
    pub fn length(&self) -> Result<u64, Error> {
        match self {
            Self::File(file, path) | Self::Held(_, file, path) => file
                .metadata()
                .map(|metadata| metadata.len())
                .map_err(|source| Error::File { path: path.clone(), source }),
            Self::Core(core) => Ok(core.region.bytes() as u64),
            Self::Copy(words) => Ok((words.len() * WORD) as u64),
        }
    }

    /// Reads `count` words from a byte position on.
    pub fn words(&self, at: u64, count: usize) -> Result<Vec<u64>, Error> {
        let beyond = || self.damaged(at, "the file ends here, before its parts do");
        match self {
            Self::Held(words, ..) if at < (words.len() * WORD) as u64 => {
                let first = at as usize / WORD;
                words.get(first..first + count).map(<[u64]>::to_vec).ok_or_else(beyond)
            }
            Self::File(file, path) | Self::Held(_, file, path) => words_of(file, path, at, count),
            Self::Core(core) => {
                let end = at as usize + count * WORD;
                if end > core.region.bytes() {
                    return Err(beyond());
                }
                let load = |byte: usize| core.region.word(byte).load(Ordering::Acquire);
                Ok((at as usize..end).step_by(WORD).map(load).collect())
            }
            Self::Copy(words) => {
                let first = at as usize / WORD;
                words.get(first..first + count).map(<[u64]>::to_vec).ok_or_else(beyond)
            }
        }
    }

    /// An error at a byte of it.
    pub fn damaged(&self, offset: u64, reason: &str) -> Error {
        let path = match self {
            Self::File(_, path) | Self::Held(_, _, path) => path.clone(),
            Self::Core(_) | Self::Copy(_) => PathBuf::from("(memory of the session)"),
        };
        Error::Damaged { path, offset, reason: reason.into() }
    }
}

/// Copies everything before the blocks. Chunks assigned meanwhile are left out; what chunks refer
/// to comes after them.
///
/// Losses of a thread are counted in its slot until its next chunk reports them. Counts are read
/// first, and then which chunks have been assigned, so that losses reported meanwhile, in a chunk
/// that is left out, are not missed: 5 events are lost, the slot says 5, the chunks are copied, the
/// thread gets a chunk and reports 5 there, and its slot says 0. The reader of the copy counts those
/// that are in both once.
fn copy(layout: &Layout, read: impl Fn(u64, usize) -> Result<Vec<u64>, Error>) -> Result<Vec<u64>, Error> {
    let slots: Vec<usize> = (0..layout.slots).map(|index| layout.slot_at(index)).collect();
    let losses: Vec<[u64; LOSSES.end]> = slots.iter().map(|at| losses_of(*at, &read)).collect::<Result<_, _>>()?;
    let sequences = read((header::SEQUENCE * WORD) as u64, 1)?[0];
    let mut words = vec![0; layout.bytes() / WORD];
    for at in (0..layout.chunks).map(|number| layout.chunk_at(number)) {
        let generation = read(at as u64, 1)?[0];
        if generation == 0 || !generation.is_multiple_of(2) {
            continue;
        }
        let chunk = read(at as u64, layout.chunk_bytes / WORD)?;
        fence(Ordering::Acquire);
        if read(at as u64, 1)?[0] == generation {
            words[at / WORD..][..chunk.len()].copy_from_slice(&chunk);
        }
    }
    let before = read(0, layout.chunks_at() / WORD)?;
    words[..before.len()].copy_from_slice(&before);
    for (at, before) in slots.into_iter().zip(losses) {
        let mut slot = copy_slot(|place, count| read((at + place * WORD) as u64, count))?;
        if slot[slot::SERIAL] == before[slot::SERIAL] {
            slot[LOSSES].copy_from_slice(&before[LOSSES]);
        }
        words[at / WORD..][..slot.len()].copy_from_slice(&slot);
    }
    words[header::SEQUENCE] = sequences;
    Ok(words)
}

/// The first words of a slot, with the losses of its thread.
fn losses_of(at: usize, read: impl Fn(u64, usize) -> Result<Vec<u64>, Error>) -> Result<[u64; LOSSES.end], Error> {
    let mut words = [0; LOSSES.end];
    for _ in 0..SLOT_ATTEMPTS {
        let before = words;
        words.copy_from_slice(&read(at as u64, LOSSES.end)?);
        if [slot::SERIAL, slot::LOST, slot::LOST_FIRST, slot::LOST_LAST].iter().all(|at| words[*at] == before[*at]) {
            break;
        }
    }
    Ok(words)
}

/// A slot with consistent open scopes. For a thread that opens and ends scopes all the time it is
/// only the outermost.
fn copy_slot(read: impl Fn(usize, usize) -> Result<Vec<u64>, Error>) -> Result<Vec<u64>, Error> {
    let mut words = read(0, slot::WORDS)?;
    for _ in 0..SLOT_ATTEMPTS {
        let after = read(0, slot::STACK)?;
        if [slot::SERIAL, slot::LAST, slot::OPENED].iter().all(|at| words[*at] == after[*at]) {
            return Ok(words);
        }
        words = read(0, slot::WORDS)?;
    }
    let after = read(0, slot::STACK + record::SCOPE_WORDS)?;
    let stays = |at: usize| words[at] == after[at];
    let outermost = [slot::SERIAL, slot::STACK, slot::STACK + 1, slot::STACK + 3].into_iter().all(stays);
    let is_open = outermost && words[slot::LAST] != 0 && after[slot::LAST] != 0;
    words[slot::LAST] = if is_open { slot::STACK as u64 } else { 0 };
    Ok(words)
}

/// Words of a file; words missing from a truncated file are zero.
fn words_of(file: &File, path: &Path, at: u64, count: usize) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; count * WORD];
    read_at(file, &mut bytes, at).map_err(|source| Error::File { path: path.to_path_buf(), source })?;
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    Ok(bytes.chunks_exact(WORD).map(word).collect())
}

/// Reads the available bytes.
fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match file.read_at(bytes, at) {
            Ok(0) => break,
            Ok(count) => (bytes, at) = (&mut bytes[count..], at + count as u64),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Position of the losses in a slot.
const LOSSES: std::ops::Range<usize> = slot::LOST..slot::LOST_LAST + 1;
/// How often the slot of an active thread is read.
const SLOT_ATTEMPTS: usize = 16;

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::layout::chunk;

    #[test]
    fn losses_that_a_thread_tells_while_it_is_copied_are_not_missed() {
        let layout = Layout { chunk_bytes: 4096, chunks: 1, pairs: 1, definition_bytes: 4096, slots: 1 };
        let (slot, chunk) = (layout.slot_at(0) / WORD, layout.chunk_at(0) / WORD);
        let (mut told_in_the_slot, mut told_in_the_chunk) = (0, 0);
        for moment in 0..20 {
            let memory = RefCell::new(vec![0; layout.bytes() / WORD]);
            memory.borrow_mut()[slot..][..6].copy_from_slice(&[3, 77, 0, 5, 100, 200]);
            let reads = Cell::new(0);
            let read = |at: u64, count: usize| {
                // Before this one the thread gets its chunk, and tells of its losses there.
                if reads.replace(reads.get() + 1) == moment {
                    let mut memory = memory.borrow_mut();
                    memory[slot + slot::LOST..][..3].fill(0);
                    (memory[chunk + chunk::GENERATION], memory[chunk + chunk::SEQUENCE]) = (2, 0);
                    memory[header::SEQUENCE] = 1;
                }
                Ok(memory.borrow()[at as usize / WORD..][..count].to_vec())
            };
            let copied = copy(&layout, read).expect("memory");
            let in_the_slot = copied[slot..][..6] == [3, 77, 0, 5, 100, 200];
            let is_there = copied[chunk + chunk::GENERATION] == 2;
            let in_the_chunk = is_there && copied[chunk + chunk::SEQUENCE] < copied[header::SEQUENCE];
            assert!(in_the_slot || in_the_chunk, "told before read {moment}");
            told_in_the_slot += u32::from(in_the_slot);
            told_in_the_chunk += u32::from(in_the_chunk);
        }
        assert!(told_in_the_slot > 0 && told_in_the_chunk > 0);
    }
}
