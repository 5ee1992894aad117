//! The messages between ranks in a round: windows to the master and the solved round to every rank,
//! or all windows to all.
//!
//! Only this file and `membership` know `Collective`, deadlines and the wire format. In a large
//! group a rank receives only its own part of the solved round (`share_rounds`).

mod membership;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration as StdDuration;

use probe_sync_collective::{self as collective, Call, Collective, Deadline, Frames, Rank, SideWork, Traffic};
use probe_sync_lines::{NodeWindow, Punctuality};
use probe_sync_time::{Duration, NodeId, RoundId};

use super::messages::{Broadcast, Word};
use super::standby::Present;
use crate::join::{Joined, ROOT_SPEAKS_FIRST};
use crate::measure::account::RankAccount;
use crate::{Error, wire};

/// One rank's connection to the others.
pub(crate) struct Exchange<'c> {
    collective: &'c mut dyn Collective,
    /// For each rank, whether it contributes a window.
    participants: Vec<bool>,
    /// For each rank, its node or the node that it follows.
    node_of_rank: Vec<NodeId>,
    /// True if ranks are sent only their own part of a round.
    own_parts: bool,
    /// Ranks that take over as master, in this order.
    successors: Vec<Rank>,
    frames: Frames,
    /// Messages that arrived while an operation was waiting.
    kept: Vec<Call>,
    round_timeout: Duration,
    stop: Arc<AtomicBool>,
    gathered_bytes: usize,
    decision_bytes: usize,
}

impl<'c> Exchange<'c> {
    /// Creates the connection to the other ranks of a run; waits end soon after the caller's `stop`
    /// was raised.
    pub fn new(collective: &'c mut dyn Collective, joined: &Joined, stop: Arc<AtomicBool>) -> Self {
        let participants = joined.plan.participants();
        let round_timeout = joined.config.round_timeout;
        Self {
            collective,
            participants,
            node_of_rank: joined.plan.node_of_rank.clone(),
            own_parts: !shares_rounds(joined),
            successors: joined.plan.successors.iter().map(|(rank, _)| *rank).collect(),
            frames: Frames::default(),
            kept: Vec::new(),
            round_timeout,
            stop,
            gathered_bytes: 0,
            decision_bytes: 0,
        }
    }

    /// Gathers every node's window at the master; elsewhere the result is empty. Ranks that are not
    /// a node contribute nothing and return at once. `window` is the length of the current windows.
    ///
    /// # Errors
    /// Names a rank that is late or gone, or whose message is invalid.
    pub fn gather(&mut self, own: Option<&NodeWindow>, window: Duration) -> Result<Vec<NodeWindow>, Error> {
        let payload = own.map(wire::encode).unwrap_or_default();
        let deadline = self.deadline(window);
        self.collective.gather(&self.participants, &payload, &mut self.frames, &deadline)?;
        self.gathered_bytes = self.frames.iter().map(<[u8]>::len).sum();
        if self.collective.rank() != self.collective.root() {
            return Ok(Vec::new());
        }
        let present = self.frames.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
        let decoded = present.map(|(rank, bytes)| {
            let window = wire::decode(bytes, rank)?;
            log_window(rank, &window, bytes.len());
            Ok(window)
        });
        decoded.collect()
    }

    /// Gathers every node's window at every rank; also returns which ranks take part. Ranks that
    /// are not a node contribute none. `window` is the length of the current windows.
    ///
    /// # Errors
    /// Errors of [`Self::gather`]; also if a window is from another round.
    pub fn allgather(
        &mut self,
        own: Option<&NodeWindow>,
        round_id: RoundId,
        window: Duration,
    ) -> Result<(Vec<NodeWindow>, Vec<bool>), Error> {
        let payload = wire::encode(&own);
        let root = self.at_root();
        let deadline = if root { self.deadline(window) } else { self.deadline_of_the_roots_word(window) };
        self.collective.allgather(&payload, &mut self.frames, &deadline)?;
        self.gathered_bytes = self.frames.iter().map(<[u8]>::len).sum();
        let here = self.frames.iter().map(|bytes| !bytes.is_empty()).collect();
        let present = self.frames.iter().enumerate().filter(|(_, bytes)| !bytes.is_empty());
        let mut windows: Vec<NodeWindow> = Vec::new();
        for (rank, bytes) in present {
            let Some(window) = wire::decode::<Option<NodeWindow>>(bytes, rank)? else { continue };
            if root {
                log_window(rank, &window, bytes.len());
            }
            windows.push(window);
        }
        match windows.iter().find(|window| window.round_id != round_id) {
            Some(other) => Err(Error::Sequence { expected: round_id, got: other.round_id }),
            None => Ok((windows, here)),
        }
    }

