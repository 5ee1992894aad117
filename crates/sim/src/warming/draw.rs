//! A generated run: clocks, paths and all exchanges, cut into windows, together with the truth.

use probe_sync_estimate::round::{EdgeCut, WindowCut};
use probe_sync_probe::topology;
use probe_sync_time::{Edge, Exchange, NodeId, Reference, System, Timestamp};

use super::cell::{REFERENCE, START, WarmingCell};
use super::clock::WarmingClock;
use super::network::Pair;
use crate::world::random::{Draws, Purpose};

/// Size of a run.
#[derive(Copy, Clone, Debug)]
pub(super) struct Size {
    pub(super) nodes: u32,
    pub(super) neighbors: u32,
    pub(super) seconds: f64,
    pub(super) window_s: f64,
}

/// Everything that was drawn.
#[derive(Debug)]
pub(super) struct World {
    pub(super) nodes: u32,
    window_s: f64,
    clocks: Vec<WarmingClock>,
    pub(super) edges: Vec<Edge>,
    pub(super) pairs: Vec<Pair>,
    /// By edge, with the true time at which each finished.
    exchanges: Vec<Vec<(f64, Exchange)>>,
}

impl World {
    pub(super) fn new(cell: &WarmingCell, seed: u64, size: &Size) -> Self {
        let Size { nodes, seconds, .. } = *size;
        let seed = cell.seed(seed);
        let clock = |node| {
            let mut draws = Draws::new(seed, Purpose::WarmingClock, node);
            WarmingClock::new(&mut draws, seconds)
        };
        let clocks: Vec<WarmingClock> = (0..u64::from(nodes)).map(clock).collect();
        let edges = topology::edges(nodes, size.neighbors, seed);
        let pairs: Vec<Pair> = (0..edges.len()).map(|edge| Pair::new(cell, seed, edge)).collect();
        let exchanges = edges
            .iter()
            .enumerate()
            .zip(&pairs)
            .map(|((number, edge), pair)| pair.exchanges(cell, seed, (number, *edge), &clocks, seconds))
            .collect();
        Self { nodes, window_s: size.window_s, clocks, edges, pairs, exchanges }
    }

    /// Every node's window with that number.
    pub(super) fn cuts(&self, window: usize) -> Vec<WindowCut> {
        let [start, end] = [window, window + 1].map(|number| number as f64 * self.window_s);
        let shown = |node: u32, at: f64| {
            Timestamp::<System>::from_ns(START.as_ns() + self.clocks[node as usize].shows_ns(at).round() as i64)
        };
        let cut = |node: u32| WindowCut {
            node: NodeId(node),
            start: shown(node, start),
            end: shown(node, end),
            edges: (self.edges.iter().zip(&self.exchanges))
                .filter(|(edge, _)| edge.src == NodeId(node))
                .map(|(edge, exchanges)| {
                    let [from, to] = [start, end].map(|at| exchanges.partition_point(|(done, _)| *done < at));
                    let exchanges = exchanges[from..to].iter().map(|(_, exchange)| *exchange).collect();
                    EdgeCut { edge: *edge, exchanges, lost: 0, stamp_errors_ns: [0.0; 2] }
                })
                .collect(),
            clock_event: None,
            packets: Vec::new(),
        };
        (0..self.nodes).map(cut).collect()
    }

    /// Offset of a node when the reference's clock shows `at`, ns.
    pub(super) fn offset_ns(&self, node: NodeId, at: Timestamp<Reference>) -> f64 {
        let reference = &self.clocks[REFERENCE.index()];
        let at_s = reference.true_s((at.of_reference_node() - START).as_ns() as f64);
        self.clocks[node.index()].error_ns(at_s) - reference.error_ns(at_s)
    }
}
