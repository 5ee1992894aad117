//! A region's clocks against the reference of all regions, while they measure.
//!
//! A region's master has two runs in one process. Its run among the masters gives the time of the
//! global reference when the master's own clock shows x ([`Timeline::follow`], after each of its
//! rounds). The region's round is broadcast with that ([`Above`]), and each rank's feed combines it
//! with the round's estimate of its own clock ([`Above::lift`]). With m the time that the master's
//! clock shows, the region's round ties a counter to m, and this ties m to g.
//!
//! The two are not of one moment: the line through the masters' last round is followed from x to m,
//! and its intervals grow on the way as a clock page's own do (`forecast`), and by what a system
//! clock may be steered unseen besides: x and m are its readings, where a page counts by a counter
//! that nobody steers. Hard intervals add, variances add, rates multiply.
//!
//! By hand: at x = 10 s the reference of all showed 9.99 s, ± 500 ns, growing by 4 ppm, and goes 50
//! ppm slower. A region's round of m = 12 s ± 700 ns is at g = 9.99 + 2 · 0.99995 = 11.9899 s, ±
//! (700 + 500 + 8000) ns.
//!
//! Where nobody knows it (no round among the masters yet or for some time, their run is over, the
//! master's clock was set, the master was lost) there is none: readers are told that the clock is
//! not known yet, or have bounds that grow by the counter. It knows nothing about the time before
//! the first round among the masters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_lines::{NodeEstimate, Round};
use probe_sync_time::{Duration, NodeId};
use serde::{Deserialize, Serialize};

use super::forecast::{FRESH_NS, FRESH_WINDOWS, Forecast, Point, UNSEEN_SLEW_PPM};

/// What a master's clock shows about the global reference, that of all regions.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Above {
    /// Time of the master's clock, ns,
    master: i64,
    /// and of the global reference at the same instant, ns.
    all: i64,
    /// Rate of the global reference relative to the master's clock, ppm.
    rate_ppm: f64,
    /// Standard deviations of `all` and `rate_ppm`, ns and ppm.
    sigma: [f64; 2],
    /// Hard interval: distances below and above `all`, ns.
    hard: [f64; 2],
    /// Growth of the hard interval, ppm.
    growth_ppm: f64,
    /// Growth of the standard deviation of `all`, ppm.
    growth_sigma_ppm: f64,
}

impl Above {
    /// Converts a point relative to the master's clock to one relative to the global reference.
    pub(super) fn lift(&self, point: Point) -> Point {
        let since = point.reference.saturating_sub(self.master);
        let away = since.saturating_abs() as f64;
        let rate_ppm = |a: f64, b: f64| a + b + a * b * 1e-6;
        let moved = Duration::from_ns_f64((since as f64 * self.rate_ppm * 1e-6).round()).as_ns();
        let grown = |at: usize| {
            let whole = point.hard[at] + self.hard[at] + away * self.growth_ppm * 1e-6 + 1.0;
            // It came from another process.
            if whole >= 0.0 { whole } else { f64::INFINITY }
        };
        let of_line = self.sigma[0].hypot(away * self.growth_sigma_ppm * 1e-6);
        Point {
            reference: self.all.saturating_add(since).saturating_add(moved),
            rate_ppm: rate_ppm(point.rate_ppm, self.rate_ppm),
            sigma: [point.sigma[0].hypot(of_line), point.sigma[1].hypot(self.sigma[1])],
            hard: [grown(0), grown(1)],
            ..point
        }
    }
}

/// A master's clock as measured by the run among the masters: written by that run's session, read
/// by the session of the master's region. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Timeline(Arc<Mutex<Option<Known>>>);

#[derive(Debug)]
struct Known {
    forecast: Forecast,
    latest: Option<Above>,
    /// Distance from its instant up to which it may be used, ns.
    usable_ns: i64,
    /// Rounds among the masters still to be skipped, because they may predate a step of the
    /// master's clock.
    left_out: u32,
    /// Rounds of the region still to be skipped for the same reason; the region does not detect it
    /// itself.
    left_out_of_region: u32,
}

impl Timeline {
    /// Creates the timeline of a master whose settings allow this much wander.
    pub(crate) fn of_master(max_wander_ppm: f64) -> Self {
        let forecast = Forecast::new(max_wander_ppm);
        let known = Known { forecast, latest: None, usable_ns: 0, left_out: 0, left_out_of_region: 0 };
        Self(Arc::new(Mutex::new(Some(known))))
    }

    /// Adds a round among the masters, in which this master is `own`.
    pub(crate) fn follow(&self, round: &Round, own: NodeId) {
        let mut known = self.known();
        let Some(known) = known.as_mut() else { return };
        if round.clock_disturbed(own) {
            known.forget();
            known.left_out_of_region = REGIONS_ROUNDS_OF_BEFORE;
            return;
        }
        known.left_out = known.left_out.saturating_sub(1);
        let estimate = round.node(own).filter(|own| own.reachable && own.sigma_ns.is_finite());
        if let (Some(estimate), 0) = (estimate, known.left_out) {
            let is_reference = own == round.reference && round.carried_by.is_none();
            known.latest = Some(known.above(round, estimate, is_reference));
            known.usable_ns = fresh_ns(round);
        }
    }

