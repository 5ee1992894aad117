//! Prepares a simulated run: endpoints, clocks and wires from a scenario and a seed.
//!
//! [`Simulation::start`] turns a [`Scenario`] into a [`Running`] that is driven step by step;
//! [`Simulation::run`] drives it in one go to its [`Outcome`].

use probe_sync_probe::{Endpoint, EndpointConfig, topology};
use probe_sync_time::{Duration, Edge, NodeId, RunId, System, Timestamp};

use crate::error::Error;
use crate::runs::outcome::Outcome;
use crate::runs::running::{Running, schedule};
use crate::scenario::Scenario;
use crate::world::events::{START, World};
use crate::world::network::constant_ns;
use crate::world::oscillator;

/// A prepared run.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    seed: u64,
    edges: Vec<Edge>,
}

impl Simulation {
    /// The first instant of every run, true time.
    pub const START: Timestamp<System> = START;

    /// Prepares a run of `scenario`.
    ///
    /// # Errors
    /// Returns an error if the scenario contradicts itself.
    pub fn new(scenario: Scenario, seed: u64) -> Result<Self, Error> {
        scenario.check()?;
        let edges = topology::edges(scenario.nodes, scenario.neighbors, seed);
        let simulation = Self { scenario, seed, edges };
        simulation.endpoints()?;
        Ok(simulation)
    }

    /// The probed edges.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }

    /// The simulated scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Probes for `duration`, then lets everything in flight end.
    pub fn run(&self, duration: Duration) -> Outcome {
        let mut running = self.start(duration);
        running.advance_to(Self::START + duration);
        running.finish()
    }

    /// Starts a run that the caller drives. The clocks' wander is drawn for `horizon`; afterwards
    /// they keep their last rate.
    pub fn start(&self, horizon: Duration) -> Running<'_> {
        let endpoints = self.endpoints().expect("the same scenario was accepted by Simulation::new");
        let clock = |node| oscillator::clock(&self.scenario, self.seed, NodeId(node), Self::START, horizon);
        let clocks = (0..self.scenario.nodes).map(clock).collect();
        let world = World::new(&self.scenario, self.seed, &self.edges, endpoints, clocks);
        Running::new(&self.scenario, &self.edges, world)
    }

    /// Error of an edge's theta due to path asymmetry alone, ns: half the difference between the
    /// least forward and reverse delays. Faults are left out.
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
            let config = EndpointConfig {
                run,
                node,
                nodes,
                out_edges,
                schedule,
                spacing,
                exchange_timeout,
                incarnation: 0,
                key: None,
            };
            Ok(Endpoint::new(config, Timestamp::from_ns(0))?)
        };
        (0..nodes).zip(out_edges).map(endpoint).collect()
    }
}
