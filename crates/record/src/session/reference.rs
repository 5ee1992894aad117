//! The clock by which several nodes agree when to record, and the conversion of its times to ticks.
//!
//! The builder's caller supplies it, for example as `probe_sync::GlobalClock::now_ns` from the page
//! that a run maintains. The helper reads it before and after each limit of a window and
//! interpolates linearly between the two readings.
//!
//! It does not correct that clock: an error of the clock shifts the window by the same amount.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::clock::Ticks;

/// Returns the present reference time, ns since the Unix epoch; `None` while it is unknown.
#[derive(Clone)]
pub(super) struct Reference(Arc<dyn Fn() -> Option<i64> + Send + Sync>);

impl Reference {
    /// Wraps the caller's function.
    pub fn of(now: impl Fn() -> Option<i64> + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Present reading; a panic of the caller's function is printed on standard error, and counts
    /// as unknown.
    pub fn now_ns(&self) -> Option<i64> {
        catch_unwind(AssertUnwindSafe(|| (self.0)())).ok().flatten()
    }

    /// Reads both clocks at one moment, as close together as a few attempts allow.
    pub fn read(&self, ticks: Ticks) -> Option<Reading> {
        let attempt = || {
            let before = ticks.now();
            let ns = self.now_ns()?;
            let width = ticks.now().saturating_sub(before);
            Some((width, Reading { ticks: before + width / 2, ns }))
        };
        let first = attempt()?;
        let others = (1..ATTEMPTS).filter_map(|_| attempt());
        others.chain([first]).min_by_key(|(width, _)| *width).map(|(_, reading)| reading)
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Reference")
    }
}

/// Two clocks at one moment.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Ticks of events.
    pub ticks: u64,
    /// The reference's, ns.
    pub ns: i64,
}

impl Reading {
    /// Ticks at a time of the reference, on the line through this reading and a later one.
    pub fn ticks_at(self, later: Self, ns: i64) -> u64 {
        let [span, passed] = [later.ns, ns].map(|end| i128::from(end) - i128::from(self.ns));
        let ticks = i128::from(later.ticks) - i128::from(self.ticks);
        // The reference does not go back; where it stood still there is no line.
        let at = if span > 0 {
            i128::from(self.ticks) + ticks.saturating_mul(passed) / span
        } else {
            i128::from(later.ticks)
        };
        u64::try_from(at.max(0)).unwrap_or(u64::MAX)
    }
}

const ATTEMPTS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_between_two_readings_lies_on_the_line() {
        let reading = |ticks, ns| Reading { ticks, ns };
        for (a, b, ns, expected) in [
            ((1000, 0), (3000, 1000), 500, 2000),
            ((1000, 0), (3000, 1000), 0, 1000),
            ((1000, 0), (3000, 1000), 2000, 5000),
            ((1000, 0), (3000, 1000), -100, 800),
            ((1000, 0), (3000, 1000), -600, 0),
            ((1000, 7), (3000, 7), 7, 3000),
            // Clocks that show nonsense give nonsense, and no panic.
            ((0, i64::MIN), (u64::MAX, i64::MAX), i64::MAX, (1 << 63) - 1 + 1),
        ] {
            assert_eq!(reading(a.0, a.1).ticks_at(reading(b.0, b.1), ns), expected, "{a:?} {b:?} {ns}");
        }
    }

    #[test]
    fn a_clock_that_fails_is_not_known() {
        assert_eq!(Reference::of(|| None).read(Ticks::Raw), None);
        assert_eq!(Reference::of(|| panic!("on purpose")).now_ns(), None);
        assert_eq!(Reference::of(|| Some(7)).read(Ticks::Raw).map(|reading| reading.ns), Some(7));
    }
}
