//! The messages between ranks in a round: windows to the master and the solved round to every rank,
//! or all windows to all.
//!
//! Only this file knows `Collective`, deadlines and the wire format. In a large group a rank
//! receives only its own part of the solved round (`share_rounds`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use probe_sync_collective::{
    self as collective, Attendance, Call, Collective, Deadline, Frames, Rank, SideWork, Traffic,
};
use probe_sync_estimate::window::NodeWindowData;
use probe_sync_time::{Duration, NodeId, RoundId};

use super::messages::{Broadcast, Word};
use super::standby::Present;
use crate::config::Connections;
use crate::join::{Joined, Notice, ROOT_SPEAKS_FIRST};
use crate::measure::account::RankAccount;
use crate::{Error, wire};

/// One rank's way to the others.
pub(crate) struct Exchange<'c> {
    collective: &'c mut dyn Collective,
    /// For each rank, whether it contributes a window.
    participants: Vec<bool>,
    /// The node that each rank is or follows.
    node_of_rank: Vec<NodeId>,
    /// Ranks are told their own part of a round only.
    own_parts: bool,
    /// Nobody is connected between rounds.
    per_round: bool,
    /// Who takes the master's place, in this order.
    successors: Vec<Rank>,
    frames: Frames,
    /// Words that came while an operation waited.
    kept: Vec<Call>,
    round_timeout: Duration,
    stop: Arc<AtomicBool>,
    gathered_bytes: usize,
    decision_bytes: usize,
}

impl<'c> Exchange<'c> {
    /// The way to the other ranks of a run; waits end soon after the caller's `stop` was raised.
    pub fn new(collective: &'c mut dyn Collective, joined: &Joined, stop: Arc<AtomicBool>) -> Self {
        let participants = joined.plan.participants();
        let round_timeout = joined.config.round_timeout;
        Self {
            collective,
            participants,
            node_of_rank: joined.plan.node_of_rank.clone(),
            own_parts: !shares_rounds(joined),
            per_round: joined.config.connections == Connections::PerRound,
            successors: joined.plan.successors.iter().map(|(rank, _)| *rank).collect(),
            frames: Frames::default(),
            kept: Vec::new(),
            round_timeout,
            stop,
            gathered_bytes: 0,
            decision_bytes: 0,
        }
    }

    /// Brings every node's window to the master; elsewhere the result is empty. Ranks that are no
    /// node take part with nothing, and return at once. `window` is the length of the windows in
    /// force.
    ///
    /// # Errors
    /// Names the rank that is late or gone, or whose bytes are wrong.
    pub fn gather(&mut self, own: Option<&NodeWindowData>, window: Duration) -> Result<Vec<NodeWindowData>, Error> {
        let payload = own.map(wire::encode).unwrap_or_default();
        // Who comes to the root anew finds out only then that it hangs, and is to find it out when
        // those do who wait for its word.
        let comes = self.per_round && !self.at_root();
        let deadline = if comes { self.deadline_of_the_roots_word(window) } else { self.deadline(window) };
        self.collective.gather(&self.participants, &payload, &mut self.frames, &deadline)?;
        self.gathered_bytes = self.frames.iter().map(<[u8]>::len).sum();
        if self.collective.rank() != self.collective.root() {
            return Ok(Vec::new());
        }
        let present = self.frames.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
        present.map(|(rank, bytes)| wire::decode(bytes, rank)).collect()
    }

    /// Brings every node's window to every rank; also says which ranks take part. Ranks that are no
    /// node take part without one. `window` is the length of the windows in force.
    ///
    /// # Errors
    /// As [`Self::gather`]; also when a window is of another round.
    pub fn allgather(
        &mut self,
        own: Option<&NodeWindowData>,
        round_id: RoundId,
        window: Duration,
    ) -> Result<(Vec<NodeWindowData>, Vec<bool>), Error> {
        let payload = wire::encode(&own);
        let root = self.at_root();
        let deadline = if root { self.deadline(window) } else { self.deadline_of_the_roots_word(window) };
        self.collective.allgather(&payload, &mut self.frames, &deadline)?;
        self.gathered_bytes = self.frames.iter().map(<[u8]>::len).sum();
        let here = self.frames.iter().map(|bytes| !bytes.is_empty()).collect();
        let present = self.frames.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
        let said: Vec<Option<NodeWindowData>> =
            present.map(|(rank, bytes)| wire::decode(bytes, rank)).collect::<Result<_, _>>()?;
        let windows: Vec<NodeWindowData> = said.into_iter().flatten().collect();
        match windows.iter().find(|window| window.round_id != round_id) {
            Some(other) => Err(Error::Sequence { expected: round_id, got: other.round_id }),
            None => Ok((windows, here)),
        }
    }

