//! A whole run on one rank: hand-shake, probe thread, rounds, files, final accounts.
//!
//! Every rank calls [`run()`]; rank 0 is the root, which writes the shared files and returns the report.
//! What it does not do: choose the backend, handle signals, print.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration as StdDuration, Instant};

use probe_sync_collective::{Collective, Frames, Patience, ROOT};
use probe_sync_estimate::window::GlobalWindowData;
use probe_sync_probe::topology;
use probe_sync_sys::topology::Topology;
use probe_sync_sys::{clock, host};
use probe_sync_time::{Clock, Edge, NodeId, RunId, SkewedClock, StampSource};
use serde_json::{Value, json};

use crate::files::{self, JsonLines, RunDirectory};
use crate::metrics;
use crate::policy::{Fixed, Pace};
use crate::probing::{Prober, ProberSetup};
use crate::report::{self, Judge, NodeRow, RankAccount, RunReport, SIGMAS_95};
use crate::roster::{self, Introduction, Plan, Presence, Roster};
use crate::rounds::{Master, NodeRounds, Rounds};
use crate::{Config, Error, truth, wire};

/// What a run needs from its caller besides configuration and peers.
#[derive(Clone, Debug)]
pub struct Context {
    /// Raise it to end the run: the window under way is cut, everything is flushed.
    pub stop: Arc<AtomicBool>,
    /// The local address that leads to rank 0, if known.
    pub towards_root: Option<IpAddr>,
}

/// Told what happens, at rank 0 only.
pub trait Observer {
    /// The hand-shake is done.
    fn started(&mut self, started: &Started<'_>);
    /// A round was solved, `latency` after its window's end.
    fn round(&mut self, round: &GlobalWindowData, latency: StdDuration);
}

/// What is known once the hand-shake is done.
#[derive(Debug)]
pub struct Started<'a> {
    /// The settings.
    pub config: &'a Config,
    /// How the ranks talk.
    pub backend: &'static str,
    /// Number of ranks.
    pub ranks: usize,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of distinct system clocks.
    pub clocks: u32,
    /// Number of edges.
    pub edges: usize,
    /// The poorest timestamps of any node.
    pub stamp: StampSource,
}

/// Runs to the configured duration or until stopped. The report comes back at rank 0.
///
/// A rank whose configuration is unusable still takes part in the hand-shake, so that all ranks end with its error.
///
/// # Errors
/// The first error; [`Error::Refused`] on every rank alike.
pub fn run(
    config: Result<Config, Error>,
    collective: &mut dyn Collective,
    context: &Context,
    observer: &mut dyn Observer,
) -> Result<Option<RunReport>, Error> {
    let handshake = Patience::new(HANDSHAKE_LIMIT, Some(Arc::clone(&context.stop)));
    let host = host::Host::detect();
    let introduction = config.as_ref().map(|config| introduce(config, &host)).map_err(ToString::to_string);
    let (plan, introductions) =
        roster::introduce(collective, config.as_ref().ok(), &introduction, new_run_id(), &handshake)?;
    let config = config?;
    let mut setup = Setup { config: &config, plan: &plan, introductions: &introductions };
    // The root's directory first: ranks that share it recognise their run by its run.json.
    let claimed = if collective.rank() == ROOT { claim_directory(&config, plan.run) } else { Ok(()) };
    let bound = plan.probes_for(collective.rank()).map(|node| claimed.and_then(|()| setup.bind(node, context)));
    let presence = bound.as_ref().map(|bound| match bound {
        Ok((_, presence)) => Ok(presence.clone()),
        Err(reason) => Err(reason.clone()),
    });
    let start_ns = clock::SystemClock.now().as_ns();
    let roster = roster::assemble(collective, &plan, presence.as_ref(), start_ns, &handshake)?;
    // After a successful assembly no node failed to bind.
    let bound = bound.and_then(Result::ok).map(|(bound, _)| bound);
    setup.run(collective, &roster, bound, context, observer)
}

/// The settled parts of a run.
struct Setup<'a> {
    config: &'a Config,
    plan: &'a Plan,
    introductions: &'a [Introduction],
}

