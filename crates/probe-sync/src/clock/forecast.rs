//! An estimate whose bounds hold until the next round, from the points of the rounds so far.
//!
//! `feed` makes a [`Point`] of every round: the counter value when the reference showed M, with the
//! round's bounds. This module returns the line through the last point, and how its bounds grow.
//!
//! **The hard interval's growth.** Two points T apart with hard intervals bound the mean rate
//! between them: from (lo₂ − hi₁)/T to (hi₂ − lo₁)/T. All pairs with the last point bound it
//! together. From then on the rate is assumed to stay within `wander` of that (setting
//! `max_wander_ppm`): an oscillator in a machine room does 0.1 ppm in minutes, and a daemon may
//! steer the reference by 3 ppm before the watch over its clock says so, as all hard intervals
//! assume. Before two points are known nothing but [`ANY_RATE_PPM`] bounds the rate.
//!
//! By hand, ± 700 ns and points 1 s and 10 s back: ± 1.4 ppm and ± 0.14 ppm; with 3 ppm of wander
//! the interval grows by 3.14 ppm, 3 140 ns each second.

use std::collections::VecDeque;

use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_global_clock::{Estimate, Line, Rate};

/// Result of one round.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// Reading of this node's counter.
    pub counter: i64,
    /// Reference time at that reading.
    pub reference: i64,
    /// Rate of the reference relative to the counter, ppm.
    pub rate_ppm: f64,
    /// Standard deviations of `reference` and `rate_ppm`, ns and ppm.
    pub sigma: [f64; 2],
    /// Hard interval: distances below and above `reference`, ns. Infinite if the packets do not
    /// bound it.
    pub hard: [f64; 2],
}

/// Points that bound the rate.
#[derive(Clone, Debug)]
pub(super) struct Forecast {
    points: VecDeque<Point>,
    wander_ppm: f64,
}

impl Forecast {
    /// Creates a forecast without points; the rate is assumed to stay within `wander_ppm` of its
    /// value.
    pub fn new(wander_ppm: f64) -> Self {
        Self { points: VecDeque::new(), wander_ppm }
    }

    /// Discards all points because the clocks were set.
    pub fn forget(&mut self) {
        self.points.clear();
    }

    /// Adds a point and returns the estimate for the time after it.
    pub fn estimate(&mut self, point: Point) -> Estimate {
        let (low, high, wander) = match self.mean_rate(&point) {
            None => (-ANY_RATE_PPM, ANY_RATE_PPM, 0.0),
            // Points that contradict each other: somebody set a clock, and nothing said so.
            Some((low, high)) if low > high + 2.0 * self.wander_ppm => {
                self.points.clear();
                (-ANY_RATE_PPM, ANY_RATE_PPM, self.wander_ppm)
            }
            Some((low, high)) => (low.min(high), high.max(low), self.wander_ppm),
        };
        let growth = (point.rate_ppm - low).max(high - point.rate_ppm).max(0.0) + wander;
        if self.points.len() == POINTS_MAX {
            self.points.pop_front();
        }
        self.points.push_back(point);
        Estimate {
            line: Line { x: point.counter, y: point.reference, rate: Rate::from_ppm(point.rate_ppm) },
            half95: whole(SIGMAS_95 * point.sigma[0]),
            growth95: Rate::from_ppm(SIGMAS_95 * point.sigma[1].hypot(WANDER_SHARE * self.wander_ppm)),
            hard: point.hard.map(whole),
            hard_growth: Rate::from_ppm(growth),
        }
    }

    /// Returns the bounds of the mean rate up to `last` that all points allow, ppm.
    fn mean_rate(&self, last: &Point) -> Option<(f64, f64)> {
        let bounds = self.points.iter().filter(|point| last.counter > point.counter).map(|point| {
            let passed = (last.counter - point.counter) as f64;
            // Differences first: a rate is small, and absolute times are large.
            let gained = (last.reference - point.reference) as f64 - passed;
            let low = (gained - last.hard[0] - point.hard[1]) / passed * 1e6;
            (low, (gained + last.hard[1] + point.hard[0]) / passed * 1e6)
        });
        bounds.filter(|(low, high)| low.is_finite() && high.is_finite()).reduce(|a, b| (a.0.max(b.0), a.1.min(b.1)))
    }
}

