//! A [`SkewedClock`] whose rate wanders: the error's truth at any instant.
//!
//! The wandering rate f is a random walk, constant over steps of [`STEP_NS`]: `f_{k+1} = f_k + N(0, σ²·Δ)`, and the error
//! it adds is its integral, `x_{k+1} = x_k + f_k·Δ`, linear in between.
//!
//! What it does not do: step (give the skewed clock steps), or react to temperature.

use probe_sync_time::{Duration, SkewedClock, System, Timestamp};
use rand_chacha::ChaCha8Rng;

use crate::random::normal;

/// A simulated system clock.
#[derive(Clone, Debug, PartialEq)]
pub struct WanderingClock {
    skewed: SkewedClock,
    start: Timestamp<System>,
    /// At the beginning of each step: the error that wander has added, ns, and the wandering part of the rate, ns per ns.
    knots: Vec<(f64, f64)>,
}

impl WanderingClock {
    /// A clock whose rate wanders from `start` for `duration` by `wander_ppm` after one second (standard deviation);
    /// later it keeps its last rate.
    pub fn new(
        skewed: SkewedClock,
        start: Timestamp<System>,
        duration: Duration,
        wander_ppm: f64,
        rng: &mut ChaCha8Rng,
    ) -> Self {
        let steps = if wander_ppm == 0.0 { 0 } else { duration.as_ns().max(0) / STEP_NS + 1 };
        let step_sd = wander_ppm * 1e-6 * (STEP_NS as f64 * 1e-9).sqrt();
        let (mut error, mut rate) = (0.0, 0.0);
        let knots = (0..steps)
            .map(|_| {
                let knot = (error, rate);
                error += rate * STEP_NS as f64;
                rate += step_sd * normal(rng);
                knot
            })
            .collect();
        Self { skewed, start, knots }
    }

    /// What this clock shows minus the true time, at true time `at`, ns.
    pub fn error_ns(&self, at: Timestamp<System>) -> f64 {
        self.skewed.error_ns(at) + self.wander(at).0
    }

    /// The clock's rate error at true time `at`, ppm.
    pub fn rate_ppm(&self, at: Timestamp<System>) -> f64 {
        self.skewed.ppm + self.wander(at).1 * 1e6
    }

    /// What this clock shows at true time `at`.
    pub fn apply(&self, at: Timestamp<System>) -> Timestamp<System> {
        at + Duration::from_ns_f64(self.error_ns(at))
    }

    /// Wander's part of error and rate.
    fn wander(&self, at: Timestamp<System>) -> (f64, f64) {
        let Some(last) = self.knots.len().checked_sub(1) else { return (0.0, 0.0) };
        let since = (at - self.start).as_ns().max(0);
        let step = (since / STEP_NS).min(last as i64);
        let (error, rate) = self.knots[step as usize];
        (error + rate * (since - step * STEP_NS) as f64, rate)
    }
}

/// 20 ms: many steps in a window of seconds.
const STEP_NS: i64 = 20_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    const START: Timestamp<System> = Timestamp::from_ns(1_790_000_000_000_000_000);

    fn wandering(seed: u64) -> WanderingClock {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        WanderingClock::new(SkewedClock::default(), START, Duration::from_ms(10_000), 0.1, &mut rng)
    }

    #[test]
    fn the_rate_is_the_slope_and_the_error_is_continuous() {
        let clock = wandering(1);
        for step in 1..400 {
            let at = START + Duration::from_ns(step * STEP_NS);
            let before = clock.error_ns(at - Duration::from_ns(1));
            assert!((clock.error_ns(at) - before).abs() < 1e-3, "a jump at step {step}");
            let later = at + Duration::from_ms(10);
            let slope = (clock.error_ns(later) - clock.error_ns(at)) / 10e6 * 1e6;
            assert!((slope - clock.rate_ppm(at)).abs() < 1e-6, "{slope} ppm");
        }
    }

    #[test]
    fn the_walk_is_as_wide_as_it_says() {
        let at = START + Duration::from_ms(4_000);
        let squares: f64 = (0..400).map(|seed| wandering(seed).rate_ppm(at).powi(2)).sum();
        let sd = (squares / 400.0).sqrt();
        assert!((0.18..0.22).contains(&sd), "0.1 ppm after 1 s makes 0.2 ppm after 4 s, found {sd}");
    }
}
