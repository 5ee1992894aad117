//! Checks whether traces lie within the measured span.
//!
//! The first and last event of a trace are mapped to its node's own system clock and compared with
//! the span in which that node was measured, from the start of its first window to the end of its
//! last. Outside that span a clock is unknown: offsets of another day or another job would shift a
//! trace by seconds and state ±12 ms. A trace that extends further than the caller allows is
//! therefore refused, and the error states the length of time that would have to be allowed. The
//! reference's own trace must lie within the measurement too; otherwise it belongs to another job.
//!
//! It does not check gaps within the measurement, which the map's uncertainty covers.

use std::path::PathBuf;

use crate::Error;
use probe_sync_time::Duration;

use super::length::length;
use crate::clocks::{NodeClock, Span, Survey};
use crate::nodes::NodeTrace;

/// Looks at every trace of a calibration.
pub(super) struct Measured<'a> {
    survey: &'a Survey,
    allowed_ns: i128,
    outside: Vec<Outside>,
}

/// A trace that reaches further out than is allowed.
struct Outside {
    path: PathBuf,
    node: u32,
    trace: Span,
    measured: Span,
}

impl<'a> Measured<'a> {
    /// Events may lie `allowed` outside the span of `survey`.
    pub(super) fn new(survey: &'a Survey, allowed: Duration) -> Self {
        Self { survey, allowed_ns: i128::from(allowed.as_ns().max(0)), outside: Vec::new() }
    }

    /// The span over which a node was measured, on its own clock.
    pub(super) fn of(&self, node: u32) -> Option<Span> {
        self.survey.measured(node)
    }

    /// Compares a trace, including its planes on a raw clock; `clock` tells when its times were on
    /// its node's own clock.
    pub(super) fn look(&mut self, trace: &NodeTrace, clock: &NodeClock) {
        let planes = trace.facts.since_boot.iter().map(|plane| plane.span);
        let own_ns = |time| clock.system_ps(time).div_euclid(1000);
        let spans = trace.facts.span.into_iter().chain(planes);
        let spans = spans.map(|(first, last)| Span { first_ns: own_ns(first), last_ns: own_ns(last) });
        let whole = |a: Span, b: Span| Span { first_ns: a.first_ns.min(b.first_ns), last_ns: a.last_ns.max(b.last_ns) };
        let Some(trace_span) = spans.reduce(whole) else { return };
        let Some(measured) = self.of(trace.node) else { return };
        let found = Outside { path: trace.path.clone(), node: trace.node, trace: trace_span, measured };
        if found.beyond_ns() > self.allowed_ns {
            self.outside.push(found);
        }
    }

    /// # Errors
    /// [`Error::Outside`] naming the traces outside, both spans, and what would have to be allowed.
    pub(super) fn finish(self) -> Result<(), Error> {
        let Some(farthest) = self.outside.iter().map(Outside::beyond_ns).max() else { return Ok(()) };
        let named: Vec<String> = self.outside.iter().take(MOST_NAMED).map(Outside::sentence).collect();
        let more = self.outside.len() - named.len();
        let more = if more == 0 { String::new() } else { format!("; and {more} more traces") };
        let remedy = if farthest > YEAR_NS {
            "They are years apart, so the traces' times are not from a system clock. Times of another clock need pairs of that clock, \
            from a run with that --tracer-clock or as --snapshots, or markers (probe_sync.clock#<ns>). Times that count from the start of \
            the session, as in the JSON that JAX writes next to an XSpace, cannot be aligned: give the XSpace (*.xplane.pb) or the \
            profiler's own file"
                .to_owned()
        } else {
            format!(
                "Clocks are only known while they are measured: give the run that measured during these traces, or use --extrapolate \
                {} to extrapolate; uncertainty grows with the distance",
                reaching(farthest)
            )
        };
        Err(Error::Outside { problem: format!("{}{more}. {remedy}", named.join("; ")), beyond_ns: farthest })
    }
}

