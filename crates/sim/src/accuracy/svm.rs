//! The linear soft-margin support vector machine of the Huygens paper (Geng et al., NSDI 2018) on bare points.
//!
//! Place in the flow: under the baselines of `accuracy`. Forward points (x, u) are class +1, reverse points (x, l) class −1;
//! the decision line v₁·x + v₂·y + v₃ = 0 is the edge's line. Minimised is ½|v|² + C·Σ max(0, 1 − ±v·p) with C = 1, after the
//! points' regression line is taken out.
//!
//! Units. C = 1 says nothing until lengths have a unit; [`Units`] are the callers' choice. The bias of a standard machine is free,
//! so v₃ costs next to nothing here ([`FREE`]).
//!
//! Solver: there are three unknowns and thousands of points, so the primal is solved by Newton's method. The hinge is
//! rounded off over a width h that shrinks to [`WIDTH_MIN`]: φ(z) = (1 − z)²/2h for 1 − h < z < 1, 1 − z − h/2 below, 0 above.
//! The objective keeps its strict convexity, so backtracking always ends at the one minimum. Dual coordinate descent, which
//! `edge_fit` uses for a user's single windows, needs ten times as many passes; a test holds the two optima against each other.
//!
//! What it does not do: choose packets; the callers decide which points count.

/// What one step of a feature is, ns.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Units {
    /// Of time. Small against the window: the slope is free. As large as the window: it is shrunk towards the trend.
    pub(super) x_ns: f64,
    /// Of the measured difference. Small against the gap between the classes: the margin is hard. Large: it is soft.
    pub(super) y_ns: f64,
}

/// One point: time since the window's midpoint and the measured difference above a base, ns.
pub(super) type Point = (f64, f64);

/// Intercept, ns, and slope, ns per ns, of the separating line; None when a class is empty or no line separates by y, or when
/// its slope is one that no pair of clocks has: then the points say nothing and the edge is better left out.
pub(super) fn line(forward: &[Point], reverse: &[Point], units: Units) -> Option<(f64, f64)> {
    if forward.is_empty() || reverse.is_empty() {
        return None;
    }
    let all = || forward.iter().chain(reverse).copied();
    let (trend_at_zero, trend_slope) = regression(all())?;
    let above = |(x, y): Point| (x, y - trend_at_zero - trend_slope * x);
    let signed = |class: f64| {
        move |point: &Point| {
            let (x, y) = above(*point);
            [class * x / units.x_ns, class * y / units.y_ns, class * FREE]
        }
    };
    let samples: Vec<[f64; 3]> = forward.iter().map(signed(1.0)).chain(reverse.iter().map(signed(-1.0))).collect();
    let [v1, v2, v3] = train(&samples);
    let slope = trend_slope - v1 / v2 * units.y_ns / units.x_ns;
    let intercept = trend_at_zero - v3 * FREE / v2 * units.y_ns;
    (v2 > 0.0 && slope.abs() <= SLOPE_MAX && intercept.is_finite()).then_some((intercept, slope))
}

/// Intercept at x = 0 and slope of the least-squares line; slope 0 when all x are equal; None without points.
pub(super) fn regression(points: impl Iterator<Item = Point> + Clone) -> Option<(f64, f64)> {
    let (count, x_sum, y_sum) =
        points.clone().fold((0.0, 0.0, 0.0), |(count, x, y), point| (count + 1.0, x + point.0, y + point.1));
    if count == 0.0 {
        return None;
    }
    let (x_mean, y_mean) = (x_sum / count, y_sum / count);
    let (xx, xy) = points
        .fold((0.0, 0.0), |(xx, xy), (x, y)| (xx + (x - x_mean) * (x - x_mean), xy + (x - x_mean) * (y - y_mean)));
    let slope = if xx > 0.0 { xy / xx } else { 0.0 };
    Some((y_mean - slope * x_mean, slope))
}

/// The minimum over v for samples that carry their class as sign.
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
            let pull = PENALTY * if curved { short / width } else { 1.0 };
            cost += PENALTY * if curved { 0.5 * short * short / width } else { short - 0.5 * width };
            gradient.iter_mut().zip(p).for_each(|(sum, p)| *sum -= pull * p);
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

/// By how much the bias is enlarged, so that its part of |v|² is negligible.
const FREE: f64 = 1e3;

/// Two servers' clocks do not differ by more than 100 ppm. Of a filter that leaves four pairs within a moment the line may have
/// any slope; leaving such lines out halved Huygens' p99 at load 0.8.
pub(super) const SLOPE_MAX: f64 = 100e-6;