/// Rounds up to whole ns; infinity becomes the largest value.
fn whole(ns: f64) -> i64 {
    // Truncating a float is saturating.
    (ns.ceil() as i64).clamp(0, i64::MAX / 4)
}

/// Largest plausible rate of an oscillator or a daemon relative to a counter whose ticks are known
/// to 10 ppm.
const ANY_RATE_PPM: f64 = 600.0;
/// Standard deviation of the rate's change between rounds, as a share of the largest wander.
const WANDER_SHARE: f64 = 1.0 / 150.0;
/// Two minutes of 4 s windows; more hardly improve the bounds.
const POINTS_MAX: usize = 32;

/// Largest change of the system clock's rate that its watch may miss (`sys::discipline`).
pub(super) const UNSEEN_SLEW_PPM: f64 = 3.0;

/// Time added to [`FRESH_WINDOWS`] windows, ns.
pub(super) const FRESH_NS: i64 = 2_000_000_000;

/// Windows within which the next estimate is due, plus [`FRESH_NS`].
pub(super) const FRESH_WINDOWS: i64 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    fn point(seconds: i64, ppm: f64) -> Point {
        let gained = (seconds * S) as f64 * ppm * 1e-6;
        Point {
            counter: seconds * S,
            reference: (1 << 60) + seconds * S + gained as i64,
            rate_ppm: ppm,
            sigma: [20.0, 0.01],
            hard: [700.0, 700.0],
        }
    }

    #[test]
    fn the_interval_grows_by_what_the_points_leave_open() {
        let mut forecast = Forecast::new(1.0);
        let growth = |forecast: &mut Forecast, at| forecast.estimate(point(at, 20.0)).hard_growth.as_ppm();
        assert!((growth(&mut forecast, 0) - (ANY_RATE_PPM + 20.0)).abs() < 1e-6, "one point says nothing of the rate");
        assert!((growth(&mut forecast, 1) - 2.4).abs() < 1e-3);
        let grown = growth(&mut forecast, 10);
        assert!((grown - 1.14).abs() < 1e-3, "{grown}");
        let estimate = forecast.estimate(point(11, 20.0));
        assert_eq!((estimate.half95, estimate.hard), (40, [700, 700]));
        for at in 12..200 {
            growth(&mut forecast, at);
        }
        assert_eq!(forecast.points.len(), POINTS_MAX);
    }

    #[test]
    fn a_reference_that_is_steered_unseen_stays_within_the_hard_interval() {
        let mut forecast = Forecast::new(crate::Config::default().max_wander_ppm);
        let estimates: Vec<Estimate> = (0..20).map(|at| forecast.estimate(point(at, 20.0))).collect();
        let last = estimates.last().expect("twenty");
        // From the last round on the daemon slews by as much as the watch over the clock may miss;
        // the next round is four seconds away.
        let steered_ns = 4.0 * UNSEEN_SLEW_PPM * 1e3;
        let stated_ns = last.hard[1] as f64 + 4.0 * last.hard_growth.as_ppm() * 1e3;
        assert!(steered_ns <= stated_ns, "{steered_ns} ns against {stated_ns} ns");
        assert!(stated_ns < 1.2 * steered_ns, "{stated_ns} ns");
        assert!((SIGMAS_95 * 0.01_f64.hypot(0.02) - last.growth95.as_ppm()).abs() < 1e-3, "{:?}", last.growth95);
    }

    #[test]
    fn points_that_contradict_each_other_are_forgotten() {
        let mut forecast = Forecast::new(1.0);
        for at in 0..5 {
            forecast.estimate(point(at, 0.0));
        }
        // The reference was set by 5 ms, and nothing said so.
        let jumped = Point { reference: point(5, 0.0).reference + 5_000_000, ..point(5, 0.0) };
        assert!(forecast.estimate(jumped).hard_growth.as_ppm() >= ANY_RATE_PPM);
        let unbounded = Point { hard: [f64::INFINITY; 2], ..point(6, 0.0) };
        assert!(forecast.estimate(unbounded).hard[0] > 1 << 60);
    }
}
