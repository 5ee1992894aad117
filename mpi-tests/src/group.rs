//! Small questions to a group of ranks.
//!
//! Place in the flow: under every program here. What it does not do: communicate.

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