    /// In time-based rounds, before the first: tells potential successors of the root which ranks
    /// are present. `present` is given at the root; returns `None` elsewhere on ranks that are not
    /// successors.
    ///
    /// # Errors
    /// Returns an error if it does not arrive.
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

    /// Broadcasts the master's message to every rank, and its shadow only to `standby`. Both are
    /// given at the master.
    ///
    /// # Errors
    /// Returns an error if it does not arrive, or is from another round than `round_id`.
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

    /// Receives the next broadcast, of any round: a rank that has just returned does not know the
    /// round.
    ///
    /// # Errors
    /// Returns an error if it does not arrive.
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

    /// Prepares each rank's message; only the standby receives the shadow.
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

    /// Returns the rank that takes over if the master is lost: the next successor that is `steady`.
    pub fn standby(&self, steady: impl Fn(Rank) -> bool) -> Option<Rank> {
        let own = self.successors.iter().position(|rank| *rank == self.collective.rank());
        let after = own.map_or(0, |place| place + 1);
        self.successors[after..].iter().copied().find(|rank| steady(*rank))
    }

    /// Returns true if this error means that the master is lost and another rank may take over.
    pub fn master_is_lost(&self, error: &Error) -> bool {
        self.hears_no_master(error) && !self.successors.is_empty()
    }

    /// Returns true if this error means that the master is another rank, which is lost or did not
    /// send in time.
    fn hears_no_master(&self, error: &Error) -> bool {
        let root = self.collective.root();
        let lost = match error {
            Error::Collective(collective::Error::Lost { rank, .. }) => *rank == root,
            Error::Collective(collective::Error::Late { missing, interrupted: false, .. }) => *missing == [root],
            _ => false,
        };
        lost && root != self.collective.rank()
    }

    /// Returns true if this error means that this rank has lost its connection to the others,
    /// whichever is the master, or that they continued without it.
    pub fn connection_is_lost(&self, error: &Error) -> bool {
        use collective::Error::{Dismissed, Minority};
        let is_outside = matches!(error, Error::Collective(Dismissed { .. } | Minority { .. }));
        self.hears_no_master(error) || (is_outside && self.collective.root() != self.collective.rank())
    }

    /// Returns the underlying collective.
    pub fn collective(&mut self) -> &mut dyn Collective {
        self.collective
    }

    /// After another rank has taken over: distributes the lost master's last decision to all that
    /// missed it. `last` is what this rank received last. Returns `None` if no rank has missed
    /// anything, or nothing was decided yet.
    ///
    /// # Errors
    /// Returns an error if the ranks do not answer.
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

    /// Sends a message outside of rounds: the root to all, another rank to the root.
    ///
    /// # Errors
    /// Returns an error if the backend has failed.
    pub fn say(&mut self, word: &Word) -> Result<(), Error> {
        Ok(self.collective.call(&wire::encode(word))?)
    }

    /// Removes and returns the messages received since the previous call. Also drives pending
    /// operations of the backend.
    ///
    /// # Errors
    /// Returns an error if the backend has failed, or names the rank whose message is invalid.
    pub fn words(&mut self) -> Result<Vec<(Rank, Word)>, Error> {
        let said = self.collective.calls()?;
        let kept = std::mem::take(&mut self.kept);
        kept.into_iter().chain(said).map(|(rank, bytes)| Ok((rank, wire::decode(&bytes, rank)?))).collect()
    }

    /// Returns messages that arrived while an operation was waiting with the next [`Self::words`].
    pub fn hear_again(&mut self, kept: Vec<Call>) {
        self.kept.extend(kept);
    }

    /// Makes the backend do this work while an operation waits. If it cannot, messages are
    /// processed between operations only.
    pub fn work_while_waiting(&mut self, work: Arc<dyn SideWork>) {
        let _supported = self.collective.work_while_waiting(work);
    }

