//! An OTF2 archive among the outputs of a conversion, with feature `otf2`.
//!
//! It receives every trace in order of time and finishes it before the next. It does not replace an
//! existing archive.

use std::path::{Path, PathBuf};

use probe_sync_files::AtomicFolder;
use probe_sync_formats::Error;
use probe_sync_formats::chunk::Chunk;
use probe_sync_writers::{Meta, Otf2, WriteReport};

use super::joined::Joined;

/// An archive that is being written.
pub(super) struct OpenArchive {
    path: PathBuf,
    folder: AtomicFolder,
    writer: Otf2,
}

impl OpenArchive {
    /// Begins an archive in the folder `path`, which must not exist yet.
    pub(super) fn create(path: &Path, meta: &Meta) -> Result<Self, Error> {
        let folder = AtomicFolder::create(path).map_err(Error::io(path, "create"))?;
        let writer = Otf2::open(folder.unfinished(), NAME, meta)?;
        Ok(Self { path: path.to_owned(), folder, writer })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a chunk of a trace.
    pub(super) fn write(&mut self, trace: usize, chunk: &Chunk, joined: &mut Joined) -> Result<(), Error> {
        let parts = joined.parts(trace, chunk);
        self.writer.write(chunk, &parts)
    }

    /// Ends a trace.
    pub(super) fn end(&mut self, trace: usize, joined: &Joined) -> Result<(), Error> {
        joined.absent(trace).for_each(|part| self.writer.absent(&part));
        self.writer.end_tracks()
    }

    pub(super) fn finish(self) -> Result<(AtomicFolder, WriteReport), Error> {
        let Self { path, folder, writer } = self;
        let mut report = writer.finish()?;
        report.bytes = bytes(folder.unfinished(), 1).map_err(Error::io(&path, "read"))?;
        Ok((folder, report))
    }
}

/// Size of the files of a folder and its subfolders, bytes.
fn bytes(folder: &Path, depth: usize) -> std::io::Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        sum += if found.is_dir() && depth > 0 { bytes(&entry.path(), depth - 1)? } else { found.len() };
    }
    Ok(sum)
}

/// The archive's name: `traces.otf2`, as Score-P has it.
const NAME: &str = "traces";
