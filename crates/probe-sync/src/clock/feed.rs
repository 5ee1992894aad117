//! Keeps the global clock accurate, from every solved round and from readings of this host's
//! counter and clocks.
//!
//! `round` passes it every solved round, and the midpoint of every window, at which it reads
//! counter and system clock together. The round gives the lead of this node's system clock over the
//! reference at M, and so the time that the system clock showed then; the readings give the counter
//! value when the system clock showed that time. Together they give a point from counter to
//! reference, which no later step of the system clock affects.
//!
//! A round in whose window this node's clock or the reference's was disturbed is left out: the
//! clock goes on as it was, and its bounds grow. Under `--inject-skew` the round speaks of the
//! node's virtual clock, which is undone here: the readings are of the real ones.
//!
//! Two nodes by hand. M = 10 000, and node 1 is 300 ahead: its system clock showed 10 300. It
//! showed 10 000 when the counter showed 4 000, and both go alike: the point is 4 300, reference 10
//! 000.
//!
//! Where the counter is the processor's and the kernel gives it up for its own clocks, nobody knows
//! any more what it counts: the clock is failed, with bounds that exclude nothing. That is looked
//! at twice a round, and by nobody when the session has ended.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use probe_sync_global_clock::{Estimate, Map, Pairs, Rate, Source, Status};
use probe_sync_lines::Round;
use probe_sync_sys::host;
use probe_sync_time::{Clock, Counter, Duration, NodeId, SkewedClock, System, TimeNamespace, Timestamp};

use super::above::Above;
use super::counter::{HostCounter, pairs, source, usable};
use super::forecast::{FRESH_NS, FRESH_WINDOWS, Forecast, Point, UNSEEN_SLEW_PPM};
use super::{Adjust, GlobalClock, Pages};
use crate::Error;
use crate::config::{ClockCounter, Config};

/// Keeps the clock of one rank up to date.
#[derive(Debug)]
pub(crate) struct Feed {
    clocks: Vec<GlobalClock>,
    /// The page for other processes.
    shared: Option<SharedPagePath>,
    counter: HostCounter,
    namespace: TimeNamespace,
    /// Returns why the counter cannot be used any longer.
    usable: fn() -> Result<(), String>,
    given_up: bool,
    node: NodeId,
    /// Virtual clock of the node, or the identity.
    virtual_clock: SkewedClock,
    adjust: Adjust,
    /// Readings since the last disturbance, newest last.
    readings: VecDeque<Pairs>,
    /// Reset when the system clock was disturbed.
    steady_since: i64,
    /// True if the round's reference is that of a region, while readers see the global one.
    in_region: bool,
    forecast: Forecast,
    map: Map,
}

/// Path and nodes of the page for other processes.
#[derive(Debug)]
struct SharedPagePath {
    path: PathBuf,
    /// Node of this host's clocks, and the node shown.
    shown: (NodeId, NodeId),
    /// How often the page was removed.
    removed: u64,
}

impl Feed {
    /// Creates a feed for the requested pages; `None` if there are none. `node` is this rank's
    /// node; the pages state the first node of `shown` as their source and the second as the one
    /// shown.
    ///
    /// # Errors
    /// Returns an error if a page cannot be created.
    pub fn new(
        pages: &Pages,
        config: &Config,
        (node, shown): (NodeId, (NodeId, NodeId)),
        virtual_clock: SkewedClock,
        in_region: bool,
    ) -> Result<Option<Self>, Error> {
        if pages.own.is_none() && pages.path.is_none() {
            return Ok(None);
        }
        let source = source(config.clock_counter)?;
        let own = pages.own.iter().inspect(|own| own.begin(shown.0, shown.1, source)).cloned();
        let shared =
            pages.path.as_deref().map(|path| GlobalClock::create(path, shown.0, shown.1, source)).transpose()?;
        let shared_path = pages.path.clone().map(|path| SharedPagePath { path, shown, removed: 0 });
        let namespace = host::time_namespace();
        let first = pairs(source, namespace);
        Ok(Some(Self {
            clocks: own.chain(shared).collect(),
            shared: shared_path,
            counter: HostCounter { source, namespace_ns: namespace.monotonic_ns },
            namespace,
            usable: match config.clock_counter {
                ClockCounter::Raw => || Ok(()),
                ClockCounter::Tsc => || usable(ClockCounter::Tsc),
            },
            given_up: false,
            node,
            virtual_clock,
            adjust: config.clock_adjust,
            readings: VecDeque::from([first]),
            steady_since: first.system,
            in_region,
            forecast: Forecast::new(config.max_wander_ppm),
            map: Map { source, ..Map::default() },
        }))
    }

