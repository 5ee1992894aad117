//! The covariance of every node's (offset, drift): the diagonal blocks of the inverse normal
//! matrix.
//!
//! It is computed once per round and timed separately from the estimate. Up to [`EXACT_MAX`] nodes
//! it is exact, by dense Cholesky. Beyond that, inverting a matrix with N columns is too expensive
//! for a round (0.9 s at 1024 nodes), and its diagonal is estimated instead:
//! - With L the Laplacian before the reference is fixed and L⁺ its pseudo-inverse, the variance of
//!   node n against the reference 0 is L⁺ₙₙ + L⁺₀₀ − 2·L⁺ₙ₀. The last two terms come from one
//!   column per component, exactly.
//! - L⁺ₙₙ is the mean of zₙ·(L⁺z)ₙ over random signs z (Hutchinson 1990; Bekas, Kokiopoulou and
//!   Saad 2007). Probing the fixed matrix itself was rejected: all nodes share the reference's
//!   error there, and that drowns the diagonal.
//! - Two standard errors are added, so that the estimate errs upwards; it is never below the exact
//!   lower bound 1/Aₙₙ.
//!
//! The signs come from a constant seed: same input, same bytes.

use super::linear::{Block, Laplacian, Pair};

/// Returns the diagonal blocks of the inverse, per node: Var(offset) ns², Cov ns²/s, Var(rate)
/// (ns/s)²; zero if fixed. `reference` is the node to which the others are relative. Above 160
/// nodes the variances are estimated upwards and the covariances are zero.
pub fn covariance(laplacian: &Laplacian, reference: usize) -> Vec<Block> {
    let nodes = laplacian.fixed().len();
    if laplacian.free() == 0 {
        return vec![[0.0; 3]; nodes];
    }
    if laplacian.free() <= EXACT_MAX
        && let Some(exact) = laplacian.inverse_diagonal_dense()
    {
        return exact;
    }
    let loose = Loose::new(laplacian, reference);
    let variances = [0, 1].map(|component| loose.variances(component));
    let least = laplacian.local_inverse();
    let block = |node: usize| match laplacian.fixed()[node] {
        true => [0.0; 3],
        false => [variances[0][node].max(least[node][0]), 0.0, variances[1][node].max(least[node][2])],
    };
    (0..nodes).map(block).collect()
}

/// The Laplacian with the reference set free: singular, its null space the constants.
struct Loose {
    laplacian: Laplacian,
    reference: usize,
}

impl Loose {
    fn new(tied: &Laplacian, reference: usize) -> Self {
        let mut fixed = tied.fixed().to_vec();
        fixed[reference] = false;
        Self { laplacian: Laplacian::new(tied.links().to_vec(), fixed), reference }
    }

    /// Variance of each node against the reference, in one component.
    fn variances(&self, component: usize) -> Vec<f64> {
        let nodes = self.laplacian.fixed().len();
        let mut unit = vec![0.0; nodes];
        unit[self.reference] = 1.0;
        let column = self.solve(&unit, component);
        let (mut sum, mut squares) = (vec![0.0; nodes], vec![0.0; nodes]);
        let mut state = SEED;
        for _ in 0..PROBES {
            let signs: Vec<f64> = (0..nodes).map(|_| sign(&mut state)).collect();
            for (node, solved) in self.solve(&signs, component).into_iter().enumerate() {
                let sample = signs[node] * solved;
                sum[node] += sample;
                squares[node] += sample * sample;
            }
        }
        let count = f64::from(PROBES);
        let diagonal = |node: usize| {
            let mean = sum[node] / count;
            let variance = (squares[node] / count - mean * mean).max(0.0) / (count - 1.0);
            mean + 2.0 * variance.sqrt()
        };
        (0..nodes).map(|node| diagonal(node) + column[self.reference] - 2.0 * column[node]).collect()
    }

    /// L⁺ applied to a vector of one component; that component of the result.
    fn solve(&self, values: &[f64], component: usize) -> Vec<f64> {
        let mut right: Vec<Pair> = vec![[0.0; 2]; values.len()];
        right.iter_mut().zip(values).for_each(|(pair, value)| pair[component] = *value);
        self.center(&mut right);
        let mut x = vec![[0.0; 2]; values.len()];
        let tolerance = ACCURACY * self.laplacian.size(&right);
        self.laplacian.solve_iterative(&right, &mut x, tolerance, STEPS_MAX);
        self.center(&mut x);
        x.into_iter().map(|pair| pair[component]).collect()
    }

