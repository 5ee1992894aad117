//! A rank's place in a job of several runs: in its region's run and, for a master, in the run among
//! the masters.
//!
//! `regions` determines it before these runs begin, and each run receives it through its context.
//! Therefore a process has one virtual clock in all of them, and their files state the ranks of the
//! whole job.

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
