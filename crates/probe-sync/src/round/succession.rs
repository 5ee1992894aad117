//! A lost master's place is taken by another rank.
//!
//! Place in the flow: in the middle of a round, when its gather or its broadcast has failed because the master is lost; the round is then repeated. The ranks that
//! are left choose (`collective`), whoever knows a round that others have missed tells it, and the new master begins files of its own.
//!
//! What it does not do: keep what the master knows at hand (`standby`).

use std::time::Instant;

use super::Rounds;
use super::decider::Decider;
use super::keeper::Keeper;
use super::messages::Broadcast;
use crate::Error;
use crate::join::Joined;
use crate::pace::Policy;
use crate::report::TakenOver;

impl Rounds<'_> {
    /// Settles with the others who is the master now, and what the one before decided last. So many masters were lost in this round before.
    pub(super) fn go_on_without_master(&mut self, error: &Error, lost_before: usize) -> Result<(), Error> {
        let (lost, window) = (self.exchange.root(), self.pace.window);
        tracing::warn!("{error}; looking for another master among the ranks that are left");
        let present = self.last.as_ref().map_or(self.joined.ranks, |told| told.present as usize);
        let present = present.saturating_sub(lost_before);
        let root = self.exchange.succeed(present, window)?;
        let last = self.last.as_ref().map(|told| Broadcast::Solved(told.clone()));
        let missed = self.exchange.last_decided(last.as_ref(), present, window)?;
        let missed = missed.filter(|missed| missed.round_id() >= self.round_id);
        if self.exchange.at_root() {
            let first_round = missed.as_ref().map_or(self.round_id, Broadcast::round_id);
            self.take_over(TakenOver { from_rank: lost, first_round })?;
        }
        tracing::info!("rank {root} is the master in place of rank {lost} from round {} on", self.round_id);
        if let Some(missed) = missed {
            self.keep_missed(&missed);
            self.follow(missed)?;
        }
        // What was asked of the lost one may have been lost with it.
        self.control.ask_again();
        Ok(())
    }

    /// At the new master: what the one before decided, and this rank was not told.
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

    /// This rank is the master from now on.
    fn take_over(&mut self, taken_over: TakenOver) -> Result<(), Error> {
        let rank = self.exchange.root();
        let present = self.attendants.take().ok_or(Error::NoStandby { rank, lost: taken_over.from_rank })?;
        let (decider, begun) =
            self.standby.take().map_or_else(|| self.decider_of_last(), |standby| standby.take_over());
        let mut keeper = Box::new(Keeper::take_over(&self.joined, rank, present, taken_over)?);
        keeper.take_down(taken_over.first_round, &mut self.exchange);
        self.exchange.go_on_without_lost(keeper.notice())?;
        (self.decider, self.keeper, self.masters_begin) = (Some(decider), Some(keeper), begun);
        Ok(())
    }

    /// What decides where the rank that stood by was lost with the master: it knows the last round and none before.
    fn decider_of_last(&self) -> (Box<Decider>, Instant) {
        let Joined { config, plan, edges, .. } = &*self.joined;
        let mut decider = Decider::new(&self.joined, Policy::of(config, plan.nodes(), edges, true));
        if let Some(told) = self.last.as_ref().filter(|told| told.round.all_nodes.len() == plan.nodes()) {
            decider.adopt(&told.round);
        }
        (Box::new(decider), self.begun.0)
    }
}
