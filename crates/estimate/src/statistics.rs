//! The upper median, the summary of simultaneous values, and interval widths of the normal
//! distribution.
//!
//! The other modules judge by medians because a few wild values do not move them. It does not
//! average the two middle values of an even count.

use std::cmp::Ordering;

/// Returns the upper median in the given order; `None` if there are no values. Reorders the values.
pub(crate) fn upper_median_by<T: Copy>(values: &mut [T], order: impl FnMut(&T, &T) -> Ordering) -> Option<T> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, order).1)
}

/// Returns the upper median; `None` if there are no values. Reorders the values.
///
/// ```
/// use probe_sync_estimate::statistics::upper_median;
/// assert_eq!(upper_median(&mut [3.0, 1.0, 2.0, 10.0]), Some(3.0));
/// assert_eq!(upper_median(&mut []), None);
/// ```
pub fn upper_median(values: &mut [f64]) -> Option<f64> {
    upper_median_by(values, f64::total_cmp)
}

/// Returns the upper median; 0 if there are no values.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    upper_median(&mut values.into_iter().collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// Returns the weighted median of `(value, weight)`; 0 if all weights are zero.
pub(crate) fn weighted_median(weighted: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let mut weighted: Vec<(f64, f64)> = weighted.into_iter().filter(|(_, weight)| *weight > 0.0).collect();
    weighted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = 0.5 * weighted.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut below = 0.0;
    let reaches_half = |(_, weight): &&(f64, f64)| {
        below += weight;
        below >= half
    };
    weighted.iter().find(reaches_half).map_or(0.0, |(value, _)| *value)
}

/// Returns the lowest value of every moment, ascending.
pub(crate) fn lowest_by_moment(values: impl Iterator<Item = (f64, f64)>, apart: f64) -> Vec<f64> {
    let mut lowest = by_moment(values, apart, f64::min);
    lowest.sort_unstable_by(f64::total_cmp);
    lowest
}

/// Returns one value for every moment, in order of time: those `(time, value)` within `apart` of a
/// moment's first are joined.
pub(crate) fn by_moment(
    values: impl Iterator<Item = (f64, f64)>,
    apart: f64,
    join: impl Fn(f64, f64) -> f64,
) -> Vec<f64> {
    let mut in_time: Vec<(f64, f64)> = values.collect();
    in_time.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut joined: Vec<f64> = Vec::new();
    let mut first = f64::NEG_INFINITY;
    for (time, value) in in_time {
        match joined.last_mut() {
            Some(last) if time - first <= apart => *last = join(*last, value),
            _ => {
                first = time;
                joined.push(value);
            }
        }
    }
    joined
}

/// Packets sent by a host within this time count as one moment, ns: more than a wake-up takes, less
/// than the time between two of them.
pub(crate) const MOMENT_NS: f64 = 1e6;

/// Half-width of a normal distribution's 95 % interval, in standard deviations.
pub const SIGMAS_95: f64 = 1.959_964;

/// A normal distribution's standard deviation over its median absolute deviation.
pub const TO_SIGMA: f64 = 1.4826;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weighted_median_is_where_half_of_the_weight_is() {
        assert_eq!(weighted_median([]), 0.0);
        assert_eq!(weighted_median([(9.0, 0.0)]), 0.0);
        assert_eq!(weighted_median([(3.0, 1.0), (1.0, 1.0), (2.0, 1.0)]), 2.0);
        // One that weighs more than all others.
        assert_eq!(weighted_median([(3.0, 1.0), (1.0, 2.5), (2.0, 1.0)]), 1.0);
        // Many that weigh next to nothing.
        assert_eq!(weighted_median([(500.0, 0.1), (600.0, 0.1), (700.0, 0.1), (2.0, 1.0)]), 2.0);
    }

    #[test]
    fn what_happened_together_counts_once_with_its_lowest() {
        // Two wake-ups of three packets, told out of order, and one packet alone.
        let packets = [(10.0, 7.0), (0.0, 5.0), (0.4, 3.0), (10.9, 9.0), (1.0, 4.0), (10.5, 8.0), (30.0, 1.0)];
        assert_eq!(lowest_by_moment(packets.into_iter(), 1.0), [1.0, 3.0, 7.0]);
        // A stream without a pause is cut: what is further from a moment's first is the next
        // moment.
        let stream = (0..6).map(|k| (f64::from(k) * 0.5, f64::from(k)));
        assert_eq!(lowest_by_moment(stream, 1.0), [0.0, 3.0]);
        assert_eq!(lowest_by_moment([].into_iter(), 1.0), [0.0; 0]);
    }
}
