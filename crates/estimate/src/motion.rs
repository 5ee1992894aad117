//! The motion of a clock between knots: offset x in ns and rate f in ns/s, with a random-walk rate.
//!
//! Over Δ seconds `x' = x + f·Δ`, `f' = f`, and white noise of spectral density q (ns²/s³) adds
//! `q·[[Δ³/3, Δ²/2], [Δ²/2, Δ]]`. Given both ends, the mean path between them is the cubic through
//! offsets and rates (Hermite), and its own variance at the fraction s is `q·Δ³·s³·(1−s)³/3`.
//!
//! The line that a window of length T gives is not the state at its middle: with uniformly spread
//! packets the random walk adds q·T³/320 to the variance of the offset and q·T·0.059 to that of the
//! rate.

use crate::edge_fit::{MAX_SKEW, WATCH_LIMIT_PPM};
use crate::graph::linear::{Block, Pair};

/// The variance on the cubic may be smaller than at its ends, but not below this share of theirs.
const SMALLEST_SHARE: f64 = 0.25;

/// Full 2×2 matrix, by rows.
pub(crate) type Square = [[f64; 2]; 2];

/// Covariance that the random walk adds over `delta` seconds.
pub(crate) fn walk(q: f64, delta: f64) -> Block {
    [q * delta.powi(3) / 3.0, q * delta.powi(2) / 2.0, q * delta]
}

/// Inverse of [`walk`].
pub(crate) fn stiffness(q: f64, delta: f64) -> Block {
    [12.0 / (q * delta.powi(3)), -6.0 / (q * delta.powi(2)), 4.0 / (q * delta)]
}

/// Covariance that the walk within a window adds to its line.
pub(crate) fn window_excess(q: f64, window: f64) -> [f64; 2] {
    [q * window.powi(3) / 320.0, 0.059 * q * window]
}

/// Weights of the states (x, f) at both ends in the offset at the fraction `s` of `delta` seconds,
/// and their slopes per second.
pub(crate) fn hermite(s: f64, delta: f64) -> [[Pair; 2]; 2] {
    let (s2, s3) = (s * s, s * s * s);
    let value = [[2.0 * s3 - 3.0 * s2 + 1.0, (s3 - 2.0 * s2 + s) * delta], [3.0 * s2 - 2.0 * s3, (s3 - s2) * delta]];
    let rise = (6.0 * s2 - 6.0 * s) / delta;
    let slope = [[rise, 3.0 * s2 - 4.0 * s + 1.0], [-rise, 3.0 * s2 - 2.0 * s]];
    [value, slope]
}

/// Variance of the offset between two known ends.
pub(crate) fn bridge(q: f64, delta: f64, s: f64) -> f64 {
    q * delta.powi(3) * (s * (1.0 - s)).powi(3) / 3.0
}

/// Variance of the offset at the fraction `s` of `delta` seconds between two ends with these
/// covariances, on the cubic. Errors of neighbouring offsets are nearly the same (the asymmetry of
/// a path, a window shared by both), so their standard deviations are added, not their squares;
/// errors of rates count as independent. With the weights h of [`hermite`]: `(h₀σ_a + h₁σ_b)²`, the
/// contribution of the rates, and the [`bridge`].
pub(crate) fn variance_between([a, b]: [Block; 2], q: f64, delta: f64, s: f64) -> f64 {
    let [[wa, wb], _] = hermite(s, delta);
    let offsets = (wa[0] * a[0].sqrt() + wb[0] * b[0].sqrt()).powi(2);
    let rates = wa[1] * wa[1] * a[2] + wb[1] * wb[1] * b[2];
    let mixed = 2.0 * (wa[0] * wa[1] * a[1] + wb[0] * wb[1] * b[1]);
    (offsets + rates + mixed).max(SMALLEST_SHARE * offsets) + bridge(q, delta, s)
}

/// Returns the hard interval at the fraction `s` of `delta` seconds between two instants with known
/// hard intervals, or beyond either (s < 0, s > 1). As within a window, each clock's rate is
/// assumed to stay within a range of 3 ppm. The offset is then within r·Δ·s·(1 − s) of its chord;
/// the extreme is the largest rate up to s and the smallest after it, or the reverse. Beyond an end
/// the rate may differ from the chord's by r.
pub(crate) fn hard_between([a, b]: [[f64; 2]; 2], delta: f64, s: f64) -> [f64; 2] {
    if s == 0.0 || s == 1.0 {
        return if s == 0.0 { a } else { b };
    }
    let range = 2.0 * WATCH_LIMIT_PPM * NS_PER_S_PER_PPM * (1.0 + 2.0 * MAX_SKEW);
    let bow = range
        * delta
        * if s < 0.0 {
            -s
        } else if s > 1.0 {
            s - 1.0
        } else {
            s * (1.0 - s)
        };
    let end =
        |place: usize, weight: f64, interval: [f64; 2]| weight * interval[if weight < 0.0 { 1 - place } else { place }];
    let chord = |place: usize| end(place, 1.0 - s, a) + end(place, s, b);
    // Where one host's clock is decades off, the products round by hundreds of ns.
    let rounding = |value: f64| 2.0 * f64::EPSILON * value.abs();
    let (low, high) = (chord(0), chord(1));
    [low - bow - rounding(low), high + bow + rounding(high)]
}

