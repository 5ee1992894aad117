//! Files and folders that are not complete yet, in one list for the process, so that a signal can
//! remove them all.
//!
//! Every change of the list and of the files in it happens under one lock. [`remove_partials`]
//! holds the lock for good: a thread that wants to create or rename a file then waits until the
//! process ends, so nothing appears after the removal. It does not handle signals. A process killed
//! without one leaves its file behind, and the next process with the same id overwrites it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::Mode;

use crate::place::Place;
use crate::target::unusable;

/// An incomplete file or folder; removed if it is dropped before its rename.
#[derive(Debug)]
pub(crate) struct Partial {
    number: u64,
    place: Place,
    renamed: bool,
}

impl Partial {
    /// Creates the file beside `target`, with a mode of at most `mode`.
    ///
    /// # Errors
    /// Returns an error if it cannot be created.
    pub(crate) fn beside(target: &Place, mode: Mode) -> io::Result<(Partial, File)> {
        Self::make(target, |place| place.create_new(mode))
    }

    /// Creates a folder beside `target` that only this user can access; it is removed with its
    /// contents.
    ///
    /// # Errors
    /// Returns an error if it cannot be created.
    pub(crate) fn private_folder_beside(target: &Path) -> io::Result<Partial> {
        Ok(Self::make(&Place::at(target.to_owned()), private_folder)?.0)
    }

    /// Creates a folder of this unused name that only this user can access; it is removed with its
    /// contents.
    ///
    /// # Errors
    /// Returns an error if the name exists, or if it cannot be created.
    pub(crate) fn private_folder(path: PathBuf) -> io::Result<Partial> {
        let place = Place::at(path);
        let mut list = list();
        private_folder(&place)?;
        Ok(Self::listed(&mut list, place))
    }

    fn make<T>(target: &Place, make: impl FnOnce(&Place) -> io::Result<T>) -> io::Result<(Partial, T)> {
        let place = target.sibling(beside(target.name())?);
        let mut list = list();
        // A process that was killed may have left one under this number, and a link could lead
        // anywhere.
        place.remove()?;
        let made = make(&place)?;
        Ok((Self::listed(&mut list, place), made))
    }

    fn listed(list: &mut BTreeMap<u64, Place>, place: Place) -> Partial {
        let number = list.last_key_value().map_or(0, |(last, _)| last + 1);
        list.insert(number, place.clone());
        Partial { number, place, renamed: false }
    }

    /// Where it is until then.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// Returns an error if it cannot be renamed; it is removed then.
    pub(crate) fn rename(mut self, target: &Place) -> io::Result<()> {
        let mut list = list();
        self.place.rename(target)?;
        list.remove(&self.number);
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.renamed {
            let mut list = list();
            // Another error is on its way already; that the file cannot be removed either is no
            // news.
            let _ = self.place.remove();
            list.remove(&self.number);
        }
    }
}

/// Removes every incomplete file of this process, and blocks every thread that would begin or
/// rename another one: for a process that ends right after.
pub fn remove_partials() {
    let list = list();
    for place in list.values() {
        // Somebody else may have removed it; there is nobody left to tell of anything else.
        let _ = place.remove();
    }
    std::mem::forget(list);
}

fn private_folder(place: &Place) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(place.name())
}

/// The name used until completion.
fn beside(target: &Path) -> io::Result<PathBuf> {
    let mut name = target.file_name().ok_or_else(|| unusable("the path has no file name"))?.to_owned();
    // Two processes that write the same file each have their own; the later rename wins, with a
    // whole file.
    name.push(format!(".{}{SUFFIX}", std::process::id()));
    Ok(target.with_file_name(name))
}

fn list() -> MutexGuard<'static, BTreeMap<u64, Place>> {
    // A thread that panicked under the lock left a list that is still right.
    PARTIALS.lock().unwrap_or_else(PoisonError::into_inner)
}

static PARTIALS: Mutex<BTreeMap<u64, Place>> = Mutex::new(BTreeMap::new());

/// Suffix of the name of an incomplete file.
const SUFFIX: &str = ".partial";
