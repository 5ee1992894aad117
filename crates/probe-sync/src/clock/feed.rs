//! Keeps the global clock right: of every solved round and of readings of this host's clocks.
//!
//! Place in the flow: `round` tells it the middle of every window, when it reads raw and system clock at one instant, and every solved
//! round. That round says by how much this node's system clock was ahead of the reference at M, so what the system clock showed then; the readings
//! say what the raw clock showed when the system clock showed that. Together: a point from raw to reference, which no later step of
//! the system clock touches.
//!
//! A round in whose window this node's clock or the reference's was disturbed is left out: the clock goes on as it was, and its
//! bounds grow. Under `--inject-skew` the round speaks of the node's virtual clock, which is undone here: the readings are of the real ones.
//!
//! Two nodes by hand. M = 10 000, and node 1 is 300 ahead: its system clock showed 10 300. It showed 10 000 when the raw clock showed
//! 4 000, and both go alike: the point is raw 4 300, reference 10 000.
//!
//! What it does not do: measure, or say what the bounds become with time (`forecast`).

use std::collections::VecDeque;

use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_global_clock::{Map, Pairs, Rate, Status};
use probe_sync_sys::RawClock;
use probe_sync_time::{Clock, Duration, NodeId, SkewedClock, System, Timestamp};

use super::forecast::{Forecast, Point};
use super::{Adjust, GlobalClock, Pages, pairs};
use crate::Error;
use crate::config::Config;

/// What keeps the clock of one rank right.
#[derive(Debug)]
pub(crate) struct Feed {
    clocks: Vec<GlobalClock>,
    node: NodeId,
    /// The node's virtual clock, or the identity.
    virtual_clock: SkewedClock,
    adjust: Adjust,
    /// Readings of undisturbed time, the newest last.
    readings: VecDeque<Pairs>,
    /// Set anew when the system clock was disturbed.
    steady_since: i64,
    forecast: Forecast,
    map: Map,
}

impl Feed {
    /// For the pages that are wanted; None where none is.
    ///
    /// # Errors
    /// When a page cannot be made.
    pub fn new(
        pages: &Pages,
        config: &Config,
        (node, reference): (NodeId, NodeId),
        virtual_clock: SkewedClock,
    ) -> Result<Option<Self>, Error> {
        let own = pages.own.iter().inspect(|own| own.begin(node, reference)).cloned();
        let shared = pages.path.as_deref().map(|path| GlobalClock::create(path, node, reference)).transpose()?;
        let clocks: Vec<GlobalClock> = own.chain(shared).collect();
        if clocks.is_empty() {
            return Ok(None);
        }
        let first = pairs();
        Ok(Some(Self {
            clocks,
            node,
            virtual_clock,
            adjust: config.clock_adjust,
            readings: VecDeque::from([first]),
            steady_since: first.system,
            forecast: Forecast::new(config.max_wander_ppm),
            map: Map::default(),
        }))
    }

    /// Reads the clocks: in the middle of a window, where its offset will hold.
    pub fn read_clocks(&mut self) {
        let now = pairs();
        if self.readings.is_empty() {
            self.steady_since = now.system;
        }
        if self.readings.len() == READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back(now);
    }

    /// Takes a solved round in.
    pub fn follow(&mut self, round: &GlobalWindowData) {
        if round.clock_disturbed(self.node) {
            // What was read before says nothing of the clock as it is now.
            self.readings.clear();
            self.forecast.forget();
            return;
        }
        let Some((point, pairs)) = self.point(round) else { return };
        let estimate = self.forecast.estimate(point);
        let expected = FRESH_WINDOWS * round.decision.next_window.as_ns().max(0) + FRESH_NS;
        for _ in 0..PUBLISH_ATTEMPTS {
            let now = RawClock.now();
            let from = now + LEAD;
            let Some(next) = self.map.follow(estimate, now.as_ns(), from.as_ns(), self.adjust) else { return };
            let next =
                Map { round: round.round_id.0, fresh_until: (now.as_ns()).saturating_add(expected), pairs, ..next };
            if self.publish(&next, from - LATEST) {
                return;
            }
        }
    }

    /// Nothing comes any more, in order or because the session failed: readers see that, and bounds that grow.
    pub fn end(&mut self, failed: bool) {
        if self.map.status != Status::Unsynchronised {
            let status = if failed { Status::Failed } else { Status::Holdover };
            let last = Map { status, ..self.map };
            self.publish(&last, RawClock.now() + LEAD);
        }
    }

    /// Shows the map everywhere; false where it is too late.
    fn publish(&mut self, map: &Map, latest: Timestamp<probe_sync_time::Raw>) -> bool {
        let Some((first, others)) = self.clocks.split_first() else { return true };
        let shown = first.page().publish(map, || RawClock.now() < latest);
        if shown {
            // What one page shows the others must show too; there is time enough left.
            others.iter().for_each(|clock| _ = clock.page().publish(map, || true));
            self.map = *map;
        }
        shown
    }

