//! The one sparse system over all nodes and knots, and its solution.
//!
//! It finds the states x (offset, rate) of all spans at all knots and the node pairs' asymmetries b
//! that minimise
//! `Σ (z − Δx − s·b·e₁)ᵀ W (z − Δx − s·b·e₁) + Σ b²/σ_b² + Σ (x₊ − F·x)ᵀ Q⁻¹ (x₊ − F·x)`, where Δx
//! = x_to − x_from at the measure's knot. Each b is eliminated: with `G = Σ W₁₁ + 1/σ_b²` it is
//! `b = Σ s·(W(z − Δx))₁ / G`, which leaves a symmetric system A·x = r in the states alone.
//!
//! Solved by conjugate gradients, because it fits in memory and in a second where block elimination
//! over 256 nodes would need 10¹¹ operations. Two preconditioners are added up: every span's own
//! block-tridiagonal matrix in time, exactly, which takes care of stiff short-term motion; and the
//! constants and ramps of all spans against each other, a graph Laplacian with 2×2 weights, which
//! takes care of what asymmetry leaves almost undetermined. What remains is the spread of the
//! graph's own eigenvalues, small for random graphs.
//!
//! Gauge: nothing pins all clocks together. A is singular in a common constant and ramp, the right
//! side has no part in it, and the caller subtracts the reference's state.

use super::layout::{Layout, Span};
use crate::graph::components::anchors;
use crate::graph::linear::{
    Block, Convergence, DenseFactor, Laplacian, Link, Pair, conjugate_gradients, inverse, times,
};
use crate::motion::{Square, apply, block, difference, product, square, stiffness, sum, transition, transposed};

/// Weights of one iteration.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    /// Per measure: inverse covariance.
    pub(super) measures: Vec<Block>,
    /// Per node pair: inverse variance of its asymmetry.
    pub(super) node_pairs: Vec<f64>,
    /// Per state: density of its clock's random walk until the next, ns²/s³.
    pub(super) walks: Vec<f64>,
}

/// The system for given weights.
pub(super) struct System<'a> {
    layout: &'a Layout,
    weights: &'a Weights,
    /// G of every node pair.
    weight_sums: Vec<f64>,
    chains: Vec<Chain>,
    coarse: Option<Coarse>,
}

/// One span's block-tridiagonal matrix, factored.
struct Chain {
    /// Inverse of the pivot of every knot.
    pivots: Vec<Square>,
    /// Coupling of each knot to the next (lower off-diagonal block).
    couplings: Vec<Square>,
}

/// Constants and ramps.
struct Coarse {
    factor: DenseFactor,
}

impl<'a> System<'a> {
    pub(super) fn new(layout: &'a Layout, weights: &'a Weights) -> Self {
        let priors = layout.node_pairs.iter().zip(&weights.node_pairs);
        let weight_sums: Vec<f64> = priors
            .map(|(node_pair, prior)| {
                prior + weights.measures[node_pair.measures.clone()].iter().map(|w| w[0]).sum::<f64>()
            })
            .collect();
        let mut diagonal = vec![[0.0; 3]; layout.states];
        for (measure, weight) in layout.measures.iter().zip(&weights.measures) {
            for span in [measure.from, measure.to] {
                let state = &mut diagonal[layout.state(span, measure.knot)];
                state.iter_mut().zip(weight).for_each(|(sum, weight)| *sum += weight);
            }
        }
        let chains =
            layout.spans.iter().enumerate().map(|(at, _)| Chain::new(layout, weights, &diagonal, at)).collect();
        let coarse = Coarse::new(layout, weights, &weight_sums);
        Self { layout, weights, weight_sums, chains, coarse }
    }

    /// Improves `x` until the error, in standard deviations per span, is below `tolerance`.
    pub(super) fn solve(&self, x: &mut [Pair], tolerance: f64, steps_max: usize) -> Convergence {
        let right = self.forces(|at| self.layout.measures[at].value);
        let enough = tolerance * tolerance * self.layout.spans.len() as f64;
        let multiply = |x: &[Pair], out: &mut [Pair]| self.multiply(x, out);
        let precondition = |residual: &[Pair], x: &mut [Pair]| self.precondition(residual, x);
        conjugate_gradients(&right, x, multiply, precondition, enough, steps_max)
    }

