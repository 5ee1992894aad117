//! Where a recording is read from: a file, the memory of a session that has ended, a copy of one that goes on.
//!
//! Place in the flow: under everything else that reads.

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
    /// A session that nobody writes any more.
    Core(Arc<Core>),
    /// A copy.
    Copy(Vec<u64>),
    /// A copy of a file's parts, and the file for its blocks.
    Held(Vec<u64>, File, PathBuf),
}

impl Source {
    /// Of a session that goes on.
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

    /// A file that may be written meanwhile, and whose chunks are used again: they are copied. What lies behind them stays as it is.
    pub fn held(self, layout: &Layout) -> Result<Self, Error> {
        let words = copy(layout, |at, count| self.words(at, count))?;
        match self {
            Self::File(file, path) => Ok(Self::Held(words, file, path)),
            other => Ok(other),
        }
    }

    /// Its length in bytes.
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

    /// So many words from a byte on.
    pub fn words(&self, at: u64, count: usize) -> Result<Vec<u64>, Error> {
        let beyond = || self.damaged(at, "it ends here, before its parts do");
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

/// Copies everything before the blocks. Chunks that are put to use meanwhile are left out; what chunks refer to comes after them.
fn copy(layout: &Layout, read: impl Fn(u64, usize) -> Result<Vec<u64>, Error>) -> Result<Vec<u64>, Error> {
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
    for at in (0..layout.slots).map(|index| layout.slot_at(index)) {
        let slot = copy_slot(|place, count| read((at + place * WORD) as u64, count))?;
        words[at / WORD..][..slot.len()].copy_from_slice(&slot);
    }
    words[header::SEQUENCE] = sequences;
    Ok(words)
}

/// A slot whose open scopes belong together. Of a thread that opens and ends scopes all the time it is the outermost alone.
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

/// Words of a file; what a file that was cut lacks is zero.
fn words_of(file: &File, path: &Path, at: u64, count: usize) -> Result<Vec<u64>, Error> {
    let mut bytes = vec![0; count * WORD];
    read_at(file, &mut bytes, at).map_err(|source| Error::File { path: path.to_path_buf(), source })?;
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    Ok(bytes.chunks_exact(WORD).map(word).collect())
}

/// Reads what is there.
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

/// How often a slot is read whose thread goes on.
const SLOT_ATTEMPTS: usize = 16;
