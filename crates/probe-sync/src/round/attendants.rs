//! The participants of the rounds, including ranks that have left and ranks that return.

use std::collections::BTreeMap;

use probe_sync_collective::{Attendance, Rank};
use probe_sync_time::RoundId;

use super::exchange::Exchange;
use super::standby::Present;
use crate::join::{Back, Hello, Joined, Notice, Statement, judge};
use crate::report::Recorder;
use crate::{Error, wire};

/// Current state of a run's ranks.
pub(crate) struct Attendants {
    /// State known to potential successors.
    present: Present,
    /// Notice for returning ranks; its roster is that of `present`.
    notice: Notice,
    /// True if potential successors have not been sent the current state.
    changed: bool,
}

impl Attendants {
    /// Creates the state of a run that begins now, with all ranks.
    pub fn new(joined: &Joined, hellos: Vec<Hello>) -> Self {
        let present = Present {
            away: hellos.iter().map(|hello| hello.missing).collect(),
            returned: vec![false; hellos.len()],
            hellos,
            roster: joined.roster.clone(),
            renewed: BTreeMap::new(),
            lives: 0,
        };
        Self::of(joined, present)
    }

    /// Creates the state of a run that continues under another master.
    pub fn of(joined: &Joined, present: Present) -> Self {
        let notice = Notice { plan: joined.plan.clone(), roster: present.roster.clone() };
        Self { present, notice, changed: true }
    }

    /// Returns the state for potential successors, unless they have it already.
    pub fn for_successors(&mut self) -> Option<Present> {
        std::mem::take(&mut self.changed).then(|| self.present.clone())
    }

    /// Returns true if a rank has been present from the start.
    pub fn is_steady(&self, rank: Rank) -> bool {
        !self.present.away[rank] && !self.present.returned[rank]
    }

    /// Returns the number of ranks present.
    pub fn here(&self) -> u32 {
        self.present.away.iter().filter(|away| !**away).count() as u32
    }

    /// Returns the ranks that are gone.
    pub fn away(&self) -> Vec<Rank> {
        (0..self.present.away.len()).filter(|rank| self.present.away[*rank]).collect()
    }

    /// Returns the notice for returning ranks.
    pub fn notice(&self) -> &Notice {
        &self.notice
    }

    /// Records which ranks have left, and decides on those that ask to return. When a node is back,
    /// all ranks are sent all returned nodes, since a returning rank may know less than the others.
    ///
    /// # Errors
    /// Returns an error if no rank could return any longer.
    pub fn attend(
        &mut self,
        round_id: RoundId,
        exchange: &mut Exchange<'_>,
        recorder: &mut Recorder,
    ) -> Result<Vec<Back>, Error> {
        let Attendance { left, back: asking } = exchange.attendance();
        self.gone(&left, round_id, recorder);
        let mut changed = false;
        for (rank, bytes) in asking {
            let statement: Result<Statement, String> =
                wire::decode(&bytes, rank).unwrap_or_else(|error| Err(error.to_string()));
            let judged = judge(&statement, rank, &self.present.hellos, &self.present.away, &self.notice);
            let admitted = exchange.admit(rank, judged.as_ref().map(|_| ()).map_err(Clone::clone));
            match (judged, statement) {
                (Ok(same_clocks), Ok(statement)) if admitted => {
                    let present = &mut self.present;
                    (present.away[rank], present.returned[rank], self.changed) = (false, true, true);
                    let before = std::mem::replace(&mut present.hellos[rank], statement.hello);
                    if let Some((node, ready)) = self.notice.plan.probes_for(rank).zip(statement.ready) {
                        present.lives += 1;
                        let back = Back { node, ready, incarnation: present.lives, same_clocks };
                        present.roster.renew(&back);
                        self.notice.roster.renew(&back);
                        recorder.meet_again(&back);
                        present.renewed.insert(node, back);
                        changed = true;
                    }
                    if before.missing {
                        self.notice.plan.know(rank, &self.present.hellos);
                        recorder.came(rank, &self.present.hellos, &self.notice.roster);
                    }
                    recorder.returned(rank, round_id);
                }
                (Err(reason), _) => tracing::warn!("rank {rank} was not allowed to rejoin: {reason}"),
                _ => tracing::warn!("rank {rank} asked to rejoin, but was lost again"),
            }
        }
        if !changed {
            return Ok(Vec::new());
        }
        exchange.continue_without_lost(&self.notice)?;
        Ok(self.present.renewed.values().cloned().collect())
    }

    /// Records which ranks have left, if none can return.
    pub fn take_down(&mut self, from: RoundId, exchange: &mut Exchange<'_>, recorder: &mut Recorder) {
        let Attendance { left, back } = exchange.attendance();
        self.gone(&left, from, recorder);
        for (rank, _) in back {
            exchange.admit(rank, Err(NOBODY_COMES_BACK.into()));
        }
    }

    fn gone(&mut self, left: &[(Rank, probe_sync_collective::Error)], from: RoundId, recorder: &mut Recorder) {
        // Who had left before is not there either when ranks meet anew.
        for (rank, reason) in left.iter().filter(|(rank, _)| !self.present.away[*rank]).collect::<Vec<_>>() {
            self.present.away[*rank] = true;
            self.changed = true;
            recorder.left(*rank, from, &reason.to_string());
        }
    }
}

/// In this mode every rank solves from all windows since the first round, which a rank that was
/// away has missed.
const NOBODY_COMES_BACK: &str = "the rounds of this run have no master that could tell it what it missed; it can join the next run, \
    or use --rounds master";
