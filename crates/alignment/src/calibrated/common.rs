//! The clock that all traces of a calibration share.
//!
//! Traces that passed through maps are on the requested clock. Unmapped traces share a clock if all
//! state the same one (written by `align`) or if they come from one host, whose processes share the
//! boot clock and the system clock.

use probe_sync_formats::model::{Picoseconds, TraceClock, TraceFacts};

use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::nodes::{host, same_host};

impl Calibrated {
    /// Returns the name of the clock that all traces are on, or why there is none.
    pub fn common_clock(&self) -> Result<String, String> {
        let traces = &self.traces;
        let unknown: Vec<&CalibratedTrace> = traces.iter().filter(|of| of.map.is_none()).collect();
        let Some(first) = unknown.first() else { return Ok(self.timeline.clone()) };
        let path = |of: &CalibratedTrace| of.trace.path.display().to_string();
        if self.has_source || unknown.len() < traces.len() {
            let reason = first.notes.last().map_or("its node has no offsets", String::as_str);
            return Err(format!("{}: {reason}", path(first)));
        }
        self.recorded_clock()
    }

    /// Returns the name of the clock that all traces are on in their files, or why there is none.
    fn recorded_clock(&self) -> Result<String, String> {
        let path = |of: &CalibratedTrace| of.trace.path.display().to_string();
        let Some((first, others)) = self.traces.split_first() else { return Err("there are no traces".to_owned()) };
        let clock = OwnClock::of_trace(first);
        if others.is_empty() && first.trace.facts.clock != TraceClock::SeveralBoot {
            return Ok(clock.map_or_else(|_| "trace's own clock".to_owned(), |clock| clock.name()));
        }
        let clock = clock?;
        for of in others {
            let other = OwnClock::of_trace(of)?;
            if !clock.is_same(&other) {
                let [one, two] = [(first, &clock), (of, &other)].map(|(of, clock)| (path(of), clock.name()));
                return Err(format!("{} is on the {}, {} on the {}", one.0, one.1, two.0, two.1));
            }
        }
        Ok(clock.name())
    }

    /// Whether the traces in their files are on the boot clocks of several hosts, whose times are
    /// unrelated.
    pub(crate) fn is_of_several_boots(&self) -> bool {
        let is_of_boot = |of: &CalibratedTrace| of.trace.facts.clock != TraceClock::System;
        self.traces.iter().any(is_of_boot) && self.recorded_clock().is_err()
    }
}

impl CalibratedTrace {
    /// Whether the times in its file are on a clock of its host, and not on one that an alignment
    /// has put them on.
    pub(crate) fn is_on_clock_of_host(&self) -> bool {
        matches!(OwnClock::of(&self.trace.facts), Ok(OwnClock::System { .. } | OwnClock::Boot { .. }))
    }
}

/// The clock of a trace's times in its file.
enum OwnClock<'a> {
    /// An alignment has put them on this clock and says so.
    Stated(&'a str),
    System {
        host: &'a str,
    },
    Boot {
        clock: TraceClock,
        host: &'a str,
        span: Option<(Picoseconds, Picoseconds)>,
    },
}

impl<'a> OwnClock<'a> {
    fn of_trace(of: &'a CalibratedTrace) -> Result<Self, String> {
        Self::of(&of.trace.facts).map_err(|reason| format!("{} {reason}", of.trace.path.display()))
    }

    fn of(facts: &'a TraceFacts) -> Result<Self, &'static str> {
        let TraceFacts { aligned_to, clock, identity, span, stated_clock, .. } = facts;
        match (aligned_to, clock, host(identity)) {
            (Some(clock), ..) => Ok(Self::Stated(clock)),
            (None, TraceClock::SeveralBoot, _) => {
                Err("contains rows from several machines, each on its own boot clock")
            }
            (None, _, None) => Err("contains neither a clock nor a host name"),
            (None, TraceClock::Boot | TraceClock::Monotonic, Some(host)) => {
                Ok(Self::Boot { clock: *clock, host, span: *span })
            }
            (None, TraceClock::System, Some(_)) if stated_clock.is_some() => Err("uses its own machine's clock"),
            (None, TraceClock::System, Some(host)) => Ok(Self::System { host }),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Stated(clock) => (*clock).to_owned(),
            Self::System { host } => format!("system clock of {host}"),
            Self::Boot { clock, host, .. } => format!("{} of {host}", clock.name()),
        }
    }

    fn is_same(&self, other: &OwnClock<'_>) -> bool {
        match (self, other) {
            (Self::Stated(one), OwnClock::Stated(two)) => one == two,
            (Self::System { host: one }, OwnClock::System { host: two }) => same_host(one, two),
            (Self::Boot { clock, host: one, span }, OwnClock::Boot { clock: same, host: two, span: other }) => {
                clock == same && same_host(one, two) && is_one_boot(*span, *other)
            }
            _ => false,
        }
    }
}

/// Whether spans on the boot clock of one host may be of one boot.
fn is_one_boot(one: Option<(Picoseconds, Picoseconds)>, other: Option<(Picoseconds, Picoseconds)>) -> bool {
    let Some((one, other)) = one.zip(other) else { return true };
    one.0.saturating_sub(other.1) < ONE_BOOT_PS && other.0.saturating_sub(one.1) < ONE_BOOT_PS
}

/// Traces of one host that are so far apart on CLOCK_BOOTTIME, ps, may be of two boots.
pub(crate) const ONE_BOOT_PS: Picoseconds = 3_600_000_000_000_000;
