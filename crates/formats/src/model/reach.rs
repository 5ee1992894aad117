//! Which times of a trace are believed: those that lie near most of its events.
//!
//! A profiler that never learnt when an event was writes 0; a length that wrapped around reaches
//! centuries ahead. One such event must not stretch its trace over decades, for which no clock is
//! known. While a trace is read its events vote by their times, in groups that no gap of more than
//! [`GAP_PS`] divides. Where nearly all are in one group, [`Spread::reach`] is that group, and a
//! second reading leaves the others out. Where they are not, every event is believed, and whoever
//! needs a clock refuses the trace.

use std::collections::BTreeMap;

use super::time::Picoseconds;

/// First and last plausible time of a trace, ps on its own timeline.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    pub(crate) first_ps: Picoseconds,
    pub(crate) last_ps: Picoseconds,
    /// When the recording ended, if a length that wrapped around reaches beyond it.
    pub(crate) stopped_ps: Option<Picoseconds>,
}

impl Reach {
    /// So much later than the end of a recording, ps, nothing in it ends.
    pub(crate) const AFTER_PS: Picoseconds = ZERO_PS;
    /// Times that are no further apart than this, ps, are always of one group.
    pub(crate) const NEAR_PS: Picoseconds = GAP_PS;

    /// All times except those of lengths that wrapped around, for a recording that ended at this
    /// time.
    pub(crate) fn until(stopped_ps: Picoseconds) -> Self {
        Self { first_ps: Picoseconds::MIN / 4, last_ps: Picoseconds::MAX / 4, stopped_ps: Some(stopped_ps) }
    }

    /// Returns true if a length is what a small negative number of microseconds becomes as an
    /// unsigned 32-bit number: 71.6 minutes, minus at most a minute. A hang may last as long; but
    /// no event's end is recorded after the recording.
    #[inline]
    pub(crate) fn may_be_wrapped(length_ps: Picoseconds) -> bool {
        (WRAPPED_PS - ZERO_PS..WRAPPED_PS).contains(&length_ps)
    }

    /// Returns true if the length of an event surely wrapped around.
    #[inline]
    pub(crate) fn is_wrapped(&self, start_ps: Picoseconds, end_ps: Picoseconds) -> bool {
        Self::may_be_wrapped(end_ps - start_ps) && self.stopped_ps.is_some_and(|stopped| end_ps > stopped + ZERO_PS)
    }

    /// First and last plausible time, ns.
    #[cfg(feature = "rocpd")]
    pub fn bounds_ns(&self) -> (i64, i64) {
        let ns =
            |ps: Picoseconds| i64::try_from(ps.div_euclid(1000)).unwrap_or(if ps < 0 { i64::MIN } else { i64::MAX });
        (ns(self.first_ps - GAP_PS), ns(self.last_ps + GAP_PS))
    }

    /// Returns true if an event from `start_ps` to `end_ps` belongs to the trace.
    #[inline]
    pub(crate) fn holds(&self, start_ps: Picoseconds, end_ps: Picoseconds) -> bool {
        let near = self.first_ps - GAP_PS..=self.last_ps + GAP_PS;
        near.contains(&start_ps) && near.contains(&end_ps)
    }

    /// Returns true if a time written as 0 may be genuine: it is at most a minute before the first
    /// event, or after it.
    pub(crate) fn holds_zero(&self, zero_ps: Picoseconds) -> bool {
        zero_ps >= self.first_ps - ZERO_PS && zero_ps <= self.last_ps + GAP_PS
    }

    /// The same reach on a timeline that begins `by_ps` earlier.
    pub(crate) fn shifted(self, by_ps: Picoseconds) -> Self {
        let stopped_ps = self.stopped_ps.map(|stopped| stopped + by_ps);
        Self { first_ps: self.first_ps + by_ps, last_ps: self.last_ps + by_ps, stopped_ps }
    }
}

/// The times of a trace's events, counted coarsely.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    /// The bucket of the last event: most events share it with the one before.
    current: Option<(i128, Bucket)>,
    buckets: BTreeMap<i128, Bucket>,
    zero_ps: Option<Picoseconds>,
    is_scattered: bool,
}

#[derive(Copy, Clone, Debug)]
struct Bucket {
    events: u64,
    first_ps: Picoseconds,
    last_ps: Picoseconds,
}

