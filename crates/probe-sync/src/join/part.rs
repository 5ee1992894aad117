//! A rank's place in a job of several runs: its region's, and where it is a master that among the masters.
//!
//! Place in the flow: `regions` settles it before these runs begin, and each takes it through its context. So a process has one virtual clock in all
//! of them, and the ranks that their files state are those of the whole job.
//!
//! What it does not do: settle who is in which run.

use probe_sync_time::{System, Timestamp};

use super::launcher::Launched;

/// A rank's place in a job of several runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartOfJob {
    /// Its number among all ranks of the job.
    pub(crate) rank: u32,
    /// Its place in the launcher's job, where all ranks of the job state one launcher's.
    pub(crate) launched: Option<Launched>,
    /// When the virtual clocks began.
    pub(crate) start: Timestamp<System>,
}
