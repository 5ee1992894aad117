//! Notes between the callers of a run's ranks.
//!
//! A caller posts a note here. Its rank's round loop brings it to the master, or from the master to
//! all ranks, with the words of the run (`control`), and the receiving callers find it here.
//! Callers therefore need no connections of their own, and a master that took a lost one's place
//! receives the notes as well.
//!
//! It does not interpret a note or keep it for absent ranks.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probe_sync_collective::Rank;

/// Notes that one rank sends and receives. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Notes(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    to_say: VecDeque<Vec<u8>>,
    heard: VecDeque<(Rank, Vec<u8>)>,
    /// True if this rank was the master at the last check.
    leads: bool,
}

impl Notes {
    /// Queues a note: from the master to all others, from another rank to the master. If more than
    /// [`KEPT_MAX`] are waiting, the oldest is dropped.
    pub(crate) fn say(&self, note: Vec<u8>) {
        push(&mut self.lock().to_say, note);
    }

    /// Removes and returns the notes received since the previous call, with their senders.
    pub(crate) fn heard(&self) -> Vec<(Rank, Vec<u8>)> {
        self.lock().heard.drain(..).collect()
    }

    /// Returns true if this rank is the master.
    pub(crate) fn leads(&self) -> bool {
        self.lock().leads
    }

    /// Removes and returns the queued notes; `leads` states whether this rank is the master now.
    pub(crate) fn take(&self, leads: bool) -> Vec<Vec<u8>> {
        let mut kept = self.lock();
        kept.leads = leads;
        kept.to_say.drain(..).collect()
    }

    /// Adds a received note.
    pub(crate) fn hear(&self, rank: Rank, note: Vec<u8>) {
        push(&mut self.lock().heard, (rank, note));
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push<T>(queue: &mut VecDeque<T>, one: T) {
    if queue.len() >= KEPT_MAX {
        queue.pop_front();
    }
    queue.push_back(one);
}

/// Most notes waiting, so that a caller that never collects them cannot exhaust the memory.
const KEPT_MAX: usize = 4096;
