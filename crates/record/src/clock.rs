//! The clock of event stamps: the time-stamp counter if it is usable as a clock, otherwise
//! `CLOCK_MONOTONIC_RAW`.
//!
//! It is chosen once, when a process first records, and every event reads it. Its readings,
//! "ticks", become times afterwards, through pairs with the system clock ([`pair`]). The counter is
//! read without a fence: an instruction just before or after the reading may execute on the other
//! side of it, within some 10 ns.

use probe_sync_sys::{RawClock, SystemClock, Tsc, clock, read_pair};
use probe_sync_time::{Clock, Counter, Duration, SkewedClock, Timestamp};

use crate::layout;

/// Clock with which events are stamped.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordClock {
    /// The time-stamp counter if the kernel's own clocks are based on it, otherwise
    /// `CLOCK_MONOTONIC_RAW`.
    #[default]
    Best,
    /// The time-stamp counter; refused if it is not usable.
    Tsc,
    /// `CLOCK_MONOTONIC_RAW`.
    MonotonicRaw,
}

/// The clock that was chosen.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ticks {
    Tsc(TscTicks),
    Raw,
}

/// The time-stamp counter, usable as a clock.
#[derive(Copy, Clone, Debug)]
pub(crate) struct TscTicks(Tsc);

impl PartialEq for TscTicks {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for TscTicks {}

impl Ticks {
    /// Returns the current count.
    #[inline]
    pub fn now(self) -> u64 {
        match self {
            Self::Tsc(TscTicks(tsc)) => tsc.ticks(),
            Self::Raw => raw_now(),
        }
    }

    /// Returns the clock with a number; the counter only if it was chosen before.
    pub fn of_number(number: u64) -> Self {
        let counter = (number == layout::clock::TSC).then(Tsc::detect).flatten();
        counter.map_or(Self::Raw, |tsc| Self::Tsc(TscTicks(tsc)))
    }

    /// Returns its number in files.
    pub fn number(self) -> u64 {
        match self {
            Self::Tsc(_) => layout::clock::TSC,
            Self::Raw => layout::clock::RAW,
        }
    }
}

/// Separate function, so that events stamped by the counter need not reserve stack for it.
#[inline(never)]
fn raw_now() -> u64 {
    RawClock.now().as_ns() as u64
}

impl Clock<Counter> for Ticks {
    fn now(&self) -> Timestamp<Counter> {
        Timestamp::from_ns(Self::now(*self) as i64)
    }
}

/// Simultaneous readings of counter and system clock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClockPair {
    /// Counter, ticks.
    pub ticks: u64,
    /// The system clock, ns since 1970.
    pub system_ns: i64,
    /// Distance between the counter's readings before and after the system clock's, ticks: the pair
    /// is wrong by at most half of it.
    pub bracket_ticks: u64,
}

/// Reads both clocks, as close together as a few attempts allow.
pub(crate) fn pair(ticks: Ticks) -> ClockPair {
    let pair = read_pair(&SystemClock, &ticks, Duration::from_ns(NARROW_TICKS));
    ClockPair {
        ticks: pair.b.as_ns() as u64,
        system_ns: pair.a.as_ns(),
        bracket_ticks: pair.bracket.as_ns().unsigned_abs(),
    }
}

/// Reads a pair with a virtual clock laid over the system clock.
pub(crate) fn pair_on(ticks: Ticks, virtual_clock: &SkewedClock) -> ClockPair {
    let pair = pair(ticks);
    ClockPair { system_ns: virtual_clock.apply(Timestamp::from_ns(pair.system_ns)).as_ns(), ..pair }
}

/// Returns the clock that `wish` gives on this machine, and why.
pub(crate) fn choose(wish: RecordClock) -> Result<(Ticks, String), String> {
    choose_of(wish, || {
        clock::tsc_is_the_clocksource()?;
        let tsc = Tsc::detect().ok_or_else(|| "this processor has no invariant TSC".to_owned())?;
        Ok(Ticks::Tsc(TscTicks(tsc)))
    })
}

fn choose_of(wish: RecordClock, counter: impl FnOnce() -> Result<Ticks, String>) -> Result<(Ticks, String), String> {
    match wish {
        RecordClock::Tsc => counter().map(|ticks| (ticks, "TSC, as requested".into())),
        RecordClock::MonotonicRaw => Ok((Ticks::Raw, "CLOCK_MONOTONIC_RAW, as requested".into())),
        RecordClock::Best => Ok(match counter() {
            Ok(ticks) => (ticks, "TSC: constant, nonstop, and the kernel's clocksource".into()),
            Err(reason) => (Ticks::Raw, format!("CLOCK_MONOTONIC_RAW: {reason}")),
        }),
    }
}

/// Checks whether the chosen clock is still usable; returns what is wrong otherwise.
pub(crate) fn still_steady(ticks: Ticks) -> Result<(), String> {
    match ticks {
        Ticks::Tsc(_) => clock::tsc_is_the_clocksource(),
        Ticks::Raw => Ok(()),
    }
}

/// Bracket width that an undisturbed reading stays below, ticks; some 40 ns at 2 to 4 GHz.
const NARROW_TICKS: i64 = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_in_order_and_narrow() {
        let (ticks, reason) = choose(RecordClock::Best).expect("there is always at least one");
        assert!(!reason.is_empty());
        let [a, b] = [pair(ticks), pair(ticks)];
        assert!(a.ticks < b.ticks && a.system_ns > 1_577_836_800_000_000_000, "{a:?} {b:?}");
        assert_eq!(choose(RecordClock::MonotonicRaw).map(|(ticks, _)| ticks), Ok(Ticks::Raw));
    }

    #[test]
    fn an_unsteady_counter_is_refused_where_it_was_asked_for() {
        let unsteady = || Err("the kernel's clocksource is hpet".to_owned());
        let refused = choose_of(RecordClock::Tsc, unsteady).expect_err("it is no clock");
        let said = crate::Error::UnsteadyClock { reason: refused }.to_string();
        assert!(said.contains("hpet") && said.contains("monotonic_raw"), "{said}");
        let (ticks, reason) = choose_of(RecordClock::Best, unsteady).expect("there is another");
        assert!(ticks == Ticks::Raw && reason.contains("hpet"), "{reason}");
    }
}
