//! One wait of a backend, with its start, its deadline and the error for missing it.
//!
//! Every backend sleeps in slices and asks [`Wait::slice`] before each one whether it may continue.
//! Slices are bounded so that an interrupt raised by another thread is noticed; a signal also ends
//! the sleep itself.

use std::time::{Duration, Instant};

use crate::{Deadline, Error, Rank};

/// One wait for peers.
#[derive(Clone, Debug)]
pub struct Wait<'a> {
    operation: &'static str,
    deadline: &'a Deadline,
    started: Instant,
    interrupted: Option<Instant>,
    early: bool,
    /// Time spent polling so far, and when that was last counted.
    looked: Duration,
    counted_at: Instant,
}

impl<'a> Wait<'a> {
    /// Longest sleep between two checks of the interrupt flag. Ten wake-ups per second of 64
    /// waiting ranks cost about 0.3 % of one core.
    pub const SLICE: Duration = Duration::from_millis(100);

    /// How long a wait may spin before it sleeps.
    pub const SPIN: Duration = Duration::from_micros(50);

    /// Largest amount charged for a poll during which others had the core: eight turns of theirs at
    /// most. With 64 ranks on two cores that leaves enough polls for consecutive rounds, and takes
    /// no more processor time than sleeping at once if ranks drift apart.
    const GIVING_WAY: Duration = Duration::from_micros(6);

    /// Begins a wait.
    pub fn begin(operation: &'static str, deadline: &'a Deadline) -> Self {
        let now = Instant::now();
        Self {
            operation,
            deadline,
            started: now,
            interrupted: None,
            early: false,
            looked: Duration::ZERO,
            counted_at: now,
        }
    }

    /// Begins a wait that ends when three quarters of the time to the deadline have passed: a rank
    /// between others and the root must report missing ranks before the root's own wait ends.
    pub fn begin_early(operation: &'static str, deadline: &'a Deadline) -> Self {
        Self { early: true, ..Self::begin(operation, deadline) }
    }

    /// Returns the operation that waits, for errors.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns true while the wait is so young that it may spin.
    pub fn may_spin(&self) -> bool {
        self.started.elapsed() < Self::SPIN
    }

    /// Returns true while this wait has polled for less than [`Self::SPIN`]; for callers that check
    /// between two polls. One that `gives_way`, by `sched_yield`, is charged little of the time
    /// during which others run, because they have the core then.
    pub fn may_look(&mut self, gives_way: bool) -> bool {
        let now = Instant::now();
        let since = now.saturating_duration_since(self.counted_at);
        self.counted_at = now;
        self.looked += if gives_way { since.min(Self::GIVING_WAY) } else { since };
        self.looked < Self::SPIN
    }

    /// Returns the time waited so far.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the longest time to sleep before checking again; `None` if the wait is over.
    pub fn slice(&mut self) -> Option<Duration> {
        let limit = self.limit();
        let limit =
            if self.early { self.started + limit.saturating_duration_since(self.started) * 3 / 4 } else { limit };
        // After the interrupt was seen: without grace the wait ends at that instant.
        let left = limit.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| left.min(Self::SLICE))
    }

    /// Returns when it ends, as far as known.
    fn limit(&mut self) -> Instant {
        if self.interrupted.is_none() && self.deadline.interrupted() {
            self.interrupted = Some(Instant::now());
        }
        match self.interrupted {
            Some(at) => self.deadline.at.min(at + self.deadline.grace),
            None => self.deadline.at,
        }
    }

    /// Returns when this share (0 to 1) of the time to the deadline has passed.
    pub(crate) fn at(&mut self, part: f64) -> Instant {
        let limit = self.limit();
        self.started + limit.saturating_duration_since(self.started).mul_f64(part)
    }

    /// Returns a slice that also ends soon after `then`, if that is in the future.
    pub(crate) fn slice_until(&mut self, then: Instant) -> Option<Duration> {
        let left = then.saturating_duration_since(Instant::now());
        self.slice().map(|slice| if left.is_zero() { slice } else { slice.min(left) })
    }

    /// Returns a deadline after this share of the time, for what may fail before the wait does.
    pub(crate) fn sooner(&mut self, part: f64) -> Deadline {
        Deadline { at: self.at(part), ..self.deadline.clone() }
    }

    /// Returns true if a signal has cut the wait short.
    pub fn interrupted(&self) -> bool {
        self.interrupted.is_some()
    }

    /// Returns the error of a wait that is over.
    pub fn late(&self, missing: Vec<Rank>) -> Error {
        Error::Late {
            operation: self.operation,
            missing,
            waited: self.started.elapsed(),
            interrupted: self.interrupted.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    fn check(limit: Duration, interrupted: bool, early: bool, longest: Option<Duration>) {
        let deadline = Deadline::new(limit, Some(Arc::new(AtomicBool::new(interrupted))));
        let mut wait = if early { Wait::begin_early("test", &deadline) } else { Wait::begin("test", &deadline) };
        let slice = wait.slice();
        assert_eq!(slice.is_some(), longest.is_some());
        assert!(slice <= longest, "{slice:?} is longer than {longest:?}");
        let Error::Late { interrupted: said, .. } = wait.late(vec![1]) else { panic!("another error") };
        assert_eq!(said, interrupted);
    }

    #[test]
    fn looking_ends_whether_it_gives_way_or_not() {
        let deadline = Deadline::new(Duration::from_secs(3600), None);
        for gives_way in [false, true] {
            let (mut wait, mut looks) = (Wait::begin("test", &deadline), 0);
            while wait.may_look(gives_way) {
                looks += 1;
                assert!(looks < 1_000_000_000, "a clock that stands still");
                std::thread::sleep(Duration::from_micros(1));
            }
            // A sleep of a microsecond takes longer than that: a look that gives way is charged six
            // at most.
            let bound = if gives_way { 8 } else { 0 };
            assert!(looks >= bound, "{looks} looks");
            assert!(!wait.may_look(gives_way), "what is spent is spent");
        }
    }

    #[test]
    fn slices_end_at_the_deadline() {
        let (hour, ms) = (Duration::from_secs(3600), Duration::from_millis);
        check(Duration::ZERO, false, false, None);
        check(Duration::ZERO, true, false, None);
        check(hour, false, false, Some(Wait::SLICE));
        check(hour, true, false, Some(Wait::SLICE));
        check(ms(80), false, false, Some(ms(80)));
        check(ms(80), false, true, Some(ms(60)));
    }
}
