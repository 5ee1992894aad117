//! The fitted line in small numbers, and the packets dropped on the way.

/// What a fit dropped or relaxed on the way.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct FitDiagnostics {
    /// Exchanges left out because their stamps came from another source, or because they belong to
    /// another edge.
    pub left_out: u32,
    /// Packets whose constraint was relaxed as a probable glitch.
    pub relaxed: u32,
    /// Whether packets, and not only `max_skew`, determined alpha.
    pub alpha_determined: bool,
    /// How fast alpha changed, where packets prove that it did; line and covariance hold at the
    /// midpoint.
    pub bend_ppm_per_s: Option<f64>,
}

/// A line: intercept in ns above the base, slope in ns per ns.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) intercept: f64,
    pub(super) slope: f64,
}

/// base + value, rounded away from the feasible interval where f64 cannot hold the sum.
pub(super) fn absolute(base: i64, value: f64, away: impl Fn(f64) -> f64) -> f64 {
    let sum = base as f64 + value;
    let exact = base.unsigned_abs() < 1 << 52 && value.fract() == 0.0;
    if exact || !sum.is_finite() { sum } else { away(sum) }
}
