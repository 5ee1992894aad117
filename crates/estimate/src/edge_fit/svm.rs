//! The linear soft-margin support vector machine of the Huygens paper (Geng et al., NSDI 2018) on
//! bare points, as a baseline.
//!
//! Forward points (x, u) are class +1, reverse points (x, l) class −1; the decision line v₁·x +
//! v₂·y + v₃ = 0 is the edge's line. The method minimises ½|v|² + C·Σ max(0, 1 − ±v·p) with C = 1,
//! after a trend is removed from the points.
//!
//! Units. C = 1 says nothing until lengths have a unit; [`Units`] are the callers' choice. So is
//! the size of the constant third feature: 1 counts the bias in |v|²; a large one leaves it free,
//! as in a standard machine.
//!
//! Solver: there are three unknowns and thousands of points, so the primal is solved by Newton's
//! method. The hinge is rounded off over a width h that shrinks to `WIDTH_MIN`: φ(z) = (1 − z)²/2h
//! for 1 − h < z < 1, 1 − z − h/2 below, 0 above. The objective keeps its strict convexity, so
//! backtracking always ends at the one minimum. Dual coordinate descent (Hsieh et al., ICML 2008)
//! needs ten times as many passes; a test holds the two optima against each other.
//!
//! Why it is only a baseline: the margin is Euclidean in scaled units and outliers move it, so its
//! line depends on the queues far from the gap, which carry no information about the floor.

/// Units of the features.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Units {
    /// Unit of time, ns. If small compared with the window, the slope is free; if as large as the
    /// window, it is shrunk towards the trend.
    pub x_ns: f64,
    /// Unit of the measured difference, ns. If small compared with the gap between the classes, the
    /// margin is hard; if large, it is soft.
    pub y_ns: f64,
    /// The constant feature: factor by which the bias is enlarged, so that its part of |v|² shrinks
    /// by the square.
    pub bias: f64,
}

/// One point: time since the window's midpoint and the measured difference above a base, ns.
pub type Point = (f64, f64);

/// Returns intercept, ns, and slope, ns per ns, of the separating line. `trend` (intercept and
/// slope) is subtracted first and added back. `None` if a class is empty or no line separates by y.
/// The slope is not limited.
///
/// ```
/// use probe_sync_estimate::edge_fit::svm::{Units, separating_line};
/// // Node j is 1000 ns ahead, the delay is 200 ns: forward points at 1200, reverse points at 800.
/// let (forward, reverse) = ([(-1e9, 1200.0), (1e9, 1200.0)], [(-1e9, 800.0), (1e9, 800.0)]);
/// let units = Units { x_ns: 1e6, y_ns: 100.0, bias: 1e3 };
/// let (intercept, slope) = separating_line(&forward, &reverse, (1000.0, 0.0), units).expect("separable");
/// assert!((intercept - 1000.0).abs() < 1e-3 && slope.abs() < 1e-12);
/// ```
pub fn separating_line(forward: &[Point], reverse: &[Point], trend: (f64, f64), units: Units) -> Option<(f64, f64)> {
    if forward.is_empty() || reverse.is_empty() {
        return None;
    }
    let (trend_at_zero, trend_slope) = trend;
    let above = |(x, y): Point| (x, y - trend_at_zero - trend_slope * x);
    let signed = |class: f64| {
        move |point: &Point| {
            let (x, y) = above(*point);
            [class * x / units.x_ns, class * y / units.y_ns, class * units.bias]
        }
    };
    let samples: Vec<[f64; 3]> = forward.iter().map(signed(1.0)).chain(reverse.iter().map(signed(-1.0))).collect();
    let [v1, v2, v3] = train(&samples);
    let slope = trend_slope - v1 / v2 * units.y_ns / units.x_ns;
    let intercept = trend_at_zero - v3 * units.bias / v2 * units.y_ns;
    (v2 > 0.0 && slope.is_finite() && intercept.is_finite()).then_some((intercept, slope))
}

/// Returns the minimum over v for samples that carry their class as sign.
fn train(samples: &[[f64; 3]]) -> [f64; 3] {
    let mut v = [0.0; 3];
    let mut width = WIDTH_MAX;
    while width >= WIDTH_MIN {
        for _ in 0..NEWTON_STEPS_MAX {
            let Local { cost, gradient, hessian } = Local::at(samples, &v, width);
            let Some(step) = solve(&hessian, &gradient) else { break };
            let decrement: f64 = step.iter().zip(&gradient).map(|(a, b)| a * b).sum();
            if decrement <= DECREMENT_MIN * (1.0 + cost) {
                break;
            }
            let mut length = 1.0;
            let moved = |length: f64| [v[0] - length * step[0], v[1] - length * step[1], v[2] - length * step[2]];
            // Armijo's rule: a tenth of what the slope promises.
            while Local::cost(samples, &moved(length), width) > cost - 0.1 * length * decrement && length > LENGTH_MIN {
                length *= 0.5;
            }
            v = moved(length);
        }
        width *= WIDTH_STEP;
    }
    v
}

/// The rounded objective around one v.
struct Local {
    cost: f64,
    gradient: [f64; 3],
    /// Upper triangle: 00 01 02 11 12 22.
    hessian: [f64; 6],
}

