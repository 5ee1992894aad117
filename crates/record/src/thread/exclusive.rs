//! A guard for a thread that changes shared state: sessions, observers or names.
//!
//! It is taken before a lock that events may wait for. It does not lock anything itself.

use std::sync::atomic::Ordering;

use crate::active::registry::{Activity, Registry};
use crate::thread::block::Block;
use crate::thread::sync;

/// While this exists, a signal handler of this thread records nothing: it would wait for a lock
/// that this thread holds. Its events are counted.
pub(crate) struct Exclusive {
    pub(crate) block: Option<&'static Block>,
    before: u32,
}

impl Exclusive {
    /// Creates one for this thread.
    pub(crate) fn of(registry: &Registry) -> Self {
        let block = sync::attached();
        let mut before = 0;
        if let Some(block) = block {
            sync::enlist(block, registry);
            before = block.activity.busy.swap(registry.number, Ordering::Relaxed);
        }
        Self { block, before }
    }

    /// Ends it: no thread waits for this thread, which may wait for others. Returns its activity.
    pub(crate) fn let_go(self) -> Option<&'static Activity> {
        self.block.map(|block| &block.activity)
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            block.activity.busy.store(self.before, Ordering::Release);
        }
    }
}
