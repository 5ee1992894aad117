//! The time that the global clock shows: a chain of lines that never goes backwards, the estimate
//! that it follows, and bounds around both.
//!
//! Every solved round gives an [`Estimate`]; [`Map::follow`] makes the next map from the previous
//! one and this estimate; readers call [`Map::reading`] and [`Map::interval`].
//!
//! **Slewing.** A new estimate differs from what the clock shows by some ns. From an instant a
//! little ahead on (`from`), what is shown runs faster or slower than the estimate by [`SLEW_PPM`],
//! until both meet. The map that is written holds the lines of the former map up to `from` too:
//! whichever of the two a reader has, it shows the same before. So nothing goes back, in any
//! thread, as long as the new map is there before `from`; the writer looks at the clock last of all
//! ([`crate::Page::publish`]).
//!
//! **Bounds.** The estimate E holds at one instant of the counter, with a hard interval and a 95 %
//! half-width there, and each grows with the distance in time from it. `earliest` and `latest` are
//! E's hard interval, widened to what is shown where the clock is still slewing; the 95 %
//! half-width about what is shown is that of E plus the distance that is left.
//!
//! By hand. The clock shows 1 000 ns more than the new estimate, whose hard interval is ± 700 ns.
//! At 500 ppm it takes 2 ms to come down. At the beginning of that: time = E + 1 000, earliest = E
//! − 700, latest = E + 1 000. In the middle: time = E + 500, latest = E + 700.

use probe_sync_time::{Counter, Duration, Reference, Timestamp};

use crate::line::{Line, Rate};
use crate::source::Source;

/// The reference time as estimated at one instant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Counter and reference time at that instant, and the reference's rate.
    pub line: Line,
    /// Half-width of the 95 % interval at that instant, ns.
    pub half95: i64,
    /// Growth of `half95`.
    pub growth95: Rate,
    /// Hard interval at that instant: distances below and above the line, ns.
    pub hard: [i64; 2],
    /// Growth of each side of the hard interval.
    pub hard_growth: Rate,
}

/// Simultaneous readings of the host's clocks, and the rate of the system clock.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs {
    /// Counter of the map.
    pub counter: i64,
    /// `CLOCK_MONOTONIC_RAW`; equal to `counter` if the map is based on that.
    pub raw: i64,
    /// `CLOCK_REALTIME`.
    pub system: i64,
    /// `CLOCK_BOOTTIME`.
    pub boot: i64,
    /// Rate of the system clock, and thus of the boot clock, relative to the counter.
    pub rate: Rate,
    /// Rate of `CLOCK_MONOTONIC_RAW` relative to the counter: the error of the counter's scale.
    pub raw_rate: Rate,
    /// System time since which the system clock was not stepped.
    pub steady_since: i64,
    /// Bound of the readings' errors, ns.
    pub error: i64,
}

/// How the clock follows new estimates.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Adjust {
    /// Slew: never going backwards, at most [`SLEW_PPM`] faster or slower than the estimate.
    #[default]
    Slew,
    /// Step at once; the epoch counts the steps.
    Step,
}

/// State of the clock.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nothing is known yet.
    #[default]
    Unsynchronised,
    /// New estimates arrive.
    Synchronised,
    /// An estimate is overdue, or the run has ended: the bounds grow.
    Holdover,
    /// The measurement failed: the bounds grow.
    Failed,
}

impl Status {
    /// Returns the status as a word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unsynchronised => "unsynchronised",
            Self::Synchronised => "synchronised",
            Self::Holdover => "holdover",
            Self::Failed => "failed",
        }
    }
}

/// Everything that readers need.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// Source of the counter.
    pub source: Source,
    /// Status set by the writer; [`Map::reading`] takes the elapsed time into account.
    pub status: Status,
    /// Number of steps of the clock.
    pub epoch: u64,
    /// Round of the estimate.
    pub round: u64,
    /// Counter value until which the next estimate is expected.
    pub fresh_until: i64,
    /// Lines of the time shown, each from its x on, in ascending order. The first one extends to
    /// −∞, the last one to +∞.
    pub knots: [Line; KNOTS],
    /// The estimate that is followed.
    pub estimate: Estimate,
    /// Readings for converting times of other clocks.
    pub pairs: Pairs,
}

