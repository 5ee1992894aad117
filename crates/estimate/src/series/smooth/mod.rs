//! A smooth curve through noisy readings of one clock against another, including steps and
//! one-sided outliers.
//!
//! [`smooth`] turns the clock pairs of a trace (marker events, snapshots) into
//! [`super::CurvePoint`]s, which become knots of the map R → S. A reading is `y_k = x(t_k) + v_k`;
//! the state (x, f) moves with white acceleration of density q (`motion`), whose smoothed mean is a
//! cubic between readings. The noise level and q maximise the likelihood; q = 0 (a straight line)
//! and a constant are candidates too, and a wandering model must justify its bends. A step adds a
//! free jump of x, and a delay frees one reading, if that raises the likelihood by more than its
//! cost. The two must compete: one late marker looks like a step followed by a step back, and with
//! wander no threshold on neighbours can tell it from the clock.
//!
//! One direction: a marker's tracer stamp is late by the tracer's overhead, never early, so a
//! reading above both neighbourhoods' lowest is a delay, not the clock, and readings above the
//! curve lose weight (Student-t) while readings below it keep all of theirs. The curve runs through
//! the middle of what is left; how far the lowest readings lie below is in [`Smoothed`]. A strict
//! lower envelope, the tempting way, hangs on single lucky readings and bends with them.
//!
//! It cannot determine the constant part of the delay, which no one-sided reading shows.

mod filter;
mod model;
mod readings;

use self::model::{Model, Scale};
pub use self::readings::Reading;
use self::readings::{distinct, thin, without_delays};
use super::curve::{CurvePoint, hermite};
use crate::kalman::Belief;
use crate::statistics::upper_median;

/// The curve, and how well the readings fit it.
#[derive(Clone, Debug, PartialEq)]
pub struct Smoothed {
    /// Points with slopes at the readings that were used, one list per stretch without a step.
    pub stretches: Vec<Vec<CurvePoint>>,
    /// Standard deviation of the slope at the ends of each stretch, ppm.
    pub growth_ppm: Vec<f64>,
    /// Readings minus curve, ns, in order of time, outliers included.
    pub residuals_ns: Vec<f64>,
    /// Standard deviation of a reading of relative sigma 1, ns.
    pub noise_ns: f64,
    /// Readings excluded as delayed.
    pub outliers: usize,
    /// Curve minus the low readings (their fifth percentile), ns: the visible variation of the
    /// delay.
    pub above_lowest_ns: f64,
}

/// Fits the curve; `None` without readings. Readings must be sorted by `x_ns`; among equal ones the
/// lowest counts.
pub fn smooth(readings: &[Reading]) -> Option<Smoothed> {
    let all: Vec<Reading> = distinct(readings);
    let thinned = thin(&all);
    let kept = without_delays(&thinned);
    let scale = Scale::of(&kept)?;
    let mut weights = vec![1.0; kept.len()];
    let mut model = Model::default();
    for _ in 0..REWEIGHTINGS {
        model = scale.best_model(&kept, &weights, &model.delays);
        let run = scale.run(&kept, &weights, &model);
        reweight(&kept, &run.smoothed(), &scale, &model, run.noise, &mut weights);
    }
    let run = scale.run(&kept, &weights, &model);
    let noise_ns = run.noise * scale.unit_ns;
    let mut states = run.smoothed();
    recentre(&kept, &mut states, &scale, &model);
    let (stretches, growth_ppm) = stretches(&kept, &states, &scale, &model, run.noise);
    let residuals_ns = residuals(&all, &stretches);
    let mut low = residuals_ns.clone();
    let place = low.len() / 20;
    let above_lowest_ns = -*low.select_nth_unstable_by(place, f64::total_cmp).1;
    let outliers = thinned.len() - kept.len() + model.delays.len();
    Some(Smoothed { stretches, growth_ppm, residuals_ns, noise_ns, outliers, above_lowest_ns })
}

