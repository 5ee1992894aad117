//! A scheduled recording of a span of the reference clock, which starts a little early and ends a
//! little late so that the limits can be found exactly.
//!
//! A session has at most one appointment, which its helper thread carries out. Recording begins
//! [`LEAD`] before the span and ends [`SETTLE`] after it; clock readings on both sides of each
//! limit determine its tick. A late wake-up therefore matters only if it is late by more than
//! [`LEAD`]; the window then begins when the recording did and reports this.

use std::time::{Duration, Instant};

use super::reference::Reading;

/// A span that shall be recorded.
#[derive(Debug)]
pub(super) struct Appointment {
    /// Start and end, ns of the reference.
    pub asked_ns: [i64; 2],
    /// When to continue with it.
    pub due: Instant,
    stage: Stage,
    /// A reading before the next limit.
    before: Reading,
    /// Since when everything is recorded, ticks.
    recording_since: u64,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Stage {
    Ahead,
    /// Recording, before the beginning.
    Armed,
    Begun,
    /// Shortly before the end.
    Ending,
}

/// The next action.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Wait until it is due again.
    Wait,
    /// Begin to record, then tell [`Appointment::armed`] about it.
    Record,
    /// The window begins at these ticks.
    From(u64),
    /// The window ends at these ticks, and with it the appointment.
    End(u64),
}

impl Appointment {
    /// Creates an appointment made at this reading.
    pub fn agreed(asked_ns: [i64; 2], now: Reading) -> Self {
        let mut agreed = Self { asked_ns, due: Instant::now(), stage: Stage::Ahead, before: now, recording_since: 0 };
        agreed.due_at(asked_ns[0].saturating_sub(LEAD_NS), now);
        agreed
    }

    /// Continues at this reading; `None`: the reference is currently unknown.
    pub fn go_on(&mut self, now: Option<Reading>) -> Act {
        let Some(now) = now else {
            self.due = Instant::now() + UNKNOWN_POLL;
            return Act::Wait;
        };
        let [from, to] = self.asked_ns;
        let next = match self.stage {
            Stage::Ahead => from.saturating_sub(LEAD_NS),
            Stage::Armed => from.saturating_add(SETTLE_NS),
            Stage::Begun => to.saturating_sub(SETTLE_NS),
            Stage::Ending => to.saturating_add(SETTLE_NS),
        };
        if now.ns < next {
            self.due_at(next, now);
            return Act::Wait;
        }
        self.due = Instant::now();
        match self.stage {
            Stage::Ahead => Act::Record,
            Stage::Armed => {
                let ticks = self.before.ticks_at(now, from).max(self.recording_since);
                self.stage = Stage::Begun;
                self.keep_before(to, now);
                Act::From(ticks)
            }
            Stage::Begun => {
                self.stage = Stage::Ending;
                self.keep_before(to, now);
                Act::Wait
            }
            Stage::Ending => Act::End(self.before.ticks_at(now, to).max(self.recording_since)),
        }
    }

    /// Everything is recorded since `since` ticks; `now` was read after that. Returns the start of
    /// the window, as far as known, and whether it is late.
    pub fn armed(&mut self, since: u64, now: Option<Reading>) -> (u64, bool) {
        self.stage = Stage::Armed;
        self.recording_since = since;
        let Some(now) = now else { return (since, false) };
        let from = self.asked_ns[0];
        let ticks = self.before.ticks_at(now, from);
        self.keep_before(from, now);
        (ticks.max(since), ticks < since)
    }

    fn keep_before(&mut self, limit: i64, now: Reading) {
        if now.ns <= limit {
            self.before = now;
        }
    }

    fn due_at(&mut self, ns: i64, now: Reading) {
        let left = Duration::from_nanos(u64::try_from(ns.saturating_sub(now.ns)).unwrap_or(0));
        // By parts: the reference may be slewed in the meantime.
        self.due = Instant::now() + left.min(SLEEP_MAX);
    }
}

/// How long before a span recording begins, ns: as late as a thread may wake on a busy machine.
pub(super) const LEAD_NS: i64 = 100_000_000;
/// How far from a limit readings are taken, ns: the distance over which the reference is certainly
/// a straight line relative to the counter.
const SETTLE_NS: i64 = 2_000_000;
const UNKNOWN_POLL: Duration = Duration::from_millis(50);
const SLEEP_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Ticks are ns, 5 ms ahead of the reference.
    fn reading(ms: i64) -> Reading {
        Reading { ticks: (ms * MS + 5 * MS) as u64, ns: ms * MS }
    }

    #[test]
    fn limits_are_found_however_late_it_wakes() {
        // Readings at which it goes on, all in ms; the window is from 1000 to 1200.
        for (wakes, since, from, to, late) in [
            (&[900, 1002, 1198, 1202][..], 901, 1005, 1205, false),
            (&[950, 1100, 1199, 1300], 951, 1005, 1205, false),
            // It wakes when the span has begun, and again when it is over.
            (&[1050, 1051, 1190, 1250, 1251], 1052, 1057, 1205, true),
            (&[900, 1300, 1301, 1302], 901, 1005, 1205, false),
        ] {
            let mut appointment = Appointment::agreed([1000 * MS, 1200 * MS], reading(0));
            let (mut found, mut said_late) = ([0; 2], false);
            for wake in wakes {
                match appointment.go_on(Some(reading(*wake))) {
                    Act::Wait => {}
                    Act::Record => {
                        let now = reading(since);
                        (found[0], said_late) = appointment.armed(now.ticks, Some(now));
                    }
                    Act::From(ticks) => found[0] = ticks,
                    Act::End(ticks) => found[1] = ticks,
                }
            }
            let found = found.map(|ticks| ticks as i64 / MS);
            assert_eq!((found, said_late), ([from, to], late), "{wakes:?}");
        }
    }

    #[test]
    fn it_waits_while_the_reference_is_not_known_and_looks_again_at_times() {
        let mut appointment = Appointment::agreed([10_000 * MS, 10_200 * MS], reading(0));
        assert!(appointment.due <= Instant::now() + SLEEP_MAX);
        assert_eq!(appointment.go_on(None), Act::Wait);
        assert!(appointment.due <= Instant::now() + UNKNOWN_POLL);
        assert_eq!(appointment.go_on(Some(reading(9_000))), Act::Wait);
        assert_eq!(appointment.go_on(Some(reading(9_900))), Act::Record);
    }
}
