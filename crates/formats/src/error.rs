//! The single error type of this crate: what failed, in which file, at which byte, for which node.
//!
//! The command line prints it as one line. It does not carry notes on survivable problems, which
//! are part of the results (`TraceFacts::notes` and the stages' own statistics).

use std::path::{Path, PathBuf};

use crate::words::joined;

/// Errors of reading, aligning and writing traces.
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
    /// One of several outputs could not be made; the others are complete and are kept.
    #[error("{source}; {} of {all} outputs were already written and are kept: {}", written.len(), listed(written))]
    Unfinished {
        /// The complete outputs.
        written: Vec<PathBuf>,
        /// Number of outputs requested.
        all: usize,
        /// Why the next one is missing.
        source: Box<Error>,
    },
    /// Traces and nodes do not match.
    #[error("{problem}")]
    Nodes {
        /// What does not match, naming traces and nodes.
        problem: String,
    },
    /// The request is inconsistent or cannot be fulfilled.
    #[error("{problem}")]
    Request {
        /// Why, as a sentence without a full stop.
        problem: String,
    },
    /// The collectives in the traces are not sufficient for the request.
    #[error("offsets from collectives: {problem}")]
    Collectives {
        /// What is missing, as a sentence without a full stop.
        problem: String,
    },
    /// A line of a text file is invalid.
    #[error("{path}: line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// Events of traces lie outside the measured span.
    #[error("{problem}")]
    Outside {
        /// The traces and times, and what to do.
        problem: String,
        /// Distance of the farthest event from the measured span, ns.
        beyond_ns: i128,
    },
    /// A node has no offsets.
    #[error("{path}: no offsets for node {node}")]
    NoOffsets {
        /// The file that should contain them.
        path: PathBuf,
        /// The node.
        node: u32,
    },
    /// Planes of a node's trace are on a clock that nothing ties to the system clock.
    #[error("node {node}: {problem}")]
    Planes {
        /// The node.
        node: u32,
        /// The plane, its span, the span of the pairs, and what to do.
        problem: String,
    },
    /// The trace of a node is on a clock that nothing ties to the system clock.
    #[error("node {node}: {problem}")]
    Untied {
        /// The node.
        node: u32,
        /// The clock, the clock of the available pairs, and what to do.
        problem: String,
    },
    /// A query of databases failed.
    #[error("the query failed: {problem}")]
    Query {
        /// Message of SQLite.
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
    /// No time map can be made for a node.
    #[error("node {node}: {source}")]
    Clock {
        /// The node.
        node: u32,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Names some files, and how many more there are.
fn listed(files: &[PathBuf]) -> String {
    joined(files.iter().take(LISTED).map(|file| file.display().to_string()), files.len())
}

/// Most files named in a message.
const LISTED: usize = 8;

impl Error {
    /// An [`Error::Io`] about `path`, for `map_err`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { path, action, source }
    }

    /// An [`Error::Clock`] of `node`, for `map_err`.
    pub fn clock<E: std::error::Error + Send + Sync + 'static>(node: u32) -> impl Fn(E) -> Error {
        move |source| Error::Clock { node, source: source.into() }
    }

    /// An [`Error::Malformed`] about `path`.
    pub fn malformed(path: &Path, offset: u64, problem: impl Into<String>) -> Error {
        Error::Malformed { path: path.to_path_buf(), offset, problem: problem.into() }
    }
}
