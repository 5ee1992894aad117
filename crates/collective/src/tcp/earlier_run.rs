//! What a rank's process knows about the run of an earlier process of the same rank.
//!
//! The process that keeps this information from one process to the next supplies it. It does not
//! tell whether that run still continues.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::Rank;

/// The run in which an earlier process of this rank was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierRun {
    /// Its number; 0 where there was none.
    pub run: u64,
    /// Who may have taken the place of its rank 0, in their order, and where each is reached.
    pub successors: Vec<(Rank, Vec<SocketAddr>)>,
    /// The file that says so, which an error names: without it a new run begins.
    pub kept_in: Option<PathBuf>,
}
