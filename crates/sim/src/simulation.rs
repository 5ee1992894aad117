//! Prepares a simulated run: endpoints, clocks and wires from a scenario and a seed.
//!
//! Place in the flow: a [`Scenario`] goes in; [`Simulation::start`] gives a [`Running`] that is driven step by step, and
//! [`Simulation::run`] drives it in one go to its [`Outcome`]. The event loop is in `world`.
//!
//! What it does not do: fit or solve; it hands out exchanges and truth.

use std::collections::BTreeMap;

use probe_sync_probe::{Counters, Endpoint, EndpointConfig, Schedule, topology};
use probe_sync_time::{Duration, Edge, Exchange, NodeId, RunId, System, Timestamp};

use crate::clock::{WanderingClock, offset_ns};
use crate::ledger::Ledger;
use crate::network::constant_ns;
use crate::oscillator;
use crate::running::Running;
use crate::scenario::Scenario;
use crate::world::World;

/// Why a scenario cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not a scenario: not TOML, an unknown key, a value of the wrong type.
    #[error("not a scenario: {0}")]
    Toml(String),
    /// A number is out of its range.
    #[error("{field} = {value} is out of range: it must be from {} to {}", range.0, range.1)]
    Range {
        /// The field, by its path in the file.
        field: String,
        /// Its value.
        value: String,
        /// Least and largest value.
        range: (String, String),
    },
    /// Parts of the scenario contradict each other.
    #[error("{field}: {problem}")]
    Contradiction {
        /// The field, by its path in the file.
        field: String,
        /// What is wrong.
        problem: String,
    },
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
    /// Each node's clock. Node 0's shows true time unless the scenario says otherwise.
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
        offset_ns(&self.clocks, node, at)
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
        scenario.check()?;
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
        let clock = |node| oscillator::clock(&self.scenario, self.seed, NodeId(node), Self::START, horizon);
        let clocks = (0..self.scenario.nodes).map(clock).collect();
        let world = World::new(&self.scenario, self.seed, &self.edges, endpoints, clocks);
        Running::new(&self.scenario, self.seed, &self.edges, world)
    }

    /// By how much path asymmetry alone makes an edge's theta seem larger than it is, ns: half the difference between the
    /// least forward and reverse delays. Faults are left out; see [`Running::asymmetry_ns`].
    pub fn asymmetry_ns(&self, edge: Edge) -> f64 {
        let delay = |from, to| constant_ns(&self.scenario.network, self.seed, from, to);
        (delay(edge.src, edge.dst) - delay(edge.dst, edge.src)) / 2.0
    }

    fn endpoints(&self) -> Result<Vec<Endpoint>, Error> {
        let Scenario { nodes, spacing, exchange_timeout, .. } = self.scenario;
        let mut out_edges: Vec<Vec<NodeId>> = vec![Vec::new(); nodes as usize];
        for edge in &self.edges {
            out_edges[edge.src.index()].push(edge.dst);
        }
        let endpoint = |(node, out_edges): (u32, Vec<NodeId>)| {
            let node = NodeId(node);
            let gap = self.scenario.gap_of(out_edges.len());
            let field = || "the gap between exchanges".to_owned();
            let problem = || format!("{gap:?} is not positive");
            let schedule = schedule(node, nodes, gap)
                .ok_or_else(|| Error::Contradiction { field: field(), problem: problem() })?;
            let run = RunId(self.seed);
            let config = EndpointConfig { run, node, nodes, out_edges, schedule, spacing, exchange_timeout };
            Ok(Endpoint::new(config, Timestamp::from_ns(0))?)
        };
        (0..nodes).zip(out_edges).map(endpoint).collect()
    }
}

/// One start per `gap`; the nodes' phases are spread evenly over it. `None` unless `gap` is positive.
pub(crate) fn schedule(node: NodeId, nodes: u32, gap: Duration) -> Option<Schedule> {
    let phase = i128::from(gap.as_ns()) * i128::from(node.0) / i128::from(nodes.max(1));
    Schedule::new(gap, Duration::from_ns(phase as i64))
}
