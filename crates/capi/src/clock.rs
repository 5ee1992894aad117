//! The reference time for every thread, for forked children and, through a file, for every process
//! of the host.
//!
//! A reading takes no lock and never waits. It can be made from any thread and, once a reference
//! time is known, in a signal handler.
//!
//! It does not report which clock is the reference: node 0's, unless the session's `reference`
//! names another.

use std::ffi::c_char;
use std::time::Duration;

use probe_sync::GlobalClock;
use probe_sync::clock::{Interval, Reading, Status};
use probe_sync_time::{Boot, Raw, Reference, System, Timestamp};

use crate::pointers::{Out, borrowed, taken_back, text};
use crate::status::{Failure, guard, guarded, ps_status};
use ps_clock_status::*;
use ps_status::*;

/// How far a clock can be trusted.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ps_clock_status {
    /// Nothing is known yet.
    PS_CLOCK_UNSYNCHRONISED = 0,
    /// New estimates arrive.
    PS_CLOCK_SYNCHRONISED = 1,
    /// An estimate is overdue or the run has ended; the bounds grow.
    PS_CLOCK_HOLDOVER = 2,
    /// The measurement failed; the bounds grow.
    PS_CLOCK_FAILED = 3,
}

/// Reference time with its bounds, ns since the Unix epoch.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_time {
    /// Earliest possible reference time.
    pub earliest_ns: i64,
    /// Latest possible reference time.
    pub latest_ns: i64,
    /// Current reference time; never goes back within an epoch.
    pub time_ns: i64,
    /// Half-width of the 95 % interval around time_ns.
    pub bound95_ns: i64,
    /// Number of times the clock was stepped; always 0 with clock_adjust = slew (the default).
    pub epoch: u64,
    /// Status of the clock.
    pub status: ps_clock_status,
}

/// A time of another clock, converted to reference time, ns since the Unix epoch.
#[repr(C)]
#[derive(Copy, Clone, Debug)]
pub struct ps_interval {
    /// Earliest possible reference time.
    pub earliest_ns: i64,
    /// Latest possible reference time.
    pub latest_ns: i64,
    /// Current estimate.
    pub time_ns: i64,
    /// Half-width of the 95 % interval around time_ns.
    pub bound95_ns: i64,
}

/// A clock that shows the reference time.
#[derive(Debug)]
pub struct ps_clock {
    clock: GlobalClock,
}

/// Opens the clock that a run on this host maintains in a file (key clock_page, flag --clock-page).
/// Free it with ps_clock_free().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_open(path: *const c_char, clock: *mut *mut ps_clock) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (path, clock) = unsafe { (text(path, "path")?, Out::new(clock, "clock")?) };
        clock.hand_over(ps_clock { clock: GlobalClock::open(path.as_ref())? });
        Ok(())
    })
}

/// Gets the current reference time with its bounds. Returns PS_ERROR_UNKNOWN until the first round
/// is solved.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_now(clock: *const ps_clock, now: *mut ps_time) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let (clock, now) = unsafe { (borrowed(clock, "clock")?, Out::new(now, "now")?) };
        now.set(clock.clock.now().ok_or_else(unknown)?.into());
        Ok(())
    })
}

/// Returns the current reference time, ns since the Unix epoch, without bounds; the fastest way to
/// read the clock. Returns 0 until the first round is solved, and for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_now_ns(clock: *const ps_clock) -> i64 {
    let read = || {
        // SAFETY: the rule of the crate.
        Ok(unsafe { clock.as_ref() }.and_then(|clock| clock.clock.now_ns()).unwrap_or_default())
    };
    guarded(|_| 0, read)
}

/// Returns true if this reference time has certainly passed. Returns false for NULL, and until the
/// reference time is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_after(clock: *const ps_clock, time_ns: i64) -> bool {
    // SAFETY: the rule of the crate.
    asked(|| Ok(unsafe { borrowed(clock, "clock") }?.clock.after(reference(time_ns))))
}

/// Returns true if this reference time is certainly still in the future. Returns false for NULL,
/// and until the reference time is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_before(clock: *const ps_clock, time_ns: i64) -> bool {
    // SAFETY: the rule of the crate.
    asked(|| Ok(unsafe { borrowed(clock, "clock") }?.clock.before(reference(time_ns))))
}

/// Waits until the reference time is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_wait_until_known(clock: *const ps_clock, timeout_ms: u32) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let clock = unsafe { borrowed(clock, "clock") }?;
        clock.clock.wait_until_known(milliseconds(timeout_ms)).map_err(Failure::of(PS_ERROR_TIMEOUT))
    })
}

