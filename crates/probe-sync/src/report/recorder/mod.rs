//! The data that only rank 0 keeps during a run: the shared files, the judge of known truth and the
//! report.
//!
//! The master passes every solved round to [`Recorder::record`] before it is broadcast, and
//! requests updated metrics afterwards; [`Recorder::end`] makes the report, which covers only
//! finished rounds if the run failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration as StdDuration;

use probe_sync_files::OwnFolder;
use probe_sync_lines::{ClockEvent, EdgeFit, Fault, FaultKind, NodeEstimate, OffsetRecord, OffsetsHeader, Round};
use probe_sync_time::{Duration, NodeId, RoundId};
use serde_json::{Value, json};

use super::absences::Absences;
use super::judge::Judge;
use super::metrics::{Metrics, MetricsServer, Observed, prometheus_text, whole};
use super::phases::Phases;
use super::whole::Whole;
use super::{Carrier, NodeRow, RunReport, SIGMAS_95, TakenOver, TruthVerdict, documents, median};
use crate::join::{Back, Hello, Joined, Ready, Roster};
use crate::late::Totals;
use crate::measure::account::RankAccount;
use crate::measure::virtual_clocks::{self, Truth};
use crate::pace::adaptive::PacingReport;
use crate::store::{Limits, RunDirectory, Stream, StreamState};
use crate::{Config, Error};

/// Rank 0's records of a run.
pub(crate) struct Recorder {
    joined: Arc<Joined>,
    /// Current state of the nodes, by number.
    nodes: Vec<Ready>,
    absences: Absences,
    taken_over: Option<TakenOver>,
    directory: RunDirectory,
    /// `run.json` as first written.
    document: Value,
    /// First line of offsets files.
    header: OffsetsHeader,
    offsets: Stream,
    global_windows: Stream,
    judge: Judge,
    phases: Phases,
    carriers: Vec<Carrier>,
    latencies: Latencies,
    last: Option<Round>,
    rounds: u64,
    clock_events: Vec<(RoundId, NodeId, ClockEvent)>,
    faults: Vec<Fault>,
    faults_by_kind: BTreeMap<FaultKind, u64>,
    /// Nodes whose offset some round determined.
    reached: BTreeSet<NodeId>,
    metrics: Metrics,
    metrics_server: Option<MetricsServer>,
    /// Why metrics could not be written, and how often.
    metrics_failures: BTreeMap<String, u64>,
    whole: Whole,
}

/// How a run ended.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Stopped {
    /// True if the end was requested.
    pub asked: bool,
    /// True if a signal ended it that the launcher follows with a kill.
    pub killed_soon: bool,
}

/// Latencies of rounds, sorted.
#[derive(Clone, Debug, Default)]
struct Latencies(Vec<f64>);

impl Recorder {
    /// Writes `run.json`, `truth.json` if the truth is known, and the headers of the streams.
    pub fn begin(
        joined: Arc<Joined>,
        hellos: &[Hello],
        mut directory: RunDirectory,
        taken_over: Option<TakenOver>,
    ) -> Result<Self, Error> {
        let mut document = documents::run(&joined, hellos);
        document["taken_over"] = json!(taken_over);
        directory.write_document("run.json", &format!("{document:#}\n"))?;
        directory.started();
        let Joined { config, plan, roster, .. } = &*joined;
        let truth = Truth::of(config, &plan.clock_numbers, roster.reference, roster.start);
        if truth.is_known() {
            let document = virtual_clocks::document(config, truth.clocks(), roster.reference, roster.start);
            directory.write_document(virtual_clocks::TRUTH, &format!("{document:#}\n"))?;
        }
        let header = documents::offsets_header(&joined, hellos);
        let limits = Limits::of(config);
        let offsets = directory.stream("offsets.jsonl", limits, Some(&header))?;
        let hosts: Vec<&str> = (0..plan.nodes()).map(|node| plan.hostname(NodeId(node as u32))).collect();
        let metrics = Metrics::new(&hosts, config.pacing().map(|options| options.target_ns));
        Ok(Self {
            metrics,
            metrics_server: metrics_server(config, taken_over.is_some())?,
            judge: Judge::new(truth, roster.reference),
            header,
            offsets,
            global_windows: directory.stream("global_windows.jsonl", limits, None::<&u8>)?,
            directory,
            document,
            phases: Phases::default(),
            carriers: Vec::new(),
            latencies: Latencies::default(),
            last: None,
            rounds: 0,
            clock_events: Vec::new(),
            faults: Vec::new(),
            faults_by_kind: BTreeMap::new(),
            reached: BTreeSet::new(),
            metrics_failures: BTreeMap::new(),
            whole: Whole::default(),
            nodes: roster.nodes.clone(),
            absences: Absences::default(),
            taken_over,
            joined,
        })
    }

