//! An interface's own clock (PHC, `/dev/ptpN`) and the conversion of its stamps to the system
//! clock.
//!
//! `udp::stamping` converts each hardware stamp here; without a fresh conversion the stamp is not
//! used.
//!
//! The kernel reads system, PHC, system in one go (`PTP_SYS_OFFSET_EXTENDED`, several times; the
//! narrowest counts), which gives one point of `offset(t) = system − PHC`, wrong by at most half
//! the bracket. Points of the last second give the rate, and a stamp taken at PHC time t becomes
//! `t + offset(p) + rate·(t − p)` from the point p that leaves the least room for error:
//!
//! ```text
//! |error| ≤ half bracket(p) + |t − p|·rate error,   rate error = (half(first) + half(last)) / span + WANDER
//! ```
//!
//! That error is no noise: the bus is as slow in one direction in every reading, so neither more
//! packets nor more rounds average it out. Hence a bound that holds all through a run is stated
//! once ([`Phc::error_limit`]), for the hard bounds and sigma of whoever uses the stamps, and a
//! stamp whose conversion may be worse is not given.
//!
//! By hand: offset 500 at PHC time 0 and 510 at 100 000, brackets of 4 each, give a rate of 100
//! ppm, known to 43 ppm. A stamp at 120 000 is 120 000 + 510 + 2 = 120 512, and wrong by at most
//! 2 + 0.86.
//!
//! It does not discipline either clock, and it does not use a clock whose last point is older than
//! [`STALE_NS`]. It was written from the kernel's documentation without such a device: tests cover
//! the arithmetic with synthetic clocks, but not the request to the device.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use probe_sync_time::{Clock, Duration, Monotonic, System, Timestamp};

use crate::{Error, MonotonicClock};

/// An open PHC with its conversion.
pub(crate) struct Phc {
    read: Box<Reader>,
    map: PhcMap,
    sampled: Timestamp<Monotonic>,
    error_limit_ns: i64,
}

/// Consecutive readings, ns: system before, PHC, system after.
type Reader = dyn Fn() -> io::Result<Vec<[i64; 3]>> + Send;

impl Phc {
    /// Opens `/dev/ptp{index}` and takes the first points. Takes [`START_POINTS`]` − 1` times
    /// [`PERIOD`].
    pub(crate) fn open(index: u32) -> Result<Self, Error> {
        let path = format!("/dev/ptp{index}");
        let fail = |error: io::Error| Error::File { path: path.clone(), reason: error.to_string() };
        let device = File::open(&path).map_err(fail)?;
        Self::start(Box::new(move || readings(&device))).map_err(fail)
    }

    /// Takes the first points from `read`.
    pub(crate) fn start(read: Box<Reader>) -> io::Result<Self> {
        let mut phc = Self { read, map: PhcMap::default(), sampled: MonotonicClock.now(), error_limit_ns: 0 };
        let mut widest_ns = 0;
        for taken in 0..START_POINTS {
            if taken > 0 {
                std::thread::sleep(PERIOD.to_std());
            }
            phc.sampled = MonotonicClock.now();
            let point = phc.sample()?;
            widest_ns = widest_ns.max(point.half_ns);
            phc.map.observe(point);
        }
        if widest_ns > WIDEST_HALF_NS {
            return Err(io::Error::other(format!(
                "its clock can only be read to within ±{widest_ns} ns; kernel timestamps are more accurate"
            )));
        }
        phc.error_limit_ns = error_limit_ns(widest_ns);
        Ok(phc)
    }

    /// Takes another point if the last is older than [`PERIOD`]. A failure makes the conversion go
    /// stale.
    pub(crate) fn refresh(&mut self) {
        let now = MonotonicClock.now();
        if now - self.sampled < PERIOD {
            return;
        }
        self.sampled = now;
        if let Ok(point) = self.sample() {
            self.map.observe(point);
        }
    }

    /// Converts a timestamp of the interface to the system clock, wrong by at most
    /// [`Self::error_limit`]; `None` if that cannot be guaranteed.
    pub(crate) fn to_system(&self, phc_ns: i64) -> Option<Timestamp<System>> {
        let (at, error_ns) = self.map.to_system(phc_ns)?;
        (error_ns <= self.error_limit_ns as f64).then_some(at)
    }

    /// Largest error of every converted timestamp of this clock.
    pub(crate) fn error_limit(&self) -> Duration {
        Duration::from_ns(self.error_limit_ns)
    }

