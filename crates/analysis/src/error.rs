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
