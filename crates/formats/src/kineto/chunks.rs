//! A Kineto trace as chunks of columns, for the writers of other formats.
//!
//! One pass over the file sends every time through the map. Spans (`X`, or `B` up to the `E` on the
//! same row) become slices, `i` events moments, the numbers of `C` events values, and `s`, `t` and
//! `f` events ends of flows; `rows` determines the track of each. Other phases, and events with implausible times, are counted but not
//! carried over. It does not sort events.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::path::Path;

use foldhash::fast::FixedState;

use super::base::{self, BASE_KEY};
use super::decimal;
use super::document::{Document, Item};
use super::event::Event;
use super::rows::{Rows, text, text_bytes};
use super::scan::{self, ByteScan, Ends, EventSpans, Fault, Span};
use super::timing::Timing;
use super::valid::{self, Invalid};
use super::words;
use crate::Error;
use crate::chunk::{ArgRange, Chunk, Flow, FlowEnd, StringId, TrackId, Value, lossy};
use crate::model::Picoseconds;
use crate::{ChunkOptions, ChunkSink, ChunkStats, MapFunction};

/// Reads a trace.
///
/// # Errors
/// Returns an error for anything wrong with the input, with its offset; errors of `sink`.
pub(super) fn read_chunks(
    path: &Path,
    options: &ChunkOptions,
    map: &mut MapFunction<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<ChunkStats, Error> {
    let base_ns = options.base_ns.map_or_else(|| base::find(path), |base_ns| Ok(Some(base_ns)))?;
    let mut document = Document::open(path, &[BASE_KEY])?;
    let mut reader = Reader::new(base_ns.unwrap_or(0), options);
    let mut stated = None;
    loop {
        match document.next()? {
            Item::End => break,
            Item::Event(event) => {
                let offset = event.offset;
                if let Err((at, problem)) = reader.event(&event, map) {
                    return Err(document.malformed(offset, at, problem));
                }
                if reader.chunk.is_full() {
                    sink(&reader.chunk)?;
                    reader.chunk.clear();
                }
            }
            Item::Asked(value) => stated = base::parse(value),
            _ => {}
        }
    }
    if stated != base_ns {
        let problem = "baseTimeNanoseconds occurs more than once or is not a whole number";
        return Err(Error::malformed(path, document.position(), problem));
    }
    reader.leave_open();
    reader.chunk.tracks = reader.rows.tracks(options);
    sink(&reader.chunk)?;
    Ok(reader.stats)
}

/// Position of a fault in an event, and the fault.
type EventFault = (usize, &'static str);

/// State of one pass.
struct Reader<'a> {
    options: &'a ChunkOptions,
    base_ps: Picoseconds,
    chunk: Chunk,
    stats: ChunkStats,
    rows: Rows,
    /// A time that was written before.
    before_ns: i64,
    /// Spans that have begun, by track, and the bytes of their events.
    open: HashMap<TrackId, Open, FixedState>,
    open_bytes: usize,
    /// Begins and ends on tracks where these are not in the order of their times, or where some were
    /// not kept: what they belong to is not known.
    unpaired: u64,
    /// Ends with arguments, which are not shown.
    ends_with_args: u64,
}

/// The spans that have begun on a track.
#[derive(Default)]
struct Open {
    spans: Vec<OpenSpan>,
    last_ns: Option<i64>,
    is_paired: bool,
}

/// The event that begins a span, and its time on the new clock, ns.
struct OpenSpan {
    bytes: Box<[u8]>,
    spans: EventSpans,
    at: i64,
}

impl<'a> Reader<'a> {
    fn new(base_ns: i64, options: &'a ChunkOptions) -> Reader<'a> {
        Reader {
            options,
            base_ps: Picoseconds::from(base_ns) * 1000,
            chunk: Chunk::default(),
            stats: ChunkStats::default(),
            rows: Rows::default(),
            before_ns: base_ns,
            open: HashMap::default(),
            open_bytes: 0,
            unpaired: 0,
            ends_with_args: 0,
        }
    }

    fn event(&mut self, event: &Event<'_>, map: &mut MapFunction<'_>) -> Result<(), EventFault> {
        let (bytes, spans) = (event.bytes, event.spans);
        let phase = words::phase(spans.ph.of(bytes));
        if phase == b'M' {
            return self.metadata(event);
        }
        if !matches!(phase, b'X' | b'B' | b'E' | b'C' | b'i' | b'I' | b's' | b't' | b'f') {
            *self.stats.other_phases.entry(char::from(phase)).or_default() += 1;
            return Ok(());
        }
        let timing = match Timing::believed(bytes, spans, self.base_ps, self.options.reach) {
            Ok(Some(timing)) => timing,
            Ok(None) => {
                self.stats.untimed += 1;
                return Ok(());
            }
            Err(_) => {
                self.stats.left_out += 1;
                return Ok(());
            }
        };
        let start = self.base_ps + timing.ts.ps;
        let at = self.nanoseconds(map(start)).ok_or((spans.ts.start(), TOO_FAR))?;
        if phase == b'C' {
            return self.values(event, at);
        }
        let track = self.track(event)?;
        match phase {
            b'B' => {
                self.begin(event, track, at);
                return Ok(());
            }
            b'E' => return self.end(event, track, at),
            _ => {}
        }
        self.stats.events += 1;
        match phase {
            b'X' => {
                let end = match timing.dur {
                    Some(dur) => self.nanoseconds(map(start + dur.ps)).ok_or((spans.dur.start(), TOO_FAR))?,
                    None => at,
                };
                self.slice((bytes, spans, &event.ends), track, (at, end))
            }
            b'i' | b'I' => self.instant(event, track, at),
            _ => {
                self.flow(event, track, at, phase);
                Ok(())
            }
        }
    }

    /// The nearest nanosecond, counted from the time before: divisions of 128 bits are slow.
    #[inline]
    fn nanoseconds(&mut self, ps: Picoseconds) -> Option<i64> {
        let since_ps = decimal::round_to_nanoseconds(ps - Picoseconds::from(self.before_ns) * 1000);
        let since_ns = match i64::try_from(since_ps) {
            Ok(since_ps) => Picoseconds::from(since_ps / 1000),
            Err(_) => since_ps / 1000,
        };
        self.before_ns = i64::try_from(Picoseconds::from(self.before_ns) + since_ns).ok()?;
        Some(self.before_ns)
    }

    /// Adds the numbers in the arguments of an event, each as a series of its own.
    fn values(&mut self, event: &Event<'_>, at: i64) -> Result<(), EventFault> {
        let (bytes, spans) = (event.bytes, event.spans);
        self.stats.events += 1;
        if spans.args.of(bytes).first() != Some(&b'{') {
            return Ok(());
        }
        let (pid, mut name) = (words::number(spans.pid.of(bytes)), text(spans.name.of(bytes)));
        // Its number tells a counter from others of its name.
        if !spans.id.of(bytes).is_empty() {
            name = format!("{name} {}", lossy(words::number(spans.id.of(bytes)))).into();
        }
        let Self { chunk: Chunk { counters, .. }, rows, .. } = self;
        let walked = scan::object_with(&bytes[..spans.args.end()], spans.args.start(), &event.ends, |key, value| {
            let number =
                std::str::from_utf8(words::number(&bytes[value.clone()])).ok().and_then(|text| text.parse().ok());
            let Some(number) = number.filter(|number: &f64| number.is_finite()) else { return Ok(()) };
            let key = lossy(key);
            let named = if name == key { name.to_string() } else { format!("{name} {key}") };
            let track = rows.series(pid, named).ok_or(Fault { at: value.start, problem: TOO_MANY })?;
            counters.push(track, at, number);
            Ok(())
        });
        walked.map(|_| ()).map_err(|fault| (fault.at, fault.problem))
    }

    /// Keeps the beginning of a span until its end.
    fn begin(&mut self, event: &Event<'_>, track: TrackId, at: i64) {
        let bytes = event.bytes.len() + size_of::<OpenSpan>();
        if self.open_bytes + bytes > OPEN_BYTES_MAX {
            self.lose(track);
        }
        if let Some(open) = self.in_order(track, at) {
            open.push(OpenSpan { bytes: event.bytes.into(), spans: event.spans.clone(), at });
            self.open_bytes += bytes;
        }
    }

    /// Ends the span that began last on a track.
    fn end(&mut self, event: &Event<'_>, track: TrackId, at: i64) -> Result<(), EventFault> {
        let Some(open) = self.in_order(track, at) else { return Ok(()) };
        let Some(span) = open.pop() else {
            *self.stats.other_phases.entry('E').or_default() += 1;
            return Ok(());
        };
        self.open_bytes -= span.bytes.len() + size_of::<OpenSpan>();
        self.ends_with_args += u64::from(event.spans.args.of(event.bytes).len() > 2);
        self.stats.events += 1;
        // A fault would be in the event that began it.
        self.slice((&span.bytes, &span.spans, &ByteScan), track, (span.at, at)).map_err(|(_, problem)| (0, problem))
    }

    /// The open spans of a track on which begins and ends are in order so far; counts the event
    /// otherwise.
    fn in_order(&mut self, track: TrackId, at: i64) -> Option<&mut Vec<OpenSpan>> {
        let open = self.open.entry(track).or_insert_with(|| Open { is_paired: true, ..Open::default() });
        if open.last_ns.is_some_and(|last_ns| at < last_ns) {
            self.lose(track);
        }
        let open = self.open.get_mut(&track)?;
        if !open.is_paired {
            self.unpaired += 1;
            return None;
        }
        open.last_ns = Some(at);
        Some(&mut open.spans)
    }

    /// Stops pairing the begins and ends of a track.
    fn lose(&mut self, track: TrackId) {
        let open = self.open.entry(track).or_default();
        open.is_paired = false;
        let lost = std::mem::take(&mut open.spans);
        self.unpaired += lost.len() as u64;
        self.open_bytes -= lost.iter().map(|span| span.bytes.len() + size_of::<OpenSpan>()).sum::<usize>();
    }

    /// Counts spans that never ended, and those that could not be paired.
    fn leave_open(&mut self) {
        let open: usize = self.open.values().map(|open| open.spans.len()).sum();
        if open > 0 {
            *self.stats.other_phases.entry('B').or_default() += open as u64;
        }
        if self.unpaired > 0 {
            self.stats.notes.push(format!(
                "{} begins and ends of spans are on tracks where they are not in the order of their times, and are not shown",
                self.unpaired
            ));
        }
        if self.ends_with_args > 0 {
            let count = self.ends_with_args;
            self.stats.notes.push(format!("{count} arguments are stated where spans end and are not shown"));
        }
    }

    fn slice(
        &mut self,
        (bytes, spans, ends): (&[u8], &EventSpans, &impl Ends),
        track: TrackId,
        (at, end): (i64, i64),
    ) -> Result<(), EventFault> {
        let args = self.args(bytes, spans.args, ends)?;
        let (name, category) = (self.text(bytes, spans.name), self.category(bytes, spans.cat));
        let slices = &mut self.chunk.slices;
        slices.push(track, (at, end), (name, category), Flow::default(), args);
        Ok(())
    }

    fn instant(&mut self, event: &Event<'_>, track: TrackId, at: i64) -> Result<(), EventFault> {
        let (bytes, spans) = (event.bytes, event.spans);
        let args = self.args(bytes, spans.args, &event.ends)?;
        let (name, category) = (self.text(bytes, spans.name), self.category(bytes, spans.cat));
        let instants = &mut self.chunk.instants;
        instants.push(track, at, (name, category), args);
        Ok(())
    }

    fn flow(&mut self, event: &Event<'_>, track: TrackId, at: i64, phase: u8) {
        let (bytes, spans) = (event.bytes, event.spans);
        // The id is of this file: of another rank's the same number is another flow.
        let id = words::number(spans.id.of(bytes));
        let what = (self.options.part, spans.cat.of(bytes), spans.name.of(bytes), id);
        let id = FixedState::with_seed(0).hash_one(what).max(1);
        let end = match phase {
            b's' => FlowEnd::Out,
            b't' => FlowEnd::Step,
            _ => FlowEnd::In,
        };
        let flows = &mut self.chunk.flows;
        flows.push(track, at, Flow { id, end });
    }

    fn text(&mut self, bytes: &[u8], span: Span) -> StringId {
        self.chunk.strings.intern_lossy(&text_bytes(span.of(bytes)))
    }

    fn category(&mut self, bytes: &[u8], span: Span) -> StringId {
        self.chunk.strings.intern_lossy(&text_bytes(words::category(span.of(bytes))))
    }

    /// The number of the event's track.
    fn track(&mut self, event: &Event<'_>) -> Result<TrackId, EventFault> {
        let (bytes, spans) = (event.bytes, event.spans);
        let [pid, tid] = [spans.pid, spans.tid].map(|span| words::number(span.of(bytes)));
        let side = words::side(words::category(spans.cat.of(bytes)));
        let track = self.rows.track((pid, tid), side, || device(bytes, spans));
        track.ok_or((spans.tid.start(), TOO_MANY))
    }

    fn args(&mut self, bytes: &[u8], span: Span, ends: &impl Ends) -> Result<ArgRange, EventFault> {
        let first = self.chunk.args.key.len() as u32;
        if !self.options.args.any() || span.of(bytes).first() != Some(&b'{') {
            return Ok(ArgRange { first, count: 0 });
        }
        let Chunk { strings, args, .. } = &mut self.chunk;
        let walked = scan::object_with(&bytes[..span.end()], span.start(), ends, |key, at| {
            if !self.options.args.takes(key) {
                return Ok(());
            }
            let raw = &bytes[at];
            let value = match raw.first() {
                Some(b'"') => Value::Text(strings.push(&text(raw))),
                Some(b'{' | b'[') => Value::Json(strings.push(&json(raw))),
                _ if raw == b"null" => Value::Json(strings.push("null")),
                Some(b't') => Value::Boolean(true),
                Some(b'f') => Value::Boolean(false),
                _ => number(raw).unwrap_or_else(|| Value::Text(strings.push(&lossy(raw)))),
            };
            args.key.push(strings.intern_lossy(key));
            args.value.push(value);
            Ok(())
        });
        walked.map_err(|fault: Fault| (fault.at, fault.problem))?;
        Ok(ArgRange { first, count: args.key.len() as u32 - first })
    }

    fn metadata(&mut self, event: &Event<'_>) -> Result<(), EventFault> {
        let (bytes, spans) = (event.bytes, event.spans);
        let [pid, tid] = [spans.pid, spans.tid].map(|span| words::number(span.of(bytes)));
        if spans.args.of(bytes).first() != Some(&b'{') {
            return Ok(());
        }
        let what = spans.name.of(bytes);
        let walked = scan::object(&bytes[..spans.args.end()], spans.args.start(), |key, at| {
            self.rows.describe(what, key, (pid, tid), || text(&bytes[at]).into_owned());
            Ok(())
        });
        walked.map(|_| ()).map_err(|fault: Fault| (fault.at, fault.problem))
    }
}

/// A JSON number; integers keep their digits.
fn number(raw: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(raw).ok()?;
    let whole = text.parse().map(Value::Integer).or_else(|_| text.parse().map(Value::Unsigned));
    let is_whole = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let float = || text.parse().ok().filter(|value: &f64| value.is_finite() && !is_whole).map(Value::Float);
    whole.ok().or_else(float)
}

/// The device that an event states in its arguments.
fn device(bytes: &[u8], spans: &EventSpans) -> Option<i64> {
    let mut found = None;
    if spans.args.of(bytes).first() == Some(&b'{') {
        // What is wrong with arguments is found when they are read.
        let _ = scan::object(&bytes[..spans.args.end()], spans.args.start(), |key, at| {
            if key == b"device" {
                found = std::str::from_utf8(words::number(&bytes[at])).ok().and_then(|text| text.parse().ok());
            }
            Ok(())
        });
    }
    found
}

/// An array or an object as valid JSON.
fn json(raw: &[u8]) -> Cow<'_, str> {
    if valid::is_valid(raw) {
        return lossy(raw);
    }
    let mut mended = Vec::new();
    valid::mend(raw, &mut Invalid::default(), &mut mended);
    Cow::Owned(lossy(&mended).into_owned())
}

/// Memory for the events of spans that have begun.
const OPEN_BYTES_MAX: usize = 64 << 20;
const TOO_MANY: &str = "the file has more than a million processes and threads";
/// Said of a time that no output can hold.
const TOO_FAR: &str = "the time does not fit in 64 bits of nanoseconds";
