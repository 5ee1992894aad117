//! Errors of operations between ranks, with the ranks' own numbers.
//!
//! Remedies are left to the front ends, which phrase them in their own terms.

use std::time::Duration;

/// Errors of communication between ranks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No data arrived from these ranks in time.
    #[error("{operation}: no data from rank(s) {} within {waited:.1?}{}", list(missing), if *interrupted { " (stop requested)" } else { "" })]
    Late {
        /// Operation that waited.
        operation: &'static str,
        /// Missing ranks.
        missing: Vec<usize>,
        /// Time waited.
        waited: Duration,
        /// True if a signal cut the wait short.
        interrupted: bool,
    },
    /// The connection of a rank broke: its process ended or its host is gone.
    #[error("{operation}: lost rank {rank}: {reason}")]
    Lost {
        /// Operation in progress.
        operation: &'static str,
        /// Lost rank.
        rank: usize,
        /// Error of the system.
        reason: String,
    },
    /// A rank ended the run on purpose.
    #[error("{operation}: rank {rank} ended the run: {reason}")]
    Aborted {
        /// Operation in progress on this rank.
        operation: &'static str,
        /// Rank that ended the run.
        rank: usize,
        /// Reason given by that rank.
        reason: String,
    },
    /// The others continue without this rank.
    #[error("the run continues without this rank: {reason}")]
    Dismissed {
        /// Reason given by the root.
        reason: String,
    },
    /// The root is gone, and too few ranks have found each other to continue: the others may have
    /// continued without them.
    #[error(
        "{operation}: the root is lost, and this rank can reach only {} of {of} ranks; a minority stops, because the other ranks may \
        have continued",
        present
    )]
    Minority {
        /// Operation in progress.
        operation: &'static str,
        /// Number of ranks that have found each other, including this one.
        present: usize,
        /// Number of ranks before.
        of: usize,
    },
    /// A rank's file did not reach the root.
    #[error("rank {rank}: {name} did not reach rank 0: {reason}")]
    File {
        /// Rank that sent the file.
        rank: usize,
        /// Name of the file at the root.
        name: String,
        /// Reason, and what to do.
        reason: String,
    },
    /// A peer violated the protocol.
    #[error("{operation}: rank {rank} sent {what}")]
    Protocol {
        /// Operation in progress.
        operation: &'static str,
        /// The peer.
        rank: usize,
        /// Description of the violation.
        what: String,
    },
    /// The ranks cannot find each other, or a port is taken.
    #[error("{what}: {reason}")]
    Setup {
        /// Attempted action, with the address.
        what: String,
        /// Error of the system, and what to do.
        reason: String,
    },
    /// The backend failed.
    #[error("{operation}: {reason}")]
    Backend {
        /// Operation in progress.
        operation: &'static str,
        /// Error of the backend.
        reason: String,
    },
}

fn list(ranks: &[usize]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
