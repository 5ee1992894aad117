//! The replacement of a lost master by another rank.
//!
//! It runs in the middle of a round, when the gather or the broadcast has failed because the master
//! is lost; the round is then repeated. The remaining ranks choose a new master (`collective`), a
//! rank that knows a round that others have missed sends it to them, and the new master begins its
//! own files.
//!
//! In time-based rounds every rank solves and has what it needs; who has missed a round is given
//! its windows. Which ranks are there the allgather says.

use std::time::Instant;

use probe_sync_collective::Rank;

use super::Rounds;
use super::decider::{Decider, MasterTime};
use super::keeper::Keeper;
use super::messages::Broadcast;
use super::standby::Shadow;
use crate::Error;
use crate::join::Joined;
use crate::pace::Policy;
use crate::report::TakenOver;
use crate::report::parts::Parts;

impl Rounds<'_> {
    /// Agrees with the others on the new master, and on the previous one's last decision.
    /// `lost_before` are masters that were already lost in this round.
    pub(super) fn go_on_without_master(&mut self, error: &Error, lost_before: &[Rank]) -> Result<(), Error> {
        let (lost, window) = (self.exchange.root(), self.pace.window);
        tracing::warn!("{error}; looking for another master among the remaining ranks");
        let away = self.last.as_ref().map_or(&[][..], |told| &told.away);
        let there: Vec<bool> =
            (0..self.joined.ranks).map(|rank| !away.contains(&rank) && !lost_before.contains(&rank)).collect();
        let root = self.exchange.succeed(&there, window)?;
        let last = self.last_broadcast();
        let missed = self.exchange.last_decided(last.as_ref(), &there, window)?;
        let missed = missed.filter(|missed| missed.round_id() >= self.round_id);
        if self.exchange.at_root() {
            let known = self.last.as_ref().filter(|_| self.mode.all_solve()).map(|told| told.round.round_id);
            let first_round = missed.as_ref().map(Broadcast::round_id).or(known).unwrap_or(self.round_id);
            self.take_over(TakenOver { from_rank: lost, first_round })?;
        }
        tracing::info!("rank {root} takes over from rank {lost} as the master from round {} on", self.round_id);
        match missed {
            Some(missed) if self.mode.all_solve() => self.solve_missed(missed)?,
            Some(missed) => {
                self.keep_missed(&missed);
                self.follow(missed)?;
            }
            None => self.keep_last(),
        }
        self.look_for_late_while_waiting();
        // What was asked of the lost one may have been lost with it.
        self.control.ask_again();
        Ok(())
    }

    /// Returns the last broadcast received, for ranks that have missed it.
    fn last_broadcast(&self) -> Option<Broadcast> {
        let mut told = self.last.clone()?;
        if self.mode.all_solve() {
            // Every rank decides by what it has heard since the first round.
            told.shadow =
                Some(Shadow { windows: self.last_windows.clone(), time: MasterTime::default(), requests: Vec::new() });
        }
        Some(Broadcast::Solved(told))
    }

    /// In time-based rounds: solves the round that this rank has missed, from the windows that
    /// others have received.
    fn solve_missed(&mut self, missed: Broadcast) -> Result<(), Error> {
        let Broadcast::Solved(mut told) = missed else { return Ok(()) };
        let Some(Shadow { windows, .. }) = told.shadow.take() else { return Ok(()) };
        let round_id = self.round_id;
        let solved = self.decide(&windows, Instant::now(), None, &mut Parts::default())?;
        self.last_windows = windows;
        let ended = Broadcast::Ended { round_id };
        self.follow(solved.map_or(ended, |round| Broadcast::solved(*round, Vec::new(), told.away)))?;
        Ok(())
    }

    /// At the new master of time-based rounds: records the last round that all have solved, since
    /// the previous master may have been lost before recording it.
    fn keep_last(&mut self) {
        if let (true, Some(keeper), Some(told)) = (self.mode.all_solve(), &mut self.keeper, &self.last) {
            keeper.record_missed(&told.round);
        }
    }

    /// At the new master: records what the previous one decided and this rank had not received.
    fn keep_missed(&mut self, missed: &Broadcast) {
        let Broadcast::Solved(told) = missed else { return };
        if let Some(decider) = &mut self.decider {
            decider.take_decision(&told.round.decision);
        }
        // In a large group it is another rank's part.
        let whole = told.round.all_nodes.len() == self.joined.plan.nodes();
        if let Some(keeper) = self.keeper.as_mut().filter(|_| whole) {
            keeper.record_missed(&told.round);
        }
    }

    /// Makes this rank the master.
    fn take_over(&mut self, taken_over: TakenOver) -> Result<(), Error> {
        let rank = self.exchange.root();
        let present = self.attendants.take().ok_or(Error::NoStandby { rank, lost: taken_over.from_rank })?;
        // In time-based rounds every rank has one.
        let (decider, begun) = match (self.decider.take(), self.standby.take()) {
            (Some(own), _) => (own, self.begun.0),
            (None, Some(standby)) => standby.take_over(),
            (None, None) => self.decider_of_last(),
        };
        let mut keeper = Box::new(Keeper::take_over(&self.joined, rank, present, taken_over)?);
        keeper.take_down(taken_over.first_round, &mut self.exchange);
        self.side.late().lead(keeper.folder());
        self.exchange.continue_without_lost(keeper.notice())?;
        (self.decider, self.keeper, self.masters_begin) = (Some(decider), Some(keeper), begun);
        Ok(())
    }

    /// Returns a decider if the standby was lost together with the master: it knows the last round
    /// and none before.
    fn decider_of_last(&self) -> (Box<Decider>, Instant) {
        let Joined { config, plan, edges, .. } = &*self.joined;
        let mut decider = Decider::new(&self.joined, Policy::of(config, plan.nodes(), edges, true));
        if let Some(told) = self.last.as_ref().filter(|told| told.round.all_nodes.len() == plan.nodes()) {
            decider.adopt(&told.round);
        }
        (Box::new(decider), self.begun.0)
    }
}
