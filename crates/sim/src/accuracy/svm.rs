//! The lines of the support vector machine, as Huygens computes them (Geng et al., NSDI 2018).
//!
//! The trend is the regression line of the points. A standard machine has a free bias, so the
//! constant feature is large here ([`FREE`]).

use probe_sync_estimate::edge_fit::svm::separating_line;
pub(super) use probe_sync_estimate::edge_fit::svm::{Point, Units};

/// Units of time and of the measured difference, ns, with a free bias.
pub(super) const fn units(x_ns: f64, y_ns: f64) -> Units {
    Units { x_ns, y_ns, bias: FREE }
}

/// Returns intercept, ns, and slope, ns per ns, of the separating line; `None` if a class is empty,
/// if no line separates by y, or if the slope is impossible for a pair of clocks: then the points
/// say nothing and the edge is better omitted.
pub(super) fn line(forward: &[Point], reverse: &[Point], units: Units) -> Option<(f64, f64)> {
    let trend = regression(forward.iter().chain(reverse).copied())?;
    separating_line(forward, reverse, trend, units).filter(|(_, slope)| slope.abs() <= SLOPE_MAX)
}

/// Returns intercept at x = 0 and slope of the least-squares line; slope 0 if all x are equal;
/// `None` without points.
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

/// Factor by which the bias is enlarged, so that its part of |v|² is negligible.
const FREE: f64 = 1e3;

/// Clocks of two servers do not differ by more than 100 ppm. If a filter leaves only four pairs
/// close together, the line may have any slope; omitting such lines halved Huygens' p99 at load
/// 0.8.
pub(super) const SLOPE_MAX: f64 = 100e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sync_estimate::edge_fit::{EdgeWindow, FitMethod, FitOptions, fit};
    use probe_sync_time::{Edge, Exchange, StampSource, Timestamp};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// An exchange every 13 ms whose packets wait exponentially above 5 µs; the clocks differ by
    /// 700 ns and 10 ppm.
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

    const HARD: Units = units(1e6, 100.0);

    #[test]
    fn it_is_near_the_machine_of_edge_fit_where_queues_are_short() {
        let exchanges = exchanges(300, 500.0, 3);
        let (forward, reverse) = points(&exchanges);
        let (intercept, slope) = line(&forward, &reverse, HARD).expect("separable");
        let window = EdgeWindow {
            edge: Edge::new(0, 1),
            midpoint: Timestamp::from_ns(0),
            exchanges: &exchanges,
            lost: 0,
            stamp_errors_ns: [0.0; 2],
        };
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
