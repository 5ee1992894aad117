//! The time of an event, or the reason why it is unknown. Only this module decides which events of
//! a file are left out.
//!
//! A number may be quoted. An event without a `ts`, and metadata, have no time that could be wrong.
//! `model::reach` decides which times are plausible.

use super::decimal::{self, Decimal};
use super::scan::EventSpans;
use super::words;
use crate::model::{Oddity, Picoseconds, Reach};

/// The times of an event, as they are written.
#[derive(Copy, Clone, Debug)]
pub(super) struct Timing {
    pub(super) ts: Decimal,
    pub(super) dur: Option<Decimal>,
}

impl Timing {
    /// Reads the times of an event; none if it states no `ts`.
    ///
    /// # Errors
    /// States what is odd about them.
    #[inline]
    pub(super) fn read(bytes: &[u8], spans: &EventSpans) -> Result<Option<Timing>, Oddity> {
        if spans.ts.is_empty() {
            return Ok(None);
        }
        let ts = number(spans.ts.of(bytes)).ok_or(Oddity::NoNumber)?;
        let dur = match spans.dur.is_empty() {
            true => None,
            false => Some(number(spans.dur.of(bytes)).ok_or(Oddity::NoNumber)?),
        };
        match dur {
            Some(dur) if dur.ps < 0 => Err(Oddity::Backwards),
            _ => Ok(Some(Timing { ts, dur })),
        }
    }

    /// The same, for a file whose times count from `base_ps`, and only if they are plausible.
    ///
    /// # Errors
    /// States what is odd about them.
    #[inline]
    pub(super) fn believed(
        bytes: &[u8],
        spans: &EventSpans,
        base_ps: Picoseconds,
        reach: Option<Reach>,
    ) -> Result<Option<Timing>, Oddity> {
        let Some(timing) = Timing::read(bytes, spans)? else { return Ok(None) };
        let Some(reach) = reach else { return Ok(Some(timing)) };
        let start_ps = base_ps + timing.ts.ps;
        if timing.is_zero() && !reach.holds_zero(start_ps) {
            return Err(Oddity::Zero);
        }
        if reach.is_wrapped(start_ps, start_ps + timing.length_ps()) {
            return Err(Oddity::Wrapped);
        }
        match reach.holds(start_ps, start_ps + timing.length_ps()) {
            true => Ok(Some(timing)),
            false => Err(Oddity::Away),
        }
    }

    /// Returns true if its time is written as 0 or −1, as profilers write one that they do not
    /// know.
    pub(super) fn is_zero(&self) -> bool {
        matches!(self.ts.ps, 0 | -1_000_000)
    }

    pub(super) fn length_ps(&self) -> Picoseconds {
        self.dur.map_or(0, |dur| dur.ps)
    }
}

/// Returns true for an event that describes a process or a thread, whose time means nothing.
#[inline]
pub(super) fn is_metadata(bytes: &[u8], spans: &EventSpans) -> bool {
    words::phase(spans.ph.of(bytes)) == b'M'
}

#[inline]
fn number(text: &[u8]) -> Option<Decimal> {
    match text {
        [b'"', inner @ .., b'"'] => decimal::parse(inner),
        text => decimal::parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan;
    use super::*;

    fn check(event: &str, expected: Result<Option<(Picoseconds, Picoseconds)>, Oddity>) {
        let spans = scan::event(event.as_bytes()).expect("JSON").expect("whole");
        let reach = Reach {
            first_ps: 50_000_000_000_000_000_000_000,
            last_ps: 50_000_000_000_000_001_000_000,
            stopped_ps: None,
        };
        let read = Timing::believed(event.as_bytes(), &spans, 49_999_999_000_000_000_000_000, Some(reach));
        assert_eq!(read.map(|timing| timing.map(|it| (it.ts.ps, it.length_ps()))), expected, "{event}");
    }

    #[test]
    fn an_odd_time_costs_its_event() {
        const GOOD: Picoseconds = 1_000_000_000_000_000;
        check(r#"{"ts": 1000000000, "dur": 2}"#, Ok(Some((GOOD, 2_000_000))));
        check(r#"{"ts": "1000000000", "dur": "2"}"#, Ok(Some((GOOD, 2_000_000))));
        check(r#"{"ts": 1000000000}"#, Ok(Some((GOOD, 0))));
        check(r#"{"dur": 2}"#, Ok(None));
        for text in ["null", "NaN", "-inf", "Infinity", "\"\"", "\"soon\"", "[]", "{}", "true"] {
            check(&format!(r#"{{"ts": {text}, "dur": 2}}"#), Err(Oddity::NoNumber));
            check(&format!(r#"{{"ts": 1000000000, "dur": {text}}}"#), Err(Oddity::NoNumber));
        }
        check(r#"{"ts": 1000000000, "dur": -3}"#, Err(Oddity::Backwards));
        check(r#"{"ts": 1000000000, "dur": 18446744073709548.616}"#, Err(Oddity::Away));
        check(r#"{"ts": 0.0, "dur": 0.0}"#, Err(Oddity::Zero));
        check(r#"{"ts": -1}"#, Err(Oddity::Zero));
        check(r#"{"ts": -1000000000000000}"#, Err(Oddity::Away));
    }
}