/// Waits until the clock shows time_ns, for example to start on several nodes at once. Returns
/// PS_ERROR_TIMEOUT immediately if that is more than limit_ms in the future, and PS_ERROR_UNKNOWN
/// if the reference time is not known yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_wait_until(clock: *const ps_clock, time_ns: i64, limit_ms: u32) -> ps_status {
    guard(|| {
        // SAFETY: the rule of the crate.
        let clock = unsafe { borrowed(clock, "clock") }?;
        clock.clock.now_ns().ok_or_else(unknown)?;
        clock.clock.wait_until(reference(time_ns), milliseconds(limit_ms)).map_err(Failure::of(PS_ERROR_TIMEOUT))
    })
}

/// Converts a time of this host's CLOCK_REALTIME, past or future, to reference time. Returns
/// PS_ERROR_UNKNOWN if the reference time is not known yet, or if that clock was stepped since
/// then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_of_realtime(
    clock: *const ps_clock,
    realtime_ns: i64,
    found: *mut ps_interval,
) -> ps_status {
    // SAFETY: the rule of the crate.
    unsafe { converted(clock, found, |clock| clock.of_system(Timestamp::<System>::from_ns(realtime_ns))) }
}

/// Converts a time of this host's CLOCK_MONOTONIC_RAW to reference time, like
/// ps_clock_of_realtime().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_of_raw(clock: *const ps_clock, raw_ns: i64, found: *mut ps_interval) -> ps_status {
    // SAFETY: the rule of the crate.
    unsafe { converted(clock, found, |clock| clock.of_raw(Timestamp::<Raw>::from_ns(raw_ns))) }
}

/// Converts a time of this host's CLOCK_BOOTTIME to reference time, like ps_clock_of_realtime().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_of_boottime(
    clock: *const ps_clock,
    boottime_ns: i64,
    found: *mut ps_interval,
) -> ps_status {
    // SAFETY: the rule of the crate.
    unsafe { converted(clock, found, |clock| clock.of_boot(Timestamp::<Boot>::from_ns(boottime_ns))) }
}

/// Frees the clock (NULL is a no-op).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ps_clock_free(clock: *mut ps_clock) {
    guard(|| {
        // SAFETY: the rule of the crate.
        drop(unsafe { taken_back(clock) });
        Ok(())
    });
}

impl ps_clock {
    pub(crate) fn new(clock: GlobalClock) -> Self {
        Self { clock }
    }
}

impl From<Reading> for ps_time {
    fn from(reading: Reading) -> Self {
        Self {
            earliest_ns: reading.earliest.as_ns(),
            latest_ns: reading.latest.as_ns(),
            time_ns: reading.time.as_ns(),
            bound95_ns: reading.bound95.as_ns(),
            epoch: reading.epoch,
            status: match reading.status {
                Status::Unsynchronised => PS_CLOCK_UNSYNCHRONISED,
                Status::Synchronised => PS_CLOCK_SYNCHRONISED,
                Status::Holdover => PS_CLOCK_HOLDOVER,
                Status::Failed => PS_CLOCK_FAILED,
            },
        }
    }
}

impl From<Interval> for ps_interval {
    fn from(interval: Interval) -> Self {
        Self {
            earliest_ns: interval.earliest.as_ns(),
            latest_ns: interval.latest.as_ns(),
            time_ns: interval.time.as_ns(),
            bound95_ns: interval.bound95.as_ns(),
        }
    }
}

/// # Safety
/// Converts a time; both pointers follow the rule of this crate.
unsafe fn converted(
    clock: *const ps_clock,
    found: *mut ps_interval,
    convert: impl FnOnce(&GlobalClock) -> Option<Interval>,
) -> ps_status {
    guard(|| {
        // SAFETY: the caller's promise.
        let (clock, found) = unsafe { (borrowed(clock, "clock")?, Out::new(found, "found")?) };
        clock.clock.now_ns().ok_or_else(unknown)?;
        let stepped = || {
            let text = "that clock was stepped or the host was suspended since then; convert times of CLOCK_MONOTONIC_RAW instead";
            Failure::new(PS_ERROR_UNKNOWN, text)
        };
        found.set(convert(&clock.clock).ok_or_else(stepped)?.into());
        Ok(())
    })
}

fn asked(body: impl FnOnce() -> Result<bool, Failure>) -> bool {
    guarded(|_| false, body)
}

fn unknown() -> Failure {
    Failure::new(PS_ERROR_UNKNOWN, "the reference time is not known yet; call ps_clock_wait_until_known() first")
}

const fn reference(ns: i64) -> Timestamp<Reference> {
    Timestamp::from_ns(ns)
}

pub(crate) fn milliseconds(ms: u32) -> Duration {
    Duration::from_millis(ms.into())
}
