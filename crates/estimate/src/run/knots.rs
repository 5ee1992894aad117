//! The positions of a smoothed run's lines: at equal distances, or densely enough for straight
//! lines between them.
//!
//! [`super::Smoothed`] makes the knots and walks them when it writes its lines. Between two rounds,
//! Δ apart, the smoothed offset is a cubic. A chord over h misses a curve by `h²/8` times its
//! second derivative, which along a cubic is largest at an end:
//! `x''(0) = 6·r/Δ² − (4·f₀ + 2·f₁)/Δ`, `x''(Δ) = −6·r/Δ² + (2·f₀ + 4·f₁)/Δ`, where r is the rise
//! and f the rates. Lines are placed so that this is a tenth of the smaller standard deviation at
//! both ends, for the node that needs them most; all nodes have lines at the same times.

use probe_sync_time::{Duration, Reference, Timestamp};

/// Times at which lines are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knots(Places);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Places {
    /// Evenly spaced; each is in the middle of its interval.
    Even { start: Timestamp<Reference>, spacing_ns: i64, count: u64 },
    /// Listed in order.
    Listed(Vec<Timestamp<Reference>>),
}

impl Knots {
    pub(super) fn even(start: Timestamp<Reference>, spacing: Duration, count: u64) -> Self {
        Self(Places::Even { start, spacing_ns: spacing.as_ns(), count })
    }

    pub(super) fn listed(mut times: Vec<Timestamp<Reference>>) -> Self {
        times.sort_unstable();
        times.dedup();
        Self(Places::Listed(times))
    }

    pub(super) fn count(&self) -> u64 {
        match &self.0 {
            Places::Even { count, .. } => *count,
            Places::Listed(times) => times.len() as u64,
        }
    }

    pub(super) fn at(&self, knot: u64) -> Timestamp<Reference> {
        match &self.0 {
            Places::Even { start, spacing_ns, .. } => {
                let since = i128::from(*spacing_ns) * i128::from(knot) + i128::from(spacing_ns / 2);
                // Never clamped: the last knot is less than a spacing beyond a time that is an i64.
                let at = i128::from(start.as_ns()) + since;
                Timestamp::from_ns(at.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
            }
            Places::Listed(times) => times[knot as usize],
        }
    }

    /// Returns half the length of a knot's interval, which extends at most half-way to its
    /// neighbours.
    pub(super) fn half(&self, knot: u64) -> Duration {
        match &self.0 {
            Places::Even { spacing_ns, .. } => Duration::from_ns(spacing_ns / 2),
            Places::Listed(times) => {
                let here = knot as usize;
                let gaps = times[here.saturating_sub(1)..(here + 2).min(times.len())].windows(2);
                let nearest = gaps.map(|pair| (pair[1] - pair[0]).as_ns()).min().unwrap_or(0);
                Duration::from_ns(nearest / 2)
            }
        }
    }
}

/// Offset in ns above anything, rate in ns/s and standard deviation in ns at an end of a gap.
#[derive(Copy, Clone, Debug)]
pub(super) struct Reached {
    pub(super) offset_ns: f64,
    pub(super) rate: f64,
    pub(super) sigma_ns: f64,
}

/// Into how many parts a gap of `seconds` is cut, so that chords add no more than a tenth of sigma.
pub(super) fn parts(seconds: f64, [a, b]: [Reached; 2]) -> f64 {
    let rise = 6.0 * (b.offset_ns - a.offset_ns) / (seconds * seconds);
    let bends = [rise - (4.0 * a.rate + 2.0 * b.rate) / seconds, -rise + (2.0 * a.rate + 4.0 * b.rate) / seconds];
    let bend = bends[0].abs().max(bends[1].abs());
    let allowed_ns = (SHARE_OF_SIGMA * a.sigma_ns.min(b.sigma_ns)).max(SMALLEST_ERROR_NS);
    let parts = seconds * (bend / (8.0 * allowed_ns)).sqrt();
    if parts.is_finite() { parts.ceil().max(1.0) } else { 1.0 }
}

/// What a chord may add, in standard deviations,
const SHARE_OF_SIGMA: f64 = 0.1;
/// or a tenth of a nanosecond, which is the resolution of written times anyway.
const SMALLEST_ERROR_NS: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chords_of_a_parabola_add_a_tenth_of_sigma() {
        // x = 200·t² ns over 2 s, 40 ns of sigma: 4 ns are h²/8 · 400, h = 0.283 s, eight parts.
        let at = |t: f64| Reached { offset_ns: 200.0 * t * t, rate: 400.0 * t, sigma_ns: 40.0 };
        assert_eq!(parts(2.0, [at(0.0), at(2.0)]), 8.0);
        assert_eq!(parts(2.0, [at(3.0), at(5.0)]), 8.0, "wherever on it");
        let straight = |t: f64| Reached { offset_ns: 5e3 * t, rate: 5e3, sigma_ns: 40.0 };
        assert_eq!(parts(2.0, [straight(0.0), straight(2.0)]), 1.0);
        assert_eq!(parts(0.0, [straight(0.0), straight(0.0)]), 1.0, "no time between them");
    }

    #[test]
    fn stretches_do_not_overlap() {
        let knots = Knots::listed([50, 10, 20, 20, 24].map(Timestamp::from_ns).to_vec());
        assert_eq!((knots.count(), knots.at(2)), (4, Timestamp::from_ns(24)));
        let halves: Vec<i64> = (0..4).map(|knot| knots.half(knot).as_ns()).collect();
        assert_eq!(halves, [5, 2, 2, 13]);
        assert_eq!(Knots::listed(vec![Timestamp::from_ns(7)]).half(0).as_ns(), 0);
    }
}
