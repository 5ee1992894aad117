//! GraphCalc, which turns all edges of a round into the offset, drift, uncertainty and hard
//! interval of every node.
//!
//! The master gathers every node's [`EdgeFit`]s, calls [`solve`] once per round and
//! broadcasts the result. `docs/graph_calc.md` contains the derivation with worked examples. In
//! short:
//! 1. unusable edges are left out with the reason; nodes that no chain of edges joins to the
//!    reference are reported;
//! 2. a spanning tree gives integer potentials, so that the size of the offsets costs no precision
//!    (`edges`);
//! 3. weighted least squares for the corrections of offsets and drifts (`linear`), repeated with
//!    Student-t weights; each time every edge is first moved to the reference's midpoint with the
//!    present offsets (`robust`);
//! 4. edges far outside the scatter are excluded and named, and the round is solved again;
//! 5. shortest paths give the hard intervals, a negative cycle a proof of a fault (`bounds`);
//! 6. the covariance of every node (`covariance`), path asymmetry included.
//!
//! What no estimator can see: asymmetry common to all edges that join one part of the nodes to the
//! rest. [`GraphOptions::common_asymmetry`] states an assumption about it; the hard interval
//! assumes nothing. In a run's files the smoother's sigma takes the place of this one, and
//! `stamp_errors` adds the same term to it.
//!
//! It does not smooth over rounds. `NodeEstimate::offset_ns` is an f64 and resolves 1 ns up to
//! 9·10¹⁵ ns (104 days); larger offsets are solved just as exactly and then rounded.

mod bounds;
pub(crate) mod components;
mod covariance;
pub(crate) mod edges;
mod input;
pub mod linear;
pub(crate) mod robust;
mod solution;

use probe_sync_lines::EdgeFit;
use probe_sync_time::Edge;

pub use self::covariance::covariance;
pub(crate) use self::input::HOST_SHARE;
pub use self::input::{GraphInput, GraphOptions};
use self::robust::Problem;
pub use self::solution::{GraphSolution, LoopSummary};
use crate::Error;

/// Solves a round.
///
/// ```
/// use probe_sync_estimate::graph::{GraphInput, GraphOptions, solve};
/// # use probe_sync_lines::EdgeFit;
/// # use probe_sync_time::{NodeId, StampSource, Timestamp};
/// # fn edge(theta_ns: f64, midpoint_ns: i64) -> EdgeFit {
/// #     EdgeFit {
/// #         src_node_id: NodeId(0),
/// #         dst_node_id: NodeId(1),
/// #         midpoint: Timestamp::from_ns(midpoint_ns),
/// #         alpha: 0.0,
/// #         beta: theta_ns,
/// #         pairs_count: 100,
/// #         lost_count: 0,
/// #         covariance: [25.0, 0.0, 1e-18],
/// #         margin_ns: 200.0,
/// #         bound_lo_ns: theta_ns - 200.0,
/// #         bound_hi_ns: theta_ns + 200.0,
/// #         alpha_bounds: [-1e-6, 1e-6],
/// #         feasible: true,
/// #         purity: 1.0,
/// #         stamp: StampSource::Kernel,
/// #         stamp_errors_ns: [0.0; 2],
/// #     }
/// # }
/// // One fitted edge 0→1 with theta = offset_1 − offset_0 = +1000 ns, known to ±5 ns, hard bounds ±200 ns.
/// let edges = [edge(1000.0, 0)];
/// let reference_midpoint = Timestamp::from_ns(0);
/// let input = GraphInput { nodes: 3, reference: NodeId(0), reference_midpoint, edges: &edges };
/// let solution = solve(&input, &GraphOptions::default())?;
/// let ahead = &solution.nodes[1];
/// assert!((ahead.offset_ns - 1000.0).abs() < 1e-6, "node 1's clock shows 1000 ns more than the reference's");
/// assert!(ahead.bound_lo_ns <= 800.0 && ahead.bound_hi_ns >= 1200.0);
/// assert!(!solution.nodes[2].reachable, "no edge joins node 2 to the reference");
/// # Ok::<(), probe_sync_estimate::Error>(())
/// ```
///
/// # Errors
/// Returns an error if the reference or an edge names a node that does not exist.
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
    let outside = |edge: &&EdgeFit| edge.src_node_id.index().max(edge.dst_node_id.index()) >= input.nodes;
    match input.edges.iter().find(outside) {
        Some(edge) => Err(Error::NoSuchNode { edge: edge.edge(), nodes: input.nodes }),
        None => Ok(()),
    }
}

/// Rounds of exclusion. Nodes that still have contradictions then get no hard interval.
const ATTEMPTS_MAX: usize = 64;

#[cfg(test)]
mod tests;
