//! The [`Clock`] trait and [`SkewedClock`], a virtual clock with known error laid over a real one.
//!
//! `node(t) = t + off_ns + ppm·1e-6·(t − t0_ns) + amp_ns·sin(2π·(t − t0_ns)/period_ns + phase) + Σ step_ns·[t ≥ at_ns]`,
//! the formula that `truth.json` states. Two nodes by hand: off = 1000 ns, ppm = 10, t0 = 0. At t =
//! 1 s the node reads 1 s + 1000 ns + 10 000 ns.
//!
//! A [`SkewedClock`] does not wander at random; the simulator has such clocks.

use std::f64::consts::TAU;

use serde::{Deserialize, Serialize};

use crate::{Domain, Duration, Skew, System, Timestamp};

/// A source of the current time on timeline `D`.
pub trait Clock<D: Domain = System> {
    /// Returns the current time.
    fn now(&self) -> Timestamp<D>;
}

/// A step of a virtual clock.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Step {
    /// Time of the step on the underlying clock, ns.
    pub at_ns: i64,
    /// Size of the step, ns; positive is forward.
    pub step_ns: i64,
}

/// A periodic error of a virtual clock, such as room temperature causes.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Wave {
    /// Amplitude of the error, ns.
    pub amp_ns: f64,
    /// Period, ns; positive.
    pub period_ns: i64,
    /// Phase at `t0_ns`, radians.
    pub phase_rad: f64,
}

impl Wave {
    /// Returns the phase angle accumulated in `since`. Whole periods are removed as integers, so
    /// that no precision is lost far from the start.
    fn angle(&self, since: Duration) -> f64 {
        let period_ns = self.period_ns.max(1);
        TAU * (since.as_ns().rem_euclid(period_ns) as f64 / period_ns as f64) + self.phase_rad
    }

    fn error_ns(&self, since: Duration) -> f64 {
        self.amp_ns * self.angle(since).sin()
    }

    /// Returns the derivative of the error, ns per ns.
    fn rate(&self, since: Duration) -> f64 {
        self.amp_ns * TAU / self.period_ns.max(1) as f64 * self.angle(since).cos()
    }
}

/// A virtual clock with exactly known error, laid over a real clock.
///
/// ```
/// use probe_sync_time::{SkewedClock, Timestamp};
///
/// // 1000 ns ahead at t = 0, and 10 ppm fast: 10 000 ns more a second later.
/// let clock = SkewedClock { t0_ns: 0, off_ns: 1000, ppm: 10.0, ..SkewedClock::default() };
/// let real = Timestamp::from_ns(1_000_000_000);
/// assert_eq!(clock.apply(real), Timestamp::from_ns(1_000_011_000));
/// // Virtual minus real: positive is ahead.
/// assert!((clock.error_ns(real) - 11_000.0).abs() < 1e-6);
/// ```
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkewedClock {
    /// Time on the underlying clock at which the error is exactly `off_ns`.
    pub t0_ns: i64,
    /// Offset at `t0_ns`, ns.
    pub off_ns: i64,
    /// Rate error, parts per million.
    pub ppm: f64,
    /// Periodic error added to the linear one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wave: Option<Wave>,
    /// Steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl SkewedClock {
    /// Returns the true error at `t` on the underlying clock: virtual minus real, ns.
    pub fn error_ns(&self, t: Timestamp<System>) -> f64 {
        let since = self.since(t);
        let steps: i64 = self.steps.iter().filter(|s| t.as_ns() >= s.at_ns).map(|s| s.step_ns).sum();
        let wave = self.wave.map_or(0.0, |wave| wave.error_ns(since));
        Skew::from_ppm(self.ppm).over_ns(since) + wave + (self.off_ns + steps) as f64
    }

    /// Returns the rate error at `t` on the underlying clock, ppm; steps do not contribute.
    pub fn rate_ppm(&self, t: Timestamp<System>) -> f64 {
        self.ppm + self.wave.map_or(0.0, |wave| 1e6 * wave.rate(self.since(t)))
    }

    /// Returns the virtual time when the underlying clock shows `t`.
    pub fn apply(&self, t: Timestamp<System>) -> Timestamp<System> {
        t + Duration::from_ns_f64(self.error_ns(t))
    }

    /// Returns the time on the underlying clock at which this clock shows `shown`. If a step makes
    /// it show that time twice or never, the result is some time near the step.
    ///
    /// ```
    /// # use probe_sync_time::{SkewedClock, Timestamp};
    /// let clock = SkewedClock { off_ns: 1_000, ppm: 10.0, ..SkewedClock::default() };
    /// let real = Timestamp::from_ns(5_000_000_000);
    /// assert_eq!(clock.invert(clock.apply(real)), real);
    /// ```
    #[must_use]
    pub fn invert(&self, shown: Timestamp<System>) -> Timestamp<System> {
        let mut at = shown;
        // Rates are below 1 %: each turn makes the error a hundred times smaller.
        for _ in 0..INVERSE_TURNS {
            at = shown - Duration::from_ns_f64(self.error_ns(at));
        }
        at
    }

    /// Returns the clock without its wave, as a comparison with another clock of the same
    /// oscillator shows it. Temperature affects `CLOCK_MONOTONIC_RAW` in the same way as the system
    /// clock; steps, and rates set by a daemon, affect only the latter.
    #[must_use]
    pub fn without_wave(&self) -> Self {
        Self { wave: None, ..self.clone() }
    }

    /// Returns true if the virtual clock equals the underlying one.
    pub fn is_identity(&self) -> bool {
        self.off_ns == 0 && self.ppm == 0.0 && self.wave.is_none() && self.steps.is_empty()
    }

    fn since(&self, t: Timestamp<System>) -> Duration {
        t - Timestamp::from_ns(self.t0_ns)
    }
}