pub(crate) fn square([a, b, c]: Block) -> Square {
    [[a, b], [b, c]]
}

pub(crate) fn block(m: Square) -> Block {
    [m[0][0], 0.5 * (m[0][1] + m[1][0]), m[1][1]]
}

pub(crate) fn product(a: Square, b: Square) -> Square {
    let entry = |row: usize, column: usize| a[row][0] * b[0][column] + a[row][1] * b[1][column];
    [[entry(0, 0), entry(0, 1)], [entry(1, 0), entry(1, 1)]]
}

pub(crate) fn transposed(m: Square) -> Square {
    [[m[0][0], m[1][0]], [m[0][1], m[1][1]]]
}

pub(crate) fn sum(a: Square, b: Square) -> Square {
    [[a[0][0] + b[0][0], a[0][1] + b[0][1]], [a[1][0] + b[1][0], a[1][1] + b[1][1]]]
}

pub(crate) fn difference(a: Square, b: Square) -> Square {
    sum(a, [[-b[0][0], -b[0][1]], [-b[1][0], -b[1][1]]])
}

pub(crate) fn apply(m: Square, x: Pair) -> Pair {
    [m[0][0] * x[0] + m[0][1] * x[1], m[1][0] * x[0] + m[1][1] * x[1]]
}

/// F: the transition of (x, f) over `delta` seconds.
pub(crate) fn transition(delta: f64) -> Square {
    [[1.0, delta], [0.0, 1.0]]
}

/// uᵀ·M·v.
pub(crate) fn between(u: Pair, m: Square, v: Pair) -> f64 {
    let mv = apply(m, v);
    u[0] * mv[0] + u[1] * mv[1]
}

/// A millionth is 1000 ns per s.
pub(crate) const NS_PER_S_PER_PPM: f64 = 1e3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::linear::inverse;

    #[test]
    fn stiffness_inverts_the_walk() {
        let found = inverse(walk(3.0, 0.7)).expect("positive");
        for (found, expected) in found.into_iter().zip(stiffness(3.0, 0.7)) {
            assert!((found / expected - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_hard_interval_between_two_by_hand() {
        // Ends of ± 100 ns, 2 s apart: in the middle the chord's interval and 3 µs, whatever the
        // rate did, and as exactly the ends.
        let ends = [[-100.0, 100.0], [900.0, 1100.0]];
        let near = |found: [f64; 2], expected: [f64; 2]| {
            let off = (found[0] - expected[0]).abs().max((found[1] - expected[1]).abs());
            assert!(off < 15.0, "{found:?} {expected:?}");
        };
        near(hard_between(ends, 2.0, 0.5), [-2600.0, 3600.0]);
        assert_eq!([0.0, 1.0].map(|s| hard_between(ends, 2.0, s)), ends);
        // A second beyond either end: half as much farther than the ends' own corners, and 6 µs.
        near(hard_between(ends, 2.0, 1.5), [1300.0 - 6000.0, 1700.0 + 6000.0]);
        near(hard_between(ends, 2.0, -0.5), [-700.0 - 6000.0, -300.0 + 6000.0]);
        let open = [[f64::NEG_INFINITY, 100.0], ends[1]];
        assert_eq!(hard_between(open, 2.0, 0.25)[0], f64::NEG_INFINITY);
        assert_eq!(hard_between(open, 2.0, 1.25)[1], f64::INFINITY);
    }

    #[test]
    fn a_cubic_is_met_everywhere() {
        // x = 5 + 2 t − 3 t² + t³ over 0..2 s: f = 2 − 6 t + 3 t².
        let x = |t: f64| 5.0 + 2.0 * t - 3.0 * t * t + t.powi(3);
        let f = |t: f64| 2.0 - 6.0 * t + 3.0 * t * t;
        for k in 0..=10 {
            let s = f64::from(k) / 10.0;
            let [value, slope] = hermite(s, 2.0);
            let dot = |w: [Pair; 2]| w[0][0] * x(0.0) + w[0][1] * f(0.0) + w[1][0] * x(2.0) + w[1][1] * f(2.0);
            assert!((dot(value) - x(2.0 * s)).abs() < 1e-12 && (dot(slope) - f(2.0 * s)).abs() < 1e-12);
        }
    }
}