    /// Reads the clocks: called in the middle of a window, for which its offset will hold.
    pub fn read_clocks(&mut self) {
        if !self.counter_holds() {
            return;
        }
        let now = pairs(self.counter.source, self.namespace);
        if self.readings.is_empty() {
            self.steady_since = now.system;
        }
        if self.readings.len() == READINGS_MAX {
            self.readings.pop_front();
        }
        self.readings.push_back(now);
    }

    /// Processes a solved round; in a region also the broadcast about the global reference, without
    /// which the round is ignored.
    pub fn follow(&mut self, round: &Round, above: Option<&Above>) {
        if !self.counter_holds() {
            return;
        }
        if round.clock_disturbed(self.node) {
            // What was read before says nothing of the clock as it is now.
            self.readings.clear();
            self.forecast.forget();
            return;
        }
        self.restore_page();
        let Some((point, pairs)) = self.point(round) else { return };
        let point = match above {
            Some(above) => above.lift(point),
            None if self.in_region => return,
            None => point,
        };
        let estimate = self.forecast.estimate(point);
        let expected = FRESH_WINDOWS * round.decision.next_window.as_ns().max(0) + FRESH_NS;
        for _ in 0..PUBLISH_ATTEMPTS {
            let now = self.counter.now();
            let from = now + LEAD;
            let Some(next) = self.map.follow(estimate, now.as_ns(), from.as_ns(), self.adjust) else { return };
            let next =
                Map { round: round.round_id.0, fresh_until: (now.as_ns()).saturating_add(expected), pairs, ..next };
            if self.publish(&next, from - LATEST) {
                return;
            }
        }
    }

    /// Marks the end of updates, normal or after a failure; readers see that, and growing bounds.
    pub fn end(&mut self, failed: bool) {
        if self.counter_holds() && self.map.status != Status::Unsynchronised {
            let status = if failed { Status::Failed } else { Status::Holdover };
            let last = Map { status, ..self.map };
            self.publish(&last, self.counter.now() + LEAD);
        }
    }

    /// Returns the path of the page for other processes and how often it was removed, if it was.
    pub fn removed_page(&self) -> Option<(&Path, u64)> {
        let shared = self.shared.as_ref().filter(|shared| shared.removed > 0)?;
        Some((&shared.path, shared.removed))
    }

