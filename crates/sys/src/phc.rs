//! An interface's own clock (PHC, `/dev/ptpN`) and the conversion of its stamps to the system clock.
//!
//! Place in the flow: `udp::stamping` converts each hardware stamp here; without a fresh conversion there is none.
//!
//! The kernel reads system, PHC, system in one go (`PTP_SYS_OFFSET_EXTENDED`, several times; the narrowest counts), which
//! gives one point of `offset(t) = system − PHC`. Points of the last second give the rate, and a stamp taken at PHC time
//! t becomes `t + offset(latest) + rate·(t − latest)`. Error of a point: half the bracket, some 100 ns to 1 µs by the bus.
//!
//! By hand: offset 500 at PHC time 0 and 510 at 100 gives a rate of 0.1; a stamp at 120 is 120 + 510 + 2 = 632.
//!
//! What it does not do: discipline either clock, or use a clock whose last point is older than [`STALE_NS`]. It was
//! written from the kernel's documentation without such a device at hand; the arithmetic is tested, the request is not.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use probe_sync_time::{Clock, Duration, Monotonic, System, Timestamp};

use crate::{Error, MonotonicClock};

/// An open PHC with its conversion.
pub(crate) struct Phc {
    device: File,
    map: PhcMap,
    sampled: Timestamp<Monotonic>,
}

impl Phc {
    /// Opens `/dev/ptp{index}` and takes the first two points. Takes [`PERIOD`].
    pub(crate) fn open(index: u32) -> Result<Self, Error> {
        let path = format!("/dev/ptp{index}");
        let fail = |error: io::Error| Error::File { path: path.clone(), reason: error.to_string() };
        let device = File::open(&path).map_err(fail)?;
        let mut phc = Self { device, map: PhcMap::default(), sampled: MonotonicClock.now() };
        phc.map.observe(phc.sample().map_err(fail)?);
        std::thread::sleep(std::time::Duration::from_nanos(PERIOD.as_ns().unsigned_abs()));
        phc.map.observe(phc.sample().map_err(fail)?);
        phc.sampled = MonotonicClock.now();
        Ok(phc)
    }

    /// Takes another point when the last is older than [`PERIOD`]. A failure makes the conversion go stale.
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

    /// A stamp of the interface on the system clock.
    pub(crate) fn to_system(&self, phc_ns: i64) -> Option<Timestamp<System>> {
        self.map.to_system(phc_ns)
    }

    fn sample(&self) -> io::Result<Point> {
        // SAFETY: the structure is plain data for which all zeroes is a valid value; zero also selects CLOCK_REALTIME.
        let mut request: libc::ptp_sys_offset_extended = unsafe { std::mem::zeroed() };
        request.n_samples = SAMPLES;
        // SAFETY: `request` is the structure that this request reads and writes, and lives through the call.
        let result =
            unsafe { libc::ioctl(self.device.as_raw_fd(), libc::PTP_SYS_OFFSET_EXTENDED as _, &raw mut request) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let ns = |time: &libc::ptp_clock_time| time.sec.saturating_mul(1_000_000_000).saturating_add(time.nsec.into());
        let triples = request.ts.iter().take(SAMPLES as usize).map(|triple| triple.each_ref().map(ns));
        narrowest(triples).ok_or_else(|| io::Error::other("the clock gave no reading"))
    }
}

#[derive(Copy, Clone, Debug, PartialEq)]
struct Point {
    phc_ns: i64,
    /// System minus PHC.
    offset_ns: i64,
}

/// `[system before, PHC, system after]` with the least distance between the system readings.
fn narrowest(triples: impl Iterator<Item = [i64; 3]>) -> Option<Point> {
    let [before, phc_ns, after] = triples.min_by_key(|[before, _, after]| after.saturating_sub(*before))?;
    Some(Point { phc_ns, offset_ns: before.midpoint(after).saturating_sub(phc_ns) })
}

#[derive(Default)]
struct PhcMap {
    points: VecDeque<Point>,
    rate: f64,
}

impl PhcMap {
    fn observe(&mut self, point: Point) {
        if let Some(expected) = self.points.back().map(|latest| self.offset_at(latest, point.phc_ns)) {
            let surprise = point.offset_ns.saturating_sub(expected) as f64;
            let first_rate = self.points.len() == 1 && self.rate == 0.0;
            if surprise.abs() > STEP_NS && !first_rate {
                // The rate is a property of the oscillators and survives a step.
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
            }
        }
    }

