//! The facts of a trace: base, identity, clock markers and collectives.
//!
//! One or two passes over the file fill `model::TraceFacts`. Times are kept relative until the end
//! of the file, because the base may come last. Marks are events with the name of a mark
//! (`lines`). Markers are events whose name carries the system clock's time, read just
//! before the event began. The copies of annotations on a GPU's timeline (`gpu_user_annotation`)
//! are not markers, because they began when the GPU reached them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::base::{self, BASE_KEY};
use super::candidate::EventInBytes;
use super::decimal::Decimal;
use super::document::{Document, Item};
use super::event::Event;
use super::merge::MERGED_KEY;
use super::scan::EventSpans;
use super::survey::Surveyor;
use super::timing::{Timing, is_metadata};
use super::words;
use crate::Error;
use crate::marker::{Marker, Stamps};
use crate::model::{
    ClockPair, GroupKey, Identity, Launcher, LeftOut, MergeFacts, PS_PER_NS, PairKind, Picoseconds, Reach, Spread,
    TraceClock, TraceFacts, nearest_ns,
};
use crate::torch_operations::Collector;
use crate::{ALIGNED_SIGMA, ALIGNED_TO, FactOptions};

/// Reads the facts of a trace: in one pass, or in two if some times turn out to be implausible.
///
/// # Errors
/// The file cannot be read, is no trace, or is cut short; with the byte's offset.
pub(super) fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let (facts, spread, wrapped) = read_within(path, options, None)?;
    let stopped_ps = wrapped.proven();
    let reach = spread.reach().map(|reach| Reach { stopped_ps, ..reach }).or(stopped_ps.map(Reach::until));
    match reach {
        None => Ok(facts),
        reach => read_within(path, options, reach).map(|(facts, ..)| facts),
    }
}

/// Reads the facts of the events within `reach`, which counts from the file's base, and the
/// distribution of all times.
fn read_within(
    path: &Path,
    options: &FactOptions,
    reach: Option<Reach>,
) -> Result<(TraceFacts, Spread, Wrapped), Error> {
    let mut reader = Reader::new(path, options, reach);
    let mut document = Document::open(path, ASKED)?;
    let mut key = Vec::new();
    loop {
        match document.next()? {
            Item::End => {
                let (spread, wrapped) = (std::mem::take(&mut reader.spread), reader.wrapped);
                return Ok((reader.finish(), spread, wrapped));
            }
            Item::Event(event) => {
                let offset = event.offset;
                if let Err((at, problem)) = reader.event(&event) {
                    return Err(document.malformed(offset, at, problem));
                }
            }
            Item::Key { key: name, .. } if *name == *MERGED_KEY => reader.merged = true,
            Item::Key { key: name, .. } => key = name.get(..KEY_MAX).unwrap_or(&name).to_vec(),
            Item::Asked(value) => {
                if let Err(problem) = reader.header(&key, value) {
                    return Err(Error::malformed(path, document.position(), problem));
                }
            }
            _ => {}
        }
    }
}

/// Lengths that may have wrapped around, and when the profiler ended.
#[derive(Copy, Clone, Debug, Default)]
struct Wrapped {
    /// Number of events, and their latest end.
    events: u64,
    last_ps: Option<Picoseconds>,
    /// End of the profiler's own events.
    stopped_ps: Option<Picoseconds>,
}

impl Wrapped {
    #[inline]
    fn look(&mut self, start_ps: Picoseconds, end_ps: Picoseconds, is_of_the_profiler: bool) {
        if is_of_the_profiler {
            self.stopped_ps = self.stopped_ps.max(Some(end_ps));
        } else if Reach::may_be_wrapped(end_ps - start_ps) {
            self.events += 1;
            self.last_ps = self.last_ps.max(Some(end_ps));
        }
    }

    /// When the recording ended, if such a length certainly wrapped around.
    fn proven(&self) -> Option<Picoseconds> {
        let (stopped_ps, last_ps) = self.stopped_ps.zip(self.last_ps)?;
        (last_ps > stopped_ps + Reach::AFTER_PS).then_some(stopped_ps)
    }

