//! Where a recording is read from: a file, the memory of a session that has ended, a copy of one that goes on.
//!
//! Place in the flow: under everything else that reads.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::active::core::Core;
use crate::error::Error;
use crate::layout::{WORD, chunk, header};

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
    /// Of a session that goes on. The number of the next segment comes first, chunks one by one, and what they refer to last; see `index` for why.
    pub fn copied(core: &Arc<Core>) -> Self {
        let layout = &core.layout;
        let orders = core.header(header::SEQUENCE).load(Ordering::Acquire);
        let mut words = vec![0; core.region.bytes() / WORD];
        let load = |at: usize| core.region.word(at * WORD).load(Ordering::Acquire);
        for number in 0..layout.chunks {
            let first = layout.chunk_at(number) / WORD;
            copy_chunk(&mut words[first..first + layout.chunk_bytes / WORD], |place| load(first + place));
        }
        for (at, word) in words[..layout.chunks_at() / WORD].iter_mut().enumerate() {
            *word = load(at);
        }
        words[header::SEQUENCE] = orders;
        Self::Copy(words)
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
            Self::File(file, path) => {
                let mut bytes = vec![0; count * WORD];
                // What a file that was cut lacks stays zero.
                read_at(file, &mut bytes, at).map_err(|source| Error::File { path: path.clone(), source })?;
                let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
                Ok(bytes.chunks_exact(WORD).map(word).collect())
            }
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

/// Copies what a chunk has; nothing of one that is put to use meanwhile.
fn copy_chunk(words: &mut [u64], load: impl Fn(usize) -> u64) {
    let generation = load(chunk::GENERATION);
    if !generation.is_multiple_of(2) {
        return;
    }
    for (at, word) in words[..chunk::HEADER_WORDS].iter_mut().enumerate() {
        *word = load(at);
    }
    let committed = usize::try_from(words[chunk::COMMITTED]).unwrap_or(0) / WORD;
    let end = committed.clamp(chunk::HEADER_WORDS, words.len());
    for (at, word) in words[..end].iter_mut().enumerate().skip(chunk::HEADER_WORDS) {
        *word = load(at);
    }
    fence(Ordering::Acquire);
    words[chunk::GENERATION] = if load(chunk::GENERATION) == generation { generation } else { 0 };
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
