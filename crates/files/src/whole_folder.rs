//! A folder that appears under its name only when it is complete.
//!
//! It serves writers whose output consists of many files, which other libraries create by name. The
//! folder is created next to its destination as `NAME.PID.partial` and renamed at the end. It
//! replaces nothing, because a folder has no single previous content to preserve.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::folders::FOLDER_MODE;
use crate::openness::Openness;
use crate::partial::Partial;
use crate::place::Place;

/// A folder being written; removed with its contents if it is dropped without a commit.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("job_otf2");
/// let made = probe_sync_files::AtomicFolder::create(&path)?;
/// std::fs::write(made.unfinished().join("a"), "1")?;
/// assert!(!path.exists(), "not before it is whole");
/// made.commit()?;
/// assert_eq!(std::fs::read(path.join("a"))?, b"1");
/// assert!(probe_sync_files::AtomicFolder::create(&path).is_err(), "it is never replaced");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct AtomicFolder {
    partial: Partial,
    path: PathBuf,
    openness: Openness,
}

impl AtomicFolder {
    /// Begins a folder that will be called `path`.
    ///
    /// # Errors
    /// Returns an error if the name exists already, or if the folder beside it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        refuse_existing(path)?;
        // Other libraries open files in it by name: until it is whole nobody else may put links
        // there.
        Ok(Self { partial: Partial::private_folder_beside(path)?, path: path.to_owned(), openness: Openness::of(path) })
    }

    /// Path of the folder until it is complete.
    pub fn unfinished(&self) -> &Path {
        self.partial.place().name()
    }

    /// Waits until the files are on disk, then gives the folder its name. Permissions follow the
    /// umask, but are no wider than those of the inputs
    /// ([`no_more_open_than`](crate::no_more_open_than)).
    ///
    /// # Errors
    /// Returns an error if a file cannot be written, or if the name has appeared meanwhile; the
    /// folder is removed then.
    pub fn commit(self) -> io::Result<()> {
        sync(self.unfinished(), DEPTH_MAX)?;
        refuse_existing(&self.path)?;
        let Self { partial, path, openness } = self;
        let folder = partial.place().name();
        let (mode, group) = usual(folder)?;
        fs::set_permissions(folder, Permissions::from_mode(openness.of_folder(mode, group)))?;
        partial.rename(&Place::at(path))
    }
}

/// Mode and group of a folder that this process creates here: nothing else shows the umask without
/// changing it.
fn usual(folder: &Path) -> io::Result<(u32, u32)> {
    let made = folder.join(".made");
    fs::DirBuilder::new().mode(FOLDER_MODE).create(&made)?;
    let about = fs::metadata(&made)?;
    fs::remove_dir(made)?;
    Ok((about.mode() & 0o777, about.gid()))
}

fn refuse_existing(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it already exists, and folders are never overwritten; remove it or choose another name",
        )),
    }
}

/// Syncs the files of a folder.
fn sync(folder: &Path, depth: usize) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() && depth > 0 {
            sync(&entry.path(), depth - 1)?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_data()?;
        }
    }
    Ok(())
}

/// Depth of nested folders whose files are synced.
const DEPTH_MAX: usize = 8;
