//! Files that appear under their names only when they are whole.
//!
//! Place in the flow: under every writer of whole files (rewritten traces, solved offsets, reports). [`AtomicFile`] writes to
//! `NAME.PID.partial` beside the wanted file and renames it at the end, so that a reader never meets half a file and a failed
//! writer leaves an earlier file as it was. A link is followed; a pipe or a character device is written through and never replaced.
//! [`remove_partials`] is for a process that a signal ends. [`AtomicFolder`] is the same for a folder, and replaces none. [`NewFolders`] are gone again when nothing was put in them. [`segments()`] finds the
//! files of a recording of days. [`OwnFolder`] is the rule of what another user may have to do with a folder; [`open_regular`] reads what was found in one.
//! It stands on `rustix`, whose calls relative to an open folder the standard library does not have.
//!
//! What it does not do: appended streams, several writers of one name within one process, or the directory's own sync
//! (after a power cut an earlier file may still bear the name; it is whole, too).
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
