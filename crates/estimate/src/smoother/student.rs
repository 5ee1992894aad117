//! Student-t weights, which make lines and asymmetries far from the rest count less.
//!
//! A deviation of squared distance d² in n dimensions has the weight `min(1, (ν + n)/(ν + d²))`.
//! The cap exists because a deviation smaller than expected must not count for more than its
//! covariance states.

/// The weight of a deviation in `dimensions` numbers, `square` its squared distance in standard
/// deviations.
pub(super) fn weight(dimensions: f64, square: f64) -> f64 {
    ((FREEDOM + dimensions) / (FREEDOM + square)).min(1.0)
}

/// Factor on a variance known from this many residuals, so that three standard deviations mean the
/// same as for a normal variable: a Student-t's 99.87 % point is 3·(1 + 2.5/ν + 5.75/ν²)
/// (Abramowitz and Stegun 26.7.5).
pub(super) fn few(freedom: f64) -> f64 {
    (1.0 + 2.5 / freedom + 5.75 / (freedom * freedom)).powi(2)
}

/// Log density of an innovation, up to a constant: Student-t in its squared distance.
pub(super) fn log_density(determinant: f64, distance: f64) -> f64 {
    -0.5 * determinant.ln() - 0.5 * (LIKELIHOOD_FREEDOM + 2.0) * (distance / LIKELIHOOD_FREEDOM).ln_1p()
}

/// The factor on the stated variances that residuals with weighted `squares` and this `freedom`
/// show. Loops show the edges' own errors, and nothing of the error common to all edges of a node:
/// residuals larger than stated count as they are, smaller ones only if there are many.
pub(super) fn factor([squares, freedom]: [f64; 2]) -> f64 {
    if squares > freedom {
        (squares / freedom).min(1.0 / SCALE_MIN)
    } else {
        ((squares + NARROWING_PRIOR) / (freedom + NARROWING_PRIOR)).max(SCALE_MIN)
    }
}

/// ν of the Student-t weights.
pub(super) const FREEDOM: f64 = 4.0;
/// ν of the likelihood's squares.
const LIKELIHOOD_FREEDOM: f64 = 8.0;

/// The share of a normal variable's variance that remains with capped Student-t weights, E[w·z²]:
/// for one number, and for a pair. Sums of weighted squares are divided by it, otherwise every
/// variance would be a fifth too small.
pub(super) const WEIGHTED_SINGLE: f64 = 0.766_616;
pub(super) const WEIGHTED_PAIR: f64 = 0.789_388;

/// Smallest factor on a variance, and one over the largest.
pub(super) const SCALE_MIN: f64 = 0.04;

/// Independent residuals that the claimed covariances count for against those that would make them
/// smaller: a dozen rounds of a small cluster.
const NARROWING_PRIOR: f64 = 300.0;
