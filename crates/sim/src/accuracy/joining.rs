//! Joins the edges of a baseline into nodes, by sums along a tree or by unweighted least squares
//! over all loops.
//!
//! Our own method uses `estimate::graph` instead. An edge's line is θ = beta + alpha·x, with x
//! counted from its midpoint on the SOURCE's clock. When the reference reads M₀, the source reads
//! M₀ + offset_src, so every line is first shifted by dx = M₀ + offset_src − midpoint.
//!
//! Least squares and Huygens' loop correction are one thing: the correction y of least norm that
//! makes all loops of the measured θ sum to zero is what the projection onto the differences of
//! potentials takes away (NSDI 2018, section 4.3).
//!
//! It does not weight, question or exclude edges, which is what makes it a baseline.

use std::collections::VecDeque;

use probe_sync_estimate::graph::linear::{Laplacian, Link};
use probe_sync_time::{Edge, NodeId};

/// Line of a baseline for one edge in one window.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct EdgeLine {
    pub(super) edge: Edge,
    /// Time of x = 0, ns on the source's clock.
    pub(super) midpoint_ns: i64,
    /// ns per ns of the source's clock.
    pub(super) alpha: f64,
    /// offset_dst − offset_src at the midpoint, ns.
    pub(super) beta_ns: f64,
}

/// How to combine edges into node offsets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Joining {
    /// Along the tree of fewest hops from the reference; among equal edges the first one.
    Tree,
    /// Unweighted least squares over all edges.
    LeastSquares,
}

/// The nodes and the time of the wanted offsets.
#[derive(Copy, Clone, Debug)]
pub(super) struct Instant {
    /// Number of nodes.
    pub(super) nodes: usize,
    /// The node whose offset is zero.
    pub(super) reference: NodeId,
    /// Reading of the reference clock, ns.
    pub(super) midpoint_ns: i64,
}

/// Offset of every node from the reference at an instant; `None` if no edges lead to it.
pub(super) fn join(instant: Instant, lines: &[EdgeLine], joining: Joining) -> Vec<Option<f64>> {
    let along_tree = along_tree(instant, lines);
    match joining {
        Joining::Tree => along_tree,
        Joining::LeastSquares => corrected(&along_tree, instant, lines),
    }
}

/// Least-squares potentials of `values` on `edges` with the reference at zero; every node must be
/// connected to it or stays at zero.
pub(crate) fn potentials(nodes: usize, reference: NodeId, edges: &[(usize, usize)], values: &[f64]) -> Vec<f64> {
    let mut fixed = vec![true; nodes];
    for &(from, to) in edges {
        (fixed[from], fixed[to]) = (false, false);
    }
    fixed[reference.index()] = true;
    let links = edges.iter().map(|&(from, to)| Link { from, to, weight: [1.0, 0.0, 1.0] }).collect();
    let laplacian = Laplacian::new(links, fixed);
    let right = laplacian.right_side(values.iter().map(|value| [*value, 0.0]));
    let mut x = vec![[0.0; 2]; nodes];
    laplacian.solve_iterative(&right, &mut x, TOLERANCE_NS, STEPS_PER_NODE * nodes.max(1));
    x.iter().map(|pair| pair[0]).collect()
}

fn along_tree(instant: Instant, lines: &[EdgeLine]) -> Vec<Option<f64>> {
    let Instant { nodes, reference, midpoint_ns } = instant;
    let mut touching = vec![Vec::new(); nodes];
    for (index, line) in lines.iter().enumerate() {
        touching[line.edge.src.index()].push(index);
        touching[line.edge.dst.index()].push(index);
    }
    let mut offsets = vec![None; nodes];
    let mut queue = VecDeque::new();
    if let Some(own) = offsets.get_mut(reference.index()) {
        *own = Some(0.0);
        queue.push_back((reference.index(), 0.0));
    }
    while let Some((node, offset)) = queue.pop_front() {
        for line in touching[node].iter().map(|index| &lines[*index]) {
            let forward = line.edge.src.index() == node;
            let other = if forward { line.edge.dst } else { line.edge.src }.index();
            if offsets[other].is_some() {
                continue;
            }
            // Against the arrow the source's offset is what is sought; beta gives it well enough
            // for dx.
            let source = if forward { offset } else { offset - line.beta_ns };
            let theta = moved(line, midpoint_ns, source);
            let found = if forward { offset + theta } else { offset - theta };
            offsets[other] = Some(found);
            queue.push_back((other, found));
        }
    }
    offsets
}

