//! A file in progress, written next to its destination and then renamed, or written through if the
//! destination cannot be replaced.
//!
//! `target` decides between the two, and `partial` tracks the unfinished file. It does not sync the
//! directory: after a power cut the name may still refer to the previous file, which is also
//! complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Gid, Mode, Stat, Uid};

use crate::openness::Openness;
use crate::partial::Partial;
use crate::place::Place;
use crate::target::{Target, unusable};

/// A file being written; removed if it is dropped without a commit.
///
/// Links are followed: the target is replaced, and the link stays a link; a link that another user
/// put into a shared folder is refused. A replaced file keeps its mode, and its owner as far as the
/// system allows. A pipe or a character device is written directly and stays what it is; what was
/// written to it cannot be undone.
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
    /// `None` only while the file is committed or dropped.
    writer: Option<BufWriter<File>>,
    route: Route,
}

/// Where the bytes are until the end.
#[derive(Debug)]
enum Route {
    /// In a file beside its target; taken out to be renamed.
    Beside { partial: Option<Partial>, target: Place, replaced: Option<Box<Stat>> },
    /// Already with their reader.
    Through,
}

impl AtomicFile {
    /// Begins a file that will be called `path`, or opens the pipe or device of that name.
    ///
    /// # Errors
    /// Returns an error if the path cannot be a file (a directory, a disk, a socket, no name), or
    /// if the file beside it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        match Target::of(path)? {
            Target::File(target) => Self::replacing(path, target),
            Target::Stream(stream) => {
                let writer = Some(BufWriter::new(File::options().append(true).open(stream)?));
                Ok(Self { path: path.to_owned(), writer, route: Route::Through })
            }
        }
    }

    /// As [`Self::create`], for writers that seek back in what they have written ([`Self::file`]).
    ///
    /// # Errors
    /// Errors of [`Self::create`]; an error for a pipe or device, which accepts bytes in order
    /// only.
    pub fn create_seekable(path: &Path) -> io::Result<Self> {
        match Target::of(path)? {
            Target::File(target) => Self::replacing(path, target),
            Target::Stream(_) => Err(unusable(
                "it is a pipe or a device, and this format cannot be written sequentially; give the name of a file",
            )),
        }
    }

    fn replacing(path: &Path, target: PathBuf) -> io::Result<Self> {
        let target = Place::at(target);
        let replaced = target.stat().ok().filter(|found| FileType::from_raw_mode(found.st_mode).is_file());
        if replaced.is_some() {
            // Until the commit it is nobody else's: what it replaces may be closed to others.
            return Self::beside(path, target, PRIVATE, replaced);
        }
        let openness = Openness::of(path);
        let mut file = Self::beside(path, target, openness.mode(), None)?;
        openness.apply(file.file()?)?;
        Ok(file)
    }

    /// Begins a file that only this user may write, whatever it replaces: for files that others map
    /// or trust.
    ///
    /// # Errors
    /// Errors of [`Self::create_seekable`].
    pub fn create_own(path: &Path) -> io::Result<Self> {
        match Target::of(path)? {
            Target::File(target) => Self::beside(path, Place::at(target), OWN_FILE, None),
            Target::Stream(_) => Err(unusable("it is a pipe or a device; give the name of a file")),
        }
    }

    /// Begins a file in an open folder; whatever has its name is replaced.
    pub(crate) fn in_folder(path: &Path, target: Place) -> io::Result<Self> {
        Self::beside(path, target, OWN_FILE, None)
    }

    fn beside(path: &Path, target: Place, mode: Mode, replaced: Option<Stat>) -> io::Result<Self> {
        let (partial, file) = Partial::beside(&target, mode)?;
        let writer = Some(BufWriter::new(file));
        let route = Route::Beside { partial: Some(partial), target, replaced: replaced.map(Box::new) };
        Ok(Self { path: path.to_owned(), writer, route })
    }

    /// The name that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file itself, for writers that seek back in it; buffered data is flushed first.
    ///
    /// # Errors
    /// Returns an error if the buffer cannot be written.
    pub fn file(&mut self) -> io::Result<&mut File> {
        let writer = self.writer();
        writer.flush()?;
        Ok(writer.get_mut())
    }

    /// Path of the file until it is complete, for libraries that open files by name; `None` for a
    /// pipe, a device, and in an [`OwnFolder`](crate::OwnFolder). Data written there by other means
    /// must be written before the commit.
    pub fn unfinished(&self) -> Option<&Path> {
        match &self.route {
            Route::Beside { partial, .. } => partial.as_ref().and_then(|partial| partial.place().path()),
            Route::Through => None,
        }
    }

    /// Waits until the content is on disk, then gives the file its name.
    ///
    /// # Errors
    /// Returns an error if the content cannot be written or the file cannot be renamed; it is
    /// removed then.
    pub fn commit(mut self) -> io::Result<()> {
        // A pipe has no disk to wait for.
        let on_disk = matches!(self.route, Route::Beside { .. });
        let file = self.file()?;
        if on_disk {
            file.sync_data()?;
        }
        self.finish()
    }

    /// As [`Self::commit`] without waiting for the disk: for files that can be created again, or
    /// are every round.
    ///
    /// # Errors
    /// Errors of [`Self::commit`].
    pub fn commit_without_sync(mut self) -> io::Result<()> {
        self.file()?;
        self.finish()
    }

    fn finish(mut self) -> io::Result<()> {
        let file = self.writer.as_ref().expect("only drop takes the writer away").get_ref();
        match &mut self.route {
            Route::Beside { partial, target, replaced } => {
                replaced.as_ref().map_or(Ok(()), |replaced| keep_owner_and_mode(file, replaced))?;
                partial.take().map_or(Ok(()), |partial| partial.rename(target))
            }
            Route::Through => Ok(()),
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
        // Without the buffer: what is going to be removed need not be written, and a commit has
        // written it.
        drop(self.writer.take().map(BufWriter::into_parts));
    }
}

/// Gives a file the mode of the one it replaces, and its owner and group if the system allows it.
/// Permissions of a group that could not be set are left out.
pub(crate) fn keep_owner_and_mode(file: &File, replaced: &Stat) -> io::Result<()> {
    let own = file.metadata()?;
    let (user, group) = (Uid::from_raw(replaced.st_uid), Gid::from_raw(replaced.st_gid));
    let mut mode = Mode::from_raw_mode(replaced.st_mode & 0o777);
    if own.uid() != replaced.st_uid && rustix::fs::fchown(file, Some(user), Some(group)).is_ok() {
        return Ok(rustix::fs::fchmod(file, mode)?);
    }
    if own.gid() != replaced.st_gid && rustix::fs::fchown(file, None, Some(group)).is_err() {
        mode -= Mode::RWXG;
    }
    Ok(rustix::fs::fchmod(file, mode)?)
}

/// Mode of a file whose final mode is not known yet.
const PRIVATE: Mode = Mode::from_raw_mode(0o600);

/// Mode of files in a folder of the user's own, before the umask.
pub(crate) const OWN_FILE: Mode = Mode::from_raw_mode(0o644);

/// Writes a complete file: beside its target, synced, then renamed.
///
/// # Errors
/// Errors of [`AtomicFile`].
pub fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(content)?;
    file.commit()
}
