//! A whole run on one rank: hand-shake, probe thread, rounds, files, final accounts.
//!
//! Every rank calls [`run()`]; rank 0 is the root, which writes the shared files and returns the report.
//! What it does not do: choose the backend, handle signals, print.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use probe_sync_collective::{Collective, Deadline, ROOT};
use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_probe::topology;
use probe_sync_sys::topology::Topology;
use probe_sync_sys::{TracerClock, clock, host};
use probe_sync_time::{Clock, Edge, NodeId, RunId, StampSource};
use serde_json::json;

use crate::files::RunDirectory;
use crate::policy::{Configured, Pace, Policy};
use crate::probing::{Prober, ProberSetup};
use crate::report::RunReport;
use crate::root::RootState;
use crate::roster::{self, Introduction, Plan, Presence, Roster};
use crate::rounds::{Master, NodeRounds, Rounds};
use crate::snapshots::Sampler;
use crate::{Config, Error, truth};

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

/// Runs to the configured duration or until stopped, at the configured pace or adaptively. The report comes back at rank 0.
///
/// A rank whose configuration is unusable still takes part in the hand-shake, so that all ranks end with its error.
///
/// # Errors
/// The first error; [`Error::Refused`] on every rank alike. Rounds finished before are on disk.
pub fn run(
    config: Result<Config, Error>,
    collective: &mut dyn Collective,
    context: &Context,
    observer: &mut dyn Observer,
) -> Result<Option<RunReport>, Error> {
    run_with_policy(config, collective, context, observer, &mut Configured::default())
}

/// As [`run`], with the pace of every next round chosen by `policy` at rank 0.
///
/// # Errors
/// As [`run`].
pub fn run_with_policy(
    config: Result<Config, Error>,
    collective: &mut dyn Collective,
    context: &Context,
    observer: &mut dyn Observer,
    policy: &mut dyn Policy,
) -> Result<Option<RunReport>, Error> {
    let handshake = Deadline::new(HANDSHAKE_LIMIT, Some(Arc::clone(&context.stop)));
    let host = host::Host::detect();
    let introduction = config.as_ref().map(|config| introduce(config, &host)).map_err(ToString::to_string);
    let (plan, introductions) =
        roster::introduce(collective, config.as_ref().ok(), &introduction, new_run_id(), &handshake)?;
    let config = config?;
    let setup = Setup { config: &config, plan: &plan, introductions: &introductions };
    // The root claims the directory before anyone else writes into it.
    let claimed = (collective.rank() == ROOT).then(|| RunDirectory::claim(&config.out)).transpose();
    let (claimed, failure) = match claimed {
        Ok(claimed) => (claimed, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let bound = plan.probes_for(collective.rank()).map(|node| failure.map_or_else(|| setup.bind(node, context), Err));
    let presence = bound.as_ref().map(|bound| bound.as_ref().map(|own| own.presence.clone()).map_err(Clone::clone));
    let start = clock::SystemClock.now();
    let roster = roster::assemble(collective, &plan, presence.as_ref(), start, &handshake)?;
    // After a successful assembly no node failed to bind.
    let bound = bound.and_then(Result::ok);
    setup.run(collective, &roster, claimed, bound, context, Hooks { observer, policy })
}

/// The settled parts of a run.
pub(crate) struct Setup<'a> {
    pub(crate) config: &'a Config,
    pub(crate) plan: &'a Plan,
    /// At the root only.
    pub(crate) introductions: &'a [Introduction],
}

/// What a node holds before the peers are known.
struct Bound {
    prober: ProberSetup,
    tracer: Option<TracerClock>,
    presence: Presence,
}

/// Whom the root talks to.
struct Hooks<'a> {
    observer: &'a mut dyn Observer,
    policy: &'a mut dyn Policy,
}

