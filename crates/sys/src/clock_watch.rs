//! Detects steps and slews of the system clock.
//!
//! The node supplies about ten pairs of (system, `CLOCK_MONOTONIC_RAW`) readings per window and
//! asks at the window's end; an event marks the window. The module is pure and reads no clock.
//!
//! Between two pairs the system clock gains `g = Δsystem − Δraw`, of which the brackets of the
//! readings leave `n = (bracket₁ + bracket₂)/2` uncertain. A clock of constant rate r has
//! `g = r·Δraw`; r may be anything up to ± some hundred ppm. Only changes count:
//! - **Step**: g lies further than [`STEP_LIMIT_NS`] + uncertainty outside of what the rates just
//!   before and just after explain. An interval in which a slew begins has a rate between the two,
//!   and is not taken for a step.
//! - **Slew**: with steps taken out, the rate over a block of at least [`BLOCK_NS`] differs from
//!   the rate at the end of the window before by more than [`SLEW_LIMIT_PPM`] + uncertainty.
//!
//! By hand, brackets 100 ns, pairs every 100 ms at 20 ppm: each interval gains 2000 ± 100 ns. One
//! that gains 7000 holds a step of 5000 ns. Two in a row that gain 2500 are a slew of +5 ppm.
//!
//! The limits: reads through the vDSO have brackets of 50 to 100 ns, so a block of 100 ms shows its
//! rate to 1 ppm. NTP daemons in their steady state change the rate by much less than 1 ppm from
//! window to window.
//!
//! A rate that changes by less than the limit from window to window is ordinary drift of the clock,
//! which the estimators follow. `discipline` finds out which program steers the clock.

use probe_sync_time::{Duration, Raw, System, Timestamp};
use serde::Serialize;

/// A disturbance of the system clock.
#[derive(Copy, Clone, Debug, PartialEq, Serialize)]
pub struct ClockEvent {
    /// The sum of sudden changes, ns; 0 if only the rate changed.
    pub step_ns: i64,
    /// The largest change of rate, ppm; 0 if it did not change.
    pub slew_ppm: f64,
    /// When the first of them was seen, ns on the system clock (after the change).
    pub at_ns: i64,
    /// The last reading before the first sudden change and the first one after the last, ns.
    pub step_between_ns: Option<[i64; 2]>,
}

/// Watches the system clock against `CLOCK_MONOTONIC_RAW`.
#[derive(Clone, Debug, Default)]
pub struct ClockWatch {
    /// The current window; the first point is the last of the window before.
    points: Vec<Point>,
    /// The rate at the end of the window before, ns gained per ns.
    rate: Option<f64>,
    /// Points closer than this to the one before are left out.
    spacing_ns: i64,
    discarded: u64,
}

impl ClockWatch {
    /// Creates a watch without readings.
    pub fn new() -> Self {
        Self { spacing_ns: SPACING_NS, ..Self::default() }
    }

    /// Adds a pair of readings; `bracket` as in [`crate::Pair`]. Pairs with a bracket wider than
    /// `BRACKET_MAX_NS` are discarded, as are pairs in quick succession.
    pub fn observe(&mut self, system: Timestamp<System>, raw: Timestamp<Raw>, bracket: Duration) {
        let point = Point { system_ns: system.as_ns(), raw_ns: raw.as_ns(), bracket_ns: bracket.as_ns() };
        if !(0..=BRACKET_MAX_NS).contains(&point.bracket_ns) {
            self.discarded += 1;
            return;
        }
        if self.points.last().is_some_and(|last| point.raw_ns.saturating_sub(last.raw_ns) < self.spacing_ns) {
            return;
        }
        if self.points.len() == POINTS_MAX {
            // A very long window: every other point will do.
            let mut index = 0;
            self.points.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.spacing_ns *= 2;
        }
        self.points.push(point);
    }

    /// Whether the clock has just been stepped by more than any rate explains, which a run must
    /// learn before the window ends. Smaller steps are found at its end.
    ///
    /// Example: between two readings 250 ms apart a clock that is wrong by 1000 ppm gains 250 µs;
    /// one that gains more than 350 µs was stepped.
    pub fn large_step(&self) -> bool {
        let [.., before, last] = &self.points[..] else { return false };
        let interval = Interval::between(&[*before, *last]);
        interval.gain_ns.abs() > LARGE_STEP_NS + RATE_MAX * interval.length_ns
    }