    /// Takes out the mean over the nodes that are not fixed, and zeroes the others.
    fn center(&self, values: &mut [Pair]) {
        let fixed = self.laplacian.fixed();
        let count = self.laplacian.free() as f64;
        for component in 0..2 {
            let free = values.iter().zip(fixed).filter(|(_, fixed)| !**fixed);
            let mean = free.map(|(pair, _)| pair[component]).sum::<f64>() / count;
            for (pair, fixed) in values.iter_mut().zip(fixed) {
                pair[component] = if *fixed { 0.0 } else { pair[component] - mean };
            }
        }
    }
}

/// The next random sign (splitmix64, Steele et al. 2014).
fn sign(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    if (bits ^ (bits >> 31)) & 1 == 0 { 1.0 } else { -1.0 }
}

/// Nodes up to which the inverse is exact.
const EXACT_MAX: usize = 160;

/// Random vectors per component: the variance is good to about 5 %, the standard deviation to half
/// that.
const PROBES: u32 = 64;

/// Relative accuracy of each solution.
const ACCURACY: f64 = 1e-3;

/// Steps of the iterative solver per solution.
const STEPS_MAX: usize = 500;

const SEED: u64 = 0x5eed;

#[cfg(test)]
mod tests {
    use super::super::linear::Link;
    use super::*;

    /// Ratio of estimated to exact standard deviations, smallest and largest, over a graph of
    /// `links`.
    fn ratios(nodes: usize, links: Vec<Link>) -> [f64; 2] {
        let laplacian = Laplacian::new(links, (0..nodes).map(|node| node == 0).collect());
        let exact = laplacian.inverse_diagonal_dense().expect("connected");
        let found = covariance(&laplacian, 0);
        let ratio = |node: usize| [0, 2].map(|k| (found[node][k] / exact[node][k]).sqrt());
        let all: Vec<f64> = (1..nodes).flat_map(ratio).collect();
        [all.iter().copied().fold(f64::INFINITY, f64::min), all.iter().copied().fold(0.0, f64::max)]
    }

    #[test]
    fn large_graphs_are_estimated_upwards_and_closely() {
        let nodes = 200;
        let mut links = Vec::new();
        for from in 0..nodes {
            for (k, step) in [1, 17, 43, 71, 89].into_iter().enumerate() {
                let weight = 0.01 * (1 + (from + k) % 3) as f64;
                links.push(Link { from, to: (from + step) % nodes, weight: [weight, 0.2 * weight, weight] });
            }
        }
        let [least, most] = ratios(nodes, links);
        assert!(least > 0.93 && most < 1.15, "{least} {most}");
    }

    #[test]
    fn a_long_ring_is_never_claimed_too_well() {
        let ring = (0..200).map(|from| Link { from, to: (from + 1) % 200, weight: [0.01, 0.0, 0.01] });
        let [least, most] = ratios(200, ring.collect());
        assert!(least > 0.5 && most < 40.0, "{least} {most}");
    }

    #[test]
    fn unreachable_nodes_do_not_change_the_others() {
        let ring = |nodes: usize| {
            (0..nodes).flat_map(move |from| {
                [1, 5, 23].map(|step| Link { from, to: (from + step) % nodes, weight: [1.0, 0.0, 1.0] })
            })
        };
        let whole = Laplacian::new(ring(200).collect(), (0..200).map(|node| node == 0).collect());
        let cut = Laplacian::new(ring(200).collect(), (0..230).map(|node| node == 0 || node >= 200).collect());
        let (whole, cut) = (covariance(&whole, 0), covariance(&cut, 0));
        for node in 1..200 {
            assert!((cut[node][0] / whole[node][0] - 1.0).abs() < 0.3, "{:?} {:?}", cut[node], whole[node]);
        }
        assert!(cut[200..].iter().all(|block| *block == [0.0; 3]));
    }
}
