//! The last operations of one rank.

use std::collections::VecDeque;

use crate::dump::Entry;

/// The last operations of a rank, on its own clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recent(VecDeque<RecentOperation>);

#[derive(Copy, Clone, Debug)]
pub(crate) struct RecentOperation {
    pub name: u32,
    pub group: u32,
    pub sequence: u64,
    pub at_ns: i64,
    pub is_finished: bool,
}

impl Recent {
    /// Adds an operation with its interned name.
    pub fn push(&mut self, entry: &Entry, name: u32, group: u32, is_finished: bool) {
        let Some(at_ns) = entry.time_created_ns else { return };
        let sequence = entry.sequence();
        if self.0.len() == OPERATIONS {
            self.0.pop_front();
        }
        self.0.push_back(RecentOperation { name, group, sequence, at_ns, is_finished });
    }

    pub fn iter(&self) -> impl Iterator<Item = &RecentOperation> {
        self.0.iter()
    }
}

const OPERATIONS: usize = 32;
