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
    /// Number among all ranks of the job.
    pub(crate) rank: u32,
    /// Place in the launcher's job, if all ranks of the job state that of one launcher.
    pub(crate) launched: Option<Launched>,
    /// Start of the virtual clocks.
    pub(crate) start: Timestamp<System>,
}
