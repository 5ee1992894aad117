//! The sources of each node's uncertainty in a solved round, and the effect of one additional or
//! missing edge.
//!
//! With edges e = (i, j) of variance v_e = C_e + A_e (random error and path asymmetry) the
//! covariance of the offsets is P, the inverse of the graph Laplacian Σ_e e eᵀ/v_e with the
//! reference tied to zero.
//! - The estimate is Σ_e P e z_e / v_e, so the random part of node n's variance is Σ_e ((P e)_n /
//!   v_e)² C_e.
//! - An edge more of variance v (Sherman and Morrison 1950): `P' = P − u uᵀ` with
//!   `u = P e / √(v + eᵀ P e)`. An edge less: `P' = P + u uᵀ` with `u = P e / √(v_e − eᵀ P e)`; the
//!   root vanishes where the edge is a bridge.
//!
//! By hand: one node, one edge of variance 4 to the reference: P = 4. A second such edge: 4 −
//! 16/(4 + 4) = 2.
//!
//! Up to `DENSE_MAX` nodes P is computed whole. Beyond, columns of it come from the iterative
//! solver as they are needed, partners of a new edge are sampled, and the random part is a node's
//! local share.
//!
//! It ignores robust weights (excluded edges are omitted, the others count fully), hard bounds and
//! drifts.

use nalgebra::{DMatrix, DVector};
use probe_sync_lines::{EdgeFit, NodeEstimate};
use probe_sync_time::{Edge, NodeId};

use super::round::PacingRound;
use crate::graph::linear::{Laplacian, Link, Pair};
use crate::graph::robust::asymmetry_scales_min;
use crate::statistics::{SIGMAS_95, median, upper_median};

/// Half-widths of a node's 95 % interval: their squares add up.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct ErrorBudget {
    /// The part that more packets reduce, ns.
    pub(super) random_ns: f64,
    /// The part that they do not, ns.
    pub(super) floor_ns: f64,
}

impl ErrorBudget {
    /// The whole half-width, ns.
    pub(super) fn half_width_ns(&self) -> f64 {
        self.random_ns.hypot(self.floor_ns)
    }
}

/// The covariance of a round, ready for questions.
#[derive(Clone, Debug)]
pub(super) struct WhatIfCovariance {
    lines: Vec<Line>,
    covariance: Covariance,
    /// Reachable, the reference included.
    reachable: Vec<bool>,
    reference: usize,
    /// Random share of each node's variance.
    random_share: Vec<f64>,
    /// By node, the variance due to asymmetry, if the estimator states it, ns².
    stated: Option<Vec<f64>>,
    /// Variance that a new edge is expected to have, ns².
    typical: f64,
    /// Edges added since, as the u of P' = P − u uᵀ.
    updates: Vec<DVector<f64>>,
}

#[derive(Copy, Clone, Debug)]
struct Line {
    edge: Edge,
    random: f64,
    asymmetry: f64,
}

#[derive(Clone, Debug)]
enum Covariance {
    Dense(DMatrix<f64>),
    Sparse(Laplacian),
}

impl Line {
    fn variance(&self) -> f64 {
        self.random + self.asymmetry
    }
}

