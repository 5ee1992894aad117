//! What a rank's process knows of the run in which an earlier one was.
//!
//! Place in the flow: `joining` says it and goes by it; whoever keeps it between two processes gives it. What it does not do: tell whether that run goes on.

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