    /// Ends the window and returns what happened in it. `None` also if there were fewer than two
    /// pairs.
    pub fn take_event(&mut self) -> Option<ClockEvent> {
        let mut intervals: Vec<Interval> = self.points.windows(2).map(Interval::between).collect();
        let last = *self.points.last()?;
        self.points.clear();
        self.points.push(last);
        self.spacing_ns = SPACING_NS;
        let step = take_steps(&mut intervals, self.rate);
        let slew = self.follow_rate(&blocks(&intervals));
        match (step, slew) {
            (None, None) => None,
            (step, slew) => Some(ClockEvent {
                step_ns: step.map_or(0, |step| step.size_ns.round() as i64),
                slew_ppm: slew.map_or(0.0, |slew| slew.change * 1e6),
                at_ns: [step.map(|step| step.at_ns), slew.map(|slew| slew.at_ns)].into_iter().flatten().min()?,
                step_between_ns: step.map(|step| step.between_ns),
            }),
        }
    }

    /// Pairs left out because they took too long to read.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Compares the rates of the blocks with the rate known before, and remembers the newest.
    fn follow_rate(&mut self, blocks: &[Interval]) -> Option<Slew> {
        let latest = blocks.last()?.rate();
        let known = self.rate.unwrap_or_else(|| median(blocks.iter().map(Interval::rate)).unwrap_or(latest));
        let change = |block: &Interval| block.rate() - known;
        let changed = |block: &&Interval| change(block).abs() > SLEW_LIMIT_PPM * 1e-6 + block.rate_uncertainty();
        // A sudden change below the limit of a step must not count as a slew for having hit a short
        // block.
        let moved_ns: f64 = blocks.iter().filter(changed).map(|block| (change(block) * block.length_ns).abs()).sum();
        let largest = blocks.iter().filter(changed).max_by(|a, b| change(a).abs().total_cmp(&change(b).abs()));
        let slew = largest
            .filter(|block| moved_ns > STEP_LIMIT_NS + block.uncertainty_ns)
            .map(|block| Slew { change: change(block), at_ns: block.between_ns[1] });
        // In a quiet window several blocks know the rate better than one.
        let settled = median(blocks.iter().rev().take(SETTLED_BLOCKS).map(Interval::rate)).unwrap_or(latest);
        self.rate = Some(if slew.is_some() { latest } else { settled });
        slew
    }
}

#[derive(Copy, Clone, Debug)]
struct Point {
    system_ns: i64,
    raw_ns: i64,
    bracket_ns: i64,
}

/// What the system clock gained over an interval.
#[derive(Copy, Clone, Debug)]
struct Interval {
    /// By `CLOCK_MONOTONIC_RAW`; positive.
    length_ns: f64,
    gain_ns: f64,
    uncertainty_ns: f64,
    /// Start and end, on the system clock.
    between_ns: [i64; 2],
}

impl Interval {
    fn between(points: &[Point]) -> Self {
        let (a, b) = (points[0], points[points.len() - 1]);
        let length_ns = b.raw_ns.saturating_sub(a.raw_ns);
        let gain_ns = b.system_ns.saturating_sub(a.system_ns).saturating_sub(length_ns);
        Self {
            length_ns: length_ns as f64,
            gain_ns: gain_ns as f64,
            // A nanosecond for each reading's rounding.
            uncertainty_ns: (a.bracket_ns.saturating_add(b.bracket_ns)) as f64 / 2.0 + 2.0,
            between_ns: [a.system_ns, b.system_ns],
        }
    }

    fn rate(&self) -> f64 {
        self.gain_ns / self.length_ns
    }

    fn rate_uncertainty(&self) -> f64 {
        self.uncertainty_ns / self.length_ns
    }

    /// Joins this interval and the one after it. Uncertainties of inner ends cancel, so the larger
    /// one stands for both.
    fn join(&self, next: &Self) -> Self {
        Self {
            length_ns: self.length_ns + next.length_ns,
            gain_ns: self.gain_ns + next.gain_ns,
            uncertainty_ns: self.uncertainty_ns.max(next.uncertainty_ns),
            between_ns: [self.between_ns[0], next.between_ns[1]],
        }
    }
}

#[derive(Copy, Clone, Debug)]
struct Step {
    size_ns: f64,
    /// When the first was seen.
    at_ns: i64,
    between_ns: [i64; 2],
}

#[derive(Copy, Clone, Debug)]
struct Slew {
    change: f64,
    at_ns: i64,
}