/// A reading of the clock at an instant.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Time shown; never goes backwards within an epoch.
    pub time: Timestamp<Reference>,
    /// Earliest possible reference time.
    pub earliest: Timestamp<Reference>,
    /// Latest possible reference time.
    pub latest: Timestamp<Reference>,
    /// Half-width of the 95 % interval around `time`.
    pub bound95: Duration,
    /// Status of the clock.
    pub status: Status,
    /// Number of steps of the clock.
    pub epoch: u64,
}

/// A converted time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Estimated time; the time shown then may have been slewing towards it.
    pub time: Timestamp<Reference>,
    /// Earliest possible reference time.
    pub earliest: Timestamp<Reference>,
    /// Latest possible reference time.
    pub latest: Timestamp<Reference>,
    /// Half-width of the 95 % interval.
    pub bound95: Duration,
}

impl Default for Estimate {
    fn default() -> Self {
        let endless = Rate(i64::MAX);
        Self { line: Line::default(), half95: 0, growth95: endless, hard: [0; 2], hard_growth: endless }
    }
}

impl Estimate {
    /// Returns the reference time at a value of the counter, its bounds below and above, and its 95
    /// % half-width.
    #[inline]
    pub fn at(&self, counter: i64) -> (i64, [i64; 2], i64) {
        let away = counter.saturating_sub(self.line.x).saturating_abs();
        let grown = |start: i64, rate: Rate| start.saturating_add(rate.over_at_most(away).max(0));
        let hard = self.hard.map(|start| grown(start, self.hard_growth));
        (self.line.at(counter), hard, grown(self.half95, self.growth95))
    }

    /// Returns the interval of the reference time at a value of the counter that is known to within
    /// ± `error` ns.
    #[inline]
    fn interval(&self, counter: i64, error: i64) -> Interval {
        let (time, [below, above], half95) = self.at(counter);
        let around = |ns: i64| Timestamp::from_ns(ns);
        Interval {
            time: around(time),
            earliest: around(time.saturating_sub(below).saturating_sub(error)),
            latest: around(time.saturating_add(above).saturating_add(error)),
            bound95: Duration::from_ns(half95.saturating_add(error)),
        }
    }
}

/// Converts times of another clock of this host: it interpolates between the pairs of the map and
/// the present ones, and uses the map's rate before them. Uncertainty grows with the distance from
/// both.
#[derive(Copy, Clone, Debug)]
pub struct Converter {
    /// Line from that clock to the counter.
    known: Line,
    /// When the pairs were taken, on that clock.
    pairs: [i64; 2],
    /// Gain of the counter on the line between the pairs: in total, ns, and per ns.
    gained: [f64; 2],
    error: i64,
    /// Time before which conversions are meaningless.
    steady_since: i64,
    estimate: Estimate,
}

impl Converter {
    /// Returns the reference time when that clock showed `at`, ns; `None` if that clock was stepped
    /// since.
    #[inline]
    pub fn interval(&self, at: i64) -> Option<Interval> {
        (at >= self.steady_since).then(|| self.interval_of_steady(at))
    }

    /// Returns the reference time for a clock that is never stepped.
    #[inline]
    pub fn interval_of_steady(&self, at: i64) -> Interval {
        let away = self.pairs.map(|pair| at.saturating_sub(pair).saturating_abs());
        let [all, per_ns] = self.gained;
        let gained = (at.saturating_sub(self.pairs[0]) as f64 * per_ns).clamp(all.min(0.0), all.max(0.0));
        let counter = self.known.at(at).wrapping_add(gained as i64);
        let error = self.error.saturating_add(RATE_ERROR.over_at_most(away[0].min(away[1])));
        self.estimate.interval(counter, error)
    }
}

impl Map {
    /// Returns the time shown when the counter is `counter`.
    #[inline]
    pub fn time(&self, counter: i64) -> i64 {
        shown(counter, |knot| self.knots[knot])
    }

    /// Returns the time shown with its bounds and status.
    pub fn reading(&self, counter: Timestamp<Counter>) -> Reading {
        let counter = counter.as_ns();
        reading(self.status, self.epoch, self.fresh_until, self.time(counter), &self.estimate, counter)
    }

    /// Converts a past or future value of the counter by the present estimate.
    pub fn interval(&self, counter: Timestamp<Counter>) -> Interval {
        self.estimate.interval(counter.as_ns(), 0)
    }

    /// Returns a converter for this host's `CLOCK_MONOTONIC_RAW`, which is never stepped, if the
    /// map is based on another counter. `now` are readings of all clocks taken just now; `None` if
    /// the host was suspended since the pairs were taken.
    pub fn of_raw(&self, now: &Pairs) -> Option<Converter> {
        self.of_other(now, self.pairs.raw_rate, |pairs| pairs.raw)
    }