impl Setup<'_> {
    /// Binds the node's socket; the error says why this rank cannot take part.
    fn bind(&self, node: NodeId, context: &Context) -> Result<(ProberSetup, Presence), String> {
        let outward = host::outward_address(self.config.interface.as_deref());
        let address = roster::probe_address(self.config, self.plan, context.towards_root, outward)?;
        let setup = ProberSetup::bind(self.config, node, SocketAddr::new(address, self.config.port))
            .map_err(|error| error.to_string())?;
        let pair = clock::read_pair(&clock::BootClock, &clock::SystemClock, clock::NARROW_BRACKET);
        let presence = Presence {
            address: setup.local_addr(),
            stamp: setup.stamp_source(),
            walltime_ns: pair.b.as_ns(),
            boottime_ns: pair.a.as_ns(),
        };
        Ok((setup, presence))
    }

    fn run(
        &mut self,
        collective: &mut dyn Collective,
        roster: &Roster,
        bound: Option<ProberSetup>,
        context: &Context,
        observer: &mut dyn Observer,
    ) -> Result<Option<RunReport>, Error> {
        let edges = self.edges();
        let directory = RunDirectory::open(&self.config.out, self.plan.run)?;
        let node =
            bound.map(|bound| self.start_node(bound, roster, &edges, &directory, collective.rank())).transpose()?;
        let begun = (Instant::now(), clock::process_cpu_time());
        let mut master = (collective.rank() == ROOT)
            .then(|| RootState::begin(self, collective, roster, &edges, &directory))
            .transpose()?;
        if let Some(root) = &master {
            observer.started(&root.started(self.config, collective, self.plan, roster, edges.len()));
        }
        let start = Pace::configured(self.config).decision(roster.start_ns, false);
        let mut rounds =
            Rounds { config: self.config, collective, plan: self.plan, node, stop: Arc::clone(&context.stop) };
        let mut policy = Fixed;
        let mut solved = |round: &GlobalWindowData, latency| {
            let Some(root) = &mut master else { return Ok(()) };
            root.solved(round, latency)?;
            observer.round(round, latency);
            Ok(())
        };
        let is_root = rounds.collective.rank() == ROOT;
        let count = rounds.run(start, is_root.then_some(Master { policy: &mut policy, solved: &mut solved }))?;
        let account = account(rounds.node.take(), begun)?;
        let accounts = gather_accounts(rounds.collective, &account, self.config, context)?;
        let Some(root) = master else { return Ok(None) };
        let interrupted = context.stop.load(std::sync::atomic::Ordering::Relaxed);
        let report = root.report(self, collective, roster, &accounts, count, interrupted);
        directory.write_document("metrics.prom", &metrics::render(&report))?;
        directory.write_document("report.json", &format!("{:#}\n", json!(report)))?;
        Ok(Some(report))
    }

    fn edges(&self) -> Vec<Edge> {
        let nodes = self.plan.nodes() as u32;
        let neighbors = self.config.neighbors.unwrap_or(DEFAULT_NEIGHBORS).min(nodes.saturating_sub(1));
        topology::edges(nodes, neighbors, self.config.seed)
    }

    fn start_node(
        &self,
        bound: ProberSetup,
        roster: &Roster,
        edges: &[Edge],
        directory: &RunDirectory,
        rank: usize,
    ) -> Result<NodeRounds, Error> {
        let node = bound.node();
        let clock = truth::virtual_clock(self.config, node, roster.start_ns);
        let addresses = roster.nodes.iter().map(|presence| presence.address).collect();
        let out_edges = edges.iter().filter(|edge| edge.src == node).map(|edge| edge.dst).collect();
        let prober = Prober::start(
            bound,
            self.plan.run,
            addresses,
            out_edges,
            clock,
            self.plan.place_on_host[rank],
            self.config,
        )?;
        let windows = directory.stream(&format!("windows/node{node}.jsonl"))?;
        let probes =
            self.config.keep_probes.then(|| directory.stream(&format!("probes/node{node}.jsonl"))).transpose()?;
        Ok(NodeRounds { node, prober, windows, probes })
    }
}

/// What only the root keeps during a run.
struct RootState {
    offsets: JsonLines,
    global_windows: JsonLines,
    judge: Judge,
    latencies_us: Vec<f64>,
    last: Option<GlobalWindowData>,
    clock_events: Vec<(u64, NodeId, probe_sync_estimate::window::ClockEvent)>,
}

