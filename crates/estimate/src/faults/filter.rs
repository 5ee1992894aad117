//! A clock followed from round to round, and the deviation of a round's measurement from its
//! prediction.

use probe_sync_time::RoundId;

use super::comparison::Innovation;
use super::measured::Measured;
use super::onset::Taken;
use crate::kalman::Belief;

/// The estimated state of a clock at a time of the reference's clock.
#[derive(Copy, Clone, Debug)]
pub(super) struct Filter {
    pub(super) at_ns: i64,
    pub(super) belief: Belief,
    pub(super) updates: u32,
}

impl Filter {
    /// Creates a filter from the first measurement.
    pub(super) fn begun(at_ns: i64, measured: &Measured) -> Self {
        let [x, f] = measured.variance;
        Self { at_ns, belief: Belief { state: measured.state, covariance: [x, 0.0, f] }, updates: 1 }
    }

    fn seconds(&self, at_ns: i64) -> f64 {
        (i128::from(at_ns) - i128::from(self.at_ns)).clamp(0, DAY_NS) as f64 * 1e-9
    }

    fn predicted(&self, at_ns: i64) -> Belief {
        self.belief.predicted(self.seconds(at_ns), WANDER_NS_PER_S * WANDER_NS_PER_S)
    }

    pub(super) fn innovation(&self, at_ns: i64, measured: &Measured, scales: [f64; 2]) -> Innovation {
        let Belief { state, covariance } = self.predicted(at_ns);
        let deviation = [(covariance[0] + measured.variance[0]).sqrt(), (covariance[2] + measured.variance[1]).sqrt()];
        Innovation {
            off: [measured.state[0] - state[0], measured.state[1] - state[1]],
            deviation,
            limit: [
                (DEVIATIONS * scales[0] * deviation[0]).max(STEP_MIN_NS),
                (DEVIATIONS * scales[1] * deviation[1]).max(RATE_MIN_NS_PER_S),
            ],
            judged: self.updates >= UPDATES_MIN,
        }
    }

    /// Adds a measurement; returns the result, unless rounding errors dominate.
    pub(super) fn update(&mut self, round: RoundId, at_ns: i64, measured: &Measured) -> Option<Taken> {
        let (predicted, seconds) = (self.predicted(at_ns), self.seconds(at_ns));
        let noise = [measured.variance[0], 0.0, measured.variance[1]];
        let found = predicted.innovation(measured.state, noise);
        self.belief = found.map_or(predicted, |found| predicted.updated(&found, noise));
        (self.at_ns, self.updates) = (at_ns, self.updates.saturating_add(1));
        let off = [0, 1].map(|k| measured.state[k] - predicted.state[k]);
        found.map(|found| Taken { round, seconds, off, certainty: found.certainty, noise: measured.variance })
    }
}

/// Standard deviation of a rate's change after one second that the filter allows for: 0.003 ppm, a
/// good crystal. Larger ones show in the scales.
const WANDER_NS_PER_S: f64 = 3.0;

/// Standard deviations from which a measurement is off the prediction.
const DEVIATIONS: f64 = 8.0;

/// Smallest step that is a fault, ns.
const STEP_MIN_NS: f64 = 100.0;

/// Smallest rate change that is a fault, ns/s.
const RATE_MIN_NS_PER_S: f64 = 30.0;

/// Measurements before a filter judges.
pub(super) const UPDATES_MIN: u32 = 2;

/// Predictions over more than this are worthless.
const DAY_NS: i128 = 86_400_000_000_000;
