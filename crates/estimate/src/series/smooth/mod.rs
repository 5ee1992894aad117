//! A smooth curve through noisy readings of one clock against another, steps and one-sided outliers included.
//!
//! Place in the flow: clock pairs of a trace (marker events, snapshots) → [`smooth`] → [`super::CurvePoint`]s → knots of
//! the map R → S. A reading is `y_k = x(t_k) + v_k`; the state (x, f) moves as `x' = x + f·Δ` with white acceleration,
//! `Q = q·[[Δ³/3, Δ²/2], [Δ²/2, Δ]]`, whose smoothed mean is a cubic between readings. Noise level and q are those of
//! the largest likelihood; q = 0 (a straight line) and a constant are candidates too, and a wandering clock has to earn
//! its bends. A step adds a free jump of x, a delay frees one reading, where that raises the likelihood by more than it
//! costs. The two must compete: one late marker looks like a step there and a step back, and under wander no threshold on
//! neighbours tells it from the clock.
//!
//! One direction: a marker's tracer stamp is late by the tracer's overhead, never early, so a reading above both
//! neighbourhoods' lowest is a delay, not the clock, and readings above the curve lose weight (Student-t) while readings
//! below it keep all of theirs. The curve runs through the middle of what is left; how far the lowest readings lie below
//! is in [`Smoothed`]. A strict lower envelope, the tempting way, hangs on single lucky readings and bends with them.
//!
//! What it does not do: know the constant part of the delay. No one-sided reading can show it.

use super::curve::{CurvePoint, hermite};
use crate::median::{TO_SIGMA, upper};

/// One reading.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Reading {
    /// When, ns from a base of the caller's.
    pub x_ns: f64,
    /// What was read, ns from a base of the caller's.
    pub value_ns: f64,
    /// Standard deviation relative to that of the other readings; 1 for all where nothing is known.
    pub relative_sigma: f64,
    /// Errors are delays: the value can be too large, not too small.
    pub one_sided: bool,
}

/// The curve and how well the readings fit it.
#[derive(Clone, Debug, PartialEq)]
pub struct Smoothed {
    /// Points with slopes at the readings that were used, one list per stretch without a step.
    pub stretches: Vec<Vec<CurvePoint>>,
    /// Standard deviation of the slope at the very ends of each stretch, ppm.
    pub growth_ppm: Vec<f64>,
    /// Readings minus curve, ns, in order of time, outliers included.
    pub residuals_ns: Vec<f64>,
    /// Standard deviation of a reading of relative sigma 1, ns.
    pub noise_ns: f64,
    /// Readings left out as delays.
    pub outliers: usize,
    /// Curve minus the low readings (their twentieth part from below), ns: how much of the delay is seen to vary.
    pub above_lowest_ns: f64,
}

/// Fits the curve; None without readings. Readings must be sorted by `x_ns`; of equal ones the lowest counts.
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

fn distinct(readings: &[Reading]) -> Vec<Reading> {
    let mut kept: Vec<Reading> = Vec::with_capacity(readings.len());
    for reading in readings.iter().filter(|r| r.x_ns.is_finite() && r.value_ns.is_finite() && r.relative_sigma > 0.0) {
        match kept.last_mut() {
            Some(last) if reading.x_ns <= last.x_ns => {
                if reading.value_ns < last.value_ns {
                    last.value_ns = reading.value_ns;
                }
            }
            _ => kept.push(*reading),
        }
    }
    kept
}

/// Of very many readings the least delayed in every block.
fn thin(readings: &[Reading]) -> Vec<Reading> {
    let block = readings.len().div_ceil(MAX_READINGS).max(1);
    let slope = overall_slope(readings);
    let key = |r: &Reading| (r.value_ns - slope * r.x_ns) * if r.one_sided { 1.0 } else { 0.0 } + r.relative_sigma;
    readings.chunks(block).filter_map(|chunk| chunk.iter().min_by(|a, b| key(a).total_cmp(&key(b)))).copied().collect()
}

/// Leaves out one-sided readings that lie above the lowest of both neighbourhoods by more than readings usually do.
fn without_delays(readings: &[Reading]) -> Vec<Reading> {
    let slopes = local_slopes(readings);
    let excess: Vec<f64> = (0..readings.len())
        .map(|k| {
            // Levels as seen from this reading, along the slope around it.
            let level = |r: &Reading| r.value_ns - readings[k].value_ns - slopes[k] * (r.x_ns - readings[k].x_ns);
            let lowest = |part: &[Reading]| part.iter().map(level).reduce(f64::min);
            let left = lowest(&readings[k.saturating_sub(NEIGHBOURS)..k]);
            let right = lowest(&readings[k + 1..(k + 1 + NEIGHBOURS).min(readings.len())]);
            // At the ends there is one neighbourhood.
            left.into_iter().chain(right).reduce(f64::max).map_or(0.0, |above| -above)
        })
        .collect();
    let mut sizes: Vec<f64> = excess.iter().map(|e| e.abs()).collect();
    let usual = TO_SIGMA * upper(&mut sizes).unwrap_or(0.0);
    let limit = (DELAY_SIGMAS * usual).max(SMALLEST_DELAY_NS);
    readings.iter().zip(&excess).filter(|(r, e)| !r.one_sided || **e <= limit).map(|(r, _)| *r).collect()
}

