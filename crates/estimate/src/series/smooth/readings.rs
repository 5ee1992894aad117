//! The readings to fit: sorted, thinned and without those that are certainly late.

use crate::statistics::{TO_SIGMA, upper_median};

/// One reading.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Reading {
    /// Time, ns from a base of the caller's.
    pub x_ns: f64,
    /// Value, ns from a base of the caller's.
    pub value_ns: f64,
    /// Standard deviation relative to that of the other readings; 1 for all if unknown.
    pub relative_sigma: f64,
    /// True if errors are delays, so that the value can be too large but not too small.
    pub one_sided: bool,
}

pub(super) fn distinct(readings: &[Reading]) -> Vec<Reading> {
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

/// If there are very many readings, keeps the least delayed in every block.
pub(super) fn thin(readings: &[Reading]) -> Vec<Reading> {
    let block = readings.len().div_ceil(MAX_READINGS).max(1);
    let slope = overall_slope(readings);
    let key = |r: &Reading| (r.value_ns - slope * r.x_ns) * if r.one_sided { 1.0 } else { 0.0 } + r.relative_sigma;
    readings.chunks(block).filter_map(|chunk| chunk.iter().min_by(|a, b| key(a).total_cmp(&key(b)))).copied().collect()
}

/// Leaves out one-sided readings that lie above the lowest of both neighbourhoods by more than
/// readings usually do.
pub(super) fn without_delays(readings: &[Reading]) -> Vec<Reading> {
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
    let usual = TO_SIGMA * upper_median(&mut sizes).unwrap_or(0.0);
    let limit = (DELAY_SIGMAS * usual).max(SMALLEST_DELAY_NS);
    readings.iter().zip(&excess).filter(|(r, e)| !r.one_sided || **e <= limit).map(|(r, _)| *r).collect()
}

/// The median slope over an eighth of the readings: a step or an outlier does not move it much.
pub(super) fn overall_slope(readings: &[Reading]) -> f64 {
    let lag = (readings.len() / 8).max(1);
    let mut slopes: Vec<f64> = readings.windows(lag + 1).map(|w| secant(&w[0], &w[lag])).collect();
    upper_median(&mut slopes).unwrap_or(0.0)
}

/// Around every reading the median slope of the nearest gaps.
fn local_slopes(readings: &[Reading]) -> Vec<f64> {
    let slopes: Vec<f64> = readings.windows(2).map(|w| secant(&w[0], &w[1])).collect();
    (0..readings.len())
        .map(|k| {
            let near = k.saturating_sub(LOCAL_GAPS)..(k + LOCAL_GAPS).min(slopes.len());
            upper_median(&mut slopes[near].to_vec()).unwrap_or(0.0)
        })
        .collect()
}

fn secant(a: &Reading, b: &Reading) -> f64 {
    (b.value_ns - a.value_ns) / (b.x_ns - a.x_ns)
}

/// More readings than this are thinned: one in a block, the least delayed.
pub(super) const MAX_READINGS: usize = 2048;
/// A neighbourhood is this many readings on one side.
const NEIGHBOURS: usize = 2;
/// Gaps on each side that say how the clock runs here.
const LOCAL_GAPS: usize = 4;
const DELAY_SIGMAS: f64 = 8.0;
/// Overheads vary by as much without any preemption.
const SMALLEST_DELAY_NS: f64 = 40_000.0;
