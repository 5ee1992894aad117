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
pub(crate) mod components;
mod covariance;
pub(crate) mod edges;
mod input;
pub mod linear;
mod robust;
mod solution;

use probe_sync_time::Edge;

pub use self::covariance::covariance;
pub use self::input::{GraphInput, GraphOptions};
use self::robust::Problem;
pub use self::solution::{GraphSolution, LoopSummary};
use crate::Error;
use crate::window::EdgeAlphaBeta;

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
