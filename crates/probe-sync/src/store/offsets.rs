//! A file of offsets written as a whole: its header, then its lines.
//!
//! The end of a run and `solve` use it, because they know all lines before they write the first.
//! The live file grows line by line instead ([`super::JsonLines`]).

use std::io::Write;
use std::path::Path;

use probe_sync_files::AtomicFile;
use probe_sync_lines::{OffsetRecord, OffsetsHeader};
use serde::Serialize;

use crate::Error;

/// Writes the file, completely or not at all; returns the number of lines after the header.
pub(crate) fn write_offsets(
    path: &Path,
    header: &OffsetsHeader,
    lines: impl Iterator<Item = OffsetRecord>,
) -> Result<usize, Error> {
    let file = AtomicFile::create(path).map_err(Error::file(path, "write"))?;
    write_offsets_to(file, header, lines)
}

/// Writes like [`write_offsets`], into a file that has already been created.
pub(crate) fn write_offsets_to(
    mut file: AtomicFile,
    header: &OffsetsHeader,
    lines: impl Iterator<Item = OffsetRecord>,
) -> Result<usize, Error> {
    let path = file.path().to_owned();
    let write = || {
        append(&mut file, header)?;
        let mut count = 0;
        for line in lines {
            append(&mut file, &line)?;
            count += 1;
        }
        file.commit()?;
        Ok(count)
    };
    write().map_err(Error::file(&path, "write"))
}

fn append<T: Serialize>(file: &mut AtomicFile, line: &T) -> std::io::Result<()> {
    serde_json::to_writer(&mut *file, line)?;
    file.write_all(b"\n")
}
