//! Evidence of a hang, collected while the job hangs: the root asks all ranks, each rank's session
//! answers, and so does its program if it has something to write (`probe_sync.torch.watch`).
//!
//! What a rank does not answer is evidence too: a stopped process answers nothing, and one whose
//! interpreter is locked answers by its session only.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use probe_sync_collective::Rank;
use serde::Serialize;

use super::said::{Answer, Said};

/// Requests for evidence of a hang to this rank's program. Clones share one state.
///
/// A program that calls [`requested`](Self::requested) from time to time takes part: it writes what
/// it has to `hang/NUMBER` in the run's directory, and calls [`answered`](Self::answered).
#[derive(Clone, Debug, Default)]
pub struct HangRequests(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    /// Number of the latest request, from 1.
    requested: u64,
    /// The latest request that the program has answered.
    answered: u64,
    /// True if the program answers requests.
    has_program: bool,
    /// At the root: what the ranks have answered to the latest request, and how far they are.
    gathered: Gathered,
}

/// The answers of all ranks.
#[derive(Clone, Debug, Default)]
struct Gathered {
    number: u64,
    answers: Vec<Answer>,
    groups: Vec<LastArrivals>,
}

/// Content of `hang/NUMBER/arrivals.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HangRecord {
    schema: u32,
    ranks: Vec<RankRecord>,
    groups: Vec<LastArrivals>,
}

#[derive(Clone, Debug, Serialize)]
struct RankRecord {
    rank: Rank,
    host: String,
    answer: Answer,
}

/// The last arrival of each member of a group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LastArrivals {
    pub name: String,
    pub last: Vec<LastArrival>,
}

#[derive(Copy, Clone, Debug, Serialize)]
pub(super) struct LastArrival {
    pub rank: u32,
    pub step: u64,
    /// How often the rank has begun again from a lower step.
    pub restarts: u32,
}

impl HangRequests {
    /// Returns the number of a request that this program has not answered. The session tells rank 0
    /// from the first call on that the program answers.
    pub fn requested(&self) -> Option<u64> {
        let mut state = self.lock();
        state.has_program = true;
        (state.requested > state.answered).then_some(state.requested)
    }

    /// Records that this program has written what it has to say to a request.
    pub fn answered(&self, number: u64) {
        let mut state = self.lock();
        state.answered = state.answered.max(number);
    }

    /// At the root: asks all ranks; returns the number of the request.
    pub(crate) fn ask(&self) -> u64 {
        let mut state = self.lock();
        state.requested += 1;
        state.requested
    }

    /// At the root: waits until all `hosts.len()` ranks have answered, at most for `limit`.
    pub(crate) fn collect(&self, number: u64, hosts: &[String], limit: Duration) -> HangRecord {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            let gathered = &state.gathered;
            let is_complete = gathered.number == number
                && gathered.answers.len() == hosts.len()
                && gathered.answers.iter().all(|answer| *answer == Answer::Complete);
            let left = until.saturating_duration_since(Instant::now());
            if is_complete || left.is_zero() {
                break;
            }
            state = self.0.1.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let gathered = if state.gathered.number == number { state.gathered.clone() } else { Gathered::default() };
        let answer = |rank: usize| gathered.answers.get(rank).copied().unwrap_or_default();
        let ranks = hosts.iter().enumerate();
        HangRecord {
            schema: 1,
            ranks: ranks.map(|(rank, host)| RankRecord { rank, host: host.clone(), answer: answer(rank) }).collect(),
            groups: gathered.groups,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rank's part.
#[derive(Debug)]
pub(super) struct Answerer {
    requests: HangRequests,
    rank: Rank,
    ranks: usize,
    /// The latest request of which the ranks were told, at the root.
    told: u64,
    /// The latest answer sent.
    sent: (u64, Answer),
}

impl Answerer {
    pub fn new(requests: &HangRequests, rank: Rank, ranks: usize) -> Self {
        Self { requests: requests.clone(), rank, ranks, told: 0, sent: (0, Answer::None) }
    }

    /// Takes what concerns requests from the messages, and returns this rank's answer.
    pub fn take(&mut self, heard: &mut Vec<(Rank, Said)>) -> Vec<Said> {
        let requests = self.requests.clone();
        let mut state = requests.lock();
        heard.retain(|(_, said)| match said {
            Said::HangRequest(number) => {
                state.requested = state.requested.max(*number);
                false
            }
            _ => true,
        });
        self.answer(&state).into_iter().collect()
    }

    /// At the root: passes a new request on, and takes the answers. `groups` is called while a
    /// request is open.
    pub fn take_at_root(
        &mut self,
        heard: &mut Vec<(Rank, Said)>,
        groups: impl FnOnce() -> Vec<LastArrivals>,
    ) -> Vec<Said> {
        let requests = self.requests.clone();
        let mut state = requests.lock();
        let mut said = Vec::new();
        if state.requested > self.told {
            self.told = state.requested;
            let answers = vec![Answer::None; self.ranks];
            state.gathered = Gathered { number: self.told, answers, groups: Vec::new() };
            said.push(Said::HangRequest(self.told));
        }
        if let Some(Said::HangAnswer(number, answer)) = self.answer(&state) {
            state.gathered.take(self.rank, number, answer);
        }
        heard.retain(|(rank, said)| match said {
            Said::HangAnswer(number, answer) => {
                state.gathered.take(*rank, *number, *answer);
                false
            }
            _ => true,
        });
        let is_open = state.gathered.answers.iter().any(|answer| *answer != Answer::Complete);
        if is_open || !said.is_empty() {
            state.gathered.groups = groups();
        }
        requests.0.1.notify_all();
        said
    }

    fn answer(&mut self, state: &State) -> Option<Said> {
        let is_complete = !state.has_program || state.answered >= state.requested;
        let answer = if is_complete { Answer::Complete } else { Answer::SessionOnly };
        let next = (state.requested, answer);
        if state.requested == 0 || next == self.sent {
            return None;
        }
        self.sent = next;
        Some(Said::HangAnswer(next.0, next.1))
    }
}

impl Gathered {
    fn take(&mut self, rank: Rank, number: u64, answer: Answer) {
        if let Some(known) = self.answers.get_mut(rank).filter(|_| number == self.number) {
            *known = answer.max(*known);
        }
    }
}
