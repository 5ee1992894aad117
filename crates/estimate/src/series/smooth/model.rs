//! The model of the clock, chosen by likelihood: how it bends, where it was stepped, and which
//! readings are late.
//!
//! Steps and delays are added one by one, the best first, and kept if they raise the likelihood by
//! more than their cost.

use super::filter::{Measured, Run};
use super::readings::{Reading, overall_slope};
use crate::kalman::Belief;
use crate::statistics::{TO_SIGMA, upper_median};

/// Assumptions of the filter about the clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Model {
    /// Spectral density of the acceleration, units² per s³.
    pub(super) q: f64,
    /// False: the curve is a constant.
    pub(super) slope_is_free: bool,
    /// Steps after these readings, with the standard deviation of the jump in units.
    pub(super) steps: Vec<(usize, f64)>,
    /// Readings that are late by more than noise, with the standard deviation of that in units.
    pub(super) delays: Vec<(usize, f64)>,
}

/// Scaled readings: times in seconds, values in units of their noise, without a common slope.
pub(super) struct Scale {
    pub(super) unit_ns: f64,
    x_ns: f64,
    value_ns: f64,
    slope: f64,
    /// Variance of the difference between a slope and the common one, units² per s².
    free_slope: f64,
}

impl Scale {
    pub(super) fn of(readings: &[Reading]) -> Option<Self> {
        let first = readings.first()?;
        let mut bends: Vec<f64> = readings
            .windows(3)
            .map(|w| {
                let share = (w[1].x_ns - w[0].x_ns) / (w[2].x_ns - w[0].x_ns);
                2.0 * (w[1].value_ns - w[0].value_ns - share * (w[2].value_ns - w[0].value_ns)).abs()
            })
            .collect();
        let unit_ns = TO_SIGMA * upper_median(&mut bends).unwrap_or(0.0) / 6f64.sqrt();
        let slope = overall_slope(readings);
        let mut scale = Self {
            unit_ns: unit_ns.max(SMALLEST_UNIT_NS),
            x_ns: first.x_ns,
            value_ns: first.value_ns,
            slope,
            free_slope: 1.0,
        };
        // Four times what slopes over an eighth of the readings do, noise included: free, yet not
        // absurd.
        let points: Vec<(f64, f64)> = readings.iter().map(|reading| scale.point(reading, true)).collect();
        let lag = (points.len() / 8).max(1);
        let mut slopes: Vec<f64> = (lag..points.len())
            .map(|k| ((points[k].1 - points[k - lag].1) / (points[k].0 - points[k - lag].0)).abs())
            .collect();
        let span = points.last().map_or(0.0, |last| last.0).max(1e-9);
        let usual = upper_median(&mut slopes).unwrap_or(0.0).max(1.0 / span);
        scale.free_slope = 16.0 * usual * usual;
        Some(scale)
    }

    /// Time in seconds and value in units; a constant is judged with the slope left in.
    fn point(&self, reading: &Reading, slope_is_free: bool) -> (f64, f64) {
        let x = reading.x_ns - self.x_ns;
        let slope = if slope_is_free { self.slope } else { 0.0 };
        (x * 1e-9, (reading.value_ns - self.value_ns - slope * x) / self.unit_ns)
    }

    /// The model of the largest likelihood, steps and delays added one by one. Delays found with
    /// earlier weights stay: by now their readings weigh little, which would hide them.
    pub(super) fn best_model(&self, readings: &[Reading], weights: &[f64], delays: &[(usize, f64)]) -> Model {
        let given = Model { delays: delays.to_vec(), ..Model::default() };
        let (mut model, mut likelihood) = self.best_bends(readings, weights, &given);
        let (mut best, mut gained, mut best_gained, mut unrewarded) = (model.clone(), 0.0, 0.0, 0);
        let most = MAX_STEPS + readings.len().min(MAX_DELAYS);
        for _ in 0..most {
            let steps = self.step_candidates(readings, &model).into_iter().map(|step| (step, true));
            let delays = self.delay_candidates(readings, &model).into_iter().map(|late| (late, false));
            let found = steps
                .chain(delays)
                .map(|(found, is_step)| {
                    let mut wider = model.clone();
                    let list = if is_step { &mut wider.steps } else { &mut wider.delays };
                    list.push(found);
                    list.sort_unstable_by_key(|entry| entry.0);
                    let (wider, higher) = self.best_bends(readings, weights, &wider);
                    (wider, higher, higher - likelihood - if is_step { STEP_GAIN } else { DELAY_GAIN })
                })
                .max_by(|a, b| a.2.total_cmp(&b.2));
            let Some((wider, higher, gain)) = found else { break };
            (model, likelihood) = (wider, higher);
            gained += gain;
            unrewarded += 1;
            if gained > best_gained {
                (best, best_gained, unrewarded) = (model.clone(), gained, 0);
            }
            // Two late readings can hide each other: only both together let the clock run smoothly.
            if unrewarded > LOOK_AHEAD {
                break;
            }
        }
        best
    }

    /// The best q, or a constant, for the steps and delays of `given`.
    fn best_bends(&self, readings: &[Reading], weights: &[f64], given: &Model) -> (Model, f64) {
        let span = readings.last().map_or(0.0, |last| self.point(last, true).0).max(1e-9);
        let mut best = (Model::default(), f64::NEG_INFINITY);
        let constant = std::iter::once((0.0, false));
        let bends = (0..BEND_GRID).map(|k| (4f64.powi(k) * SMALLEST_BEND / span.powi(3), true));
        for (q, slope_is_free) in constant.chain(std::iter::once((0.0, true))).chain(bends) {
            let model = Model { q, slope_is_free, ..given.clone() };
            let likelihood = self.run(readings, weights, &model).likelihood;
            // Simpler models come first and stay unless beaten clearly.
            if likelihood > best.1 + if q > 0.0 && best.0.q == 0.0 { BEND_GAIN } else { 0.0 } {
                best = (model, likelihood);
            }
        }
        best
    }