impl Local {
    fn at(samples: &[[f64; 3]], v: &[f64; 3], width: f64) -> Self {
        let mut cost = 0.5 * dot(v, v);
        let mut gradient = *v;
        let mut hessian = [1.0, 0.0, 0.0, 1.0, 0.0, 1.0];
        for p in samples {
            let short = 1.0 - dot(v, p);
            if short <= 0.0 {
                continue;
            }
            let curved = short < width;
            let force = PENALTY * if curved { short / width } else { 1.0 };
            cost += PENALTY * if curved { 0.5 * short * short / width } else { short - 0.5 * width };
            gradient.iter_mut().zip(p).for_each(|(sum, p)| *sum -= force * p);
            if curved {
                let weight = PENALTY / width;
                let products = [p[0] * p[0], p[0] * p[1], p[0] * p[2], p[1] * p[1], p[1] * p[2], p[2] * p[2]];
                hessian.iter_mut().zip(products).for_each(|(sum, product)| *sum += weight * product);
            }
        }
        Self { cost, gradient, hessian }
    }

    fn cost(samples: &[[f64; 3]], v: &[f64; 3], width: f64) -> f64 {
        let hinge = |p: &[f64; 3]| {
            let short = 1.0 - dot(v, p);
            if short <= 0.0 {
                0.0
            } else if short < width {
                0.5 * short * short / width
            } else {
                short - 0.5 * width
            }
        };
        0.5 * dot(v, v) + PENALTY * samples.iter().map(hinge).sum::<f64>()
    }
}

/// Solves a symmetric positive definite 3×3 system by Cramer's rule.
fn solve([a, b, c, d, e, f]: &[f64; 6], r: &[f64; 3]) -> Option<[f64; 3]> {
    let minors = [d * f - e * e, c * e - b * f, b * e - c * d, a * f - c * c, b * c - a * e, a * d - b * b];
    let determinant = a * minors[0] + b * minors[1] + c * minors[2];
    let row = |i: usize, j: usize, k: usize| (minors[i] * r[0] + minors[j] * r[1] + minors[k] * r[2]) / determinant;
    (determinant > 0.0).then(|| [row(0, 1, 2), row(1, 3, 4), row(2, 4, 5)])
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// C of the soft margin, as in the paper.
const PENALTY: f64 = 1.0;

/// First width over which the hinge is rounded, in margins: at v = 0 every point lies within, so
/// that the first step is one of least squares.
const WIDTH_MAX: f64 = 16.0;

/// The last width.
const WIDTH_MIN: f64 = 1e-4;

/// Factor by which the width shrinks from stage to stage. With smaller factors Newton's method
/// leaves its region of fast convergence.
const WIDTH_STEP: f64 = 0.25;

/// Newton's method needs two to six per width.
const NEWTON_STEPS_MAX: usize = 30;

/// A stage ends when a step would gain less than this share of the cost.
const DECREMENT_MIN: f64 = 1e-12;

/// Backtracking ends here: rounding hides any gain.
const LENGTH_MIN: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const HARD: Units = Units { x_ns: 1e6, y_ns: 100.0, bias: 1e3 };

    /// The exact objective.
    fn objective(samples: &[[f64; 3]], v: &[f64; 3]) -> f64 {
        0.5 * dot(v, v) + PENALTY * samples.iter().map(|p| (1.0 - dot(v, p)).max(0.0)).sum::<f64>()
    }

    /// Dual coordinate descent (Hsieh et al., ICML 2008) until nothing moves.
    fn descent(samples: &[[f64; 3]]) -> [f64; 3] {
        let (mut weights, mut v) = (vec![0.0; samples.len()], [0.0; 3]);
        for _ in 0..20_000 {
            let mut moved = 0f64;
            for (weight, p) in weights.iter_mut().zip(samples) {
                let new = (*weight - (dot(&v, p) - 1.0) / dot(p, p)).clamp(0.0, PENALTY);
                let step = new - std::mem::replace(weight, new);
                v.iter_mut().zip(p).for_each(|(v, p)| *v += step * p);
                moved = moved.max(step.abs());
            }
            if moved < 1e-9 {
                break;
            }
        }
        v
    }

    #[test]
    fn it_reaches_the_optimum_of_coordinate_descent() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for (gap, queue) in [(1.0, 0.5), (0.3, 2.0), (10.0, 30.0)] {
            let point = |class: f64, rng: &mut ChaCha8Rng| {
                let y = gap - queue * (1.0 - rng.random::<f64>()).ln();
                [class * (2.0 * rng.random::<f64>() - 1.0), y, class]
            };
            let samples: Vec<[f64; 3]> =
                (0..60).map(|index| point(if index % 2 == 0 { 1.0 } else { -1.0 }, &mut rng)).collect();
            let (ours, other) = (objective(&samples, &train(&samples)), objective(&samples, &descent(&samples)));
            assert!(ours <= other * (1.0 + 1e-3), "{ours} is above {other} at gap {gap}");
        }
    }

    #[test]
    fn points_by_hand() {
        // Two flat bands 200 apart: the line lies in the middle, whatever the base and whatever the
        // trend.
        let forward: Vec<Point> = (-5..=5).map(|x| (f64::from(x) * 1e8, 1_100.0)).collect();
        let reverse: Vec<Point> = (-5..=5).map(|x| (f64::from(x) * 1e8, 900.0)).collect();
        for (trend, bias) in [((1_000.0, 0.0), 1e3), ((950.0, 0.0), 1e3), ((1_000.0, 0.0), 1.0)] {
            let units = Units { bias, ..HARD };
            let (intercept, slope) = separating_line(&forward, &reverse, trend, units).expect("separable");
            assert!((intercept - 1_000.0).abs() < 1e-3 && slope.abs() < 1e-12, "{intercept} {slope}");
        }
        assert_eq!(separating_line(&[], &reverse, (0.0, 0.0), HARD), None);
        assert_eq!(separating_line(&forward, &[], (0.0, 0.0), HARD), None);
    }
}