    fn sample(&self) -> io::Result<Point> {
        narrowest((self.read)()?.into_iter()).ok_or_else(|| io::Error::other("the clock could not be read"))
    }
}

/// Requests [`SAMPLES`] readings from the kernel.
fn readings(device: &File) -> io::Result<Vec<[i64; 3]>> {
    // SAFETY: the structure is plain data for which all zeroes is a valid value; zero also selects
    // CLOCK_REALTIME.
    let mut request: libc::ptp_sys_offset_extended = unsafe { std::mem::zeroed() };
    request.n_samples = SAMPLES;
    // SAFETY: `request` is the structure that this request reads and writes, and lives through the
    // call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), libc::PTP_SYS_OFFSET_EXTENDED as _, &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let ns = |time: &libc::ptp_clock_time| time.sec.saturating_mul(1_000_000_000).saturating_add(time.nsec.into());
    Ok(request.ts.iter().take(SAMPLES as usize).map(|triple| triple.each_ref().map(ns)).collect())
}

#[derive(Copy, Clone, Debug, PartialEq)]
struct Point {
    phc_ns: i64,
    /// System minus PHC.
    offset_ns: i64,
    /// Largest error of the offset: half the bracket, rounded up.
    half_ns: i64,
}

/// `[system before, PHC, system after]` with the smallest distance between the system readings.
/// Readings across a backward step of the system clock are ignored.
fn narrowest(triples: impl Iterator<Item = [i64; 3]>) -> Option<Point> {
    let bracket = |[before, _, after]: &[i64; 3]| after.saturating_sub(*before);
    let triple = triples.filter(|triple| bracket(triple) >= 0).min_by_key(bracket)?;
    let [before, phc_ns, after] = triple;
    let half_ns = bracket(&triple) / 2 + 1;
    Some(Point { phc_ns, offset_ns: before.midpoint(after).saturating_sub(phc_ns), half_ns })
}

/// Brackets may become this much wider than they were at the start, and a point as old as two
/// periods, before timestamps are withheld.
fn error_limit_ns(widest_ns: i64) -> i64 {
    2 * widest_ns + (WANDER * 2.0 * PERIOD.as_ns() as f64).ceil() as i64
}

struct PhcMap {
    points: VecDeque<Point>,
    rate: f64,
    /// Largest error of the rate.
    rate_error: f64,
}

impl Default for PhcMap {
    fn default() -> Self {
        Self { points: VecDeque::new(), rate: 0.0, rate_error: MAX_RATE }
    }
}

impl PhcMap {
    fn observe(&mut self, point: Point) {
        let expected = self.points.back().map(|latest| (point.phc_ns.saturating_sub(latest.phc_ns), *latest));
        if let Some((age_ns, latest)) = expected {
            let surprise = point.offset_ns.saturating_sub(self.offset_at(&latest, point.phc_ns)) as f64;
            let explained = (latest.half_ns + point.half_ns) as f64 + self.rate_error * age_ns.saturating_abs() as f64;
            if surprise.abs() > explained {
                // Stepped, or slewed: what was known of the offset is void. A step says nothing of
                // the rate, which is a property of the oscillators; a slew does.
                let slewed = surprise.abs() / age_ns.saturating_abs().max(1) as f64;
                if slewed <= MAX_RATE {
                    self.rate_error = self.rate_error.max(slewed + WANDER);
                }
                self.points.clear();
            }
        }
        if self.points.len() == POINTS {
            self.points.pop_front();
        }
        self.points.push_back(point);
        if let (Some(first), true) = (self.points.front(), self.points.len() > 1) {
            let span = point.phc_ns.saturating_sub(first.phc_ns);
            if span > 0 {
                self.rate = point.offset_ns.saturating_sub(first.offset_ns) as f64 / span as f64;
                self.rate_error = ((first.half_ns + point.half_ns) as f64 / span as f64 + WANDER).min(MAX_RATE);
            }
        }
    }

    /// The system time, and its largest error.
    fn to_system(&self, phc_ns: i64) -> Option<(Timestamp<System>, f64)> {
        let latest = self.points.back()?;
        if phc_ns.saturating_sub(latest.phc_ns).saturating_abs() > STALE_NS {
            return None;
        }
        let error = |point: &Point| {
            point.half_ns as f64 + self.rate_error * phc_ns.saturating_sub(point.phc_ns).saturating_abs() as f64
        };
        let nearest = self.points.iter().min_by(|a, b| error(a).total_cmp(&error(b)))?;
        // One for the rounding.
        let at = Timestamp::from_ns(phc_ns.saturating_add(self.offset_at(nearest, phc_ns)));
        Some((at, error(nearest) + 1.0))
    }

