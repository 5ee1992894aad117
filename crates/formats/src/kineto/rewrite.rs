//! Sends every time of a file through a map and leaves everything else unchanged.
//!
//! A time is `base + ts`, and a duration is mapped at both ends: `dur' = map(ts + dur) − map(ts)`.
//! Results are rounded to whole nanoseconds; rounding is monotone, so order, equal starts and
//! nesting survive. A file with finer times than nanoseconds keeps picoseconds. A value that the
//! map does not change keeps its exact digits. An array of events, or events on lines, become an
//! object as soon as there is something to state about the file: the base, or the clock.

use std::path::Path;

use serde_json::Value;

use super::base::{self, BASE_KEY};
use super::decimal::{self, Decimal};
use super::document::{Document, Item};
use super::edits::Edits;
use super::event::Event;
use super::timing::{Timing, is_metadata};
use super::valid::Passing;
use super::words;
use crate::Error;
use crate::model::{Picoseconds, Reach};
use crate::output::Sink;
use crate::{MapFunction, RewriteOptions, RewriteStats};

/// Rewrites `input` as `output`, gzip if its name ends in `.gz`.
///
/// The map takes and returns absolute picoseconds, on the file's timeline and on the new one. It is
/// called in file order, start before end; if an attempt must be repeated (the base follows the
/// events and the tail of the file did not reveal it), it is called again from the first event on,
/// and the statistics are those of the last attempt.
///
/// # Errors
/// Returns an error for anything wrong with the input, with its offset, and for failures of reading
/// and writing. No output appears then.
pub(super) fn rewrite(
    input: &Path,
    output: &Path,
    options: &RewriteOptions<'_>,
    map: &mut MapFunction<'_>,
) -> Result<RewriteStats, Error> {
    let mut input_base = base::find(input)?;
    let mut output_base = options.base_ns;
    for _ in 0..ATTEMPTS_MAX {
        let times = Times::new(input_base, output_base.or(input_base), options.reach);
        let (document, sink) = (Document::open(input, &[BASE_KEY])?.judging(), Sink::create(output)?);
        let passing = Passing::new(options.repair);
        let mut attempt = Attempt { document, sink, times, passing, options };
        match attempt.run(map)? {
            None => return attempt.finish(),
            Some(Repeat::InputBase(found)) => input_base = found,
            Some(Repeat::OutputBase(needed)) => output_base = Some(needed),
        }
    }
    Err(Error::malformed(input, 0, "the base time is inconsistent"))
}

/// One pass over the file.
struct Attempt<'a> {
    document: Document,
    sink: Sink,
    times: Times,
    passing: Passing,
    options: &'a RewriteOptions<'a>,
}

/// Why a pass must be repeated.
pub(super) enum Repeat {
    /// The input has a different base.
    InputBase(Option<i64>),
    /// The output needs this base.
    OutputBase(i64),
}

