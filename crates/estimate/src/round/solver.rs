//! Solves rounds, each with knowledge of the earlier ones, by graph, watch, smoother and clamp.
//!
//! The graph gives the round's own offsets and hard intervals, and the watch names faults. The live
//! smoother gives offset, rate and sigma from all rounds so far, clamped to the hard interval. The
//! errors that hosts and the conversion of hardware stamps hide from all of them are added to sigma
//! last.

use probe_sync_lines::{Decision, EdgeFit, Hosts, NodeWindow, Round};
use probe_sync_time::{Edge, NodeId, RoundId};

use super::{directions, unfitted};
use crate::Error;
use crate::edge_fit::FitOptions;
use crate::faults::{RoundView, Watch};
use crate::graph::{self, GraphInput, GraphOptions, GraphSolution};
use crate::smoother::{self, Online, SmoothedOffset};
use crate::stamp_errors::{HostTerm, StampErrors};

/// What is known about a run before its first round.
#[derive(Clone, Debug, PartialEq)]
pub struct SolverOptions {
    /// Number of nodes; they are `0..nodes`.
    pub nodes: usize,
    /// Reference node, whose offset is zero.
    pub reference: NodeId,
    /// Which nodes share a host.
    pub hosts: Hosts,
    /// Assumptions of the graph.
    pub graph: GraphOptions,
    /// Options for fitting windows if a whole run is cut again; the rounds themselves are already
    /// fitted.
    pub fit: FitOptions,
}

impl SolverOptions {
    /// Creates options for nodes on separate hosts, with the default graph and fit.
    pub fn new(nodes: usize, reference: NodeId) -> Self {
        Self { nodes, reference, hosts: Hosts::default(), graph: GraphOptions::default(), fit: FitOptions::default() }
    }
}

/// Solves rounds from all nodes' windows, each using the knowledge from previous ones.
///
/// ```
/// use probe_sync_estimate::edge_fit::FitOptions;
/// use probe_sync_estimate::round::{EdgeCut, Solver, SolverOptions, WindowCut, fit_window};
/// use probe_sync_time::{Edge, Exchange, NodeId, RoundId, StampSource, Timestamp};
///
/// // Node 1 is 1000 ns ahead of node 0, every packet takes 200 ns. Two packets each way: sent, received, sent, received.
/// let exchange = |seq: u32, at: i64| Exchange {
///     edge: Edge::new(0, 1),
///     seq,
///     stamp: StampSource::Kernel,
///     t: [at, at + 1200, at + 100, at + 1300, at + 2000, at + 1200, at + 2100, at + 1300].map(Timestamp::from_ns),
/// };
/// let exchanges: Vec<Exchange> = (0..20).map(|seq| exchange(seq, i64::from(seq) * 50_000_000)).collect();
/// let cut = WindowCut {
///     node: NodeId(0),
///     start: Timestamp::from_ns(0),
///     end: Timestamp::from_ns(1_000_000_000),
///     edges: vec![EdgeCut { edge: Edge::new(0, 1), exchanges, lost: 0, stamp_errors_ns: [0.0; 2] }],
///     clock_event: None,
///     packets: Vec::new(),
/// };
/// let (window, left_out) = fit_window(&cut, RoundId(0), &FitOptions::default(), false);
/// assert_eq!((window.edges.len(), left_out), (1, 0));
///
/// let round = Solver::new(SolverOptions::new(2, NodeId(0))).solve(RoundId(0), &window, std::slice::from_ref(&window))?;
/// let ahead = &round.data.all_nodes[1];
/// assert!((ahead.offset_ns - 1000.0).abs() < 1.0, "node 1 is ahead: {} ns", ahead.offset_ns);
/// assert!(ahead.bound_lo_ns < 1000.0 && 1000.0 < ahead.bound_hi_ns);
/// # Ok::<(), probe_sync_estimate::Error>(())
/// ```
#[derive(Debug)]
pub struct Solver {
    options: SolverOptions,
    watch: Watch,
    smoother: Online,
    stamp_errors: StampErrors,
}

