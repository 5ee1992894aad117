//! The in-process backend, whose ranks are threads of one process.
//!
//! Tests of the round loop and of everything above it use this backend. It behaves like the other
//! backends, including deadlines, lost ranks and a lost root, so a test that passes here is
//! meaningful for them. It does not carry data between processes, and a lost rank cannot return.

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::{
    Attendance, Call, Collective, Deadline, Error, FaultTolerance, Frames, ROOT, Rank, Succession, Wait,
    check_participants, check_word,
};

/// One rank of a group of threads.
#[derive(Debug)]
pub struct InProcess {
    rank: Rank,
    size: usize,
    /// The root, as far as this rank knows.
    root: Rank,
    shared: Arc<Shared>,
}

impl InProcess {
    /// Creates a group of `size` ranks, in order.
    pub fn group(size: usize) -> Vec<Self> {
        let member = Member { alive: true, ..Member::default() };
        let state = State {
            members: vec![member; size],
            aborted: None,
            goes_on: false,
            left: Vec::new(),
            root: ROOT,
            line: Vec::new(),
            electing: BTreeSet::new(),
            elections: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        (0..size).map(|rank| Self { rank, size, root: ROOT, shared: Arc::clone(&shared) }).collect()
    }

    /// Sleeps until `ready` returns a value; `missing` returns the ranks it waits for.
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
            self.check_place(&state)?;
            let missing = missing(&state);
            let lost = |rank: Rank| Error::Lost { operation, rank, reason: "its thread ended".to_owned() };
            let dead: Vec<Rank> = missing.iter().copied().filter(|rank| !state.members[*rank].alive).collect();
            match (dead.first(), state.goes_on && self.rank == self.root) {
                (Some(_), true) => {
                    dead.into_iter().for_each(|rank| state.leave(rank, lost(rank)));
                    continue;
                }
                (Some(&rank), false) => return Err(lost(rank)),
                (None, _) => {}
            }
            let Some(slice) = wait.slice() else {
                if !(state.goes_on && self.rank == self.root) {
                    return Err(wait.late(missing));
                }
                for rank in missing {
                    state.leave(rank, wait.late(vec![rank]));
                }
                continue;
            };
            state = self.shared.sleep(state, slice);
        }
    }

    /// Refuses operations of a rank without which the others have continued.
    fn check_place(&self, state: &State) -> Result<(), Error> {
        let gone = state.members[self.rank].gone;
        let reason = || format!("rank {} continued without rank {}", state.root, self.rank);
        if gone { Err(Error::Dismissed { reason: reason() }) } else { Ok(()) }
    }
}

impl Collective for InProcess {
    fn rank(&self) -> Rank {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn root(&self) -> Rank {
        self.root
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
        check_participants((self.rank, self.root), self.size, participants)?;
        frames.clear();
        if self.rank != self.root {
            let mut state = self.shared.lock();
            self.check_place(&state)?;
            if participants[self.rank] {
                state.members[self.rank].sent.push_back(payload.to_vec());
                self.shared.changed.notify_all();
            }
            return Ok(());
        }
        let awaited = |state: &State| -> Vec<Rank> {
            let awaited = |rank: &Rank| *rank != self.root && participants[*rank] && !state.members[*rank].gone;
            (0..self.size).filter(awaited).collect()
        };
        let missing = |state: &State| -> Vec<Rank> {
            awaited(state).into_iter().filter(|rank| state.members[*rank].sent.is_empty()).collect()
        };
        let parts = self.wait(Wait::begin("gather", deadline), missing, |state| {
            let complete = missing(state).is_empty();
            complete.then(|| {
                awaited(state).into_iter().map(|rank| (rank, state.members[rank].sent.pop_front())).collect::<Vec<_>>()
            })
        })?;
        let mut parts = parts.into_iter().peekable();
        for rank in 0..self.size {
            if rank == self.rank {
                frames.push(payload);
                continue;
            }
            let part = parts.next_if(|(of, _)| *of == rank).and_then(|(_, part)| part);
            frames.push(part.as_deref().unwrap_or_default());
        }
        Ok(())
    }

    fn broadcast(&mut self, buffer: &mut Vec<u8>, deadline: &Deadline) -> Result<(), Error> {
        if self.rank == self.root {
            let bytes: Arc<[u8]> = buffer.as_slice().into();
            let mut state = self.shared.lock();
            if let Some((rank, reason)) = state.aborted.clone() {
                return Err(Error::Aborted { operation: "broadcast", rank, reason });
            }
            for (rank, member) in state.members.iter_mut().enumerate() {
                if rank != self.rank && !member.gone {
                    member.announced.push_back(Arc::clone(&bytes));
                }
            }
            self.shared.changed.notify_all();
            return Ok(());
        }
        let bytes = self.wait(
            Wait::begin("broadcast", deadline),
            |_| vec![self.root],
            |state| state.members[self.rank].announced.pop_front(),
        )?;
        buffer.clear();
        buffer.extend_from_slice(&bytes);
        Ok(())
    }

    fn call(&mut self, word: &[u8]) -> Result<(), Error> {
        check_word(self.rank, word)?;
        let mut state = self.shared.lock();
        let hearers = if self.rank == self.root { 0..self.size } else { self.root..self.root + 1 };
        for hearer in hearers.filter(|hearer| *hearer != self.rank) {
            state.members[hearer].heard.push((self.rank, word.to_vec()));
        }
        Ok(())
    }

    fn calls(&mut self) -> Result<Vec<Call>, Error> {
        Ok(std::mem::take(&mut self.shared.lock().members[self.rank].heard))
    }

    fn abort(&mut self, reason: &str) {
        self.shared.lock().aborted.get_or_insert_with(|| (self.rank, reason.to_owned()));
        self.shared.changed.notify_all();
    }

    fn fault_tolerance(&mut self) -> Option<&mut dyn FaultTolerance> {
        Some(self)
    }

    fn succession(&mut self) -> Option<&mut dyn Succession> {
        Some(self)
    }
}

impl FaultTolerance for InProcess {
    fn continue_without_lost(&mut self, _notice: Vec<u8>) -> Result<(), Error> {
        self.shared.lock().goes_on = true;
        Ok(())
    }

