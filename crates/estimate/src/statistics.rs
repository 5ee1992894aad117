//! The upper median, and what the normal distribution says of widths.
//!
//! Place in the flow: under all other modules, which judge by medians because a few wild values do not move them.
//! What it does not do: average the two middle values of an even count.

use std::cmp::Ordering;

/// The upper median in the given order; None of nothing. Reorders the values.
pub(crate) fn upper_median_by<T: Copy>(values: &mut [T], order: impl FnMut(&T, &T) -> Ordering) -> Option<T> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, order).1)
}

/// The upper median; None of nothing. Reorders the values.
///
/// ```
/// use probe_sync_estimate::statistics::upper_median;
/// assert_eq!(upper_median(&mut [3.0, 1.0, 2.0, 10.0]), Some(3.0));
/// assert_eq!(upper_median(&mut []), None);
/// ```
pub fn upper_median(values: &mut [f64]) -> Option<f64> {
    upper_median_by(values, f64::total_cmp)
}

/// The upper median; 0 of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    upper_median(&mut values.into_iter().collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// Half the width of a normal distribution's 95 % interval, in standard deviations.
pub const SIGMAS_95: f64 = 1.959_964;

/// A normal distribution's standard deviation over its median absolute deviation.
pub(crate) const TO_SIGMA: f64 = 1.4826;
