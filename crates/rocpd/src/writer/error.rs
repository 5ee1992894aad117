//! The errors of writing a database; each message names the file and what to do.
//!
//! `Writer::open` and `Writer::finish` return them. Calls that record an event return no errors:
//! they drop the event and count it.

use std::path::PathBuf;
use std::time::Duration;

/// Why a database could not be created or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name of the output contains an unknown key, or one that has no value here.
    #[error("output {pattern}: {problem}; known keys are {known}")]
    Pattern {
        /// The name as given.
        pattern: String,
        /// The key and what is wrong with it.
        problem: String,
        /// The supported keys.
        known: &'static str,
    },
    /// The guid of the process cannot be part of table names.
    #[error("{path}: invalid guid {guid:?}: use letters, digits and hyphens; `Process::current` generates one")]
    Guid {
        /// The file, which has not been created.
        path: PathBuf,
        /// The guid as given.
        guid: String,
    },
    /// A file of that name exists; it is never replaced.
    #[error("{path}: the file already exists and is never overwritten; move it or choose another output")]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder cannot be created.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// SQLite could not create the tables.
    #[error("cannot create a database in {path}: {source}")]
    Database {
        /// The file, which has been removed again.
        path: PathBuf,
        /// Error of SQLite.
        source: rusqlite::Error,
    },
    /// The file system has not responded in time.
    #[error(
        "{path}: the file system has not responded for {waited:?}; {committed} events are in the file, {open} more will follow if it \
        responds before the process ends, and {dropped} were dropped"
    )]
    Stalled {
        /// The file.
        path: PathBuf,
        /// How long the writer waited for the end.
        waited: Duration,
        /// Events committed so far.
        committed: u64,
        /// Events accepted but not committed; together with committed and dropped ones these are
        /// all recorded events.
        open: u64,
        /// Events dropped so far.
        dropped: u64,
    },
    /// An event needs an agent and names none, or one that was not added.
    #[error("{path}: event {event:?} names {}; add the agent first", agent.map_or("no agent".to_owned(), |number| format!("agent {number}")))]
    Agent {
        /// The file.
        path: PathBuf,
        /// Name of the event, which was not recorded.
        event: String,
        /// The number given.
        agent: Option<u32>,
    },
    /// The writer belongs to the process that opened it.
    #[error("{path} is written by process {owner}; a forked child cannot finish it and must open its own database")]
    Forked {
        /// The file.
        path: PathBuf,
        /// The process that opened it.
        owner: u32,
    },
    /// The writer's thread ended without a report, which is a bug in this crate.
    #[error("{path}: the writer thread ended early; committed events are in the file")]
    Ended {
        /// The file.
        path: PathBuf,
    },
}
