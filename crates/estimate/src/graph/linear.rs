//! The linear core of GraphCalc: a graph Laplacian with 2×2 weights, and its solvers.
//!
//! `graph` builds and solves one [`Laplacian`] per reweighting. The unknown per node is the pair
//! (offset ns, rate ns/s); edge e = (i, j) requires x_j − x_i = z_e with weight matrix W_e (the
//! inverse covariance). The normal equations are Σ_e (e_j − e_i) W_e (x_j − x_i) = Σ_e (e_j − e_i)
//! W_e z_e with the reference's x fixed at 0.
//!
//! Solvers, chosen by measurement (`cargo bench -p probe-sync-estimate --bench graphcalc`):
//! - [`Laplacian::solve_dense`], Cholesky by nalgebra: for a few nodes;
//! - [`Laplacian::solve_iterative`], conjugate gradients preconditioned by the 2×2 diagonal blocks
//!   (Saad, Iterative Methods for Sparse Linear Systems, algorithm 9.1). Random graphs are
//!   expanders, so a few dozen steps suffice whatever the size, and the previous solution is a
//!   start that saves half of them.
//!
//! Rejected: nalgebra-sparse's Cholesky. It has no fill-reducing ordering and random graphs fill
//! in; the bench shows it.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// Symmetric 2×2 matrix [[a, b], [b, c]] as [a, b, c].
pub type Block = [f64; 3];

/// Offset in ns and rate in ns per s of one node.
pub type Pair = [f64; 2];

/// One edge's equation x_to − x_from = measured, with its weight.
#[derive(Copy, Clone, Debug)]
pub struct Link {
    /// Index of the source.
    pub from: usize,
    /// Index of the destination.
    pub to: usize,
    /// Inverse covariance.
    pub weight: Block,
}

/// The normal matrix. Nodes without links must be listed as fixed, as must one node of every
/// component.
#[derive(Clone, Debug)]
pub struct Laplacian {
    links: Vec<Link>,
    fixed: Vec<bool>,
    /// Inverse of each node's diagonal block; zero if fixed.
    preconditioner: Vec<Block>,
}

/// Result of an iterative solution.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Convergence {
    /// Steps taken.
    pub steps: usize,
    /// True if the tolerance was reached.
    pub reached: bool,
}

impl Laplacian {
    /// Creates the matrix of `links` over `fixed.len()` nodes; fixed nodes stay at zero.
    pub fn new(links: Vec<Link>, fixed: Vec<bool>) -> Self {
        let mut diagonal = vec![[0.0; 3]; fixed.len()];
        for link in &links {
            for node in [link.from, link.to] {
                diagonal[node].iter_mut().zip(link.weight).for_each(|(sum, weight)| *sum += weight);
            }
        }
        let invert = |(block, fixed): (&Block, &bool)| if *fixed { None } else { inverse(*block) };
        let preconditioner = diagonal.iter().zip(&fixed).map(|pair| invert(pair).unwrap_or([0.0; 3])).collect();
        Self { links, fixed, preconditioner }
    }

    /// Returns the right-hand side Σ_e (e_j − e_i) W_e z_e of measurements `z`, one per link.
    pub fn right_side(&self, measured: impl Iterator<Item = Pair>) -> Vec<Pair> {
        let mut sum = vec![[0.0; 2]; self.fixed.len()];
        for (link, z) in self.links.iter().zip(measured) {
            scatter(&mut sum, link, times(link.weight, z));
        }
        self.release(&mut sum);
        sum
    }

    /// Solves by dense Cholesky; `None` if a node is not connected to a fixed one.
    pub fn solve_dense(&self, right: &[Pair]) -> Option<Vec<Pair>> {
        Some(self.factor()?.solve(right))
    }

    /// Returns the dense Cholesky factor, for many right-hand sides; `None` if a node is not
    /// connected to a fixed one.
    pub fn factor(&self) -> Option<DenseFactor> {
        let index = self.free_index();
        let factor = self.dense(&index).cholesky()?;
        Some(DenseFactor { factor, index })
    }

    /// Returns the diagonal blocks of the inverse, by dense Cholesky.
    pub fn inverse_diagonal_dense(&self) -> Option<Vec<Block>> {
        let index = self.free_index();
        let inverse = self.dense(&index).cholesky()?.inverse();
        let block =
            |at: usize| [inverse[(2 * at, 2 * at)], inverse[(2 * at, 2 * at + 1)], inverse[(2 * at + 1, 2 * at + 1)]];
        Some(index.iter().map(|at| at.map_or([0.0; 3], block)).collect())
    }

