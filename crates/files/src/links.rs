//! Links at the end of a path, followed only where they are this user's own, or root's.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::owner;

/// Returns where a path leads when the links at its end are followed. Nothing needs to exist there.
///
/// The system's `protected_symlinks` prevents following links of other users in folders such as
/// `/tmp`; here the rule holds in every folder, since a group may write to a project's folder.
///
/// # Errors
/// Returns an error if another user created one of the links, or if they form a loop.
pub fn follow_own_links(path: &Path) -> io::Result<PathBuf> {
    // With a slash at its end the system would follow a link before it could be looked at.
    let mut at: PathBuf = path.components().collect();
    for _ in 0..LINKS_MAX {
        let Ok(about) = fs::symlink_metadata(&at) else { return Ok(at) };
        if !about.is_symlink() {
            return Ok(at);
        }
        let next = fs::read_link(&at)?;
        if !owner::is_trusted(about.uid()) {
            let reason = format!(
                "{} is a link created by user {}, to {}; remove it, or give the path of its target",
                at.display(),
                about.uid(),
                next.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
        }
        at = at.parent().unwrap_or(Path::new("")).join(next);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "its links form a loop"))
}

/// As many as Linux follows.
const LINKS_MAX: usize = 40;
