//! The clocks that profilers stamp events with (timeline R), by name, and bracketed pairs of such a
//! clock and the system clock.
//!
//! The crate `alignment` turns these pairs into the map R → S of their node.
//!
//! | name | clock | profilers on it |
//! |---|---|---|
//! | `monotonic`, `monotonic_raw`, `boottime` | the kernel's | rocprofiler-sdk and rocpd use boottime |
//! | `tsc` | the CPU's counter, in ns at a calibrated rate | tools that read RDTSC |
//! | `rocprofiler` | `rocprofiler_status_t rocprofiler_get_timestamp(uint64_t *)` of librocprofiler-sdk | AMD |
//! | `cupti` | `CUptiResult cuptiGetTimestamp(uint64_t *)` of libcupti | NVIDIA |
//! | any other | a closure or a C function that the caller hands in (`tracer_callback`) | any |
//!
//! `tsc`: ns = ticks · rate, ns 0 at tick 0. The rate is measured when the clock is opened, against
//! `CLOCK_MONOTONIC_RAW`, over `CALIBRATION`; two brackets of some 100 ns over 100 ms leave about 1
//! ppm. That error is the same in all pairs of one opened clock, and the map made of them takes it
//! out again, provided that the trace's ticks are turned into ns by the same rate:
//! [`TracerClock::ns_per_tick`] states it, and the sampler records it.
//!
//! The vendors' libraries are loaded at run time ([`Library`]), preferably the copy that the
//! profiler uses.
//!
//! It does not read a device's own counter, because the vendors' libraries convert those.
//! `tracer_choice` guesses which clock is meant.

use std::ffi::{CStr, c_int, c_void};
use std::path::Path;

use probe_sync_time::{Clock, Duration, System, Timestamp, Tracer};

use crate::clock::PAIR_ATTEMPTS;
use crate::host;
use crate::library::Library;
use crate::tracer_callback::{Callback, ReadTracerClock, name_problem};
use crate::{BootClock, Error, MonotonicClock, NARROW_BRACKET, RawClock, Tsc, read_pair};

/// Names of tracer clocks.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum TracerClockName {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// `CLOCK_MONOTONIC_RAW`.
    MonotonicRaw,
    /// `CLOCK_BOOTTIME`.
    Boottime,
    /// The CPU's time-stamp counter.
    Tsc,
    /// The clock of rocprofiler-sdk's timestamps.
    Rocprofiler,
    /// The clock of CUPTI's timestamps.
    Cupti,
}

impl TracerClockName {
    /// All clocks, with their names in configurations and files.
    pub const ALL: [(&'static str, Self); 6] = [
        ("monotonic", Self::Monotonic),
        ("monotonic_raw", Self::MonotonicRaw),
        ("boottime", Self::Boottime),
        ("tsc", Self::Tsc),
        ("rocprofiler", Self::Rocprofiler),
        ("cupti", Self::Cupti),
    ];

    /// The name in configurations and files.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, clock)| *clock == self).map_or("?", |(name, _)| name)
    }
}

/// An opened tracer clock.
#[derive(Clone, Debug)]
pub struct TracerClock {
    name: String,
    source: Source,
    reason: String,
}

/// Source of the readings.
#[derive(Clone, Debug)]
enum Source {
    Monotonic,
    MonotonicRaw,
    Boottime,
    Tsc(Tsc, TickRate),
    Vendor(VendorFunction),
    Callback(Callback),
}

/// One moment on the system clock and on the tracer clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct TracerPair {
    /// The midpoint of the system clock's readings before and after.
    pub system: Timestamp<System>,
    /// The reading of the tracer clock in between.
    pub tracer: Timestamp<Tracer>,
    /// Distance between the two readings of the system clock. The pair is wrong by at most half of
    /// it.
    pub bracket: Duration,
}