impl WhatIfCovariance {
    /// Looks at a round. Edges of nodes that do not exist or are unreachable, and edges without a
    /// usable covariance, do not count.
    pub(super) fn new(round: &PacingRound<'_>) -> Self {
        let reachable: Vec<bool> = round.nodes.iter().map(|node| node.reachable).collect();
        let lines = lines(round, &reachable);
        let mut variances: Vec<f64> = lines.iter().map(Line::variance).collect();
        let typical = upper_median(&mut variances).unwrap_or(1.0);
        let nodes = reachable.len();
        let mut touched = vec![false; nodes];
        for node in lines.iter().flat_map(|line| [line.edge.src, line.edge.dst]) {
            touched[node.index()] = true;
        }
        let reference = round.reference.index();
        let fixed = (0..nodes).map(|node| node == reference || !reachable[node] || !touched[node]).collect();
        let link = |line: &Line| {
            let weight = 1.0 / line.variance();
            Link { from: line.edge.src.index(), to: line.edge.dst.index(), weight: [weight, 0.0, weight] }
        };
        let laplacian = Laplacian::new(lines.iter().map(link).collect(), fixed);
        let covariance = match dense(&laplacian) {
            Some(matrix) => Covariance::Dense(matrix),
            None => Covariance::Sparse(laplacian),
        };
        let mut what_if = Self {
            random_share: local_shares(&lines, nodes),
            lines,
            covariance,
            reachable,
            reference,
            stated: round.asymmetry_sigma_ns.map(|of_nodes| of_nodes.iter().map(|sigma| sigma.powi(2)).collect()),
            typical,
            updates: Vec::new(),
        };
        what_if.share_exactly();
        what_if
    }

