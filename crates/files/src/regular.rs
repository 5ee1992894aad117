//! Regular files alone, for files that a program finds by itself: a pipe of that name would wait
//! for its other end.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

use crate::target::is_open_elsewhere;

/// Opens a regular file for reading; anything else is an error at once, except for files that this
/// process inherited open (`/dev/fd/63`).
///
/// # Errors
/// Returns an error if it cannot be opened, or is a pipe, a socket, a device or a folder.
pub fn open_regular(path: &Path) -> io::Result<File> {
    if is_open_elsewhere(path) {
        return File::open(path);
    }
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}