impl TracerClock {
    /// Opens a clock: loads the vendor's library, or measures the rate of the counter (takes
    /// `CALIBRATION`).
    ///
    /// # Errors
    /// [`Error::TracerClock`] naming the clock and what is missing.
    pub fn open(name: TracerClockName) -> Result<Self, Error> {
        let refuse = |reason: String| Error::TracerClock { name: name.as_str().into(), reason };
        let source = match name {
            TracerClockName::Monotonic => Source::Monotonic,
            TracerClockName::MonotonicRaw => Source::MonotonicRaw,
            TracerClockName::Boottime => Source::Boottime,
            TracerClockName::Tsc => {
                let tsc = Tsc::detect().ok_or_else(|| refuse(NO_STEADY_COUNTER.into()))?;
                Source::Tsc(tsc, TickRate::calibrate(tsc).map_err(refuse)?)
            }
            TracerClockName::Rocprofiler => Source::Vendor(VendorFunction::load(&ROCPROFILER).map_err(refuse)?),
            // Without a driver CUPTI 13 calls itself until the stack is full, and takes the process
            // with it.
            TracerClockName::Cupti if !has_nvidia_driver() => return Err(refuse(NO_NVIDIA_DRIVER.into())),
            TracerClockName::Cupti => Source::Vendor(VendorFunction::load(&CUPTI).map_err(refuse)?),
        };
        Self { name: name.as_str().into(), source, reason: "set in the configuration".into() }.proven()
    }

    /// Creates a clock whose time `read` returns, ns, under a name chosen by the caller. Readers
    /// take pairs of a clock with one of the names above for pairs of that clock.
    ///
    /// # Errors
    /// [`Error::TracerClock`] if the name is invalid or the first reading fails.
    pub fn of_callback(
        name: &str,
        read: impl Fn() -> Result<i64, String> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Self::handed_in(name, Callback::new(read))
    }

    /// As [`TracerClock::of_callback`], for a C function.
    ///
    /// # Safety
    /// `read` must be callable with `user_data` from any thread, also from several at once, until
    /// this clock and all clones of it are dropped (a run drops its own when it ends); it must not
    /// unwind, and must write nothing but the one number through its pointer.
    ///
    /// # Errors
    /// As [`TracerClock::of_callback`].
    pub unsafe fn of_c_function(name: &str, read: ReadTracerClock, user_data: *mut c_void) -> Result<Self, Error> {
        // SAFETY: the caller promises the same.
        Self::handed_in(name, unsafe { Callback::of_c(read, user_data) })
    }

    fn handed_in(name: &str, callback: Callback) -> Result<Self, Error> {
        if let Some(reason) = name_problem(name) {
            return Err(Error::TracerClock { name: name.chars().take(80).collect(), reason });
        }
        Self { name: name.into(), source: Source::Callback(callback), reason: "provided by the caller".into() }.proven()
    }

    /// A library may load and still refuse to tell the time (no driver, no device); that must show
    /// now. The first call may also take long, because the library initialises itself in it.
    fn proven(self) -> Result<Self, Error> {
        self.now()?;
        Ok(self)
    }

    /// The same clock, with the reason for choosing it.
    pub(crate) fn because(self, reason: String) -> Self {
        Self { reason, ..self }
    }

    /// Name in files.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why this clock was chosen.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Whether another process that opens a clock of this name gets the same one until the machine
    /// reboots. The rate of a counter is calibrated by each process, and the clock of a library or
    /// caller may begin with the process.
    pub fn outlives_process(&self) -> bool {
        matches!(self.source, Source::Monotonic | Source::MonotonicRaw | Source::Boottime)
    }

    /// Offset that this process's time namespace adds to the clock, ns. Processes in other
    /// namespaces see the clock without it.
    pub fn namespace_ns(&self) -> i64 {
        let namespace = host::time_namespace();
        match &self.source {
            Source::Monotonic | Source::MonotonicRaw => namespace.monotonic_ns,
            Source::Boottime => namespace.boottime_ns,
            // It reads CLOCK_BOOTTIME.
            Source::Vendor(function) if function.name == ROCPROFILER.function => namespace.boottime_ns,
            // What a library or a caller tells is not known, and the counter is nobody's.
            Source::Vendor(_) | Source::Callback(_) | Source::Tsc(..) => 0,
        }
    }

    /// For `tsc`, the calibrated length of a tick, ns.
    pub fn ns_per_tick(&self) -> Option<f64> {
        match &self.source {
            Source::Tsc(_, rate) => Some(rate.ns_per_tick()),
            _ => None,
        }
    }

