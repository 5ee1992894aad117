//! A clock that wanders and warms up.
//!
//! Its error at true time t is `e₀ + f₀·t + ∫w + Σ a·((t − s) − τ·(1 − exp(−(t − s)/τ)))`: a
//! constant rate f₀ uniform within ±[`RATE_NS_PER_S`]; a rate w that walks, by a normal step every
//! [`STEP_S`] and straight in between; and onsets of warmth, which from s on add the rate
//! `a·(1 − exp(−(t − s)/τ))`. The offset is continuous, and so is the rate.
//!
//! It does not step.

use crate::world::random::Draws;

/// One node's clock.
#[derive(Clone, Debug)]
pub(super) struct WarmingClock {
    start_ns: f64,
    rate_ns_per_s: f64,
    /// At each step: the error that the walk has added, ns, and its rate, ns/s.
    walk: Vec<[f64; 2]>,
    onsets: Vec<Onset>,
}

/// The clock begins to warm up.
#[derive(Copy, Clone, Debug)]
struct Onset {
    at_s: f64,
    /// Total change of the rate, ns/s.
    amount_ns_per_s: f64,
}

impl WarmingClock {
    /// Draws a clock for `seconds`.
    pub(super) fn new(draws: &mut Draws, seconds: f64) -> Self {
        let start_ns = draws.symmetric(START_NS);
        let rate_ns_per_s = draws.symmetric(RATE_NS_PER_S);
        let [mut error, mut rate] = [0.0; 2];
        let steps = (seconds / STEP_S).ceil() as usize + 1;
        let mut walk = Vec::with_capacity(steps);
        for _ in 0..steps {
            walk.push([error, rate]);
            let next = rate + draws.normal(WANDER_NS_PER_S * STEP_S.sqrt());
            error += 0.5 * (rate + next) * STEP_S;
            rate = next;
        }
        let mut onsets = Vec::new();
        let mut at_s = draws.exponential(ONSET_EVERY_S);
        while at_s < seconds {
            onsets.push(Onset { at_s, amount_ns_per_s: draws.normal(ONSET_NS_PER_S) });
            at_s += draws.exponential(ONSET_EVERY_S);
        }
        Self { start_ns, rate_ns_per_s, walk, onsets }
    }

    /// Clock minus true time, ns, `at_s` seconds after the start.
    pub(super) fn error_ns(&self, at_s: f64) -> f64 {
        self.start_ns
            + self.rate_ns_per_s * at_s
            + self.walked_ns(at_s)
            + self.onsets.iter().map(|onset| onset.error_ns(at_s)).sum::<f64>()
    }

    /// Reading at a true time, integer ns.
    pub(super) fn shows_ns(&self, at_s: f64) -> f64 {
        at_s * 1e9 + self.error_ns(at_s)
    }

    /// The true time at which it shows `shown_ns`, s.
    pub(super) fn true_s(&self, shown_ns: f64) -> f64 {
        // Rates are below 40 ppm: each turn makes the error 25 000 times smaller.
        (0..INVERSE_TURNS).fold(shown_ns * 1e-9, |at_s, _| (shown_ns - self.error_ns(at_s)) * 1e-9)
    }

    fn walked_ns(&self, at_s: f64) -> f64 {
        let last = self.walk.len() - 1;
        let step = ((at_s / STEP_S).max(0.0) as usize).min(last);
        let [error, rate] = self.walk[step];
        let beyond = at_s - step as f64 * STEP_S;
        let turn = self.walk.get(step + 1).map_or(0.0, |next| (next[1] - rate) / STEP_S);
        error + beyond * (rate + 0.5 * turn * beyond)
    }
}

impl Onset {
    fn error_ns(&self, at_s: f64) -> f64 {
        let since = (at_s - self.at_s).max(0.0);
        self.amount_ns_per_s * (since - ONSET_TAU_S * (1.0 - (-since / ONSET_TAU_S).exp()))
    }
}

/// Offsets at the start are within ± this, ns.
const START_NS: f64 = 5e6;

/// 30 ppm.
const RATE_NS_PER_S: f64 = 30_000.0;

/// 2 ppb after one second.
const WANDER_NS_PER_S: f64 = 2.0;

/// The walk's step, s.
const STEP_S: f64 = 0.01;

/// Mean time between onsets, s; the standard deviation of their amounts, 0.2 ppm; and their time
/// constant, s.
const ONSET_EVERY_S: f64 = 40.0;
const ONSET_NS_PER_S: f64 = 200.0;
const ONSET_TAU_S: f64 = 15.0;

const INVERSE_TURNS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::random::Purpose;

    fn clock(seed: u64) -> WarmingClock {
        WarmingClock::new(&mut Draws::new(seed, Purpose::WarmingClock, 0), 64.0)
    }

    #[test]
    fn an_onset_by_hand() {
        let mut clock = clock(1);
        (clock.start_ns, clock.rate_ns_per_s) = (7.0, 0.0);
        clock.walk.iter_mut().for_each(|step| *step = [0.0; 2]);
        clock.onsets = vec![Onset { at_s: 10.0, amount_ns_per_s: 150.0 }];
        assert_eq!(clock.error_ns(10.0), 7.0);
        // 15 s later the rate is 150·(1 − 1/e), and the error its integral, 150·15/e.
        assert!((clock.error_ns(25.0) - 7.0 - 150.0 * 15.0 * (-1f64).exp()).abs() < 1e-9);
        let rate = (clock.error_ns(25.001) - clock.error_ns(24.999)) / 0.002;
        assert!((rate - 150.0 * (1.0 - (-1f64).exp())).abs() < 1e-3, "{rate}");
    }

    #[test]
    fn offset_and_rate_are_continuous_and_the_inverse_inverts() {
        for seed in 0..20 {
            let clock = clock(seed);
            let rate = |at: f64| (clock.error_ns(at + 1e-4) - clock.error_ns(at - 1e-4)) / 2e-4;
            for k in 1..6_399 {
                let at = f64::from(k) * 0.01;
                assert!((rate(at + 1e-3) - rate(at - 1e-3)).abs() < 1.0, "seed {seed}, {at} s");
                assert!((clock.true_s(clock.shows_ns(at)) - at).abs() < 1e-12, "seed {seed}, {at} s");
            }
        }
    }
}
