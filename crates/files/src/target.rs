//! The destination behind an output's name: a file that can be replaced as a whole, or something
//! that can only be written through.
//!
//! [`AtomicFile`](crate::AtomicFile) checks it before it creates anything, and so do writers that
//! would put a second file next to the first. A rename onto a device would replace the device with
//! a file, and a rename onto a link would leave the link's target unchanged; therefore links are
//! followed, and devices and pipes are never replaced. A link or pipe that another user has put
//! into a shared folder is refused.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::links::follow_own_links;
use crate::owner;

/// Destination of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// This file, with links followed; it may not exist yet.
    File(PathBuf),
    /// This pipe or character device, which stays what it is.
    Stream(PathBuf),
}

impl Target {
    /// Returns what `path` leads to.
    ///
    /// # Errors
    /// Returns an error if it has no file name, is a directory, a disk or a socket, is an endless
    /// chain of links, or cannot be examined.
    pub(crate) fn of(path: &Path) -> io::Result<Target> {
        if path.file_name().is_none() {
            return Err(unusable("the path has no file name"));
        }
        match fs::metadata(path) {
            // Another process may write there, too, and has written before.
            Ok(metadata) if metadata.is_file() && is_open_elsewhere(path) => Ok(Target::Stream(path.to_owned())),
            Ok(metadata) if metadata.is_file() => follow_own_links(path).map(Target::File),
            Ok(metadata) => Target::special(path, &metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => follow_own_links(path).map(Target::File),
            Err(error) => Err(error),
        }
    }

    /// Handles an existing path that is not a regular file. It is opened under the given name:
    /// `/dev/stdout` leads to no other name.
    fn special(path: &Path, metadata: &fs::Metadata) -> io::Result<Target> {
        let kind = metadata.file_type();
        if kind.is_fifo() && !is_open_elsewhere(path) && !owner::is_trusted(metadata.uid()) {
            return Err(unusable(&format!(
                "it is a pipe of user {}, who would read the output; choose another path",
                metadata.uid()
            )));
        }
        if kind.is_fifo() || kind.is_char_device() {
            return Ok(Target::Stream(path.to_owned()));
        }
        Err(unusable(match () {
            () if kind.is_dir() => "it is a directory; give the name of a file",
            () if kind.is_socket() => "it is a socket, which this program cannot write to; give the name of a file",
            // What is on a disk is worth more than what would be written over it.
            () if kind.is_block_device() => "it is a disk, which is never overwritten; give the name of a file",
            () => "it is neither a file nor a pipe nor a device; give the name of a file",
        }))
    }
}

/// Whether `path` is a pipe or a character device: nothing can be replaced there, and nothing
/// belongs beside it.
pub fn is_stream(path: &Path) -> bool {
    matches!(Target::of(path), Ok(Target::Stream(_)))
}

/// Whether a name stands for an open file, such as standard output.
pub(crate) fn is_open_elsewhere(path: &Path) -> bool {
    let open = ["/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd", "/proc/self/fd"];
    open.iter().any(|name| path.starts_with(name))
}

pub(crate) fn unusable(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}