fn reweight(readings: &[Reading], states: &[Belief], scale: &Scale, model: &Model, noise: f64, weights: &mut [f64]) {
    for (k, ((reading, state), weight)) in readings.iter().zip(states).zip(weights).enumerate() {
        if model.delays.binary_search_by_key(&k, |late| late.0).is_ok() {
            *weight = 1.0;
            continue;
        }
        let (curve, _) = scale.on_curve(reading, state, model.slope_is_free);
        let departure = (reading.value_ns - curve) / (scale.unit_ns * noise * reading.relative_sigma);
        let early = reading.one_sided && departure < 0.0;
        *weight = if early { 1.0 } else { ((STUDENT + 1.0) / (STUDENT + departure * departure)).min(1.0) };
    }
}

/// Moves the curve so that half of the readings lie above it: weights have moved it towards the low
/// ones, by an amount that depends on how busy the node was.
fn recentre(readings: &[Reading], states: &mut [Belief], scale: &Scale, model: &Model) {
    if !readings.iter().all(|reading| reading.one_sided) {
        return;
    }
    let departure = |(reading, state): (&Reading, &Belief)| {
        reading.value_ns - scale.on_curve(reading, state, model.slope_is_free).0
    };
    let late = |k: usize| model.delays.binary_search_by_key(&k, |late| late.0).is_ok();
    let pairs = readings.iter().zip(states.iter()).enumerate().filter(|(k, _)| !late(*k));
    let mut departures: Vec<f64> = pairs.map(|(_, pair)| departure(pair)).collect();
    let shift = upper_median(&mut departures).unwrap_or(0.0) / scale.unit_ns;
    for state in states {
        state.state[0] += shift;
    }
}

fn stretches(
    readings: &[Reading],
    states: &[Belief],
    scale: &Scale,
    model: &Model,
    noise: f64,
) -> (Vec<Vec<CurvePoint>>, Vec<f64>) {
    let ns = noise * scale.unit_ns;
    let point = |(reading, state): (&Reading, &Belief)| {
        let (value_ns, slope) = scale.on_curve(reading, state, model.slope_is_free);
        CurvePoint { x_ns: reading.x_ns, value_ns, slope: Some(slope), sigma_ns: state.covariance[0].sqrt() * ns }
    };
    let points: Vec<CurvePoint> = readings.iter().zip(states).map(point).collect();
    let ends = model.steps.iter().map(|step| step.0 + 1).chain([points.len()]);
    let slope_variance = |at: usize| states[at].covariance[2];
    let (mut found, mut growth) = (Vec::new(), Vec::new());
    let mut from = 0;
    for end in ends {
        found.push(points[from..end].to_vec());
        // Within the next second the slope wanders by q on top of being uncertain; 1 ns per second
        // is 0.001 ppm.
        growth.push((slope_variance(from).max(slope_variance(end - 1)) + model.q / 3.0).sqrt() * ns * 1e-3);
        from = end;
    }
    (found, growth)
}

/// Reading minus curve for every reading, those that were left out included.
fn residuals(readings: &[Reading], stretches: &[Vec<CurvePoint>]) -> Vec<f64> {
    readings
        .iter()
        .filter_map(|reading| {
            let after = stretches.partition_point(|stretch| stretch[0].x_ns <= reading.x_ns);
            let stretch = &stretches[after.saturating_sub(1)];
            let next = stretch.partition_point(|point| point.x_ns <= reading.x_ns).clamp(1, stretch.len());
            let curve = match (stretch.get(next - 1)?, stretch.get(next)) {
                (a, Some(b)) if reading.x_ns >= a.x_ns => hermite(a, b, (reading.x_ns - a.x_ns) / (b.x_ns - a.x_ns)),
                (a, _) => a.value_ns + a.slope? * (reading.x_ns - a.x_ns),
            };
            Some(reading.value_ns - curve)
        })
        .collect()
}

/// Reweighting settles in this many rounds.
const REWEIGHTINGS: usize = 3;
/// Degrees of freedom of the error law.
const STUDENT: f64 = 4.0;

#[cfg(test)]
mod tests;
