//! A node's part of a round: it cuts the window, fits its edges and keeps its measurements.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use probe_sync_estimate::edge_fit::FitOptions;
use probe_sync_estimate::round::{WindowCut, fit_window};
use probe_sync_files::OwnFolder;
use probe_sync_lines::{NodeWindow, Punctuality};
use probe_sync_sys::TracerClock;
use probe_sync_time::{Duration, NodeId, RoundId, RunId, StampSource, System, Timestamp};

use crate::Error;
use crate::join::{Back, Joined, Ready, addresses_seen_from, stamp_errors_ns};
use crate::measure::account::RankAccount;
use crate::measure::counters::Counter;
use crate::measure::prober::{Prober, ProberSetup};
use crate::measure::snapshots::{self, Sampler};
use crate::measure::stop::Stop;
use crate::measure::virtual_clocks;
use crate::pace::Pace;
use crate::store::{
    Limits, ProbeLine, ProbeWindowLine, RunDirectory, SentPairs, Stream, StreamState, pairs_file, run_in,
};

/// A node with its threads and files. Dropping it ends the threads.
pub(crate) struct Node {
    node: NodeId,
    prober: Prober,
    /// `windows/nodeN.jsonl`.
    windows: Stream,
    /// `probes/nodeN.jsonl`, with `keep_probes`.
    probes: Option<Stream>,
    /// Takes snapshot pairs, with `tracer_clock`.
    sampler: Option<Sampler>,
    fit: FitOptions,
    /// Current state of the nodes, by number.
    nodes: Vec<Ready>,
    /// Peers to be probed whose ranks have not joined yet.
    unmet: Vec<NodeId>,
    /// Address at which the node receives probes.
    own: SocketAddr,
    /// Start of the current window.
    window_start: Timestamp<System>,
    last_window: Option<Duration>,
    /// Exchanges that no fit used because their stamp source differs from the window's best.
    left_out: u64,
    /// When the decision about the current window arrived.
    decision_at: Option<Timestamp<System>>,
}

impl Node {
    /// Starts probing and, if `tracer` is given, taking snapshot pairs. A node that is `back`
    /// continues the files of its earlier incarnation.
    ///
    /// # Errors
    /// Returns an error if a file or a thread cannot be created.
    pub fn start(
        setup: ProberSetup,
        tracer: Option<TracerClock>,
        joined: &Arc<Joined>,
        rank: usize,
        back: Option<&Back>,
    ) -> Result<Self, Error> {
        let Joined { config, plan, session_key, roster, edges, .. } = &**joined;
        let node = setup.node();
        let clock = virtual_clocks::clock_of(joined, node);
        let own = setup.local_addr();
        let addresses = addresses_seen_from(own, &roster.nodes);
        let (unmet, out_edges) = edges
            .iter()
            .filter(|edge| edge.src == node)
            .map(|edge| edge.dst)
            .partition(|peer| roster.nodes[peer.index()].is_missing());
        let directory = RunDirectory::join(&config.out)?;
        let limits = Limits::of(config);
        let stream = |name: String| match back {
            Some(_) => directory.go_on_with(&name, limits),
            None => directory.stream(&name, limits, None::<&u8>),
        };
        let windows = stream(format!("windows/node{node}.jsonl"))?;
        let probes = config.keep_probes.then(|| stream(format!("probes/node{node}.jsonl"))).transpose()?;
        let sample = |tracer: TracerClock| {
            let same_clocks = tracer.outlives_process() && back.is_some_and(|back| back.same_clocks);
            Sampler::start(tracer, clock.clone(), config.snapshot_pair_period, &directory, node, same_clocks)
        };
        let sampler = tracer.map(sample).transpose()?;
        let prober = Prober::start(
            setup,
            (plan.run, *session_key, back.map_or(0, |back| back.incarnation)),
            addresses,
            out_edges,
            clock,
            plan.place_on_host[rank],
            config,
        )?;
        Ok(Self {
            node,
            window_start: prober.system_now(),
            last_window: config.last_window,
            prober,
            windows,
            probes,
            sampler,
            fit: config.fit_options(),
            nodes: roster.nodes.clone(),
            own,
            unmet,
            left_out: 0,
            decision_at: None,
        })
    }

    /// Returns the state of the files of its windows and exchanges.
    fn files(&self) -> impl Iterator<Item = &StreamState> {
        [Some(&self.windows), self.probes.as_ref()].into_iter().flatten().map(Stream::state)
    }

    /// Returns the node's number.
    pub fn id(&self) -> NodeId {
        self.node
    }

    /// Returns the time of this node's system clock.
    pub fn now(&self) -> Timestamp<System> {
        self.prober.system_now()
    }

    /// Sleeps for `span`, or until `stop` is raised.
    ///
    /// # Errors
    /// Returns an error if the probe thread has ended.
    pub fn sleep(&mut self, span: Duration, stop: &Stop) -> Result<(), Error> {
        self.prober.wait(span, stop)
    }

    /// Returns true if its system clock was stepped in the current window, as far as that is known
    /// before its end.
    pub fn stepped(&self) -> bool {
        self.prober.stepped()
    }

    /// If a stop cuts a window short: returns how much longer it must last to contain enough data.
    pub fn missing(&self, stop: &Stop) -> Option<Duration> {
        let least = self.last_window.filter(|_| stop.raised())?;
        Some((least - (self.now() - self.window_start)).min(least))
    }