    fn offset_at(&self, point: &Point, phc_ns: i64) -> i64 {
        let change = self.rate * phc_ns.saturating_sub(point.phc_ns) as f64;
        point.offset_ns.saturating_add(change.round() as i64)
    }
}

/// Interval between conversion points.
const PERIOD: Duration = Duration::from_ms(50);
/// Points taken when a clock is opened.
const START_POINTS: usize = 4;
/// Readings per point.
const SAMPLES: u32 = 5;
/// Points kept: one second's worth.
const POINTS: usize = 21;
/// Largest distance of a timestamp from the latest point, ns.
const STALE_NS: i64 = 2_000_000_000;
/// If a clock's readings are less accurate than this, its timestamps are worse than the kernel's,
/// ns.
const WIDEST_HALF_NS: i64 = 10_000;
/// How far the rates of the clocks may wander from their mean over a second: what the watch of the
/// system clock does not report.
const WANDER: f64 = 3e-6;
/// Largest rate of any clock relative to another.
const MAX_RATE: f64 = 500e-6;

#[cfg(test)]
mod tests {
    use super::*;

    fn map(points: &[(i64, i64, i64)]) -> PhcMap {
        let mut map = PhcMap::default();
        for &(phc_ns, offset_ns, half_ns) in points {
            map.observe(Point { phc_ns, offset_ns, half_ns });
        }
        map
    }

    fn check(points: &[(i64, i64, i64)], phc_ns: i64, expected: Option<i64>) {
        let converted = map(points).to_system(phc_ns).map(|(at, _)| at.as_ns());
        assert_eq!(converted, expected, "{points:?} at {phc_ns}");
    }

    #[test]
    fn stamps_follow_the_line_through_the_points() {
        check(&[], 0, None);
        check(&[(0, 500, 2)], 20, Some(520));
        check(&[(0, 500, 2), (100_000, 510, 2)], 120_000, Some(120_512));
        check(&[(0, 500, 2), (100_000, 510, 2)], 90_000, Some(90_509));
        // A clock on TAI is 37 s ahead: only the offset knows.
        let epoch = 1_795_187_183_000_000_000;
        check(&[(epoch, -37_000_000_000, 1)], epoch + 5, Some(epoch - 37_000_000_000 + 5));
    }

    /// The tempting alternative is the bracket of the last point alone: it ignores the rate.
    #[test]
    fn half_the_bracket_and_the_age_of_the_point_are_in_the_error() {
        let error = |points: &[(i64, i64, i64)], at: i64| map(points).to_system(at).expect("fresh").1;
        let near =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        // Nothing is known of the rate yet: 500 ppm of 1 ms.
        near(error(&[(0, 500, 300)], 0), 301.0);
        near(error(&[(0, 500, 300)], 1_000_000), 301.0 + 500.0);
        // Two points 0.1 s apart: 6 ppm of the brackets and 3 ppm of wander; 10 ms after the last.
        let two = [(0, 500, 300), (100_000_000, 500, 300)];
        near(error(&two, 110_000_000), 301.0 + 10_000_000.0 * 9e-6);
        // Between two points the nearer one counts, and one with a wide bracket only where the
        // narrow one is far.
        near(error(&two, 99_000_000), 301.0 + 1_000_000.0 * 9e-6);
        let wide = [(0, 500, 300), (100_000_000, 500, 5_000)];
        near(error(&wide, 100_000_000), 5_001.0);
        near(error(&wide, 10_000_000), 301.0 + 10_000_000.0 * 56e-6);
    }

    #[test]
    fn a_stale_conversion_gives_nothing() {
        check(&[(0, 500, 1)], STALE_NS, Some(STALE_NS + 500));
        check(&[(0, 500, 1)], STALE_NS + 1, None);
    }

    #[test]
    fn a_step_starts_anew_with_the_rate_known_before() {
        let tenth = 100_000_000;
        let steady = [(0, 0, 100), (tenth, 1_000, 100), (2 * tenth, 2_000, 100)];
        let before = map(&steady);
        let mut stepped = steady.to_vec();
        stepped.push((3 * tenth, 5_000_000, 100));
        check(&stepped, 3 * tenth + 1000, Some(3 * tenth + 1000 + 5_000_000));
        let after = map(&stepped);
        assert!((after.rate - 1e-5).abs() < 1e-9, "{}", after.rate);
        assert_eq!((after.points.len(), after.rate_error), (1, before.rate_error));
        // A slew of 40 ppm is no step: the rate is known that much worse.
        let mut slewed = steady.to_vec();
        slewed.push((3 * tenth, 7_000, 100));
        let after = map(&slewed);
        assert!(after.points.len() == 1 && (after.rate_error - 43e-6).abs() < 1e-9, "{}", after.rate_error);
    }