    /// Writes a solved round; once this returns, killing the process cannot lose it.
    pub fn record(&mut self, round: &Round, latency: StdDuration) {
        for line in OffsetRecord::of_round(round) {
            self.offsets.append(&line);
        }
        self.offsets.end_round();
        if self.is_kept(round) {
            self.global_windows.append(round);
            self.global_windows.end_round();
        }
        self.judge.observe(round);
        self.phases.observe(round);
        self.observe_carrier(round);
        self.rounds += 1;
        self.reached.extend(round.all_nodes.iter().filter(|node| node.reachable).map(|node| node.node_id));
        self.latencies.add(latency.as_secs_f64() * 1e6);
        let room = MAX_KEPT - self.clock_events.len();
        let events = round.clock_events.iter().take(room);
        self.clock_events.extend(events.map(|(node, event)| (round.round_id, *node, *event)));
        let room = MAX_KEPT - self.faults.len();
        self.faults.extend(round.watch.faults.iter().take(room).cloned());
        for fault in &round.watch.faults {
            *self.faults_by_kind.entry(fault.kind).or_default() += 1;
        }
        self.last = Some(round.clone());
    }

    /// Returns true for one in `keep_every` rounds, and for all with events that alignment needs.
    fn is_kept(&self, round: &Round) -> bool {
        let watch = &round.watch;
        let happened = !round.clock_events.is_empty() || !watch.breaks.is_empty() || !watch.faults.is_empty();
        happened || round.round_id.0.is_multiple_of(self.joined.config.keep_every)
    }

    /// Records which node carries the reference's timeline, and logs changes.
    fn observe_carrier(&mut self, round: &Round) {
        let Some(node) = round.carried_by else { return };
        let half_width_95_ns = round.node(node).map_or(f64::INFINITY, |own| own.sigma_ns * SIGMAS_95);
        if let Some(last) = self.carriers.last_mut().filter(|last| last.node == node) {
            last.half_width_95_ns = half_width_95_ns;
        } else if self.carriers.len() < MAX_KEPT {
            let before = self.carriers.last().map_or(round.reference, |last| last.node);
            tracing::warn!(
                "node {before}, whose clock was the timeline of all offsets, is lost: from round {} on the clock of node {node} \
                maintains it, with ±{half_width_95_ns:.0} ns (95 %) and growing",
                round.round_id
            );
            self.carriers.push(Carrier { node, since: round.round_id, half_width_95_ns });
        }
    }

    /// Records that a rank is gone and the run continues without it from this round on.
    pub fn left(&mut self, rank: usize, from: RoundId, reason: &str) {
        let plan = &self.joined.plan;
        self.absences.left(plan, rank, from, reason, self.joined.backend);
        self.metrics.rank(rank, &plan.hostnames[rank], true, self.absences.away());
    }

    /// Records that a rank has not joined within this time, so the run begins without it.
    pub fn missing(&mut self, rank: usize, limit: Duration) {
        self.absences.missing(&self.joined.plan, rank, limit);
        self.metrics.rank(rank, "", true, self.absences.away());
    }

    /// Records that a missing rank has joined from a previously unknown host: `run.json` and the
    /// smoothed offsets name it from now on. The first line of `offsets.jsonl` is unchanged.
    pub fn came(&mut self, rank: usize, hellos: &[Hello], roster: &Roster) {
        let mut joined = Joined { roster: roster.clone(), ..Joined::clone(&self.joined) };
        joined.plan.know(rank, hellos);
        let host = &joined.plan.hostnames[rank];
        self.absences.came(rank, host);
        self.metrics.came(rank, joined.plan.probes_for(rank), host);
        self.header = documents::offsets_header(&joined, hellos);
        self.document = documents::run(&joined, hellos);
        self.document["taken_over"] = json!(self.taken_over);
        if let Err(error) = self.directory.refresh_document("run.json", &format!("{:#}\n", self.document)) {
            tracing::warn!("{error}; it does not name the host of rank {rank}");
        }
        self.joined = Arc::new(joined);
    }

    /// Records that a rank takes part again from the end of this round on.
    pub fn returned(&mut self, rank: usize, round: RoundId) {
        self.absences.back(rank, round);
        self.metrics.rank(rank, &self.joined.plan.hostnames[rank], false, self.absences.away());
    }