    /// What the round says of the raw clock and the reference; None where it says nothing.
    fn point(&self, round: &GlobalWindowData) -> Option<(Point, Pairs)> {
        let own = round.all_nodes.get(self.node.index()).filter(|own| own.reachable && own.sigma_ns.is_finite())?;
        let middle = round.midpoint();
        let shown: Timestamp<System> = middle.of_reference_node() + Duration::from_ns_f64(own.offset_ns);
        let real = self.virtual_clock.invert(shown).as_ns();
        let nearest = self.readings.iter().min_by_key(|pairs| real.saturating_sub(pairs.system).saturating_abs())?;
        let SystemRate { ppm: system_ppm, sigma_ppm, reading_sigma } = self.system_rate()?;
        let away = real.saturating_sub(nearest.system);
        let window = round.window_end - round.window_start;
        if away.saturating_abs() > window.as_ns().max(0).saturating_add(FRESH_NS) {
            return None;
        }
        let away_error = away.saturating_abs() as f64 * UNSEEN_SLEW_PPM * 1e-6;
        let read_error = nearest.error as f64 + away_error + 1.0;
        // dReference/dRaw = dReal/dRaw · dVirtual/dReal / (dVirtual/dReference)
        let factor = |ppm: f64| 1.0 + ppm * 1e-6;
        let virtual_ppm = self.virtual_clock.rate_ppm(Timestamp::from_ns(real));
        let rate = factor(system_ppm) * factor(virtual_ppm) / factor(own.drift_ppm);
        let point = Point {
            raw: nearest.raw.saturating_add(away).saturating_sub(Rate::from_ppm(system_ppm).over(away)),
            reference: middle.as_ns(),
            rate_ppm: (rate - 1.0) * 1e6,
            sigma: [own.sigma_ns.hypot(reading_sigma) + away_error, own.drift_sigma_ppm.hypot(sigma_ppm)],
            // offset ≤ bound_hi means reference ≥ shown − bound_hi, which is M − (bound_hi − offset).
            hard: [own.bound_hi_ns - own.offset_ns, own.offset_ns - own.bound_lo_ns].map(|ns| ns.max(0.0) + read_error),
        };
        let pairs = Pairs { rate: Rate::from_ppm(system_ppm), steady_since: self.steady_since, ..*nearest };
        Some((point, pairs))
    }

    /// How the system clock goes against the raw one, by a line through the readings.
    fn system_rate(&self) -> Option<SystemRate> {
        let newest = self.readings.back()?;
        let near: Vec<&Pairs> = self.readings.iter().filter(|old| newest.raw - old.raw <= RATE_SPAN_NS).collect();
        // Differences first: absolute times are large.
        let points = near.iter().map(|at| {
            let passed = at.raw - newest.raw;
            (passed as f64, (at.system - newest.system - passed) as f64)
        });
        let points: Vec<(f64, f64)> = points.collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        if spread <= 0.0 {
            return None;
        }
        let slope = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let left: f64 = points.iter().map(|point| (point.1 - y - slope * (point.0 - x)).powi(2)).sum();
        let widest = near.iter().map(|at| at.error).max().unwrap_or(0) as f64;
        // What the line leaves is the noise of readings; where there are few, a reading is anywhere in its bracket.
        let reading_sigma =
            if near.len() >= READINGS_TO_JUDGE { (left / (count - 2.0)).sqrt() } else { widest / 3.0_f64.sqrt() };
        let reading_sigma = reading_sigma.max(READING_SIGMA_MIN_NS);
        Some(SystemRate { ppm: slope * 1e6, sigma_ppm: reading_sigma / spread.sqrt() * 1e6, reading_sigma })
    }
}

/// How the system clock goes.
struct SystemRate {
    /// By how much it is faster than the raw clock.
    ppm: f64,
    sigma_ppm: f64,
    /// Standard deviation of one reading, ns.
    reading_sigma: f64,
}

/// From a decision to change what is shown until it changes: longer than a thread usually waits for a processor, and short against a window.
const LEAD: Duration = Duration::from_ms(20);
/// A map is not shown any more when less than this is left of that.
const LATEST: Duration = Duration::from_ms(5);
const PUBLISH_ATTEMPTS: usize = 5;
/// Enough for the rate of the system clock, and for windows that were decided late.
const READINGS_MAX: usize = 16;
/// A rate is that of the last seconds: daemons change it.
const RATE_SPAN_NS: i64 = 10_000_000_000;
/// So many leave something beside a line.
const READINGS_TO_JUDGE: usize = 5;
/// A line may fit a few readings by chance.
const READING_SIGMA_MIN_NS: f64 = 3.0;
/// A change of the system clock's rate that its watch may miss (`sys::discipline`).
const UNSEEN_SLEW_PPM: f64 = 3.0;
/// The next estimate is due within so many windows, and
const FRESH_WINDOWS: i64 = 3;
/// so long besides.
const FRESH_NS: i64 = 2_000_000_000;
