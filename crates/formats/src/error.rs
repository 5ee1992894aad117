//! The single error type of this crate: what failed, in which file, at which byte, for which node.
//!
//! The command line prints it as one line. It does not carry notes on survivable problems, which
//! are part of the results (`TraceFacts::notes` and the stages' own statistics).

use std::path::{Path, PathBuf};

use crate::words::joined;

/// Everything that can go wrong between reading a trace and proving its causality.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried, as a verb: "open", "read", "write", "rename".
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what its format demands.
    #[error("{path}: byte {offset}: {problem}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, in bytes from its (decompressed) start.
        offset: u64,
        /// What is wrong, as a sentence without a full stop.
        problem: String,
    },
    /// A database is not what it should be, or cannot be read or written.
    #[error("{path}: {problem}")]
    Database {
        /// The file.
        path: PathBuf,
        /// Which table and row, what is wrong, and what to do.
        problem: String,
    },
    /// One of several outputs could not be made; others are whole, and stay.
    #[error("{source}; {} of {all} outputs were already written and are kept: {}", written.len(), listed(written))]
    Unfinished {
        /// Outputs that are whole.
        written: Vec<PathBuf>,
        /// How many there were to be.
        all: usize,
        /// Why another is not there.
        source: Box<Error>,
    },
    /// The traces and the nodes do not go together.
    #[error("{problem}")]
    Nodes {
        /// What does not fit, naming traces and nodes.
        problem: String,
    },
    /// What was asked for does not go together or cannot be done.
    #[error("{problem}")]
    Request {
        /// Why, as a sentence without a full stop.
        problem: String,
    },
    /// The collectives of the traces do not carry what was asked of them.
    #[error("offsets from collectives: {problem}")]
    Collectives {
        /// What is missing, as a sentence without a full stop.
        problem: String,
    },
    /// A line of a text file is not what it should be.
    #[error("{path}: line {line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Which, counted from 1.
        line: u64,
        /// What is wrong.
        problem: String,
    },
    /// Events of traces lie outside of what was measured.
    #[error("{problem}")]
    Outside {
        /// Which traces, when, and what to do.
        problem: String,
        /// How far the farthest event is outside, ns.
        beyond_ns: i128,
    },
    /// A node has no offsets.
    #[error("{path}: no offsets for node {node}")]
    NoOffsets {
        /// Where they should be.
        path: PathBuf,
        /// The node.
        node: u32,
    },
    /// Planes of a node's trace are on a clock that nothing ties to the system clock.
    #[error("node {node}: {problem}")]
    Planes {
        /// The node.
        node: u32,
        /// Which plane, its span, that of the pairs, and what to do.
        problem: String,
    },
    /// A node's trace is on a clock that nothing ties to the system clock.
    #[error("node {node}: {problem}")]
    Untied {
        /// The node.
        node: u32,
        /// Which clock, what the pairs at hand are of, and what to do.
        problem: String,
    },
    /// A query over databases failed.
    #[error("the query failed: {problem}")]
    Query {
        /// What SQLite said.
        problem: String,
    },
    /// A chunk of events does not hold together.
    #[error("a chunk of events: {problem}")]
    Chunk {
        /// Which table and row, and what is wrong.
        problem: String,
    },
    /// An output is larger than was allowed; whoever asked for it leaves out more and tries again.
    #[error("the output would have {bytes} bytes")]
    OverBudget {
        /// How many bytes it has.
        bytes: u64,
    },
    /// An output does not take what is written.
    #[error("cannot write the output: {source}")]
    Sink {
        /// What it said.
        source: std::io::Error,
    },
    /// No time map can be made for a node.
    #[error("node {node}: {source}")]
    Clock {
        /// The node.
        node: u32,
        /// Why.
        source: probe_sync_estimate::Error,
    },
}

/// Some files by name, and how many more.
fn listed(files: &[PathBuf]) -> String {
    joined(files.iter().take(LISTED).map(|file| file.display().to_string()), files.len())
}

/// So many files are named in a message.
const LISTED: usize = 8;

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
