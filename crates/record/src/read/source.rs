//! Where a recording is read from: a file, the memory of a session that has ended, a copy of one that goes on.
//!
//! Place in the flow: under everything else that reads.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::active::core::Core;
use crate::error::Error;
use crate::layout::WORD;

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
    /// Of a session that goes on. What threads write meanwhile is there or not, word by word; chunks say by their generation whether they are whole.
    pub fn copied(core: &Arc<Core>) -> Self {
        let words = (0..core.region.bytes()).step_by(WORD);
        Self::Copy(words.map(|byte| core.region.word(byte).load(Ordering::Acquire)).collect())
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
                file.read_exact_at(&mut bytes, at).map_err(|source| match source.kind() {
                    std::io::ErrorKind::UnexpectedEof => beyond(),
                    _ => Error::File { path: path.clone(), source },
                })?;
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