    /// The asymmetries that belong to states `x`, ns.
    pub(super) fn asymmetries(&self, x: &[Pair]) -> Vec<f64> {
        self.weighted_residuals(|at| {
            let measure = &self.layout.measures[at];
            let apart = self.apart(x, at);
            [measure.value[0] - apart[0], measure.value[1] - apart[1]]
        })
    }

    /// Δx of a measure.
    pub(super) fn apart(&self, x: &[Pair], at: usize) -> Pair {
        let measure = &self.layout.measures[at];
        let from = x[self.layout.state(measure.from, measure.knot)];
        let to = x[self.layout.state(measure.to, measure.knot)];
        [to[0] - from[0], to[1] - from[1]]
    }

    /// Δx of every measure.
    pub(super) fn all_apart(&self, x: &[Pair]) -> Vec<Pair> {
        (0..self.layout.measures.len()).map(|at| self.apart(x, at)).collect()
    }

    /// Per node pair Σ s·(W·z)₁ / G.
    fn weighted_residuals(&self, z: impl Fn(usize) -> Pair) -> Vec<f64> {
        let residual = |node_pair: usize| {
            let range = self.layout.node_pairs[node_pair].measures.clone();
            let sum: f64 =
                range.map(|at| self.layout.measures[at].sign * times(self.weights.measures[at], z(at))[0]).sum();
            sum / self.weight_sums[node_pair]
        };
        (0..self.layout.node_pairs.len()).map(residual).collect()
    }

    /// The weighted residual sum of every state for values `z` of the measures, asymmetries
    /// eliminated.
    fn forces(&self, z: impl Fn(usize) -> Pair) -> Vec<Pair> {
        let mut sum = vec![[0.0; 2]; self.layout.states];
        for (node_pair, asymmetry) in self.layout.node_pairs.iter().zip(self.weighted_residuals(&z)) {
            for at in node_pair.measures.clone() {
                let measure = &self.layout.measures[at];
                let [offset, rate] = z(at);
                let force = times(self.weights.measures[at], [offset - measure.sign * asymmetry, rate]);
                let (from, to) =
                    (self.layout.state(measure.from, measure.knot), self.layout.state(measure.to, measure.knot));
                sum[to] = [sum[to][0] + force[0], sum[to][1] + force[1]];
                sum[from] = [sum[from][0] - force[0], sum[from][1] - force[1]];
            }
        }
        sum
    }

    /// A·x.
    fn multiply(&self, x: &[Pair], out: &mut [Pair]) {
        out.copy_from_slice(&self.forces(|at| self.apart(x, at)));
        for span in &self.layout.spans {
            for k in 0..span.len() - 1 {
                let delta = self.layout.knots[span.first + k + 1] - self.layout.knots[span.first + k];
                let (here, next) = (span.base + k, span.base + k + 1);
                let jump = [x[next][0] - x[here][0] - delta * x[here][1], x[next][1] - x[here][1]];
                let force = times(stiffness(self.weights.walks[here], delta), jump);
                out[next] = [out[next][0] + force[0], out[next][1] + force[1]];
                out[here] = [out[here][0] - force[0], out[here][1] - delta * force[0] - force[1]];
            }
        }
    }

    /// Writes over all of `x`: the spans hold every state.
    fn precondition(&self, residual: &[Pair], x: &mut [Pair]) {
        for (span, chain) in self.layout.spans.iter().zip(&self.chains) {
            let range = span.base..span.base + span.len();
            chain.solve(&residual[range.clone()], &mut x[range]);
        }
        if let Some(coarse) = &self.coarse {
            coarse.add(self.layout, residual, x);
        }
    }
}

