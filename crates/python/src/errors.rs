//! What each failure is in Python: one class for each thing that a user can do about it.
//!
//! Place in the flow: under all rooms of this crate. The classes are Python's, in `probe_sync/errors.py`, since some have two parents.
//! Texts are the libraries' own; a flag in them, as `--assume-order`, is the keyword `assume_order` here.
//!
//! What it does not do: decide what to say.

use pyo3::prelude::*;

mod classes {
    pyo3::import_exception!(probe_sync.errors, ClockError);
    pyo3::import_exception!(probe_sync.errors, ConfigError);
    pyo3::import_exception!(probe_sync.errors, JoinError);
    pyo3::import_exception!(probe_sync.errors, SessionEnded);
    pyo3::import_exception!(probe_sync.errors, SessionFailed);
    pyo3::import_exception!(probe_sync.errors, WaitTimeout);
    pyo3::import_exception!(probe_sync.errors, RefusedTrace);
    pyo3::import_exception!(probe_sync.errors, DamagedTrace);
    pyo3::import_exception!(probe_sync.errors, FileError);
}

/// What a failure is, with its text: kept, and raised as often as it is asked for.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: Kind,
    text: String,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    Clock,
    Config,
    Join,
    Ended,
    Failed,
    Timeout,
    Refused,
    Damaged,
    File,
}

impl Failure {
    /// A keyword or a setting has to be changed.
    pub fn config(text: impl Into<String>) -> Self {
        Self { kind: Kind::Config, text: text.into() }
    }

    /// A file cannot be written.
    pub fn file(text: impl Into<String>) -> Self {
        Self { kind: Kind::File, text: text.into() }
    }

    /// The clock cannot say it.
    pub fn clock(text: impl Into<String>) -> Self {
        Self { kind: Kind::Clock, text: text.into() }
    }

    /// The session is over.
    pub fn ended(text: impl Into<String>) -> Self {
        Self { kind: Kind::Ended, text: text.into() }
    }

    /// The session broke.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, text: text.into() }
    }

    /// What was waited for did not come.
    pub fn timeout(text: impl Into<String>) -> Self {
        Self { kind: Kind::Timeout, text: text.into() }
    }

    /// A failure of a session, or of `solve`; `met` says whether its ranks had met before.
    pub fn of_session(error: &probe_sync::Error, met: bool) -> Self {
        use probe_sync::Error;
        use probe_sync::collective;
        let kind = match error {
            Error::NoWayForFiles { .. } => Kind::Config,
            Error::Collective(collective::Error::File { .. }) => Kind::File,
            Error::Configuration { .. } | Error::ConfigurationFile { .. } | Error::OutputIsInput { .. } => Kind::Config,
            Error::File { .. } | Error::Occupied { .. } | Error::TooManyOldRuns { .. } => Kind::File,
            Error::Table { .. } | Error::NothingToSolve { .. } => Kind::Damaged,
            Error::Clock { .. } | Error::ClockPage { .. } => Kind::Clock,
            Error::Refused { .. } => Kind::Join,
            Error::Collective(_) if !met => Kind::Join,
            _ => Kind::Failed,
        };
        Self { kind, text: error.to_string() }
    }

    /// The ranks cannot find each other.
    pub fn of_meeting(error: &probe_sync::collective::Error) -> Self {
        Self { kind: Kind::Join, text: error.to_string() }
    }

    /// A failure of `align`, `merge`, `check`, `stragglers` or of reading offsets.
    pub fn of_traces(error: &probe_sync_trace::Error) -> Self {
        use probe_sync_trace::Error;
        let kind = match error {
            Error::Request { .. } => Kind::Config,
            Error::Io { .. } => Kind::File,
            Error::Malformed { .. } | Error::Line { .. } | Error::Database { .. } => Kind::Damaged,
            _ => Kind::Refused,
        };
        Self { kind, text: error.to_string() }
    }

    /// What it says.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<Failure> for PyErr {
    fn from(Failure { kind, text }: Failure) -> Self {
        match kind {
            Kind::Clock => classes::ClockError::new_err(text),
            Kind::Config => classes::ConfigError::new_err(text),
            Kind::Join => classes::JoinError::new_err(text),
            Kind::Ended => classes::SessionEnded::new_err(text),
            Kind::Failed => classes::SessionFailed::new_err(text),
            Kind::Timeout => classes::WaitTimeout::new_err(text),
            Kind::Refused => classes::RefusedTrace::new_err(text),
            Kind::Damaged => classes::DamagedTrace::new_err(text),
            Kind::File => classes::FileError::new_err(text),
        }
    }
}
