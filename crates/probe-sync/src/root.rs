//! What only rank 0 keeps during a run: the shared files, the judge of known truth, the report.
//!
//! Place in the flow: `rounds` hands every solved round to [`RootState::solved`]; [`RootState::end`] makes the report, from
//! finished rounds alone when the run failed. What it does not do: solve, broadcast, print.

use std::collections::BTreeMap;
use std::time::Duration as StdDuration;

use probe_sync_collective::Collective;
use probe_sync_estimate::faults::{Fault, FaultKind};
use probe_sync_estimate::record::{NodeRecord, OffsetRecord, OffsetsHeader};
use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_estimate::window::{ClockEvent, NodeEstimate};
use probe_sync_time::{Edge, NodeId, RoundId, SkewedClock, StampSource};
use serde_json::{Value, json};

use crate::adaptive::PacingReport;
use crate::files::{JsonLines, RunDirectory};
use crate::report::{self, Judge, NodeRow, RankAccount, RunReport, SIGMAS_95, TruthVerdict};
use crate::roster::Roster;
use crate::run::{Setup, Started};
use crate::{Error, metrics, truth};

/// Rank 0's part of a run.
pub(crate) struct RootState<'a> {
    setup: &'a Setup<'a>,
    roster: &'a Roster,
    backend: &'static str,
    ranks: usize,
    directory: RunDirectory,
    /// `run.json` as it was written first.
    document: Value,
    offsets: JsonLines,
    global_windows: JsonLines,
    judge: Judge,
    latencies_us: Vec<f64>,
    last: Option<GlobalWindowData>,
    rounds: u64,
    clock_events: Vec<(RoundId, NodeId, ClockEvent)>,
    faults: Vec<Fault>,
    faults_by_kind: BTreeMap<FaultKind, u64>,
}

impl<'a> RootState<'a> {
    /// Writes `run.json`, `truth.json` where there is truth, and the heads of the streams.
    pub(crate) fn begin(
        setup: &'a Setup<'a>,
        collective: &dyn Collective,
        roster: &'a Roster,
        edges: &[Edge],
        directory: RunDirectory,
    ) -> Result<Self, Error> {
        let document = run_document(setup, collective, roster, edges);
        directory.write_document("run.json", &format!("{document:#}\n"))?;
        let mut clocks: Vec<SkewedClock> = Vec::new();
        if setup.config.inject_skew.is_some() {
            let nodes = 0..setup.plan.nodes() as u32;
            clocks = nodes.map(|n| truth::virtual_clock(setup.config, NodeId(n), roster.start.as_ns())).collect();
            let document = truth::document(setup.config, &clocks, roster.start.as_ns());
            directory.write_document("truth.json", &format!("{document:#}\n"))?;
        }
        let mut offsets = directory.stream("offsets.jsonl")?;
        let starts = roster.nodes.iter().enumerate().map(|(node, presence)| {
            let hostname = setup.plan.hostname(NodeId(node as u32)).to_owned();
            NodeRecord {
                hostname: Some(hostname),
                node_id: NodeId(node as u32),
                start_gpu_ns: Some(presence.tracer_ns),
                start_walltime_ns: Some(presence.walltime_ns),
            }
        });
        offsets.append(&OffsetsHeader { meta: true, nodes: starts.collect(), reference: truth::REFERENCE })?;
        offsets.flush()?;
        Ok(Self {
            setup,
            roster,
            backend: collective.backend(),
            ranks: collective.size(),
            offsets,
            global_windows: directory.stream("global_windows.jsonl")?,
            directory,
            document,
            judge: Judge::new(clocks),
            latencies_us: Vec::new(),
            last: None,
            rounds: 0,
            clock_events: Vec::new(),
            faults: Vec::new(),
            faults_by_kind: BTreeMap::new(),
        })
    }