/// A solved round, with its inputs.
#[derive(Clone, Debug)]
pub struct SolvedRound {
    /// The data sent to all ranks; the decision is not made yet.
    pub data: Round,
    /// All fitted edges, in order of the windows.
    pub edges: Vec<EdgeFit>,
    /// Solution of this round alone, before the smoother.
    pub alone: GraphSolution,
    /// Results of the live smoother, by node; `None` if no packets show a node's clock.
    pub smoothed: Vec<Option<SmoothedOffset>>,
}

impl SolvedRound {
    /// Frees what the smoother of the whole run does not need: the results of the round alone and
    /// of the live smoother.
    pub fn forget_working(&mut self) {
        (self.alone, self.smoothed) = (GraphSolution::default(), Vec::new());
    }
}

impl Solver {
    /// Creates a solver for a new run.
    pub fn new(options: SolverOptions) -> Self {
        let stamp_errors = StampErrors::new(options.nodes, options.reference, options.hosts.clone());
        let smoother = Online::new(options.nodes, options.reference);
        Self { options, watch: Watch::default(), smoother, stamp_errors }
    }

    /// Solves the next round. `reference` is the reference node's window, and `windows` are those
    /// of all contributing nodes.
    ///
    /// # Errors
    /// Returns an error if an edge names a node that does not exist.
    pub fn solve(
        &mut self,
        round_id: RoundId,
        reference: &NodeWindow,
        windows: &[NodeWindow],
    ) -> Result<SolvedRound, Error> {
        let SolverOptions { nodes, reference: reference_node, graph, .. } = self.options;
        let edges: Vec<EdgeFit> = windows.iter().flat_map(|window| window.edges.iter().cloned()).collect();
        let reference_midpoint = reference.midpoint().on_reference();
        let input = GraphInput { nodes, reference: reference_node, reference_midpoint, edges: &edges };
        let alone = graph::solve(&input, &graph)?;
        let event = |window: &NodeWindow| window.clock_event.map(|event| (window.node_id, event));
        let clock_events: Vec<_> = windows.iter().filter_map(event).collect();
        let verdict = self.watch.observe(&RoundView {
            round: round_id,
            reference: reference_node,
            reference_midpoint,
            edges: &edges,
            nodes: &alone.nodes,
            reporting: &windows.iter().map(|window| window.node_id).collect::<Vec<_>>(),
            excluded: &alone.excluded,
            clock_events: &clock_events,
            unfitted: &unfitted(windows, nodes),
            directions: &directions(windows, nodes),
        });
        let left_out: Vec<Edge> =
            verdict.left_out.iter().filter(|(round, _)| *round == round_id).map(|(_, edge)| *edge).collect();
        let broken: Vec<NodeId> = verdict.breaks.iter().map(|broken| broken.node).collect();
        let view = smoother::SmootherRound::solved(round_id, reference_midpoint, &edges, &alone, &left_out);
        let smoothed = self.smoother.observe(&view, &broken);
        // The edges of a node that is invalid told the smoother nothing, and its prediction is not
        // where the clock is now.
        let (mut all_nodes, mut clamped) = (alone.nodes.clone(), alone.clamped);
        let sound = |node: &NodeId| !verdict.invalid.contains(node);
        self.stamp_errors.learn(&edges);
        for (node, smoothed) in all_nodes.iter_mut().zip(&smoothed) {
            let smoothed = smoothed.filter(|_| node.reachable && sound(&node.node_id));
            clamped += u32::from(smoothed.is_some_and(|smoothed| smoothed.put_into(node)));
            // What the round alone says has the graph's own term for hosts.
            let hosts = if smoothed.is_some() { HostTerm::Added } else { HostTerm::Contained };
            self.stamp_errors.widen(node, hosts);
        }
        let data = Round {
            round_id,
            reference: reference_node,
            carried_by: None,
            window_start: reference.window_start.on_reference(),
            window_end: reference.window_end.on_reference(),
            all_nodes,
            excluded_edges: alone.excluded.clone(),
            worst_edge: alone.worst_edge,
            asymmetry_sd_ns: self.smoother.asymmetry_sd_ns(),
            loops: (alone.loops.count, alone.loops.rms_ns),
            clamped,
            contradictions: alone.negative_cycles.clone(),
            clock_events,
            watch: verdict,
            decision: Decision::STOP,
        };
        Ok(SolvedRound { data, edges, alone, smoothed })
    }
}