    /// Improves `x` by preconditioned conjugate gradients until the preconditioned residual's norm,
    /// which approximates the error in standard deviations, falls to `tolerance`.
    pub fn solve_iterative(&self, right: &[Pair], x: &mut [Pair], tolerance: f64, steps_max: usize) -> Convergence {
        let precondition = |residual: &[Pair], scaled: &mut [Pair]| {
            for ((scaled, block), residual) in scaled.iter_mut().zip(&self.preconditioner).zip(residual) {
                *scaled = times(*block, *residual);
            }
        };
        let enough = tolerance * tolerance;
        conjugate_gradients(right, x, |x, sum| self.apply(x, sum), precondition, enough, steps_max)
    }

    /// Returns the preconditioned norm of a right-hand side, as used for `solve_iterative`'s
    /// tolerance.
    pub fn size(&self, right: &[Pair]) -> f64 {
        dot(right, &self.precondition(right)).max(0.0).sqrt()
    }

    /// Returns the inverse of each node's own diagonal block, a lower bound of its block of the
    /// inverse; zero if fixed.
    pub fn local_inverse(&self) -> &[Block] {
        &self.preconditioner
    }

    /// Returns the links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Returns which nodes are fixed at zero.
    pub fn fixed(&self) -> &[bool] {
        &self.fixed
    }

    /// Returns the number of free nodes.
    pub fn free(&self) -> usize {
        self.fixed.iter().filter(|fixed| !**fixed).count()
    }

    fn apply(&self, x: &[Pair], sum: &mut [Pair]) {
        sum.fill([0.0; 2]);
        for link in &self.links {
            let (a, b) = (x[link.from], x[link.to]);
            scatter(sum, link, times(link.weight, [b[0] - a[0], b[1] - a[1]]));
        }
        self.release(sum);
    }

    fn precondition(&self, residual: &[Pair]) -> Vec<Pair> {
        self.preconditioner.iter().zip(residual).map(|(block, residual)| times(*block, *residual)).collect()
    }

    /// Zeroes the forces on fixed nodes.
    fn release(&self, sum: &mut [Pair]) {
        for (sum, _) in sum.iter_mut().zip(&self.fixed).filter(|(_, fixed)| **fixed) {
            *sum = [0.0; 2];
        }
    }

    /// Row of each free node.
    fn free_index(&self) -> Vec<Option<usize>> {
        let mut next = 0;
        let mut index = |fixed: &bool| {
            (!fixed).then(|| {
                next += 1;
                next - 1
            })
        };
        self.fixed.iter().map(&mut index).collect()
    }

    fn dense(&self, index: &[Option<usize>]) -> DMatrix<f64> {
        let size = 2 * self.free();
        let mut matrix = DMatrix::zeros(size, size);
        let mut accumulate = |row: Option<usize>, column: Option<usize>, sign: f64, [a, b, c]: Block| {
            if let (Some(row), Some(column)) = (row, column) {
                matrix[(2 * row, 2 * column)] += sign * a;
                matrix[(2 * row, 2 * column + 1)] += sign * b;
                matrix[(2 * row + 1, 2 * column)] += sign * b;
                matrix[(2 * row + 1, 2 * column + 1)] += sign * c;
            }
        };
        for link in &self.links {
            let (from, to) = (index[link.from], index[link.to]);
            accumulate(from, from, 1.0, link.weight);
            accumulate(to, to, 1.0, link.weight);
            accumulate(from, to, -1.0, link.weight);
            accumulate(to, from, -1.0, link.weight);
        }
        matrix
    }
}

/// A factored [`Laplacian`].
#[derive(Clone, Debug)]
pub struct DenseFactor {
    factor: Cholesky<f64, Dyn>,
    /// Row of each free node.
    index: Vec<Option<usize>>,
}

impl DenseFactor {
    /// Solves for one right-hand side; fixed nodes stay at zero.
    pub fn solve(&self, right: &[Pair]) -> Vec<Pair> {
        let mut vector = DVector::from_iterator(
            2 * self.index.iter().flatten().count(),
            right.iter().zip(&self.index).filter(|(_, at)| at.is_some()).flat_map(|(pair, _)| *pair),
        );
        self.factor.solve_mut(&mut vector);
        self.index.iter().map(|at| at.map_or([0.0; 2], |at| [vector[2 * at], vector[2 * at + 1]])).collect()
    }
}

