//! When exchanges start: at `t ≡ phase (mod gap)` on the monotonic clock.
//!
//! All processes of a host read the same monotonic clock, so ranks that are given equal gaps and different phases
//! interleave without talking to each other. A start that was missed, because the process did not run, is skipped and
//! counted: catching up in a burst would queue the packets behind each other and falsify what they measure.
//!
//! What it does not do: choose the peer; randomise.

use probe_sync_time::{Duration, Monotonic, Timestamp};

/// The gap between exchange starts of one node, and where in the gap they lie.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    gap_ns: i64,
    phase_ns: i64,
}

impl Schedule {
    /// One start per `gap`, `phase` after each multiple of `gap` (taken modulo `gap`). `None` unless `gap` is positive.
    pub const fn new(gap: Duration, phase: Duration) -> Option<Self> {
        if gap.as_ns() <= 0 {
            return None;
        }
        Some(Self { gap_ns: gap.as_ns(), phase_ns: phase.as_ns().rem_euclid(gap.as_ns()) })
    }

    /// The gap.
    pub const fn gap(&self) -> Duration {
        Duration::from_ns(self.gap_ns)
    }

    /// The phase, `0..gap`.
    pub const fn phase(&self) -> Duration {
        Duration::from_ns(self.phase_ns)
    }

    /// The first start strictly after `now`. Saturates at the end of time.
    pub(crate) fn next_after(&self, now: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
        let past_start = self.past_start(now);
        Timestamp::from_ns(now.as_ns().saturating_add(self.gap_ns - past_start))
    }

    /// How many starts later than `due` have come by `now` as well: those to skip.
    pub fn missed(&self, due: Timestamp<Monotonic>, now: Timestamp<Monotonic>) -> u64 {
        (now - due).as_ns().max(0).unsigned_abs() / self.gap_ns.unsigned_abs()
    }

    /// Time since the latest start at or before `now`, `0..gap`, ns.
    fn past_start(&self, now: Timestamp<Monotonic>) -> i64 {
        // i128: now − phase may leave the range of i64.
        let since = (i128::from(now.as_ns()) - i128::from(self.phase_ns)).rem_euclid(i128::from(self.gap_ns));
        since as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn schedule(gap: i64, phase: i64) -> Schedule {
        Schedule::new(Duration::from_ns(gap), Duration::from_ns(phase)).unwrap()
    }

    #[test]
    fn starts_by_hand() {
        let check = |now, expected| {
            let next = schedule(800, 100).next_after(Timestamp::from_ns(now));
            assert_eq!(next.as_ns(), expected, "after {now}");
        };
        check(0, 100);
        check(99, 100);
        check(100, 900);
        check(901, 1700);
        check(-800, -700);
        check(i64::MAX, i64::MAX);
    }

    #[test]
    fn missed_starts_by_hand() {
        let check = |due, now, expected| {
            let missed = schedule(800, 0).missed(Timestamp::from_ns(due), Timestamp::from_ns(now));
            assert_eq!(missed, expected, "due {due}, now {now}");
        };
        check(800, 800, 0);
        check(800, 1599, 0);
        check(800, 1600, 1);
        check(800, 4100, 4);
        check(1600, 800, 0);
    }

    #[test]
    fn a_gap_must_be_positive() {
        assert_eq!(Schedule::new(Duration::ZERO, Duration::ZERO), None);
        assert_eq!(schedule(800, -100).phase().as_ns(), 700);
    }

    proptest! {
        #[test]
        fn the_next_start_is_the_first_on_the_grid(
            gap in 1..i64::MAX / 2, phase: i64, now in i64::MIN / 2..i64::MAX / 2,
        ) {
            let schedule = schedule(gap, phase);
            let next = schedule.next_after(Timestamp::from_ns(now)).as_ns();
            prop_assert!(next > now && next - now <= gap);
            prop_assert_eq!((i128::from(next) - i128::from(phase)).rem_euclid(i128::from(gap)), 0);
        }
    }
}
