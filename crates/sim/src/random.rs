//! The few distributions that the simulator draws from, on a seeded generator.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Exponential with the given mean; 0 for a mean of 0.
pub(crate) fn exponential(rng: &mut ChaCha8Rng, mean: f64) -> f64 {
    // 1 − u lies in (0, 1]: the logarithm is finite.
    -mean * (1.0 - rng.random::<f64>()).ln()
}

/// Normal with mean 0 and standard deviation 1 (Box and Muller).
pub(crate) fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let radius = exponential(rng, 2.0).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
}

/// Uniform whole number in `−max..=max`; 0 unless `max` is positive.
pub(crate) fn symmetric(rng: &mut ChaCha8Rng, max: i64) -> i64 {
    if max > 0 { rng.random_range(-max..=max) } else { 0 }
}

/// True with probability `p`, clamped to 0..=1.
pub(crate) fn chance(rng: &mut ChaCha8Rng, p: f64) -> bool {
    rng.random::<f64>() < p
}
