//! Conversion of a settled problem into the round's report: one estimate per node, and the excluded
//! edges and nodes.
//!
//! It clamps each estimate to its hard interval and counts the clamped ones.

use std::f64::consts::SQRT_2;

use probe_sync_lines::NodeEstimate;
use probe_sync_time::{Edge, NodeId};

use super::bounds::Intervals;
use super::covariance::covariance;
use super::edges::Moved;
use super::linear::Block;
use super::robust::Problem;

/// A solved round.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphSolution {
    /// Every node, in order of its id.
    pub nodes: Vec<NodeEstimate>,
    /// Excluded edges, each with the reason.
    pub excluded: Vec<(Edge, String)>,
    /// The edge, of those used, with the largest normalised residual, and that residual in ns.
    pub worst_edge: Option<(Edge, f64)>,
    /// Estimated standard deviation of an edge's path asymmetry, for an edge of median margin, ns.
    pub asymmetry_sd_ns: f64,
    /// Reweightings, over all attempts.
    pub iterations: u32,
    /// Steps of the iterative solver, over all attempts; 0 if the dense solver was used.
    pub solver_steps: u32,
    /// Nodes whose estimate was moved into the hard interval.
    pub clamped: u32,
    /// Cycles of edges with contradictory hard bounds: a clock stepped or a timestamp is wrong.
    pub negative_cycles: Vec<Vec<Edge>>,
    /// Residuals of the graph's independent loops.
    pub loops: LoopSummary,
}

/// Residuals around the loops that each edge outside the spanning tree closes.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct LoopSummary {
    /// Number of loops.
    pub count: u32,
    /// Root mean square of the sum of beta around the loop, ns.
    pub rms_ns: f64,
    /// The loop with the largest sum, identified by its closing edge, and that sum, ns.
    pub worst: Option<(Edge, f64)>,
}

/// Creates the solution. `intervals` is `None` if contradictions remained; then no hard intervals
/// are given.
pub(super) fn collect(
    problem: Problem,
    intervals: Option<Intervals>,
    negative_cycles: Vec<Vec<Edge>>,
) -> GraphSolution {
    let moved = problem.all_moved();
    let covariances = if problem.options.covariance {
        covariance(&problem.laplacian, problem.reference)
    } else {
        vec![[f64::INFINITY, 0.0, f64::INFINITY]; problem.states.len()]
    };
    let mut nodes: Vec<NodeEstimate> =
        (0..problem.states.len()).map(|node| estimate(&problem, node, covariances[node])).collect();
    count_edges(&problem, &moved, &mut nodes);
    let mut clamped = 0;
    let intervals = intervals.unwrap_or_else(|| vec![[f64::NEG_INFINITY, f64::INFINITY]; nodes.len()]);
    for (node, interval) in nodes.iter_mut().zip(intervals).filter(|(node, _)| node.reachable) {
        clamped += u32::from(confine(node, interval, &problem));
    }
    GraphSolution {
        nodes,
        worst_edge: worst_edge(&problem, &moved),
        asymmetry_sd_ns: problem.excess[0].sqrt(),
        iterations: problem.iterations,
        solver_steps: problem.solver_steps,
        clamped,
        negative_cycles,
        loops: loop_summary(&problem),
        excluded: problem.excluded,
    }
}

fn estimate(problem: &Problem, node: usize, [offset_variance, _, rate_variance]: Block) -> NodeEstimate {
    let state = &problem.states[node];
    let reachable = problem.reachable[node];
    let reference = node == problem.reference;
    // The node's own and the reference's; the reference's own offset is zero by definition.
    let common = if reference { 0.0 } else { SQRT_2 * problem.options.common_asymmetry * problem.margin };
    let offset = state.offset();
    let rounding = (offset.abs().next_up() - offset.abs()).powi(2) / 12.0;
    let or_zero = |value: f64| if reachable { value } else { 0.0 };
    let or_unknown = |sigma: f64| if reachable { sigma } else { f64::INFINITY };
    NodeEstimate {
        node_id: NodeId(node as u32),
        offset_ns: or_zero(offset),
        drift_ppm: or_zero(state.x[1] * PPM_PER_NS_PER_S),
        residual: 0.0,
        reachable,
        converged: reachable && problem.converged,
        sigma_ns: or_unknown((offset_variance + common * common + rounding).sqrt()),
        asymmetry_sigma_ns: 0.0,
        drift_sigma_ppm: or_unknown(rate_variance.sqrt() * PPM_PER_NS_PER_S),
        bound_lo_ns: f64::NEG_INFINITY,
        bound_hi_ns: f64::INFINITY,
        edges_used: 0,
        edges_excluded: 0,
    }
}

/// Edge counts and weighted root mean square residuals of the nodes.
fn count_edges(problem: &Problem, moved: &[Moved], nodes: &mut [NodeEstimate]) {
    let mut sums = vec![[0.0; 2]; nodes.len()];
    for ((equation, moved), weight) in problem.equations.iter().zip(moved).zip(&problem.weights) {
        let weight = weight / problem.covariance(equation, moved)[0];
        for node in [equation.from, equation.to] {
            nodes[node].edges_used += u32::from(problem.reachable[node]);
            sums[node][0] += weight * moved.residual[0].powi(2);
            sums[node][1] += weight;
        }
    }
    for (node, [squares, weights]) in nodes.iter_mut().zip(sums).filter(|(node, _)| node.reachable) {
        node.residual = if weights > 0.0 { (squares / weights).sqrt() } else { 0.0 };
    }
    for (edge, _) in &problem.excluded {
        nodes[edge.src.index()].edges_excluded += 1;
        if edge.dst != edge.src {
            nodes[edge.dst.index()].edges_excluded += 1;
        }
    }
}

/// Sets the hard interval and moves the estimate inside; true when it had to be moved.
fn confine(node: &mut NodeEstimate, [low, high]: [f64; 2], problem: &Problem) -> bool {
    let state = &problem.states[node.node_id.index()];
    if node.node_id.index() == problem.reference {
        (node.bound_lo_ns, node.bound_hi_ns) = (0.0, 0.0);
        return false;
    }
    let shift = |by: f64| state.potential as f64 + (state.x[0] + by);
    let grain = 2.0 * (node.offset_ns.abs().next_up() - node.offset_ns.abs());
    (node.bound_lo_ns, node.bound_hi_ns) = (shift(low) - grain, shift(high) + grain);
    let inside = low <= 0.0 && high >= 0.0;
    if !inside {
        node.offset_ns = shift(0f64.clamp(low, high.max(low)));
    }
    !inside
}

fn worst_edge(problem: &Problem, moved: &[Moved]) -> Option<(Edge, f64)> {
    let scored = problem.equations.iter().zip(moved).filter(|(equation, _)| problem.reachable[equation.from]);
    let score = |pair: &(_, _)| problem.normalised(pair.0, pair.1)[0];
    let (equation, moved) = scored.max_by(|a, b| score(a).total_cmp(&score(b)))?;
    Some((equation.edge, moved.residual[0]))
}

fn loop_summary(problem: &Problem) -> LoopSummary {
    let count = problem.loops.len() as u32;
    let squares: f64 = problem.loops.iter().map(|(_, sum)| sum * sum).sum();
    let worst = problem.loops.iter().max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    LoopSummary {
        count,
        rms_ns: if count > 0 { (squares / f64::from(count)).sqrt() } else { 0.0 },
        worst: worst.copied(),
    }
}

/// 1 ns per s is a billionth.
const PPM_PER_NS_PER_S: f64 = 1e-3;