    /// In time-based rounds, before the first: those who may take the root's place are told who is
    /// there. Given at the root; None elsewhere on ranks that may not.
    ///
    /// # Errors
    /// When it does not come.
    pub fn tell_successors(&mut self, present: Option<&Present>, window: Duration) -> Result<Option<Present>, Error> {
        if self.successors.is_empty() {
            return Ok(None);
        }
        let deadline = if self.at_root() { self.deadline(window) } else { self.deadline_of_the_roots_word(window) };
        self.frames.clear();
        if self.at_root() {
            for rank in 0..self.collective.size() {
                self.frames.push(&wire::encode(&present.filter(|_| self.successors.contains(&rank))));
            }
        }
        let mut told = Vec::new();
        self.collective.scatter(&self.frames, &mut told, &deadline)?;
        if self.at_root() { Ok(None) } else { wire::decode(&told, self.collective.root()) }
    }

    /// Brings the master's word to every rank, its shadow to `standby` alone. Both are given at the
    /// master.
    ///
    /// # Errors
    /// When it does not come, or is of another round than `round_id`.
    pub fn broadcast(
        &mut self,
        own: Option<Broadcast>,
        standby: Option<Rank>,
        round_id: RoundId,
        window: Duration,
    ) -> Result<Broadcast, Error> {
        let broadcast = self.next_broadcast(own, standby, window)?;
        let got = broadcast.round_id();
        if got == round_id { Ok(broadcast) } else { Err(Error::Sequence { expected: round_id, got }) }
    }

    /// As [`Self::broadcast`], of whatever round is next: a rank that has just come back does not
    /// know it.
    ///
    /// # Errors
    /// When it does not come.
    pub fn next_broadcast(
        &mut self,
        own: Option<Broadcast>,
        standby: Option<Rank>,
        window: Duration,
    ) -> Result<Broadcast, Error> {
        let deadline = if own.is_some() { self.deadline(window) } else { self.deadline_of_the_roots_word(window) };
        let mut bytes = Vec::new();
        if self.own_parts || !self.successors.is_empty() {
            self.frames.clear();
            if let Some(own) = &own {
                self.parts(own, standby);
            }
            self.decision_bytes = self.frames.iter().map(<[u8]>::len).sum();
            self.collective.scatter(&self.frames, &mut bytes, &deadline)?;
        } else {
            bytes = own.as_ref().map(wire::encode).unwrap_or_default();
            self.decision_bytes = bytes.len();
            self.collective.broadcast(&mut bytes, &deadline)?;
        }
        let root = self.collective.root();
        own.map_or_else(|| wire::decode(&bytes, root), Ok)
    }

    /// What each rank is told: the shadow goes to the one that stands by.
    fn parts(&mut self, own: &Broadcast, standby: Option<Rank>) {
        let all = wire::encode(&own.without_shadow());
        let tells_attendants = matches!(own, Broadcast::Solved(told) if told.attendants.is_some());
        let mut of_node: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
        for (rank, node) in self.node_of_rank.iter().enumerate() {
            if Some(rank) == standby {
                self.frames.push(&wire::encode(own));
            } else if self.successors.contains(&rank) && tells_attendants {
                self.frames.push(&wire::encode(&own.with_attendants()));
            } else if self.own_parts {
                let part = of_node.entry(*node).or_insert_with(|| wire::encode(&own.part_of(*node)));
                self.frames.push(part);
            } else {
                self.frames.push(&all);
            }
        }
    }

    /// The rank that takes the master's place when it is lost: the next in the line that is
    /// `steady`.
    pub fn standby(&self, steady: impl Fn(Rank) -> bool) -> Option<Rank> {
        let own = self.successors.iter().position(|rank| *rank == self.collective.rank());
        let after = own.map_or(0, |place| place + 1);
        self.successors[after..].iter().copied().find(|rank| steady(*rank))
    }

    /// Whether this error means that the master is lost, and another rank may take its place.
    pub fn master_is_lost(&self, error: &Error) -> bool {
        self.hears_no_master(error) && !self.successors.is_empty()
    }

    /// Whether this error means that another rank than this is the master, and is lost or did not
    /// come in time.
    fn hears_no_master(&self, error: &Error) -> bool {
        let root = self.collective.root();
        let lost = match error {
            Error::Collective(collective::Error::Lost { rank, .. }) => *rank == root,
            Error::Collective(collective::Error::Late { missing, interrupted: false, .. }) => *missing == [root],
            _ => false,
        };
        lost && root != self.collective.rank()
    }

    /// After that: whether the master is there all the same, because only this rank's connection
    /// broke. One that says nothing is not asked.
    pub fn master_is_there(&mut self, error: &Error) -> bool {
        matches!(error, Error::Collective(collective::Error::Lost { .. })) && self.collective.root_is_there()
    }

