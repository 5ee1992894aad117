//! The covariance of every node's (offset, drift): the diagonal blocks of the inverse normal matrix.
//!
//! Place in the flow: last step of `graph`, once per round and timed apart from the estimate. Exactly, by dense
//! Cholesky; sizes beyond [`EXACT_MAX`] column by column, each by conjugate gradients.

use super::linear::{Block, Laplacian};

/// Diagonal blocks of the inverse, per node: Var(offset) ns², Cov ns²/s, Var(rate) (ns/s)²; zero where fixed.
pub fn covariance(laplacian: &Laplacian) -> Vec<Block> {
    if laplacian.free() == 0 {
        return vec![[0.0; 3]; laplacian.fixed().len()];
    }
    if laplacian.free() <= EXACT_MAX
        && let Some(exact) = laplacian.inverse_diagonal_dense()
    {
        return exact;
    }
    columns(laplacian)
}

fn columns(laplacian: &Laplacian) -> Vec<Block> {
    let nodes = laplacian.fixed().len();
    let mut result = vec![[0.0; 3]; nodes];
    for node in (0..nodes).filter(|&node| !laplacian.fixed()[node]) {
        let column = |unit: [f64; 2]| {
            let mut right = vec![[0.0; 2]; nodes];
            right[node] = unit;
            let mut x = vec![[0.0; 2]; nodes];
            laplacian.solve_iterative(&right, &mut x, 0.0, STEPS_MAX);
            x[node]
        };
        let (offset, rate) = (column([1.0, 0.0]), column([0.0, 1.0]));
        result[node] = [offset[0], offset[1], rate[1]];
    }
    result
}

/// Nodes up to which the dense inverse is used.
const EXACT_MAX: usize = 160;

const STEPS_MAX: usize = 30;