    /// Returns a converter for this host's system clock. `now` are readings of all clocks taken
    /// just now; `None` if the system clock was stepped since the pairs were taken, which makes its
    /// times meaningless.
    pub fn of_system(&self, now: &Pairs) -> Option<Converter> {
        let steady_since = self.pairs.steady_since;
        Some(Converter { steady_since, ..self.of_other(now, self.pairs.rate, |pairs| pairs.system)? })
    }

    /// Returns a converter for this host's `CLOCK_BOOTTIME`, which is never stepped; `None` if the
    /// host was suspended in between.
    pub fn of_boot(&self, now: &Pairs) -> Option<Converter> {
        self.of_other(now, self.pairs.rate, |pairs| pairs.boot)
    }

    /// Returns a converter for a clock with rate `rate` relative to the counter that may be slewed.
    fn of_other(&self, now: &Pairs, rate: Rate, of: impl Fn(&Pairs) -> i64) -> Option<Converter> {
        let rate = Rate(rate.0.saturating_neg());
        let known = Line { x: of(&self.pairs), y: self.pairs.counter, rate };
        let off = now.counter.wrapping_sub(known.at(of(now)));
        let apart = now.counter.saturating_sub(self.pairs.counter).max(1);
        // What a slewed clock gains that the map does not know; more is a step.
        let slewed = Rate::from_ppm(SLEWED_PPM).over_at_most(apart);
        if off.saturating_abs() > slewed.saturating_add(STEP_NS) {
            return None;
        }
        // When it gained that, between the two, is not known.
        let error = self.pairs.error.max(now.error).saturating_add(off.saturating_abs());
        let (pairs, gained) = ([of(&self.pairs), of(now)], [off as f64, off as f64 / apart as f64]);
        Some(Converter { known, pairs, gained, error, steady_since: i64::MIN, estimate: self.estimate })
    }

    /// Creates the first map, which shows the estimate unchanged.
    pub fn first(estimate: Estimate) -> Self {
        Self { status: Status::Synchronised, knots: [estimate.line; KNOTS], estimate, ..Self::default() }
    }

    /// Returns the map that follows `estimate` from `from` on; `None` while the last change has not
    /// taken effect at `now`.
    #[must_use]
    pub fn follow(&self, estimate: Estimate, now: i64, from: i64, adjust: Adjust) -> Option<Self> {
        if self.status == Status::Unsynchronised {
            return Some(Self { source: self.source, ..Self::first(estimate) });
        }
        // What is shown now, and what follows it before `from`.
        let active = self.knots[1..].iter().filter(|next| next.x <= now).count();
        let upcoming = self.knots[active..].iter().filter(|knot| knot.x <= from);
        let mut lines: Vec<Line> = upcoming.copied().collect();
        lines.dedup();
        if lines.len() > KNOTS - 2 {
            return None;
        }
        let target = estimate.line;
        let ahead = self.time(from).saturating_sub(target.at(from));
        if ahead == 0 || adjust == Adjust::Step {
            lines.push(Line { x: from, y: target.at(from), rate: target.rate });
        } else {
            let slew = Rate::from_ppm(SLEW_PPM).0 * -ahead.signum();
            let line = Line { x: from, y: self.time(from), rate: Rate(target.rate.0 + slew) };
            let lasts = (ahead.unsigned_abs() as f64 * 1e6 / SLEW_PPM).ceil().min(LONGEST_SLEW_NS) as i64;
            let met = from.saturating_add(lasts);
            // On the side of the slewing line, so that nothing goes back where they meet.
            let y = target.at(met).max(line.at(met));
            lines.extend([line, Line { x: met, y, rate: target.rate }]);
        }
        let last = *lines.last()?;
        let knots = std::array::from_fn(|knot| lines.get(knot).copied().unwrap_or(last));
        let stepped = u64::from(ahead != 0 && adjust == Adjust::Step);
        Some(Self { status: Status::Synchronised, epoch: self.epoch + stepped, knots, estimate, ..*self })
    }
}

/// Returns the time shown by the chain of lines; usually the last one applies.
#[inline]
pub(crate) fn shown(counter: i64, knot: impl Fn(usize) -> Line) -> i64 {
    let mut at = KNOTS - 1;
    let mut line = knot(at);
    while counter < line.x && at > 0 {
        at -= 1;
        line = knot(at);
    }
    line.at(counter)
}

