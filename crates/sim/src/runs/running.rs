//! A simulated run in progress, which can be advanced to any instant, cut into windows as a node's
//! probe thread cuts them, and steered.
//!
//! The caller repeatedly advances to the end of a window, takes every node's [`WindowCut`],
//! estimates, decides and changes the gaps.
//!
//! It does not transport the nodes' results; to simulate nodes that are cut off from the rounds,
//! the caller must ignore their cuts.

use std::collections::BTreeMap;

use probe_sync_estimate::round::{EdgeCut, WindowCut};
use probe_sync_lines::PeerPackets;
use probe_sync_probe::Schedule;
use probe_sync_time::{Duration, Edge, Exchange, NodeId, Reference, System, Timestamp};

use crate::error::Error;
use crate::runs::outcome::Outcome;
use crate::scenario::Scenario;
use crate::world::clock::{WanderingClock, offset_ns};
use crate::world::events::{START, World};

/// A run in progress.
#[derive(Debug)]
pub struct Running<'a> {
    scenario: &'a Scenario,
    edges: &'a [Edge],
    world: World<'a>,
    /// When the current windows began, true time.
    window_start: Timestamp<System>,
}

impl<'a> Running<'a> {
    pub(crate) fn new(scenario: &'a Scenario, edges: &'a [Edge], world: World<'a>) -> Self {
        Self { scenario, edges, world, window_start: START }
    }

    /// Processes everything that happens up to `at`, true time. Going back is not possible: an
    /// earlier `at` does nothing.
    pub fn advance_to(&mut self, at: Timestamp<System>) {
        self.world.advance((at - START).as_ns());
    }

    /// How far the run has come, true time.
    pub fn now(&self) -> Timestamp<System> {
        self.world.now()
    }

    /// Ends every node's window now and starts the next: the exchanges that finished since the last
    /// cut. A node that is silent now has no entry; the window of one that began or came back
    /// within it starts there.
    pub fn cut(&mut self) -> Vec<WindowCut> {
        let end = self.now();
        let start = std::mem::replace(&mut self.window_start, end);
        (0..self.scenario.nodes).filter_map(|node| self.cut_node(NodeId(node), start, end)).collect()
    }

    fn cut_node(&mut self, node: NodeId, start: Timestamp<System>, end: Timestamp<System>) -> Option<WindowCut> {
        let is_live = self.world.is_live(node);
        let state = &mut self.world.nodes[node.index()];
        let counts = state.endpoint.cut_window();
        let passed = state.tally.since_last(state.endpoint.counters()).into_iter();
        let mut finished = std::mem::take(&mut state.finished);
        if !is_live {
            return None;
        }
        let clock = &self.world.clocks[node.index()];
        let began = START + Duration::from_ns(state.began_at.max(0));
        let start = start.max(began);
        let edges = counts.into_iter().map(|count| EdgeCut {
            edge: Edge { src: node, dst: count.peer },
            exchanges: finished.remove(&count.peer).unwrap_or_default(),
            lost: count.lost,
            stamp_errors_ns: [0.0; 2],
        });
        Some(WindowCut {
            node,
            start: clock.apply(start),
            end: clock.apply(end),
            edges: edges.collect(),
            clock_event: clock.event_in(start, end),
            packets: passed.map(|(peer, sent, received)| PeerPackets { peer, sent, received }).collect(),
        })
    }

    /// Lets `node` start one exchange per `gap` from now on. A gap that is not positive is ignored.
    pub fn set_gap(&mut self, node: NodeId, gap: Duration) {
        if let Some(schedule) = schedule(node, self.scenario.nodes, gap) {
            self.world.set_schedule(node, schedule);
        }
    }

    /// Lets `node` probe these nodes from now on, and no others.
    ///
    /// # Errors
    /// Returns an error if a node is not part of the run, is `node` itself, or is given twice; then
    /// nothing changes.
    pub fn set_out_edges(&mut self, node: NodeId, peers: &[NodeId]) -> Result<(), Error> {
        self.world.set_out_edges(node, peers)
    }

    /// Packets that the network has accepted so far.
    pub fn packets_sent(&self) -> u64 {
        self.world.packets_sent
    }

    /// Each node's clock.
    pub fn clocks(&self) -> &[WanderingClock] {
        &self.world.clocks
    }

    /// The truth: offset of `node` from the reference when the reference's clock shows `at`, ns.
    pub fn offset_ns(&self, node: NodeId, at: Timestamp<Reference>) -> f64 {
        offset_ns(&self.world.clocks, node, self.scenario.reference, at)
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
            ground_truth: self.world.counter.finish(),
            clocks: self.world.clocks,
            reference: self.scenario.reference,
            start: START,
            end,
            events: self.world.events,
        }
    }
}

/// One start per `gap`; the nodes' phases are spread evenly over it. `None` unless `gap` is
/// positive.
pub(crate) fn schedule(node: NodeId, nodes: u32, gap: Duration) -> Option<Schedule> {
    let phase = i128::from(gap.as_ns()) * i128::from(node.0) / i128::from(nodes.max(1));
    Schedule::new(gap, Duration::from_ns(phase as i64))
}
