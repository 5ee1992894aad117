//! Files and folders that are not whole yet: one list for the process, so that a signal can remove them all.
//!
//! Place in the flow: under [`AtomicFile`](crate::AtomicFile) and [`AtomicFolder`](crate::AtomicFolder). Every change of the list and of the files in it is made under one
//! lock. [`remove_partials`] keeps the lock for good: a thread that wants to begin or to rename a file then waits for the end of the
//! process, so that nothing comes after the removal. What it does not do: handle signals, or clean up after a process that was
//! killed without one: its file stays, and the next process of the same number writes over it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::target::unusable;

/// A file or folder that is not whole; removed when it is dropped before its rename.
#[derive(Debug)]
pub(crate) struct Partial {
    at: PathBuf,
    renamed: bool,
}

impl Partial {
    /// Makes the file beside `target`.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn beside(target: &Path) -> io::Result<(Partial, File)> {
        let at = beside(target)?;
        let mut all = all();
        // A process that was killed may have left one under this number, and a link could lead anywhere.
        remove(&at)?;
        // Readable, for writers that move what they have written.
        let file = File::options().read(true).write(true).create_new(true).open(&at)?;
        all.insert(at.clone());
        Ok((Partial { at, renamed: false }, file))
    }

    /// Makes a folder beside `target`; it is removed with what is in it.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn folder_beside(target: &Path) -> io::Result<Partial> {
        let at = beside(target)?;
        let mut all = all();
        remove(&at)?;
        fs::create_dir(&at)?;
        all.insert(at.clone());
        Ok(Partial { at, renamed: false })
    }

    /// Where it is until then.
    pub(crate) fn at(&self) -> &Path {
        &self.at
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// It cannot be renamed; it is removed then.
    pub(crate) fn rename(mut self, target: &Path) -> io::Result<()> {
        let mut all = all();
        fs::rename(&self.at, target)?;
        all.remove(&self.at);
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.renamed {
            let mut all = all();
            // Another error is on its way already; that the file cannot be removed either is no news.
            let _ = remove(&self.at);
            all.remove(&self.at);
        }
    }
}

/// Removes every file of this process that is not whole, and holds up every thread that would begin or rename another one: for a
/// process that ends right after.
pub fn remove_partials() {
    let all = all();
    for path in &*all {
        // Somebody else may have removed it; there is nobody left to tell of anything else.
        let _ = remove(path);
    }
    std::mem::forget(all);
}

/// The name that something has until it is whole.
fn beside(target: &Path) -> io::Result<PathBuf> {
    let mut name = target.file_name().ok_or_else(|| unusable("the path has no file name"))?.to_owned();
    // Two processes that write the same file each have their own; the later rename wins, with a whole file.
    name.push(format!(".{}{SUFFIX}", std::process::id()));
    Ok(target.with_file_name(name))
}

/// Removes a file, or a folder with what is in it; a link is not followed, and nothing there is no error.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        // Another thread may put files in while a signal's handler takes them out.
        Ok(found) if found.is_dir() => (0..REMOVE_TRIES)
            .map(|_| fs::remove_dir_all(path))
            .find(|tried| !matches!(tried, Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty))
            .unwrap_or_else(|| fs::remove_dir_all(path)),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

fn all() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // A thread that panicked under the lock left a list that is still right.
    PARTIALS.lock().unwrap_or_else(PoisonError::into_inner)
}

static PARTIALS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// How often a folder that files are put in is emptied.
const REMOVE_TRIES: usize = 16;

/// What follows the name while the file is not whole.
const SUFFIX: &str = ".partial";