    /// Returns the rank that gathers and decides.
    pub fn root(&self) -> Rank {
        self.collective.root()
    }

    /// Returns true if this rank is the root.
    pub fn at_root(&self) -> bool {
        self.collective.rank() == self.collective.root()
    }

    /// At the root: returns the serialised sizes of the last gather and of the last decision, to
    /// all ranks if each is sent its own.
    pub fn message_bytes(&self) -> [usize; 2] {
        [self.gathered_bytes, self.decision_bytes]
    }

    /// Returns the backend's traffic so far.
    pub fn traffic(&self) -> Traffic {
        self.collective.traffic()
    }

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// Names a rank that did not.
    ///
    /// `longest` is the time that a rank may need before it calls this.
    pub fn meet(&mut self, window: Duration, longest: StdDuration) -> Result<(), Error> {
        let everyone = vec![true; self.collective.size()];
        let deadline = self.deadline_after(window, longest);
        self.collective.gather(&everyone, &[], &mut self.frames, &deadline)?;
        self.collective.broadcast(&mut Vec::new(), &deadline.extended(longest + ROOT_SPEAKS_FIRST))?;
        Ok(())
    }

    /// Gathers every rank's account at the root, with empty ones for absent ranks; elsewhere the
    /// result is empty.
    ///
    /// # Errors
    /// Names a rank that is late or gone, or whose message is invalid.
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

    /// Returns this rank.
    pub fn rank(&self) -> Rank {
        self.collective.rank()
    }

    /// Returns true if the launcher signals all ranks at once and kills them soon after.
    pub fn signals_reach_all(&self) -> bool {
        self.collective.signals_reach_all()
    }

    /// Returns how long to wait for the others. Their windows end up to half a window later than
    /// this one if a clock jumped, and a rank that is not a node still has to wait for the whole
    /// window.
    ///
    /// A signal to this rank alone must not end the run with an error: the others arrive at their
    /// window's end and learn of it then. Under a launcher that signals all ranks at once (mpirun,
    /// which kills a second later) they arrive at once, and a missing rank is named before that.
    fn deadline(&self, window: Duration) -> Deadline {
        self.deadline_in(self.round_limit(window), window)
    }

    /// Returns the deadline if the others first do something that may take `longest`.
    fn deadline_after(&self, window: Duration, longest: StdDuration) -> Deadline {
        let deadline = self.deadline(window);
        // A launcher that kills soon waits for nobody.
        if self.collective.signals_reach_all() { deadline } else { deadline.extended(longest) }
    }

    /// Returns how long to wait for the root's message. The root may wait for a missing rank twice:
    /// for its window, and until that accepts the message; a rank that is not a node waits from the
    /// beginning of the window. The root knows which rank is missing, so it reports first.
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

/// Logs what the root received from a rank in this round.
fn log_window(rank: Rank, window: &NodeWindow, bytes: usize) {
    if !tracing::enabled!(tracing::Level::DEBUG) {
        return;
    }
    let Punctuality { end_late_ns, control_retries, .. } = window.punctuality;
    let lost: u64 = window
        .edges
        .iter()
        .map(|edge| edge.lost_count)
        .chain(window.unfitted.iter().map(|(_, lost)| *lost))
        .map(u64::from)
        .sum();
    let late = end_late_ns
        .map_or_else(|| "at an end not known before".to_owned(), |ns| format!("{:.3} ms late", ns as f64 * 1e-6));
    tracing::debug!(
        "round {}, rank {rank} (node {}): {} edges, {lost} lost exchanges, {bytes} bytes, cut {late}, {control_retries} retries so far",
        window.round_id,
        window.node_id,
        window.edges.len(),
    );
}

/// Returns true if every rank is sent every node's estimate. By default this depends on the size of
/// the group.
fn shares_rounds(joined: &Joined) -> bool {
    joined.config.share_rounds.unwrap_or(joined.ranks * joined.plan.nodes() <= SHARED_ESTIMATES_MAX)
}

/// Most estimates that the root sends in a round in which all ranks are sent everything: 256 ranks
/// of 256 nodes, some 7 MB.
const SHARED_ESTIMATES_MAX: usize = 1 << 16;