/// The median slope over an eighth of the readings: a step or an outlier does not move it much.
fn overall_slope(readings: &[Reading]) -> f64 {
    let lag = (readings.len() / 8).max(1);
    let mut slopes: Vec<f64> = readings.windows(lag + 1).map(|w| secant(&w[0], &w[lag])).collect();
    upper(&mut slopes).unwrap_or(0.0)
}

/// Around every reading the median slope of the nearest gaps.
fn local_slopes(readings: &[Reading]) -> Vec<f64> {
    let slopes: Vec<f64> = readings.windows(2).map(|w| secant(&w[0], &w[1])).collect();
    (0..readings.len())
        .map(|k| {
            let near = k.saturating_sub(LOCAL_GAPS)..(k + LOCAL_GAPS).min(slopes.len());
            upper(&mut slopes[near].to_vec()).unwrap_or(0.0)
        })
        .collect()
}

fn secant(a: &Reading, b: &Reading) -> f64 {
    (b.value_ns - a.value_ns) / (b.x_ns - a.x_ns)
}

/// What the filter assumes about the clock.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    /// Spectral density of the acceleration, units² per s³.
    q: f64,
    /// False: the curve is a constant.
    slope_is_free: bool,
    /// Steps after these readings, with the standard deviation of the jump in units.
    steps: Vec<(usize, f64)>,
    /// Readings that are late by more than noise, with the standard deviation of that in units.
    delays: Vec<(usize, f64)>,
}

/// Readings made small: times in seconds, values in units of their noise, without a common slope.
struct Scale {
    unit_ns: f64,
    x_ns: f64,
    value_ns: f64,
    slope: f64,
    /// Variance of what a slope may differ from the common one, units² per s².
    free_slope: f64,
}

impl Scale {
    fn of(readings: &[Reading]) -> Option<Self> {
        let first = readings.first()?;
        let mut bends: Vec<f64> = readings
            .windows(3)
            .map(|w| {
                let share = (w[1].x_ns - w[0].x_ns) / (w[2].x_ns - w[0].x_ns);
                2.0 * (w[1].value_ns - w[0].value_ns - share * (w[2].value_ns - w[0].value_ns)).abs()
            })
            .collect();
        let unit_ns = TO_SIGMA * upper(&mut bends).unwrap_or(0.0) / 6f64.sqrt();
        let slope = overall_slope(readings);
        let mut scale = Self {
            unit_ns: unit_ns.max(SMALLEST_UNIT_NS),
            x_ns: first.x_ns,
            value_ns: first.value_ns,
            slope,
            free_slope: 1.0,
        };
        // Four times what slopes over an eighth of the readings do, noise included: free, yet not absurd.
        let points: Vec<(f64, f64)> = readings.iter().map(|reading| scale.point(reading, true)).collect();
        let lag = (points.len() / 8).max(1);
        let mut slopes: Vec<f64> = (lag..points.len())
            .map(|k| ((points[k].1 - points[k - lag].1) / (points[k].0 - points[k - lag].0)).abs())
            .collect();
        let span = points.last().map_or(0.0, |last| last.0).max(1e-9);
        let usual = upper(&mut slopes).unwrap_or(0.0).max(1.0 / span);
        scale.free_slope = 16.0 * usual * usual;
        Some(scale)
    }

    /// Time in seconds and value in units; a constant is judged with the slope left in.
    fn point(&self, reading: &Reading, slope_is_free: bool) -> (f64, f64) {
        let x = reading.x_ns - self.x_ns;
        let slope = if slope_is_free { self.slope } else { 0.0 };
        (x * 1e-9, (reading.value_ns - self.value_ns - slope * x) / self.unit_ns)
    }