    /// A note about those that are kept.
    fn note(&self) -> Option<String> {
        (self.events > 0).then(|| {
            format!(
                "{} 71.6 minutes long, within a minute, possibly a negative length that wrapped around; kept, because this is not certain",
                if self.events == 1 { "1 event is".to_owned() } else { format!("{} events are", self.events) }
            )
        })
    }
}

/// State of one pass.
struct Reader<'a> {
    options: &'a FactOptions,
    base_ns: Option<i64>,
    identity: Identity,
    merged: bool,
    /// What VizTracer states about its clock, if it wrote the file.
    viztracer: Option<VizTracer>,
    /// Hosts that dftracer names.
    hosts: BTreeSet<String>,
    aligned_to: Option<String>,
    aligned_sigma_ns: Option<f64>,
    groups: Vec<GroupKey>,
    events: u64,
    span: Option<(Picoseconds, Picoseconds)>,
    stamps: Stamps,
    untimed: u64,
    /// Range of plausible times, from the base of the file; `None`: not known yet, or all.
    reach: Option<Reach>,
    spread: Spread,
    wrapped: Wrapped,
    left_out: LeftOut,
    collector: Collector,
    /// For a merge; `None`: not asked, or one of the events cannot be merged.
    surveyor: Option<Surveyor>,
    notes: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(path: &Path, options: &'a FactOptions, reach: Option<Reach>) -> Reader<'a> {
        Reader {
            options,
            reach,
            spread: Spread::default(),
            wrapped: Wrapped::default(),
            left_out: LeftOut::default(),
            base_ns: None,
            identity: Identity::default(),
            merged: false,
            viztracer: None,
            hosts: BTreeSet::new(),
            aligned_to: None,
            aligned_sigma_ns: None,
            groups: Vec::new(),
            events: 0,
            span: None,
            stamps: Stamps::default(),
            untimed: 0,
            collector: Collector::new(&options.spill),
            surveyor: options.merging.then(|| Surveyor::begin(path)),
            notes: Vec::new(),
        }
    }

    #[inline]
    fn event(&mut self, event: &Event<'_>) -> Result<(), (usize, &'static str)> {
        let (bytes, spans) = (event.bytes, event.spans);
        if self.surveyor.as_mut().is_some_and(|surveyor| surveyor.look(event).is_err()) {
            // The merge, if it comes to that, says what is wrong.
            self.surveyor = None;
        }
        if is_metadata(bytes, spans) {
            return self.describe(bytes, spans).map_err(|problem| (spans.args.start(), problem));
        }
        let timing = match Timing::believed(bytes, spans, 0, self.reach) {
            Ok(Some(timing)) => timing,
            Ok(None) => {
                self.untimed += 1;
                return Ok(());
            }
            Err(oddity) => {
                self.left_out.add(oddity, event.offset);
                return Ok(());
            }
        };
        let (ts, end) = (timing.ts, timing.ts.ps + timing.length_ps());
        match timing.is_zero() {
            true => self.spread.add_zero(ts.ps),
            false => self.spread.add(ts.ps, end),
        }
        if timing.dur.is_some() {
            self.collector
                .look(&EventInBytes { bytes, spans }, ts.ps, end)
                .map_err(|fault| (fault.at, fault.problem))?;
            // The copy of an annotation on a device's timeline begins when the device got there.
            if let ([b'"', name @ .., b'"'], false) =
                (spans.name.of(bytes), words::category(spans.cat.of(bytes)) == b"gpu_user_annotation")
            {
                self.collector.steps.look(name, ts.ps, end);
            }
        }
        self.events += 1;
        let is_of_the_profiler = is_of_the_profiler(bytes, event);
        self.wrapped.look(ts.ps, end, is_of_the_profiler);
        if !(self.marker(bytes, event, ts) || is_of_the_profiler) {
            let (first, last) = self.span.unwrap_or((ts.ps, end));
            self.span = Some((first.min(ts.ps), last.max(end).max(ts.ps)));
        }
        Ok(())
    }

    /// Takes what dftracer states about the file: hosts, and the unit of its times.
    #[inline]
    fn describe(&mut self, bytes: &[u8], spans: &EventSpans) -> Result<(), &'static str> {
        let name = spans.name.of(bytes);
        if !matches!(name, b"\"HH\"" | b"\"CM\"") || spans.cat.of(bytes) != b"\"dftracer\"" {
            return Ok(());
        }
        let args: Value = serde_json::from_slice(spans.args.of(bytes)).unwrap_or_default();
        if name == b"\"HH\"" && self.hosts.len() < HOSTS_MAX {
            self.hosts.extend(args["name"].as_str().map(str::to_owned));
        }
        match (args["name"].as_str(), args["value"].as_str()) {
            (Some("time_metric"), Some(unit)) if unit != "US" => {
                Err("dftracer's times are not in microseconds; record with DFTRACER_TIME_METRIC=US")
            }
            _ => Ok(()),
        }
    }

    /// Keeps the event if its name is a marker; returns true if it is one. The end of a span ("E")
    /// and the copy of an annotation on a GPU's timeline have the name of a marker, but another
    /// time.
    #[inline]
    fn marker(&mut self, bytes: &[u8], event: &Event<'_>, start: Decimal) -> bool {
        let [b'"', name @ .., b'"'] = event.spans.name.of(bytes) else { return false };
        let Some(marker) = Marker::of(name, self.options.markers.as_ref()) else { return false };
        if !matches!(marker, Marker::Rank(..)) && (is_end(bytes, event) || is_copy(bytes, event)) {
            return false;
        }
        let unit_ps = 10_i128.pow(6_u32.saturating_sub(start.fraction));
        self.stamps.add(marker, start.ps, unit_ps);
        true
    }

    fn header(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            BASE_KEY => {
                let base_ns = base::parse(value).ok_or("baseTimeNanoseconds is not a whole number")?;
                if self.base_ns.replace(base_ns).is_some() {
                    return Err("baseTimeNanoseconds occurs twice");
                }
            }
            b"host_name" => {
                self.identity.hostname = match serde_json::from_slice(value) {
                    Ok(name) => Some(name),
                    Err(_) => value.starts_with(b"\"").then(|| super::candidate::text(value)),
                };
            }
            _ if key == ALIGNED_TO.as_bytes() => {
                let clock = serde_json::from_slice(value).map_err(|_| "probe_sync_timeline is not a string")?;
                self.aligned_to = Some(clock);
            }
            _ if key == ALIGNED_SIGMA.as_bytes() => {
                self.aligned_sigma_ns = super::candidate::text(value).parse().ok();
            }
            VIZTRACER => {
                let stated: Value = serde_json::from_slice(value).unwrap_or_default();
                self.viztracer = Some(VizTracer { system_ahead_ns: stated["baseTimeNanoseconds"].as_i64() });
            }
            _ if value.len() > DISTRIBUTED_MAX => self.notes.push("distributedInfo is too long".into()),
            _ => match serde_json::from_str::<Value>(&String::from_utf8_lossy(value)) {
                Ok(info) => self.distributed(&info),
                Err(error) => self.notes.push(format!("cannot parse distributedInfo: {error}")),
            },
        }
        Ok(())
    }

    fn distributed(&mut self, info: &Value) {
        let number = |value: &Value| value.as_u64().and_then(|value| u32::try_from(value).ok());
        self.identity.rank = number(&info["rank"]);
        self.identity.launcher = self.identity.rank.map(|_| Launcher::Torchrun);
        self.identity.world_size = number(&info["world_size"]);
        for group in info["pg_config"].as_array().into_iter().flatten() {
            let name = match &group["pg_name"] {
                Value::String(name) => name.clone(),
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            let ranks = group["ranks"].as_array().and_then(|ranks| ranks.iter().map(number).collect());
            self.groups.push(GroupKey { name, ranks, size: number(&group["pg_size"]), is_from_making: false });
        }
    }

    fn finish(mut self) -> TraceFacts {
        let base_ps = i128::from(self.base_ns.unwrap_or(0)) * 1000;
        self.stamps.shift(base_ps);
        let collector = self.collector;
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                self.notes.push(format!("{count} {text}"));
            }
        };
        note(self.untimed, "events have no ts");
        self.notes.extend(collector.only_enqueued());
        self.notes.extend(self.stamps.notes());
        self.notes.extend(self.wrapped.note());
        let reach = self.reach.map(|reach| reach.shifted(base_ps));
        let merging = self.surveyor.map(|surveyor| MergeFacts::new(surveyor.finish(self.base_ns, reach)));
        let mut facts = TraceFacts {
            identity: self.identity,
            merged: self.merged,
            aligned_to: self.aligned_to,
            aligned_sigma_ns: self.aligned_sigma_ns,
            base_ns: self.base_ns,
            events: self.events,
            reach,
            merging,
            span: self.span.map(|(first, last)| (first + base_ps, last + base_ps)),
            omitted: self.left_out.by_reason(),
            warnings: self.left_out.note().into_iter().collect(),
            ..TraceFacts::default()
        };
        if self.hosts.len() == 1 && facts.identity.hostname.is_none() {
            facts.identity.hostname = self.hosts.pop_first();
        }
        facts.take_stamps(self.stamps);
        if let (Some(viztracer), None, None) = (self.viztracer, facts.base_ns, &facts.aligned_to) {
            viztracer.state(&mut facts);
        }
        let (collectives, named, steps) = collector.finish(base_ps, facts.identity.rank, &self.groups);
        self.notes.extend(collectives.left_out_note());
        for group in named {
            match self.groups.iter_mut().find(|listed| listed.name == group.name) {
                Some(listed) => listed.ranks = listed.ranks.take().or(group.ranks),
                None => self.groups.push(group),
            }
        }
        TraceFacts { collectives, steps, groups: self.groups, notes: self.notes, ..facts }
    }
}