    /// The one-sided readings farthest above the prediction of their neighbours, with the distance.
    /// Readings already known to be late do not count as neighbours.
    fn delay_candidates(&self, readings: &[Reading], model: &Model) -> Vec<(usize, f64)> {
        let known = |k: usize| model.delays.binary_search_by_key(&k, |late| late.0).is_ok();
        let trusted: Vec<usize> = (0..readings.len()).filter(|k| !known(*k)).collect();
        let point = |place: usize| self.point(&readings[trusted[place]], true);
        // A line through two trusted readings, carried to a third.
        let line = |a: (f64, f64), b: (f64, f64), at: f64| a.1 + (b.1 - a.1) * (at - a.0) / (b.0 - a.0);
        let mut late: Vec<(usize, f64)> = (0..trusted.len())
            .filter(|place| readings[trusted[*place]].one_sided && trusted.len() >= 3)
            .map(|place| {
                let last = trusted.len() - 1;
                let (a, b) = match place {
                    0 => (1, 2),
                    place if place == last => (last - 2, last - 1),
                    place => (place - 1, place + 1),
                };
                let (time, value) = point(place);
                (trusted[place], value - line(point(a), point(b), time))
            })
            .filter(|(_, height)| *height > SMALLEST_JUMP)
            .collect();
        late.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        late.truncate(candidates(readings.len()));
        late
    }

    /// The gaps whose slope differs most from their neighbours', with the size of the jump.
    fn step_candidates(&self, readings: &[Reading], model: &Model) -> Vec<(usize, f64)> {
        let points: Vec<(f64, f64)> = readings.iter().map(|reading| self.point(reading, true)).collect();
        let slopes: Vec<f64> = points.windows(2).map(|w| (w[1].1 - w[0].1) / (w[1].0 - w[0].0)).collect();
        let mut jumps: Vec<(usize, f64)> = (0..slopes.len())
            .filter(|gap| model.steps.iter().all(|step| step.0 != *gap))
            .map(|gap| {
                let mut near: Vec<f64> = (gap.saturating_sub(3)..(gap + 4).min(slopes.len()))
                    .filter(|other| *other != gap)
                    .map(|other| slopes[other])
                    .collect();
                let usual = upper_median(&mut near).unwrap_or(0.0);
                (gap, ((slopes[gap] - usual) * (points[gap + 1].0 - points[gap].0)).abs())
            })
            .filter(|(_, jump)| *jump > SMALLEST_JUMP)
            .collect();
        jumps.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        jumps.truncate(candidates(readings.len()));
        jumps
    }

    /// Runs the filter forward.
    pub(super) fn run(&self, readings: &[Reading], weights: &[f64], model: &Model) -> Run {
        let mut delays = model.delays.iter().peekable();
        let mut steps = model.steps.iter().peekable();
        let measured = |(k, (reading, weight)): (usize, (&Reading, &f64))| {
            let (time, value) = self.point(reading, model.slope_is_free);
            let late = delays.next_if(|late| late.0 == k).map_or(0.0, |late| late.1 * late.1);
            let noise = reading.relative_sigma * reading.relative_sigma / weight + late;
            let jump = steps.next_if(|step| step.0 + 1 == k).map_or(0.0, |step| step.1 * step.1);
            Measured { time, value, noise, jump }
        };
        let measured = readings.iter().zip(weights).enumerate().map(measured);
        Run::forward(measured, model.q, if model.slope_is_free { self.free_slope } else { 0.0 })
    }

    /// The smoothed curve at a reading, ns, and its slope.
    pub(super) fn on_curve(&self, reading: &Reading, belief: &Belief, slope_is_free: bool) -> (f64, f64) {
        let x = reading.x_ns - self.x_ns;
        let slope = if slope_is_free { self.slope } else { 0.0 };
        let [value, rate] = belief.state;
        (self.value_ns + slope * x + value * self.unit_ns, slope + rate * self.unit_ns * 1e-9)
    }
}

/// Number of steps and delays to try at a time: fewer if each costs more.
fn candidates(readings: usize) -> usize {
    (WORK / readings.max(1)).clamp(FEWEST_CANDIDATES, CANDIDATES)
}

/// Clocks are read to the nanosecond.
const SMALLEST_UNIT_NS: f64 = 1.0;
/// Steps beyond this number are no clock's.
const MAX_STEPS: usize = 8;
/// Late readings that the model may hold, beyond those left out before.
const MAX_DELAYS: usize = 64;
/// Steps or delays added without reward before giving up.
const LOOK_AHEAD: u32 = 3;
/// Gaps and readings tried at a time,
const CANDIDATES: usize = 8;
/// at least,
const FEWEST_CANDIDATES: usize = 2;
/// and readings times tries.
const WORK: usize = 4096;
/// In units of a reading's noise.
const SMALLEST_JUMP: f64 = 6.0;
/// Log-likelihood that a step must gain.
const STEP_GAIN: f64 = 6.0;
/// Log-likelihood that a delay must gain: delays are common, steps are not.
const DELAY_GAIN: f64 = 3.0;
/// Log-likelihood that bends must gain over a straight line.
const BEND_GAIN: f64 = 1.5;
/// q·span³ runs from here, in steps of 4,
const SMALLEST_BEND: f64 = 0.1;
/// this many times.
const BEND_GRID: i32 = 26;
