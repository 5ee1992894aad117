//! Folders created for outputs, which are removed again if they stay empty.
//!
//! A command or run that refuses to start therefore leaves no folder behind. It removes only
//! folders that it has created and that are empty.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// Newly created folders; those that are still empty are removed on drop.
#[derive(Debug, Default)]
pub struct NewFolders {
    /// Outer before inner.
    made: Vec<PathBuf>,
}

impl NewFolders {
    /// Creates a folder and its missing parents, each writable by its user only.
    ///
    /// # Errors
    /// Returns an error if something is in the way or a folder cannot be created; those created for
    /// it are removed.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut folders = Self::default();
        folders.add(path)?;
        Ok(folders)
    }

    /// Creates another one.
    ///
    /// # Errors
    /// Errors of [`Self::create`]; what was created stays in the list.
    pub fn add(&mut self, path: &Path) -> io::Result<()> {
        let absent = |folder: &&Path| !folder.as_os_str().is_empty() && fs::symlink_metadata(folder).is_err();
        let missing: Vec<&Path> = path.ancestors().take_while(absent).collect();
        for folder in missing.into_iter().rev() {
            match fs::DirBuilder::new().mode(FOLDER_MODE).create(folder) {
                Ok(()) => self.made.push(folder.to_owned()),
                // Somebody else was quicker; then it is theirs.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                Err(error) => return Err(error),
            }
        }
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::NotADirectory, "something other than a folder is in the way"))
    }

    /// Keeps them, empty or not.
    pub fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        for folder in self.made.drain(..).rev() {
            // Not empty: it has its purpose.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Mode of a folder, before the umask: a folder that others may write belongs to them as well.
pub(crate) const FOLDER_MODE: u32 = 0o755;