    /// The model of the largest likelihood, steps and delays added one by one.
    /// Delays found with earlier weights stay: by now their readings weigh little, which would hide them.
    fn best_model(&self, readings: &[Reading], weights: &[f64], delays: &[(usize, f64)]) -> Model {
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

    /// The one-sided readings that lie highest above what their neighbours say, with the height. Readings already known
    /// to be late are no neighbours.
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
                let usual = upper(&mut near).unwrap_or(0.0);
                (gap, ((slopes[gap] - usual) * (points[gap + 1].0 - points[gap].0)).abs())
            })
            .filter(|(_, jump)| *jump > SMALLEST_JUMP)
            .collect();
        jumps.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        jumps.truncate(candidates(readings.len()));
        jumps
    }

    /// Runs the filter forward.
    fn run(&self, readings: &[Reading], weights: &[f64], model: &Model) -> Run {
        let mut run = Run { steps: Vec::with_capacity(readings.len()), likelihood: 0.0, noise: 1.0 };
        let (mut log_sum, mut square_sum, mut counted) = (0.0, 0.0, 0.0);
        let mut steps = model.steps.iter().peekable();
        let mut delays = model.delays.iter().peekable();
        let mut state = State::default();
        let mut before = 0.0;
        for (k, (reading, weight)) in readings.iter().zip(weights).enumerate() {
            let (time, value) = self.point(reading, model.slope_is_free);
            let late = delays.next_if(|late| late.0 == k).map_or(0.0, |late| late.1 * late.1);
            let noise = reading.relative_sigma * reading.relative_sigma / weight + late;
            let mut predicted = state;
            let interval = time - before;
            if k == 0 {
                predicted = State { x: value, f: 0.0, xx: FREE_VALUE, xf: 0.0, ff: 0.0 };
                predicted.ff = if model.slope_is_free { self.free_slope } else { 0.0 };
            } else {
                predicted.advance(interval, model.q);
            }
            if let Some(step) = steps.next_if(|step| step.0 + 1 == k) {
                predicted.xx += step.1 * step.1;
            }
            let variance = predicted.xx + noise;
            let innovation = value - predicted.x;
            if k > 0 {
                log_sum += variance.ln();
                square_sum += innovation * innovation / variance;
                counted += 1.0;
            }
            state = predicted.updated(innovation, variance, noise);
            run.steps.push((interval, predicted, state));
            before = time;
        }
        if counted > 0.0 {
            // The noise level of the largest likelihood, held back where few readings would fit too well.
            let level: f64 = (square_sum + PRIOR_READINGS) / (counted + PRIOR_READINGS);
            run.noise = level.sqrt();
            run.likelihood = -0.5 * (log_sum + counted * level.ln() + square_sum / level);
        }
        run
    }
}

/// Mean and covariance of value and slope.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
struct State {
    x: f64,
    f: f64,
    xx: f64,
    xf: f64,
    ff: f64,
}

impl State {
    fn advance(&mut self, dt: f64, q: f64) {
        self.x += self.f * dt;
        self.xx += dt * (2.0 * self.xf + dt * self.ff) + q * dt.powi(3) / 3.0;
        self.xf += dt * self.ff + q * dt * dt / 2.0;
        self.ff += q * dt;
    }

    fn updated(&self, innovation: f64, variance: f64, noise: f64) -> Self {
        let (gain_x, gain_f) = (self.xx / variance, self.xf / variance);
        Self {
            x: self.x + gain_x * innovation,
            f: self.f + gain_f * innovation,
            xx: self.xx * noise / variance,
            xf: self.xf * noise / variance,
            ff: (self.ff - gain_f * self.xf).max(0.0),
        }
    }
}

struct Run {
    /// Interval before, predicted, updated.
    steps: Vec<(f64, State, State)>,
    likelihood: f64,
    /// Standard deviation of a reading of weight 1, units.
    noise: f64,
}

impl Run {
    /// Rauch, Tung and Striebel's backward pass.
    fn smoothed(&self) -> Vec<State> {
        let mut states: Vec<State> = self.steps.iter().map(|step| step.2).collect();
        for k in (0..states.len().saturating_sub(1)).rev() {
            let (dt, predicted, _) = self.steps[k + 1];
            let (own, later) = (states[k], states[k + 1]);
            let determinant = predicted.xx * predicted.ff - predicted.xf * predicted.xf;
            // Cov(own, predicted): own covariance times the transposed transition.
            let across = [[own.xx + dt * own.xf, own.xf], [own.xf + dt * own.ff, own.ff]];
            let gain = if determinant > TINY * predicted.xx * predicted.ff {
                across.map(|[x, f]| {
                    [
                        (x * predicted.ff - f * predicted.xf) / determinant,
                        (f * predicted.xx - x * predicted.xf) / determinant,
                    ]
                })
            } else {
                across.map(|[x, _]| [x / predicted.xx, 0.0])
            };
            let (dx, df) = (later.x - predicted.x, later.f - predicted.f);
            let (dxx, dxf, dff) = (later.xx - predicted.xx, later.xf - predicted.xf, later.ff - predicted.ff);
            let quadratic =
                |a: [f64; 2], b: [f64; 2]| a[0] * (dxx * b[0] + dxf * b[1]) + a[1] * (dxf * b[0] + dff * b[1]);
            states[k] = State {
                x: own.x + gain[0][0] * dx + gain[0][1] * df,
                f: own.f + gain[1][0] * dx + gain[1][1] * df,
                xx: (own.xx + quadratic(gain[0], gain[0])).max(0.0),
                xf: own.xf + quadratic(gain[0], gain[1]),
                ff: (own.ff + quadratic(gain[1], gain[1])).max(0.0),
            };
        }
        states
    }
}