    /// Returns the present reading.
    ///
    /// # Errors
    /// [`Error::TracerClock`] if the vendor's library or the caller's function fails; the other
    /// clocks never do.
    pub fn now(&self) -> Result<Timestamp<Tracer>, Error> {
        let ns = match &self.source {
            Source::Monotonic => MonotonicClock.now().as_ns(),
            Source::MonotonicRaw => RawClock.now().as_ns(),
            Source::Boottime => BootClock.now().as_ns(),
            Source::Tsc(tsc, rate) => rate.to_ns(tsc.ticks()),
            Source::Vendor(function) => function.read().map_err(|reason| self.error(reason))?,
            Source::Callback(callback) => callback.read().map_err(|reason| self.error(reason))?,
        };
        Ok(Timestamp::from_ns(ns))
    }

    /// Reads this clock between two readings of `system`. Tries until the bracket is below
    /// `narrow`, at most `PAIR_ATTEMPTS` times, and keeps the narrowest.
    ///
    /// # Errors
    /// As [`TracerClock::now`].
    pub fn read_pair(&self, system: &impl Clock<System>, narrow: Duration) -> Result<TracerPair, Error> {
        let mut best: Option<TracerPair> = None;
        for _ in 0..PAIR_ATTEMPTS {
            let before = system.now();
            let tracer = match (self.now(), best) {
                (Ok(tracer), _) => tracer,
                // A pair is there already, and only a narrower one was looked for.
                (Err(_), Some(best)) => return Ok(best),
                (Err(error), None) => return Err(error),
            };
            let after = system.now();
            let pair = TracerPair { system: before.midpoint(after), tracer, bracket: after - before };
            // A system clock that was set back between its two readings has no bracket at all.
            let usable = pair.bracket >= Duration::ZERO;
            if usable && best.is_none_or(|best| pair.bracket < best.bracket) {
                best = Some(pair);
            }
            if usable && pair.bracket < narrow {
                break;
            }
        }
        best.ok_or_else(|| self.error(RUNS_BACKWARDS.into()))
    }

    fn error(&self, reason: String) -> Error {
        Error::TracerClock { name: self.name.clone(), reason }
    }
}

/// Whether this process has already loaded a vendor's library.
pub(crate) fn is_loaded(name: TracerClockName) -> bool {
    let libraries = match name {
        TracerClockName::Rocprofiler => ROCPROFILER.libraries,
        TracerClockName::Cupti => CUPTI.libraries,
        _ => return false,
    };
    Library::is_loaded(libraries)
}

/// Length of a tick of the counter as a binary fraction: exact, and the same for every reading.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct TickRate {
    /// ns per tick times 2^[`RATE_BITS`].
    scaled: u64,
}

impl TickRate {
    fn calibrate(tsc: Tsc) -> Result<Self, String> {
        struct Ticks(Tsc);
        impl Clock<Tracer> for Ticks {
            fn now(&self) -> Timestamp<Tracer> {
                Timestamp::from_ns(self.0.ticks() as i64)
            }
        }
        let start = read_pair(&Ticks(tsc), &RawClock, NARROW_BRACKET);
        std::thread::sleep(CALIBRATION);
        let end = read_pair(&Ticks(tsc), &RawClock, NARROW_BRACKET);
        Self::from_spans((end.a - start.a).as_ns(), (end.b - start.b).as_ns())
    }

    fn from_spans(ticks: i64, ns: i64) -> Result<Self, String> {
        let (Ok(ticks), Ok(ns)) = (u128::try_from(ticks), u128::try_from(ns)) else {
            return Err("the TSC ran backwards while its rate was measured".into());
        };
        let scaled = (ns << RATE_BITS).checked_div(ticks).and_then(|scaled| u64::try_from(scaled).ok());
        scaled
            .filter(|scaled| *scaled > 0)
            .map(|scaled| Self { scaled })
            .ok_or_else(|| format!("the TSC made an implausible {ticks} ticks in {ns} ns"))
    }

    /// Saturates beyond the year 2262 for a counter that started in 1970.
    fn to_ns(self, ticks: u64) -> i64 {
        i64::try_from((u128::from(ticks) * u128::from(self.scaled)) >> RATE_BITS).unwrap_or(i64::MAX)
    }

    fn ns_per_tick(self) -> f64 {
        self.scaled as f64 / (1_u64 << RATE_BITS) as f64
    }
}