    /// The error budget of every reachable node but the reference.
    pub(super) fn error_budgets<'a>(
        &'a self,
        nodes: &'a [NodeEstimate],
    ) -> impl Iterator<Item = (NodeId, ErrorBudget)> + 'a {
        nodes
            .iter()
            .enumerate()
            .filter(|(at, node)| node.reachable && *at != self.reference && node.sigma_ns.is_finite())
            .map(|(at, node)| (node.node_id, self.error_budget(at, node.sigma_ns.powi(2))))
    }

    /// The estimate's own variance rules; the graph says how it divides.
    fn error_budget(&self, node: usize, variance: f64) -> ErrorBudget {
        let of_edges = match &self.covariance {
            Covariance::Dense(matrix) => matrix[(node, node)],
            Covariance::Sparse(_) => variance.max(0.0),
        };
        let stated = self.stated.as_ref().and_then(|of_nodes| of_nodes.get(node).copied());
        let asymmetry = stated.unwrap_or((1.0 - self.random_share[node]) * of_edges);
        let floor = asymmetry.min(variance);
        ErrorBudget { random_ns: SIGMAS_95 * (variance - floor).max(0.0).sqrt(), floor_ns: SIGMAS_95 * floor.sqrt() }
    }

    /// The pair, not in `taken`, whose edge reduces the relative variances of the `short` nodes
    /// most; `None` if none reduces one by `GAIN_MIN`. `salt` varies the sample in large runs.
    pub(super) fn best_edge(
        &self,
        short: &[(NodeId, ErrorBudget)],
        taken: &dyn Fn(NodeId, NodeId) -> bool,
        salt: u64,
    ) -> Option<(NodeId, NodeId)> {
        let mut worst = short.to_vec();
        worst.sort_unstable_by(|a, b| b.1.half_width_ns().total_cmp(&a.1.half_width_ns()).then(a.0.cmp(&b.0)));
        worst.truncate(WORST_MAX);
        let partners: Vec<(NodeId, DVector<f64>)> =
            self.partners(salt).into_iter().map(|node| (NodeId(node as u32), self.column(node))).collect();
        let mut best: Option<(f64, (NodeId, NodeId))> = None;
        for (node, _) in &worst {
            let own = self.column(node.index());
            for (partner, column) in partners.iter().filter(|(partner, _)| !taken(*node, *partner)) {
                let across = &own - column;
                let spread = self.typical + across[node.index()] - across[partner.index()];
                let gain = |(node, error_budget): &(NodeId, ErrorBudget)| {
                    across[node.index()].powi(2) / spread / (error_budget.half_width_ns() / SIGMAS_95).powi(2)
                };
                let most = worst.iter().map(gain).fold(0.0, f64::max);
                let sum: f64 = worst.iter().map(gain).sum();
                if most >= GAIN_MIN && best.is_none_or(|(score, _)| sum > score) {
                    best = Some((sum, (*node, *partner)));
                }
            }
        }
        best.map(|(_, found)| found)
    }

    /// Goes on as if an edge of typical variance joined the pair.
    pub(super) fn add(&mut self, (i, j): (NodeId, NodeId)) {
        let across = self.column(i.index()) - self.column(j.index());
        let spread = self.typical + across[i.index()] - across[j.index()];
        self.updates.push(across / spread.sqrt());
    }

    /// The edge of `edges` without which every node stays within `limit_ns`, if any; of several the
    /// one missed least.
    pub(super) fn spare_edge(
        &self,
        edges: &[Edge],
        error_budgets: &[(NodeId, ErrorBudget)],
        limit_ns: f64,
    ) -> Option<Edge> {
        let without = |edge: &Edge| -> Option<f64> {
            let line = self.lines.iter().find(|line| line.edge == *edge)?;
            let across = self.column(edge.src.index()) - self.column(edge.dst.index());
            let left = line.variance() - (across[edge.src.index()] - across[edge.dst.index()]);
            // A bridge leaves nothing, up to rounding.
            if left <= line.variance() * BRIDGE_SHARE {
                return None;
            }
            let width = |(node, error_budget): &(NodeId, ErrorBudget)| {
                error_budget.half_width_ns().hypot(SIGMAS_95 * across[node.index()] / left.sqrt())
            };
            Some(error_budgets.iter().map(width).fold(0.0, f64::max))
        };
        let widths = edges.iter().filter_map(|edge| without(edge).map(|width| (width, *edge)));
        let least = widths.min_by(|a, b| a.0.total_cmp(&b.0))?;
        (least.0 <= limit_ns).then_some(least.1)
    }

    /// Nodes that a new edge may lead to: all, or in large runs the reference and a sample.
    fn partners(&self, salt: u64) -> Vec<usize> {
        let nodes = self.reachable.len();
        let reachable = |node: &usize| self.reachable[*node];
        if matches!(self.covariance, Covariance::Dense(_)) {
            return (0..nodes).filter(reachable).collect();
        }
        // A stride that shares no factor with most sizes walks over all nodes as rounds go by.
        let step =
            |k: u64| (salt.wrapping_mul(PARTNERS as u64).wrapping_add(k).wrapping_mul(STRIDE) % nodes as u64) as usize;
        let mut sample: Vec<usize> = (0..PARTNERS as u64).map(step).chain([self.reference]).filter(reachable).collect();
        sample.sort_unstable();
        sample.dedup();
        sample
    }

    /// A column of P with the edges added since.
    fn column(&self, node: usize) -> DVector<f64> {
        let mut column = match &self.covariance {
            Covariance::Dense(matrix) => matrix.column(node).into_owned(),
            Covariance::Sparse(laplacian) => solve_column(laplacian, node),
        };
        for update in &self.updates {
            column.axpy(-update[node], update, 1.0);
        }
        column
    }

    /// Variance of a node, ns², with the edges added since.
    #[cfg(test)]
    pub(super) fn variance(&self, node: usize) -> f64 {
        self.column(node)[node]
    }

    /// Replaces the local shares by the exact ones if P is known.
    fn share_exactly(&mut self) {
        let Covariance::Dense(matrix) = &self.covariance else { return };
        for node in 0..self.reachable.len() {
            let variance = matrix[(node, node)];
            if variance > 0.0 {
                let part = |line: &Line| {
                    let across = matrix[(node, line.edge.src.index())] - matrix[(node, line.edge.dst.index())];
                    (across / line.variance()).powi(2) * line.random
                };
                self.random_share[node] = (self.lines.iter().map(part).sum::<f64>() / variance).clamp(0.0, 1.0);
            }
        }
    }
}

