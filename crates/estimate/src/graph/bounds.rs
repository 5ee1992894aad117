//! Hard intervals: the bounds on each node's offset that the packets prove.
//!
//! An edge i→j proves lo ≤ θ_j − θ_i ≤ hi, two difference constraints. The tightest upper bound of
//! θ_n is the length of the shortest path from the reference to n over arcs i→j of length hi and
//! j→i of length −lo; the lower bound is the negative of the shortest path from n to the reference
//! (Patt-Shamir and Rajsbaum, STOC 1994). A cycle of negative length proves that no assignment of
//! offsets explains the packets.
//!
//! Lengths here are REDUCED: hi − (x_j − x_i) with the estimate x, numbers of the size of delays,
//! so that huge offsets cost no precision. Where the estimate is feasible they are all ≥ 0 and
//! Dijkstra applies; otherwise Bellman–Ford finds a feasible correction or a negative cycle.
//!
//! It does not decide which edge of a negative cycle is wrong; `graph` does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// x_to − x_from ≤ length, relative to the estimate.
#[derive(Copy, Clone, Debug)]
pub(super) struct Arc {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) length: f64,
    /// The edge that provides the bound.
    pub(super) edge: usize,
}

/// Lower and upper bounds of each node's offset minus its estimate; infinite if unbounded.
pub(super) type Intervals = Vec<[f64; 2]>;

/// The intervals, or the edges of a cycle that proves a fault.
pub(super) fn intervals(nodes: usize, reference: usize, arcs: &[Arc]) -> Result<Intervals, Vec<usize>> {
    let potential = feasible(nodes, arcs)?;
    let reduced = |arc: &Arc| (arc.length + potential[arc.from] - potential[arc.to]).max(0.0);
    let forward = Adjacency::new(nodes, arcs.iter().map(|arc| (arc.from, arc.to, reduced(arc))));
    let backward = Adjacency::new(nodes, arcs.iter().map(|arc| (arc.to, arc.from, reduced(arc))));
    let (out, back) = (forward.distances(reference), backward.distances(reference));
    let moved = |node: usize| potential[node] - potential[reference];
    Ok((0..nodes).map(|node| [moved(node) - back[node], moved(node) + out[node]]).collect())
}

/// A correction of the estimate that satisfies every arc (zero when the estimate already does), or
/// a negative cycle.
fn feasible(nodes: usize, arcs: &[Arc]) -> Result<Vec<f64>, Vec<usize>> {
    let mut potential = vec![0.0; nodes];
    let mut cause: Vec<Option<usize>> = vec![None; nodes];
    // As if a source were joined to every node by an arc of length 0: n nodes, so n rounds settle
    // it.
    for _ in 0..=nodes {
        let mut changed = None;
        for (index, arc) in arcs.iter().enumerate() {
            let reach = potential[arc.from] + arc.length;
            if reach < potential[arc.to] - SLACK_NS {
                potential[arc.to] = reach;
                cause[arc.to] = Some(index);
                changed = Some(arc.to);
            }
        }
        let Some(node) = changed else {
            return Ok(potential);
        };
        if let Some(cycle) = cycle_behind(node, &cause, arcs) {
            return Err(cycle);
        }
    }
    // Unreachable but for rounding: a change in the last round implies a cycle of causes.
    Ok(potential)
}

/// The edges of the cycle that the causes of `node` run into, if they do.
fn cycle_behind(node: usize, cause: &[Option<usize>], arcs: &[Arc]) -> Option<Vec<usize>> {
    let mut at = node;
    for _ in 0..cause.len() {
        at = arcs[cause[at]?].from;
    }
    let start = at;
    let mut edges = Vec::new();
    for _ in 0..cause.len() {
        let arc = &arcs[cause[at]?];
        edges.push(arc.edge);
        at = arc.from;
        if at == start {
            break;
        }
    }
    edges.sort_unstable();
    edges.dedup();
    Some(edges)
}

/// Arcs by their tail.
struct Adjacency {
    first: Vec<usize>,
    heads: Vec<(usize, f64)>,
}

impl Adjacency {
    fn new(nodes: usize, arcs: impl Iterator<Item = (usize, usize, f64)> + Clone) -> Self {
        let mut first = vec![0; nodes + 1];
        for (from, _, length) in arcs.clone() {
            first[from + 1] += usize::from(length.is_finite());
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut heads = vec![(0, 0.0); first[nodes]];
        for (from, to, length) in arcs.filter(|arc| arc.2.is_finite()) {
            heads[next[from]] = (to, length);
            next[from] += 1;
        }
        Self { first, heads }
    }

    /// Dijkstra.
    fn distances(&self, start: usize) -> Vec<f64> {
        let mut distance = vec![f64::INFINITY; self.first.len() - 1];
        distance[start] = 0.0;
        let mut queue = BinaryHeap::from([(Reverse(0u64), start)]);
        while let Some((Reverse(bits), node)) = queue.pop() {
            if f64::from_bits(bits) > distance[node] {
                continue;
            }
            for &(to, length) in &self.heads[self.first[node]..self.first[node + 1]] {
                let reach = distance[node] + length;
                if reach < distance[to] {
                    distance[to] = reach;
                    // Non-negative doubles order as their bits do.
                    queue.push((Reverse(reach.to_bits()), to));
                }
            }
        }
        distance
    }
}

/// Rounding of lengths must not look like a negative cycle.
const SLACK_NS: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arc(from: usize, to: usize, length: f64) -> Arc {
        Arc { from, to, length, edge: 10 * from + to }
    }

    /// Floyd–Warshall: all shortest paths, or `None` if there is a negative cycle.
    fn brute_force(nodes: usize, arcs: &[Arc]) -> Option<Vec<Vec<f64>>> {
        let mut distance = vec![vec![f64::INFINITY; nodes]; nodes];
        for (node, row) in distance.iter_mut().enumerate() {
            row[node] = 0.0;
        }
        for arc in arcs {
            distance[arc.from][arc.to] = distance[arc.from][arc.to].min(arc.length);
        }
        for via in 0..nodes {
            for from in 0..nodes {
                for to in 0..nodes {
                    let detour = distance[from][via] + distance[via][to];
                    distance[from][to] = distance[from][to].min(detour);
                }
            }
        }
        (0..nodes).all(|node| distance[node][node] >= 0.0).then_some(distance)
    }

    proptest! {
        #[test]
        fn equal_all_shortest_paths(list in prop::collection::vec((0usize..6, 0usize..6, -8i32..40), 0..25)) {
            let list = list.into_iter().filter(|(from, to, _)| from != to);
            let arcs: Vec<Arc> = list.map(|(from, to, length)| arc(from, to, f64::from(length))).collect();
            match (intervals(6, 1, &arcs), brute_force(6, &arcs)) {
                (Ok(found), Some(distance)) => {
                    for node in 0..6 {
                        prop_assert_eq!(found[node], [-distance[node][1], distance[1][node]]);
                    }
                }
                (Err(edges), None) => {
                    prop_assert!(!edges.is_empty());
                    // The cycle's arcs alone are already contradictory.
                    let alone: Vec<Arc> = arcs.iter().filter(|arc| edges.contains(&arc.edge)).copied().collect();
                    prop_assert!(brute_force(6, &alone).is_none());
                }
                (found, expected) => prop_assert!(false, "{found:?} {expected:?}"),
            }
        }
    }
}