/// A file of VizTracer: its times are on CLOCK_MONOTONIC.
struct VizTracer {
    /// How far the system clock was ahead of it when the program began, ns.
    system_ahead_ns: Option<i64>,
}

impl VizTracer {
    /// States the clock, and the system time of the first event as one pair.
    fn state(self, facts: &mut TraceFacts) {
        facts.clock = TraceClock::Monotonic;
        if let (Some(ahead_ns), Some((first_ps, _))) = (self.system_ahead_ns, facts.span)
            && let Some(first_ns) = nearest_ns(first_ps)
            && let Some(system_ns) = first_ns.checked_add(ahead_ns)
        {
            let tracer_ps = Picoseconds::from(first_ns) * PS_PER_NS;
            facts.pairs.push(ClockPair { tracer_ps, system_ns, kind: PairKind::Bracketed(VIZTRACER_BRACKET_NS) });
        }
    }
}

/// Returns true if the event is the copy of an annotation on a GPU's timeline.
fn is_copy(bytes: &[u8], event: &Event<'_>) -> bool {
    words::category(event.spans.cat.of(bytes)) == b"gpu_user_annotation"
}

/// Returns true if the event is the end of a span whose beginning is an event of its own.
fn is_end(bytes: &[u8], event: &Event<'_>) -> bool {
    matches!(event.spans.ph.of(bytes), b"\"E\"" | b"\"e\"")
}