/// A vendor's library and its function that returns the time.
struct Vendor {
    /// File names, best first; the loader searches `LD_LIBRARY_PATH` and its cache for plain names.
    libraries: &'static [&'static CStr],
    function: &'static CStr,
    advice: &'static str,
}

/// The C signature shared by both vendors' functions: a status, 0 for success, and the time in ns
/// through the pointer.
type ReadTime = unsafe extern "C" fn(*mut u64) -> c_int;

/// A vendor's function, loaded.
#[derive(Copy, Clone, Debug)]
struct VendorFunction {
    read_time: ReadTime,
    name: &'static CStr,
}

impl VendorFunction {
    fn load(vendor: &Vendor) -> Result<Self, String> {
        let advised = |why| format!("{why}; {}", vendor.advice);
        let symbol =
            Library::open(vendor.libraries).and_then(|library| library.symbol(vendor.function)).map_err(advised)?;
        // SAFETY: a function of this name has this signature in the vendors' headers
        // (rocprofiler-sdk/rocprofiler.h, cupti_result.h with cupti_activity.h): a C enum as
        // result, a pointer to a 64-bit unsigned as argument.
        let read_time = unsafe { std::mem::transmute::<*mut c_void, ReadTime>(symbol.as_ptr()) };
        Ok(Self { read_time, name: vendor.function })
    }

    fn read(self) -> Result<i64, String> {
        let mut ns = 0_u64;
        // SAFETY: the signature is right (see `load`), `ns` is valid for the one write, and the
        // library stays loaded.
        let status = unsafe { (self.read_time)(&raw mut ns) };
        if status != 0 {
            return Err(format!("{} failed with status {status}", self.name.to_string_lossy()));
        }
        i64::try_from(ns)
            .map_err(|_| format!("{} returned {ns} ns, which is not a valid time", self.name.to_string_lossy()))
    }
}

/// Versions from ROCm 6.2 (0) and 7 (1) on; the function has had this form in all of them.
const ROCPROFILER: Vendor = Vendor {
    libraries: &[
        c"librocprofiler-sdk.so.1",
        c"librocprofiler-sdk.so.0",
        c"librocprofiler-sdk.so",
        c"/opt/rocm/lib/librocprofiler-sdk.so.1",
        c"/opt/rocm/lib/librocprofiler-sdk.so.0",
    ],
    function: c"rocprofiler_get_timestamp",
    advice: "install rocprofiler-sdk (ROCm 6.2 or later) or add its lib directory to LD_LIBRARY_PATH; on Linux its clock is \
        CLOCK_BOOTTIME, so the tracer clock boottime works without it",
};

/// Whether there is a driver that CUPTI can use: of a server or workstation, under WSL, or on an
/// embedded board.
fn has_nvidia_driver() -> bool {
    ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvmap"].iter().any(|device| Path::new(device).exists())
}

const NO_NVIDIA_DRIVER: &str = "this host has no NVIDIA driver (/dev/nvidiactl), which CUPTI needs; install the driver, or choose \
    another tracer_clock";

/// CUDA 11 to 13.
const CUPTI: Vendor = Vendor {
    libraries: &[
        c"libcupti.so.13",
        c"libcupti.so.12",
        c"libcupti.so.11.8",
        c"libcupti.so",
        c"/usr/local/cuda/lib64/libcupti.so",
        c"/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
    ],
    function: c"cuptiGetTimestamp",
    advice: "install CUPTI, part of the CUDA toolkit, or add its lib64 directory to LD_LIBRARY_PATH",
};

/// Largest bracket of a snapshot; a wider one is worse than the disagreement of the clocks
/// themselves.
pub const SNAPSHOT_BRACKET: Duration = Duration::from_us(5);

/// How long the rate of the counter is measured.
const CALIBRATION: std::time::Duration = std::time::Duration::from_millis(100);

/// Fractional bits of a tick's length: 2^-48 relative to ticks of 0.3 ns loses a second in a
/// million years.
const RATE_BITS: u32 = 48;

const NO_STEADY_COUNTER: &str = "this machine has no TSC with a constant rate (constant_tsc and nonstop_tsc in /proc/cpuinfo); use \
    monotonic_raw";

