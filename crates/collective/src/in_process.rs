//! The in-process backend: ranks are threads of one process.
//!
//! Place in the flow: tests of the round loop and of everything above it. Behaves as the other backends do, deadlines
//! and lost ranks included, so that a test that passes here means something there.
//! What it does not do: carry data between processes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::{Call, Collective, Deadline, Error, Frames, ROOT, Rank, Wait, check_participants, check_word};

/// One rank of a group of threads.
#[derive(Debug)]
pub struct InProcess {
    rank: Rank,
    size: usize,
    shared: Arc<Shared>,
}

impl InProcess {
    /// A group of `size` ranks, in order.
    pub fn group(size: usize) -> Vec<Self> {
        let member = Member { alive: true, ..Member::default() };
        let state = State { members: vec![member; size], aborted: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        (0..size).map(|rank| Self { rank, size, shared: Arc::clone(&shared) }).collect()
    }

    /// Sleeps until `ready` yields something; `missing` says whom it waits for.
    fn wait<T>(
        &self,
        mut wait: Wait<'_>,
        missing: impl Fn(&State) -> Vec<Rank>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, Error> {
        let operation = wait.operation();
        let mut state = self.shared.lock();
        loop {
            // What was sent before an abort still arrives, as on a connection.
            if let Some(value) = ready(&mut state) {
                return Ok(value);
            }
            if let Some((rank, reason)) = state.aborted.clone() {
                return Err(Error::Aborted { operation, rank, reason });
            }
            let missing = missing(&state);
            if let Some(&rank) = missing.iter().find(|&&rank| !state.members[rank].alive) {
                return Err(Error::Lost { operation, rank, reason: "its thread ended".to_owned() });
            }
            let Some(slice) = wait.slice() else { return Err(wait.late(missing)) };
            state = match self.shared.changed.wait_timeout(state, slice) {
                Ok((state, _)) => state,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }
}

impl Collective for InProcess {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backend(&self) -> &'static str {
        "in-process"
    }

    fn gather(
        &mut self,
        participants: &[bool],
        payload: &[u8],
        frames: &mut Frames,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        check_participants(self.rank, self.size, participants)?;
        frames.clear();
        if self.rank != ROOT {
            if participants[self.rank] {
                self.shared.lock().members[self.rank].sent.push_back(payload.to_vec());
                self.shared.changed.notify_all();
            }
            return Ok(());
        }
        let others = || (0..self.size).filter(|&rank| rank != ROOT && participants[rank]);
        let missing = |state: &State| others().filter(|&rank| state.members[rank].sent.is_empty()).collect::<Vec<_>>();
        let parts = self.wait(Wait::begin("gather", deadline), missing, |state| {
            let complete = others().all(|rank| !state.members[rank].sent.is_empty());
            complete.then(|| others().map(|rank| (rank, state.members[rank].sent.pop_front())).collect::<Vec<_>>())
        })?;
        let mut parts = parts.into_iter().peekable();
        frames.push(payload);
        for rank in 1..self.size {
            let part = parts.next_if(|(of, _)| *of == rank).and_then(|(_, part)| part);
            frames.push(part.as_deref().unwrap_or_default());
        }
        Ok(())
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        if self.rank == ROOT {
            let bytes: Arc<[u8]> = buffer.as_slice().into();
            let mut state = self.shared.lock();
            if let Some((rank, reason)) = state.aborted.clone() {
                return Err(Error::Aborted { operation: "broadcast", rank, reason });
            }
            for member in state.members.iter_mut().skip(1) {
                member.announced.push_back(Arc::clone(&bytes));
            }
            self.shared.changed.notify_all();
            return Ok(());
        }
        let bytes = self.wait(
            Wait::begin("broadcast", deadline),
            |_| vec![ROOT],
            |state| state.members[self.rank].announced.pop_front(),
        )?;
        buffer.clear();
        buffer.extend_from_slice(&bytes);
        Ok(())
    }

    fn call(&mut self, word: &[u8]) -> Result<bool, Error> {
        check_word(self.rank, word)?;
        let mut state = self.shared.lock();
        let hearers = if self.rank == ROOT { 1..self.size } else { ROOT..ROOT + 1 };
        for hearer in hearers {
            state.members[hearer].heard.push((self.rank, word.to_vec()));
        }
        Ok(true)
    }

    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        Ok(std::mem::take(&mut self.shared.lock().members[self.rank].heard))
    }

    fn abort(&mut self, reason: &str) {
        self.shared.lock().aborted.get_or_insert_with(|| (self.rank, reason.to_owned()));
        self.shared.changed.notify_all();
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.shared.lock().members[self.rank].alive = false;
        self.shared.changed.notify_all();
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    /// A thread that panics while it holds the lock leaves whole queues behind: every change is a single push or pop.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    members: Vec<Member>,
    aborted: Option<(Rank, String)>,
}

#[derive(Clone, Debug, Default)]
struct Member {
    sent: VecDeque<Vec<u8>>,
    announced: VecDeque<Arc<[u8]>>,
    heard: Vec<Call>,
    alive: bool,
}