    /// Whether this error means that this rank has lost its connection to the others, whoever the
    /// master is, or that they went on without it.
    pub fn connection_is_lost(&self, error: &Error) -> bool {
        use collective::Error::{Dismissed, Minority};
        let is_outside = matches!(error, Error::Collective(Dismissed { .. } | Minority { .. }));
        self.hears_no_master(error) || (is_outside && self.collective.root() != self.collective.rank())
    }

    /// The way to the others itself.
    pub fn collective(&mut self) -> &mut dyn Collective {
        self.collective
    }

    /// Settles with the others that took part last (`there`, for each rank), who is the master in
    /// place of one that is lost.
    ///
    /// # Errors
    /// When too few find each other.
    pub fn succeed(&mut self, there: &[bool], window: Duration) -> Result<Rank, Error> {
        // Ranks that the master told of the round still notice its loss a window after those that
        // it did not.
        let late_by = 2 * window.to_std() + NOTICED_APART;
        let deadline = Deadline::new(4 * late_by, Some(Arc::clone(&self.stop)));
        Ok(self.collective.succeed(there, late_by, &deadline)?)
    }

    /// Whether the master has hung up: this rank need not wait for the end of its window to learn
    /// it.
    pub fn master_has_gone(&mut self) -> bool {
        !self.successors.is_empty() && !self.at_root() && self.collective.root_has_gone()
    }

    /// At the root, which found so many ranks `here` that were as many `before`: if less than half
    /// are left, looks whether the others have met without it.
    ///
    /// # Errors
    /// [`Error::Superseded`] when they have.
    pub fn check_not_superseded(&mut self, before: u32, here: u32) -> Result<(), Error> {
        let other = if 2 * here < before { self.collective.superseded_by() } else { None };
        other.map_or(Ok(()), |rank| Err(Error::Superseded { rank, here, before }))
    }