/// Finds the steps, removes them from the intervals, and returns their sum.
fn take_steps(intervals: &mut [Interval], known: Option<f64>) -> Option<Step> {
    let mut found: Option<Step> = None;
    for index in 0..intervals.len() {
        let (earlier, rest) = intervals.split_at(index);
        let (interval, later) = (rest[0], &rest[1..]);
        // Earlier intervals have their steps taken out already; among the later ones the median
        // ignores one.
        let before = surrounding(earlier.iter().rev()).or(known.map(|rate| (rate, 0.0)));
        let after = surrounding(later.iter());
        let Some((before, after)) = before.or(after).zip(after.or(before)) else { continue };
        let uncertainty_ns = interval.uncertainty_ns + before.1.max(after.1) * interval.length_ns;
        let explained = [before.0, after.0].map(|rate| rate * interval.length_ns);
        let (low, high) = (explained[0].min(explained[1]), explained[0].max(explained[1]));
        let excess = interval.gain_ns - interval.gain_ns.clamp(low, high);
        if excess.abs() > STEP_LIMIT_NS + uncertainty_ns {
            intervals[index].gain_ns -= excess;
            let [_, end_ns] = interval.between_ns;
            let step = found.get_or_insert(Step { size_ns: 0.0, at_ns: end_ns, between_ns: interval.between_ns });
            step.size_ns += excess;
            step.between_ns[1] = end_ns;
        }
    }
    found
}

/// Median rate of the nearest intervals on one side, and its uncertainty.
fn surrounding<'a>(nearest: impl Iterator<Item = &'a Interval>) -> Option<(f64, f64)> {
    let nearest: Vec<&Interval> = nearest.take(NEIGHBOURS).collect();
    let rate = median(nearest.iter().map(|interval| interval.rate()))?;
    let uncertainty = median(nearest.iter().map(|interval| interval.rate_uncertainty()))?;
    Some((rate, uncertainty))
}

/// Joins intervals until each is long enough to judge a rate; a remainder joins the last.
fn blocks(intervals: &[Interval]) -> Vec<Interval> {
    let mut blocks: Vec<Interval> = Vec::new();
    let mut open: Option<Interval> = None;
    for interval in intervals {
        let joined = open.map_or(*interval, |open| open.join(interval));
        if joined.length_ns >= BLOCK_NS as f64 && joined.rate_uncertainty() <= RATE_UNCERTAINTY_MAX {
            blocks.push(joined);
            open = None;
        } else {
            open = Some(joined);
        }
    }
    if let (Some(rest), Some(last)) = (open, blocks.last_mut()) {
        *last = last.join(&rest);
    }
    blocks
}

/// The median; the lower of the two middle values for an even count.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// Smallest sudden change that counts, ns, in addition to the uncertainty of the readings.
const STEP_LIMIT_NS: f64 = 1_000.0;

/// Smallest sudden change that is reported at once, ns, in addition to what a rate of up to
/// [`RATE_MAX`] explains.
const LARGE_STEP_NS: f64 = 100_000.0;
const RATE_MAX: f64 = 1e-3;

/// Smallest change of rate that counts, ppm, in addition to the uncertainty of the readings.
const SLEW_LIMIT_PPM: f64 = 2.0;

/// Shortest time over which a rate is judged, ns.
const BLOCK_NS: i64 = 100_000_000;

/// A wider bracket means that the reading thread was interrupted, ns.
const BRACKET_MAX_NS: i64 = 5_000;