    /// Cuts the window, fits its edges and records both. Also returns when it was cut. `planned` is
    /// its planned end; `control_retries` is stored unchanged.
    ///
    /// # Errors
    /// Returns an error if the probe thread has ended.
    pub fn close_window(
        &mut self,
        round_id: RoundId,
        planned: Option<Timestamp<System>>,
        stop: &Stop,
        control_retries: u64,
    ) -> Result<(NodeWindow, Instant), Error> {
        let (mut cut, commands_waiting) = self.prober.cut()?;
        for edge in &mut cut.edges {
            edge.stamp_errors_ns = stamp_errors_ns(&self.nodes, edge.edge);
        }
        let closed = Instant::now();
        self.window_start = cut.end;
        let (mut data, left_out) = fit_window(&cut, round_id, &self.fit, stop.raised());
        let planned = planned.filter(|_| !stop.raised());
        data.punctuality = Punctuality {
            end_late_ns: planned.map(|end| (cut.end - end).as_ns()),
            decision_at: self.decision_at,
            commands_waiting,
            exchanges: by_stamp(&cut),
            files_stopped: self.files().filter(|file| file.stopped.is_some()).count() as u32,
            control_retries,
            snapshots: self.sampler.as_ref().map(Sampler::counts).unwrap_or_default(),
        };
        self.left_out += left_out;
        self.windows.append(&data);
        self.windows.end_round();
        if let Some(probes) = &mut self.probes {
            keep_probes(probes, round_id, &cut);
        }
        Ok((data, closed))
    }

    /// Adopts this pace.
    ///
    /// # Errors
    /// Returns an error if the cadence is not above zero.
    pub fn follow(&mut self, pace: &Pace) -> Result<(), Error> {
        self.decision_at = Some(self.now());
        if self.prober.cadence() != pace.cadence {
            self.prober.set_cadence(pace.cadence)?;
        }
        let extra = pace.extra_edges.iter().filter(|edge| edge.src == self.node);
        self.prober.set_extra_edges(extra.map(|edge| edge.dst).collect());
        Ok(())
    }

    /// Probes a node that has returned, or joined late, at its new address.
    pub fn meet_again(&mut self, back: &Back) {
        let Some(known) = self.nodes.get_mut(back.node.index()).filter(|_| back.node != self.node) else { return };
        known.clone_from(&back.ready);
        for address in addresses_seen_from(self.own, std::slice::from_ref(&back.ready)) {
            self.prober.set_address(back.node, address);
        }
        if let Some(met) = self.unmet.iter().position(|peer| *peer == back.node) {
            self.prober.add_edge(self.unmet.swap_remove(met));
        }
    }

    /// Starts or suspends starting exchanges.
    pub fn set_probing(&mut self, probing: bool) {
        self.prober.set_probing(probing);
    }

    /// Stops starting exchanges.
    pub fn stop_probing(&mut self) {
        self.prober.stop_probing();
    }

    /// Waits until this node's exchanges have ended, once probing has stopped.
    ///
    /// # Errors
    /// Returns an error if the probe thread has ended.
    pub fn let_end(&mut self) -> Result<(), Error> {
        self.prober.let_end()
    }

    /// Drains the network, once the exchanges of all nodes have ended, and returns the exact
    /// account, with at most `pairs_limit` bytes of snapshot pairs if this rank does not see the
    /// root's directory.
    ///
    /// # Errors
    /// Returns the error that ended a thread early.
    pub fn finish(self, run: RunId, pairs_limit: u64) -> Result<RankAccount, Error> {
        let mut files: Vec<StreamState> = self.files().cloned().collect();
        let folder = self.sampler.as_ref().map(|sampler| sampler.folder().clone());
        let pairs = self.sampler.map(Sampler::finish).transpose()?;
        let mut account = self.prober.finish()?;
        account.pairs = folder.and_then(|folder| pairs_for_root(&folder, self.node, run, pairs_limit));
        if let Some((counts, lines)) = pairs {
            account.counters.extend(snapshots::counts(counts));
            let not_sent = account.pairs.as_ref().map_or(0, |pairs| pairs.left_out);
            account.counters.push((Counter::SnapshotsNotSent, not_sent));
            files.push(lines);
        }
        files.retain(StreamState::lacks_something);
        account.files = files;
        account.counters.push((Counter::ExchangesOfMixedStamps, self.left_out));
        Ok(account)
    }
}

/// Returns the node's snapshot pairs if `folder` is not the root's directory, which has the
/// description of this run. They can still be copied from here if they cannot be read now.
fn pairs_for_root(folder: &OwnFolder, node: NodeId, run: RunId, limit: u64) -> Option<SentPairs> {
    if run_in(folder.path()).is_some_and(|found| found == run.to_string()) {
        return None;
    }
    let name = pairs_file(node);
    let read = SentPairs::read(folder, &name, limit);
    read.inspect_err(|error| {
        let path = folder.path_of(&name);
        tracing::warn!("cannot read {} to send it to rank 0: {error}", path.display());
    })
    .ok()
}

/// Returns the number of exchanges of a window by stamp source.
fn by_stamp(cut: &WindowCut) -> Vec<(StampSource, u32)> {
    let mut counts = std::collections::BTreeMap::new();
    for exchange in cut.edges.iter().flat_map(|edge| &edge.exchanges) {
        *counts.entry(exchange.stamp).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

fn keep_probes(file: &mut Stream, round_id: RoundId, cut: &WindowCut) {
    for exchange in cut.edges.iter().flat_map(|edge| &edge.exchanges) {
        file.append(&ProbeLine::new(round_id, exchange));
    }
    file.append(&ProbeWindowLine::new(round_id, cut));
    file.end_round();
}