    /// Recreates the page for other processes if it was removed, as systemd's RemoveIPC does.
    /// Processes that have it open keep reading the removed one, which is also kept up to date.
    fn restore_page(&mut self) {
        let Some(shared) = &mut self.shared else { return };
        if !std::fs::metadata(&shared.path).is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return;
        }
        let (node, reference) = shared.shown;
        let made = GlobalClock::create(&shared.path, node, reference, self.counter.source);
        if shared.removed == 0 {
            let outcome = made.as_ref().map_or_else(ToString::to_string, |_| "it was recreated".into());
            tracing::error!("the clock page {} was removed during the run; {outcome}", shared.path.display());
        }
        shared.removed += 1;
        let Ok(made) = made else { return };
        if self.clocks.len() >= PAGES_MAX {
            // The first is this process's own, or the oldest of those that were removed.
            self.clocks.remove(1);
        }
        if self.map.status != Status::Unsynchronised {
            made.page().publish(&self.map, || true);
        }
        self.clocks.push(made);
    }

    /// Returns true if the counter is still usable. Otherwise readers are told at once, because a
    /// wrong bound is worse than none.
    fn counter_holds(&mut self) -> bool {
        if let (false, Err(reason)) = (self.given_up, (self.usable)()) {
            tracing::error!("the global clock failed: {reason}");
            self.given_up = true;
            if self.map.status != Status::Unsynchronised {
                let estimate = Estimate { half95: ANYTHING, hard: [ANYTHING; 2], ..self.map.estimate };
                self.map = Map { status: Status::Failed, estimate, ..self.map };
                self.clocks.iter().for_each(|clock| _ = clock.page().publish(&self.map, || true));
            }
        }
        !self.given_up
    }

    /// Publishes the map on all pages; returns false if it is too late.
    fn publish(&mut self, map: &Map, latest: Timestamp<Counter>) -> bool {
        let Some((first, others)) = self.clocks.split_first() else { return true };
        let shown = first.page().publish(map, || self.counter.now() < latest);
        if shown {
            // What one page shows the others must show too; there is time enough left.
            others.iter().for_each(|clock| _ = clock.page().publish(map, || true));
            self.map = *map;
        }
        shown
    }

    /// Returns the relation between the counter and the reference in this round; `None` if it shows
    /// none.
    fn point(&self, round: &Round) -> Option<(Point, Pairs)> {
        let own = round.node(self.node).filter(|own| own.reachable && own.sigma_ns.is_finite())?;
        let middle = round.midpoint();
        let shown: Timestamp<System> = middle.of_reference_node() + Duration::from_ns_f64(own.offset_ns);
        let real = self.virtual_clock.invert(shown).as_ns();
        let nearest = self.readings.iter().min_by_key(|pairs| real.saturating_sub(pairs.system).saturating_abs())?;
        let RateOf { ppm: system_ppm, sigma_ppm, reading_sigma } = self.rate_of(|pairs| pairs.system)?;
        let away = real.saturating_sub(nearest.system);
        let window = round.window_end - round.window_start;
        if away.saturating_abs() > window.as_ns().max(0).saturating_add(FRESH_NS) {
            return None;
        }
        let away_error = away.saturating_abs() as f64 * UNSEEN_SLEW_PPM * 1e-6;
        let read_error = nearest.error as f64 + away_error + 1.0;
        // dReference/dCounter = dReal/dCounter · dVirtual/dReal / (dVirtual/dReference)
        let factor = |ppm: f64| 1.0 + ppm * 1e-6;
        let virtual_ppm = self.virtual_clock.rate_ppm(Timestamp::from_ns(real));
        let rate = factor(system_ppm) * factor(virtual_ppm) / factor(own.drift_ppm);
        let point = Point {
            counter: nearest.counter.saturating_add(away).saturating_sub(Rate::from_ppm(system_ppm).over(away)),
            reference: middle.as_ns(),
            rate_ppm: (rate - 1.0) * 1e6,
            sigma: [own.sigma_ns.hypot(reading_sigma) + away_error, own.drift_sigma_ppm.hypot(sigma_ppm)],
            // offset ≤ bound_hi means reference ≥ shown − bound_hi, which is M − (bound_hi −
            // offset).
            hard: [own.bound_hi_ns - own.offset_ns, own.offset_ns - own.bound_lo_ns].map(|ns| ns.max(0.0) + read_error),
        };
        let raw_ppm = if self.counter.source == Source::Raw { 0.0 } else { self.rate_of(|pairs| pairs.raw)?.ppm };
        let [rate, raw_rate] = [system_ppm, raw_ppm].map(Rate::from_ppm);
        let pairs = Pairs { rate, raw_rate, steady_since: self.steady_since, ..*nearest };
        Some((point, pairs))
    }

    /// Returns the rate of a clock relative to the counter, from a line fitted to the readings.
    fn rate_of(&self, clock: fn(&Pairs) -> i64) -> Option<RateOf> {
        let newest = self.readings.back()?;
        let near: Vec<&Pairs> =
            self.readings.iter().filter(|old| newest.counter - old.counter <= RATE_SPAN_NS).collect();
        // Differences first: absolute times are large.
        let points = near.iter().map(|at| {
            let passed = at.counter - newest.counter;
            (passed as f64, (clock(at) - clock(newest) - passed) as f64)
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
        // What the line leaves is the noise of readings; where there are few, a reading is anywhere
        // in its bracket.
        let reading_sigma =
            if near.len() >= READINGS_TO_JUDGE { (left / (count - 2.0)).sqrt() } else { widest / 3.0_f64.sqrt() };
        let reading_sigma = reading_sigma.max(READING_SIGMA_MIN_NS);
        Some(RateOf { ppm: slope * 1e6, sigma_ppm: reading_sigma / spread.sqrt() * 1e6, reading_sigma })
    }
}

/// Rate of a clock.
struct RateOf {
    /// Rate relative to the counter, ppm.
    ppm: f64,
    sigma_ppm: f64,
    /// Standard deviation of one reading, ns.
    reading_sigma: f64,
}

/// Time from a decision to change the published map until the change takes effect: longer than a
/// thread usually waits for a processor, and short compared with a window.
const LEAD: Duration = Duration::from_ms(20);
/// A map is no longer published if less than this is left of that time.
const LATEST: Duration = Duration::from_ms(5);
const PUBLISH_ATTEMPTS: usize = 5;
/// Most pages kept up to date: this process's own, the one for others, and recently removed ones.
const PAGES_MAX: usize = 8;
/// Enough readings for the rate of the system clock, and for late decisions.
const READINGS_MAX: usize = 16;
/// Span of the rate estimate; short, because daemons change the rate.
const RATE_SPAN_NS: i64 = 10_000_000_000;
/// Fewest readings from which residuals of a line are judged.
const READINGS_TO_JUDGE: usize = 5;
/// Lower limit, because a line may fit a few readings by chance.
const READING_SIGMA_MIN_NS: f64 = 3.0;
/// A bound that excludes nothing: about a century.
const ANYTHING: i64 = i64::MAX / 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClockCounter;

    /// A host whose kernel rejects the counter cannot be simulated; this is what the feed is told
    /// in that case.
    #[test]
    fn a_counter_that_the_kernel_gives_up_fails_the_clock_at_once() {
        let config = Config { clock_counter: ClockCounter::Raw, ..Config::default() };
        let pages = Pages { own: Some(GlobalClock::new().expect("a page")), path: None };
        let clock = pages.own.clone().expect("as made");
        let feed = Feed::new(&pages, &config, (NodeId(1), (NodeId(1), NodeId(0))), SkewedClock::default(), false);
        let mut feed = feed.expect("a page").expect("one is wanted");
        let estimate = feed.forecast.estimate(Point {
            counter: feed.counter.now().as_ns(),
            reference: 1 << 60,
            rate_ppm: 0.0,
            sigma: [10.0, 0.01],
            hard: [700.0; 2],
        });
        let map = Map { fresh_until: i64::MAX, ..Map::first(estimate) };
        assert!(feed.publish(&map, feed.counter.now() + LEAD));
        feed.read_clocks();
        let before = clock.now().expect("it is known");
        assert_eq!((before.status, feed.readings.len()), (Status::Synchronised, 2));
        feed.usable = || Err("the kernel's clocksource is hpet, not tsc".into());
        feed.read_clocks();
        let after = clock.now().expect("it is shown");
        assert_eq!((after.status, feed.readings.len()), (Status::Failed, 2));
        assert!(after.time >= before.time && after.time - before.time < Duration::from_ms(60_000));
        assert!(after.bound95.as_ns() >= ANYTHING && after.earliest.as_ns() < 0 && after.latest.as_ns() > 2 << 60);
        assert!(!clock.after(Timestamp::from_ns(0)) && !clock.before(Timestamp::from_ns(2 << 60)));
        // It stays so, whatever comes.
        feed.usable = || Ok(());
        feed.end(false);
        assert_eq!(clock.status(), Status::Failed);
    }
}
