//! The start times of exchanges: at `t ≡ phase (mod burst · gap)` on the monotonic clock, `burst`
//! of them together.
//!
//! A burst of exchanges costs one wake-up and few system calls. It goes to different peers in turn,
//! or, as a train, to one: after a pause caches and processors are cold on both ends, the first
//! packets of a train warm them, and the others show the path's least delay.
//!
//! All processes of a host read the same monotonic clock, so ranks that are given equal gaps and
//! different phases interleave without talking to each other. A start that was missed, because the
//! process did not run, is skipped and counted: catching up in a burst would queue the packets
//! behind each other and falsify what they measure.

use probe_sync_time::{Duration, Monotonic, Timestamp};

/// Mean gap between exchange starts of one node, number of simultaneous starts, and their phase.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    gap_ns: i64,
    phase_ns: i64,
    burst: u32,
    train: bool,
}

impl Schedule {
    /// Creates a schedule with one start per `gap`, `phase` after each multiple of `gap` (taken
    /// modulo `gap`). `None` unless `gap` is positive.
    pub const fn new(gap: Duration, phase: Duration) -> Option<Self> {
        Self::in_bursts(gap, 1, phase)
    }

    /// Creates a schedule with `burst` simultaneous starts per `burst · gap`, `phase` after each
    /// multiple of that. `None` unless `gap` and `burst` are positive.
    pub const fn in_bursts(gap: Duration, burst: u32, phase: Duration) -> Option<Self> {
        if gap.as_ns() <= 0 || burst == 0 {
            return None;
        }
        let period = gap.as_ns().saturating_mul(burst as i64);
        Some(Self { gap_ns: gap.as_ns(), phase_ns: phase.as_ns().rem_euclid(period), burst, train: false })
    }

    /// Creates a schedule like [`Schedule::in_bursts`], with each burst to one peer.
    pub const fn in_trains(gap: Duration, burst: u32, phase: Duration) -> Option<Self> {
        match Self::in_bursts(gap, burst, phase) {
            Some(schedule) => Some(Self { train: true, ..schedule }),
            None => None,
        }
    }

    /// Returns true if the exchanges of a burst are all with one peer.
    pub(crate) const fn is_train(&self) -> bool {
        self.train
    }

    /// Returns the mean gap between starts.
    pub const fn gap(&self) -> Duration {
        Duration::from_ns(self.gap_ns)
    }

    /// Returns the number of exchanges that start together.
    pub const fn burst(&self) -> u32 {
        self.burst
    }

    /// Returns the time between bursts.
    pub const fn period(&self) -> Duration {
        Duration::from_ns(self.gap_ns.saturating_mul(self.burst as i64))
    }

    /// Returns how often a node at this pace polls for packets if they do not wake it: a peer may
    /// wait that long for its answer.
    pub fn look_period(&self) -> Duration {
        self.period().clamp(LOOK_LIMITS[0], LOOK_LIMITS[1])
    }

    /// Returns the time limit of an exchange: `timeout`, or more if nodes poll so rarely that an
    /// answer to a repeated packet would be too late. Two nodes poll for the packet and for the
    /// answer, once more after [`Schedule::repeat_after`].
    pub(crate) fn exchange_limit(&self, timeout: Duration) -> Duration {
        timeout.max(Duration::from_ns(LOOKS_PER_EXCHANGE * self.look_period().as_ns()))
    }

    /// Returns the time after which an unanswered packet is repeated: a part of the timeout, and
    /// not before both nodes had time to poll.
    pub(crate) fn repeat_after(&self, timeout: Duration) -> Duration {
        Duration::from_ns((timeout.as_ns() / REPEATS_PER_TIMEOUT).max(LOOKS_PER_REPEAT * self.look_period().as_ns()))
    }

    /// Returns the phase, `0..period`.
    pub const fn phase(&self) -> Duration {
        Duration::from_ns(self.phase_ns)
    }

    /// Returns the first start of a burst strictly after `now`. Saturates at the end of time.
    pub(crate) fn next_after(&self, now: Timestamp<Monotonic>) -> Timestamp<Monotonic> {
        let past_start = self.past_start(now);
        Timestamp::from_ns(now.as_ns().saturating_add(self.period().as_ns() - past_start))
    }

    /// Returns how many starts later than `due` are due at `now` as well and must be skipped.
    pub fn missed(&self, due: Timestamp<Monotonic>, now: Timestamp<Monotonic>) -> u64 {
        (now - due).as_ns().max(0).unsigned_abs() / self.period().as_ns().unsigned_abs() * u64::from(self.burst)
    }

    /// Returns the time since the latest start at or before `now`, `0..period`, ns.
    fn past_start(&self, now: Timestamp<Monotonic>) -> i64 {
        // i128: now − phase may leave the range of i64.
        let since = (i128::from(now.as_ns()) - i128::from(self.phase_ns)).rem_euclid(i128::from(self.period().as_ns()));
        since as i64
    }
}

/// Limits of the poll period. The longest is that of the clock watch, which needs as many wake-ups.
const LOOK_LIMITS: [Duration; 2] = [Duration::from_ms(1), Duration::from_ms(250)];
/// Polls per repetition: a packet and its answer need at most two polls, plus transmission.
const LOOKS_PER_REPEAT: i64 = 3;
/// Polls per exchange: twice as many for a repeated packet, with a reserve for a late node.
const LOOKS_PER_EXCHANGE: i64 = 8;
/// Repetitions per timeout, if nodes poll often.
const REPEATS_PER_TIMEOUT: i64 = 5;

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
    fn nodes_that_look_rarely_wait_longer() {
        let second = Duration::from_ms(1_000);
        let check = |gap_ms: i64, look_ms: i64, repeat_ms: i64, limit_ms: i64| {
            let schedule = schedule(gap_ms * 1_000_000, 0);
            let found = [schedule.look_period(), schedule.repeat_after(second), schedule.exchange_limit(second)];
            assert_eq!(found, [look_ms, repeat_ms, limit_ms].map(Duration::from_ms), "{gap_ms} ms");
        };
        check(5, 5, 200, 1_000);
        check(100, 100, 300, 1_000);
        check(30_000, 250, 750, 2_000);
        assert_eq!(schedule(1_000, 0).look_period(), Duration::from_ms(1));
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
