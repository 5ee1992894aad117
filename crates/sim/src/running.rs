//! A simulated run under way: driven to any instant, cut into windows as a node's probe thread cuts them, and steered.
//!
//! Place in the flow: the event loop (`world`) below it, a simulated round loop above it. The caller advances to the end
//! of a window, takes every node's [`WindowCut`], estimates, decides, changes the gaps, and goes on.
//!
//! What it does not do: estimate, or carry the nodes' results; a caller that wants nodes to be cut off from the rounds
//! must leave their cuts aside.

use std::collections::BTreeMap;

use probe_sync_estimate::window::ClockEvent;
use probe_sync_time::{Duration, Edge, Exchange, NodeId, System, Timestamp};

use crate::clock::WanderingClock;
use crate::scenario::Scenario;
use crate::simulation::{Outcome, Simulation, schedule};
use crate::world::World;

/// What one window brought to one node.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowCut {
    /// The node.
    pub node: NodeId,
    /// The window's start on this node's clock: where the window before ended.
    pub start_ns: i64,
    /// The window's end on this node's clock.
    pub end_ns: i64,
    /// The out-edges, in order of their destination.
    pub edges: Vec<EdgeCut>,
    /// A disturbance of the node's clock, if the node saw it.
    pub clock_event: Option<ClockEvent>,
}

/// What one window brought on one edge.
#[derive(Clone, Debug, PartialEq)]
pub struct EdgeCut {
    /// The edge.
    pub edge: Edge,
    /// The exchanges that finished.
    pub exchanges: Vec<Exchange>,
    /// How many were given up.
    pub lost: u32,
}

/// A run under way.
#[derive(Debug)]
pub struct Running<'a> {
    scenario: &'a Scenario,
    edges: &'a [Edge],
    world: World<'a>,
    /// Where each node's window under way began, on its own clock.
    window_starts: Vec<i64>,
}

impl<'a> Running<'a> {
    pub(crate) fn new(scenario: &'a Scenario, edges: &'a [Edge], world: World<'a>) -> Self {
        let start = |clock: &WanderingClock| clock.apply(Simulation::START).as_ns();
        let window_starts = world.clocks.iter().map(start).collect();
        Self { scenario, edges, world, window_starts }
    }

    /// Handles everything that happens up to `at`, true time. Going back is not possible: an earlier `at` does nothing.
    pub fn advance_to(&mut self, at: Timestamp<System>) {
        self.world.advance((at - Simulation::START).as_ns());
    }

    /// How far the run has come, true time.
    pub fn now(&self) -> Timestamp<System> {
        self.world.now()
    }

    /// Ends every node's window now and starts the next: the exchanges that finished since the last cut.
    pub fn cut(&mut self) -> Vec<WindowCut> {
        let now = self.now();
        let mut cuts = Vec::with_capacity(self.world.nodes.len());
        for (index, clock) in self.world.clocks.iter().enumerate() {
            let node = NodeId(index as u32);
            let end_ns = clock.apply(now).as_ns();
            let start_ns = std::mem::replace(&mut self.window_starts[index], end_ns);
            let state = &mut self.world.nodes[index];
            let counts = state.endpoint.cut_window();
            let edges = counts.into_iter().map(|count| EdgeCut {
                edge: Edge { src: node, dst: count.peer },
                exchanges: state.finished.remove(&count.peer).unwrap_or_default(),
                lost: count.lost,
            });
            cuts.push(WindowCut { node, start_ns, end_ns, edges: edges.collect(), clock_event: None });
        }
        cuts
    }

    /// Lets `node` start one exchange per `gap` from now on. A gap that is not positive is ignored.
    pub fn set_gap(&mut self, node: NodeId, gap: Duration) {
        if let Some(schedule) = schedule(node, self.scenario.nodes, gap) {
            self.world.set_schedule(node, schedule);
        }
    }

    /// Packets that the network has taken so far.
    pub fn packets_sent(&self) -> u64 {
        self.world.packets_sent
    }

    /// Each node's clock.
    pub fn clocks(&self) -> &[WanderingClock] {
        &self.world.clocks
    }

    /// The truth: offset of `node` from node 0 when node 0's clock shows `at`, ns.
    pub fn offset_ns(&self, node: NodeId, at: Timestamp<System>) -> f64 {
        self.world.clocks[node.index()].error_ns(at)
    }

    /// Stops probing and lets everything in flight end.
    pub fn finish(mut self) -> Outcome {
        self.world.drain();
        let end = self.world.now();
        let mut exchanges: BTreeMap<Edge, Vec<Exchange>> = self.edges.iter().map(|edge| (*edge, Vec::new())).collect();
        for (index, node) in self.world.nodes.iter_mut().enumerate() {
            for (dst, finished) in std::mem::take(&mut node.finished) {
                exchanges.insert(Edge { src: NodeId(index as u32), dst }, finished);
            }
        }
        Outcome {
            exchanges,
            counters: self.world.nodes.iter().map(|node| node.endpoint.counters()).collect(),
            ledger: self.world.books.ledger,
            clocks: self.world.clocks,
            start: Simulation::START,
            end,
            events: self.world.events,
        }
    }
}
