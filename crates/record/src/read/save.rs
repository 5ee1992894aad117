//! Saves a recording as a file of its own.
//!
//! This serves snapshots and recordings without a file. The file is written under a temporary name
//! and renamed, so that readers only ever find a complete one.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Recording;
use crate::error::Error;
use crate::layout::WORD;

impl Recording {
    /// Writes it to a file, replacing an existing one; only the owner may read it.
    ///
    /// # Errors
    /// [`Error::File`] names the file; errors of reading the recording.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let beside = beside(path);
        let written = self.write(&beside).and_then(|()| {
            std::fs::rename(&beside, path).map_err(|source| Error::File { path: path.to_path_buf(), source })
        });
        if written.is_err() {
            // What is there of it is of no use; that it cannot be removed would hide why.
            let _ = std::fs::remove_file(&beside);
        }
        written
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::File { path: path.to_path_buf(), source };
        let opened = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
        let mut file = BufWriter::new(opened.map_err(failed)?);
        let words = self.source.length()? / WORD as u64;
        for first in (0..words).step_by(PIECE_WORDS) {
            let count = (words - first).min(PIECE_WORDS as u64) as usize;
            for word in self.source.words(first * WORD as u64, count)? {
                file.write_all(&word.to_le_bytes()).map_err(failed)?;
            }
        }
        let file: File = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_data().map_err(failed)
    }
}

fn beside(path: &Path) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}.{number}.part", std::process::id()))
}

/// Names, arguments and hosts are the owner's business.
const FILE_MODE: u32 = 0o600;
/// Words in memory at once.
const PIECE_WORDS: usize = 8 << 10;
