//! Files that appear under their names only when they are complete.
//!
//! [`AtomicFile`] writes to `NAME.PID.partial` next to the destination and renames it at the end,
//! so that a reader never sees half a file and a failed writer leaves an earlier file unchanged.
//! Links are followed; pipes and character devices are written through and never replaced.
//! [`remove_partials`] is for a process that a signal ends. [`AtomicFolder`] does the same for a
//! folder, but replaces none. [`NewFolders`] removes folders that stayed empty. [`segments()`]
//! finds the files of a recording that lasts days. [`OwnFolder`] defines which access other users
//! may have to a folder; [`open_regular`] reads a file found in one. The crate uses `rustix` for
//! calls relative to an open folder, which the standard library lacks.
//!
//! It does not cover appended streams or several writers of one name within one process, and it
//! does not sync the directory: after a power cut the name may still refer to the previous file,
//! which is also complete.
#![forbid(unsafe_code)]

mod atomic;
mod draft;
mod folders;
mod links;
mod openness;
#[cfg(test)]
mod others;
mod own_folder;
mod owner;
mod partial;
mod place;
mod regular;
mod segments;
mod target;
mod temporary;
#[cfg(test)]
mod tests;
mod whole_folder;

pub use atomic::{AtomicFile, write_whole};
pub use draft::Draft;
pub use folders::NewFolders;
pub use links::follow_own_links;
pub use openness::no_more_open_than;
pub use own_folder::OwnFolder;
pub use partial::remove_partials;
pub use regular::open_regular;
pub use segments::{closed_segments, continuations, newest, segment, segments};
pub use target::is_stream;
pub use temporary::TemporaryFolder;
pub use whole_folder::AtomicFolder;