impl Chain {
    fn new(layout: &Layout, weights: &Weights, diagonal: &[Block], at: usize) -> Self {
        let span = &layout.spans[at];
        let mut blocks: Vec<Square> = (0..span.len()).map(|k| square(diagonal[span.base + k])).collect();
        let mut couplings = Vec::with_capacity(span.len().saturating_sub(1));
        for k in 0..span.len().saturating_sub(1) {
            let delta = layout.knots[span.first + k + 1] - layout.knots[span.first + k];
            let stiff = square(stiffness(weights.walks[span.base + k], delta));
            let f = transition(delta);
            let forward = product(stiff, f);
            blocks[k] = sum(blocks[k], product(transposed(f), forward));
            blocks[k + 1] = sum(blocks[k + 1], stiff);
            couplings.push([[-forward[0][0], -forward[0][1]], [-forward[1][0], -forward[1][1]]]);
        }
        let mut pivots: Vec<Square> = Vec::with_capacity(blocks.len());
        for (k, own) in blocks.iter().enumerate() {
            let pivot = match k.checked_sub(1) {
                None => *own,
                Some(before) => {
                    let c: Square = couplings[before];
                    difference(*own, product(product(c, pivots[before]), transposed(c)))
                }
            };
            pivots.push(inverse(block(pivot)).map_or([[0.0; 2]; 2], square));
        }
        Self { pivots, couplings }
    }

    fn solve(&self, right: &[Pair], x: &mut [Pair]) {
        let mut carried = right.to_vec();
        for k in 1..carried.len() {
            let push = apply(self.couplings[k - 1], apply(self.pivots[k - 1], carried[k - 1]));
            carried[k] = [carried[k][0] - push[0], carried[k][1] - push[1]];
        }
        for k in (0..carried.len()).rev() {
            let mut own = carried[k];
            if k + 1 < carried.len() {
                let back = apply(transposed(self.couplings[k]), x[k + 1]);
                own = [own[0] - back[0], own[1] - back[1]];
            }
            x[k] = apply(self.pivots[k], own);
        }
    }
}

impl Coarse {
    /// `None` if the graph is too large for a dense factor.
    fn new(layout: &Layout, weights: &Weights, weight_sums: &[f64]) -> Option<Self> {
        if layout.spans.len() > COARSE_MAX {
            return None;
        }
        let mut links: Vec<Link> = Vec::with_capacity(layout.node_pairs.len());
        for (node_pair, weight_sum) in layout.node_pairs.iter().zip(weight_sums) {
            // Within a node pair the pairs of spans follow each other in time.
            let range = node_pair.measures.clone();
            let mut pairs: Vec<[usize; 2]> = range.clone().map(|at| ends(layout, at)).collect();
            pairs.sort_unstable();
            pairs.dedup();
            for pair in pairs {
                let (mut whole, mut first) = ([0.0; 3], [0.0; 2]);
                for at in range.clone().filter(|at| ends(layout, *at) == pair) {
                    let [a, b, c] = weights.measures[at];
                    let t = layout.knots[layout.measures[at].knot];
                    // Tᵀ·W·T and Tᵀ·W·e₁ with T = [[1, t], [0, 1]].
                    let seen = [a, a * t + b, a * t * t + 2.0 * b * t + c];
                    whole.iter_mut().zip(seen).for_each(|(sum, seen)| *sum += seen);
                    first = [first[0] + a, first[1] + a * t + b];
                }
                let weight = [
                    whole[0] - first[0] * first[0] / weight_sum,
                    whole[1] - first[0] * first[1] / weight_sum,
                    whole[2] - first[1] * first[1] / weight_sum,
                ];
                links.push(Link { from: pair[0], to: pair[1], weight });
            }
        }
        let fixed = anchors(layout.spans.len(), &links);
        let factor = Laplacian::new(links, fixed).factor()?;
        Some(Self { factor })
    }

    fn add(&self, layout: &Layout, residual: &[Pair], x: &mut [Pair]) {
        let gather = |span: &Span| {
            (0..span.len()).fold([0.0; 2], |sum: Pair, k| {
                let r = residual[span.base + k];
                [sum[0] + r[0], sum[1] + layout.knots[span.first + k] * r[0] + r[1]]
            })
        };
        let right: Vec<Pair> = layout.spans.iter().map(gather).collect();
        for (span, [constant, ramp]) in layout.spans.iter().zip(self.factor.solve(&right)) {
            for k in 0..span.len() {
                let x = &mut x[span.base + k];
                *x = [x[0] + constant + ramp * layout.knots[span.first + k], x[1] + ramp];
            }
        }
    }
}

fn ends(layout: &Layout, at: usize) -> [usize; 2] {
    let measure = &layout.measures[at];
    [measure.from.min(measure.to), measure.from.max(measure.to)]
}

/// Spans up to which constants and ramps are solved for densely.
const COARSE_MAX: usize = 2048;
