//! Errors of operations between ranks, with the ranks' own numbers.
//!
//! Remedies are left to the front ends, which phrase them in their own terms.

use std::time::Duration;

/// What can go wrong between ranks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing came from these ranks in time.
    #[error("{operation}: no data from rank(s) {} within {waited:.1?}{}", list(missing), if *interrupted { " (stop requested)" } else { "" })]
    Late {
        /// The operation that waited.
        operation: &'static str,
        /// Who is missing.
        missing: Vec<usize>,
        /// How long it waited.
        waited: Duration,
        /// The wait was cut short by a signal.
        interrupted: bool,
    },
    /// A rank's connection broke: its process ended or its host is gone.
    #[error("{operation}: lost rank {rank}: {reason}")]
    Lost {
        /// The operation under way.
        operation: &'static str,
        /// The rank that is gone.
        rank: usize,
        /// What the system said.
        reason: String,
    },
    /// a rank ended the run on purpose.
    #[error("{operation}: rank {rank} ended the run: {reason}")]
    Aborted {
        /// The operation under way here.
        operation: &'static str,
        /// Who ended it.
        rank: usize,
        /// Why, in that rank's words.
        reason: String,
    },
    /// The others go on without this rank.
    #[error("the run continues without this rank: {reason}")]
    Dismissed {
        /// Why, in the root's words.
        reason: String,
    },
    /// The root is gone, and too few ranks have found each other to go on: the others may have gone
    /// on without them.
    #[error(
        "{operation}: the root is lost, and this rank can reach only {} of {of} ranks; a minority stops, because the other ranks may \
        have continued",
        present
    )]
    Minority {
        /// The operation under way.
        operation: &'static str,
        /// How many ranks have found each other, this one included.
        present: usize,
        /// How many there were.
        of: usize,
    },
    /// A rank's file is not at the root.
    #[error("rank {rank}: {name} did not reach rank 0: {reason}")]
    File {
        /// Whose file.
        rank: usize,
        /// The name that it was to have.
        name: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// A peer sent something that this protocol does not allow.
    #[error("{operation}: rank {rank} sent {what}")]
    Protocol {
        /// The operation under way.
        operation: &'static str,
        /// Who sent it.
        rank: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The ranks could not find each other, or a port is taken.
    #[error("{what}: {reason}")]
    Setup {
        /// What was tried, with the address.
        what: String,
        /// What the system said, and what to do.
        reason: String,
    },
    /// The backend failed.
    #[error("{operation}: {reason}")]
    Backend {
        /// The operation under way.
        operation: &'static str,
        /// What the backend said.
        reason: String,
    },
}

fn list(ranks: &[usize]) -> String {
    ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