    /// Records that a node probes again.
    pub fn meet_again(&mut self, back: &Back) {
        self.nodes[back.node.index()].clone_from(&back.ready);
    }

    /// Keeps the edges of a recorded round, for smoothing the whole run.
    pub fn keep(&mut self, round: &Round, edges: Vec<EdgeFit>) {
        self.whole.take(round, edges);
    }

    /// Returns the folder of the run's files.
    pub fn folder(&self) -> &OwnFolder {
        self.directory.folder()
    }

    /// Updates the metrics of late ranks.
    pub fn late(&mut self, totals: &Totals) {
        self.metrics.late(totals);
    }

    /// Adds the observations of the last recorded round, and publishes the metrics. Called after
    /// the broadcast, for which every rank waits.
    pub fn refresh_metrics(&mut self, latency: StdDuration, observed: &Observed<'_>) {
        if let Some(last) = &self.last {
            self.metrics.round(last, latency, observed);
        }
        self.metrics.streams([self.offsets.state(), self.global_windows.state()], observed.windows);
        self.tell_metrics();
    }

    fn tell_metrics(&mut self) {
        let metrics = self.metrics.render();
        self.store_metrics(&prometheus_text(&whole(&metrics, None)));
        if let Some(server) = &self.metrics_server {
            server.publish(metrics);
        }
    }

    /// Creates and writes the report. Without accounts (the run failed) it covers finished rounds
    /// only.
    pub fn end(
        mut self,
        accounts: &[RankAccount],
        stopped: Stopped,
        error: Option<String>,
        pacing: Option<PacingReport>,
    ) -> Result<RunReport, Error> {
        let mut report =
            self.report(accounts, self.judge.verdict(), stopped.asked && self.joined.config.duration.is_some(), error);
        if let Some(pacing) = &pacing {
            self.document["pacing"] = json!(pacing);
            self.write_at_end("run.json", &self.document);
        }
        report.pacing = pacing;
        self.metrics.end(report.cpu_cores, &report.counters);
        self.tell_metrics();
        for (cause, times) in self.metrics_failures.iter().filter(|(_, times)| **times > 1) {
            tracing::warn!("{cause}: {times} times in this run");
        }
        report.unwritten.extend(self.write_at_end("report.json", &json!(report)));
        // Last: whoever ends the ranks of a run in a hurry has all else by now.
        if report.error.is_none() {
            // What was measured is on the disk: offsets that only suffice better are no reason to
            // call the run failed.
            if let Err(error) = self.whole.write(&self.directory, &self.header, stopped.killed_soon) {
                tracing::warn!("cannot write the offsets of the whole run: {error}");
            }
        }
        Ok(report)
    }

    /// Writes a document at the end of the run. A failure is logged but does not prevent the
    /// report. Returns the reason if the document is missing.
    fn write_at_end(&self, name: &str, document: &Value) -> Option<String> {
        let error = self.directory.write_document(name, &format!("{document:#}\n")).err()?;
        tracing::error!("{error}");
        Some(error.to_string())
    }

    /// Returns the root's files, and those of all ranks that are incomplete.
    fn files(&self, accounts: &[RankAccount]) -> Vec<StreamState> {
        let shared = [&self.offsets, &self.global_windows].map(Stream::state);
        let lacking = shared.into_iter().filter(|state| state.lacks_something());
        lacking.chain(accounts.iter().flat_map(|account| &account.files)).cloned().collect()
    }

    /// Writes the metrics. A failure does not end the run; each cause is logged once, and counted.
    fn store_metrics(&mut self, text: &str) {
        let Err(error) = self.directory.refresh_document("metrics.prom", text) else { return };
        let (cause, known) = (error.to_string(), self.metrics_failures.len());
        if !self.metrics_failures.contains_key(&cause) {
            if known >= CAUSES_MAX {
                return;
            }
            tracing::warn!("{cause}; the run continues without updating its metrics");
        }
        *self.metrics_failures.entry(cause).or_default() += 1;
    }

