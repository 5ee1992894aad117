//! Small queries about a group of ranks.
//!
//! They do not communicate.

use probe_sync_collective::{Collective, ROOT};

/// Small questions to a group.
pub(crate) trait GroupExt {
    /// True on the rank that reports.
    fn is_root(&self) -> bool;
}

impl<C: Collective> GroupExt for C {
    fn is_root(&self) -> bool {
        self.rank() == ROOT
    }
}
