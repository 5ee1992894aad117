//! How far margins fall below their previous minimum: a step within a window does that to one
//! node's edges, the end of a load to all.
//!
//! `paths` keeps the minimum margins, and `clocks` judges the remainder of a node's fall after the
//! fall common to all other nodes is subtracted. Example: the edges of node 5 fall by 5 µs and
//! those between all others by 1 µs ± 0.1, so node 5's fall counts as 4 µs less 0.3.

use probe_sync_lines::EdgeFit;
use probe_sync_time::Edge;

use super::view::RoundView;
use crate::statistics::{TO_SIGMA, median};

/// Amounts by which the margins of a round's edges are below their minimum so far.
pub(super) struct Falls {
    edges: Vec<([usize; 2], f64)>,
    /// Median over the node's own edges, ns, by node.
    own: Vec<f64>,
}

impl Falls {
    /// Computes the falls; `least_ns` returns the smallest margin of an edge so far, 0 if unknown.
    pub(super) fn of(view: &RoundView<'_>, least_ns: impl Fn(Edge) -> f64) -> Self {
        let fall = |edge: &EdgeFit| {
            let least = least_ns(edge.edge());
            let told = edge.pairs_count >= PAIRS_MIN && least > 0.0 && edge.margin_ns.is_finite();
            told.then_some((ends(edge.edge()), least - edge.margin_ns))
        };
        let edges: Vec<_> = view.edges.iter().filter_map(fall).collect();
        let mut own = vec![Vec::new(); view.nodes.len()];
        for (ends, fall) in &edges {
            ends.iter().for_each(|end| own.get_mut(*end).into_iter().for_each(|own| own.push(*fall)));
        }
        Self { edges, own: own.into_iter().map(median).collect() }
    }

    /// Returns the median fall of the other nodes' edges, plus their spread; zero unless most fell.
    fn of_others(&self, node: usize) -> f64 {
        let others: Vec<f64> =
            self.edges.iter().filter(|(ends, _)| !ends.contains(&node)).map(|(_, fall)| *fall).collect();
        let middle = median(others.iter().copied());
        let spread = TO_SIGMA * median(others.iter().map(|fall| (fall - middle).abs()));
        if middle > 0.0 { middle + FALL_SPREADS * spread } else { 0.0 }
    }

    /// Returns the fall expected of an edge if it were like all edges that share no node with it.
    pub(super) fn usual_ns(&self, edge: Edge) -> f64 {
        let [a, b] = ends(edge).map(|end| self.of_others(end));
        a.min(b)
    }

    /// Returns by node the fall of its edges beyond that of all others.
    pub(super) fn of_nodes(&self) -> Vec<f64> {
        let beyond = |(node, fall): (usize, &f64)| if *fall > 0.0 { fall - self.of_others(node) } else { *fall };
        self.own.iter().enumerate().map(beyond).collect()
    }
}

fn ends(edge: Edge) -> [usize; 2] {
    [edge.src.index(), edge.dst.index()]
}

/// Spreads by which a node's edges may fall further than the others' median.
const FALL_SPREADS: f64 = 2.0;

/// Fewest exchanges for a meaningful smallest delay under load.
pub(super) const PAIRS_MIN: u32 = 12;
