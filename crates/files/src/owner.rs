//! Whose a file is, and who else could change it.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, OFlags, Stat};

/// Whether this owner cannot harm the process: it is the process's own user, or root.
pub(crate) fn is_trusted(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw() || user == 0
}

/// Whether another user may add to a folder, or replace what is in it.
pub(crate) fn others_may_write(folder: &Stat) -> bool {
    folder.st_mode & 0o022 != 0
}

/// Whether others may add to a folder, but only remove their own entries, as in `/tmp`.
pub(crate) fn is_sticky(folder: &Stat) -> bool {
    folder.st_mode & 0o1000 != 0
}

/// The owner of files that this process creates in a folder. A file system may map its user to
/// another number: NFS with root squashing, sshfs.
pub(crate) fn of_new_files(folder: &OwnedFd) -> io::Result<u32> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = format!(".probe_sync.{}.{}", std::process::id(), since.as_nanos());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, &name, flags, Mode::RUSR | Mode::WUSR)?;
    let owner = rustix::fs::fstat(&file)?.st_uid;
    rustix::fs::unlinkat(folder, &name, AtFlags::empty())?;
    Ok(owner)
}