    fn report(
        &self,
        accounts: &[RankAccount],
        truth: Option<TruthVerdict>,
        interrupted: bool,
        error: Option<String>,
    ) -> RunReport {
        let Joined { config, plan, roster, .. } = &*self.joined;
        let of_nodes: Vec<&RankAccount> =
            plan.rank_of_node.iter().filter_map(|rank| accounts.get(*rank as usize)).collect();
        let mut counters = BTreeMap::new();
        for (counter, count) in accounts.iter().flat_map(|account| &account.counters) {
            *counters.entry(*counter).or_insert(0) += count;
        }
        let wall = accounts.iter().map(|account| account.wall_ns).max().unwrap_or(0);
        let cpu: u64 = accounts.iter().map(|account| account.cpu_ns).sum();
        let whole = |node| !self.absences.was_away(node, plan);
        let mut unreachable_peers = super::unreachable_peers(&of_nodes, &self.nodes);
        // Whoever is gone has been named.
        unreachable_peers.retain(|peer| !self.absences.is_away(peer.dst, plan));
        RunReport {
            schema: super::SCHEMA,
            run_id: plan.run.to_string(),
            backend: self.joined.backend.into(),
            ranks: self.joined.ranks,
            reference: roster.reference,
            rounds: self.rounds,
            round_mode: config.rounds.name().into(),
            interrupted,
            error,
            out: config.out.display().to_string(),
            nodes: self.rows(&of_nodes),
            truth,
            absences: self.absences.all(),
            packets: super::directions(&of_nodes, whole),
            unreachable_peers,
            never_reached: self.never_reached(),
            counters,
            cpu_cores: cpu as f64 / wall.max(1) as f64,
            seconds: wall as f64 * 1e-9,
            round_latency_us: self.latencies.median_and_largest_us(),
            clock_events: self.clock_events.clone(),
            taken_over: self.taken_over,
            carriers: self.carriers.clone(),
            phases: self.phases.all(),
            faults: self.faults.clone(),
            faults_by_kind: self.faults_by_kind.clone(),
            asymmetry_sd_ns: self.last.as_ref().map_or(0.0, |round| round.asymmetry_sd_ns),
            pacing: None,
            files: self.files(accounts),
            unwritten: Vec::new(),
        }
    }

    fn never_reached(&self) -> Vec<NodeId> {
        let nodes = self.last.iter().flat_map(|round| &round.all_nodes).map(|node| node.node_id);
        nodes.filter(|node| !self.reached.contains(node)).collect()
    }

    fn rows(&self, accounts: &[&RankAccount]) -> Vec<NodeRow> {
        let Some(last) = &self.last else { return Vec::new() };
        last.all_nodes.iter().map(|estimate| self.row(estimate, last, accounts)).collect()
    }

    fn row(&self, estimate: &NodeEstimate, last: &Round, accounts: &[&RankAccount]) -> NodeRow {
        let node = estimate.node_id;
        let account = accounts.get(node.index());
        let truth = self.judge.true_offset_ns(node, last);
        let finite = |bound: f64| bound.is_finite().then_some(bound);
        NodeRow {
            node_id: node,
            rank: self.joined.plan.rank_of_node[node.index()],
            host: self.joined.plan.hostname(node).into(),
            stamp: account.and_then(|account| account.stamp).unwrap_or(self.nodes[node.index()].stamp),
            reachable: estimate.reachable,
            clock_disturbed: last.clock_disturbed(node),
            offset_ns: estimate.offset_ns,
            drift_ppm: estimate.drift_ppm,
            half_width_95_ns: estimate.sigma_ns * SIGMAS_95,
            hard_interval_ns: [finite(estimate.bound_lo_ns), finite(estimate.bound_hi_ns)],
            edges: estimate.edges_used,
            lost: account.map_or(0, |account| account.exchanges.iter().map(|edge| edge.lost).sum()),
            true_offset_ns: truth,
            error_ns: truth.filter(|_| estimate.reachable).map(|truth| estimate.offset_ns - truth),
            bounds_held: self.judge.bounds_held(node),
        }
    }
}

/// Serves the metrics if requested. The address may belong to the first master; a rank that takes
/// over then does without.
fn metrics_server(config: &Config, taken_over: bool) -> Result<Option<MetricsServer>, Error> {
    match config.metrics_listen.map(MetricsServer::start).transpose() {
        Err(error) if taken_over => {
            tracing::warn!("{error}; metrics are only written to metrics.prom");
            Ok(None)
        }
        other => other,
    }
}

impl Latencies {
    fn add(&mut self, us: f64) {
        if self.0.len() < MAX_KEPT {
            let place = self.0.partition_point(|other| *other < us);
            self.0.insert(place, us);
        }
    }

    /// Returns zero if there are none.
    fn median_and_largest_us(&self) -> [f64; 2] {
        let sorted = &self.0;
        let Some(largest) = sorted.last() else { return [0.0; 2] };
        [median(sorted.iter().copied()), *largest]
    }
}

/// Most different reasons why metrics cannot be written; a system has no more.
const CAUSES_MAX: usize = 16;
/// Most latencies and clock events kept for the report: two days of 4 s rounds.
const MAX_KEPT: usize = 43_200;

#[cfg(test)]
mod tests;