/// Whether an event concerns the profiler's own session and nothing that the program did: the spans
/// of whole iterations and the end of the recording, which is up to 100 ms after the last event.
fn is_of_the_profiler(bytes: &[u8], event: &Event<'_>) -> bool {
    let spans = &event.spans;
    spans.cat.of(bytes) == b"\"Trace\""
        || matches!(spans.pid.of(bytes), b"\"Spans\"" | b"\"Traces\"")
        || spans.name.of(bytes) == b"\"Record Window End\""
}

/// What the root states about the trace.
const ASKED: &[&[u8]] =
    &[BASE_KEY, b"distributedInfo", b"host_name", VIZTRACER, ALIGNED_TO.as_bytes(), ALIGNED_SIGMA.as_bytes()];
const VIZTRACER: &[u8] = b"viztracer_metadata";
/// Width of the reading of two clocks from which VizTracer knows their difference, ns: it takes the
/// median of many.
const VIZTRACER_BRACKET_NS: f64 = 1000.0;
/// Hosts that are remembered; several mean that the file is of no single one.
const HOSTS_MAX: usize = 2;
/// No key that is asked for is longer.
const KEY_MAX: usize = 32;
/// A longer description of the job is left unread.
const DISTRIBUTED_MAX: usize = 8 << 20;
