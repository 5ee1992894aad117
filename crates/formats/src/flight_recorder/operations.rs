//! When an operation of a dump was, and what its group is called.

use probe_sync_hang::Recorded;

use crate::model::{Oddity, PS_PER_NS, Picoseconds, Reach};

/// An operation with its times, ns of CLOCK_REALTIME.
pub(super) struct Timed<'a> {
    pub(super) recorded: Recorded<'a>,
    /// When the process noticed the start, otherwise the enqueue.
    pub(super) start_ns: i64,
    /// When the process noticed the completion, otherwise the start and the measured duration;
    /// `None` if the operation has not finished, or the dump does not say when.
    pub(super) end_ns: Option<i64>,
}

impl<'a> Timed<'a> {
    /// Takes the times of an operation; `None` if it has none.
    ///
    /// # Errors
    /// Returns why its times are implausible.
    pub(super) fn of(recorded: Recorded<'a>, reach: Option<Reach>) -> Result<Option<Self>, Oddity> {
        let Some(start_ns) = recorded.discovered_started_ns.or(recorded.created_ns) else { return Ok(None) };
        let measured = |duration_ms: f64| start_ns.saturating_add((duration_ms * NS_PER_MS).round() as i64);
        let end_ns = match (recorded.is_finished, recorded.discovered_completed_ns, recorded.duration_ms) {
            (false, ..) | (_, None, None) => None,
            (_, Some(completed_ns), _) => Some(completed_ns),
            (_, None, Some(duration_ms)) if duration_ms.is_nan() => return Err(Oddity::NoNumber),
            (_, None, Some(duration_ms)) => Some(measured(duration_ms)),
        };
        let timed = Self { recorded, start_ns, end_ns };
        let (start_ps, end_ps) = timed.span_ps();
        match reach {
            _ if end_ps < start_ps => Err(Oddity::Backwards),
            Some(reach) if !reach.holds(start_ps, end_ps) => Err(Oddity::Away),
            _ => Ok(Some(timed)),
        }
    }

    /// Start and end; the start twice if there is no end.
    pub(super) fn span_ps(&self) -> (Picoseconds, Picoseconds) {
        let ps = |time_ns: i64| Picoseconds::from(time_ns) * PS_PER_NS;
        (ps(self.start_ns), ps(self.end_ns.unwrap_or(self.start_ns)))
    }
}

/// Returns the name of an operation's group for display and matching. It is never that of a group
/// in another format: device times there are not compared with enqueues here.
pub(super) fn group_name(recorded: &Recorded<'_>) -> String {
    match recorded.description {
        "" | UNDESCRIBED => format!("{} (undescribed)", recorded.group),
        description => format!("{description} ({})", recorded.group),
    }
}

/// Description of groups that were given none.
const UNDESCRIBED: &str = "undefined";
const NS_PER_MS: f64 = 1e6;