    fn to_system(&self, phc_ns: i64) -> Option<Timestamp<System>> {
        let latest = self.points.back()?;
        if phc_ns.saturating_sub(latest.phc_ns).saturating_abs() > STALE_NS {
            return None;
        }
        Some(Timestamp::from_ns(phc_ns.saturating_add(self.offset_at(latest, phc_ns))))
    }

    fn offset_at(&self, latest: &Point, phc_ns: i64) -> i64 {
        let change = self.rate * phc_ns.saturating_sub(latest.phc_ns) as f64;
        latest.offset_ns.saturating_add(change.round() as i64)
    }
}

/// How often a conversion point is taken.
const PERIOD: Duration = Duration::from_ms(100);
/// Readings per point.
const SAMPLES: u32 = 5;
/// Points kept: a second's worth.
const POINTS: usize = 11;
/// How far from the latest point a stamp may lie, ns.
const STALE_NS: i64 = 2_000_000_000;
/// A point further than this from where the others put it means that a clock was stepped, ns.
const STEP_NS: f64 = 20_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn map(points: &[(i64, i64)]) -> PhcMap {
        let mut map = PhcMap::default();
        for &(phc_ns, offset_ns) in points {
            map.observe(Point { phc_ns, offset_ns });
        }
        map
    }

    fn check(points: &[(i64, i64)], phc_ns: i64, expected: Option<i64>) {
        assert_eq!(map(points).to_system(phc_ns).map(Timestamp::as_ns), expected, "{points:?} at {phc_ns}");
    }

    #[test]
    fn stamps_follow_the_line_through_the_points() {
        check(&[], 0, None);
        check(&[(0, 500)], 20, Some(520));
        check(&[(0, 500), (100, 510)], 120, Some(632));
        check(&[(0, 500), (100, 510)], 90, Some(599));
        // A clock on TAI is 37 s ahead: only the offset knows.
        let epoch = 1_795_187_183_000_000_000;
        check(&[(epoch, -37_000_000_000)], epoch + 5, Some(epoch - 37_000_000_000 + 5));
    }

    #[test]
    fn a_stale_conversion_gives_nothing() {
        check(&[(0, 500)], STALE_NS, Some(STALE_NS + 500));
        check(&[(0, 500)], STALE_NS + 1, None);
    }

    #[test]
    fn a_step_starts_anew_with_the_rate_known_before() {
        let second = 1_000_000_000;
        let steady = [(0, 0), (second, 10_000), (second + second / 10, 11_000)];
        let mut stepped = steady.to_vec();
        stepped.push((second + second / 5, 5_000_000));
        check(&stepped, second + second / 5 + 1000, Some(second + second / 5 + 1000 + 5_000_000));
        let rate = map(&stepped).rate;
        assert!((rate - 1e-5).abs() < 1e-9, "{rate}");
    }

    #[test]
    fn the_narrowest_reading_counts() {
        let point = narrowest([[0, 1000, 900], [1000, 2000, 1100], [2000, 3000, 2600]].into_iter());
        assert_eq!(point, Some(Point { phc_ns: 2000, offset_ns: -950 }));
        assert_eq!(narrowest(std::iter::empty()), None);
    }

    #[test]
    fn a_missing_device_is_named() {
        let error = Phc::open(u32::MAX).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains("/dev/ptp4294967295"), "{error}");
    }
}
