//! A run in progress on one rank, as an object.
//!
//! It does not act on its own: it returns errors, and the caller decides how to handle the other
//! ranks.

use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_collective::{Collective, Rank};
use probe_sync_lines::Round;
use probe_sync_time::{NodeId, RunId};

use super::context::{Context, Started};
use super::ctl::{ControlSocket, Served};
use super::hang::HangSource;
use super::reconnect::Returning;
use super::recording::{self, Recorded};
use super::start::{self, Begun};
use crate::join::Joined;
use crate::measure::virtual_clocks::clock_of;
use crate::pace::Policy;
use crate::report::RunReport;
use crate::round::Rounds;
use crate::store::{MarkedProcess, forget_successors};
use crate::{Config, Error};

/// One rank of a running run.
///
/// It owns the threads that probe and take snapshot pairs. Dropping it only ends them: the files of
/// finished rounds remain, and the other ranks are not informed.
///
/// Two ranks in one process, with virtual clocks whose errors are known:
///
/// ```
/// use probe_sync::collective::InProcess;
/// use probe_sync::{Config, Context, Driver, Error, RunReport};
///
/// fn rank(mut collective: InProcess, config: Config) -> Result<Option<RunReport>, Error> {
///     let context = Context::default();
///     let mut driver = Driver::start(config, &mut collective, &context)?;
///     while let Some(round) = driver.next_round()? {
///         // This clock minus the reference clock: subtract it from a time on node 1 to get a time on node 0.
///         let offset_ns = round.all_nodes[1].offset_ns;
///         assert!(offset_ns.abs() < 20e6, "drawn within ±10 ms, then drifting by at most 50 ppm");
///     }
///     driver.stop()
/// }
///
/// let directory = tempfile::tempdir()?;
/// let mut config = Config::default();
/// for (key, text) in [("duration", "600ms"), ("window", "200ms"), ("inject_skew", "7")] {
///     config.set(key, text, "example")?;
/// }
/// config.out = directory.path().join("out");
/// let ranks = InProcess::group(2).into_iter().map(|collective| {
///     let config = config.clone();
///     std::thread::spawn(move || rank(collective, config))
/// });
/// let ranks: Vec<_> = ranks.collect();
/// let mut reports = ranks.into_iter().map(|rank| rank.join().expect("no panic"));
/// let report = reports.next().expect("rank 0")?.expect("rank 0 has the report");
/// assert_eq!(report.rounds, 3);
/// assert_eq!(report.truth.expect("virtual clocks").outside_hard_interval, 0);
/// assert!(reports.next().expect("rank 1")?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Driver<'c> {
    joined: Arc<Joined>,
    rounds: Rounds<'c>,
    rank: Rank,
    failed: bool,
    /// At the root, while the run is in progress.
    control: Option<ControlSocket>,
    /// What a rank that takes over from a lost master answers to from then on; `None` if it does
    /// already.
    served: Option<Served>,
    /// How this rank returns when its connection breaks; `None` if it does not.
    returning: Option<Returning>,
    /// This rank's recording of itself, until the run ends.
    _recording: Option<probe_sync_record::Session>,
}

/// State of a run on one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// This rank.
    pub rank: Rank,
    /// The rank's node, or the node that it follows.
    pub node: NodeId,
    /// Number of nodes.
    pub nodes: usize,
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
    /// Rounds solved so far.
    pub rounds: u64,
    /// True if no further round follows.
    pub ended: bool,
    /// At the master: ranks that were lost, or so late that the others continue without them, and
    /// have not returned.
    pub away: Vec<Rank>,
}

impl<'c> Driver<'c> {
    /// Meets the other ranks and begins to measure. A rank whose configuration is unusable calls
    /// [`Self::refuse`] instead.
    ///
    /// # Errors
    /// The first error; [`Error::Refused`] on all ranks.
    pub fn start(config: Config, collective: &'c mut dyn Collective, context: &Context) -> Result<Self, Error> {
        Self::start_at(Ok(config), collective, context, None)
    }

    /// Meets the other ranks only to tell them why this one cannot take part, so that all end with
    /// the same error, which is returned.
    pub fn refuse(reason: Error, collective: &'c mut dyn Collective, context: &Context) -> Error {
        match Self::start_at(Err(reason), collective, context, None) {
            Ok(_) => unreachable!("without a configuration no run begins"),
            Err(error) => error,
        }
    }

    /// Starts with a configuration, refuses with an error; with the pace of `policy` if given.
    pub(super) fn start_at(
        config: Result<Config, Error>,
        collective: &'c mut dyn Collective,
        context: &Context,
        policy: Option<Policy>,
    ) -> Result<Self, Error> {
        let (rank, leads) = (collective.rank(), collective.rank() == collective.root());
        let Begun { joined, rounds, hello } = start::start(config, collective, context, policy)?;
        let returning = hello.and_then(|hello| Returning::of(hello, context, &joined));
        let clock = clock_of(&joined, joined.plan.node_of_rank[rank]);
        let recorded = match &context.part {
            Some(part) => Recorded { rank: part.rank, ranks: None, node: None, clock },
            None => {
                let (ranks, node) = (Some(joined.ranks as u32), joined.plan.probes_for(rank));
                Recorded { rank: rank as u32, ranks, node, clock }
            }
        };
        let recording = recording::start(&joined.config, recorded)?;
        let listens = leads && joined.config.rounds.has_master();
        let hang = HangSource::new(context.hang.clone(), joined.plan.hostnames.clone());
        let served = Served::new(context.requests.clone(), hang);
        let control = listens.then(|| ControlSocket::open(&joined.config.out, served.clone())).flatten();
        Ok(Self {
            joined,
            rounds,
            rank,
            failed: false,
            control,
            served: Some(served),
            returning,
            _recording: recording,
        })
    }

