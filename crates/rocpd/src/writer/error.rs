//! The errors of writing a database; each message names the file and what to do.
//!
//! `Writer::open` and `Writer::finish` return them. Calls that record an event return no errors:
//! they drop the event and count it.

use std::path::PathBuf;
use std::time::Duration;

/// Why no database could be made or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the output has a key that is not known, or that has no value here.
    #[error("output {pattern}: {problem}; known keys are {known}")]
    Pattern {
        /// The name as it was given.
        pattern: String,
        /// Which key, and what about it.
        problem: String,
        /// The keys that are replaced.
        known: &'static str,
    },
    /// The process has a guid that its tables cannot be named after.
    #[error("{path}: invalid guid {guid:?}: use letters, digits and hyphens; `Process::current` generates one")]
    Guid {
        /// The file, which has not been made.
        path: PathBuf,
        /// The guid as it was given.
        guid: String,
    },
    /// A file of that name is there; it is never replaced.
    #[error("{path}: the file already exists and is never overwritten; move it or choose another output")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder cannot be made.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// SQLite refused to make the tables.
    #[error("cannot create a database in {path}: {source}")]
    Database {
        /// The file, which has been removed again.
        path: PathBuf,
        /// SQLite's answer.
        source: rusqlite::Error,
    },
    /// The file system has not answered in time.
    #[error(
        "{path}: the file system has not responded for {waited:?}; {committed} events are in the file, {open} more will follow if it \
        responds before the process ends, and {dropped} were dropped"
    )]
    Stalled {
        /// The file.
        path: PathBuf,
        /// How long the end was waited for.
        waited: Duration,
        /// Events committed so far.
        committed: u64,
        /// Events taken and not committed; with the others these are all that were recorded.
        open: u64,
        /// Events dropped so far.
        dropped: u64,
    },
    /// The writer belongs to the process that opened it.
    #[error("{path} is written by process {owner}; a forked child cannot finish it and must open its own database")]
    Forked {
        /// The file.
        path: PathBuf,
        /// The process that opened it.
        owner: u32,
    },
    /// The writer's thread has ended without a report, which is a defect of this crate.
    #[error("{path}: the writer thread ended early; committed events are in the file")]
    Ended {
        /// The file.
        path: PathBuf,
    },
}