impl RootState {
    fn begin(
        setup: &Setup<'_>,
        collective: &dyn Collective,
        roster: &Roster,
        edges: &[Edge],
        directory: &RunDirectory,
    ) -> Result<Self, Error> {
        let document = run_document(setup, collective, roster, edges);
        directory.write_document("run.json", &format!("{document:#}\n"))?;
        let mut clocks: Vec<SkewedClock> = Vec::new();
        if setup.config.inject_skew.is_some() {
            let nodes = 0..setup.plan.nodes() as u32;
            clocks = nodes.map(|n| truth::virtual_clock(setup.config, NodeId(n), roster.start_ns)).collect();
            let document = truth::document(&clocks, roster.start_ns);
            directory.write_document("truth.json", &format!("{document:#}\n"))?;
        }
        let mut offsets = directory.stream("offsets.jsonl")?;
        let starts = roster.nodes.iter().enumerate().map(|(node, presence)| {
            (setup.plan.hostname(NodeId(node as u32)).to_owned(), presence.walltime_ns, presence.boottime_ns)
        });
        offsets.append(&files::offsets_meta(&starts.collect::<Vec<_>>()))?;
        offsets.flush()?;
        Ok(Self {
            offsets,
            global_windows: directory.stream("global_windows.jsonl")?,
            judge: Judge::new(clocks),
            latencies_us: Vec::new(),
            last: None,
            clock_events: Vec::new(),
        })
    }

    fn started<'a>(
        &self,
        config: &'a Config,
        collective: &dyn Collective,
        plan: &Plan,
        roster: &Roster,
        edges: usize,
    ) -> Started<'a> {
        Started {
            config,
            backend: collective.backend(),
            ranks: collective.size(),
            nodes: plan.nodes(),
            clocks: plan.clocks,
            edges,
            stamp: roster.nodes.iter().map(|presence| presence.stamp).max().unwrap_or(StampSource::User),
        }
    }

    /// Writes a solved round; when this returns, a killed process cannot lose it.
    fn solved(&mut self, round: &GlobalWindowData, latency: StdDuration) -> Result<(), Error> {
        for line in files::offset_lines(round) {
            self.offsets.append(&line)?;
        }
        self.offsets.flush()?;
        self.global_windows.append(round)?;
        self.global_windows.flush()?;
        self.judge.observe(round);
        if self.latencies_us.len() < MAX_LATENCIES {
            self.latencies_us.push(latency.as_secs_f64() * 1e6);
        }
        self.clock_events.extend(round.clock_events.iter().map(|(node, event)| (round.round_id, *node, *event)));
        self.last = Some(round.clone());
        Ok(())
    }

    fn report(
        self,
        setup: &Setup<'_>,
        collective: &dyn Collective,
        roster: &Roster,
        accounts: &[RankAccount],
        rounds: u64,
        interrupted: bool,
    ) -> RunReport {
        let of_nodes: Vec<&RankAccount> =
            setup.plan.rank_of_node.iter().filter_map(|rank| accounts.get(*rank as usize)).collect();
        let mut counters = std::collections::BTreeMap::new();
        for (name, count) in accounts.iter().flat_map(|account| &account.counters) {
            *counters.entry(name.clone()).or_insert(0) += count;
        }
        let wall = accounts.iter().map(|account| account.wall_ns).max().unwrap_or(0).max(1) as f64;
        let cpu: u64 = accounts.iter().map(|account| account.cpu_ns).sum();
        RunReport {
            run_id: setup.plan.run.to_string(),
            backend: collective.backend().into(),
            ranks: collective.size(),
            rounds,
            interrupted,
            out: setup.config.out.display().to_string(),
            nodes: self.rows(setup.plan, roster, &of_nodes),
            truth: self.judge.verdict(),
            packets: report::directions(&of_nodes),
            counters,
            cpu_cores: cpu as f64 / wall,
            seconds: wall * 1e-9,
            round_latency_us: [
                report::median(self.latencies_us.clone()),
                self.latencies_us.iter().copied().fold(0.0, f64::max),
            ],
            clock_events: self.clock_events,
            asymmetry_sd_ns: self.last.as_ref().map_or(0.0, |round| round.asymmetry_sd_ns),
        }
    }

    fn rows(&self, plan: &Plan, roster: &Roster, accounts: &[&RankAccount]) -> Vec<NodeRow> {
        let Some(last) = &self.last else { return Vec::new() };
        let row = |estimate: &probe_sync_estimate::window::NodeEstimate| {
            let node = estimate.node_id;
            let truth = self.judge.true_offset_ns(node, last);
            let finite = |bound: f64| bound.is_finite().then_some(bound);
            let lost = accounts.get(node.index()).map_or(0, |a| a.exchanges.iter().map(|edge| edge.lost).sum());
            NodeRow {
                node_id: node,
                rank: plan.rank_of_node[node.index()],
                host: plan.hostname(node).into(),
                stamp: roster.nodes[node.index()].stamp,
                reachable: estimate.reachable,
                offset_ns: estimate.offset_ns,
                drift_ppm: estimate.drift_ppm,
                half_width_95_ns: estimate.sigma_ns * SIGMAS_95,
                hard_interval_ns: [finite(estimate.bound_lo_ns), finite(estimate.bound_hi_ns)],
                edges: estimate.edges_used,
                lost,
                true_offset_ns: truth,
                error_ns: truth.filter(|_| estimate.reachable).map(|truth| estimate.offset_ns - truth),
                bounds_held: self.judge.bounds_held(node),
            }
        };
        last.all_nodes.iter().map(row).collect()
    }
}

