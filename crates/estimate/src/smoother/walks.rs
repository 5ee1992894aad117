//! How fast every clock's rate wanders in each interval between knots: the quiet clock's own
//! density, and more while it warms up.
//!
//! A single density for a whole run (`evidence`) cannot represent a clock that is quiet for a
//! minute and then changes its rate by 0.2 ppm within seconds: the quiet density would cut the
//! change off, and a larger one would make the whole run uncertain. Therefore the jumps of the
//! state from knot to knot, `j = x₊ − F·x`, follow a Student-t distribution: in each interval
//! normal with covariance `q_k·Q₁`, with q_k itself drawn around the clock's usual q. The expected
//! squared jump, with the posterior covariance of the smoothed states (Dempster, Laird and Rubin
//! 1977; Lange, Little and Taylor 1989), is `E_k = E[jᵀ·Q₁⁻¹·j]`, 2·q_k on average, and
//! `q_k = (ν·q + Σ w·E)/(ν + 2·Σ w)`. The sum covers the interval and its neighbours, because
//! warming lasts: a clock that has just warmed up continues to do so. The density never falls below
//! q.

use super::layout::{Layout, Span};
use super::variance::Variances;
use crate::graph::linear::{Block, Pair, inverse};
use crate::motion::{difference, product, square, stiffness, sum, transition, transposed};

/// A solution under the densities so far.
pub(super) struct Moved<'a> {
    pub(super) layout: &'a Layout,
    pub(super) states: &'a [Pair],
    /// By state, the density to the next.
    pub(super) walks: &'a [f64],
    /// By node.
    pub(super) usual: &'a [f64],
    /// The information of each state's edges alone.
    pub(super) precision: &'a [Block],
}

/// The density of every state's interval, from the state to the next: every clock's usual one.
pub(super) fn usual(layout: &Layout, of_nodes: &[f64]) -> Vec<f64> {
    let mut walks = vec![0.0; layout.states];
    for span in &layout.spans {
        walks[span.base..span.base + span.len()].fill(of_nodes[span.node]);
    }
    walks
}

/// The density of every interval as the states show it.
pub(super) fn follow(moved: &Moved<'_>) -> Vec<f64> {
    let mut walks = usual(moved.layout, moved.usual);
    for span in &moved.layout.spans {
        let squares = squared_jumps(moved, span);
        let times = &moved.layout.knots[span.first..=span.last];
        let usual = moved.usual[span.node];
        for (k, walk) in walks[span.base..].iter_mut().take(squares.len()).enumerate() {
            let [seen, weights] = around(times, &squares, k);
            *walk = ((FREEDOM * usual + seen) / (FREEDOM + 2.0 * weights)).max(usual);
        }
    }
    walks
}

/// The squared jumps in and about an interval, weighted, and the sum of the weights.
fn around(times: &[f64], squares: &[f64], k: usize) -> [f64; 2] {
    let (mut seen, mut weights) = (squares[k], 1.0);
    let mut take = |other: usize| {
        let weight = 0.5f64.powf((times[other] - times[k]).abs() / HALF_S);
        let counts = weight >= WEIGHT_MIN;
        if counts {
            (seen, weights) = (seen + weight * squares[other], weights + weight);
        }
        counts
    };
    let _ = (0..k).rev().take(NEIGHBOURS_MAX).all(&mut take);
    let _ = (k + 1..squares.len()).take(NEIGHBOURS_MAX).all(&mut take);
    [seen, weights]
}

/// E[jᵀ·Q₁⁻¹·j] of every interval of a span.
fn squared_jumps(moved: &Moved<'_>, span: &Span) -> Vec<f64> {
    let range = span.base..span.base + span.len();
    let times = &moved.layout.knots[span.first..=span.last];
    let noise: Vec<Option<Block>> = moved.precision[range.clone()].iter().map(|block| inverse(*block)).collect();
    let Variances { at, across } = Variances::new(times, &noise, &moved.walks[range.clone()]);
    let states = &moved.states[range];
    let square_of = |k: usize| {
        let delta = times[k + 1] - times[k];
        let jump = [states[k + 1][0] - states[k][0] - delta * states[k][1], states[k + 1][1] - states[k][1]];
        let f = transition(delta);
        // Cov(x₊ − F·x) = P₊ + F·P·Fᵀ − F·C − (F·C)ᵀ, C the covariance of the state with the next.
        let mixed = product(f, across[k]);
        let both = sum(square(at[k + 1]), product(product(f, square(at[k])), transposed(f)));
        let spread = difference(difference(both, mixed), transposed(mixed));
        let [a, b, c] = stiffness(1.0, delta);
        let [x, y] = jump;
        a * (x * x + spread[0][0])
            + 2.0 * b * (x * y + 0.5 * (spread[0][1] + spread[1][0]))
            + c * (y * y + spread[1][1])
    };
    (0..states.len().saturating_sub(1)).map(|k| square_of(k).max(0.0)).collect()
}

/// ν of the jumps: how many seen jumps the usual density counts for.
const FREEDOM: f64 = 4.0;

/// Distance at which a neighbouring interval counts half, s; and the weight below which it does not
/// count at all.
const HALF_S: f64 = 4.0;
const WEIGHT_MIN: f64 = 0.25;

/// Neighbours on each side, however dense the knots are.
const NEIGHBOURS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_count_less_the_farther_they_are() {
        let times = [0.0, 4.0, 8.0, 12.0, 40.0];
        // Itself 1, 4 s away a half, 8 s away a quarter, 12 s away nothing.
        assert_eq!(around(&times, &[100.0, 10.0, 1.0, 1_000.0], 0), [100.0 + 5.0 + 0.25, 1.75]);
        assert_eq!(around(&times, &[100.0, 10.0, 1.0, 1_000.0], 2), [1.0 + 5.0 + 25.0 + 500.0, 2.25]);
    }
}
