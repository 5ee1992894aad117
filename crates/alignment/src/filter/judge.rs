//! Decides for each event whether it stays.
//!
//! Formats that merge present every event with a time, on its own timeline; `chunks` presents those
//! of chunks, on the reference clock. Parts of collectives are recognized by their times, which the
//! facts contain.

use std::cell::{Cell, RefCell};

use crate::Error;
use probe_sync_formats::Error as TraceError;
use probe_sync_formats::model::{Picoseconds, nearest_ns};
use probe_sync_formats::{EventFilter, Named, Seen};

use super::budget::Budget;
use super::clock::Clock;
use super::report::FilterReport;
use super::steps;
use super::wanted::{FilterSettings, Kinds};
use crate::calibrated::{Calibrated, CalibratedTrace};
use crate::step_names::StepNames;
use crate::window;
use crate::window::Window;

/// Decides which events of the traces of a merge are kept. The decision for one event is the same
/// each time it is asked.
#[derive(Debug)]
pub struct JobFilter {
    /// In the order of the traces written.
    inputs: Vec<Input>,
    /// ns on the reference clock; `None`: all.
    span_ns: Option<[i64; 2]>,
    only: Kinds,
    step_names: StepNames,
    budget: Option<RefCell<Budget>>,
    counts: RefCell<Counts>,
    rule: String,
    traces_left_out: Vec<String>,
    attempts: Cell<u32>,
    bytes_max: Option<u64>,
}

/// Why an event stays or goes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Judged {
    /// Kept regardless of the size.
    Protected,
    Stays,
    Outside,
    OtherKind,
    Short,
}

/// Counts of the present attempt.
#[derive(Clone, Debug, Default)]
struct Counts {
    events: u64,
    kept: u64,
    outside: u64,
    of_other_kinds: u64,
    too_short: u64,
    half_flows: u64,
    unjudged: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Input {
    clock: Clock,
    /// Start and end of parts of collectives, ns on the reference clock, in order.
    parts: Vec<(i64, i64)>,
}

impl JobFilter {
    /// What the settings require for these traces, of which `written` are written.
    ///
    /// # Errors
    /// [`Error::Request`]: a span that is empty, steps that are not there, more parts of collectives than are held; a trace that cannot be read.
    pub(crate) fn new(all: &Calibrated, written: &Calibrated, settings: &FilterSettings) -> Result<Self, Error> {
        let inputs = written.traces.iter().map(Input::of).collect::<Result<_, _>>()?;
        let names = |of: &CalibratedTrace| of.trace.name.clone();
        let is_written = |of: &&CalibratedTrace| !written.traces.iter().any(|other| other.trace.path == of.trace.path);
        Ok(Self {
            inputs,
            span_ns: span(&all.traces, settings)?,
            only: settings.only.clone(),
            step_names: settings.step_names.clone(),
            budget: settings.bytes_max.map(|bytes| RefCell::new(Budget::new(bytes))),
            counts: RefCell::default(),
            rule: settings.to_string(),
            traces_left_out: all.traces.iter().filter(is_written).map(names).collect(),
            attempts: Cell::new(0),
            bytes_max: settings.bytes_max,
        })
    }

    /// As [`Self::take`], for an event whose times are on the reference clock, ns.
    pub(super) fn take_mapped(&self, input: usize, start_ns: i64, end_ns: i64, seen: &Seen) -> bool {
        self.count(self.judge_mapped(input, start_ns, end_ns, seen), end_ns - start_ns, seen.bytes)
    }

    /// As [`Self::wants`], for an event whose times are on the reference clock, ns.
    pub(super) fn wants_mapped(&self, input: usize, start_ns: i64, end_ns: i64, seen: &Seen) -> bool {
        matches!(self.judge_mapped(input, start_ns, end_ns, seen), Judged::Stays | Judged::Protected)
    }

    /// Whether a moment of the output, on the reference clock, is within the span; the only
    /// criterion for what is added to the traces.
    pub(crate) fn is_within_ns(&self, start_ns: i64, end_ns: i64) -> bool {
        self.span_ns.is_none_or(|span| reaches_into(span, start_ns, end_ns))
    }

    /// Whether an output may have to be written more than once.
    pub(crate) fn may_repeat(&self) -> bool {
        self.budget.is_some()
    }

