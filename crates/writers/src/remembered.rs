//! A bounded store of data about flows by id, which forgets the oldest first.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::FixedState;

/// Values by id.
#[derive(Debug)]
pub(super) struct Remembered<T> {
    known: HashMap<u64, T, FixedState>,
    /// Ids, oldest first.
    order: VecDeque<u64>,
    known_max: usize,
}

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self::with_bound(REMEMBERED_MAX)
    }
}

impl<T> Remembered<T> {
    /// Remembers at most this many.
    pub(super) fn with_bound(known_max: usize) -> Self {
        Self { known: HashMap::default(), order: VecDeque::new(), known_max }
    }

    /// The value for an id.
    #[inline]
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        self.known.get_mut(&id)
    }

    /// Stores the value of an unknown id; returns what had to be forgotten for it.
    pub(super) fn insert(&mut self, id: u64, value: T) -> Option<T> {
        let forgotten = if self.order.len() >= self.known_max { self.forget() } else { None };
        self.known.insert(id, value);
        self.order.push_back(id);
        forgotten
    }

    /// Forgets the oldest.
    pub(super) fn forget(&mut self) -> Option<T> {
        self.order.pop_front().and_then(|id| self.known.remove(&id))
    }
}

/// Flows that are remembered: some 10 MB.
const REMEMBERED_MAX: usize = 1 << 17;