const RUNS_BACKWARDS: &str = "the system clock ran backwards in every attempt to read a pair";

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::CString;
    use std::process::Command;

    use super::*;
    use crate::SystemClock;

    /// A system clock that returns prepared readings.
    struct Script(RefCell<Vec<i64>>);
    impl Clock<System> for Script {
        fn now(&self) -> Timestamp<System> {
            Timestamp::from_ns(self.0.borrow_mut().pop().expect("the script is long enough"))
        }
    }

    fn check_pair(system: &[i64], expected: Result<(i64, i64), &str>) {
        let clock = TracerClock::open(TracerClockName::Boottime).expect("every Linux has it");
        let script = Script(RefCell::new(system.iter().rev().copied().collect()));
        let pair = clock.read_pair(&script, Duration::from_ns(5_000));
        let pair = pair.map(|pair| (pair.system.as_ns(), pair.bracket.as_ns())).map_err(|error| error.to_string());
        match (pair, expected) {
            (Ok(pair), Ok(expected)) => assert_eq!(pair, expected),
            (Err(error), Err(part)) => assert!(error.contains(part), "{error} lacks {part}"),
            (pair, expected) => panic!("{pair:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn pairs_are_retried_until_narrow_and_a_clock_set_back_is_no_pair() {
        check_pair(&[1000, 1200], Ok((1100, 200)));
        // Preempted, then not.
        check_pair(&[0, 5000, 10_000, 10_400], Ok((10_200, 400)));
        // Set back in between, then not.
        check_pair(&[9000, 8000, 9000, 9300], Ok((9150, 300)));
        let wide: Vec<i64> = (0..2 * PAIR_ATTEMPTS as i64).map(|k| k * 6000 - 10 * (k / 2) * (k % 2)).collect();
        let last = PAIR_ATTEMPTS as i64 - 1;
        let (before, bracket) = (2 * last * 6000, 6000 - 10 * last);
        check_pair(&wide, Ok((before + bracket / 2, bracket)));
        let back: Vec<i64> = (0..2 * PAIR_ATTEMPTS as i64).rev().collect();
        check_pair(&back, Err("ran backwards"));
    }

    #[test]
    fn every_clock_runs_forward_or_says_what_it_lacks() {
        for (text, name) in TracerClockName::ALL {
            assert_eq!(name.as_str(), text);
            match TracerClock::open(name) {
                Ok(clock) => {
                    let first = clock.now().expect("opened");
                    let pair = clock.read_pair(&SystemClock, NARROW_BRACKET).expect("opened");
                    assert!(first <= pair.tracer, "{text}");
                    assert!(pair.bracket >= Duration::ZERO, "{text}");
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.starts_with(&format!("tracer clock {text}: ")), "{error}");
                    let advice = ["install", "use monotonic_raw"];
                    assert!(advice.iter().any(|part| error.contains(part)), "{error}");
                }
            }
        }
    }

    /// What a C library would register: counts its calls through its user data and fails on every
    /// third.
    unsafe extern "C" fn registered(user_data: *mut c_void, ns: *mut i64) -> c_int {
        // SAFETY: the test registers it with a counter that outlives the clock, and `ns` is the
        // caller's.
        unsafe {
            let calls =
                (*user_data.cast::<std::sync::atomic::AtomicI64>()).fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            *ns = 1_000 + calls;
            if calls % 3 == 2 { 7 } else { 0 }
        }
    }

    #[test]
    fn a_c_function_is_a_tracer_clock_and_its_failures_are_told() {
        let calls = std::sync::atomic::AtomicI64::new(0);
        let user_data = (&raw const calls).cast_mut().cast::<c_void>();
        // SAFETY: `registered` is called with the counter that it expects, which lives longer than
        // the clock.
        let clock = unsafe { TracerClock::of_c_function("my_profiler", registered, user_data) }.expect("reads");
        assert_eq!(
            (clock.name(), clock.reason(), clock.ns_per_tick()),
            ("my_profiler", "provided by the caller", None)
        );
        // The first reading was at the registration.
        assert_eq!(clock.now().expect("the second call").as_ns(), 1_001);
        let error = clock.now().expect_err("the third call").to_string();
        assert_eq!(error, "tracer clock my_profiler: the callback returned 7");
        // From another thread, as the sampler does it.
        let read = std::thread::spawn(move || clock.read_pair(&SystemClock, Duration::from_ms(1_000))).join();
        assert_eq!(read.expect("no panic").expect("the fourth call").tracer.as_ns(), 1_003);
    }

    #[test]
    fn a_reading_that_fails_on_the_way_to_a_narrower_bracket_leaves_the_pair() {
        let calls = std::sync::atomic::AtomicI64::new(0);
        let clock =
            TracerClock::of_callback("flaky", move || match calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                0 | 1 => Ok(7),
                _ => Err("gone".into()),
            });
        let clock = clock.expect("the first reading");
        assert_eq!(clock.read_pair(&SystemClock, Duration::ZERO).expect("the second reading").tracer.as_ns(), 7);
        assert!(clock.read_pair(&SystemClock, Duration::ZERO).is_err());
    }

    #[test]
    fn a_closure_is_a_tracer_clock_and_bad_names_and_dead_clocks_are_refused() {
        let clock = TracerClock::of_callback("steady.1", || Ok(RawClock.now().as_ns())).expect("reads");
        let pair = clock.read_pair(&SystemClock, NARROW_BRACKET).expect("reads");
        assert!(pair.tracer <= Timestamp::from_ns(RawClock.now().as_ns()) && pair.bracket >= Duration::ZERO);
        let dead = TracerClock::of_callback("dead", || Err("no session".into())).expect_err("never reads").to_string();
        assert_eq!(dead, "tracer clock dead: no session");
        for name in ["", "auto", "none", "two words", "a\"b", &"n".repeat(65)] {
            let error = TracerClock::of_callback(name, || Ok(0)).expect_err("a bad name").to_string();
            assert!(error.contains("1 to 64 letters"), "{error}");
        }
        assert!(TracerClock::of_callback(&"n".repeat(64), || Ok(0)).is_ok());
    }

    #[test]
    fn tick_rates_by_hand() {
        let rate = |ticks, ns| TickRate::from_spans(ticks, ns);
        let half = rate(2_000_000, 1_000_000).expect("2 GHz");
        assert_eq!(half.to_ns(7), 3);
        assert_eq!(half.ns_per_tick(), 0.5);
        // 584 years of a 1 GHz counter: more than an i64 of ns holds.
        assert_eq!(rate(1_000, 1_000).expect("1 GHz").to_ns(u64::MAX), i64::MAX);
        assert!(rate(0, 100).expect_err("stopped").contains("0 ticks"));
        assert!(rate(-1, 100).expect_err("backwards").contains("backwards"));
    }

    /// Builds a library with the given C body for both vendors' functions.
    fn library(directory: &Path, name: &str, body: &str) -> Option<CString> {
        let (source, object) = (directory.join("clock.c"), directory.join(name));
        let code = format!("int rocprofiler_get_timestamp(unsigned long *ns) {{ {body} }}");
        std::fs::write(&source, code).expect("a temporary directory");
        let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&object).arg(&source).status();
        let object = CString::new(object.to_str().expect("UTF-8")).expect("no zero byte");
        compiled.is_ok_and(|status| status.success()).then_some(object)
    }

    #[test]
    fn a_library_that_is_there_is_asked_and_its_failures_are_told() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let load = |name: &str, body: &str, function: &'static CStr| {
            let path: &'static CStr = Box::leak(library(directory.path(), name, body)?.into_boxed_c_str());
            let libraries: &'static [&'static CStr] = Box::leak(Box::new([c"libthere-is-no-such.so", path]));
            Some(VendorFunction::load(&Vendor { libraries, function, advice: "do something" }))
        };
        let read = ROCPROFILER.function;
        let Some(good) = load("libgood.so", "*ns = 42; return 0;", read) else {
            println!("skipped: no C compiler here");
            return;
        };
        assert_eq!(good.expect("loads").read(), Ok(42));
        let refusing = load("librefusing.so", "*ns = 42; return 15;", read).expect("compiled").expect("loads");
        assert!(refusing.read().expect_err("status 15").contains("status 15"));
        let mad = load("libmad.so", "*ns = -1; return 0;", read).expect("compiled").expect("loads");
        assert!(mad.read().expect_err("no time").contains("18446744073709551615"));
        let lacking = load("liblacking.so", "return 0;", c"cuptiGetTimestamp").expect("compiled");
        let error = lacking.expect_err("another function");
        assert!(error.contains("no function cuptiGetTimestamp; do something"), "{error}");
    }
}