impl Setup<'_> {
    /// Binds the node's socket and opens its tracer clock; the error says why this rank cannot take part.
    fn bind(&self, node: NodeId, context: &Context) -> Result<Bound, String> {
        let outward = host::outward_address(self.config.interface.as_deref());
        let address = roster::probe_address(self.config, self.plan, context.towards_root, outward)?;
        let prober = ProberSetup::bind(self.config, node, SocketAddr::new(address, self.config.port))
            .map_err(|error| error.to_string())?;
        let tracer = self.config.tracer_clock.map(TracerClock::open).transpose().map_err(|error| error.to_string())?;
        let (walltime_ns, tracer_ns) = start_times(tracer.as_ref()).map_err(|error| error.to_string())?;
        let presence = Presence { address: prober.local_addr(), stamp: prober.stamp_source(), walltime_ns, tracer_ns };
        Ok(Bound { prober, tracer, presence })
    }

    /// The rounds and the final accounts. `claimed` is the root's directory.
    fn run(
        &self,
        collective: &mut dyn Collective,
        roster: &Roster,
        claimed: Option<RunDirectory>,
        bound: Option<Bound>,
        context: &Context,
        hooks: Hooks<'_>,
    ) -> Result<Option<RunReport>, Error> {
        let Hooks { observer, policy } = hooks;
        let edges = self.edges();
        let node = bound.map(|bound| self.start_node(bound, roster, &edges, collective.rank())).transpose()?;
        let begun = (Instant::now(), clock::process_cpu_time());
        let mut root =
            claimed.map(|directory| RootState::begin(self, collective, roster, &edges, directory)).transpose()?;
        if let Some(root) = &root {
            observer.started(&root.started(edges.len()));
        }
        policy.begin(self.config, self.plan.nodes(), &edges);
        let start = Pace::configured(self.config).decision(roster.start.on_reference(), false);
        let stop = Arc::clone(&context.stop);
        let mut rounds = Rounds { config: self.config, collective, plan: self.plan, node, stop };
        let result = rounds.run(
            start,
            root.as_mut().map(|root| Master {
                policy: &mut *policy,
                solved: Box::new(|round, latency| {
                    root.solved(round, latency)?;
                    observer.round(round, latency);
                    Ok(())
                }),
            }),
        );
        let interrupted = || context.stop.load(Ordering::Relaxed);
        let accounts = result.and_then(|()| rounds.settle(begun));
        match (root, accounts) {
            (None, accounts) => accounts.map(|_| None),
            (Some(root), Ok(accounts)) => root.end(&accounts, interrupted(), None, policy.report()).map(Some),
            (Some(root), Err(error)) => {
                // What there is; the first error stays the one to report.
                if let Err(second) = root.end(&[], interrupted(), Some(error.to_string()), policy.report()) {
                    tracing::warn!("{second}");
                }
                Err(error)
            }
        }
    }

    fn edges(&self) -> Vec<Edge> {
        let nodes = self.plan.nodes() as u32;
        let neighbors = self.config.neighbors.unwrap_or(DEFAULT_NEIGHBORS).min(nodes.saturating_sub(1));
        topology::edges(nodes, neighbors, self.config.seed)
    }

    fn start_node(&self, bound: Bound, roster: &Roster, edges: &[Edge], rank: usize) -> Result<NodeRounds, Error> {
        let node = bound.prober.node();
        let clock = truth::virtual_clock(self.config, node, roster.start.as_ns());
        let addresses = roster.nodes.iter().map(|presence| presence.address).collect();
        let out_edges = edges.iter().filter(|edge| edge.src == node).map(|edge| edge.dst).collect();
        let directory = RunDirectory::join(&self.config.out)?;
        let windows = directory.stream(&format!("windows/node{node}.jsonl"))?;
        let probes =
            self.config.keep_probes.then(|| directory.stream(&format!("probes/node{node}.jsonl"))).transpose()?;
        let period = self.config.snapshot_pair_period;
        let sample = |tracer| Sampler::start(tracer, clock.clone(), period, &directory, node);
        let sampler = bound.tracer.map(sample).transpose()?;
        let place = self.plan.place_on_host[rank];
        let prober = Prober::start(bound.prober, self.plan.run, addresses, out_edges, clock, place, self.config)?;
        Ok(NodeRounds { node, prober, windows, probes, sampler, left_out: 0 })
    }
}

/// The system clock and the tracer clock at one moment, ns.
fn start_times(tracer: Option<&TracerClock>) -> Result<(i64, i64), probe_sync_sys::Error> {
    if let Some(tracer) = tracer {
        let pair = tracer.read_pair(&clock::SystemClock, clock::NARROW_BRACKET)?;
        return Ok((pair.system.as_ns(), pair.tracer.as_ns()));
    }
    let pair = clock::read_pair(&clock::BootClock, &clock::SystemClock, clock::NARROW_BRACKET);
    Ok((pair.b.as_ns(), pair.a.as_ns()))
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

/// Ranks of a large job start minutes apart on some clusters; one that never comes must still be named.
const HANDSHAKE_LIMIT: StdDuration = StdDuration::from_secs(60);
const DEFAULT_NEIGHBORS: u32 = 10;
