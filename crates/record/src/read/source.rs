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
use crate::layout::{WORD, chunk, header, policy, state};

/// Words by their place.
#[derive(Debug)]
pub(crate) enum Source {
    /// A file and its name.
    File(File, PathBuf),
    /// A session that nobody writes any more.
    Core(Arc<Core>),
    /// A copy.
    Copy(Vec<u64>),
}

impl Source {
    /// Of a session that goes on. Chunks come first and the header last, so that no chunk can have left for a block that the header does not know.
    pub fn copied(core: &Arc<Core>) -> Result<Self, Error> {
        let layout = &core.layout;
        let mut words = vec![0; core.region.bytes() / WORD];
        for chunk in 0..layout.chunks {
            let at = layout.chunk_at(chunk);
            copy_chunk(core, at, &mut words[at / WORD..(at + layout.chunk_bytes) / WORD]);
        }
        let before = layout.chunks_at() / WORD;
        for (at, word) in words[..before].iter_mut().enumerate() {
            *word = core.region.word(at * WORD).load(Ordering::Acquire);
        }
        words[header::STATE] = state::COPY;
        if let Some((file, path)) = core.region.file().filter(|_| words[header::POLICY] == policy::STREAM) {
            let blocks = usize::try_from(words[header::BLOCK_BYTES]).unwrap_or(usize::MAX) / WORD;
            let blocks = words_of(file, path, core.region.bytes() as u64, blocks);
            words.extend(blocks?.ok_or_else(|| Error::Damaged {
                path: path.to_path_buf(),
                offset: core.region.bytes() as u64,
                reason: "the file is shorter than its session says: somebody has cut it".into(),
            })?);
        }
        Ok(Self::Copy(words))
    }

    /// Its length in bytes.
    pub fn length(&self) -> Result<u64, Error> {
        match self {
            Self::File(file, path) => file
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
            Self::File(file, path) => words_of(file, path, at, count)?.ok_or_else(beyond),
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
            Self::File(_, path) => path.clone(),
            Self::Core(_) | Self::Copy(_) => PathBuf::from("(memory of the session)"),
        };
        Error::Damaged { path, offset, reason: reason.into() }
    }
}

/// Words of a file; None where it ends before.
fn words_of(file: &File, path: &Path, at: u64, count: usize) -> Result<Option<Vec<u64>>, Error> {
    let mut bytes = vec![0; count * WORD];
    match file.read_exact_at(&mut bytes, at) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(source) => return Err(Error::File { path: path.to_path_buf(), source }),
    }
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    Ok(Some(bytes.chunks_exact(WORD).map(word).collect()))
}

/// Copies a chunk as it was at one moment. One that is put to another use all the time is left empty: what it held is overwritten.
fn copy_chunk(core: &Core, at: usize, words: &mut [u64]) {
    let load = |place: usize| core.region.word(at + place * WORD).load(Ordering::Acquire);
    for _ in 0..COPY_ATTEMPTS {
        let generation = load(chunk::GENERATION);
        if generation == 0 {
            return;
        }
        // How much is whole comes after who wrote which part of it, so that no part begins beyond. What lies behind nobody reads.
        words[..chunk::HEADER_WORDS].iter_mut().enumerate().for_each(|(place, word)| *word = load(place));
        let committed = (load(chunk::COMMITTED) as usize / WORD).clamp(chunk::HEADER_WORDS, words.len());
        words[chunk::COMMITTED] = (committed * WORD) as u64;
        for (place, word) in words.iter_mut().enumerate().take(committed).skip(chunk::HEADER_WORDS) {
            *word = core.region.word(at + place * WORD).load(Ordering::Relaxed);
        }
        fence(Ordering::Acquire);
        if generation.is_multiple_of(2) && load(chunk::GENERATION) == generation {
            return;
        }
    }
    words.fill(0);
}

/// How often a chunk is copied that was overwritten meanwhile.
const COPY_ATTEMPTS: usize = 4;
