//! GraphCalc: all edges of a round → offset, drift, uncertainty and hard interval of every node.
//!
//! Place in the flow: the master gathers every node's [`EdgeAlphaBeta`]s and calls [`solve`] once per round; the
//! result is broadcast. Derivation with worked examples: `docs/graph_calc.md`. In short:
//! 1. unusable edges are left out with the reason; nodes that no chain of edges joins to the reference are reported;
//! 2. a spanning tree gives integer potentials, so that the size of the offsets costs no precision (`edges`);
//! 3. weighted least squares for the corrections of offsets and drifts (`linear`), repeated with Student-t weights;
//!    each time every edge is first moved to the reference's midpoint with the present offsets (`robust`);
//! 4. edges far outside the scatter are excluded and named, and the round is solved again;
//! 5. shortest paths give the hard intervals, a negative cycle a proof of a fault (`bounds`);
//! 6. the covariance of every node (`covariance`), path asymmetry included.
//!
//! What no estimator can see: asymmetry common to all edges that join one part of the nodes to the rest.
//! [`GraphOptions::common_asymmetry`] states an assumption about it; the hard interval
//! assumes nothing, and the smoother's sigma, which takes the place of this one in a run's files, has no such term.
//!
//! What it does not do: smooth over rounds. `NodeEstimate::offset_ns` is an f64 and resolves 1 ns up to 9·10¹⁵ ns (104
//! days); larger offsets are solved as exactly and then rounded.

mod bounds;
mod covariance;
pub(crate) mod edges;
pub mod linear;
mod robust;
mod solution;

use probe_sync_time::{Edge, NodeId, Reference, Timestamp};

pub use self::covariance::covariance;
use self::edges::Equation;
use self::robust::Problem;
use crate::Error;
use crate::window::{EdgeAlphaBeta, NodeEstimate};

/// A round to be solved.
#[derive(Copy, Clone, Debug)]
pub struct GraphInput<'a> {
    /// Number of nodes; they are `0..nodes`.
    pub nodes: usize,
    /// The node whose offset is zero.
    pub reference: NodeId,
    /// The window's midpoint M₀ on the reference's clock: the instant at which the offsets hold.
    pub reference_midpoint: Timestamp<Reference>,
    /// Fitted edges, in any order; the same two nodes may be joined more than once.
    pub edges: &'a [EdgeAlphaBeta],
}

/// What the solver may assume.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct GraphOptions {
    /// Prior standard deviation of an edge's path asymmetry, as a share of its margin.
    pub asymmetry_prior: f64,
    /// What the prior counts against the loops' evidence, in degrees of freedom.
    pub asymmetry_prior_weight: f64,
    /// Standard deviation of the asymmetry common to all edges of a node, as a share of the median margin. No loop
    /// shows it and no number of edges reduces it.
    pub common_asymmetry: f64,
    /// Compute the covariance (the dearest part in large graphs); without it every sigma is infinite.
    pub covariance: bool,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self { asymmetry_prior: 0.1, asymmetry_prior_weight: 2.0, common_asymmetry: 0.02, covariance: true }
    }
}

/// A solved round.
#[derive(Clone, Debug, PartialEq)]
pub struct GraphSolution {
    /// Every node, in order of its id.
    pub nodes: Vec<NodeEstimate>,
    /// Edges left out, each with the reason.
    pub excluded: Vec<(Edge, String)>,
    /// The edge, of those used, with the largest normalised residual, and that residual in ns.
    pub worst_edge: Option<(Edge, f64)>,
    /// Estimated standard deviation of an edge's path asymmetry, for an edge of median margin, ns.
    pub asymmetry_sd_ns: f64,
    /// Reweightings, over all attempts.
    pub iterations: u32,
    /// Steps of the iterative solver, over all attempts; 0 when the dense solver served.
    pub solver_steps: u32,
    /// Nodes whose estimate was moved into the hard interval.
    pub clamped: u32,
    /// Cycles of edges whose hard bounds contradict each other: a clock stepped or a stamp lies.
    pub negative_cycles: Vec<Vec<Edge>>,
    /// What the independent loops of the graph close to.
    pub loops: LoopSummary,
}

/// Residuals around the loops that each edge outside the spanning tree closes.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct LoopSummary {
    /// How many there are.
    pub count: u32,
    /// Root mean square of the sum of beta around the loop, ns.
    pub rms_ns: f64,
    /// The loop with the largest sum, named by its closing edge, and that sum, ns.
    pub worst: Option<(Edge, f64)>,
}

/// Solves a round.
///
/// # Errors
/// When the reference or an edge names a node that does not exist.
pub fn solve(input: &GraphInput<'_>, options: &GraphOptions) -> Result<GraphSolution, Error> {
    check(input)?;
    let mut problem = Problem::new(input, options);
    let mut negative_cycles: Vec<Vec<Edge>> = Vec::new();
    let mut intervals = None;
    for _ in 0..ATTEMPTS_MAX {
        problem.connect();
        problem.reweight();
        if problem.exclude_outliers() {
            continue;
        }
        match problem.intervals() {
            Ok(found) => {
                intervals = Some(found);
                break;
            }
            Err(cycle) => {
                negative_cycles.push(cycle.iter().map(|&at| problem.equations[at].edge).collect());
                problem.resolve_cycle(&cycle);
            }
        }
    }
    if intervals.is_none() {
        // The last attempt ended with an exclusion.
        problem.connect();
        problem.reweight();
    }
    Ok(solution::collect(problem, intervals, negative_cycles))
}

fn check(input: &GraphInput<'_>) -> Result<(), Error> {
    if input.reference.index() >= input.nodes {
        return Err(Error::NoSuchReference { reference: input.reference, nodes: input.nodes });
    }
    let outside = |edge: &&EdgeAlphaBeta| edge.src_node_id.index().max(edge.dst_node_id.index()) >= input.nodes;
    match input.edges.iter().find(outside) {
        Some(edge) => Err(Error::NoSuchNode { edge: edge.edge(), nodes: input.nodes }),
        None => Ok(()),
    }
}

/// Rounds of exclusion. What is still contradictory then gets no hard interval.
const ATTEMPTS_MAX: usize = 64;

#[cfg(test)]
mod tests;