/// The tree's offsets plus the least-squares solution of the remaining disagreement of the edges.
fn corrected(along_tree: &[Option<f64>], instant: Instant, lines: &[EdgeLine]) -> Vec<Option<f64>> {
    let mut edges = Vec::with_capacity(lines.len());
    let mut left = Vec::with_capacity(lines.len());
    for line in lines {
        let (from, to) = (line.edge.src.index(), line.edge.dst.index());
        if let (Some(source), Some(destination)) = (along_tree[from], along_tree[to]) {
            edges.push((from, to));
            left.push(moved(line, instant.midpoint_ns, source) - (destination - source));
        }
    }
    let corrections = potentials(along_tree.len(), instant.reference, &edges, &left);
    along_tree.iter().zip(corrections).map(|(offset, by)| offset.map(|offset| offset + by)).collect()
}

/// θ of a line when the reference reads M₀ and the source is `source_offset` ahead of it.
fn moved(line: &EdgeLine, reference_midpoint_ns: i64, source_offset: f64) -> f64 {
    let dx = (i128::from(reference_midpoint_ns) - i128::from(line.midpoint_ns)) as f64 + source_offset;
    line.beta_ns + line.alpha * dx
}

/// Far below a picosecond for graphs of thousands of nodes.
const TOLERANCE_NS: f64 = 1e-6;

/// Conjugate gradients take as many steps as there are unknowns, apart from rounding.
const STEPS_PER_NODE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    const MIDPOINT_NS: i64 = 1_790_000_000_000_000_000;

    /// Lines with a rate error of 1 ppm per step of node number, so that moving them matters.
    fn line(src: u32, dst: u32, beta_ns: f64, misplaced_ns: i64) -> EdgeLine {
        let alpha = 1e-6;
        let beta_ns = beta_ns + alpha * misplaced_ns as f64;
        EdgeLine { edge: Edge::new(src, dst), midpoint_ns: MIDPOINT_NS + misplaced_ns, alpha, beta_ns }
    }

    fn check(lines: &[EdgeLine], joining: Joining, expected: &[Option<f64>]) {
        let instant = Instant { nodes: expected.len(), reference: NodeId(0), midpoint_ns: MIDPOINT_NS };
        let found = join(instant, lines, joining);
        for (found, expected) in found.iter().zip(expected) {
            let near = found.zip(*expected).is_some_and(|(a, b)| (a - b).abs() < 1e-3);
            assert!(near || found == expected, "{found:?} {expected:?} by {joining:?}");
        }
    }

    #[test]
    fn a_tree_sums_with_and_against_the_arrows() {
        // Node 1 is 100 ahead, node 2 another 50, node 3 is joined to nothing.
        let lines = [line(0, 1, 100.0, 5_000_000), line(2, 1, -50.0, 0)];
        check(&lines, Joining::Tree, &[Some(0.0), Some(100.0), Some(150.0), None]);
        check(&lines, Joining::LeastSquares, &[Some(0.0), Some(100.0), Some(150.0), None]);
    }

    #[test]
    fn another_reference_shifts_everybody_alike() {
        let lines = [line(0, 1, 100.0, 0), line(2, 1, -50.0, 0), line(0, 2, 156.0, 0)];
        for (joining, expected) in [(Joining::Tree, [-100.0, 0.0, 50.0]), (Joining::LeastSquares, [-102.0, 0.0, 52.0])]
        {
            let found = join(Instant { nodes: 3, reference: NodeId(1), midpoint_ns: MIDPOINT_NS }, &lines, joining);
            for (found, expected) in found.iter().zip(expected) {
                assert!(
                    found.is_some_and(|found| (found - expected).abs() < 1e-3),
                    "{found:?} {expected} by {joining:?}"
                );
            }
        }
    }

    #[test]
    fn a_loop_that_does_not_close_is_shared_evenly() {
        // Around the triangle 10 + 20 − 24 = 6 are too many: each edge gives up 2.
        let lines = [line(0, 1, 10.0, 0), line(1, 2, 20.0, 0), line(0, 2, 24.0, 0)];
        check(&lines, Joining::Tree, &[Some(0.0), Some(10.0), Some(24.0)]);
        check(&lines, Joining::LeastSquares, &[Some(0.0), Some(8.0), Some(26.0)]);
    }
}
