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
use crate::layout::{Layout, WORD, chunk, header, policy, state};

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
    /// Of a session that goes on. Segments that begin meanwhile are left out, as are those before one that is overwritten; what chunks refer to comes last.
    pub fn copied(core: &Arc<Core>) -> Result<Self, Error> {
        let layout = &core.layout;
        let mut words = vec![0; core.region.bytes() / WORD];
        let load = |at: usize| core.region.word(at * WORD).load(Ordering::Acquire);
        let begin = |number: usize| layout.chunk_at(number) / WORD;
        let before = |number: usize| load(begin(number) + chunk::GENERATION);
        let before: Vec<(u64, u64)> = (0..layout.chunks)
            .map(|number| (before(number), newest(layout, |place| load(begin(number) + place))))
            .collect();
        // After that look: what was overwritten before it is older than what has been overwritten since.
        let orders = core.header(header::SEQUENCE).load(Ordering::Acquire);
        let mut oldest = 0;
        for (number, (generation, order)) in before.into_iter().enumerate() {
            let chunk = &mut words[begin(number)..][..layout.chunk_bytes / WORD];
            copy_chunk(chunk, |place| load(begin(number) + place));
            if generation.is_multiple_of(2) && generation > 0 && chunk[chunk::GENERATION] != generation {
                oldest = oldest.max(order + 1);
            }
        }
        for (at, word) in words[..layout.chunks_at() / WORD].iter_mut().enumerate() {
            *word = load(at);
        }
        words[header::SEQUENCE] = orders;
        words[header::OLDEST] = oldest;
        words[header::STATE] = state::COPY;
        if let Some((file, path)) = core.region.file().filter(|_| words[header::POLICY] == policy::STREAM) {
            let blocks = usize::try_from(words[header::BLOCK_BYTES]).unwrap_or(usize::MAX) / WORD;
            words.extend(words_of(file, path, core.region.bytes() as u64, blocks)?);
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
            Self::File(file, path) => words_of(file, path, at, count),
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

/// The order of the last segment of a chunk.
fn newest(layout: &Layout, load: impl Fn(usize) -> u64) -> u64 {
    let segments = usize::try_from(load(chunk::SEGMENTS)).unwrap_or(usize::MAX);
    let last = segments.clamp(1, chunk::segments_max(layout.chunk_bytes)) - 1;
    load(chunk::FIRST_SEGMENT + 2 * last + 1)
}

/// Copies what a chunk has; nothing of one that is put to use meanwhile.
fn copy_chunk(words: &mut [u64], load: impl Fn(usize) -> u64) {
    let generation = load(chunk::GENERATION);
    if !generation.is_multiple_of(2) {
        return;
    }
    let header = chunk::header_words(words.len() * WORD);
    for (at, word) in words[..header].iter_mut().enumerate() {
        *word = load(at);
    }
    let committed = usize::try_from(words[chunk::COMMITTED]).unwrap_or(0) / WORD;
    let end = committed.clamp(header, words.len());
    for (at, word) in words[..end].iter_mut().enumerate().skip(header) {
        *word = load(at);
    }
    fence(Ordering::Acquire);
    words[chunk::GENERATION] = if load(chunk::GENERATION) == generation { generation } else { 0 };
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
