//! Errors of a recorder and of its files.
//!
//! Nothing in this crate panics at a caller.

use std::path::PathBuf;

/// Why a recorder does not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A session of this reach is under way.
    #[error(
        "already recording: a session was started at {place}; finish it first, or record one thread with Reach::Thread"
    )]
    AlreadyRecording {
        /// File and line where it was started.
        place: String,
    },
    /// More sessions at once than a thread can serve.
    #[error("too many sessions ({open}); finish one first (the first was started at {place})")]
    TooManySessions {
        /// How many there are.
        open: usize,
        /// File and line where the first was started.
        place: String,
    },
    /// The set of kinds is empty.
    #[error("no event kinds are selected, so nothing would be recorded; select at least one")]
    NoKinds,
    /// A session that waits to be asked from outside must record the host's own events.
    #[error("an on-demand session must record host events: add a kind other than the device kinds")]
    OnDemandWithoutHost,
    /// A hook of this name needs another reach.
    #[error("the hook {hook} does not support {reach}: {remedy}")]
    HookNotForReach {
        /// Its name.
        hook: String,
        /// The session's reach.
        reach: &'static str,
        /// What to do.
        remedy: String,
    },
    /// A backend of this name needs another reach.
    #[error("the backend {backend} does not support {reach}: {remedy}")]
    BackendNotForReach {
        /// Its name.
        backend: String,
        /// The session's reach.
        reach: &'static str,
        /// What to do.
        remedy: String,
    },
    /// More observers at once than a thread calls.
    #[error("too many observers ({open}); remove one first")]
    TooManyObservers {
        /// How many there are.
        open: usize,
    },
    /// The session has ended.
    #[error("not recording: {reason}")]
    NotRecording {
        /// Why.
        reason: String,
    },
    /// The memory of a session cannot be had.
    #[error("cannot allocate memory for a recording of {bytes} bytes: {reason}")]
    Memory {
        /// How many were asked for.
        bytes: usize,
        /// Why not, and what to do.
        reason: String,
    },
    /// The file that a recording shall live in cannot be made.
    #[error("cannot record into {}: {reason}", path.display())]
    Spill {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The clock that was asked for is none here.
    #[error("the TSC cannot be used as a clock on this machine: {reason}; record with the clock monotonic_raw")]
    UnsteadyClock {
        /// What is missing.
        reason: String,
    },
    /// A setting that cannot be.
    #[error("{setting}: {reason}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// A socket at which a session is asked from outside cannot be made, or not be asked at.
    #[error("{}: {reason}", path.display())]
    Control {
        /// The socket, or its folder.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// What was asked from outside is refused by the session.
    #[error("{}: {reason}", path.display())]
    Asked {
        /// The socket.
        path: PathBuf,
        /// What the session says.
        reason: String,
    },
    /// A thread of the recorder's own cannot be started.
    #[error("cannot start the recorder's thread: {reason}")]
    Thread {
        /// Why not.
        reason: String,
    },
    /// A file is not a recording, or is damaged.
    #[error("{}: byte {offset}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}