impl Attempt<'_> {
    fn run(&mut self, map: &mut MapFunction<'_>) -> Result<Option<Repeat>, Error> {
        let (mut stated, mut edits, mut any) = (None, Edits::default(), false);
        let (mut is_object, mut is_wrapped) = (false, false);
        let has_head = !self.options.metadata.is_empty() || self.times.output_base.is_some();
        // Where the present value began: where its pieces end depends on how the file is read.
        let mut value_at = None;
        loop {
            let at = self.document.position();
            match self.document.next()? {
                Item::Event(event) => {
                    edits.clear();
                    match self.times.edit(&event, map, self.options.annotate, &mut edits) {
                        Edited::Stays => {}
                        Edited::LeftOut => continue,
                        Edited::Again(repeat) => return Ok(Some(repeat)),
                    }
                    let out = self.sink.out();
                    if is_wrapped {
                        words::spell_phase(&event, &mut edits);
                        out.extend_from_slice(if any { b",\n" } else { b"\n" });
                    } else {
                        // The first event has no comma before it; it may not be the first of the input.
                        let comma = event.lead.iter().position(|byte| *byte == b',').filter(|_| !any);
                        out.extend_from_slice(&event.lead[comma.map_or(0, |at| at + 1)..]);
                    }
                    any = true;
                    let write = |out: &mut Vec<u8>| edits.apply(event.bytes, out);
                    let passed = self.passing.event(event.judged(), out, write);
                    if let Err(problem) = passed {
                        let offset = event.offset;
                        return Err(self.document.malformed(offset, 0, problem));
                    }
                    self.sink.relieve()?;
                    continue;
                }
                Item::End => break,
                Item::Open(bytes) => {
                    is_object = true;
                    self.passing.piece(bytes, at, self.sink.out());
                    self.head()?;
                }
                // What is stated about the file has no place in an array, or between lines.
                Item::EventsOpen(_) if !is_object && has_head => {
                    is_wrapped = true;
                    self.open_object()?;
                }
                Item::EventsClose(_) if is_wrapped => self.sink.put(b"\n]}")?,
                Item::Asked(value) => {
                    let value = value.to_vec();
                    let Some(base_ns) = base::parse(&value) else { return Err(self.bad_base("is not a whole number")) };
                    if stated.replace(base_ns).is_some() {
                        return Err(self.bad_base("occurs twice"));
                    }
                    if Some(base_ns) != self.times.input_base {
                        return Ok(Some(Repeat::InputBase(Some(base_ns))));
                    }
                    match self.times.output_base {
                        Some(new) if new != base_ns => self.sink.put(new.to_string().as_bytes())?,
                        _ => self.sink.put(&value)?,
                    }
                }
                Item::Piece(bytes) => {
                    self.passing.piece(bytes, *value_at.get_or_insert(at), self.sink.out());
                    self.sink.relieve()?;
                }
                Item::Key { bytes, .. } | Item::EventsOpen(bytes) | Item::EventsClose(bytes) | Item::Close(bytes) => {
                    value_at = None;
                    self.passing.piece(bytes, at, self.sink.out());
                    self.sink.relieve()?;
                }
            }
        }
        Ok((stated != self.times.input_base).then_some(Repeat::InputBase(stated)))
    }

    /// Begins an object around events that have none.
    fn open_object(&mut self) -> Result<(), Error> {
        self.sink.put(b"{")?;
        self.head()?;
        self.sink.put(b"\n  \"traceEvents\": [")
    }

    /// Writes what precedes everything from the input.
    fn head(&mut self) -> Result<(), Error> {
        for (key, value) in self.options.metadata {
            let (key, value) = (Value::from(key.as_str()), Value::from(value.as_str()));
            self.sink.put(format!("\n  {key}: {value},").as_bytes())?;
        }
        match self.times.output_base.filter(|_| self.times.input_base.is_none()) {
            Some(base_ns) => self.sink.put(format!("\n  \"baseTimeNanoseconds\": {base_ns},").as_bytes()),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<RewriteStats, Error> {
        let bytes_read = self.document.position();
        let mut stats = self.times.stats;
        stats.notes.extend(self.passing.note());
        Ok(RewriteStats { bytes_read, bytes_written: self.sink.finish()?, base_ns: self.times.output_base, ..stats })
    }

    fn bad_base(&self, problem: &str) -> Error {
        self.document.malformed(self.document.position(), 0, &format!("baseTimeNanoseconds {problem}"))
    }
}

/// The arithmetic of one event's times.
pub(super) struct Times {
    pub(super) input_base: Option<i64>,
    pub(super) output_base: Option<i64>,
    input_base_ps: Picoseconds,
    output_base_ps: Picoseconds,
    reach: Option<Reach>,
    pub(super) stats: RewriteStats,
}

/// Result for an event.
pub(super) enum Edited {
    /// It is written, with these changes.
    Stays,
    /// Its time is unknown.
    LeftOut,
    /// The pass must be repeated.
    Again(Repeat),
}

impl Times {
    pub(super) fn new(input_base: Option<i64>, output_base: Option<i64>, reach: Option<Reach>) -> Times {
        let ps = |base: Option<i64>| i128::from(base.unwrap_or(0)) * 1000;
        let (input_base_ps, output_base_ps) = (ps(input_base), ps(output_base));
        Times { input_base, output_base, input_base_ps, output_base_ps, reach, stats: RewriteStats::default() }
    }

    /// Adds the changes of an event.
    #[inline]
    pub(super) fn edit(
        &mut self,
        event: &Event<'_>,
        map: &mut MapFunction<'_>,
        annotate: bool,
        edits: &mut Edits,
    ) -> Edited {
        let (bytes, spans) = (event.bytes, event.spans);
        let describes = is_metadata(bytes, spans);
        let timing = Timing::believed(bytes, spans, self.input_base_ps, self.reach);
        if timing.is_err() && !describes {
            self.stats.left_out += 1;
            return Edited::LeftOut;
        }
        self.stats.events += 1;
        // Of what describes a process or a thread the time means nothing. Writers put 0 there;
        // mapped, it would count as one far outside of all clocks' knowledge.
        let known = timing.ok().flatten().filter(|timing| !(describes && timing.ts.ps == 0));
        let Some(Timing { ts, dur }) = known else {
            self.stats.untimed += 1;
            return Edited::Stays;
        };
        let start = self.input_base_ps + ts.ps;
        let new_start = map(start);
        let lasting = dur.map(|dur| (dur, map(start + dur.ps)));
        let moved = new_start != start || lasting.is_some_and(|(dur, new_end)| new_end != start + dur.ps);
        if moved && self.output_base.is_none() {
            return Edited::Again(Repeat::OutputBase(base::quarter_before(new_start)));
        }
        self.edit_times(event, ts, new_start, lasting, edits);
        if annotate {
            annotate_event(event, new_start - start, edits);
        }
        Edited::Stays
    }

    /// The new text of `ts` and `dur`, if it differs from the old one.
    #[inline]
    fn edit_times(
        &mut self,
        event: &Event<'_>,
        ts: Decimal,
        new_start: Picoseconds,
        lasting: Option<(Decimal, Picoseconds)>,
        edits: &mut Edits,
    ) {
        let spans = &event.spans;
        let fine = ts.finer_than_nanoseconds() || lasting.is_some_and(|(dur, _)| dur.finer_than_nanoseconds());
        let round = |ps: Picoseconds| if fine { ps } else { decimal::round_to_nanoseconds(ps) };
        let relative = new_start - self.output_base_ps;
        let mut begin = round(relative);
        if begin < 0 {
            if is_metadata(event.bytes, spans) {
                // The time of metadata means nothing to any viewer, but a negative one makes some
                // drop the name.
                begin = 0;
                self.stats.metadata_clamped += 1;
            } else {
                self.stats.before_base += 1;
            }
        }
        let mut rounded = false;
        if relative != ts.ps || begin != round(relative) {
            edits.replace(spans.ts.into(), |out| decimal::write(out, begin, fine));
            rounded |= ts.inexact;
        }
        if let Some((dur, new_end)) = lasting
            && new_end - new_start != dur.ps
        {
            let length = round(new_end - self.output_base_ps) - round(relative);
            edits.replace(spans.dur.into(), |out| decimal::write(out, length, fine));
            rounded |= dur.inexact;
        }
        self.stats.rounded += u64::from(rounded);
    }
}

/// Records in an event's args how far it was moved.
fn annotate_event(event: &Event<'_>, moved: Picoseconds, edits: &mut Edits) {
    let args = event.spans.args;
    let text = |out: &mut Vec<u8>| {
        out.extend_from_slice(b"\"timestamp_correction_ns\": ");
        decimal::write(out, decimal_of_ps(moved), false);
    };
    if args.is_empty() {
        // An event with a `ts` is not empty, so a comma is right.
        let end = event.bytes.len() - 1;
        edits.replace(end..end, |out| {
            out.extend_from_slice(b", \"args\": {");
            text(out);
            out.push(b'}');
        });
    } else if event.bytes[args.start()] == b'{' {
        let inside = args.start() + 1;
        let empty = super::scan::skip_space(event.bytes, inside) == args.end() - 1;
        edits.replace(inside..inside, |out| {
            text(out);
            if !empty {
                out.extend_from_slice(b", ");
            }
        });
    }
}

/// Picoseconds as the number whose "microseconds with three digits" reads as nanoseconds with three
/// digits.
fn decimal_of_ps(ps: Picoseconds) -> Picoseconds {
    ps * 1000
}

/// Attempts at one file: a guess of the base may prove wrong, and a base may turn out to be needed.
const ATTEMPTS_MAX: u32 = 3;
