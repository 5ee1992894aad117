//! Reads of the host's clocks, and bracketed reads of two clocks at once.
//!
//! All code that needs the time reads it here.
//!
//! Two clocks cannot be read at one instant. [`read_pair`] reads B, A, B: the reading of A happened
//! between the two readings of B, so pairing it with their midpoint is wrong by at most half their
//! distance, the bracket. A preempted attempt has a wide bracket, so a few attempts are made and
//! the narrowest is kept.
//!
//! **The time-stamp counter.** While the kernel's clocksource is `tsc`, all of its clocks are this
//! counter times something, on every core: the vDSO reads it as [`ordered_ticks`] does. So what it
//! differs by from core to core is in `CLOCK_MONOTONIC_RAW` as well, no more and no less. Unless
//! somebody vouched for the counters (`tsc=reliable`), the kernel compares those of all cores when
//! they start, and gives `tsc` up where one was seen behind another (`check_tsc_warp` in
//! arch/x86/kernel/tsc_sync.c). [`tsc_is_the_clocksource`] says whether it has.
//!
//! It does not correct or convert clocks; callers lay a virtual clock (`SkewedClock`) over these.

use std::sync::OnceLock;

use probe_sync_time::{Boot, Clock, Domain, Duration, Monotonic, Raw, System, Timestamp};
use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_REALTIME`, the clock of kernel packet timestamps.
#[derive(Copy, Clone, Debug, Default)]
pub struct SystemClock;

/// `CLOCK_MONOTONIC`, for timers and schedules.
#[derive(Copy, Clone, Debug, Default)]
pub struct MonotonicClock;

/// `CLOCK_MONOTONIC_RAW`, which is never stepped or slewed.
#[derive(Copy, Clone, Debug, Default)]
pub struct RawClock;

/// `CLOCK_BOOTTIME`, which also counts suspended time.
#[derive(Copy, Clone, Debug, Default)]
pub struct BootClock;

impl Clock<System> for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp<System> {
        read(ClockId::Realtime)
    }
}
impl Clock<Monotonic> for MonotonicClock {
    #[inline]
    fn now(&self) -> Timestamp<Monotonic> {
        read(ClockId::Monotonic)
    }
}
impl Clock<Raw> for RawClock {
    #[inline]
    fn now(&self) -> Timestamp<Raw> {
        read(ClockId::MonotonicRaw)
    }
}
impl Clock<Boot> for BootClock {
    #[inline]
    fn now(&self) -> Timestamp<Boot> {
        read(ClockId::Boottime)
    }
}

/// Readings of two clocks at the same moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pair<A: Domain, B: Domain> {
    /// The reading of the first clock.
    pub a: Timestamp<A>,
    /// The second clock at that moment: the midpoint of the readings before and after.
    pub b: Timestamp<B>,
    /// Distance between the readings of B before and after. `b` is wrong by at most half of it.
    pub bracket: Duration,
}

/// Reads `a` between two readings of `b`. Tries until the bracket is at most `narrow`, at most
/// `PAIR_ATTEMPTS` times, and keeps the narrowest.
pub fn read_pair<A: Domain, B: Domain>(a: &impl Clock<A>, b: &impl Clock<B>, narrow: Duration) -> Pair<A, B> {
    let mut best = read_pair_once(a, b);
    for _ in 1..PAIR_ATTEMPTS {
        if best.bracket <= narrow {
            break;
        }
        let next = read_pair_once(a, b);
        if next.bracket < best.bracket {
            best = next;
        }
    }
    best
}

/// Processor time used by this process, all threads together.
pub fn process_cpu_time() -> std::time::Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    // Both are never negative for this clock.
    std::time::Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}

/// The CPU's time-stamp counter, for hosts whose profiler uses it.
#[derive(Copy, Clone, Debug)]
pub struct Tsc(());

impl Tsc {
    /// Returns the counter if the CPU has one that ticks at a constant rate and never stops.
    pub fn detect() -> Option<Self> {
        static STEADY: OnceLock<bool> = OnceLock::new();
        STEADY.get_or_init(|| TscFlags::detect().steady()).then_some(Self(()))
    }

    /// The present count, in ticks of unknown length.
    #[inline]
    pub fn ticks(&self) -> u64 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: RDTSC touches no memory; `Self` exists only where /proc/cpuinfo lists the counter
        // as usable.
        return unsafe { core::arch::x86_64::_rdtsc() };
        #[cfg(not(target_arch = "x86_64"))]
        0
    }
}

/// What `/proc/cpuinfo` says about the time-stamp counter.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct TscFlags {
    /// Ticks at one rate whatever the CPU's frequency.
    pub constant: bool,
    /// Continues in deep sleep states.
    pub nonstop: bool,
}

impl TscFlags {
    /// Returns the flags of this machine; none set if there is no such counter.
    pub(crate) fn detect() -> Self {
        std::fs::read_to_string("/proc/cpuinfo").map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// Returns true if the counter can serve as a clock.
    pub(crate) fn steady(self) -> bool {
        cfg!(target_arch = "x86_64") && self.constant && self.nonstop
    }

    fn parse(cpuinfo: &str) -> Self {
        let mut found = None;
        for line in cpuinfo.lines().filter(|line| line.starts_with("flags")) {
            let mut has = Self::default();
            for flag in line.split_whitespace() {
                has.constant |= flag == "constant_tsc";
                has.nonstop |= flag == "nonstop_tsc";
            }
            // A flag counts only when every CPU has it.
            let before = found.unwrap_or(has);
            found = Some(Self { constant: has.constant && before.constant, nonstop: has.nonstop && before.nonstop });
        }
        found.unwrap_or_default()
    }
}

/// The present count of the time-stamp counter, read after everything that precedes it in the
/// program; 0 on a processor that is not x86-64.
///
/// LFENCE lets RDTSC wait for all earlier loads (Linux makes it do so on AMD processors, too), and
/// the compiler moves no load or store past it. Loads after it may be done before it by as much as
/// the processor looks ahead, a fraction of 1 µs. Linux' `rdtsc_ordered` does the same or takes
/// RDTSCP, which was measured to cost 2 ns more; a second LFENCE costs 3.5 ns.
#[inline]
pub fn ordered_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let (low, high): (u64, u64);
        // SAFETY: every x86-64 processor has both instructions; they touch no memory and no stack.
        unsafe {
            core::arch::asm!("lfence", "rdtsc", out("rax") low, out("rdx") high, options(nostack, preserves_flags));
        }
        high << 32 | low
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// Checks whether the time-stamp counter can serve as a clock now: it ticks at one rate, never
/// stops, and the kernel's own clocks are based on it.
///
/// # Errors
/// States what is missing.
pub fn tsc_is_the_clocksource() -> Result<(), String> {
    if Tsc::detect().is_none() {
        return Err("this processor's TSC is not constant_tsc and nonstop_tsc (/proc/cpuinfo)".into());
    }
    match std::fs::read_to_string(CLOCKSOURCE) {
        Ok(name) if name.trim() == "tsc" => Ok(()),
        Ok(name) => Err(format!("the kernel's clocksource is {}, not tsc ({CLOCKSOURCE})", name.trim())),
        Err(error) => Err(format!("the kernel's clocksource is unknown: {CLOCKSOURCE}: {error}")),
    }
}

#[inline]
fn read<D: Domain>(clock: ClockId) -> Timestamp<D> {
    from_timespec(clock_gettime(clock))
}

fn from_timespec<D: Domain>(time: rustix::time::Timespec) -> Timestamp<D> {
    Timestamp::from_ns(time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec))
}

fn read_pair_once<A: Domain, B: Domain>(a: &impl Clock<A>, b: &impl Clock<B>) -> Pair<A, B> {
    let before = b.now();
    let middle = a.now();
    let after = b.now();
    Pair { a: middle, b: before.midpoint(after), bracket: after - before }
}

/// Bracket that a vDSO clock read on an undisturbed CPU stays below.
pub const NARROW_BRACKET: Duration = Duration::from_ns(150);

/// The kernel's clock source.
pub(crate) const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// How often [`read_pair`] tries to get a narrow bracket.
pub(crate) const PAIR_ATTEMPTS: usize = 8;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A clock that returns prepared readings.
    struct Script(RefCell<Vec<i64>>);
    impl Script {
        fn new(readings: &[i64]) -> Self {
            Self(RefCell::new(readings.iter().rev().copied().collect()))
        }
    }
    impl<D: Domain> Clock<D> for Script {
        fn now(&self) -> Timestamp<D> {
            Timestamp::from_ns(self.0.borrow_mut().pop().expect("the script is long enough"))
        }
    }

    fn check_pair(a: &[i64], b: &[i64], expected: (i64, i64, i64)) {
        let pair = read_pair::<System, Raw>(&Script::new(a), &Script::new(b), Duration::from_ns(100));
        assert_eq!((pair.a.as_ns(), pair.b.as_ns(), pair.bracket.as_ns()), expected);
    }

    #[test]
    fn the_narrowest_bracket_is_kept() {
        check_pair(&[500], &[10, 50], (500, 30, 40));
        // The first attempt was preempted, the second was not.
        check_pair(&[500, 9500], &[0, 9000, 9010, 9070], (9500, 9040, 60));
        // Never narrow enough: gives up after the bounded number of attempts with the best of them.
        let b = [0, 900, 1000, 1800, 2000, 2700, 3000, 3600, 4000, 4500, 5000, 5400, 6000, 6300, 7000, 7200];
        check_pair(&[1, 2, 3, 4, 5, 6, 7, 8], &b, (8, 7100, 200));
    }

    #[test]
    fn clocks_run_forward_and_stay_on_their_own_timelines() {
        let (raw, monotonic, boot) = (RawClock.now(), MonotonicClock.now(), BootClock.now());
        assert!(RawClock.now() >= raw);
        assert!(MonotonicClock.now() >= monotonic);
        assert!(BootClock.now().as_ns() >= monotonic.as_ns() && BootClock.now() >= boot);
        // Later than 2020 in ns since the Unix epoch.
        assert!(SystemClock.now().as_ns() > 1_577_836_800_000_000_000);
    }

    #[test]
    fn tsc_flags_count_only_when_all_cpus_have_them() {
        let both = "flags\t\t: fpu constant_tsc nonstop_tsc\n";
        let one = "flags\t\t: fpu constant_tsc\n";
        let check = |text: &str, constant, nonstop| {
            assert_eq!(TscFlags::parse(text), TscFlags { constant, nonstop });
        };
        check(both, true, true);
        check(&format!("{both}{one}"), true, false);
        check("processor : 0\n", false, false);
        if let Some(tsc) = Tsc::detect() {
            assert!(tsc.ticks() < tsc.ticks());
            assert!(ordered_ticks() < ordered_ticks());
        }
    }

    #[test]
    fn what_keeps_the_counter_from_being_a_clock_is_named() {
        let usable = tsc_is_the_clocksource();
        let kernels = std::fs::read_to_string(CLOCKSOURCE).unwrap_or_default();
        assert_eq!(usable.is_ok(), Tsc::detect().is_some() && kernels.trim() == "tsc", "{usable:?}");
        if let Err(reason) = usable {
            assert!(reason.contains("tsc"), "{reason}");
        }
    }
}