fn introduce(config: &Config, host: &host::Host) -> Introduction {
    let own = |identity: &str| config.host.clone().unwrap_or_else(|| identity.to_owned());
    Introduction {
        version: env!("CARGO_PKG_VERSION").into(),
        hostname: own(&host.hostname),
        clock_identity: own(&host.boot_id),
        network_identity: format!("{} {}", own(&host.boot_id), network_namespace()),
        shared_entries: config.shared_entries(),
        host_facts: json!({"host": host, "topology": Topology::detect()}).to_string(),
    }
}

/// Names the network namespace: containers of one host share its clock, not its loopback.
fn network_namespace() -> String {
    std::fs::read_link("/proc/self/ns/net").map_or_else(|_| String::new(), |link| link.display().to_string())
}

/// Random enough that packets of an older run on the same ports are recognised as foreign.
fn new_run_id() -> RunId {
    use std::hash::{BuildHasher, RandomState};
    RunId(RandomState::new().hash_one((std::process::id(), clock::SystemClock.now().as_ns())))
}

/// Lets traffic drain, ends the probe thread and collects what the rank did.
fn account(node: Option<NodeRounds>, begun: (Instant, StdDuration)) -> Result<RankAccount, Error> {
    let (instant, cpu) = begun;
    let wall_ns = instant.elapsed().as_nanos() as u64;
    let cpu_ns = clock::process_cpu_time().saturating_sub(cpu).as_nanos() as u64;
    let mut account = node.map_or_else(|| Ok(RankAccount::default()), |node| node.prober.finish())?;
    account.wall_ns = wall_ns;
    account.cpu_ns = cpu_ns;
    Ok(account)
}

/// Brings all accounts to the root; elsewhere the result is empty.
fn gather_accounts(
    collective: &mut dyn Collective,
    own: &RankAccount,
    config: &Config,
    context: &Context,
) -> Result<Vec<RankAccount>, Error> {
    let limit = StdDuration::from_nanos(config.round_timeout.as_ns().unsigned_abs());
    let patience = Patience::new(limit, Some(Arc::clone(&context.stop)));
    let mut frames = Frames::default();
    collective.gather(&vec![true; collective.size()], &wire::encode(own), &mut frames, &patience)?;
    frames.iter().enumerate().map(|(rank, bytes)| wire::decode(bytes, rank)).collect()
}

/// Moves an earlier run aside and marks the directory as this run's.
fn claim_directory(config: &Config, run: RunId) -> Result<(), String> {
    let directory = RunDirectory::open(&config.out, run).map_err(|error| error.to_string())?;
    let marker = json!({"run_id": run.to_string()}).to_string();
    directory.write_document("run.json", &marker).map_err(|error| error.to_string())
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
        "ranks": collective.size(), "reference": truth::REFERENCE, "start_ns": roster.start_ns,
        "configuration": configuration, "nodes": nodes, "node_of_rank": plan.node_of_rank,
        "edges": edges.iter().map(|edge| [edge.src, edge.dst]).collect::<Vec<_>>(), "hosts": hosts,
    })
}

/// Ranks of a large job start minutes apart on some clusters; one that never comes must still be named.
const HANDSHAKE_LIMIT: StdDuration = StdDuration::from_secs(60);
const DEFAULT_NEIGHBORS: u32 = 10;
/// Latencies kept for the median: two days of rounds of 4 s.
const MAX_LATENCIES: usize = 43_200;