    /// Begins an attempt at the output.
    pub(crate) fn begin(&self) {
        self.attempts.set(self.attempts.get() + 1);
        *self.counts.borrow_mut() = Counts::default();
        if let Some(budget) = &self.budget {
            budget.borrow_mut().begin();
        }
    }

    /// Omits more after an output of this many bytes was too large.
    ///
    /// # Errors
    /// [`Error::Request`] if what must be kept is too large.
    pub(crate) fn narrow(&self, bytes: u64) -> Result<(), Error> {
        let narrowed = self.budget.as_ref().and_then(|budget| budget.borrow_mut().narrow(bytes));
        if narrowed.is_some() && self.attempts.get() < ATTEMPTS_MAX {
            return Ok(());
        }
        let max = self.bytes_max.unwrap_or_default();
        let problem = format!(
            "--max-size {max}: collectives, steps and metadata alone need more than that; allow more, or select less with --steps, \
            --from, --to, --ranks or --only"
        );
        Err(Error::Request { problem })
    }

    /// Reports what was omitted.
    pub(crate) fn report(&self) -> FilterReport {
        let Counts { events, outside, of_other_kinds, too_short, half_flows, unjudged, bytes, .. } =
            *self.counts.borrow();
        let end = |end: i64| Some(end).filter(|end| ![i64::MIN, i64::MAX].contains(end));
        let shortest = self.budget.as_ref().map(|budget| budget.borrow().shortest_ns);
        FilterReport {
            rule: self.rule.clone(),
            traces_left_out: self.traces_left_out.clone(),
            span_ns: self.span_ns.map_or([None, None], |span| span.map(end)),
            events,
            left_out: outside + of_other_kinds + too_short + half_flows + unjudged,
            outside,
            of_other_kinds,
            too_short,
            half_flows,
            unjudged,
            shortest_ns: shortest.filter(|ns| *ns > 0),
            bytes_max: self.bytes_max,
            bytes,
        }
    }

    fn is_full(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.borrow().full)
    }

    fn length(&self, input: usize, seen: &Seen) -> i64 {
        let clock = &self.inputs[input].clock;
        nearest_ns(clock.ps(seen.end_ps) - clock.ps(seen.start_ps)).unwrap_or(i64::MAX)
    }

    fn judge(&self, input: usize, seen: &Seen) -> Judged {
        let clock = &self.inputs[input].clock;
        match clock.ns(seen.start_ps).zip(clock.ns(seen.end_ps)) {
            Some((start, end)) => self.judge_mapped(input, start, end, seen),
            None => Judged::Outside,
        }
    }

    fn judge_mapped(&self, input: usize, start: i64, end: i64, seen: &Seen) -> Judged {
        if !self.is_within_ns(start, end) {
            return Judged::Outside;
        }
        let collective = seen.of_collective || self.inputs[input].is_part(start, end);
        let Seen { named, on_device, .. } = *seen;
        let Kinds { collectives, gpu, cpu, steps, .. } = self.only;
        let wanted = named.is_wanted
            || collectives && collective
            || gpu && on_device
            || cpu && !on_device
            || steps && named.is_step;
        if !(wanted || self.only.is_everything()) {
            return Judged::OtherKind;
        }
        if collective || named.is_step {
            return Judged::Protected;
        }
        match &self.budget {
            Some(budget) if budget.borrow().full || end - start < budget.borrow().shortest_ns => Judged::Short,
            _ => Judged::Stays,
        }
    }

    /// Counts an event; returns whether it is kept.
    fn count(&self, judged: Judged, length_ns: i64, bytes: u64) -> bool {
        let mut counts = self.counts.borrow_mut();
        counts.events += 1;
        let (stays, may_go) = match judged {
            Judged::Protected => (true, None),
            Judged::Stays => (true, Some(length_ns)),
            Judged::Short => (false, Some(length_ns)),
            Judged::Outside | Judged::OtherKind => {
                counts.outside += u64::from(judged == Judged::Outside);
                counts.of_other_kinds += u64::from(judged == Judged::OtherKind);
                return false;
            }
        };
        counts.kept += u64::from(stays);
        counts.too_short += u64::from(!stays);
        if let Some(budget) = &self.budget {
            budget.borrow_mut().count(may_go, bytes, stays);
        }
        stays
    }
}

