//! What the ranks tell each other in a round: windows to the master, the solved round to everybody.
//!
//! Place in the flow: between the node's part and the master's part. This file alone knows `Collective`, deadlines and the
//! bytes on the wire. Rounds without a master (every rank gathers and solves) would be another file beside it.
//!
//! What it does not do: cut, fit, solve.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use probe_sync_collective::{Attendance, Collective, Deadline, Frames, ROOT, Rank, Traffic};
use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_estimate::window::NodeWindowData;
use probe_sync_time::{Duration, RoundId};
use serde::{Deserialize, Serialize};

use crate::join::{Back, Joined, Notice, ROOT_SPEAKS_FIRST};
use crate::measure::account::RankAccount;
use crate::{Error, wire};

/// What the master sends to all ranks at the end of a round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Broadcast {
    /// The solved round, with the decision about the next one, and the nodes that probe again from now on.
    Solved(Box<GlobalWindowData>, Vec<Back>),
    /// The run ends here; the window under way was too short to be solved.
    Ended {
        /// The round that was not solved.
        round_id: RoundId,
    },
}

impl Broadcast {
    fn round_id(&self) -> RoundId {
        match self {
            Self::Solved(round, _) => round.round_id,
            Self::Ended { round_id } => *round_id,
        }
    }
}

/// One rank's way to the others.
pub(crate) struct Exchange<'c> {
    collective: &'c mut dyn Collective,
    /// For each rank, whether it contributes a window.
    participants: Vec<bool>,
    frames: Frames,
    round_timeout: Duration,
    stop: Arc<AtomicBool>,
    decision_bytes: usize,
}

impl<'c> Exchange<'c> {
    /// The way to the other ranks of a run; waits end soon after the caller's `stop` was raised.
    pub fn new(collective: &'c mut dyn Collective, joined: &Joined, stop: Arc<AtomicBool>) -> Self {
        let participants = joined.plan.participants();
        let round_timeout = joined.config.round_timeout;
        Self { collective, participants, frames: Frames::default(), round_timeout, stop, decision_bytes: 0 }
    }

    /// Brings every node's window to the master; elsewhere the result is empty. Ranks that are no node take part with nothing,
    /// and return at once. `window` is the length of the windows in force.
    ///
    /// # Errors
    /// Names the rank that is late or gone, or whose bytes are wrong.
    pub fn gather(&mut self, own: Option<&NodeWindowData>, window: Duration) -> Result<Vec<NodeWindowData>, Error> {
        let payload = own.map(wire::encode).unwrap_or_default();
        let deadline = self.deadline(window);
        self.collective.gather(&self.participants, &payload, &mut self.frames, &deadline)?;
        if self.collective.rank() != ROOT {
            return Ok(Vec::new());
        }
        let present = self.frames.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
        present.map(|(rank, bytes)| wire::decode(bytes, rank)).collect()
    }

    /// Brings the master's word to every rank. `own` is given at the master.
    ///
    /// # Errors
    /// When it does not come, or is of another round than `round_id`.
    pub fn broadcast(
        &mut self,
        own: Option<&Broadcast>,
        round_id: RoundId,
        window: Duration,
    ) -> Result<Broadcast, Error> {
        let broadcast = self.next_broadcast(own, window)?;
        let got = broadcast.round_id();
        if got == round_id { Ok(broadcast) } else { Err(Error::Sequence { expected: round_id, got }) }
    }

    /// As [`Self::broadcast`], of whatever round is next: a rank that has just come back does not know it.
    ///
    /// # Errors
    /// When it does not come.
    pub fn next_broadcast(&mut self, own: Option<&Broadcast>, window: Duration) -> Result<Broadcast, Error> {
        let mut bytes = own.map(wire::encode).unwrap_or_default();
        let deadline = if own.is_some() { self.deadline(window) } else { self.deadline_of_the_roots_word(window) };
        self.collective.broadcast(&mut bytes, &deadline)?;
        self.decision_bytes = bytes.len();
        wire::decode(&bytes, ROOT)
    }

    /// At the root: serialised bytes of the last gather, and of the last decision.
    pub fn message_bytes(&self) -> [usize; 2] {
        [self.frames.iter().map(<[u8]>::len).sum(), self.decision_bytes]
    }

    /// What the backend has carried so far.
    pub fn traffic(&self) -> Traffic {
        self.collective.traffic()
    }

