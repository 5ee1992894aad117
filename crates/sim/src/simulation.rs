//! Prepares a simulated run: endpoints, clocks and wires from a scenario and a seed.
//!
//! Place in the flow: a [`Scenario`] goes in; [`Simulation::start`] gives a [`Running`] that is driven step by step, and
//! [`Simulation::run`] drives it in one go to its [`Outcome`]. The event loop is in `world`.
//!
//! What it does not do: fit or solve; it hands out exchanges and truth.

use std::collections::BTreeMap;

use probe_sync_probe::{Counters, Endpoint, EndpointConfig, Schedule, topology};
use probe_sync_time::{Duration, Edge, Exchange, NodeId, RunId, SkewedClock, System, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::clock::WanderingClock;
use crate::ledger::Ledger;
use crate::random::symmetric;
use crate::running::Running;
use crate::scenario::Scenario;
use crate::world::World;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The gap between exchanges is not positive.
    #[error("the gap between exchanges must be positive, not {0:?}")]
    Gap(Duration),
    /// A delay is negative: packets would arrive before they are sent.
    #[error("delays must not be negative")]
    Delay,
    /// The windows are not positive, or longer than the run.
    #[error("a window of {window:?} must be positive and fit into the run of {duration:?}")]
    Window {
        /// Length of a window.
        window: Duration,
        /// Length of the run.
        duration: Duration,
    },
    /// The endpoints refuse their configuration.
    #[error(transparent)]
    Endpoint(#[from] probe_sync_probe::Error),
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Finished exchanges of every edge that no cut took away, in the order in which they finished. Edges without any
    /// have an empty list.
    pub exchanges: BTreeMap<Edge, Vec<Exchange>>,
    /// What each node counted.
    pub counters: Vec<Counters>,
    /// What really happened to the packets.
    pub ledger: Ledger,
    /// Each node's clock. Node 0's shows true time.
    pub clocks: Vec<WanderingClock>,
    /// The run's first instant, true time.
    pub start: Timestamp<System>,
    /// When the last packet and timer were done, true time.
    pub end: Timestamp<System>,
    /// Events handled: the cost of the run.
    pub events: u64,
}

impl Outcome {
    /// The truth: offset of `node` from node 0 when node 0's clock shows `at`, ns.
    pub fn offset_ns(&self, node: NodeId, at: Timestamp<System>) -> f64 {
        self.clocks[node.index()].error_ns(at)
    }
}

/// A run that is ready to go.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    seed: u64,
    edges: Vec<Edge>,
}

impl Simulation {
    /// The first instant of every run, true time. A plausible present: clock arithmetic at this scale must not lose
    /// nanoseconds.
    pub const START: Timestamp<System> = Timestamp::from_ns(1_790_000_000_000_000_000);

    /// Prepares a run of `scenario`.
    ///
    /// # Errors
    /// When the scenario contradicts itself.
    pub fn new(scenario: Scenario, seed: u64) -> Result<Self, Error> {
        let network = &scenario.network;
        let delays = [network.delay_ns, network.asymmetry_ns_max, network.straggling_ns, scenario.stamps.report_ns];
        if delays.iter().any(|delay| *delay < 0) || network.queueing_ns_mean < 0.0 || scenario.wakeup_ns_mean < 0.0 {
            return Err(Error::Delay);
        }
        let edges = topology::edges(scenario.nodes, scenario.neighbors, seed);
        let simulation = Self { scenario, seed, edges };
        simulation.endpoints()?;
        Ok(simulation)
    }

    /// The edges that are probed.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// What is simulated.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Probes for `duration`, then lets everything in flight end.
    pub fn run(&self, duration: Duration) -> Outcome {
        let mut running = self.start(duration);
        running.advance_to(Self::START + duration);
        running.finish()
    }

    /// Starts a run that the caller drives. The clocks' wander is drawn for `horizon`; later they keep their last rate.
    pub fn start(&self, horizon: Duration) -> Running<'_> {
        let endpoints = self.endpoints().expect("the same scenario was accepted by Simulation::new");
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ CLOCK_SALT);
        let clocks = (0..self.scenario.nodes).map(|node| self.clock(node, horizon, &mut rng)).collect();
        Running::new(&self.scenario, &self.edges, World::new(&self.scenario, self.seed, endpoints, clocks, rng))
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, Error> {
        let Scenario { nodes, gap, spacing, exchange_timeout, .. } = self.scenario;
        let mut out_edges: Vec<Vec<NodeId>> = vec![Vec::new(); nodes as usize];
        for edge in &self.edges {
            out_edges[edge.src.index()].push(edge.dst);
        }
        let endpoint = |(node, out_edges): (u32, Vec<NodeId>)| {
            let node = NodeId(node);
            let schedule = schedule(node, nodes, gap).ok_or(Error::Gap(gap))?;
            let run = RunId(self.seed);
            let config = EndpointConfig { run, node, nodes, out_edges, schedule, spacing, exchange_timeout };
            Ok(Endpoint::new(config, Timestamp::from_ns(0))?)
        };
        (0..nodes).zip(out_edges).map(endpoint).collect()
    }

    fn clock(&self, node: u32, duration: Duration, rng: &mut ChaCha8Rng) -> WanderingClock {
        let clocks = &self.scenario.clocks;
        let t0_ns = Self::START.as_ns();
        let off_ns = symmetric(rng, clocks.offset_ns_max);
        let ppm = clocks.skew_ppm_max * (2.0 * rng.random::<f64>() - 1.0);
        let skewed = SkewedClock { t0_ns, off_ns, ppm, ..SkewedClock::default() };
        if node == 0 {
            return WanderingClock::new(SkewedClock::default(), Self::START, duration, 0.0, rng);
        }
        WanderingClock::new(skewed, Self::START, duration, clocks.wander_ppm, rng)
    }
}

/// One start per `gap`; the nodes' phases are spread evenly over it. `None` unless `gap` is positive.
pub(crate) fn schedule(node: NodeId, nodes: u32, gap: Duration) -> Option<Schedule> {
    Schedule::new(gap, Duration::from_ns(gap.as_ns() / i64::from(nodes) * i64::from(node.0)))
}

/// Keeps the clocks' random numbers apart from the wires'.
const CLOCK_SALT: u64 = 0x5eed_c10c;