/// Largest uncertainty of a block's rate; a block grows until it is reached.
const RATE_UNCERTAINTY_MAX: f64 = 1e-6;
const SPACING_NS: i64 = 5_000_000;
const POINTS_MAX: usize = 4096;
const SETTLED_BLOCKS: usize = 5;
/// Number of intervals on either side that determine the rate around an interval.
const NEIGHBOURS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// A system clock over raw time: rate in ppm from a raw instant on, and steps. Times in ms.
    struct Scenario {
        rates: Vec<(i64, f64)>,
        steps: Vec<(i64, i64)>,
        bracket_ns: i64,
        /// Number of readings after which the thread is interrupted in the middle of one.
        interrupted_every: usize,
    }

    #[test]
    fn large_steps_show_at_once_and_rates_never() {
        let clock = |rates: &[(i64, f64)], steps: &[(i64, i64)]| Scenario {
            rates: rates.to_vec(),
            steps: steps.to_vec(),
            ..STEADY
        };
        // Whether a reading after the change sees it, and the next one still does.
        let check = |clock: Scenario, expected: [bool; 2]| {
            let mut watch = ClockWatch::new();
            let mut seen = Vec::new();
            for raw_ms in [0, 250, 500, 750] {
                let raw_ns = raw_ms * 1_000_000;
                let (system, raw) = (Timestamp::from_ns(clock.system_ns(raw_ns)), Timestamp::from_ns(raw_ns));
                watch.observe(system, raw, Duration::from_ns(100));
                seen.push(watch.large_step());
            }
            assert_eq!(seen, [false, false, expected[0], expected[1]]);
        };
        check(clock(&[], &[(400, 1_000_000)]), [true, false]);
        check(clock(&[], &[(400, -400_000)]), [true, false]);
        check(clock(&[], &[(400, 300_000)]), [false, false]);
        check(clock(&[(0, 0.0), (400, 500.0)], &[]), [false, false]);
    }

    const STEADY: Scenario = Scenario { rates: Vec::new(), steps: Vec::new(), bracket_ns: 100, interrupted_every: 0 };

    impl Scenario {
        fn system_ns(&self, raw_ns: i64) -> i64 {
            let mut gain = 0.0;
            for (index, &(from_ms, ppm)) in self.rates.iter().enumerate() {
                let until = self.rates.get(index + 1).map_or(i64::MAX, |next| next.0 * 1_000_000);
                gain += (raw_ns.min(until) - from_ms * 1_000_000).max(0) as f64 * ppm * 1e-6;
            }
            let steps: i64 = self.steps.iter().filter(|step| raw_ns >= step.0 * 1_000_000).map(|step| step.1).sum();
            1_795_187_183_000_000_000 + raw_ns + gain.round() as i64 + steps
        }

        /// Events of `windows` windows of 2 s with a pair every 50 ms.
        fn events(&self, windows: i64) -> Vec<Option<ClockEvent>> {
            let mut watch = ClockWatch::new();
            let mut random = 1u64;
            let mut reading = 0;
            let mut window = |index: i64| {
                for pair in 0..40 {
                    reading += 1;
                    // A linear congruential generator is enough to place a reading within its
                    // bracket.
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let slow = self.interrupted_every > 0 && reading % self.interrupted_every == 0;
                    let bracket = if slow { 60_000 } else { self.bracket_ns };
                    let raw = index * 2_000_000_000 + pair * 50_000_000;
                    let error = (random >> 33) as i64 % (bracket + 1) - bracket / 2;
                    let system = Timestamp::from_ns(self.system_ns(raw + error));
                    watch.observe(system, Timestamp::from_ns(raw), Duration::from_ns(bracket));
                }
                watch.take_event()
            };
            (0..windows).map(&mut window).collect()
        }
    }

    /// Checks which windows have an event, and its size.
    fn check(name: &str, scenario: &Scenario, windows: i64, expected: &[(usize, i64, f64)]) {
        let events = scenario.events(windows);
        let seen: Vec<(usize, ClockEvent)> =
            events.iter().enumerate().filter_map(|(index, event)| Some((index, (*event)?))).collect();
        assert_eq!(seen.len(), expected.len(), "{name}: {seen:?}");
        for ((window, event), &(expected_window, step_ns, slew_ppm)) in seen.iter().zip(expected) {
            assert_eq!(*window, expected_window, "{name}: {event:?}");
            assert!((event.step_ns - step_ns).abs() <= 250, "{name}: {event:?}");
            assert!((event.slew_ppm - slew_ppm).abs() <= 1.2, "{name}: {event:?}");
        }
    }

    #[test]
    fn steady_clocks_have_no_events() {
        for ppm in [0.0, 20.0, -499.0, 500.0] {
            check("steady", &Scenario { rates: vec![(0, ppm)], ..STEADY }, 50, &[]);
            let poor = Scenario { rates: vec![(0, ppm)], interrupted_every: 7, bracket_ns: 900, ..STEADY };
            check("interrupted readings", &poor, 50, &[]);
        }
        let creeping = (0..50).map(|window| (window * 2000, 30.0 + window as f64 * 0.5)).collect();
        check("a creeping rate", &Scenario { rates: creeping, ..STEADY }, 50, &[]);
    }

    #[test]
    fn steps_are_found_wherever_they_fall() {
        // In the first window, in the middle, right before and right after a window's end (its last
        // pair is at 1950).
        for (at_ms, window) in [(101, 0), (3000, 1), (3925, 1), (3951, 2), (4025, 2)] {
            for size in [5_000, -5_000, 1_000_000_000, -1_000_000_000] {
                let scenario = Scenario { rates: vec![(0, 480.0)], steps: vec![(at_ms, size)], ..STEADY };
                check(&format!("{size} ns at {at_ms} ms"), &scenario, 6, &[(window, size, 0.0)]);
            }
        }
    }

    #[test]
    fn the_limit_of_a_step_holds_on_both_sides() {
        let step = |size| Scenario { steps: vec![(3010, size)], ..STEADY };
        check("inside", &step(1_500), 4, &[(1, 1_500, 0.0)]);
        check("outside", &step(900), 4, &[]);
        // Coarse readings must not turn into steps, and a large step is seen through them.
        check("coarse, outside", &Scenario { bracket_ns: 4_000, ..step(2_000) }, 4, &[]);
        let events = Scenario { bracket_ns: 4_000, ..step(50_000) }.events(4);
        assert!(events[1].is_some_and(|event| (event.step_ns - 50_000).abs() <= 4_000), "{events:?}");
    }

    #[test]
    fn slews_are_found_and_told_from_steps() {
        let slew = |from_ms, ppm: f64| Scenario { rates: vec![(0, 40.0), (from_ms, 40.0 + ppm)], ..STEADY };
        // Reported once, in the window where it begins; the new rate is the clock's rate from then
        // on.
        check("from a window's start", &slew(3950, 5.0), 6, &[(2, 0, 5.0)]);
        check("in the middle", &slew(3000, -5.0), 6, &[(1, 0, -5.0)]);
        check("within an interval", &slew(3025, 450.0), 6, &[(1, 0, 450.0)]);
        check("inside the limit", &slew(3000, 4.0), 6, &[(1, 0, 4.0)]);
        check("outside the limit", &slew(3000, 1.0), 6, &[]);
        // adjtime(): 500 ppm for half a second, then as before.
        let burst = Scenario { rates: vec![(0, 40.0), (2720, 540.0), (3220, 40.0)], ..STEADY };
        check("a burst", &burst, 6, &[(1, 0, 500.0)]);
    }

    #[test]
    fn the_event_says_when() {
        let events = Scenario { steps: vec![(3010, 7_000)], ..STEADY }.events(2);
        let event = events[1].expect("a step");
        // The first pair after it.
        assert!((event.at_ns - STEADY.system_ns(3_050_000_000) - 7_000).abs() <= 100, "{event:?}");
        // The last pair before the first step, and the first after the last.
        let events = Scenario { steps: vec![(3010, 7_000), (3160, -2_000)], ..STEADY }.events(2);
        let [after, before] = events[1].and_then(|event| event.step_between_ns).expect("steps");
        assert!((after - STEADY.system_ns(3_000_000_000)).abs() <= 100, "{events:?}");
        assert!((before - STEADY.system_ns(3_200_000_000) - 5_000).abs() <= 100, "{events:?}");
        let slewed = Scenario { rates: vec![(0, 40.0), (3000, 35.0)], ..STEADY }.events(2);
        assert_eq!(slewed[1].map(|event| event.step_between_ns), Some(None));
    }

    #[test]
    fn odd_input_neither_panics_nor_grows() {
        let mut watch = ClockWatch::new();
        assert_eq!(watch.take_event(), None);
        for raw in [i64::MIN, 0, 0, i64::MAX, -1] {
            for system in [i64::MAX, i64::MIN, 0] {
                for bracket in [i64::MIN, -1, 0, i64::MAX] {
                    watch.observe(Timestamp::from_ns(system), Timestamp::from_ns(raw), Duration::from_ns(bracket));
                }
            }
            let _ = watch.take_event();
        }
        assert!(watch.discarded() > 0);
        let mut watch = ClockWatch::new();
        for pair in 0..20_000 {
            let at = pair * 10_000_000;
            let step = if pair >= 15_000 { 3_000 } else { 0 };
            watch.observe(Timestamp::from_ns(at + step), Timestamp::from_ns(at), Duration::from_ns(80));
            assert!(watch.points.len() <= POINTS_MAX);
        }
        assert_eq!(watch.take_event().map(|event| event.step_ns), Some(3_000));
    }
}
