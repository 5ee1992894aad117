//! The counter behind a global clock: which one this host may use, and how it is read.
//!
//! A session chooses it once (`clock_counter`) and writes it into its pages; readers use the
//! counter that the page names.
//!
//! The time-stamp counter costs less to read than `CLOCK_MONOTONIC_RAW`. It is used only where the
//! kernel's clocksource is `tsc`: then it is what `CLOCK_MONOTONIC_RAW` is made of. How long a tick
//! is, is measured once against that clock; what is wrong with it is in the rates of the map, as
//! any other rate is.
//!
//! A page may be read in another time namespace than it is written in. So all of its readings are
//! on the machine's own clocks, outside of any namespace: each process takes out what its namespace
//! adds.

use std::time::Duration as StdDuration;

use probe_sync_global_clock::{Pairs, Scale, Source};
use probe_sync_sys::{BootClock, NARROW_BRACKET, RawClock, SystemClock, clock, read_pair};
use probe_sync_time::{Clock, Counter, TimeNamespace, Timestamp};

use crate::Error;
use crate::config::ClockCounter;

/// The counter of a clock page, on this host.
#[derive(Copy, Clone, Debug)]
pub struct HostCounter {
    /// Clock source of the counter.
    pub source: Source,
    /// Offset of this process's time namespace in `CLOCK_MONOTONIC_RAW`, ns; it is subtracted.
    pub namespace_ns: i64,
}

impl Clock<Counter> for HostCounter {
    #[inline]
    fn now(&self) -> Timestamp<Counter> {
        Timestamp::from_ns(match self.source {
            Source::Raw => RawClock.now().as_ns().wrapping_sub(self.namespace_ns),
            Source::Tsc(scale) => scale.ns(clock::ordered_ticks()),
        })
    }
}

/// Checks that this host has the requested counter.
///
/// # Errors
/// States why it has not, and what to set.
pub(crate) fn usable(wanted: ClockCounter) -> Result<(), String> {
    match wanted {
        ClockCounter::Raw => Ok(()),
        ClockCounter::Tsc => clock::tsc_is_the_clocksource()
            .map_err(|reason| format!("clock_counter=tsc is not available: {reason}; set clock_counter=raw")),
    }
}

/// Returns the requested counter, with the length of its ticks.
///
/// # Errors
/// Returns an error if it does not behave like a counter.
pub(super) fn source(wanted: ClockCounter) -> Result<Source, Error> {
    match wanted {
        ClockCounter::Raw => Ok(Source::Raw),
        ClockCounter::Tsc => scale().map(Source::Tsc).ok_or_else(|| Error::Clock {
            reason: "clock_counter=tsc: the TSC does not match CLOCK_MONOTONIC_RAW; set clock_counter=raw".into(),
        }),
    }
}

/// Measures the length of a tick of the time-stamp counter.
fn scale() -> Option<Scale> {
    let read =
        || read_pair(&HostCounter { source: Source::Tsc(Scale::ONE), namespace_ns: 0 }, &RawClock, NARROW_BRACKET);
    let first = read();
    let mut found = None;
    for _ in 0..CALIBRATIONS_MAX {
        std::thread::sleep(CALIBRATION);
        let last = read();
        let passed = last.b - first.b;
        found = Scale::of(passed.as_ns(), (last.a - first.a).as_ns());
        if first.bracket.as_ns() + last.bracket.as_ns() <= passed.as_ns() / CALIBRATED {
            break;
        }
    }
    found
}

/// Reads the counter and the raw, system and boot clocks of this host, in this time namespace.
pub(super) fn pairs(source: Source, namespace: TimeNamespace) -> Pairs {
    let counter = HostCounter { source, namespace_ns: namespace.monotonic_ns };
    let system = read_pair(&counter, &SystemClock, NARROW_BRACKET);
    let boot = read_pair(&counter, &BootClock, NARROW_BRACKET);
    let mut bracket = system.bracket.max(boot.bracket);
    let raw = match source {
        Source::Raw => system.a.as_ns(),
        Source::Tsc(_) => {
            let raw = read_pair(&counter, &RawClock, NARROW_BRACKET);
            bracket = bracket.max(raw.bracket);
            (raw.b - (raw.a - system.a)).as_ns() - namespace.monotonic_ns
        }
    };
    Pairs {
        counter: system.a.as_ns(),
        raw,
        system: system.b.as_ns(),
        boot: (boot.b - (boot.a - system.a)).as_ns() - namespace.boottime_ns,
        error: (bracket.as_ns() + 1) / 2,
        ..Pairs::default()
    }
}

/// Ticks are counted for this long,
const CALIBRATION: StdDuration = StdDuration::from_millis(20);
/// or for longer if the readings were disturbed, up to this many times,
const CALIBRATIONS_MAX: usize = 10;
/// until the error is at most 10 ppm of the span.
const CALIBRATED: i64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_goes_as_the_raw_clock_does() {
        assert!(usable(ClockCounter::Raw).is_ok() && source(ClockCounter::Raw).is_ok());
        if let Err(reason) = usable(ClockCounter::Tsc) {
            assert!(reason.ends_with("set clock_counter=raw"), "{reason}");
            return;
        }
        let (source, namespace) = (source(ClockCounter::Tsc).expect("it is usable"), TimeNamespace::default());
        let (first, mut last) = (pairs(source, namespace), pairs(source, namespace));
        while last.raw - first.raw < 50_000_000 {
            last = pairs(source, namespace);
        }
        let (counted, passed) = (last.counter - first.counter, last.raw - first.raw);
        let error = 2 * (first.error + last.error) + passed / 2_000;
        assert!((counted - passed).abs() <= error, "{counted} ns counted in {passed} ns, to within {error}");
    }
}
