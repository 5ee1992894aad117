//! The error type of this crate: which traces, nodes and clocks do not fit the request.

use std::path::{Path, PathBuf};

use probe_sync_formats::words::joined;

/// Errors of aligning, merging, checking and converting traces.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read or written, or violates its format.
    #[error(transparent)]
    Trace(#[from] probe_sync_formats::Error),
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
    /// The request is inconsistent or cannot be fulfilled.
    #[error("{problem}")]
    Request {
        /// Why, as a sentence without a full stop.
        problem: String,
    },
    /// Traces and nodes do not match.
    #[error("{problem}")]
    Nodes {
        /// What does not match, naming traces and nodes.
        problem: String,
    },
    /// The collectives in the traces are not sufficient for the request.
    #[error("offsets from collectives: {problem}")]
    Collectives {
        /// What is missing, as a sentence without a full stop.
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
    /// Returns the error of a file operation on `path`, for `map_err`; `action` is a verb.
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Error {
        let error = probe_sync_formats::Error::io(path, action);
        move |source| error(source).into()
    }

    /// Returns an [`Error::Clock`] of `node`, for `map_err`.
    pub(crate) fn clock<E: std::error::Error + Send + Sync + 'static>(node: u32) -> impl Fn(E) -> Error {
        move |source| Error::Clock { node, source: source.into() }
    }

    /// Returns the error of a file that violates its format at this byte.
    pub(crate) fn malformed(path: &Path, offset: u64, problem: impl Into<String>) -> Error {
        probe_sync_formats::Error::malformed(path, offset, problem).into()
    }
}
