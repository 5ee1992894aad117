//! The Python exception for each failure: one class for each possible reaction of a user.
//!
//! The classes are defined in Python, in `probe_sync/errors.py`, because some have two parents. The
//! texts are the libraries' own, with keywords in place of flags.

use pyo3::prelude::*;

mod classes {
    pyo3::import_exception!(probe_sync.errors, AlreadyStarted);
    pyo3::import_exception!(probe_sync.errors, ClockError);
    pyo3::import_exception!(probe_sync.errors, ConfigError);
    pyo3::import_exception!(probe_sync.errors, JoinError);
    pyo3::import_exception!(probe_sync.errors, SessionEnded);
    pyo3::import_exception!(probe_sync.errors, SessionFailed);
    pyo3::import_exception!(probe_sync.errors, WaitTimeout);
    pyo3::import_exception!(probe_sync.errors, BoundUnreachable);
    pyo3::import_exception!(probe_sync.errors, RefusedTrace);
    pyo3::import_exception!(probe_sync.errors, DamagedTrace);
    pyo3::import_exception!(probe_sync.errors, FileError);
    pyo3::import_exception!(probe_sync.errors, MissingFile);
}

/// A kind of failure with its message: stored, and raised whenever it is requested.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: Kind,
    text: String,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    Started,
    Clock,
    Config,
    Join,
    Ended,
    Failed,
    Timeout,
    Unreachable,
    Refused,
    Damaged,
    File,
    Missing,
}

impl Failure {
    /// Creates a failure for an invalid keyword or setting.
    pub fn config(text: impl Into<String>) -> Self {
        Self { kind: Kind::Config, text: text.into() }
    }

    /// Creates a failure for a file that cannot be written.
    pub fn file(text: impl Into<String>) -> Self {
        Self { kind: Kind::File, text: text.into() }
    }

    /// Creates a failure for an unavailable time.
    pub fn clock(text: impl Into<String>) -> Self {
        Self { kind: Kind::Clock, text: text.into() }
    }

    /// Creates a failure for a session that has ended.
    pub fn ended(text: impl Into<String>) -> Self {
        Self { kind: Kind::Ended, text: text.into() }
    }

    /// Creates a failure for a session that failed.
    pub fn failed(text: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, text: text.into() }
    }

    /// Creates a failure for a wait that timed out.
    pub fn timeout(text: impl Into<String>) -> Self {
        Self { kind: Kind::Timeout, text: text.into() }
    }

    /// Converts an error of a session, or of `solve`; `met` is true if its ranks had met before.
    pub fn of_session(error: &probe_sync::Error, met: bool) -> Self {
        use probe_sync::Error;
        use probe_sync::collective;
        let kind = match error {
            Error::NoWayForFiles { .. } => Kind::Config,
            Error::Collective(collective::Error::File { .. }) => Kind::File,
            Error::Configuration { .. } | Error::ConfigurationFile { .. } | Error::OutputIsInput { .. } => Kind::Config,
            Error::File { .. } if is_missing(error) => Kind::Missing,
            Error::File { .. } | Error::Occupied { .. } | Error::TooManyOldRuns { .. } => Kind::File,
            Error::Table { .. } | Error::NothingToSolve { .. } => Kind::Damaged,
            Error::Clock { .. } | Error::ClockPage { .. } => Kind::Clock,
            Error::Refused { .. } => Kind::Join,
            Error::BoundUnreachable { .. } => Kind::Unreachable,
            Error::Collective(_) if !met => Kind::Join,
            _ => Kind::Failed,
        };
        Self { kind, text: error.to_string() }
    }

    /// Converts an error of a meeting.
    pub fn of_meeting(error: &probe_sync::collective::Error) -> Self {
        Self { kind: Kind::Join, text: error.to_string() }
    }

    /// Converts an error of writing a database.
    pub fn of_rocpd(error: &probe_sync_rocpd::writer::Error) -> Self {
        use probe_sync_rocpd::writer::Error;
        let kind = match error {
            Error::Pattern { .. } | Error::Guid { .. } | Error::Agent { .. } => Kind::Config,
            Error::Exists { .. } | Error::Create { .. } | Error::Database { .. } | Error::Stalled { .. } => Kind::File,
            _ => Kind::Ended,
        };
        Self { kind, text: error.to_string() }
    }

    /// Converts an error of the recorder.
    pub fn of_recorder(error: &probe_sync_record::Error) -> Self {
        use probe_sync_record::Error;
        let kind = match error {
            Error::AlreadyRecording { .. } | Error::TooManySessions { .. } => Kind::Started,
            Error::NotRecording { .. } => Kind::Ended,
            Error::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Kind::Missing,
            Error::File { .. } | Error::Spill { .. } | Error::Control { .. } | Error::Memory { .. } => Kind::File,
            Error::Damaged { .. } => Kind::Damaged,
            _ => Kind::Config,
        };
        Self { kind, text: error.to_string() }
    }

    /// Converts an error of `align`, `merge`, `check`, `stragglers`, `convert`, `query` or of reading
    /// offsets.
    pub fn of_traces(error: impl Into<probe_sync_analysis::Error>) -> Self {
        use probe_sync_analysis::ErrorKind;
        let error = error.into();
        let kind = match error.kind() {
            ErrorKind::Request => Kind::Config,
            ErrorKind::Missing => Kind::Missing,
            ErrorKind::File => Kind::File,
            ErrorKind::Damaged => Kind::Damaged,
            _ => Kind::Refused,
        };
        Self { kind, text: error.to_string() }
    }

    /// Returns the message.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Returns true if the system reported that a file does not exist.
fn is_missing(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |cause| cause.source());
    let kind = causes.find_map(|cause| cause.downcast_ref::<std::io::Error>()).map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::NotFound)
}

/// Returns the keyword for a flag of the command line: `assume_order` for `--assume-order`.
fn keyword(flag: &str) -> String {
    match flag {
        "from" => "from_".to_owned(),
        "run-dir" => "clocks=Run(directory)".to_owned(),
        "offsets" => "clocks=Offsets(file)".to_owned(),
        "from-collectives" => "clocks=FROM_COLLECTIVES".to_owned(),
        _ => flag.replace('-', "_"),
    }
}

impl From<Failure> for PyErr {
    fn from(Failure { kind, text }: Failure) -> Self {
        let text = probe_sync_formats::words::with_flags(&text, keyword);
        match kind {
            Kind::Started => classes::AlreadyStarted::new_err(text),
            Kind::Clock => classes::ClockError::new_err(text),
            Kind::Config => classes::ConfigError::new_err(text),
            Kind::Join => classes::JoinError::new_err(text),
            Kind::Ended => classes::SessionEnded::new_err(text),
            Kind::Failed => classes::SessionFailed::new_err(text),
            Kind::Timeout => classes::WaitTimeout::new_err(text),
            Kind::Unreachable => classes::BoundUnreachable::new_err(text),
            Kind::Refused => classes::RefusedTrace::new_err(text),
            Kind::Damaged => classes::DamagedTrace::new_err(text),
            Kind::File => classes::FileError::new_err(text),
            Kind::Missing => classes::MissingFile::new_err(text),
        }
    }
}
