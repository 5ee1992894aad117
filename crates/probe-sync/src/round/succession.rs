//! A lost master's place is taken by another rank.
//!
//! Place in the flow: in the middle of a round, when its gather or its broadcast has failed because the master is lost; the round is then repeated. The ranks that
//! are left choose (`collective`), whoever knows a round that others have missed tells it, and the new master begins files of its own.
//!
//! What it does not do: keep what the master knows at hand (`standby`).

use super::Rounds;
use super::exchange::Broadcast;
use super::keeper::Keeper;
use crate::Error;
use crate::report::TakenOver;

impl Rounds<'_> {
    /// Settles with the others who is the master now, and what the one before decided last.
    pub(super) fn go_on_without_master(&mut self, error: &Error) -> Result<(), Error> {
        let (lost, window) = (self.exchange.root(), self.pace.window);
        tracing::warn!("{error}; looking for another master among the ranks that are left");
        let present = self.last.as_ref().map_or(self.joined.ranks, |told| told.present as usize);
        let root = self.exchange.succeed(present, window)?;
        let last = self.last.as_ref().map(|told| Broadcast::Solved(told.clone()));
        let missed = self.exchange.last_decided(last.as_ref(), window)?;
        let missed = missed.filter(|missed| missed.round_id() >= self.round_id);
        if self.exchange.at_root() {
            let first_round = missed.as_ref().map_or(self.round_id, Broadcast::round_id);
            self.take_over(TakenOver { from_rank: lost, first_round })?;
        }
        tracing::info!("rank {root} is the master in place of rank {lost} from round {} on", self.round_id);
        if let Some(missed) = missed {
            if let (Some(keeper), Broadcast::Solved(told)) = (&mut self.keeper, &missed) {
                keeper.record_missed(&told.round);
            }
            self.follow(missed)?;
        }
        Ok(())
    }

    /// This rank is the master from now on.
    fn take_over(&mut self, taken_over: TakenOver) -> Result<(), Error> {
        let rank = self.exchange.root();
        let known = self.standby.take().and_then(|standby| standby.take_over());
        let (decider, present, begun) = known.ok_or(Error::NoStandby { rank, lost: taken_over.from_rank })?;
        let mut keeper = Box::new(Keeper::take_over(&self.joined, rank, present, taken_over)?);
        keeper.take_down(taken_over.first_round, &mut self.exchange);
        self.exchange.go_on_without_lost(keeper.notice())?;
        (self.decider, self.keeper, self.masters_begin) = (Some(decider), Some(keeper), begun);
        Ok(())
    }
}