    #[test]
    fn the_narrowest_reading_counts_and_a_clock_set_back_gives_none() {
        let point = narrowest([[0, 1000, 900], [1000, 2000, 1100], [2000, 3000, 2600]].into_iter());
        assert_eq!(point, Some(Point { phc_ns: 2000, offset_ns: -950, half_ns: 51 }));
        let point = narrowest([[1000, 1000, 900], [0, 5, 40]].into_iter());
        assert_eq!(point, Some(Point { phc_ns: 5, offset_ns: 15, half_ns: 21 }));
        assert_eq!(narrowest(std::iter::empty()), None);
        assert_eq!(narrowest(std::iter::once([1000, 1000, 900])), None);
    }

    /// An artificial clock with known truth: 37 s ahead and 40 ppm fast with a rate that swings by
    /// 2 ppm, read over a bus that takes 200 to 900 ns, nearly all of it on one side.
    #[test]
    fn every_stamp_of_a_made_clock_lies_within_the_stated_error() {
        let system = |phc_ns: i64| {
            let seconds = phc_ns as f64 * 1e-9;
            phc_ns - 37_000_000_000 - (40e-6 * phc_ns as f64) as i64 + (2e3 * seconds.sin()) as i64
        };
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = |limit: i64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % limit as u64) as i64
        };
        let period = PERIOD.as_ns();
        let (mut map, mut worst, mut judged) = (PhcMap::default(), 0.0_f64, 0);
        for round in 0..400_i64 {
            let phc_ns = round * period + next(1_000_000);
            let reading = |phc_ns: i64, late: i64, early: i64| [system(phc_ns) - late, phc_ns, system(phc_ns) + early];
            let readings: Vec<_> =
                (0..5).map(|k| reading(phc_ns + k * 3_000, 150 + next(600), 20 + next(30))).collect();
            map.observe(narrowest(readings.into_iter()).expect("in order"));
            let stamp = phc_ns + next(2 * period) - period;
            let (at, error_ns) = map.to_system(stamp).expect("fresh");
            let wrong = (at.as_ns() - system(stamp)).abs() as f64;
            assert!(wrong <= error_ns, "round {round}: {wrong} ns beyond {error_ns} ns");
            if round > START_POINTS as i64 {
                worst = worst.max(wrong);
                assert!(error_ns <= error_limit_ns(450) as f64, "round {round}: {error_ns} ns");
                judged += 1;
            }
        }
        // The error is real: the point is not in the middle of its bracket.
        assert!(judged > 300 && worst > 50.0, "{judged} stamps, worst {worst} ns");
    }

    #[test]
    fn a_clock_states_its_error_withholds_what_is_worse_and_refuses_what_is_hopeless() {
        let made = |half: i64| {
            Phc::start(Box::new(move || {
                let now = MonotonicClock.now().as_ns();
                Ok(vec![[now - half, now + 7, now + half]])
            }))
        };
        let mut phc = made(250).expect("narrow enough");
        assert_eq!(phc.error_limit(), Duration::from_ns(2 * 251 + 300));
        let points = phc.map.points.len();
        phc.sampled = MonotonicClock.now() + PERIOD;
        phc.refresh();
        assert_eq!(phc.map.points.len(), points, "the last point is fresh");
        phc.sampled = MonotonicClock.now() - PERIOD;
        phc.refresh();
        assert_eq!(phc.map.points.len(), points + 1);
        let now = phc.map.points.back().expect("points").phc_ns - 7;
        let at = phc.to_system(now + 7).expect("fresh").as_ns();
        assert!((at - now).abs() <= phc.error_limit().as_ns(), "{at} instead of {now}");
        // A second later nothing was read: 3 µs of wander are more than was promised.
        assert_eq!(phc.to_system(now + 1_000_000_000), None);
        let error = made(WIDEST_HALF_NS + 1).err().expect("too wide").to_string();
        assert!(error.contains("10002 ns"), "{error}");
    }

    #[test]
    fn a_missing_device_is_named() {
        let error = Phc::open(u32::MAX).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("/dev/ptp4294967295"), "{error}");
    }
}
