//! The root's bookkeeping of the rounds: files, participants and durations.
//!
//! It runs only at the root, in every mode of decision: after a round is decided and before the
//! other ranks learn the result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_collective::Rank;
use probe_sync_estimate::round::SolvedRound;
use probe_sync_files::OwnFolder;
use probe_sync_lines::Round;
use probe_sync_time::RoundId;

use super::attendants::Attendants;
use super::exchange::Exchange;
use super::standby::Present;
use crate::join::{Back, Hello, Joined, Notice};
use crate::late::Totals;
use crate::measure::account::RankAccount;
use crate::pace::adaptive::PacingReport;
use crate::report::{Observed, Recorder, RunReport, Stopped, TakenOver};
use crate::store::RunDirectory;
use crate::{Config, Error};

/// The root's records of a run.
pub(crate) struct Keeper {
    recorder: Recorder,
    attendants: Attendants,
    latency: StdDuration,
    /// Own folder of a rank that took over from a lost master.
    taken_over_in: Option<PathBuf>,
}

impl Keeper {
    /// Creates the records of a run that begins now.
    pub fn new(joined: &Joined, mut recorder: Recorder, hellos: Vec<Hello>) -> Self {
        let attendants = Attendants::new(joined, hellos);
        let limit = joined.config.start_timeout.unwrap_or_default();
        attendants.away().into_iter().for_each(|missing| recorder.missing(missing, limit));
        Self { recorder, attendants, latency: StdDuration::ZERO, taken_over_in: None }
    }

    /// Creates the records of a run that this rank continues after another master: files in a
    /// folder of their own, from the first round that it decides.
    ///
    /// # Errors
    /// Returns an error if a file cannot be created.
    pub fn take_over(joined: &Joined, rank: Rank, present: Present, taken_over: TakenOver) -> Result<Self, Error> {
        let out = joined.config.out.join(format!("rank{rank}-from-round{}", taken_over.first_round));
        let directory = RunDirectory::claim(&out)?;
        let config = Config { out: out.clone(), ..joined.config.clone() };
        let mut joined = Joined { config, roster: present.roster.clone(), ..joined.clone() };
        // Some may have come since this rank was told the plan.
        present
            .hellos
            .iter()
            .zip(&mut joined.plan.hostnames)
            .for_each(|(hello, name)| name.clone_from(&hello.hostname));
        let joined = Arc::new(joined);
        let recorder = Recorder::begin(Arc::clone(&joined), &present.hellos, directory, Some(taken_over))?;
        let attendants = Attendants::of(&joined, present);
        Ok(Self { recorder, attendants, latency: StdDuration::ZERO, taken_over_in: Some(out) })
    }

    /// Returns the ranks that are gone.
    pub fn away(&self) -> Vec<Rank> {
        self.attendants.away()
    }

    /// Returns the folder in which this rank continues after taking over from a lost master.
    pub fn taken_over_in(&self) -> Option<&Path> {
        self.taken_over_in.as_deref()
    }

    /// Returns the state of the ranks for potential successors, unless they have it already.
    pub fn for_successors(&mut self) -> Option<Present> {
        self.attendants.for_successors()
    }

    /// Returns the number of ranks present, including this one.
    pub fn here(&self) -> u32 {
        self.attendants.here()
    }

    /// Returns true if a rank has been present from the start.
    pub fn is_steady(&self, rank: Rank) -> bool {
        self.attendants.is_steady(rank)
    }

    /// Records a round that the previous master decided last, and that others have missed.
    pub fn record_missed(&mut self, round: &Round) {
        self.recorder.record(round, StdDuration::ZERO);
    }

    /// Records which ranks have left, and decides on those that ask to return. Returns the nodes to
    /// announce to all.
    ///
    /// # Errors
    /// Returns an error if no rank could return any longer.
    pub fn attend(&mut self, round_id: RoundId, exchange: &mut Exchange<'_>) -> Result<Vec<Back>, Error> {
        self.attendants.attend(round_id, exchange, &mut self.recorder)
    }

    /// Records which ranks have left, if none can return.
    pub fn take_down(&mut self, round_id: RoundId, exchange: &mut Exchange<'_>) {
        self.attendants.take_down(round_id, exchange, &mut self.recorder);
    }

    /// Returns the notice for returning ranks.
    pub fn notice(&self) -> &Notice {
        self.attendants.notice()
    }

    /// Records a round that was solved `latency` after the end of the root's own window; once this
    /// returns, killing the process cannot lose it.
    pub fn record(&mut self, solved: SolvedRound, latency: StdDuration) {
        self.latency = latency;
        self.recorder.record(&solved.data, latency);
        self.recorder.keep(&solved.data, solved.edges);
    }

    /// Returns the folder of the run's files.
    pub fn folder(&self) -> &OwnFolder {
        self.recorder.folder()
    }

    /// Updates the metrics of late ranks.
    pub fn late(&mut self, totals: &Totals) {
        self.recorder.late(totals);
    }

    /// Does the work that can wait until all ranks have the round.
    pub fn after_broadcast(&mut self, observed: &Observed<'_>) {
        let _scope = probe_sync_record::scope!(probe_sync_record::Kind::Io, "files");
        self.recorder.refresh_metrics(self.latency, observed);
    }

    /// Returns the time from the end of the root's own window to the last solved round: its fits,
    /// the gather and the graph.
    pub fn latency(&self) -> StdDuration {
        self.latency
    }

    /// Creates and writes the report. Without accounts (the run failed) it covers finished rounds
    /// only.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn report(
        self,
        accounts: &[RankAccount],
        stopped: Stopped,
        error: Option<String>,
        pacing: Option<PacingReport>,
    ) -> Result<RunReport, Error> {
        self.recorder.end(accounts, stopped, error, pacing)
    }
}
