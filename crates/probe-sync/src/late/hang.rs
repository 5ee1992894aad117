//! Evidence of a hang, collected while the job hangs: the root asks all ranks, each rank's session
//! answers, and so does its program if it has something to write (`probe_sync.torch.watch`).
//!
//! What a rank does not answer is evidence too: a stopped process answers nothing, and one whose
//! interpreter is locked answers by its session only.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    /// At the root, while a request is open.
    gathered: Option<Gathered>,
}

/// What the root knows while a request is open.
#[derive(Clone, Debug)]
struct Gathered {
    number: u64,
    asked: Instant,
    answers: Vec<Answer>,
    /// The arrivals once all reports from before the request have been received.
    before: Option<Progress>,
    now: Progress,
}

/// How far all ranks are.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub groups: Vec<LastArrivals>,
    /// Ranks some of whose arrivals were lost.
    pub lost: Vec<u32>,
}

/// Content of `hang/NUMBER/arrivals.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HangRecord {
    schema: u32,
    ranks: Vec<RankRecord>,
    groups: Vec<LastArrivals>,
    /// Groups in which ranks arrived while they were asked.
    advancing: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct RankRecord {
    rank: Rank,
    host: String,
    answer: Answer,
    /// True if arrivals of the rank were lost, so that it may be further than they show.
    lost: bool,
}

/// The last arrival of each member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct LastArrivals {
    pub name: String,
    pub last: Vec<LastArrival>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
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

    /// Records that this program answers no more requests.
    pub fn withdraw(&self) {
        self.lock().has_program = false;
    }

    /// At the root: asks all ranks; returns the number of the request, which no earlier root of the
    /// run has used: the present second.
    pub(crate) fn ask(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let mut state = self.lock();
        state.requested = now.max(state.requested + 1);
        state.requested
    }

    /// At the root: waits until all `hosts.len()` ranks have answered and it is known whether any
    /// advances, at most for `limit`. One request at a time.
    pub(crate) fn collect(&self, number: u64, hosts: &[String], limit: Duration) -> HangRecord {
        let until = Instant::now() + limit;
        let mut state = self.lock();
        loop {
            let is_complete = state.gathered.as_ref().is_some_and(|gathered| {
                gathered.number == number
                    && gathered.asked.elapsed() >= SECOND_LOOK
                    && gathered.answers.iter().all(|answer| *answer == Answer::Complete)
            });
            let left = until.saturating_duration_since(Instant::now());
            if is_complete || left.is_zero() {
                break;
            }
            state = self.0.1.wait_timeout(state, left.min(TURN)).unwrap_or_else(PoisonError::into_inner).0;
        }
        let gathered = state.gathered.take().filter(|gathered| gathered.number == number);
        let (answers, before, now) =
            gathered.map(|gathered| (gathered.answers, gathered.before, gathered.now)).unwrap_or_default();
        let rank_of = |(rank, host): (usize, &String)| RankRecord {
            rank,
            host: host.clone(),
            answer: answers.get(rank).copied().unwrap_or_default(),
            lost: now.lost.contains(&(rank as u32)),
        };
        HangRecord {
            schema: 1,
            ranks: hosts.iter().enumerate().map(rank_of).collect(),
            advancing: before.map_or_else(Vec::new, |before| advancing(&before.groups, &now.groups)),
            groups: now.groups,
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

    /// At the root: passes a new request on, and takes the answers.
    pub fn take_at_root(&mut self, heard: &mut Vec<(Rank, Said)>) -> Vec<Said> {
        let requests = self.requests.clone();
        let mut state = requests.lock();
        let mut said = Vec::new();
        if state.requested > self.told {
            self.told = state.requested;
            let answers = vec![Answer::None; self.ranks];
            let (asked, now) = (Instant::now(), Progress::default());
            state.gathered = Some(Gathered { number: self.told, asked, answers, before: None, now });
            said.push(Said::HangRequest(self.told));
        }
        let own = self.answer(&state).map(|said| (self.rank, said));
        let (answers, others): (Vec<_>, Vec<_>) = std::mem::take(heard).into_iter().chain(own).partition(is_answer);
        *heard = others;
        for (rank, said) in answers {
            if let (Some(gathered), Said::HangAnswer(number, answer)) = (&mut state.gathered, said) {
                gathered.take(rank, number, answer);
            }
        }
        said
    }

    /// At the root, while a request is open: records how far all ranks are.
    pub fn look(&self, progress: impl FnOnce() -> Progress) {
        let mut state = self.requests.lock();
        let Some(gathered) = &mut state.gathered else { return };
        gathered.now = progress();
        if gathered.before.is_none() && gathered.asked.elapsed() >= FIRST_LOOK {
            gathered.before = Some(gathered.now.clone());
        }
        self.requests.0.1.notify_all();
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

fn is_answer((_, said): &(Rank, Said)) -> bool {
    matches!(said, Said::HangAnswer(..))
}

/// Returns the groups that have changed.
fn advancing(before: &[LastArrivals], now: &[LastArrivals]) -> Vec<String> {
    now.iter().filter(|group| !before.contains(group)).map(|group| group.name.clone()).collect()
}

/// Ranks report every second: then all arrivals from before the request are known.
const FIRST_LOOK: Duration = Duration::from_millis(1300);
/// Ranks that arrive anywhere between the two looks are not stuck.
const SECOND_LOOK: Duration = Duration::from_millis(2600);
/// The root looks several times a second.
const TURN: Duration = Duration::from_millis(100);