    fn attendance(&mut self) -> Attendance {
        Attendance { left: std::mem::take(&mut self.shared.lock().left), back: Vec::new() }
    }
}

impl Succession for InProcess {
    fn stand_by(&mut self) -> Result<Vec<SocketAddr>, Error> {
        Ok(Vec::new())
    }

    fn root_has_disconnected(&mut self) -> bool {
        !self.shared.lock().members[self.root].alive
    }

    fn set_successors(&mut self, successors: &[(Rank, Vec<SocketAddr>)]) {
        self.shared.lock().line = successors.iter().map(|(rank, _)| *rank).collect();
    }

    fn succeed(&mut self, there: &[bool], _late_by: Duration, deadline: &Deadline) -> Result<Rank, Error> {
        const OPERATION: &str = "succession";
        let mut wait = Wait::begin(OPERATION, deadline);
        let lost = self.root;
        let mut state = self.shared.lock();
        let election = state.elections;
        state.electing.insert(self.rank);
        self.shared.changed.notify_all();
        loop {
            if state.elections != election {
                self.root = state.root;
                return self.check_place(&state).map(|()| self.root);
            }
            let awaited = |rank: &Rank| *rank != lost && state.members[*rank].alive && !state.members[*rank].gone;
            let everybody = (0..self.size).filter(awaited).all(|rank| state.electing.contains(&rank));
            let slice = wait.slice();
            if !everybody && let Some(slice) = slice {
                state = self.shared.sleep(state, slice);
                continue;
            }
            let present = state.electing.iter().filter(|rank| there.get(**rank) == Some(&true)).count();
            let of = there.iter().filter(|there| **there).count();
            if 2 * present <= of {
                return Err(Error::Minority { operation: OPERATION, present, of });
            }
            state.elect();
            self.shared.changed.notify_all();
        }
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
    /// Locks the state. Even if a thread panics while it holds the lock, the queues are consistent:
    /// every change is a single push or pop.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn sleep<'s>(&self, state: MutexGuard<'s, State>, slice: Duration) -> MutexGuard<'s, State> {
        self.changed.wait_timeout(state, slice).unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
}

#[derive(Debug)]
struct State {
    members: Vec<Member>,
    aborted: Option<(Rank, String)>,
    /// True if the root continues without lost ranks.
    goes_on: bool,
    /// Ranks that have left since the root's last query.
    left: Vec<(Rank, Error)>,
    root: Rank,
    /// Ranks that take over from the root, in this order.
    line: Vec<Rank>,
    /// Ranks that have lost the root and wait for each other.
    electing: BTreeSet<Rank>,
    /// Number of elections of a root so far.
    elections: u64,
}

impl State {
    fn leave(&mut self, rank: Rank, reason: Error) {
        self.members[rank].gone = true;
        self.left.push((rank, reason));
    }

    /// Elects the root: the first waiting rank in the line, or the lowest if there is no line. All
    /// others have left, and operations in progress are discarded.
    fn elect(&mut self) {
        let electing = std::mem::take(&mut self.electing);
        let next = self.line.iter().find(|rank| electing.contains(rank));
        self.root = next.or(electing.first()).copied().unwrap_or(self.root);
        self.elections += 1;
        for rank in 0..self.members.len() {
            let member = &mut self.members[rank];
            (member.sent, member.announced, member.heard) = Default::default();
            if !member.gone && !electing.contains(&rank) {
                let reason = "it did not take part in choosing a new root".to_owned();
                self.leave(rank, Error::Lost { operation: "succession", rank, reason });
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Member {
    sent: VecDeque<Vec<u8>>,
    announced: VecDeque<Arc<[u8]>>,
    heard: Vec<Call>,
    alive: bool,
    /// True if the others continued without it.
    gone: bool,
}
