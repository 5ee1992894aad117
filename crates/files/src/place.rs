//! Where a file is: a name in an open folder, or a path. One set of calls for both.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

/// Name of a file, relative to an open folder or to the current one.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    folder: Option<Arc<OwnedFd>>,
    name: PathBuf,
}

impl Place {
    /// The file at this path.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { folder: None, name: path }
    }

    /// The file of this name in an open folder.
    pub(crate) fn in_folder(folder: Arc<OwnedFd>, name: PathBuf) -> Self {
        Self { folder: Some(folder), name }
    }

    /// Its path, if it was specified by one.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.folder.is_none().then_some(&self.name)
    }

    /// Its name or path.
    pub(crate) fn name(&self) -> &Path {
        &self.name
    }

    /// Another file in the same folder.
    pub(crate) fn sibling(&self, name: PathBuf) -> Self {
        Self { folder: self.folder.clone(), name }
    }

    /// Its metadata; links are not followed.
    pub(crate) fn stat(&self) -> io::Result<rustix::fs::Stat> {
        Ok(rustix::fs::statat(self.folder(), &self.name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Creates the file, for reading and writing.
    pub(crate) fn create_new(&self, mode: Mode) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.folder(), &self.name, flags, mode)?.into())
    }

    /// Renames it; a link of that name is replaced, not followed.
    pub(crate) fn rename(&self, to: &Place) -> io::Result<()> {
        Ok(rustix::fs::renameat(self.folder(), &self.name, to.folder(), &to.name)?)
    }

    /// Removes a file, or a folder with its contents; links are not followed, and a missing file is
    /// not an error.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let removed = match self.stat() {
            Ok(found) if FileType::from_raw_mode(found.st_mode).is_dir() => self.remove_folder(),
            Ok(_) => Ok(rustix::fs::unlinkat(self.folder(), &self.name, AtFlags::empty())?),
            Err(error) => Err(error),
        };
        removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
    }

    fn remove_folder(&self) -> io::Result<()> {
        let Some(path) = self.path() else {
            return Ok(rustix::fs::unlinkat(self.folder(), &self.name, AtFlags::REMOVEDIR)?);
        };
        // Another thread may put files in while a signal's handler takes them out.
        (0..REMOVE_TRIES)
            .map(|_| fs::remove_dir_all(path))
            .find(|tried| !matches!(tried, Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty))
            .unwrap_or_else(|| fs::remove_dir_all(path))
    }

    fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_ref().map_or(CWD, |folder| folder.as_fd())
    }
}

/// Attempts to empty a folder that other threads may still add files to.
const REMOVE_TRIES: usize = 16;
