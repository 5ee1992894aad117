//! The error of a smoothed clock: covariances of the Rauch–Tung–Striebel smoother for one (offset,
//! rate) state.
//!
//! It runs after the joint solution of `smoother`, per node and span. A single round would give the
//! node's state with covariance R_k (from the graph, all its edges together); between rounds the
//! state walks (see `motion`). Forward: `P⁻ = F·P·Fᵀ + Q`, `P = P⁻(P⁻ + R)⁻¹R` (`kalman`);
//! backward: `G = P·Fᵀ·(P⁻₊)⁻¹`, `Pˢ = P + G(Pˢ₊ − P⁻₊)Gᵀ`, and the covariance of neighbouring
//! knots is `G·Pˢ₊`. (Rauch, Tung and Striebel, AIAA Journal 3, 1965.)
//!
//! It is the exact error of "least squares per round, then a smoother per node", and the joint
//! solution, which is optimal, errs no more. On one edge both are the same.

use crate::graph::linear::{Block, inverse};
use crate::kalman::{predicted_covariance, updated_covariance};
use crate::motion::{Square, block, difference, product, square, sum, transition, transposed};

/// Smoothed covariances at a span's knots.
#[derive(Clone, Debug, Default)]
pub(super) struct Variances {
    /// Per knot.
    pub(super) at: Vec<Block>,
    /// Between each knot and the next.
    pub(super) across: Vec<Square>,
}

impl Variances {
    /// Smooths over `times` in s with measurement covariances `noise` (`None`: nothing was
    /// measured), density `walks` from each to the next. The first knot must be measured.
    pub(super) fn new(times: &[f64], noise: &[Option<Block>], walks: &[f64]) -> Self {
        let mut filtered: Vec<Block> = Vec::with_capacity(times.len());
        let mut predicted: Vec<Square> = Vec::with_capacity(times.len());
        for (k, noise) in noise.iter().enumerate() {
            let Some(last) = filtered.last() else {
                filtered.push(noise.unwrap_or(UNKNOWN));
                predicted.push(square(UNKNOWN));
                continue;
            };
            let ahead = predicted_covariance(square(*last), times[k] - times[k - 1], walks[k - 1]);
            predicted.push(ahead);
            filtered.push(noise.map_or(block(ahead), |noise| updated_covariance(block(ahead), noise)));
        }
        let mut at = filtered.clone();
        let mut across = vec![[[0.0; 2]; 2]; times.len().saturating_sub(1)];
        for k in (0..across.len()).rev() {
            let Some(certainty) = inverse(block(predicted[k + 1])) else { continue };
            let f = transition(times[k + 1] - times[k]);
            let gain = product(product(square(filtered[k]), transposed(f)), square(certainty));
            let later = square(at[k + 1]);
            let change = product(product(gain, difference(later, predicted[k + 1])), transposed(gain));
            at[k] = block(sum(square(filtered[k]), change));
            across[k] = product(gain, later);
        }
        Self { at, across }
    }

    /// No error at any of `count` knots: the reference against itself.
    pub(super) fn none(count: usize) -> Self {
        Self { at: vec![[0.0; 3]; count], across: vec![[[0.0; 2]; 2]; count.saturating_sub(1)] }
    }
}

/// Covariance of a completely unknown clock: a second and 500 ppm.
const UNKNOWN: Block = [1e18, 0.0, 2.5e11];