/// Iterations after which even a start value that is wrong by hours has converged to the
/// nanosecond.
const INVERSE_TURNS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_by_hand() {
        let clock = SkewedClock { t0_ns: 0, off_ns: 1000, ppm: 10.0, ..SkewedClock::default() };
        let second = Timestamp::from_ns(1_000_000_000);
        assert_eq!(clock.apply(second).as_ns(), 1_000_011_000);
    }

    #[test]
    fn a_step_counts_from_its_instant_on() {
        let steps = vec![Step { at_ns: 100, step_ns: -7 }];
        let clock = SkewedClock { steps, ..SkewedClock::default() };
        assert_eq!(clock.apply(Timestamp::from_ns(99)).as_ns(), 99);
        assert_eq!(clock.apply(Timestamp::from_ns(100)).as_ns(), 93);
    }

    #[test]
    fn a_wave_by_hand() {
        // 1000 ns over 4 s, at its crest when t = t0: 0 a second later, −1000 after two; the rate
        // is −ω·amp at the crossing.
        let wave = Wave { amp_ns: 1000.0, period_ns: 4_000_000_000, phase_rad: TAU / 4.0 };
        let clock = SkewedClock { wave: Some(wave), ppm: 10.0, ..SkewedClock::default() };
        let at = |seconds: i64| Timestamp::from_ns(seconds * 1_000_000_000);
        for (seconds, error_ns) in
            [(0, 1000.0), (1, 10_000.0), (2, 19_000.0), (-2, -21_000.0), (4_000_000_000, 4e13 + 1e3)]
        {
            assert!(
                (clock.error_ns(at(seconds)) - error_ns).abs() < 1e-2,
                "{seconds} s: {}",
                clock.error_ns(at(seconds))
            );
        }
        assert!((clock.rate_ppm(at(1)) - (10.0 - TAU / 4.0 * 1e-3 * 1e3)).abs() < 1e-9, "{}", clock.rate_ppm(at(1)));
        assert_eq!(clock.without_wave().error_ns(at(2)), 20_000.0);
    }

    #[test]
    fn no_nanosecond_is_lost_at_epoch_scale() {
        let t0_ns = 1_795_187_183_227_565_825;
        let clock = SkewedClock { t0_ns, off_ns: -3, ppm: 50.0, ..SkewedClock::default() };
        assert_eq!(clock.apply(Timestamp::from_ns(t0_ns + 20_000)).as_ns(), t0_ns + 20_000 - 3 + 1);
    }
}
