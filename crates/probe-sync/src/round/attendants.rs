//! The participants of the rounds, including ranks that have left and ranks that return.

use std::collections::BTreeMap;

use probe_sync_collective::{Attendance, Rank};
use probe_sync_time::RoundId;

use super::exchange::Exchange;
use super::standby::Present;
use crate::join::{Back, Hello, Joined, Notice, Statement, judge};
use crate::report::Recorder;
use crate::{Error, wire};

/// The ranks of a run as they are now.
pub(crate) struct Attendants {
    /// What those know who could take this rank's place.
    present: Present,
    /// What ranks that come back are told; its roster is that of `present`.
    notice: Notice,
    /// Those who could take this rank's place have not been told all this.
    changed: bool,
}

impl Attendants {
    /// All ranks of a run that begins now.
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

    /// Those of a run that goes on under another master.
    pub fn of(joined: &Joined, present: Present) -> Self {
        let notice = Notice { plan: joined.plan.clone(), roster: present.roster.clone() };
        Self { present, notice, changed: true }
    }

    /// What those must be told of them who could take this rank's place, if they do not know it.
    pub fn for_successors(&mut self) -> Option<Present> {
        std::mem::take(&mut self.changed).then(|| self.present.clone())
    }

    /// Whether a rank is there as it was from the start.
    pub fn is_steady(&self, rank: Rank) -> bool {
        !self.present.away[rank] && !self.present.returned[rank]
    }

    /// How many ranks are not.
    pub fn here(&self) -> u32 {
        self.present.away.iter().filter(|away| !**away).count() as u32
    }

    /// The ranks that are gone.
    pub fn away(&self) -> Vec<Rank> {
        (0..self.present.away.len()).filter(|rank| self.present.away[*rank]).collect()
    }

    /// What ranks that come back are told.
    pub fn notice(&self) -> &Notice {
        &self.notice
    }

    /// Takes down who has left, and decides on who asks to come back. Where a node is back, all
    /// ranks are to be told of all nodes that ever were: who comes back itself may know less than
    /// the others.
    ///
    /// # Errors
    /// When nobody could come back any more.
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
        exchange.go_on_without_lost(&self.notice)?;
        Ok(self.present.renewed.values().cloned().collect())
    }

    /// Takes down who has left, where nobody can come back.
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

/// Every rank solves by all that it has heard since the first round; who was away has not heard it.
const NOBODY_COMES_BACK: &str = "the rounds of this run have no master that could tell it what it missed; it can join the next run, \
    or use --rounds master";
