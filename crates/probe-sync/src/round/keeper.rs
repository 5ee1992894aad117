//! The root's bookkeeping of the rounds: files, participants and durations.
//!
//! It runs only at the root, in every mode of decision: after a round is decided and before the
//! other ranks learn the result.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_collective::Rank;
use probe_sync_estimate::round::{GlobalWindowData, SolvedRound};
use probe_sync_files::OwnFolder;
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
    /// The folder of its own in which a rank goes on that took a lost master's place.
    taken_over_in: Option<PathBuf>,
}

impl Keeper {
    /// For a run that begins now.
    pub fn new(joined: &Joined, mut recorder: Recorder, hellos: Vec<Hello>) -> Self {
        let attendants = Attendants::new(joined, hellos);
        let limit = joined.config.start_timeout.unwrap_or_default();
        attendants.away().into_iter().for_each(|missing| recorder.missing(missing, limit));
        Self { recorder, attendants, latency: StdDuration::ZERO, taken_over_in: None }
    }

    /// For a run that goes on under this rank, in the place of another: files of its own, in a
    /// folder of its own, begin with the first round that it decides.
    ///
    /// # Errors
    /// When a file cannot be made.
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

    /// The ranks that are gone.
    pub fn away(&self) -> Vec<Rank> {
        self.attendants.away()
    }

    /// Where this rank goes on in a lost master's place.
    pub fn taken_over_in(&self) -> Option<&Path> {
        self.taken_over_in.as_deref()
    }

    /// What those must be told of the ranks who could take this one's place, if they do not know
    /// it.
    pub fn for_successors(&mut self) -> Option<Present> {
        self.attendants.for_successors()
    }

    /// How many ranks take part, this one among them.
    pub fn here(&self) -> u32 {
        self.attendants.here()
    }

    /// Whether a rank is there as it was from the start.
    pub fn is_steady(&self, rank: Rank) -> bool {
        self.attendants.is_steady(rank)
    }

    /// Keeps a round that the master before decided last, and that others have missed.
    pub fn record_missed(&mut self, round: &GlobalWindowData) {
        self.recorder.record(round, StdDuration::ZERO);
    }

    /// Takes down who has left, and decides on who asks to come back: the nodes that all are to be
    /// told of.
    ///
    /// # Errors
    /// When nobody could come back any more.
    pub fn attend(&mut self, round_id: RoundId, exchange: &mut Exchange<'_>) -> Result<Vec<Back>, Error> {
        self.attendants.attend(round_id, exchange, &mut self.recorder)
    }

    /// Takes down who has left, where nobody can come back.
    pub fn take_down(&mut self, round_id: RoundId, exchange: &mut Exchange<'_>) {
        self.attendants.take_down(round_id, exchange, &mut self.recorder);
    }

    /// What ranks that come back are told.
    pub fn notice(&self) -> &Notice {
        self.attendants.notice()
    }

    /// Keeps a round that was solved `latency` after the end of the root's own window; when this
    /// returns, a killed process cannot lose it.
    pub fn record(&mut self, solved: SolvedRound, latency: StdDuration) {
        self.latency = latency;
        self.recorder.record(&solved.data, latency);
        self.recorder.keep(&solved.data, solved.edges);
    }

    /// The folder of the run's files.
    pub fn folder(&self) -> &OwnFolder {
        self.recorder.folder()
    }

    /// What metrics tell of ranks that are late.
    pub fn late(&mut self, totals: &Totals) {
        self.recorder.late(totals);
    }

    /// What can wait until all ranks have the round.
    pub fn after_broadcast(&mut self, observed: &Observed<'_>) {
        let _scope = probe_sync_record::scope!(probe_sync_record::Kind::Io, "files");
        self.recorder.refresh_metrics(self.latency, observed);
    }

    /// Time from the end of the root's own window to the last solved round: its fits, the gather
    /// and the graph.
    pub fn latency(&self) -> StdDuration {
        self.latency
    }

    /// Makes and writes the report. Without accounts (the run failed) it speaks of finished rounds
    /// only.
    ///
    /// # Errors
    /// When a file cannot be written.
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
