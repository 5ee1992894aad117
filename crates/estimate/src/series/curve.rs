//! A smooth curve given by points with slopes, cut into straight pieces that stay close to it.
//!
//! It turns estimates (rounds with a drift, smoothed clock pairs) into [`super::Knot`]s. Between
//! points the curve is the cubic Hermite polynomial
//! `v(s) = (2s³−3s²+1)·v0 + (s³−2s²+s)·Δ·m0 + (3s²−2s³)·v1 + (s³−s²)·Δ·m1`. Cutting it into n
//! chords divides the error of the whole chord by n² or more, which determines n.

use super::map::Knot;

/// A point of the curve; positions and values are differences from integer bases held by the
/// caller.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct CurvePoint {
    /// Position, ns.
    pub x_ns: f64,
    /// Correction, ns.
    pub value_ns: f64,
    /// Slope of the correction, ns per ns; `None` if only straight lines are wanted.
    pub slope: Option<f64>,
    /// Standard deviation of the value, ns.
    pub sigma_ns: f64,
}

/// Returns knots along the curve, positions strictly ascending, at `base_ps + x` with
/// `correction_base_ps + value`. Points whose position does not increase by a picosecond are
/// dropped.
pub fn sample_curve(points: &[CurvePoint], base_ps: i128, correction_base_ps: i128) -> Vec<Knot> {
    let mut knots: Vec<Knot> = Vec::with_capacity(points.len());
    let mut push = |x_ns: f64, value_ns: f64, sigma_ns: f64| {
        let at_ps = base_ps.saturating_add(picoseconds(x_ns));
        if knots.last().is_none_or(|last| last.at_ps < at_ps) {
            knots.push(Knot {
                at_ps,
                correction_ps: correction_base_ps.saturating_add(picoseconds(value_ns)),
                sigma_ns,
            });
        }
    };
    for (index, a) in points.iter().enumerate() {
        push(a.x_ns, a.value_ns, a.sigma_ns);
        let Some(b) = points.get(index + 1) else { break };
        let steps = steps_between(a, b, CHORD_ERROR_NS);
        for step in 1..steps {
            let s = f64::from(step) / f64::from(steps);
            push(a.x_ns + s * (b.x_ns - a.x_ns), hermite(a, b, s), a.sigma_ns + s * (b.sigma_ns - a.sigma_ns));
        }
    }
    knots
}

/// The curve at share s of the way from a to b; straight when a slope is missing.
pub(super) fn hermite(a: &CurvePoint, b: &CurvePoint, s: f64) -> f64 {
    let rise = b.value_ns - a.value_ns;
    let straight = a.value_ns + s * rise;
    let (Some(m0), Some(m1)) = (a.slope, b.slope) else { return straight };
    let run = b.x_ns - a.x_ns;
    // The same polynomial as its departure from the chord, which keeps digits where the chord is
    // long.
    straight + s * (1.0 - s) * ((1.0 - s) * (m0 * run - rise) - s * (m1 * run - rise))
}

/// Number of straight parts needed so that none deviates from the curve by more than `error_ns`.
pub(super) fn steps_between(a: &CurvePoint, b: &CurvePoint, error_ns: f64) -> u32 {
    let (Some(m0), Some(m1)) = (a.slope, b.slope) else { return 1 };
    let (run, rise) = (b.x_ns - a.x_ns, b.value_ns - a.value_ns);
    // |s(1−s)(…)| ≤ ¼ · the larger end.
    let departure = 0.25 * (m0 * run - rise).abs().max((m1 * run - rise).abs());
    ((departure / error_ns).sqrt().ceil() as u32).clamp(1, MAX_STEPS)
}

/// Rounds to picoseconds.
pub(super) fn picoseconds(ns: f64) -> i128 {
    // Whole and fraction apart: a run of days has no room for picoseconds in one f64.
    let whole = ns.trunc();
    (whole as i128).saturating_mul(1000).saturating_add(((ns - whole) * 1000.0).round() as i128)
}

/// A chord may miss the curve by this much, far below any clock's error.
const CHORD_ERROR_NS: f64 = 5.0;
const MAX_STEPS: u32 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x_ns: f64, value_ns: f64, slope: f64) -> CurvePoint {
        CurvePoint { x_ns, value_ns, slope: Some(slope), sigma_ns: 1.0 }
    }

    #[test]
    fn chords_stay_close_to_a_parabola() {
        // v = 1e-12·x² over a second: 1 ms at the end, slope 2e-12·x.
        let points: Vec<_> =
            (0..=4).map(|k| 2.5e8 * f64::from(k)).map(|x| point(x, 1e-12 * x * x, 2e-12 * x)).collect();
        let knots = sample_curve(&points, 7, 9);
        assert!(knots.len() > 5);
        for pair in knots.windows(2) {
            let middle = 0.5 * ((pair[0].at_ps + pair[1].at_ps - 14) as f64) * 1e-3;
            let chord = 0.5 * ((pair[0].correction_ps + pair[1].correction_ps - 18) as f64) * 1e-3;
            // At most a factor 2 more than asked, where MAX_STEPS is reached.
            assert!((chord - 1e-12 * middle * middle).abs() < 20.0, "{middle} {chord}");
        }
    }

    #[test]
    fn without_slopes_or_bends_there_is_one_piece_per_gap() {
        assert_eq!(sample_curve(&[point(0.0, 0.0, 0.5), point(8.0, 4.0, 0.5)], 0, 0).len(), 2);
        let bare = CurvePoint { slope: None, ..point(8.0, 1e9, 0.0) };
        assert_eq!(sample_curve(&[point(0.0, 0.0, 0.5), bare], 0, 0).len(), 2);
        // A point in the same picosecond is no knot of its own.
        assert_eq!(sample_curve(&[point(0.0, 0.0, 0.0), point(1e-4, 5.0, 0.0)], 0, 0).len(), 1);
    }

    #[test]
    fn picoseconds_survive_long_runs() {
        assert_eq!(picoseconds(1.5), 1500);
        assert_eq!(picoseconds(-0.001), -1);
        assert_eq!(picoseconds(4_000_000_000_000.25), 4_000_000_000_000_250);
    }
}