    /// Records the end of the run among the masters, normal or not: the master's clock is no longer
    /// measured against the global reference.
    pub(crate) fn end(&self) {
        *self.known() = None;
    }

    /// Returns what is broadcast with a region's round; `None` if nothing is known about the clock
    /// of its reference.
    pub(crate) fn with(&self, round: &Round) -> Option<Above> {
        let mut known = self.known();
        let known = known.as_mut()?;
        if round.clock_disturbed(round.reference) {
            known.forget();
            known.left_out_of_region = 0;
        } else if known.left_out_of_region > 0 {
            known.left_out_of_region -= 1;
            return None;
        }
        let usable = known.usable_ns.max(fresh_ns(round));
        let near = |above: &Above| round.midpoint().as_ns().saturating_sub(above.master).saturating_abs() <= usable;
        known.latest.filter(|above| round.carried_by.is_none() && near(above))
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Discards rounds from before a step of the master's clock: the round in progress among the
    /// masters, and one that ended just before, do not reflect it.
    fn forget(&mut self) {
        (self.latest, self.left_out) = (None, ROUNDS_OF_BEFORE + 1);
        self.forecast.forget();
    }

    fn above(&mut self, round: &Round, own: &NodeEstimate, is_reference: bool) -> Above {
        let all = round.midpoint().as_ns();
        let master = all.saturating_add(Duration::from_ns_f64(own.offset_ns.round()).as_ns());
        let rate_ppm = -own.drift_ppm / (1.0 + own.drift_ppm * 1e-6);
        // As in the feed: offset ≤ bound_hi means that the reference is M − (bound_hi − offset) or
        // later. One more for the rounding.
        let hard = [own.bound_hi_ns - own.offset_ns, own.offset_ns - own.bound_lo_ns].map(|ns| ns.max(0.0) + 1.0);
        let sigma = [own.sigma_ns, own.drift_sigma_ppm];
        if is_reference {
            // Its own clock: nothing lies between.
            let (sigma, hard) = ([0.0; 2], [0.0; 2]);
            return Above { master, all, rate_ppm: 0.0, sigma, hard, growth_ppm: 0.0, growth_sigma_ppm: 0.0 };
        }
        let estimate = self.forecast.estimate(Point { counter: master, reference: all, rate_ppm, sigma, hard });
        let growth_ppm = estimate.hard_growth.as_ppm() + UNSEEN_SLEW_PPM;
        // Of an interval with equal ends, steered by any rate up to the largest.
        let unseen = UNSEEN_SLEW_PPM / 3.0_f64.sqrt();
        let growth_sigma_ppm = (estimate.growth95.as_ppm() / SIGMAS_95).hypot(unseen);
        Above { master, all, rate_ppm, sigma, hard, growth_ppm, growth_sigma_ppm }
    }
}

/// Returns how long a round remains valid: as long as it keeps a clock page synchronised.
fn fresh_ns(round: &Round) -> i64 {
    FRESH_WINDOWS * (round.window_end - round.window_start).as_ns().max(0) + FRESH_NS
}

/// Rounds among the masters that may still predate the step.
const ROUNDS_OF_BEFORE: u32 = 2;

/// Rounds of the region that may predate the step: the one being gathered, and the one with the
/// current window.
const REGIONS_ROUNDS_OF_BEFORE: u32 = 2;

#[cfg(test)]
mod tests {
    use probe_sync_lines::{Decision, Findings};
    use probe_sync_time::{RoundId, Timestamp};

    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn a_point_of_the_region_is_lifted_by_hand() {
        let above = Above {
            master: 10 * S,
            all: 9 * S + 990_000_000,
            rate_ppm: -50.0,
            sigma: [30.0, 0.02],
            hard: [500.0, 400.0],
            growth_ppm: 4.0,
            growth_sigma_ppm: 0.02,
        };
        let point = Point { counter: 77, reference: 12 * S, rate_ppm: 20.0, sigma: [40.0, 0.01], hard: [700.0, 600.0] };
        let lifted = above.lift(point);
        assert_eq!((lifted.counter, lifted.reference), (77, 11 * S + 989_900_000));
        assert!((lifted.rate_ppm - (20.0 - 50.0 - 0.001)).abs() < 1e-9);
        // The line's own deviation has grown to 50 ns in 2 s.
        assert!((lifted.sigma[0] - 40.0_f64.hypot(50.0)).abs() < 1e-9);
        assert_eq!(lifted.hard, [700.0 + 500.0 + 8000.0 + 1.0, 600.0 + 400.0 + 8000.0 + 1.0]);
        // As wide into the past.
        assert_eq!(above.lift(Point { reference: 8 * S, ..point }).hard, lifted.hard);
        // What no master says bounds nothing.
        let spoiled = Above { hard: [f64::NAN, -1e9], ..above };
        assert_eq!(spoiled.lift(point).hard, [f64::INFINITY; 2]);
    }

