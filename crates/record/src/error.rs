//! Errors of a recorder and of its files.
//!
//! Nothing in this crate panics at a caller.

use std::path::PathBuf;

/// Errors of the recorder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A session of this reach is already running.
    #[error(
        "already recording: a session was started at {place}; finish it first, or record one thread with Reach::Thread"
    )]
    AlreadyRecording {
        /// File and line where it was started.
        place: String,
    },
    /// More sessions than a thread supports.
    #[error("too many sessions ({open}); finish one first (the first was started at {place})")]
    TooManySessions {
        /// Number of running sessions.
        open: usize,
        /// File and line where the first was started.
        place: String,
    },
    /// The set of kinds is empty.
    #[error("no event kinds are selected, so nothing would be recorded; select at least one")]
    NoKinds,
    /// A session that is started on demand must record the host's own events.
    #[error("an on-demand session must record host events: add a kind other than the device kinds")]
    OnDemandWithoutHost,
    /// A hook needs another reach.
    #[error("the hook {hook} does not support {reach}: {remedy}")]
    HookNotForReach {
        /// Name of the hook.
        hook: String,
        /// The session's reach.
        reach: &'static str,
        /// What to do.
        remedy: String,
    },
    /// A backend needs another reach.
    #[error("the backend {backend} does not support {reach}: {remedy}")]
    BackendNotForReach {
        /// Name of the backend.
        backend: String,
        /// The session's reach.
        reach: &'static str,
        /// What to do.
        remedy: String,
    },
    /// More observers than a thread supports.
    #[error("too many observers ({open}); remove one first")]
    TooManyObservers {
        /// Number of observers.
        open: usize,
    },
    /// The session has ended.
    #[error("not recording: {reason}")]
    NotRecording {
        /// Reason.
        reason: String,
    },
    /// The memory of a session cannot be allocated.
    #[error("cannot allocate memory for a recording of {bytes} bytes: {reason}")]
    Memory {
        /// Number of bytes requested.
        bytes: usize,
        /// Why not, and what to do.
        reason: String,
    },
    /// The file of a recording cannot be created.
    #[error("cannot record into {}: {reason}", path.display())]
    Spill {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The requested clock is not usable on this machine.
    #[error("the TSC cannot be used as a clock on this machine: {reason}; record with the clock monotonic_raw")]
    UnsteadyClock {
        /// What is missing.
        reason: String,
    },
    /// An invalid setting.
    #[error("{setting}: {reason}")]
    Setting {
        /// Name of the setting.
        setting: &'static str,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// A control socket cannot be created or used.
    #[error("{}: {reason}", path.display())]
    Control {
        /// The socket, or its folder.
        path: PathBuf,
        /// Why not, and what to do.
        reason: String,
    },
    /// The session refused a request.
    #[error("{}: {reason}", path.display())]
    Asked {
        /// The socket.
        path: PathBuf,
        /// Reason given by the session.
        reason: String,
    },
    /// A thread of the recorder cannot be started.
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
        /// Position, bytes.
        offset: u64,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
}
