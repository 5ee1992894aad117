//! Return codes of calls, and the text of a thread's last failure.
//!
//! Every function runs inside [`guard`]. The text is kept until the thread's next failure, as
//! `errno` is.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};

use probe_sync::{Error, collective};
use probe_sync_analysis::ErrorKind;
use probe_sync_formats::words::with_flags;
use probe_sync_record as record;

/// Result of a call: PS_OK, or the kind of failure. ps_last_error() says what to do about it.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_status {
    /// Success.
    PS_OK = 0,
    /// An argument is NULL or out of range.
    PS_ERROR_ARGUMENT = 1,
    /// A setting's key or value is invalid.
    PS_ERROR_OPTION = 2,
    /// The ranks cannot meet: no address, no port, or an invalid id.
    PS_ERROR_MEETING = 3,
    /// The session, recording or meeting is already in use.
    PS_ERROR_STARTED = 4,
    /// The session failed.
    PS_ERROR_FAILED = 5,
    /// The session has ended or was stopped.
    PS_ERROR_ENDED = 6,
    /// The session belongs to the process that this one was forked from. Its clock can be read
    /// here.
    PS_ERROR_FORKED = 7,
    /// The wait timed out.
    PS_ERROR_TIMEOUT = 8,
    /// The value is not known yet, or not known for the requested time.
    PS_ERROR_UNKNOWN = 9,
    /// The file is not a clock of this host.
    PS_ERROR_CLOCK = 10,
    /// A system call failed.
    PS_ERROR_SYSTEM = 11,
    /// An MPI call failed.
    PS_ERROR_MPI = 12,
    /// A bug in probe_sync; the message is on standard error.
    PS_ERROR_PANIC = 13,
    /// The requested bound cannot be reached over these links, however long the caller waits.
    PS_ERROR_UNREACHABLE = 14,
    /// A trace or file of offsets violates its format; ps_last_error() names the file and position.
    PS_ERROR_DAMAGED = 15,
    /// The traces do not match each other or the clocks.
    PS_ERROR_REFUSED = 16,
    /// Causality is violated on the aligned times, so nothing was written.
    PS_ERROR_VIOLATED = 17,
}

use ps_status::*;

/// A failed call, with its reason.
#[derive(Debug)]
pub struct Failure {
    status: ps_status,
    text: String,
}

impl Failure {
    pub fn new(status: ps_status, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub fn argument(text: impl Into<String>) -> Self {
        Self::new(PS_ERROR_ARGUMENT, text)
    }

    /// Returns a function like [`Failure::new`], for `map_err`.
    pub fn of<E: ToString>(status: ps_status) -> impl FnOnce(E) -> Self {
        move |error| Self::new(status, error.to_string())
    }

    /// Stores the message for this thread.
    fn tell(self) -> ps_status {
        remember(&self.text);
        self.status
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Configuration { .. } | Error::ConfigurationFile { .. } => PS_ERROR_OPTION,
            Error::ClockPage { .. } => PS_ERROR_CLOCK,
            Error::BoundUnreachable { .. } => PS_ERROR_UNREACHABLE,
            Error::File { .. } | Error::System(_) => PS_ERROR_SYSTEM,
            _ => PS_ERROR_FAILED,
        };
        Self::new(status, error.to_string())
    }
}

impl From<record::Error> for Failure {
    fn from(error: record::Error) -> Self {
        let status = match error {
            record::Error::AlreadyRecording { .. } | record::Error::TooManySessions { .. } => PS_ERROR_STARTED,
            record::Error::NoKinds | record::Error::Setting { .. } | record::Error::UnsteadyClock { .. } => {
                PS_ERROR_OPTION
            }
            record::Error::NotRecording { .. } => PS_ERROR_ENDED,
            record::Error::Memory { .. }
            | record::Error::Spill { .. }
            | record::Error::Thread { .. }
            | record::Error::File { .. } => PS_ERROR_SYSTEM,
            _ => PS_ERROR_FAILED,
        };
        Self::new(status, error.to_string())
    }
}

impl From<probe_sync_analysis::Error> for Failure {
    fn from(error: probe_sync_analysis::Error) -> Self {
        let status = match error.kind() {
            ErrorKind::Request => PS_ERROR_OPTION,
            ErrorKind::Missing | ErrorKind::File => PS_ERROR_SYSTEM,
            ErrorKind::Damaged => PS_ERROR_DAMAGED,
            _ => PS_ERROR_REFUSED,
        };
        // C sets keys where the command line has flags.
        Self::new(status, with_flags(&error.to_string(), |flag| flag.replace('-', "_")))
    }
}

impl From<probe_sync_alignment::Error> for Failure {
    fn from(error: probe_sync_alignment::Error) -> Self {
        probe_sync_analysis::Error::from(error).into()
    }
}

impl From<collective::Error> for Failure {
    fn from(error: collective::Error) -> Self {
        Self::new(PS_ERROR_MEETING, error.to_string())
    }
}

/// Runs a function's body and converts both errors and panics to a status.
#[inline]
pub fn guard(body: impl FnOnce() -> Result<(), Failure>) -> ps_status {
    guarded(|status| status, || body().map(|()| PS_OK))
}

/// Works like [`guard`] for functions with another return type; `failed` converts a status to it.
#[inline]
pub fn guarded<T>(failed: impl FnOnce(ps_status) -> T, body: impl FnOnce() -> Result<T, Failure>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(failure)) => failed(failure.tell()),
        Err(_) => failed(Failure::new(PS_ERROR_PANIC, PANICKED).tell()),
    }
}

/// Stores a message for this thread.
pub fn remember(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    let _thread_is_ending = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Passes the stored message of this thread to `show`; returns None while the thread is ending.
pub fn remembered<T>(show: impl FnOnce(&CStr) -> T) -> Option<T> {
    LAST.try_with(|last| show(&last.borrow())).ok()
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

const PANICKED: &str = "a bug in probe_sync caused a panic; its message is on standard error; please report it";