    /// Waits for the end of the next round and returns it, on every rank; returns `None` if the run
    /// has ended.
    ///
    /// # Errors
    /// The first error. The results of rounds finished before are on disk, and at the root in
    /// `report.json`.
    pub fn next_round(&mut self) -> Result<Option<&Round>, Error> {
        if self.failed {
            return Ok(None);
        }
        // Each turn but the last is a connection that broke.
        loop {
            match self.rounds.advance() {
                Ok(true) => {
                    if self.joined.config.rounds.has_master()
                        && let Some(folder) = self.rounds.taken_over_in()
                        && let Some(served) = self.served.take()
                    {
                        self.control = ControlSocket::open(folder, served);
                    }
                    return Ok(self.rounds.last());
                }
                Ok(false) => {
                    forget_successors(&self.joined.config.out, self.rank);
                    return Ok(None);
                }
                Err(error) => self.come_back(error)?,
            }
        }
    }

    /// Rejoins the run if only this rank's connection broke.
    fn come_back(&mut self, error: Error) -> Result<(), Error> {
        let back = match &self.returning {
            Some(returning) if self.rounds.may_return(&error) => returning.come_back(&mut self.rounds, error),
            _ => Err(error),
        };
        self.joined = back.map_err(|error| self.failed(error))?;
        Ok(())
    }

    /// Returns the last solved round.
    pub fn round(&self) -> Option<&Round> {
        self.rounds.last()
    }

    /// At the root: returns the time from the end of its own window to the last solved round.
    pub fn latency(&self) -> Option<StdDuration> {
        self.rounds.latency()
    }

    /// Returns the state of the run on this rank.
    pub fn state(&self) -> State {
        let Joined { plan, roster, .. } = &*self.joined;
        State {
            rank: self.rank,
            node: plan.node_of_rank[self.rank],
            nodes: plan.nodes(),
            reference: roster.reference,
            rounds: self.rounds.last().map_or(0, |round| round.round_id.0 + 1),
            ended: self.failed || self.rounds.ended(),
            away: self.rounds.away(),
        }
    }

    /// Returns the identity of this process's marks, for [`crate::MarkWriter`].
    pub fn marked_process(&self) -> MarkedProcess {
        let Joined { plan, ranks, .. } = &*self.joined;
        let node = plan.node_of_rank[self.rank];
        MarkedProcess { rank: self.rank as u32, world_size: *ranks as u32, node, clock: clock_of(&self.joined, node) }
    }

    /// Returns the run id, and the node for which this rank takes snapshot pairs.
    pub(super) fn run(&self) -> (RunId, Option<NodeId>) {
        let Joined { plan, roster, .. } = &*self.joined;
        let taken = |node: &NodeId| roster.nodes[node.index()].tracer_clock.is_some();
        (plan.run, plan.probes_for(self.rank).filter(taken))
    }

    /// Returns what is known since the handshake.
    pub fn started(&self) -> Started<'_> {
        let Joined { config, plan, roster, edges, backend, ranks, .. } = &*self.joined;
        Started {
            config,
            backend,
            ranks: *ranks,
            nodes: plan.nodes(),
            hosts: (0..plan.nodes()).map(|node| plan.hostname(NodeId(node as u32))).collect(),
            clocks: plan.clocks,
            edges: edges.len(),
            reference: roster.reference,
            stamps: roster.nodes.iter().map(|ready| ready.stamp).collect(),
        }
    }

    /// Ends the run and returns the report at the root. Rounds in progress end on all ranks with
    /// the current window. The context's stop flag is unchanged, so that the same context can serve
    /// the next run. A driver that has returned an error has no report.
    ///
    /// # Errors
    /// The first error. At the root, `report.json` covers the finished rounds.
    pub fn stop(mut self) -> Result<Option<RunReport>, Error> {
        if !self.rounds.ended() {
            self.rounds.end_early();
        }
        while self.next_round()?.is_some() {}
        if self.failed {
            return Ok(None);
        }
        self.control = None;
        self.rounds.leave(false);
        match self.rounds.settle() {
            Ok(accounts) => self.rounds.report(&accounts, None).transpose(),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Writes the report on what is available; returns the first error.
    fn failed(&mut self, error: Error) -> Error {
        self.failed = true;
        self.control = None;
        self.rounds.leave(true);
        if let Some(Err(second)) = self.rounds.report(&[], Some(error.to_string())) {
            tracing::warn!("{second}");
        }
        error
    }
}
