//! Clocks that warm up: how far the lines of a whole run are from the truth, and whether what they state holds.
//!
//! Place in the flow: beside [`fault_cases`](crate::fault_cases). This is a second generator, written from a description and not
//! from the first one (`world`), so that what was tuned on that one is judged on other data: 16 nodes with 6 neighbours, 20 coded pairs per second on each edge
//! for 64 s; `clock` draws the clocks, `network` the paths and stamps. Its exchanges take the way of a live run: windows
//! of 4 s, [`fit_window`], one [`Solver`]; then [`Smoothed`] with all exchanges, lines every 250 ms. [`run`] judges these lines against
//! the truth, from the first to the last, and [`WarmingOutcome`] pools seeds.
//!
//! What it does not do: drive endpoints (`world` does), lose packets, or let clocks step. So a step that is named is false, and every line
//! that is missing is a hole.

mod clock;
mod judge;
mod network;

use probe_sync_estimate::edge_fit::FitOptions;
use probe_sync_estimate::graph::GraphOptions;
use probe_sync_estimate::round::{EdgeCut, SolvedRound, Solver, SolverOptions, WindowCut, fit_window};
use probe_sync_estimate::run::{Recorded, Smoothed};
use probe_sync_estimate::window::NodeWindowData;
use probe_sync_probe::topology;
use probe_sync_time::{Duration, Edge, Exchange, NodeId, Reference, RoundId, StampSource, System, Timestamp};

use self::clock::WarmingClock;
pub use self::judge::{WarmingOutcome, WarmingRun};
use self::network::Pair;
use crate::world::random::{Draws, Purpose};

/// A kind of stamps and a load.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct WarmingCell {
    /// Hardware, or kernel.
    pub stamps: StampSource,
    /// Mean share of the time in which a packet finds a queue.
    pub load: f64,
}

impl WarmingCell {
    /// All, in the order of tables.
    pub const ALL: [Self; 3] = [
        Self { stamps: StampSource::Hardware, load: 0.2 },
        Self { stamps: StampSource::Hardware, load: 0.8 },
        Self { stamps: StampSource::Kernel, load: 0.8 },
    ];

    /// Cells share no numbers, so that a seed's luck shows once and not in every cell.
    fn seed(&self, seed: u64) -> u64 {
        let place = Self::ALL.iter().position(|cell| cell == self).unwrap_or(Self::ALL.len());
        seed.wrapping_mul(SEEDS_APART).wrapping_add(place as u64)
    }

    /// As `hw 0.8`.
    pub fn name(&self) -> String {
        let stamps = if self.stamps == StampSource::Hardware { "hw" } else { "sw" };
        format!("{stamps} {}", self.load)
    }
}

/// Runs one seed of a cell and judges it.
pub fn run(cell: &WarmingCell, seed: u64) -> WarmingRun {
    run_for(cell, seed, &SIZE)
}

/// How large a run is.
#[derive(Copy, Clone, Debug)]
struct Size {
    nodes: u32,
    neighbors: u32,
    seconds: f64,
    window_s: f64,
}

/// A run of that size.
fn run_for(cell: &WarmingCell, seed: u64, size: &Size) -> WarmingRun {
    let world = World::new(cell, seed, size);
    let nodes = size.nodes;
    let windows = (size.seconds / size.window_s) as usize;
    let options = SolverOptions { nodes: nodes as usize, reference: REFERENCE, graph: GraphOptions::default() };
    let mut solver = Solver::new(options);
    let cuts: Vec<Vec<WindowCut>> = (0..windows).map(|window| world.cuts(window)).collect();
    let mut rounds: Vec<SolvedRound> = Vec::with_capacity(windows);
    for (id, cuts) in (0..).map(RoundId).zip(&cuts) {
        let fitted = |cut: &WindowCut| fit_window(cut, id, &FitOptions::default(), false).0;
        let windows: Vec<NodeWindowData> = cuts.iter().map(fitted).collect();
        let solved = solver.solve(id, &windows[REFERENCE.index()], &windows);
        rounds.push(solved.expect("the edges join the run's own nodes"));
    }
    let recorded: Vec<Recorded<'_>> = (0..)
        .map(RoundId)
        .zip(&cuts)
        .flat_map(|(round_id, cuts)| {
            let edges = cuts.iter().flat_map(|cut| &cut.edges);
            edges.map(move |cut| Recorded { round_id, edge: cut.edge, exchanges: &cut.exchanges })
        })
        .collect();
    let live = rounds.iter().map(|round| round.data.all_nodes.clone()).collect();
    let smoothed = Smoothed::new(nodes as usize, REFERENCE, rounds, Some(&recorded));
    judge::judge(&world, &smoothed, live)
}

/// Everything that was drawn.
#[derive(Debug)]
struct World {
    nodes: u32,
    window_s: f64,
    clocks: Vec<WarmingClock>,
    edges: Vec<Edge>,
    pairs: Vec<Pair>,
    /// By edge, with the true time at which each finished.
    exchanges: Vec<Vec<(f64, Exchange)>>,
}

impl World {
    fn new(cell: &WarmingCell, seed: u64, size: &Size) -> Self {
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

    /// Every node's window of that number.
    fn cuts(&self, window: usize) -> Vec<WindowCut> {
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
                    EdgeCut { edge: *edge, exchanges, lost: 0 }
                })
                .collect(),
            clock_event: None,
            packets: Vec::new(),
        };
        (0..self.nodes).map(cut).collect()
    }

    /// Offset of a node when the reference's clock shows `at`, ns.
    fn offset_ns(&self, node: NodeId, at: Timestamp<Reference>) -> f64 {
        let reference = &self.clocks[REFERENCE.index()];
        let at_s = reference.true_s((at.of_reference_node() - START).as_ns() as f64);
        self.clocks[node.index()].error_ns(at_s) - reference.error_ns(at_s)
    }
}

/// Between the cells' seeds.
const SEEDS_APART: u64 = 16;

const REFERENCE: NodeId = NodeId(0);
const SIZE: Size = Size { nodes: 16, neighbors: 6, seconds: 64.0, window_s: 4.0 };

/// What the clocks show at the start, less their own offsets.
const START: Timestamp<System> = Timestamp::from_ns(1_700_000_000_000_000_000);

/// Between the lines that are judged.
const SPACING: Duration = Duration::from_ms(250);

#[cfg(test)]
mod tests;