impl Spread {
    /// Counts an event.
    #[inline]
    pub(crate) fn add(&mut self, start_ps: Picoseconds, end_ps: Picoseconds) {
        self.add_many(start_ps, start_ps, 1);
        if end_ps - start_ps > GAP_PS {
            self.add_many(end_ps, end_ps, 1);
        } else if let Some((_, bucket)) = &mut self.current {
            bucket.last_ps = bucket.last_ps.max(end_ps);
        }
    }

    /// Notes an event whose time is written as 0, which has no vote.
    pub(crate) fn add_zero(&mut self, zero_ps: Picoseconds) {
        self.zero_ps = Some(zero_ps);
    }

    /// Counts events that begin in one span no longer than a bucket.
    #[inline]
    pub(crate) fn add_many(&mut self, first_ps: Picoseconds, last_ps: Picoseconds, events: u64) {
        let key = first_ps >> BUCKET_BITS;
        match &mut self.current {
            Some((current, bucket)) if *current == key => {
                bucket.events += events;
                bucket.first_ps = bucket.first_ps.min(first_ps);
                bucket.last_ps = bucket.last_ps.max(last_ps);
            }
            _ => {
                self.flush();
                self.current = Some((key, Bucket { events, first_ps, last_ps }));
            }
        }
    }

    /// The group that contains nearly all events; `None` if it contains all, or if no group stands
    /// out.
    pub(crate) fn reach(mut self) -> Option<Reach> {
        self.flush();
        if self.is_scattered {
            return None;
        }
        let mut groups: Vec<Bucket> = Vec::new();
        for bucket in self.buckets.values() {
            match groups.last_mut() {
                Some(group) if bucket.first_ps - group.last_ps <= GAP_PS => {
                    group.events += bucket.events;
                    group.last_ps = group.last_ps.max(bucket.last_ps);
                }
                _ => groups.push(*bucket),
            }
        }
        let all: u64 = groups.iter().map(|group| group.events).sum();
        let Bucket { events, first_ps, last_ps } = *groups.iter().max_by_key(|group| group.events)?;
        let reach = Reach { first_ps, last_ps, stopped_ps: None };
        let others = all - events;
        let stands_out = others <= FEW.max(all / SHARE) && others < events;
        let lacks_zero = self.zero_ps.is_some_and(|zero_ps| !reach.holds_zero(zero_ps));
        (stands_out && (others > 0 || lacks_zero)).then_some(reach)
    }

    fn flush(&mut self) {
        let Some((key, bucket)) = self.current.take() else { return };
        if self.buckets.len() >= BUCKETS_MAX {
            self.is_scattered = true;
            return;
        }
        let known = self.buckets.entry(key).or_insert(Bucket { events: 0, ..bucket });
        known.events += bucket.events;
        known.first_ps = known.first_ps.min(bucket.first_ps);
        known.last_ps = known.last_ps.max(bucket.last_ps);
    }
}

/// Events that were left out, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeftOut {
    counts: BTreeMap<Oddity, u64>,
    first_at: Option<u64>,
}

/// Why an event's time is implausible.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Oddity {
    /// Its time is written as 0 and is far from all others.
    Zero,
    /// Its time or length is not a number.
    NoNumber,
    /// It ends before it begins.
    Backwards,
    /// It begins or ends days or decades away from all others.
    Away,
    /// It ends after the recording, by a length that would be negative in 32 bits.
    Wrapped,
}

impl LeftOut {
    /// Counts an event that begins at byte `at` of the file.
    pub(crate) fn add(&mut self, oddity: Oddity, at: u64) {
        self.add_many(oddity, 1);
        self.first_at.get_or_insert(at);
    }

    /// Counts events without a position in the file.
    pub(crate) fn add_many(&mut self, oddity: Oddity, events: u64) {
        if events > 0 {
            *self.counts.entry(oddity).or_default() += events;
        }
    }

    /// Number of events for each reason.
    pub(crate) fn by_reason(&self) -> Vec<(&'static str, u64)> {
        self.counts.iter().map(|(oddity, count)| (oddity.text(), *count)).collect()
    }

    /// Number of events.
    pub(crate) fn events(&self) -> u64 {
        self.counts.values().sum()
    }