    fn round(second: i64, offset_ns: f64, disturbed: bool) -> Round {
        let estimate = |node: u32, offset_ns: f64| NodeEstimate {
            node_id: NodeId(node),
            offset_ns,
            drift_ppm: 0.0,
            residual: 0.0,
            reachable: true,
            converged: true,
            sigma_ns: 10.0,
            asymmetry_sigma_ns: 0.0,
            drift_sigma_ppm: 0.01,
            bound_lo_ns: offset_ns - 300.0,
            bound_hi_ns: offset_ns + 500.0,
            edges_used: 1,
            edges_excluded: 0,
        };
        let invalid = if disturbed { vec![NodeId(1)] } else { Vec::new() };
        Round {
            round_id: RoundId(second as u64),
            reference: NodeId(0),
            carried_by: None,
            window_start: Timestamp::from_ns(second * S - S / 2),
            window_end: Timestamp::from_ns(second * S + S / 2),
            all_nodes: vec![estimate(0, 0.0), estimate(1, offset_ns)],
            excluded_edges: Vec::new(),
            worst_edge: None,
            asymmetry_sd_ns: 0.0,
            loops: (0, 0.0),
            clamped: 0,
            contradictions: Vec::new(),
            clock_events: Vec::new(),
            watch: Findings { invalid, ..Findings::default() },
            decision: Decision::STOP,
        }
    }

    #[test]
    fn a_line_is_used_for_some_windows_and_not_when_the_masters_run_is_over() {
        let timeline = Timeline::of_master(1.0);
        timeline.follow(&round(2, 1000.0, false), NodeId(1));
        timeline.follow(&round(3, 1000.0, false), NodeId(1));
        // Three windows of 1 s and 2 s.
        let told = |second: i64| timeline.with(&round(second, 0.0, false));
        let above = told(7).expect("4 s later");
        assert_eq!(told(9), None, "6 s later nobody knows what became of the masters' run");
        // The master's clock may have been steered by 3 ppm meanwhile.
        let point = Point { counter: 0, reference: 7 * S, rate_ppm: 0.0, sigma: [0.0; 2], hard: [0.0; 2] };
        assert!(above.lift(point).hard.iter().all(|ns| *ns > 4.0 * 4_000.0), "{above:?}");
        assert!(above.lift(point).sigma[0] > 4.0 * 1_700.0, "{above:?}");
        timeline.end();
        assert_eq!(told(4), None);
    }

    #[test]
    fn a_regions_round_of_before_the_masters_clock_was_set_gets_no_line_of_after() {
        let timeline = Timeline::of_master(1.0);
        timeline.follow(&round(2, 1000.0, false), NodeId(1));
        // The region waits for a late rank, so that the masters' run notices first and has four
        // rounds meanwhile.
        timeline.follow(&round(3, 1000.0, true), NodeId(1));
        (4..8).for_each(|second| timeline.follow(&round(second, 9000.0, false), NodeId(1)));
        assert_eq!(timeline.with(&round(3, 0.0, false)), None, "of before");
        let mut of_region = round(4, 0.0, false);
        of_region.watch.invalid = vec![NodeId(0)];
        assert_eq!(timeline.with(&of_region), None, "the window in which it was set");
        (8..12).for_each(|second| timeline.follow(&round(second, 9000.0, false), NodeId(1)));
        assert!(timeline.with(&round(11, 0.0, false)).is_some());
    }

    #[test]
    fn nothing_is_told_before_the_first_round_or_of_a_clock_that_was_set() {
        let timeline = Timeline::of_master(1.0);
        let told = |timeline: &Timeline| timeline.with(&round(1, 0.0, false));
        assert_eq!(told(&timeline), None);
        timeline.follow(&round(2, 1000.0, false), NodeId(1));
        let above = told(&timeline).expect("a round has been");
        assert_eq!((above.master - above.all, above.hard), (1000, [501.0, 301.0]));
        // Somebody set the master's clock: the region's round says so first.
        let mut of_region = round(3, 0.0, false);
        of_region.watch.invalid = vec![NodeId(0)];
        assert_eq!(timeline.with(&of_region), None);
        for second in [3, 4] {
            timeline.follow(&round(second, 1000.0, false), NodeId(1));
            assert_eq!(told(&timeline), None, "it may be of the time before");
        }
        timeline.follow(&round(5, 9000.0, false), NodeId(1));
        assert_eq!(told(&timeline).map(|above| above.master - above.all), Some(9000));
        // The round among the masters says so first.
        timeline.follow(&round(6, 9000.0, true), NodeId(1));
        assert_eq!(told(&timeline), None);
        // The master was lost: its timeline is carried on by a clock that nobody knows.
        timeline.follow(&round(9, 0.0, false), NodeId(0));
        let carried = Round { carried_by: Some(NodeId(1)), ..round(9, 0.0, false) };
        assert_eq!(timeline.with(&carried), None);
        assert_eq!(Timeline::default().with(&round(9, 0.0, false)), None);
    }
}
