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

use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_global_clock::{Estimate, Map, Pairs, Rate, Source, Status};
use probe_sync_sys::host;
use probe_sync_time::{Clock, Counter, Duration, NodeId, SkewedClock, System, TimeNamespace, Timestamp};

use super::above::Above;
use super::counter::{HostCounter, pairs, source, usable};
use super::forecast::{FRESH_NS, FRESH_WINDOWS, Forecast, Point, UNSEEN_SLEW_PPM};
use super::{Adjust, GlobalClock, Pages};
use crate::Error;
use crate::config::{ClockCounter, Config};

/// What keeps the clock of one rank right.
#[derive(Debug)]
pub(crate) struct Feed {
    clocks: Vec<GlobalClock>,
    /// The page of other processes.
    shared: Option<SharedPagePath>,
    counter: HostCounter,
    namespace: TimeNamespace,
    /// Says why the counter cannot be used any more.
    usable: fn() -> Result<(), String>,
    given_up: bool,
    node: NodeId,
    /// The node's virtual clock, or the identity.
    virtual_clock: SkewedClock,
    adjust: Adjust,
    /// Readings of undisturbed time, the newest last.
    readings: VecDeque<Pairs>,
    /// Set anew when the system clock was disturbed.
    steady_since: i64,
    /// The round's reference is a region's, and readers are shown that of all regions.
    in_region: bool,
    forecast: Forecast,
    map: Map,
}

/// Where other processes find the clock, and whose it is.
#[derive(Debug)]
struct SharedPagePath {
    path: PathBuf,
    /// The node whose clocks it is made of, and the one that it shows.
    shown: (NodeId, NodeId),
    /// How often somebody has removed it.
    removed: u64,
}

impl Feed {
    /// For the pages that are wanted; None where none is. `node` is this rank's, and the pages say
    /// that they are made by the first of `shown` and show the second.
    ///
    /// # Errors
    /// When a page cannot be made.
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

    /// Reads the clocks: in the middle of a window, where its offset will hold.
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

    /// Takes a solved round in; in a region with what was broadcast with it of the reference of
    /// all, without which it says nothing.
    pub fn follow(&mut self, round: &GlobalWindowData, above: Option<&Above>) {
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

    /// Nothing comes any more, in order or because the session failed: readers see that, and bounds
    /// that grow.
    pub fn end(&mut self, failed: bool) {
        if self.counter_holds() && self.map.status != Status::Unsynchronised {
            let status = if failed { Status::Failed } else { Status::Holdover };
            let last = Map { status, ..self.map };
            self.publish(&last, self.counter.now() + LEAD);
        }
    }

    /// How often the page of other processes was removed, under its name, where that has happened.
    pub fn removed_page(&self) -> Option<(&Path, u64)> {
        let shared = self.shared.as_ref().filter(|shared| shared.removed > 0)?;
        Some((&shared.path, shared.removed))
    }

    /// Makes the page of other processes anew where somebody has removed it, as systemd's RemoveIPC
    /// does. Who has it open goes on to read the removed one, which is kept right as well.
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

    /// Whether the counter still is one. Where it is not, readers are told at once: a wrong bound
    /// is worse than none.
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

    /// Shows the map everywhere; false where it is too late.
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

    /// What the round says of the counter and the reference; None where it says nothing.
    fn point(&self, round: &GlobalWindowData) -> Option<(Point, Pairs)> {
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

    /// How a clock goes against the counter, by a line through the readings.
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

/// How a clock goes.
struct RateOf {
    /// By how much it is faster than the counter.
    ppm: f64,
    sigma_ppm: f64,
    /// Standard deviation of one reading, ns.
    reading_sigma: f64,
}

/// From a decision to change what is shown until it changes: longer than a thread usually waits for
/// a processor, and short against a window.
const LEAD: Duration = Duration::from_ms(20);
/// A map is not shown any more when less than this is left of that.
const LATEST: Duration = Duration::from_ms(5);
const PUBLISH_ATTEMPTS: usize = 5;
/// Pages that are kept right: this process's own, that of others, and the last of those that were
/// removed.
const PAGES_MAX: usize = 8;
/// Enough for the rate of the system clock, and for windows that were decided late.
const READINGS_MAX: usize = 16;
/// A rate is that of the last seconds: daemons change it.
const RATE_SPAN_NS: i64 = 10_000_000_000;
/// So many leave something beside a line.
const READINGS_TO_JUDGE: usize = 5;
/// A line may fit a few readings by chance.
const READING_SIGMA_MIN_NS: f64 = 3.0;
/// A bound that excludes nothing: a century.
const ANYTHING: i64 = i64::MAX / 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClockCounter;

    /// A host whose kernel gives the counter up cannot be had: this is what the feed is told then.
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
