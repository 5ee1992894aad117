//! The fitted line in small numbers, and the packets dropped on the way.

/// Exchanges and packets dropped or relaxed in a fit.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct FitDiagnostics {
    /// Exchanges skipped because of another stamp source or another edge.
    pub left_out: u32,
    /// Packets whose constraint was relaxed as a probable glitch.
    pub relaxed: u32,
    /// True if packets, and not only `max_skew`, determined alpha.
    pub alpha_determined: bool,
    /// Change of alpha proven by the packets, ppm per second; line and covariance hold at the
    /// midpoint.
    pub bend_ppm_per_s: Option<f64>,
}

/// A line: intercept in ns above the base, slope in ns per ns.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) intercept: f64,
    pub(super) slope: f64,
}

/// Returns base + value, rounded away from the feasible interval if f64 cannot represent the sum.
pub(super) fn absolute(base: i64, value: f64, away: impl Fn(f64) -> f64) -> f64 {
    let sum = base as f64 + value;
    let exact = base.unsigned_abs() < 1 << 52 && value.fract() == 0.0;
    if exact || !sum.is_finite() { sum } else { away(sum) }
}