/// The usable edges with their variances.
fn lines(round: &PacingRound<'_>, reachable: &[bool]) -> Vec<Line> {
    let usable = |edge: &&EdgeFit| {
        let joined = [edge.src_node_id, edge.dst_node_id].iter().all(|n| reachable.get(n.index()) == Some(&true));
        joined && edge.src_node_id != edge.dst_node_id && edge.covariance[0].is_finite() && edge.covariance[0] > 0.0
    };
    let kept: Vec<&EdgeFit> = round
        .edges
        .iter()
        .filter(usable)
        .filter(|edge| !round.excluded.iter().any(|(excluded, _)| *excluded == edge.edge()))
        .collect();
    let typical = median(kept.iter().map(|edge| edge.margin_ns.max(0.0))).max(1.0);
    let ends = kept.iter().map(|edge| [edge.src_node_id.index(), edge.dst_node_id.index()]);
    let line = |(edge, least): (&&EdgeFit, f64)| {
        // As the graph has it: a path's asymmetry goes with its delay, and an infeasible fit is
        // worth its overlap.
        let scale = (edge.margin_ns.max(0.0) / typical).max(least);
        let overlap = if edge.feasible { 0.0 } else { edge.margin_ns.powi(2) };
        let random = edge.covariance[0] + overlap;
        Line { edge: edge.edge(), random, asymmetry: (round.asymmetry_sd_ns * scale).powi(2) }
    };
    kept.iter().zip(asymmetry_scales_min(ends)).map(line).collect()
}

/// Each node's random share as its own edges have it, weighted as the estimate weighs them.
fn local_shares(lines: &[Line], nodes: usize) -> Vec<f64> {
    let mut sums = vec![[0.0; 2]; nodes];
    for line in lines {
        let weight = 1.0 / line.variance();
        for node in [line.edge.src, line.edge.dst] {
            sums[node.index()][0] += weight * line.random * weight;
            sums[node.index()][1] += weight;
        }
    }
    sums.into_iter().map(|[random, all]| if all > 0.0 { random / all } else { 1.0 }).collect()
}

/// The complete P, with zeros for fixed nodes; `None` in large runs or if some node is not
/// connected to the reference.
fn dense(laplacian: &Laplacian) -> Option<DMatrix<f64>> {
    let nodes = laplacian.fixed().len();
    if nodes > DENSE_MAX {
        return None;
    }
    let mut matrix = DMatrix::zeros(nodes, nodes);
    for link in laplacian.links() {
        let weight = link.weight[0];
        matrix[(link.from, link.from)] += weight;
        matrix[(link.to, link.to)] += weight;
        matrix[(link.from, link.to)] -= weight;
        matrix[(link.to, link.from)] -= weight;
    }
    let fixed = |node: &usize| laplacian.fixed()[*node];
    for node in (0..nodes).filter(fixed) {
        matrix.row_mut(node).fill(0.0);
        matrix.column_mut(node).fill(0.0);
        matrix[(node, node)] = 1.0;
    }
    let mut inverse = matrix.cholesky()?.inverse();
    (0..nodes).filter(fixed).for_each(|node| inverse[(node, node)] = 0.0);
    Some(inverse)
}

fn solve_column(laplacian: &Laplacian, node: usize) -> DVector<f64> {
    let nodes = laplacian.fixed().len();
    let mut right: Vec<Pair> = vec![[0.0; 2]; nodes];
    if !laplacian.fixed()[node] {
        right[node][0] = 1.0;
    }
    let mut solved = vec![[0.0; 2]; nodes];
    laplacian.solve_iterative(&right, &mut solved, ACCURACY * laplacian.size(&right), STEPS_MAX);
    DVector::from_iterator(nodes, solved.into_iter().map(|pair| pair[0]))
}

/// Largest number of nodes for which the complete P is computed: 256 take about ten milliseconds.
const DENSE_MAX: usize = 256;

/// Short nodes that a new edge is sought for at once.
const WORST_MAX: usize = 8;

/// Partners tried in large runs: with the short nodes' own, two dozen columns of a few milliseconds
/// each.
const PARTNERS: usize = 16;
const STRIDE: u64 = 7_919;

/// A new edge must shrink some node's variance by this share to be worth its exchanges.
const GAIN_MIN: f64 = 0.05;

/// Variance left of a bridge, relative to the edge's, that rounding can produce.
const BRIDGE_SHARE: f64 = 1e-9;

/// Relative accuracy of a column.
const ACCURACY: f64 = 1e-4;
const STEPS_MAX: usize = 500;