impl Outside {
    fn beyond_ns(&self) -> i128 {
        self.measured.beyond_ns(self.trace.first_ns).max(self.measured.beyond_ns(self.trace.last_ns))
    }

    fn sentence(&self) -> String {
        let Self { path, node, trace, measured } = self;
        let (early, late) = (measured.first_ns - trace.first_ns, trace.last_ns - measured.last_ns);
        let mut by = Vec::new();
        if early > 0 {
            by.push(format!("its first event is {} before the start", length(early as f64)));
        }
        if late > 0 {
            by.push(format!("its last event is {} after the end", length(late as f64)));
        }
        format!(
            "{}: events from {} to {}, but node {node} was measured from {} to {}, on its own clock: {}",
            path.display(),
            instant(trace.first_ns),
            instant(trace.last_ns),
            instant(measured.first_ns),
            instant(measured.last_ns),
            by.join(" and ")
        )
    }
}

/// A length of time as the command line takes it, at least as long, with two digits or more.
fn reaching(ns: i128) -> String {
    let ns = ns.unsigned_abs();
    match ns {
        ..100_000 => format!("{ns}ns"),
        100_000..100_000_000 => format!("{}us", ns.div_ceil(1000)),
        100_000_000..100_000_000_000 => format!("{}ms", ns.div_ceil(1_000_000)),
        _ => format!("{}s", ns.div_ceil(1_000_000_000)),
    }
}

/// An instant of a system clock, as a date if it has one, and as the number in files.
fn instant(ns: i128) -> String {
    let (seconds, fraction) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    if days.unsigned_abs() > MOST_DAYS {
        return format!("{ns} ns");
    }
    let (year, month, day) = date(days as i64);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:09}Z ({ns} ns)")
}

/// Year, month and day of the proleptic Gregorian calendar, from days since 1970-01-01. Counted in
/// years that begin on the first of March, so that the leap day is their last (after H. Hinnant,
/// "chrono-compatible low-level date algorithms").
fn date(days: i64) -> (i64, i64, i64) {
    // From 0000-03-01, in cycles of 400 years.
    let days = days + 719_468;
    let (cycle, day_of_cycle) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_cycle = (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    // March is 0; five months from it have 153 days.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let january_or_february = month >= 10;
    let month = if january_or_february { month - 9 } else { month + 3 };
    (cycle * 400 + year_of_cycle + i64::from(january_or_february), month, day)
}

/// A trace that is further from the measurement is on no system clock: a year, in ns.
const YEAR_NS: i128 = 365 * 86_400_000_000_000;
/// Traces that a refusal names.
const MOST_NAMED: usize = 8;
/// The years 0 to 3940: beyond the range of a 64-bit system clock there are no dates.
const MOST_DAYS: u128 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (19_782, (2024, 2, 29)),
            (20_779, (2026, 11, 22)),
            (47_541, (2100, 3, 1)),
            (47_540, (2100, 2, 28)),
            (-719_468, (0, 3, 1)),
            (-719_469, (0, 2, 29)),
        ] {
            assert_eq!(date(days), expected, "{days}");
        }
    }

    #[test]
    fn instants_have_a_date_and_their_number() {
        assert_eq!(instant(1_795_326_332_000_000_007), "2026-11-22T05:45:32.000000007Z (1795326332000000007 ns)");
        assert_eq!(instant(-1), "1969-12-31T23:59:59.999999999Z (-1 ns)");
        assert_eq!(instant(i128::MAX / 2), format!("{} ns", i128::MAX / 2));
    }

    #[test]
    fn what_is_asked_for_suffices() {
        for (ns, expected) in [
            (1, "1ns"),
            (99_999, "99999ns"),
            (100_000, "100us"),
            (100_001, "101us"),
            (99_999_999, "100000us"),
            (100_000_001, "101ms"),
            (5_870_000_001, "5871ms"),
            (100_000_000_000, "100s"),
            (86_400_000_000_001, "86401s"),
        ] {
            assert_eq!(reaching(ns), expected);
        }
    }
}
