//! A file that another library writes by name, complete before it gets its final place.
//!
//! It serves databases, which SQLite opens by name, and Python's recorders, whose profilers export
//! to a path. The library writes into a folder that belongs to this user alone, next to the file's
//! destination: in a shared folder another user could put a link where the library will open a
//! file.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::atomic::keep_owner_and_mode;
use crate::openness::Openness;
use crate::partial::Partial;
use crate::place::Place;
use crate::target::{Target, unusable};

/// A file being written; removed if it is dropped without a commit.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("trace.json.gz");
/// let draft = probe_sync_files::Draft::create(&path)?;
/// assert!(draft.path().ends_with("trace.json.gz"), "its ending is what libraries go by");
/// std::fs::write(draft.path(), "x")?;
/// draft.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"x");
/// assert_eq!(std::fs::read_dir(folder.path())?.count(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Draft {
    /// The folder, removed when it is dropped.
    _folder: Partial,
    path: PathBuf,
    target: Place,
    openness: Openness,
}

impl Draft {
    /// Begins a file that will be called `path`.
    ///
    /// # Errors
    /// Returns an error if the path cannot be a file, or if the folder beside it cannot be created.
    pub fn create(path: &Path) -> io::Result<Self> {
        let Target::File(target) = Target::of(path)? else {
            return Err(unusable(
                "it is a pipe or a device, and this format cannot be written sequentially; give the name of a file",
            ));
        };
        let openness = Openness::of(path);
        let folder = Partial::private_folder_beside(&target)?;
        let path = folder.place().name().join(target.file_name().unwrap_or_default());
        Ok(Self { _folder: folder, path, target: Place::at(target), openness })
    }

    /// Where to write it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the content is on disk, then gives the file its name. It inherits mode and, as
    /// far as the system allows, owner of the file it replaces; a new file gets no wider
    /// permissions than its inputs ([`no_more_open_than`](crate::no_more_open_than)).
    ///
    /// # Errors
    /// Returns an error if nothing was written, or if the file cannot be renamed; it is removed
    /// then.
    pub fn commit(self) -> io::Result<()> {
        let file = File::open(&self.path)?;
        file.sync_data()?;
        match self.target.stat().ok().filter(|found| FileType::from_raw_mode(found.st_mode).is_file()) {
            Some(replaced) => keep_owner_and_mode(&file, &replaced)?,
            None => self.openness.apply(&file)?,
        }
        Place::at(self.path.clone()).rename(&self.target)
    }
}
