//! One rank's part: reports at every rank, judgement at the root, and what callers see.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use probe_sync_collective::Rank;
use probe_sync_files::OwnFolder;
use probe_sync_lines::Round;
use probe_sync_sys::SystemClock;
use probe_sync_time::{Clock as _, SkewedClock, System, Timestamp};

use super::arrivals::Arrivals;
use super::document::LateStanding;
use super::hang::{Answerer, HangRequests};
use super::root::{Estimates, Root, Totals};
use super::said::Said;
use super::sender::Sender;
use crate::join::Joined;
use crate::measure::virtual_clocks::clock_of;
use crate::wire;

/// Shows which ranks are late. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct LateView(Arc<Mutex<LateStanding>>);

impl LateView {
    /// Returns the late ranks, and the ranks that others wait for. At the root it is a tenth of a
    /// second old, elsewhere as old as the last change or five seconds.
    pub fn standing(&self) -> LateStanding {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, standing: LateStanding) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }
}

/// A rank's part in the detection of late ranks.
#[derive(Debug)]
pub(crate) struct Turn {
    joined: Arc<Joined>,
    rank: Rank,
    clock: SkewedClock,
    sender: Sender,
    hang: Answerer,
    view: LateView,
    root: Option<Root>,
    round: Option<Round>,
    told: Option<Instant>,
}

impl Turn {
    /// Creates the part of a rank that records its arrivals in `arrivals`, shows late ranks in
    /// `view`, and answers requests with what `hang` says.
    pub fn new(joined: &Arc<Joined>, rank: Rank, arrivals: &Arrivals, view: &LateView, hang: &HangRequests) -> Self {
        let clock = clock_of(joined, joined.plan.node_of_rank[rank]);
        let sender = Sender::new(arrivals.clone(), clock.clone());
        let hang = Answerer::new(hang, rank, joined.ranks);
        let (joined, view) = (Arc::clone(joined), view.clone());
        Self { joined, rank, clock, sender, hang, view, root: None, round: None, told: None }
    }

    /// Makes this rank the root, writing to this folder.
    pub fn lead(&mut self, folder: &OwnFolder) {
        self.root = Some(Root::new(&self.joined, folder.clone()));
    }

    /// Processes a solved round.
    pub fn follow(&mut self, round: &Round) {
        self.round = Some(round.clone());
    }

    /// Processes received messages, and returns those to send: none if no rank arrives anywhere.
    pub fn take(&mut self, mut heard: Vec<(Rank, Said)>) -> Vec<Said> {
        let (now, at) = (Instant::now(), SystemClock.now());
        let mut said = match self.root.is_some() {
            true => self.hang.take_at_root(&mut heard),
            false => self.hang.take(&mut heard),
        };
        said.extend(match self.root.is_some() {
            true => self.take_at_root(heard, now, at),
            false => self.take_elsewhere(heard, now, at),
        });
        if let Some(root) = &self.root {
            self.hang.look(|| root.progress());
        }
        said
    }

    /// Returns the values for the metrics, at the root; `None` if no rank has arrived anywhere.
    pub fn totals(&self) -> Option<Totals> {
        self.root.as_ref().map(Root::totals).filter(|totals| totals.counts.arrivals > 0)
    }

    fn take_elsewhere(&mut self, heard: Vec<(Rank, Said)>, now: Instant, at: Timestamp<System>) -> Vec<Said> {
        for (rank, said) in heard {
            if let Said::Standing(bytes) = said
                && let Ok(standing) = wire::decode(&bytes, rank)
            {
                self.view.set(standing);
            }
        }
        self.sender.words(now, at, WORD_MAX).into_iter().map(Said::Arrivals).collect()
    }

    fn take_at_root(&mut self, heard: Vec<(Rank, Said)>, now: Instant, at: Timestamp<System>) -> Vec<Said> {
        let (Some(root), Some(round)) = (&mut self.root, &self.round) else { return Vec::new() };
        let clocks = Estimates { round, node_of_rank: &self.joined.plan.node_of_rank };
        let at_ns = self.clock.apply(at).as_ns();
        // Until the root's own clock is known nothing is judged.
        let Some((now_ns, _)) = probe_sync_lateness::live::Clocks::on_reference(&clocks, self.rank as u32, at_ns)
        else {
            return Vec::new();
        };
        let is_idle = heard.is_empty() && !self.sender.has_begun() && root.standing() == &LateStanding::default();
        if is_idle {
            return Vec::new();
        }
        for (rank, said) in heard {
            if let Said::Arrivals(word) = said {
                root.hear(rank, &word, now_ns);
            }
        }
        if self.sender.has_begun() {
            root.take(self.rank, self.sender.batch(at), now_ns);
        }
        let has_changed = root.advance(now_ns, &clocks);
        let standing = root.standing();
        self.view.set(standing.clone());
        let is_due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TOLD_EVERY);
        if !has_changed && (!is_due || standing == &LateStanding::default()) {
            return Vec::new();
        }
        self.told = Some(now);
        vec![Said::Standing(told(standing))]
    }
}

/// Encodes as much of the state as a message can hold.
fn told(standing: &LateStanding) -> Vec<u8> {
    let mut lines = standing.late.len().max(standing.waiting.len());
    loop {
        let part = LateStanding {
            late: standing.late.iter().take(lines).cloned().collect(),
            waiting: standing.waiting.iter().take(lines).cloned().collect(),
        };
        let bytes = wire::encode(&part);
        if bytes.len() <= WORD_MAX || lines == 0 {
            return bytes;
        }
        lines /= 2;
    }
}

/// Largest payload of a message, bytes.
const WORD_MAX: usize = probe_sync_collective::WORD_MAX - 16;
/// Interval at which all ranks are sent the state again while a rank is late.
const TOLD_EVERY: Duration = Duration::from_secs(5);