    /// At the root: from now on the run goes on without ranks that are lost, where the backend can; who comes back is told this.
    ///
    /// # Errors
    /// When the system refuses what that needs.
    pub fn go_on_without_lost(&mut self, notice: &Notice) -> Result<(), Error> {
        Ok(self.collective.go_on_without_lost(wire::encode(notice))?)
    }

    /// At the root: who has left, and who asks to come back.
    pub fn attendance(&mut self) -> Attendance {
        self.collective.attendance()
    }

    /// At the root: from now on nobody comes back.
    pub fn let_nobody_back(&mut self) {
        self.collective.let_nobody_back();
    }

    /// At the root: lets a rank take part again, or says why not. True when it does.
    pub fn admit(&mut self, rank: Rank, verdict: Result<(), String>) -> bool {
        self.collective.admit(rank, verdict)
    }

    /// Returns when every rank has come here.
    ///
    /// # Errors
    /// Names the rank that did not come.
    ///
    /// `longest` is what a rank may do before it comes.
    pub fn meet(&mut self, window: Duration, longest: StdDuration) -> Result<(), Error> {
        let everyone = vec![true; self.collective.size()];
        let deadline = self.deadline_after(window, longest);
        self.collective.gather(&everyone, &[], &mut self.frames, &deadline)?;
        self.collective.broadcast(&mut Vec::new(), &deadline.extended(longest + ROOT_SPEAKS_FIRST))?;
        Ok(())
    }

    /// Brings every rank's account to the root, where those of absent ranks are empty; elsewhere the result is empty.
    ///
    /// # Errors
    /// Names the rank that is late or gone, or whose bytes are wrong.
    pub fn accounts(
        &mut self,
        own: &RankAccount,
        window: Duration,
        longest: StdDuration,
    ) -> Result<Vec<RankAccount>, Error> {
        let everyone = vec![true; self.collective.size()];
        let deadline = self.deadline_after(window, longest);
        self.collective.gather(&everyone, &wire::encode(own), &mut self.frames, &deadline)?;
        let account = |(rank, bytes): (Rank, &[u8])| {
            if bytes.is_empty() { Ok(RankAccount::default()) } else { wire::decode(bytes, rank) }
        };
        self.frames.iter().enumerate().map(account).collect()
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.collective.rank()
    }

    /// Whether a launcher signals all ranks at once, and kills them soon after.
    pub fn signals_reach_all(&self) -> bool {
        self.collective.signals_reach_all()
    }

    /// How long to wait for the others. Their windows end up to half a window later than this one where a clock jumped,
    /// and a rank that is no node has yet to wait for the whole window.
    ///
    /// A signal to this rank alone must not end the run in an error: the others come at their window's end and learn of
    /// it then. Under a launcher that signals all ranks at once (mpirun, which kills a second later) they come at once,
    /// and whoever is missing is named before that.
    fn deadline(&self, window: Duration) -> Deadline {
        self.deadline_in(self.round_limit(window), window)
    }

    /// As [`Self::deadline`], where the others first do what may take `longest`.
    fn deadline_after(&self, window: Duration, longest: StdDuration) -> Deadline {
        let deadline = self.deadline(window);
        // A launcher that kills soon waits for nobody.
        if self.collective.signals_reach_all() { deadline } else { deadline.extended(longest) }
    }

    /// How long to wait for the root's word. It may wait for a rank that is gone, twice: for its window, and until it takes what it is told;
    /// a rank that is no node waits from the window's beginning on. The root knows who is missing, so it speaks first.
    fn deadline_of_the_roots_word(&self, window: Duration) -> Deadline {
        let limit = 2 * self.round_limit(window) + 2 * nanos(window);
        let mut deadline = self.deadline_in(limit, window);
        if !self.collective.signals_reach_all() {
            // This rank alone was asked to end; the root may be waiting for another that hangs.
            deadline.grace = self.round_limit(window) + nanos(window);
        }
        deadline.extended(ROOT_SPEAKS_FIRST)
    }

    fn round_limit(&self, window: Duration) -> StdDuration {
        nanos(self.round_timeout) + nanos(window) * 3 / 2
    }

    fn deadline_in(&self, limit: StdDuration, window: Duration) -> Deadline {
        let mut deadline = Deadline::new(limit, Some(Arc::clone(&self.stop)));
        if !self.collective.signals_reach_all() {
            deadline.grace += nanos(window) * 3 / 2;
        }
        deadline
    }
}

fn nanos(span: Duration) -> StdDuration {
    StdDuration::from_nanos(span.as_ns().unsigned_abs())
}