    /// A note for the user; `None` if no event was left out.
    pub(crate) fn note(&self) -> Option<String> {
        let reasons: Vec<String> =
            self.counts.iter().map(|(oddity, count)| format!("{count} {}", oddity.text())).collect();
        let events = crate::words::counted(self.events(), "event");
        let first = self.first_at.map_or_else(String::new, |at| format!(", first at byte {at}"));
        (!reasons.is_empty()).then(|| format!("ignored {events} ({}{first})", reasons.join(", ")))
    }
}

impl Oddity {
    fn text(self) -> &'static str {
        match self {
            Self::Zero => "at time 0 or -1, which means that the time is unknown",
            Self::NoNumber => "with an unreadable time or length",
            Self::Backwards => "with a negative length",
            Self::Away => "days or decades away from all others",
            Self::Wrapped => {
                "with a negative length that wrapped around to 71.6 minutes, beyond the end of the recording"
            }
        }
    }
}

/// Times that are further apart than this, ps, are of different groups: a day.
const GAP_PS: Picoseconds = 86_400_000_000_000_000;
/// Where a length in integer microseconds wraps around, ps: 2^32 µs.
const WRAPPED_PS: Picoseconds = (1 << 32) * 1_000_000;
/// A 0 further before the first event than this, ps, is not a time: a minute.
const ZERO_PS: Picoseconds = 60_000_000_000_000;
/// Buckets are 2^52 ps wide, which is 75 minutes.
const BUCKET_BITS: u32 = 52;
/// Buckets of a trace; with more its times say nothing.
const BUCKETS_MAX: usize = 1 << 16;
/// At most this many events may lie elsewhere,
const FEW: u64 = 3;
/// or one in this many.
const SHARE: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Picoseconds = 1_000_000_000_000;
    const YEAR: Picoseconds = 365 * 86_400 * SECOND;

    fn check(
        events: &[(Picoseconds, Picoseconds)],
        zero: Option<Picoseconds>,
        expected: Option<(Picoseconds, Picoseconds)>,
    ) {
        let mut spread = Spread::default();
        events.iter().for_each(|(start, end)| spread.add(*start, *end));
        zero.into_iter().for_each(|zero| spread.add_zero(zero));
        let reach = spread.reach().map(|reach| (reach.first_ps, reach.last_ps));
        assert_eq!(reach, expected, "{events:?} {zero:?}");
    }

    #[test]
    fn most_events_decide_which_times_are_believed() {
        let now = 50 * YEAR;
        let good = [(now, now + SECOND), (now + SECOND, now + 3 * SECOND), (now + 2 * SECOND, now + 2 * SECOND)];
        let with = |odd: &[(Picoseconds, Picoseconds)]| [&good[..], odd].concat();
        let reach = Some((now, now + 3 * SECOND));
        check(&good, None, None);
        check(&with(&[(0, 0)]), None, reach);
        check(&with(&[(-SECOND, 0), (90 * YEAR, 90 * YEAR)]), None, reach);
        check(&with(&[(now, now + 500 * YEAR)]), None, reach);
        check(&good, Some(now - YEAR), reach);
        check(&good, Some(now - SECOND), None);
        // A trace of days with work in each, and one of which nothing tells the right half.
        let days: Vec<_> = (0..40).map(|day| (now + day * GAP_PS / 2, now + day * GAP_PS / 2)).collect();
        check(&days, None, None);
        let halves: Vec<_> =
            good.iter().flat_map(|(start, end)| [(*start, *end), (start - YEAR, end - YEAR)]).collect();
        check(&halves, None, None);
        check(&[], Some(0), None);
    }

    #[test]
    fn a_reach_has_room_for_what_is_near() {
        let reach = Reach { first_ps: YEAR, last_ps: YEAR + SECOND, stopped_ps: None };
        assert!(reach.holds(YEAR - SECOND, YEAR + 2 * SECOND) && !reach.holds(0, 0));
        assert!(!reach.holds(YEAR, 2 * YEAR) && !reach.holds_zero(0) && reach.holds_zero(YEAR - SECOND));
    }

    #[test]
    fn a_note_counts_by_reason() {
        let mut left_out = LeftOut::default();
        assert_eq!(left_out.note(), None);
        left_out.add(Oddity::Backwards, 77);
        left_out.add(Oddity::Zero, 99);
        let expected = "ignored 2 events (1 at time 0 or -1, which means that the time is unknown, 1 with a negative length, first at byte 77)";
        assert_eq!(left_out.note().as_deref(), Some(expected));
    }
}