    /// What the observer is told first.
    pub(crate) fn started(&self, edges: usize) -> Started<'a> {
        Started {
            config: self.setup.config,
            backend: self.backend,
            ranks: self.ranks,
            nodes: self.setup.plan.nodes(),
            clocks: self.setup.plan.clocks,
            edges,
            stamp: self.roster.nodes.iter().map(|presence| presence.stamp).max().unwrap_or(StampSource::User),
        }
    }

    /// Writes a solved round; when this returns, a killed process cannot lose it.
    pub(crate) fn solved(&mut self, round: &GlobalWindowData, latency: StdDuration) -> Result<(), Error> {
        for line in OffsetRecord::of_round(round) {
            self.offsets.append(&line)?;
        }
        self.offsets.flush()?;
        self.global_windows.append(round)?;
        self.global_windows.flush()?;
        self.judge.observe(round);
        self.rounds += 1;
        if self.latencies_us.len() < MAX_KEPT {
            self.latencies_us.push(latency.as_secs_f64() * 1e6);
        }
        let room = MAX_KEPT - self.clock_events.len();
        let events = round.clock_events.iter().take(room);
        self.clock_events.extend(events.map(|(node, event)| (round.round_id, *node, *event)));
        let room = MAX_KEPT - self.faults.len();
        self.faults.extend(round.watch.faults.iter().take(room).cloned());
        for fault in &round.watch.faults {
            *self.faults_by_kind.entry(fault.kind).or_default() += 1;
        }
        self.last = Some(round.clone());
        // Every rank waits for the broadcast that follows: no verdict over all rounds here, and no waiting for the disk.
        let metrics = metrics::render(&self.report(&[], None, false, None));
        self.directory.refresh_document("metrics.prom", &metrics)
    }

    /// Makes and writes the report. Without accounts (the run failed) it speaks of finished rounds only.
    pub(crate) fn end(
        self,
        accounts: &[RankAccount],
        interrupted: bool,
        error: Option<String>,
        pacing: Option<PacingReport>,
    ) -> Result<RunReport, Error> {
        let mut report = self.report(accounts, self.judge.verdict(), interrupted, error);
        if let Some(pacing) = &pacing {
            let mut document = self.document;
            document["pacing"] = json!(pacing);
            self.directory.write_document("run.json", &format!("{document:#}\n"))?;
        }
        report.pacing = pacing;
        self.directory.write_document("metrics.prom", &metrics::render(&report))?;
        self.directory.write_document("report.json", &format!("{:#}\n", json!(report)))?;
        Ok(report)
    }

    fn report(
        &self,
        accounts: &[RankAccount],
        truth: Option<TruthVerdict>,
        interrupted: bool,
        error: Option<String>,
    ) -> RunReport {
        let plan = self.setup.plan;
        let of_nodes: Vec<&RankAccount> =
            plan.rank_of_node.iter().filter_map(|rank| accounts.get(*rank as usize)).collect();
        let mut counters = BTreeMap::new();
        for (name, count) in accounts.iter().flat_map(|account| &account.counters) {
            *counters.entry(name.clone()).or_insert(0) += count;
        }
        let wall = accounts.iter().map(|account| account.wall_ns).max().unwrap_or(0);
        let cpu: u64 = accounts.iter().map(|account| account.cpu_ns).sum();
        RunReport {
            run_id: plan.run.to_string(),
            backend: self.backend.into(),
            ranks: self.ranks,
            rounds: self.rounds,
            interrupted,
            error,
            out: self.setup.config.out.display().to_string(),
            nodes: self.rows(&of_nodes),
            truth,
            packets: report::directions(&of_nodes),
            unreachable_peers: report::unreachable_peers(&of_nodes, self.roster),
            counters,
            cpu_cores: cpu as f64 / wall.max(1) as f64,
            seconds: wall as f64 * 1e-9,
            round_latency_us: [
                report::median(self.latencies_us.clone()),
                self.latencies_us.iter().copied().fold(0.0, f64::max),
            ],
            clock_events: self.clock_events.clone(),
            faults: self.faults.clone(),
            faults_by_kind: self.faults_by_kind.clone(),
            asymmetry_sd_ns: self.last.as_ref().map_or(0.0, |round| round.asymmetry_sd_ns),
            pacing: None,
        }
    }

    fn rows(&self, accounts: &[&RankAccount]) -> Vec<NodeRow> {
        let Some(last) = &self.last else { return Vec::new() };
        last.all_nodes.iter().map(|estimate| self.row(estimate, last, accounts)).collect()
    }

    fn row(&self, estimate: &NodeEstimate, last: &GlobalWindowData, accounts: &[&RankAccount]) -> NodeRow {
        let node = estimate.node_id;
        let account = accounts.get(node.index());
        let truth = self.judge.true_offset_ns(node, last);
        let finite = |bound: f64| bound.is_finite().then_some(bound);
        NodeRow {
            node_id: node,
            rank: self.setup.plan.rank_of_node[node.index()],
            host: self.setup.plan.hostname(node).into(),
            stamp: account.and_then(|account| account.stamp).unwrap_or(self.roster.nodes[node.index()].stamp),
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

/// The content of `run.json`.
fn run_document(setup: &Setup<'_>, collective: &dyn Collective, roster: &Roster, edges: &[Edge]) -> Value {
    let plan = setup.plan;
    let configuration: serde_json::Map<String, Value> =
        setup.config.entries().into_iter().map(|(key, value)| (key, Value::String(value))).collect();
    let nodes: Vec<Value> = roster
        .nodes
        .iter()
        .enumerate()
        .map(|(node, presence)| {
            let rank = plan.rank_of_node[node];
            json!({"node_id": node, "rank": rank, "hostname": plan.hostnames[rank as usize],
                   "address": presence.address.to_string(), "stamp": presence.stamp})
        })
        .collect();
    // One entry per clock: ranks of one host say the same.
    let mut hosts = serde_json::Map::new();
    for introduction in setup.introductions {
        let facts = serde_json::from_str(&introduction.host_facts).unwrap_or(Value::Null);
        hosts.entry(introduction.clock_identity.clone()).or_insert(facts);
    }
    json!({
        "run_id": plan.run.to_string(), "version": env!("CARGO_PKG_VERSION"), "backend": collective.backend(),
        "ranks": collective.size(), "reference": truth::REFERENCE, "start_ns": roster.start.as_ns(),
        "configuration": configuration, "nodes": nodes, "node_of_rank": plan.node_of_rank,
        "edges": edges.iter().map(|edge| [edge.src, edge.dst]).collect::<Vec<_>>(), "hosts": hosts,
    })
}

/// Latencies and clock events kept for the report: two days of rounds of 4 s.
const MAX_KEPT: usize = 43_200;
