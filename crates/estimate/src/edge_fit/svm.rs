//! The linear soft-margin support vector machine of Huygens (Geng et al., NSDI 2018), as a baseline.
//!
//! Place in the flow: one of the methods of `edge_fit`. Forward points are class +1, reverse points class −1; the
//! classifier's decision line v₁·x + v₂·y + v₃ = 0 is the fitted line. It minimises ½|v|² + C·Σ max(0, 1 − ±v·p) with
//! C = 1 by dual coordinate descent (Hsieh et al., ICML 2008), the constant 1 appended to each point as the bias.
//! Points are scaled first: the trend of the hull line is taken out, x and y are divided by their standard deviation.
//!
//! Why it is only a baseline: the margin is Euclidean in scaled units and outliers move it, so its line depends on
//! the queues far from the gap, which carry no information about the floor.

use super::Line;
use super::packets::Packets;

/// The line, |slope| ≤ `limit`; `trend` where the machine finds no usable direction.
pub(super) fn line(packets: &Packets, trend: Line, limit: f64) -> Line {
    let above = |x: f64, y: f64| y - trend.intercept - trend.slope * x;
    let forward = packets.forward.iter().map(|p| (p.x, above(p.x, p.y), 1.0));
    let reverse = packets.reverse.iter().map(|p| (-p.x, above(-p.x, -p.y), -1.0));
    let points: Vec<(f64, f64, f64)> = forward.chain(reverse).collect();
    let (scale_x, scale_y) = (deviation(points.iter().map(|p| p.0)), deviation(points.iter().map(|p| p.1)));
    let scaled: Vec<Sample> =
        points.iter().map(|&(x, y, class)| Sample { point: [x / scale_x, y / scale_y, 1.0], class }).collect();
    let [v1, v2, v3] = train(&scaled);
    let slope = trend.slope - v1 / scale_x * scale_y / v2;
    let intercept = trend.intercept - v3 * scale_y / v2;
    let usable = v2 > 0.0 && slope.is_finite() && intercept.is_finite();
    if usable { Line { intercept, slope: slope.clamp(-limit, limit) } } else { trend }
}

struct Sample {
    point: [f64; 3],
    class: f64,
}

/// Dual coordinate descent; the order is a fixed stride through the samples, so that the result is reproducible.
fn train(samples: &[Sample]) -> [f64; 3] {
    let mut weights = vec![0.0; samples.len()];
    let mut v = [0.0; 3];
    let stride = stride(samples.len());
    for _ in 0..EPOCHS_MAX {
        let mut change = 0f64;
        let mut at = 0;
        for _ in 0..samples.len() {
            at = (at + stride) % samples.len();
            let Sample { point, class } = &samples[at];
            let gradient = class * dot(&v, point) - 1.0;
            let new = (weights[at] - gradient / dot(point, point)).clamp(0.0, PENALTY);
            let step = new - weights[at];
            weights[at] = new;
            v.iter_mut().zip(point).for_each(|(v, p)| *v += step * class * p);
            change = change.max(step.abs());
        }
        if change < TOLERANCE {
            break;
        }
    }
    v
}

/// A step near the golden section of `count` that visits every sample.
fn stride(count: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let start = (count as f64 * 0.618) as usize;
    (start.max(1)..=count).find(|&step| gcd(step, count) == 1).unwrap_or(1)
}

/// Root mean square, and 1 when all values are zero.
fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let count = values.clone().count().max(1) as f64;
    let square = values.map(|value| value * value).sum::<f64>() / count;
    if square > 0.0 { square.sqrt() } else { 1.0 }
}

fn dot(a: &[f64; 3], b: &[f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// C of the soft margin.
const PENALTY: f64 = 1.0;

/// Passes over the samples.
const EPOCHS_MAX: usize = 200;

/// Training ends when no weight moved by more.
const TOLERANCE: f64 = 1e-4;
