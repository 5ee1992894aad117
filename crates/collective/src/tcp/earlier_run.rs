//! What a rank's process knows about the run of an earlier process of the same rank.
//!
//! The process that keeps this information from one process to the next supplies it. It does not
//! tell whether that run still continues.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Rank;

/// The run of an earlier process of this rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierRun {
    /// Run number; 0 if there was none.
    pub run: u64,
    /// Ranks that may have taken over from its rank 0, in order, with their addresses.
    pub successors: Vec<(Rank, Vec<SocketAddr>)>,
    /// File with this information, which an error names: without it a new run begins.
    pub kept_in: Option<PathBuf>,
}
