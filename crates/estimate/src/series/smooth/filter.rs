//! The Kalman filter through readings of one clock against another, forward for the likelihood and
//! backward for the curve.
//!
//! [`super::smooth`] chooses the model by its likelihood. The step is that of `kalman`, with only
//! the offset measured; the backward pass is that of Rauch, Tung and Striebel (AIAA Journal 3,
//! 1965).

use crate::kalman::Belief;

/// A reading in the form that the filter uses.
pub(super) struct Measured {
    /// Seconds.
    pub(super) time: f64,
    /// Units.
    pub(super) value: f64,
    /// Its variance.
    pub(super) noise: f64,
    /// Variance of a jump of the clock just before it.
    pub(super) jump: f64,
}

/// A forward run of the filter.
pub(super) struct Run {
    /// Interval before, predicted, updated.
    pub(super) steps: Vec<(f64, Belief, Belief)>,
    pub(super) likelihood: f64,
    /// Standard deviation of a reading of weight 1, units.
    pub(super) noise: f64,
}

impl Run {
    /// Filters readings in order of time; `q` is the density of the acceleration, `free_slope` the
    /// variance of the slope at the start.
    pub(super) fn forward(measured: impl ExactSizeIterator<Item = Measured>, q: f64, free_slope: f64) -> Self {
        let mut run = Self { steps: Vec::with_capacity(measured.len()), likelihood: 0.0, noise: 1.0 };
        let (mut log_sum, mut square_sum, mut counted) = (0.0, 0.0, 0.0);
        let mut before: Option<(f64, Belief)> = None;
        for Measured { time, value, noise, jump } in measured {
            let interval = before.map_or(time, |(before, _)| time - before);
            let start = || Belief { state: [value, 0.0], covariance: [FREE_VALUE, 0.0, free_slope] };
            let mut predicted = before.map_or_else(start, |(_, belief)| belief.predicted(interval, q));
            predicted.covariance[0] += jump;
            let variance = predicted.covariance[0] + noise;
            let innovation = value - predicted.state[0];
            if before.is_some() {
                log_sum += variance.ln();
                square_sum += innovation * innovation / variance;
                counted += 1.0;
            }
            let updated = predicted.updated_by_offset(innovation, noise);
            run.steps.push((interval, predicted, updated));
            before = Some((time, updated));
        }
        if counted > 0.0 {
            // The noise level of the largest likelihood, held back where few readings would fit too
            // well.
            let level: f64 = (square_sum + PRIOR_READINGS) / (counted + PRIOR_READINGS);
            run.noise = level.sqrt();
            run.likelihood = -0.5 * (log_sum + counted * level.ln() + square_sum / level);
        }
        run
    }

    /// Rauch, Tung and Striebel's backward pass.
    pub(super) fn smoothed(&self) -> Vec<Belief> {
        let mut beliefs: Vec<Belief> = self.steps.iter().map(|step| step.2).collect();
        for k in (0..beliefs.len().saturating_sub(1)).rev() {
            let (dt, predicted, _) = &self.steps[k + 1];
            beliefs[k] = smoothed_back(&beliefs[k], predicted, &beliefs[k + 1], *dt);
        }
        beliefs
    }
}

/// One step back: from the smoothed estimate `later` to that of `own`, which was `predicted` to be
/// there after `dt` seconds.
fn smoothed_back(own: &Belief, predicted: &Belief, later: &Belief, dt: f64) -> Belief {
    let Belief { state: [own_x, own_f], covariance: [own_xx, own_xf, own_ff] } = *own;
    let [xx, xf, ff] = predicted.covariance;
    let determinant = xx * ff - xf * xf;
    // Cov(own, predicted): own covariance times the transposed transition.
    let across = [[own_xx + dt * own_xf, own_xf], [own_xf + dt * own_ff, own_ff]];
    let gain = if determinant > TINY * xx * ff {
        across.map(|[x, f]| [(x * ff - f * xf) / determinant, (f * xx - x * xf) / determinant])
    } else {
        across.map(|[x, _]| [x / xx, 0.0])
    };
    let (dx, df) = (later.state[0] - predicted.state[0], later.state[1] - predicted.state[1]);
    let [dxx, dxf, dff] = [0, 1, 2].map(|k| later.covariance[k] - predicted.covariance[k]);
    let quadratic = |a: [f64; 2], b: [f64; 2]| a[0] * (dxx * b[0] + dxf * b[1]) + a[1] * (dxf * b[0] + dff * b[1]);
    Belief {
        state: [own_x + gain[0][0] * dx + gain[0][1] * df, own_f + gain[1][0] * dx + gain[1][1] * df],
        covariance: [
            (own_xx + quadratic(gain[0], gain[0])).max(0.0),
            own_xf + quadratic(gain[0], gain[1]),
            (own_ff + quadratic(gain[1], gain[1])).max(0.0),
        ],
    }
}

/// The first reading determines the start of the curve.
const FREE_VALUE: f64 = 1e12;
/// The assumed noise counts as much as this many readings.
const PRIOR_READINGS: f64 = 1.0;
/// A covariance whose determinant is below this share of the product has no slope in it.
const TINY: f64 = 1e-12;