/// Creates a reading from its parts.
#[inline]
pub(crate) fn reading(
    status: Status,
    epoch: u64,
    fresh_until: i64,
    time: i64,
    estimate: &Estimate,
    counter: i64,
) -> Reading {
    let (estimated, [below, above], half95) = estimate.at(counter);
    let left = time.saturating_sub(estimated).saturating_abs();
    Reading {
        time: Timestamp::from_ns(time),
        earliest: Timestamp::from_ns(estimated.saturating_sub(below).min(time)),
        latest: Timestamp::from_ns(estimated.saturating_add(above).max(time)),
        bound95: Duration::from_ns(half95.saturating_add(left)),
        status: if status == Status::Synchronised && counter > fresh_until { Status::Holdover } else { status },
        epoch,
    }
}

/// Rate at which the clock approaches a new estimate. NTP's clocks use the same limit.
pub const SLEW_PPM: f64 = 500.0;
/// Number of lines: the time shown before and its continuation up to `from`, the slew, the
/// estimate.
pub const KNOTS: usize = 4;
/// Longest slew: about a century.
const LONGEST_SLEW_NS: f64 = 3.2e18;
/// Largest rate at which a daemon slews the system clock.
const SLEWED_PPM: f64 = 510.0;
/// Steps below this cannot be distinguished from the readings' own errors.
const STEP_NS: i64 = 2_000;
/// Uncertainty of a rate that was measured over a second and may have changed slightly since.
const RATE_ERROR: Rate = Rate(((1_i64 << 60) as f64 * 2e-6) as i64);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::Scale;

    fn estimate(counter: i64, reference: i64, ppm: f64) -> Estimate {
        Estimate {
            line: Line { x: counter, y: reference, rate: Rate::from_ppm(ppm) },
            half95: 60,
            growth95: Rate::from_ppm(0.03),
            hard: [700, 700],
            hard_growth: Rate::from_ppm(1.0),
        }
    }

    const MS: i64 = 1_000_000;

    #[test]
    fn a_slew_by_hand() {
        let first = Map { fresh_until: 500 * MS, ..Map::first(estimate(0, 1_001_000, 0.0)) };
        assert_eq!(first.time(100 * MS), 101_001_000);
        // The new estimate is 1 000 ns lower.
        let next = first.follow(estimate(100 * MS, 101_000_000, 0.0), 100 * MS, 110 * MS, Adjust::Slew).expect("free");
        assert_eq!(next.time(109 * MS), 110_001_000);
        for (counter, expected) in [(110 * MS, 1_000), (111 * MS, 500), (112 * MS, 0), (120 * MS, 0)] {
            assert!((next.time(counter) - counter - MS - expected).abs() <= 1, "{counter} {}", next.time(counter));
        }
        let middle = next.reading(Timestamp::from_ns(111 * MS));
        let estimated = 112 * MS;
        assert_eq!(middle.earliest.as_ns(), estimated - 700 - 11);
        assert_eq!(middle.latest.as_ns(), estimated + 700 + 11);
        assert!((middle.bound95.as_ns() - 60 - 500).abs() <= 3);
        let beginning = next.reading(Timestamp::from_ns(110 * MS));
        assert_eq!(beginning.latest, beginning.time);
        assert_eq!((middle.status, middle.epoch), (Status::Synchronised, 0));
        assert_eq!(next.reading(Timestamp::from_ns(501 * MS)).status, Status::Holdover);
        // The next one must wait until this one has begun.
        assert_eq!(next.follow(estimate(0, 0, 0.0), 105 * MS, 115 * MS, Adjust::Slew), None);
        let stepped =
            next.follow(estimate(100 * MS, 100_000_000, 0.0), 130 * MS, 131 * MS, Adjust::Step).expect("free");
        assert_eq!((stepped.epoch, stepped.time(131 * MS)), (1, 131 * MS));
    }

    #[test]
    fn times_of_other_clocks_are_converted_or_refused() {
        let map = Map {
            pairs: Pairs {
                counter: 1_000,
                raw: 1_000,
                system: 5_000_000,
                boot: 2_000,
                rate: Rate(0),
                raw_rate: Rate(0),
                steady_since: 4_000_000,
                error: 30,
            },
            ..Map::first(estimate(0, 9_000_000, 0.0))
        };
        let later = |off: i64| Pairs {
            counter: 1_001_000,
            raw: 1_001_000,
            system: 6_000_000 + off,
            boot: 1_002_000,
            ..map.pairs
        };
        let of_system = |at, slewed| map.of_system(&later(slewed)).and_then(|of| of.interval(at));
        let found = of_system(5_500_000, 0).expect("in between");
        assert_eq!(found.time.as_ns(), 9_000_000 + 501_000);
        assert!(found.bound95.as_ns() >= 60 + 30);
        // Slewed by 400 ns in between: half of it in the middle.
        let found = of_system(5_500_200, 400).expect("slewed");
        assert_eq!(found.time.as_ns(), 9_000_000 + 501_000);
        assert_eq!(of_system(5_500_000, 5 * MS), None, "stepped since");
        assert_eq!(of_system(3_999_999, 0), None, "before the last step");
        let boot = map.of_boot(&later(5 * MS)).and_then(|of| of.interval(3_000)).expect("nobody steps it");
        assert_eq!(boot.time.as_ns(), 9_000_000 + 2_000);
    }

    #[test]
    fn the_raw_clock_is_converted_where_another_counter_is_read() {
        let source = Source::Tsc(Scale::ONE);
        let pairs = Pairs { counter: 7_000, raw: 1_000, raw_rate: Rate::from_ppm(10.0), error: 30, ..Pairs::default() };
        let map = Map { source, pairs, ..Map::first(estimate(7_000, 9_000_000, 0.0)) };
        let now = |off: i64| Pairs { counter: 7_000 + 1_000 * MS, raw: 1_000 + 1_000 * MS + off, error: 40, ..pairs };
        let of = |off, at| map.of_raw(&now(off)).map(|of| of.interval_of_steady(at));
        // It gains 10 000 ns in a second.
        let found = of(10_000, 1_000 + 500 * MS).expect("as expected");
        assert!((found.time.as_ns() - 9_000_000 - 500 * MS + 5_000).abs() <= 1, "{found:?}");
        assert!(found.bound95.as_ns() >= 60 + 40 + 1_000);
        assert_eq!(of(10_000, 1_000).expect("known").time.as_ns(), 9_000_000);
        // By 600 ns more than it was known to.
        let found = of(10_600, 1_000 + 1_000 * MS + 10_600).expect("within what is possible");
        assert!((found.time.as_ns() - 9_000_000 - 1_000 * MS).abs() <= 1, "{found:?}");
        assert!(found.bound95.as_ns() >= 60 + 40 + 600);
        assert_eq!(of(5 * MS, 1_000), None, "suspended since");
        let next = Map { status: Status::Unsynchronised, source, ..Map::default() };
        let next = next.follow(map.estimate, 0, 0, Adjust::Slew).expect("the first");
        assert_eq!(next.source, source);
    }

    proptest! {
        /// For all estimates, and whichever map a reader has, the time shown does not go backwards.
        #[test]
        fn time_never_goes_back(
            changes in prop::collection::vec((1_i64..400, -5_000_000_i64..5_000_000, -100.0..100.0_f64), 1..12),
            reads in prop::collection::vec(0_i64..2_000_000_000, 60),
        ) {
            const LEAD: i64 = 20 * MS;
            let mut maps = vec![(0, Map::first(estimate(0, 1 << 50, 3.0)))];
            let mut now = 0;
            for (wait_ms, off, ppm) in changes {
                now += wait_ms * MS;
                let (_, last) = maps.last().expect("the first");
                let target = estimate(now - 7 * MS, (1 << 50) + now + off, ppm);
                if let Some(next) = last.follow(target, now, now + LEAD, Adjust::Slew) {
                    // A reader may have the new map from now on, or the old one until `from`.
                    for counter in [now, now + 3, now + LEAD / 2, now + LEAD] {
                        prop_assert_eq!(next.time(counter), last.time(counter));
                    }
                    let reading = next.reading(Timestamp::from_ns(now + LEAD));
                    prop_assert!(reading.earliest <= reading.time && reading.time <= reading.latest);
                    maps.push((now, next));
                }
            }
            let mut reads = reads;
            reads.sort_unstable();
            let shown = reads.iter().map(|counter| maps.iter().rev().find(|(from, _)| from <= counter).expect("from 0").1.time(*counter));
            let shown: Vec<i64> = shown.collect();
            prop_assert!(shown.is_sorted());
            // And it reaches the last estimate.
            let (at, last) = maps.last().expect("the first");
            let late = at + 60_000 * MS;
            prop_assert!((last.time(late) - last.estimate.line.at(late)).abs() <= 1);
        }
    }
}
