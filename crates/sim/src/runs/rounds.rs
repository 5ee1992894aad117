//! The round loop over a simulated run: the stages of a live round, window by window.
//!
//! Place in the flow: above [`Running`], below `accuracy` and whoever wants to look at each round and steer the next. One
//! step advances to the window's end, cuts every node's window, fits each edge about the middle of its source's OWN window and
//! solves the graph at the middle of node 0's window: what `probe-sync::rounds` does with processes and messages.
//!
//! What it does not do: lose a node's results on their way to the master, smooth over rounds, or judge; see `accuracy`.

use probe_sync_estimate::edge_fit::{self, FitOptions};
use probe_sync_estimate::graph::{self, GraphInput, GraphOptions, GraphSolution};
use probe_sync_estimate::round::WindowCut;
use probe_sync_estimate::window::{ClockEvent, EdgeAlphaBeta};
use probe_sync_time::{Duration, Edge, NodeId, Reference, System, Timestamp};

use crate::runs::running::Running;
use crate::error::Error;
use crate::runs::simulation::Simulation;

/// A simulated run, one window at a time.
#[derive(Debug)]
pub struct Rounds<'a> {
    /// How edges are fitted.
    pub fit: FitOptions,
    /// How rounds are solved.
    pub graph: GraphOptions,
    running: Running<'a>,
    nodes: usize,
    window: Duration,
    /// True time when the window under way began, and when the run ends.
    begun: Timestamp<System>,
    end: Timestamp<System>,
    index: usize,
}

/// One window of all nodes, solved.
#[derive(Clone, Debug)]
pub struct Round {
    /// Counted from 0.
    pub index: usize,
    /// What every live node collected.
    pub cuts: Vec<WindowCut>,
    /// The fitted edges of all nodes, in order of their source.
    pub edges: Vec<EdgeAlphaBeta>,
    /// The middle of the reference's window on its own clock: the instant of the solution.
    pub reference_midpoint: Timestamp<Reference>,
    /// Offsets and bounds of all nodes.
    pub solution: GraphSolution,
}

impl<'a> Rounds<'a> {
    /// Starts a run of `duration` in windows of `window`.
    ///
    /// # Errors
    /// [`Error::Window`] unless `window` is positive and fits into `duration`.
    pub fn new(simulation: &'a Simulation, duration: Duration, window: Duration) -> Result<Self, Error> {
        let begun = Simulation::START;
        if window.as_ns() <= 0 || window > duration {
            return Err(Error::Window { window, duration });
        }
        Ok(Self {
            fit: FitOptions::default(),
            graph: GraphOptions::default(),
            running: simulation.start(duration),
            nodes: simulation.scenario().nodes as usize,
            window,
            begun,
            end: begun + duration,
            index: 0,
        })
    }

    /// The next window, solved; None when less than a whole window is left.
    pub fn step(&mut self) -> Option<Round> {
        let end = self.begun + self.window;
        if end > self.end {
            return None;
        }
        self.running.advance_to(end);
        let cuts = self.running.cut();
        let middle = self.begun + Duration::from_ns(self.window.as_ns() / 2);
        let own = cuts.iter().find(|cut| cut.node == REFERENCE);
        // A reference that is silent still has a clock, and truth is asked for on it.
        let reference_midpoint = own
            .map_or_else(|| self.running.clocks()[REFERENCE.index()].apply(middle), WindowCut::midpoint)
            .on_reference();
        let edges: Vec<EdgeAlphaBeta> =
            cuts.iter().flat_map(WindowCut::edge_windows).filter_map(|w| edge_fit::fit(&w, &self.fit)).collect();
        let input = GraphInput { nodes: self.nodes, reference: REFERENCE, reference_midpoint, edges: &edges };
        let solution = graph::solve(&input, &self.graph).expect("the simulation's edges join its own nodes");
        let index = self.index;
        (self.index, self.begun) = (index + 1, end);
        Some(Round { index, cuts, edges, reference_midpoint, solution })
    }

    /// The run, to be steered between steps. Do not advance or cut it: its windows would go missing here.
    pub fn running_mut(&mut self) -> &mut Running<'a> {
        &mut self.running
    }

    /// The run: truth and counts.
    pub fn running(&self) -> &Running<'a> {
        &self.running
    }
}

impl Round {
    /// Disturbances of clocks that the nodes themselves saw.
    pub fn clock_events(&self) -> impl Iterator<Item = (NodeId, ClockEvent)> {
        self.cuts.iter().filter_map(|cut| cut.clock_event.map(|event| (cut.node, event)))
    }

    /// Exchanges given up, by edge.
    pub fn losses(&self) -> impl Iterator<Item = (Edge, u32)> {
        self.cuts.iter().flat_map(|cut| &cut.edges).map(|edge| (edge.edge, edge.lost))
    }
}

/// The node whose offset is zero.
pub const REFERENCE: NodeId = NodeId(0);
