//! Infers the clock of a plane's lines from where they begin.
//!
//! `outline` records where the lines of each plane begin; `facts` and `rewrite` both ask here and
//! therefore agree. Three clocks occur. Usually `timestamp_ns` counts from the session's start.
//! Some writers leave Unix time. A device's events stay on the tracer's raw clock, which counts
//! from boot, if a profiler failed to convert them: XLA subtracts the session's start only from
//! times that are larger than it. The three are decades apart, so the spans decide:
//!
//! ```text
//! first >= 1973 as Unix time                              Unix time
//! 0 - slack <= first, last <= stop - start + slack        from the session's start
//! first > stop - start + slack                            raw, as it stands
//! last < -slack, and start + first is 0 to 3 years        raw, with the start taken away
//! ```
//!
//! Without a stated start and stop all planes are taken as they stand. It does not distinguish raw
//! clocks or locate a raw clock in time; pairs do (`clocks::planes`).

use crate::model::{PS_PER_NS, Picoseconds, UNIX_TIME_MIN_PS};

/// Where lines begin, as written in the file: stated start plus the first event's offset.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct LineStarts(Option<(Picoseconds, Picoseconds)>);

impl LineStarts {
    /// Takes a line in.
    pub(super) fn add(&mut self, stated_ns: i64, offset_ps: i64) {
        let at = Picoseconds::from(stated_ns) * PS_PER_NS + Picoseconds::from(offset_ps);
        let (first, last) = self.0.unwrap_or((at, at));
        self.0 = Some((first.min(at), last.max(at)));
    }
}

/// The clock of a plane.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PlaneClock {
    /// Added to a stated start, ps.
    pub(super) origin_ps: Picoseconds,
    /// It counts from boot.
    pub(super) since_boot: bool,
}

/// Tells the clocks of the planes of one session.
#[derive(Copy, Clone, Debug)]
pub(super) struct PlaneClocks {
    start_ps: Option<Picoseconds>,
    /// Length of the session, if known.
    length_ps: Option<Picoseconds>,
}

impl PlaneClocks {
    /// For a session with this start and stop, ns.
    pub(super) fn new(start_ns: Option<i64>, stop_ns: Option<i64>) -> Self {
        let ps = |ns: i64| Picoseconds::from(ns) * PS_PER_NS;
        let length_ps = start_ns.zip(stop_ns).map(|(start, stop)| ps(stop) - ps(start)).filter(|length| *length > 0);
        Self { start_ps: start_ns.map(ps), length_ps }
    }

    /// The clock of a plane whose lines begin there.
    pub(super) fn of(&self, starts: &LineStarts) -> PlaneClock {
        let start_ps = self.start_ps.unwrap_or(0);
        let session = PlaneClock { origin_ps: start_ps, since_boot: false };
        let (Some((first, last)), Some(_)) = (starts.0, self.start_ps) else { return session };
        if first >= UNIX_TIME_MIN_PS {
            return PlaneClock { origin_ps: 0, since_boot: false };
        }
        let shifted = start_ps + first;
        match self.length_ps {
            Some(length) if first > length + SLACK_PS => PlaneClock { origin_ps: 0, since_boot: true },
            Some(_) if last < -SLACK_PS && (0..UNIX_TIME_MIN_PS).contains(&shifted) && start_ps >= UNIX_TIME_MIN_PS => {
                PlaneClock { origin_ps: start_ps, since_boot: true }
            }
            _ => session,
        }
    }
}

/// Events may begin a little before and end a little after the session.
const SLACK_PS: Picoseconds = 10_000_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_tell_the_clock() {
        const START_NS: i64 = 1_700_000_000_000_000_000;
        const SECOND_NS: i64 = 1_000_000_000;
        let start_ps = Picoseconds::from(START_NS) * PS_PER_NS;
        let clock = |lines: &[(i64, i64)], stop: Option<i64>| {
            let mut starts = LineStarts::default();
            lines.iter().for_each(|(stated, offset)| starts.add(*stated, *offset));
            PlaneClocks::new(Some(START_NS), stop).of(&starts)
        };
        let stop = Some(START_NS + 20 * SECOND_NS);
        let session = PlaneClock { origin_ps: start_ps, since_boot: false };
        let raw = PlaneClock { origin_ps: 0, since_boot: true };
        assert_eq!(clock(&[], stop), session);
        assert_eq!(clock(&[(0, 5)], stop), session);
        assert_eq!(clock(&[(-9 * SECOND_NS, 0), (30 * SECOND_NS, 0)], stop), session, "within the slack");
        assert_eq!(clock(&[(30 * SECOND_NS + 1, 0)], stop), raw, "just beyond it");
        assert_eq!(clock(&[(0, 30_000 * SECOND_NS + 1)], stop), raw, "by its event alone");
        assert_eq!(clock(&[(3600 * SECOND_NS, 0), (3610 * SECOND_NS, 0)], stop), raw);
        assert_eq!(clock(&[(5, 0), (3610 * SECOND_NS, 0)], stop), session, "some lines are within");
        let shifted = PlaneClock { origin_ps: start_ps, since_boot: true };
        assert_eq!(clock(&[(3600 * SECOND_NS - START_NS, 0)], stop), shifted);
        assert_eq!(clock(&[(-START_NS - SECOND_NS, 0)], stop), session, "before the machine's start is no clock");
        let unix = PlaneClock { origin_ps: 0, since_boot: false };
        assert_eq!(clock(&[(START_NS + 7, 0)], stop), unix);
        assert_eq!(clock(&[(3600 * SECOND_NS, 0)], None), session, "how long the session was is not known");
        assert_eq!(clock(&[(3600 * SECOND_NS, 0)], Some(START_NS)), session);
        let mut starts = LineStarts::default();
        starts.add(3600 * SECOND_NS, 0);
        assert_eq!(PlaneClocks::new(None, stop).of(&starts), PlaneClock::default());
    }
}
