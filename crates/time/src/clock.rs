//! The [`Clock`] trait and [`SkewedClock`], a virtual clock with known error laid over a real one.
//!
//! `node(t) = t + off_ns + ppm·1e-6·(t − t0_ns) + Σ step_ns·[t ≥ at_ns]`, the formula that `truth.json` states.
//! Two nodes by hand: off = 1000 ns, ppm = 10, t0 = 0. At t = 1 s the node reads 1 s + 1000 ns + 10 000 ns.
//!
//! What it does not do: wander or temperature; the simulator has those.

use serde::{Deserialize, Serialize};

use crate::{Domain, Duration, Skew, System, Timestamp};

/// Something that can be asked for the time on timeline `D`.
pub trait Clock<D: Domain = System> {
    /// The present reading.
    fn now(&self) -> Timestamp<D>;
}

/// A sudden change of a virtual clock.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// When it happens, on the clock underneath, ns.
    pub at_ns: i64,
    /// By how much the clock jumps, ns; positive is forward.
    pub step_ns: i64,
}

/// A virtual clock with exactly known error, laid over a real clock.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct SkewedClock {
    /// The time on the clock underneath at which the error is exactly `off_ns`.
    pub t0_ns: i64,
    /// Offset at `t0_ns`, ns.
    pub off_ns: i64,
    /// Rate error, parts per million.
    pub ppm: f64,
    /// Jumps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

impl SkewedClock {
    /// The true error at `t` on the clock underneath: virtual minus real, in ns.
    pub fn error_ns(&self, t: Timestamp<System>) -> f64 {
        let since = t - Timestamp::from_ns(self.t0_ns);
        let steps: i64 = self.steps.iter().filter(|s| t.as_ns() >= s.at_ns).map(|s| s.step_ns).sum();
        Skew::from_ppm(self.ppm).over_ns(since) + (self.off_ns + steps) as f64
    }

    /// What the virtual clock shows when the clock underneath shows `t`.
    pub fn apply(&self, t: Timestamp<System>) -> Timestamp<System> {
        t + Duration::from_ns_f64(self.error_ns(t))
    }

    /// True when the virtual clock equals the one underneath.
    pub fn is_identity(&self) -> bool {
        self.off_ns == 0 && self.ppm == 0.0 && self.steps.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_by_hand() {
        let clock = SkewedClock { t0_ns: 0, off_ns: 1000, ppm: 10.0, steps: Vec::new() };
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
    fn no_nanosecond_is_lost_at_epoch_scale() {
        let t0_ns = 1_795_187_183_227_565_825;
        let clock = SkewedClock { t0_ns, off_ns: -3, ppm: 50.0, steps: Vec::new() };
        assert_eq!(clock.apply(Timestamp::from_ns(t0_ns + 20_000)).as_ns(), t0_ns + 20_000 - 3 + 1);
    }
}