impl EventFilter for JobFilter {
    fn named(&self, name: &str) -> Named {
        Named {
            is_step: self.step_names.number(name).is_some(),
            is_wanted: self.only.names.iter().any(|pattern| pattern.is_match(name)),
        }
    }

    fn wants(&self, input: usize, seen: &Seen) -> bool {
        matches!(self.judge(input, seen), Judged::Stays | Judged::Protected)
    }

    fn take(&self, input: usize, seen: &Seen) -> bool {
        self.count(self.judge(input, seen), self.length(input, seen), seen.bytes)
    }

    fn take_flow_end(&self, stays: bool) -> bool {
        let mut counts = self.counts.borrow_mut();
        counts.events += 1;
        counts.half_flows += u64::from(!stays);
        stays
    }

    fn leave_unjudged(&self) {
        let mut counts = self.counts.borrow_mut();
        counts.events += 1;
        counts.unjudged += 1;
    }

    fn is_within(&self, start: Picoseconds, end: Picoseconds) -> bool {
        nearest_ns(start).zip(nearest_ns(end)).is_some_and(|(start, end)| self.is_within_ns(start, end))
    }

    fn knows(&self, input: usize) -> bool {
        input < self.inputs.len()
    }

    fn accept(&self, bytes: u64) -> Result<(), TraceError> {
        let mut counts = self.counts.borrow_mut();
        counts.bytes = bytes;
        if counts.kept == 0 && !self.budget.as_ref().is_some_and(|budget| budget.borrow().full) {
            let problem = format!("{} leaves none of {} events; nothing was written", self.rule, counts.events);
            return Err(TraceError::Request { problem });
        }
        match self.bytes_max {
            Some(max) if bytes > max || self.is_full() => Err(TraceError::OverBudget { bytes }),
            _ => Ok(()),
        }
    }
}

impl Input {
    /// Holds the parts of a trace's collectives.
    fn of(trace: &CalibratedTrace) -> Result<Self, Error> {
        let clock = Clock::of(trace);
        let stored = &trace.trace.facts.collectives;
        if stored.len() > PARTS_MAX {
            let problem = format!(
                "{}: {} parts of collectives exceed the filter's limit of {PARTS_MAX}",
                trace.trace.path.display(),
                stored.len()
            );
            return Err(Error::Request { problem });
        }
        let labels: Vec<u32> = stored.labels().map(|(number, ..)| number).collect();
        let mut cursor = stored.cursor(&labels);
        let mut parts = Vec::with_capacity(stored.len() as usize);
        for part in cursor.by_ref() {
            parts.extend(clock.ns(part.start_ps).zip(clock.ns(part.end_ps)));
        }
        parts.sort_unstable();
        Ok(Self { clock, parts })
    }

    /// Whether an event of these times is a part: a call within a group ends before the part does,
    /// which lasts until the group's end.
    fn is_part(&self, start: i64, end: i64) -> bool {
        let from = self.parts.partition_point(|part| *part < (start, end));
        self.parts.get(from).is_some_and(|part| part.0 == start)
    }
}

/// The span that times and steps ask for together.
fn span(traces: &[CalibratedTrace], settings: &FilterSettings) -> Result<Option<[i64; 2]>, Error> {
    let times = Window { start: settings.from.clone(), end: settings.to.clone(), inclusive: false };
    let mut span = window::resolve(&times, traces)?;
    if let Some(wanted) = &settings.steps {
        let of_steps = steps::span(traces, wanted, &settings.step_names)?;
        let [from, to] = span.unwrap_or([i64::MIN, i64::MAX]);
        span = Some([from.max(of_steps[0]), to.min(of_steps[1])]);
    }
    match span {
        Some([from, to]) if from >= to => {
            let problem = format!("--steps, --from and --to do not overlap: from {from} ns to {to} ns");
            Err(Error::Request { problem })
        }
        span => Ok(span),
    }
}

/// Whether an event overlaps the span; one that only touches an end does not.
fn reaches_into([from, to]: [i64; 2], start: i64, end: i64) -> bool {
    if start == end { (from..=to).contains(&start) } else { start < to && end > from }
}

/// Most parts of a trace held: 256 MB.
const PARTS_MAX: u64 = 1 << 24;
/// Attempts at an output of the right size; the second one fits as a rule.
const ATTEMPTS_MAX: u32 = 6;
