//! The error type of this crate: which question about the traces cannot be answered.

#[cfg(feature = "rocpd")]
use std::path::{Path, PathBuf};

/// Errors of lateness and queries.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written, or violates its format.
    #[error(transparent)]
    Trace(#[from] probe_sync_formats::Error),
    /// The traces cannot be put on one clock.
    #[error(transparent)]
    Alignment(#[from] probe_sync_alignment::Error),
    /// The request is inconsistent or cannot be fulfilled.
    #[error("{problem}")]
    Request {
        /// Why, as a sentence without a full stop.
        problem: String,
    },
    /// A query of databases failed.
    #[error("the query failed: {problem}")]
    Query {
        /// Message of SQLite.
        problem: String,
    },
}

/// What an error means to the caller.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request is invalid or cannot be fulfilled.
    Request,
    /// A file does not exist.
    Missing,
    /// A file cannot be read or written.
    File,
    /// A file violates its format.
    Damaged,
    /// The traces do not match each other or the clocks.
    Refused,
}

/// Converts the error of a track that alignment adds to a merged file.
impl From<Error> for probe_sync_alignment::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Trace(error) => error.into(),
            Error::Alignment(error) => error,
            Error::Request { problem } | Error::Query { problem } => Self::Request { problem },
        }
    }
}

impl Error {
    /// Returns the kind of the error, for front ends whose callers react to kinds.
    pub fn kind(&self) -> ErrorKind {
        use probe_sync_alignment::Error as AlignmentError;
        match self {
            Self::Request { .. } | Self::Query { .. } | Self::Alignment(AlignmentError::Request { .. }) => {
                ErrorKind::Request
            }
            Self::Alignment(AlignmentError::Line { .. }) => ErrorKind::Damaged,
            Self::Trace(error) | Self::Alignment(AlignmentError::Trace(error)) => kind_of_trace(error),
            Self::Alignment(_) => ErrorKind::Refused,
        }
    }

    /// Returns the error of a file operation on `path`, for `map_err`; `action` is a verb.
    #[cfg(feature = "rocpd")]
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        let error = probe_sync_formats::Error::io(path, action);
        move |source| error(source).into()
    }

    /// Returns the error of an invalid database.
    #[cfg(feature = "rocpd")]
    pub(crate) fn database(path: impl Into<PathBuf>, problem: String) -> Error {
        probe_sync_formats::Error::Database { path: path.into(), problem }.into()
    }
}

fn kind_of_trace(error: &probe_sync_formats::Error) -> ErrorKind {
    use probe_sync_formats::Error;
    match error {
        Error::Request { .. } => ErrorKind::Request,
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => ErrorKind::Missing,
        Error::Io { .. } => ErrorKind::File,
        Error::Malformed { .. } | Error::Database { .. } => ErrorKind::Damaged,
        _ => ErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use probe_sync_alignment::Error as AlignmentError;
    use probe_sync_formats::Error as TraceError;

    use super::*;

    #[test]
    fn errors_have_their_kinds() {
        let check = |error: Error, kind: ErrorKind| assert_eq!(error.kind(), kind, "{error}");
        let problem = || "p".to_owned();
        let io = |kind: std::io::ErrorKind| TraceError::Io { path: "t".into(), action: "open", source: kind.into() };
        check(Error::Request { problem: problem() }, ErrorKind::Request);
        check(Error::Query { problem: problem() }, ErrorKind::Request);
        check(TraceError::Request { problem: problem() }.into(), ErrorKind::Request);
        check(AlignmentError::Request { problem: problem() }.into(), ErrorKind::Request);
        check(AlignmentError::Nodes { problem: problem() }.into(), ErrorKind::Refused);
        check(AlignmentError::Line { path: "o".into(), line: 1, problem: problem() }.into(), ErrorKind::Damaged);
        check(AlignmentError::from(TraceError::malformed("t".as_ref(), 0, "p")).into(), ErrorKind::Damaged);
        check(io(std::io::ErrorKind::NotFound).into(), ErrorKind::Missing);
        check(AlignmentError::from(io(std::io::ErrorKind::PermissionDenied)).into(), ErrorKind::File);
    }
}
