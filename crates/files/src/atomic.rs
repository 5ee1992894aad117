//! A file in the making: written beside its place and renamed, or straight through where nothing can be renamed.
//!
//! Place in the flow: under every writer of whole files. `target` says which of the two it is, `partial` keeps the unfinished file.
//! What it does not do: the directory's own sync (after a power cut an earlier file may still bear the name; it is whole, too).

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::partial::Partial;
use crate::target::{Target, unusable};

/// A file in the making; removed when it is dropped without a commit.
///
/// A link is followed: what it leads to is replaced, and it stays a link. A pipe or a character device is written through and stays
/// what it is; what was written to it cannot be taken back.
///
/// ```
/// use std::io::Write;
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("offsets.jsonl");
/// let mut file = probe_sync_files::AtomicFile::create(&path)?;
/// file.write_all(b"{}\n")?;
/// assert!(!path.exists(), "not before it is whole");
/// file.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"{}\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    /// `None` only while it is committed or dropped.
    writer: Option<BufWriter<File>>,
    place: Place,
}

/// Where the bytes are until the end.
#[derive(Debug)]
enum Place {
    /// In a file beside its target; taken out to be renamed.
    Beside { partial: Option<Partial>, target: PathBuf },
    /// At their reader already.
    Through,
}

impl AtomicFile {
    /// Begins a file that will be called `path`, or opens the pipe or device of that name.
    ///
    /// # Errors
    /// The path is no place for a file (a directory, a disk, a socket, no name), or the file beside it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        match Target::of(path)? {
            Target::File(target) => Self::beside(path, target),
            Target::Stream(stream) => {
                let writer = Some(BufWriter::new(File::options().append(true).open(stream)?));
                Ok(Self { path: path.to_owned(), writer, place: Place::Through })
            }
        }
    }

    /// As [`Self::create`], for writers that go back in what they have written ([`Self::file`]).
    ///
    /// # Errors
    /// Those of [`Self::create`], and a pipe or device, which takes bytes in order only.
    pub fn create_seekable(path: &Path) -> io::Result<Self> {
        match Target::of(path)? {
            Target::File(target) => Self::beside(path, target),
            Target::Stream(_) => Err(unusable(
                "it is a pipe or a device, and this format is not written from front to back; give the name of a file",
            )),
        }
    }

    fn beside(path: &Path, target: PathBuf) -> io::Result<Self> {
        let (partial, file) = Partial::beside(&target)?;
        let writer = Some(BufWriter::new(file));
        Ok(Self { path: path.to_owned(), writer, place: Place::Beside { partial: Some(partial), target } })
    }

    /// The name that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, for writers that go back in it; what was buffered is in it first.
    ///
    /// # Errors
    /// The buffer cannot be written.
    pub fn file(&mut self) -> io::Result<&mut File> {
        let writer = self.writer();
        writer.flush()?;
        Ok(writer.get_mut())
    }

    /// Where the file is until it is whole, for libraries that open files by name; `None` for a pipe or device. What is written there
    /// by another way than this must be written before the commit.
    pub fn unfinished(&self) -> Option<&Path> {
        match &self.place {
            Place::Beside { partial, .. } => partial.as_ref().map(Partial::at),
            Place::Through => None,
        }
    }

    /// Waits until the disk has the content, then gives the file its name.
    ///
    /// # Errors
    /// The content cannot be written or the file cannot be renamed; it is removed then.
    pub fn commit(mut self) -> io::Result<()> {
        // A pipe has no disk to wait for.
        let on_disk = matches!(self.place, Place::Beside { .. });
        let file = self.file()?;
        if on_disk {
            file.sync_data()?;
        }
        self.finish()
    }

    /// As [`Self::commit`] without waiting for the disk: for files that can be made again, or are made again every round.
    ///
    /// # Errors
    /// Those of [`Self::commit`].
    pub fn commit_without_sync(mut self) -> io::Result<()> {
        self.file()?;
        self.finish()
    }

    fn finish(mut self) -> io::Result<()> {
        match &mut self.place {
            Place::Beside { partial, target } => match partial.take() {
                Some(partial) => partial.rename(target),
                None => Ok(()),
            },
            Place::Through => Ok(()),
        }
    }

    fn writer(&mut self) -> &mut BufWriter<File> {
        self.writer.as_mut().expect("only drop takes the writer away")
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // Without the buffer: what is going to be removed need not be written, and a commit has written it.
        drop(self.writer.take().map(BufWriter::into_parts));
    }
}

/// Writes a whole file: beside its place, synced, then renamed.
///
/// # Errors
/// Those of [`AtomicFile`].
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(content)?;
    file.commit()
}
