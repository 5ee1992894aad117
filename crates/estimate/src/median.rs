//! The upper median, and what it says of a normal distribution's width.
//!
//! Place in the flow: under `graph`, `faults`, `smoother` and `series`, which judge by medians because a few wild values do not
//! move them. What it does not do: average the two middle values of an even count.

/// The upper median; None of nothing. Reorders the values.
pub(crate) fn upper(values: &mut [f64]) -> Option<f64> {
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The upper median; 0 of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    upper(&mut values.into_iter().collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// A normal distribution's standard deviation over its median absolute deviation.
pub(crate) const TO_SIGMA: f64 = 1.4826;