/// Returns the inverse of a positive definite block.
pub fn inverse([a, b, c]: Block) -> Option<Block> {
    let determinant = a * c - b * b;
    let positive = a > 0.0 && c > 0.0 && determinant > 0.0 && determinant.is_finite();
    positive.then(|| [c / determinant, -b / determinant, a / determinant])
}

/// Multiplies a block by a pair.
pub(crate) fn times([a, b, c]: Block, [x, y]: Pair) -> Pair {
    [a * x + b * y, b * x + c * y]
}

/// Improves `x` until the square of the preconditioned residual, which is approximately that of the
/// error in variances, falls to `enough`. `multiply` and `precondition` write their result to the
/// second argument; both are symmetric and positive.
pub(crate) fn conjugate_gradients(
    right: &[Pair],
    x: &mut [Pair],
    multiply: impl Fn(&[Pair], &mut [Pair]),
    precondition: impl Fn(&[Pair], &mut [Pair]),
    enough: f64,
    steps_max: usize,
) -> Convergence {
    let mut applied = vec![[0.0; 2]; x.len()];
    multiply(x, &mut applied);
    let mut residual: Vec<Pair> = right.iter().zip(&applied).map(|(b, a)| [b[0] - a[0], b[1] - a[1]]).collect();
    let mut scaled = vec![[0.0; 2]; x.len()];
    precondition(&residual, &mut scaled);
    let mut direction = scaled.clone();
    let mut energy = dot(&residual, &scaled);
    for steps in 0..steps_max {
        if energy <= enough {
            return Convergence { steps, reached: true };
        }
        multiply(&direction, &mut applied);
        let curvature = dot(&direction, &applied);
        if curvature <= 0.0 || !curvature.is_finite() {
            return Convergence { steps, reached: false };
        }
        let length = energy / curvature;
        add(x, length, &direction);
        add(&mut residual, -length, &applied);
        precondition(&residual, &mut scaled);
        let before = std::mem::replace(&mut energy, dot(&residual, &scaled));
        let keep = energy / before;
        for (direction, scaled) in direction.iter_mut().zip(&scaled) {
            *direction = [scaled[0] + keep * direction[0], scaled[1] + keep * direction[1]];
        }
    }
    Convergence { steps: steps_max, reached: energy <= enough }
}

fn scatter(sum: &mut [Pair], link: &Link, force: Pair) {
    sum[link.to][0] += force[0];
    sum[link.to][1] += force[1];
    sum[link.from][0] -= force[0];
    sum[link.from][1] -= force[1];
}

fn add(sum: &mut [Pair], factor: f64, what: &[Pair]) {
    for (sum, what) in sum.iter_mut().zip(what) {
        sum[0] += factor * what[0];
        sum[1] += factor * what[1];
    }
}

fn dot(a: &[Pair], b: &[Pair]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a[0] * b[0] + a[1] * b[1]).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn links(nodes: usize) -> impl Strategy<Value = Vec<Link>> {
        let weight = (0.1f64..10.0, -0.9f64..0.9, 0.1f64..10.0);
        let link = (0..nodes, 0..nodes, weight);
        prop::collection::vec(link, 0..3 * nodes).prop_map(move |extra| {
            let block = |(a, r, c): (f64, f64, f64)| [a, r * (a * c).sqrt(), c];
            let chain = (1..nodes).map(|to| Link { from: to - 1, to, weight: [1.0, 0.0, 2.0] });
            let extra = extra.into_iter().filter(|(from, to, _)| from != to);
            chain.chain(extra.map(|(from, to, weight)| Link { from, to, weight: block(weight) })).collect()
        })
    }

    proptest! {
        #[test]
        fn both_solvers_agree_and_satisfy_the_equations(links in links(7), z in prop::collection::vec(-1e3f64..1e3, 60)) {
            let count = links.len();
            let fixed: Vec<bool> = (0..7).map(|node| node == 2).collect();
            let laplacian = Laplacian::new(links, fixed);
            let right = laplacian.right_side((0..count).map(|k| [z[2 * k], z[2 * k + 1]]));
            let dense = laplacian.solve_dense(&right).expect("connected");
            let mut iterative = vec![[0.0; 2]; 7];
            prop_assert!(laplacian.solve_iterative(&right, &mut iterative, 1e-9, 1000).reached);
            let mut applied = vec![[0.0; 2]; 7];
            laplacian.apply(&dense, &mut applied);
            for node in 0..7 {
                for k in 0..2 {
                    prop_assert!((dense[node][k] - iterative[node][k]).abs() < 1e-5);
                    prop_assert!((applied[node][k] - right[node][k]).abs() < 1e-5);
                }
            }
        }
    }
}
