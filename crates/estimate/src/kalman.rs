//! One step of a Kalman filter for a clock: offset x in ns and rate f in ns/s, with their
//! covariance.
//!
//! Prediction over Δ seconds, with F and Q of [`crate::motion`]: `x' = F·x`, `P' = F·P·Fᵀ + Q`.
//! Innovation of a measurement z with covariance R: `ν = z − x'`, `S = P' + R`. Update:
//! `x = x' + P'·S⁻¹·ν`, `P = P'·S⁻¹·R`. (Kalman 1960.) `P'·S⁻¹·R` equals `P' − P'·S⁻¹·P'`
//! numerically, but the latter would lose a small R next to a large P', after a long silence.

use crate::graph::linear::{Block, Pair, inverse, times};
use crate::motion::{Square, block, product, square, walk};

/// A clock as far as it is known.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(crate) struct Belief {
    /// Offset in ns, rate in ns/s.
    pub(crate) state: Pair,
    pub(crate) covariance: Block,
}

/// A measurement against its prediction.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Innovation {
    /// S⁻¹.
    pub(crate) certainty: Block,
    /// S⁻¹·ν.
    scaled: Pair,
    /// νᵀ·S⁻¹·ν.
    pub(crate) distance: f64,
    /// |S|.
    pub(crate) determinant: f64,
}

impl Belief {
    /// The clock `delta` seconds later; its rate wanders with density `q`, ns²/s³.
    pub(crate) fn predicted(&self, delta: f64, q: f64) -> Self {
        let covariance = block(predicted_covariance(square(self.covariance), delta, q));
        Self { state: predicted_state(self.state, delta), covariance }
    }

    /// Processes a measurement of offset and rate with covariance `noise`; `None` if rounding has
    /// destroyed S.
    pub(crate) fn innovation(&self, measured: Pair, noise: Block) -> Option<Innovation> {
        let total = [0, 1, 2].map(|k| self.covariance[k] + noise[k]);
        Innovation::new(total, [measured[0] - self.state[0], measured[1] - self.state[1]])
    }

    /// After a measurement of offset and rate with covariance `noise`.
    pub(crate) fn updated(&self, innovation: &Innovation, noise: Block) -> Self {
        let step = times(self.covariance, innovation.scaled);
        let state = [self.state[0] + step[0], self.state[1] + step[1]];
        Self { state, covariance: updated_covariance(self.covariance, noise) }
    }

    /// The state after a measurement of the offset alone that differs by `off` from its prediction,
    /// with variance `noise`.
    pub(crate) fn updated_by_offset(&self, off: f64, noise: f64) -> Self {
        let [xx, xf, ff] = self.covariance;
        let variance = xx + noise;
        let (gain_x, gain_f) = (xx / variance, xf / variance);
        Self {
            state: [self.state[0] + gain_x * off, self.state[1] + gain_f * off],
            covariance: [xx * noise / variance, xf * noise / variance, (ff - gain_f * xf).max(0.0)],
        }
    }
}

impl Innovation {
    /// From S and ν; `None` if rounding has destroyed S.
    pub(crate) fn new(total: Block, off: Pair) -> Option<Self> {
        let certainty = inverse(total)?;
        let scaled = times(certainty, off);
        Some(Self {
            certainty,
            scaled,
            distance: scaled[0] * off[0] + scaled[1] * off[1],
            determinant: total[0] * total[2] - total[1] * total[1],
        })
    }
}

/// F·x.
pub(crate) fn predicted_state([x, f]: Pair, delta: f64) -> Pair {
    [x + delta * f, f]
}

/// F·P·Fᵀ + Q, written out: the products with the zeros and ones of F are left out.
pub(crate) fn predicted_covariance([[a, b], [c, d]]: Square, delta: f64, q: f64) -> Square {
    let (ahead, across) = (a + delta * c, b + delta * d);
    let [xx, xf, ff] = walk(q, delta);
    [[ahead + across * delta + xx, across + xf], [c + d * delta + xf, d + ff]]
}

/// P'·S⁻¹·R.
pub(crate) fn updated_covariance(ahead: Block, noise: Block) -> Block {
    let total = [0, 1, 2].map(|k| ahead[k] + noise[k]);
    let Some(certainty) = inverse(total) else { return ahead };
    let after = block(product(product(square(ahead), square(certainty)), square(noise)));
    // Where rounding has won, either alone bounds it.
    inverse(after).map_or([ahead[0].min(noise[0]), 0.0, ahead[2].min(noise[2])], |_| after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::motion::{sum, transition, transposed};

    const BELIEF: Belief = Belief { state: [1_000.0, -3.0], covariance: [40.0, 2.0, 5.0] };

    #[test]
    fn the_prediction_is_the_matrix_product_bit_for_bit() {
        for delta in [0.1, 0.7, 4.0, 1e4] {
            let f = transition(delta);
            let expected = sum(product(product(f, square(BELIEF.covariance)), transposed(f)), square(walk(4.0, delta)));
            assert_eq!(predicted_covariance(square(BELIEF.covariance), delta, 4.0), expected);
        }
    }

    #[test]
    fn one_step_by_hand() {
        // P = 1 each, R = 1 each, no correlation: half of the innovation is taken in, half of the
        // variance is left.
        let belief = Belief { state: [0.0, 0.0], covariance: [1.0, 0.0, 1.0] };
        let innovation = belief.innovation([10.0, -4.0], [1.0, 0.0, 1.0]).expect("positive");
        let after = belief.updated(&innovation, [1.0, 0.0, 1.0]);
        assert_eq!(after, Belief { state: [5.0, -2.0], covariance: [0.5, 0.0, 0.5] });
        assert_eq!((innovation.distance, innovation.determinant), (58.0, 4.0));
    }

    #[test]
    fn an_offset_alone_is_a_measurement_whose_rate_is_unknown() {
        let whole = BELIEF.innovation([1_012.0, 0.0], [9.0, 0.0, 1e18]).expect("positive");
        let (both, one) = (BELIEF.updated(&whole, [9.0, 0.0, 1e18]), BELIEF.updated_by_offset(12.0, 9.0));
        for k in 0..2 {
            assert!((both.state[k] - one.state[k]).abs() < 1e-9, "{both:?} {one:?}");
        }
        for k in 0..3 {
            assert!((both.covariance[k] - one.covariance[k]).abs() < 1e-9, "{both:?} {one:?}");
        }
    }
}