/// C of the soft margin, as in the paper.
const PENALTY: f64 = 1.0;

/// The first width over which the hinge is rounded, in margins: at v = 0 every point lies within, which makes the first
/// step one of least squares.
const WIDTH_MAX: f64 = 16.0;

/// The last width.
const WIDTH_MIN: f64 = 1e-4;

/// By how much the width shrinks from stage to stage. Smaller factors lose Newton's method its fast region.
const WIDTH_STEP: f64 = 0.25;

/// Newton's method needs two to six per width.
const NEWTON_STEPS_MAX: usize = 30;

/// A stage ends when a step would gain less than this share of the cost.
const DECREMENT_MIN: f64 = 1e-12;

/// Backtracking ends here, where rounding hides any gain.
const LENGTH_MIN: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sync_estimate::edge_fit::{EdgeWindow, FitMethod, FitOptions, fit};
    use probe_sync_time::{Edge, Exchange, StampSource, Timestamp};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// An exchange every 13 ms whose packets wait exponentially above 5 µs; the clocks differ by 700 ns and 10 ppm.
    fn exchanges(count: i64, queueing_ns: f64, seed: u64) -> Vec<Exchange> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let theta = |at: i64| 700 + at / 100_000;
        let exchange = |index: i64| {
            let begin = (index - count / 2) * 13_000_000 + rng.random_range(0..1_000_000);
            let mut delay = || 5_000 - (queueing_ns * (1.0 - rng.random::<f64>()).ln()) as i64;
            let mut t = [0; 8];
            for (packet, sent) in [(0, begin), (1, begin + 100_000)] {
                (t[2 * packet], t[2 * packet + 1]) = (sent, sent + theta(sent) + delay());
            }
            for (packet, sent) in [(2, begin + 300_000), (3, begin + 400_000)] {
                (t[2 * packet], t[2 * packet + 1]) = (sent + theta(sent), sent + delay());
            }
            Exchange {
                edge: Edge::new(0, 1),
                seq: index as u32,
                stamp: StampSource::Kernel,
                t: t.map(Timestamp::from_ns),
            }
        };
        (0..count).map(exchange).collect()
    }

    fn points(exchanges: &[Exchange]) -> (Vec<Point>, Vec<Point>) {
        let of = |packets: [(Timestamp<_>, probe_sync_time::Duration); 2]| {
            packets.map(|(at, y)| (at.as_ns() as f64, y.as_ns_f64()))
        };
        (
            exchanges.iter().flat_map(|e| of(e.forward())).collect(),
            exchanges.iter().flat_map(|e| of(e.reverse())).collect(),
        )
    }

    const HARD: Units = Units { x_ns: 1e6, y_ns: 100.0 };

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
    fn it_is_near_the_machine_of_edge_fit_where_queues_are_short() {
        let exchanges = exchanges(300, 500.0, 3);
        let (forward, reverse) = points(&exchanges);
        let (intercept, slope) = line(&forward, &reverse, HARD).expect("separable");
        let window =
            EdgeWindow { edge: Edge::new(0, 1), midpoint: Timestamp::from_ns(0), exchanges: &exchanges, lost: 0 };
        let other = fit(&window, &FitOptions { method: FitMethod::Svm, ..FitOptions::default() }).expect("exchanges");
        assert!((intercept - other.beta).abs() < 10.0, "{intercept} against {}", other.beta);
        assert!((intercept - 700.0).abs() < 10.0, "{intercept}");
        assert!((slope - 10e-6).abs() < 10e-9, "{slope}");
    }

    #[test]
    fn points_by_hand() {
        // Two flat bands 200 apart: the line lies in the middle, whatever the base.
        let forward: Vec<Point> = (-5..=5).map(|x| (f64::from(x) * 1e8, 1_100.0)).collect();
        let reverse: Vec<Point> = (-5..=5).map(|x| (f64::from(x) * 1e8, 900.0)).collect();
        let (intercept, slope) = line(&forward, &reverse, HARD).expect("separable");
        assert!((intercept - 1_000.0).abs() < 1e-3 && slope.abs() < 1e-12, "{intercept} {slope}");
        assert_eq!(line(&[], &reverse, HARD), None);
        assert_eq!(line(&forward, &[], HARD), None);
        // 200 ppm is no clock.
        let steep: Vec<Point> = forward.iter().map(|(x, y)| (*x, y + 200e-6 * x)).collect();
        let steep_reverse: Vec<Point> = reverse.iter().map(|(x, y)| (*x, y + 200e-6 * x)).collect();
        assert_eq!(line(&steep, &steep_reverse, HARD), None);
    }
}
