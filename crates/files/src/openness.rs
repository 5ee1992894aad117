//! The permissions of a new file, which are no wider than those of the files it was made from.
//!
//! The code that knows the inputs of an output (`alignment::outputs`) registers the permissions
//! once; the writers of a dozen formats below know only a path, and
//! [`AtomicFile`](crate::AtomicFile) looks it up. Passing modes through all of them would repeat a
//! single rule in each.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::Mode;

/// Read and write permissions, as narrow as the narrowest of several inputs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Openness {
    mode: u32,
    /// `None` if the inputs belong to different groups.
    group: Option<u32>,
}

/// Files created under these names from now on get no wider permissions than `inputs`; existing
/// files keep their mode.
///
/// ```
/// use std::os::unix::fs::PermissionsExt;
///
/// let folder = tempfile::tempdir()?;
/// let (input, output) = (folder.path().join("trace.json"), folder.path().join("aligned.json"));
/// std::fs::write(&input, "{}")?;
/// std::fs::set_permissions(&input, PermissionsExt::from_mode(0o600))?;
/// probe_sync_files::no_more_open_than(&[&input], &[&output]);
/// probe_sync_files::write_whole(&output, b"{}")?;
/// assert_eq!(std::fs::metadata(&output)?.permissions().mode() & 0o777, 0o600);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn no_more_open_than(inputs: &[impl AsRef<Path>], outputs: &[impl AsRef<Path>]) {
    let known = inputs.iter().filter_map(|path| fs::metadata(path).ok()).filter(fs::Metadata::is_file);
    let each = known.map(|about| Openness { mode: about.mode() & 0o666, group: Some(about.gid()) });
    let Some(most_closed) = each.reduce(Openness::and) else { return };
    let mut limits = LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
    limits.extend(outputs.iter().map(|path| (path.as_ref().to_owned(), most_closed)));
}

impl Openness {
    /// The permissions for a file to be created under this name.
    pub(crate) fn of(path: &Path) -> Self {
        let limits = LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
        limits.get(path).copied().unwrap_or(Self { mode: 0o666, group: None })
    }

    /// The mode that the file may have before its group is known.
    pub(crate) fn mode(self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }

    /// Removes from a new file the permissions that its inputs do not grant: members of a group
    /// other than theirs count as others.
    pub(crate) fn apply(self, file: &File) -> io::Result<()> {
        let about = file.metadata()?;
        let mode = about.mode() & 0o777 & self.within(about.gid());
        if mode == about.mode() & 0o777 { Ok(()) } else { Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?) }
    }

    /// The mode of a folder of this group that was created with `mode`: whoever may read the files
    /// in it may search it.
    pub(crate) fn of_folder(self, mode: u32, group: u32) -> u32 {
        let files = self.within(group);
        mode & (files | (files & 0o444) >> 2)
    }

    /// The mode of a file of this group.
    fn within(self, group: u32) -> u32 {
        let for_others = (self.mode & 0o006) << 3;
        if self.group == Some(group) { self.mode } else { self.mode & !(0o070 & !for_others) }
    }

    fn and(self, other: Self) -> Self {
        Self { mode: self.mode & other.mode, group: self.group.filter(|group| other.group == Some(*group)) }
    }
}

/// By the names of outputs; if a process creates a file again, the latest entry counts.
static LIMITS: Mutex<BTreeMap<PathBuf, Openness>> = Mutex::new(BTreeMap::new());