    /// After that: what the master that is lost decided last, for all who have missed it. `last` is
    /// what this rank was told last. None where nobody has missed anything, or nothing was decided
    /// yet.
    ///
    /// # Errors
    /// When the ranks do not answer.
    pub fn last_decided(
        &mut self,
        last: Option<&Broadcast>,
        there: &[bool],
        window: Duration,
    ) -> Result<Option<Broadcast>, Error> {
        let at_root = self.at_root();
        let deadline = if at_root { self.deadline(window) } else { self.deadline_of_the_roots_word(window) };
        let (root, size, rank) = (self.collective.root(), self.collective.size(), self.collective.rank());
        let own = last.map(Broadcast::round_id);
        self.collective.gather(&vec![true; size], &wire::encode(&own), &mut self.frames, &deadline)?;
        let mut agreed = Vec::new();
        if rank == root {
            let mut newest: (Option<RoundId>, Rank) = (own, rank);
            let mut behind = false;
            for (rank, bytes) in self.frames.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
                let known: Option<RoundId> = wire::decode(bytes, rank)?;
                behind |= known != newest.0;
                if known > newest.0 {
                    newest = (known, rank);
                }
            }
            // Who answers here is in no other group.
            let here = self.frames.iter().zip(there).filter(|(bytes, there)| **there && !bytes.is_empty()).count();
            let of = there.iter().filter(|there| **there).count();
            if 2 * here <= of {
                return Err(collective::Error::Minority { operation: "succession", present: here, of }.into());
            }
            agreed = wire::encode(&behind.then_some(newest.1));
        }
        self.collective.broadcast(&mut agreed, &deadline)?;
        let Some(holder) = wire::decode::<Option<Rank>>(&agreed, root)? else { return Ok(None) };
        let concerned: Vec<bool> = (0..size).map(|rank| [root, holder].contains(&rank)).collect();
        let held = last.map(wire::encode).unwrap_or_default();
        self.collective.gather(&concerned, &held, &mut self.frames, &deadline)?;
        let mut newest = Vec::new();
        if rank == root {
            // Empty where the holder was lost meanwhile: then nobody here knows that round.
            let held = Some(self.frames.frame(holder)).filter(|held| !held.is_empty());
            let held: Option<Broadcast> = held.map(|held| wire::decode(held, holder)).transpose()?;
            newest = wire::encode(&held);
        }
        self.collective.broadcast(&mut newest, &deadline)?;
        wire::decode(&newest, root)
    }

    /// A round is over, and another follows.
    ///
    /// # Errors
    /// When the system refuses what that needs.
    pub fn round_is_over(&mut self) -> Result<(), Error> {
        Ok(self.collective.round_is_over()?)
    }

    /// Whether what the master says between rounds reaches the others.
    pub fn hears_between_rounds(&self) -> bool {
        !self.per_round
    }

    /// Says something beside the rounds: the root to all, another rank to the root. False where the
    /// backend carries no words.
    ///
    /// # Errors
    /// When the backend has failed.
    pub fn say(&mut self, word: &Word) -> Result<bool, Error> {
        Ok(self.collective.call(&wire::encode(word))?)
    }

    /// What was said to this rank since this was last asked. Moves on what the backend has under
    /// way.
    ///
    /// # Errors
    /// When the backend has failed, or names the rank whose bytes are wrong.
    pub fn words(&mut self) -> Result<Vec<(Rank, Word)>, Error> {
        let said = self.collective.calls()?;
        let kept = std::mem::take(&mut self.kept);
        kept.into_iter().chain(said).map(|(rank, bytes)| Ok((rank, wire::decode(&bytes, rank)?))).collect()
    }

    /// Words that came while an operation waited are among the next [`Self::words`].
    pub fn hear_again(&mut self, kept: Vec<Call>) {
        self.kept.extend(kept);
    }

    /// From now on the backend does this while an operation waits.
    pub fn work_while_waiting(&mut self, work: Arc<dyn SideWork>) {
        self.collective.work_while_waiting(work);
    }

    /// The rank that gathers and decides.
    pub fn root(&self) -> Rank {
        self.collective.root()
    }

    /// Whether this rank is the root.
    pub fn at_root(&self) -> bool {
        self.collective.rank() == self.collective.root()
    }

    /// At the root: serialised bytes of the last gather, and of the last decision, to all ranks
    /// where each is told its own.
    pub fn message_bytes(&self) -> [usize; 2] {
        [self.gathered_bytes, self.decision_bytes]
    }

    /// What the backend has carried so far.
    pub fn traffic(&self) -> Traffic {
        self.collective.traffic()
    }

    /// At the root: from now on the run goes on without ranks that are lost, where the backend can;
    /// who comes back is told this.
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

    /// Brings every rank's account to the root, where those of absent ranks are empty; elsewhere
    /// the result is empty.
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

    /// How long to wait for the others. Their windows end up to half a window later than this one
    /// where a clock jumped, and a rank that is no node has yet to wait for the whole window.
    ///
    /// A signal to this rank alone must not end the run in an error: the others come at their
    /// window's end and learn of it then. Under a launcher that signals all ranks at once (mpirun,
    /// which kills a second later) they come at once, and whoever is missing is named before that.
    fn deadline(&self, window: Duration) -> Deadline {
        self.deadline_in(self.round_limit(window), window)
    }

    /// As [`Self::deadline`], where the others first do what may take `longest`.
    fn deadline_after(&self, window: Duration, longest: StdDuration) -> Deadline {
        let deadline = self.deadline(window);
        // A launcher that kills soon waits for nobody.
        if self.collective.signals_reach_all() { deadline } else { deadline.extended(longest) }
    }

    /// How long to wait for the root's word. It may wait for a rank that is gone, twice: for its
    /// window, and until it takes what it is told; a rank that is no node waits from the window's
    /// beginning on. The root knows who is missing, so it speaks first.
    fn deadline_of_the_roots_word(&self, window: Duration) -> Deadline {
        let limit = 2 * self.round_limit(window) + 2 * window.to_std();
        let mut deadline = self.deadline_in(limit, window);
        if !self.collective.signals_reach_all() {
            // This rank alone was asked to end; the root may be waiting for another that hangs.
            deadline.grace = self.round_limit(window) + window.to_std();
        }
        deadline.extended(ROOT_SPEAKS_FIRST)
    }

    fn round_limit(&self, window: Duration) -> StdDuration {
        self.round_timeout.to_std() + window.to_std() * 3 / 2
    }

    fn deadline_in(&self, limit: StdDuration, window: Duration) -> Deadline {
        let mut deadline = Deadline::new(limit, Some(Arc::clone(&self.stop)));
        if !self.collective.signals_reach_all() {
            deadline.grace += window.to_std() * 3 / 2;
        }
        deadline
    }
}

/// Whether every rank is told every node's estimate. Where nobody has said, a small group is.
fn shares_rounds(joined: &Joined) -> bool {
    joined.config.share_rounds.unwrap_or(joined.ranks * joined.plan.nodes() <= SHARED_ESTIMATES_MAX)
}

/// By how much ranks may notice the loss of the master apart, beside their windows.
const NOTICED_APART: StdDuration = StdDuration::from_secs(5);

/// Estimates that the root sends in a round where everybody is told all: 256 ranks of 256 nodes,
/// some 7 MB.
const SHARED_ESTIMATES_MAX: usize = 1 << 16;
