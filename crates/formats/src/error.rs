//! The single error type of this crate: what failed, in which file, at which byte.
//!
//! The command line prints it as one line. It does not carry notes on survivable problems, which
//! are part of the results (`TraceFacts::notes` and the stages' own statistics).

use std::path::{Path, PathBuf};

/// Errors of reading and writing traces.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The attempted operation, as a verb: "open", "read", "write", "rename".
        action: &'static str,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file violates its format.
    #[error("{path}: byte {offset}: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Byte offset in the (decompressed) file.
        offset: u64,
        /// What is wrong, as a sentence without a full stop.
        problem: String,
    },
    /// A database is invalid, or cannot be read or written.
    #[error("{path}: {problem}")]
    Database {
        /// The file.
        path: PathBuf,
        /// The table and row, what is wrong, and what to do.
        problem: String,
    },
    /// The request is inconsistent or cannot be fulfilled.
    #[error("{problem}")]
    Request {
        /// Why, as a sentence without a full stop.
        problem: String,
    },
    /// A chunk of events is inconsistent.
    #[error("a chunk of events: {problem}")]
    Chunk {
        /// The table and row, and what is wrong.
        problem: String,
    },
    /// An output exceeds its size limit; the caller omits more and tries again.
    #[error("the output would have {bytes} bytes")]
    OverBudget {
        /// Its size, bytes.
        bytes: u64,
    },
    /// An output rejected a write.
    #[error("cannot write the output: {source}")]
    Sink {
        /// Error of the output.
        source: std::io::Error,
    },
}

impl Error {
    /// An [`Error::Io`] about `path`, for `map_err`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { path, action, source }
    }

    /// An [`Error::Malformed`] about `path`.
    pub fn malformed(path: &Path, offset: u64, problem: impl Into<String>) -> Error {
        Error::Malformed { path: path.to_path_buf(), offset, problem: problem.into() }
    }
}