/// The smoothed curve at a reading, ns, and its slope.
fn on_curve(reading: &Reading, state: &State, scale: &Scale, slope_is_free: bool) -> (f64, f64) {
    let x = reading.x_ns - scale.x_ns;
    let slope = if slope_is_free { scale.slope } else { 0.0 };
    (scale.value_ns + slope * x + state.x * scale.unit_ns, slope + state.f * scale.unit_ns * 1e-9)
}

/// Steps and delays to try at a time: fewer where each costs more.
fn candidates(readings: usize) -> usize {
    (WORK / readings.max(1)).clamp(FEWEST_CANDIDATES, CANDIDATES)
}

fn reweight(readings: &[Reading], states: &[State], scale: &Scale, model: &Model, noise: f64, weights: &mut [f64]) {
    for (k, ((reading, state), weight)) in readings.iter().zip(states).zip(weights).enumerate() {
        if model.delays.binary_search_by_key(&k, |late| late.0).is_ok() {
            *weight = 1.0;
            continue;
        }
        let (curve, _) = on_curve(reading, state, scale, model.slope_is_free);
        let departure = (reading.value_ns - curve) / (scale.unit_ns * noise * reading.relative_sigma);
        let early = reading.one_sided && departure < 0.0;
        *weight = if early { 1.0 } else { ((STUDENT + 1.0) / (STUDENT + departure * departure)).min(1.0) };
    }
}

/// Moves the curve so that half of the readings lie above it: weights have pulled it towards the low ones, by an amount
/// that depends on how busy the node was.
fn recentre(readings: &[Reading], states: &mut [State], scale: &Scale, model: &Model) {
    if !readings.iter().all(|reading| reading.one_sided) {
        return;
    }
    let departure = |(reading, state): (&Reading, &State)| {
        reading.value_ns - on_curve(reading, state, scale, model.slope_is_free).0
    };
    let late = |k: usize| model.delays.binary_search_by_key(&k, |late| late.0).is_ok();
    let pairs = readings.iter().zip(states.iter()).enumerate().filter(|(k, _)| !late(*k));
    let mut departures: Vec<f64> = pairs.map(|(_, pair)| departure(pair)).collect();
    let shift = upper(&mut departures).unwrap_or(0.0) / scale.unit_ns;
    for state in states {
        state.x += shift;
    }
}

fn stretches(
    readings: &[Reading],
    states: &[State],
    scale: &Scale,
    model: &Model,
    noise: f64,
) -> (Vec<Vec<CurvePoint>>, Vec<f64>) {
    let ns = noise * scale.unit_ns;
    let point = |(reading, state): (&Reading, &State)| {
        let (value_ns, slope) = on_curve(reading, state, scale, model.slope_is_free);
        CurvePoint { x_ns: reading.x_ns, value_ns, slope: Some(slope), sigma_ns: state.xx.sqrt() * ns }
    };
    let points: Vec<CurvePoint> = readings.iter().zip(states).map(point).collect();
    let ends = model.steps.iter().map(|step| step.0 + 1).chain([points.len()]);
    let (mut found, mut growth) = (Vec::new(), Vec::new());
    let mut from = 0;
    for end in ends {
        found.push(points[from..end].to_vec());
        // Within the next second the slope wanders by q on top of being uncertain; 1 ns per second is 0.001 ppm.
        growth.push((states[from].ff.max(states[end - 1].ff) + model.q / 3.0).sqrt() * ns * 1e-3);
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
/// More readings than this are thinned: one in a block, the least delayed.
const MAX_READINGS: usize = 2048;
/// A neighbourhood is this many readings on one side.
const NEIGHBOURS: usize = 2;
/// Gaps on each side that say how the clock runs here.
const LOCAL_GAPS: usize = 4;
const DELAY_SIGMAS: f64 = 8.0;
/// Overheads vary by as much without any preemption.
const SMALLEST_DELAY_NS: f64 = 40_000.0;
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
/// The first reading says where the curve starts.
const FREE_VALUE: f64 = 1e12;
/// The assumed noise counts as much as this many readings.
const PRIOR_READINGS: f64 = 1.0;
/// A covariance whose determinant is below this share of the product has no slope in it.
const TINY: f64 = 1e-12;

#[cfg(test)]
mod tests;
