//! Sends every time of a file through a map, event by event; `runs` shares out long lines among
//! several threads.
//!
//! With session start `s`, line start `l`, offset `o`, duration `d` and map `m`, all in ps, and `b`
//! the session start of the output:
//!
//! ```text
//! l' = floor to ns of m(s + l) − b        o' = m(s + l + o) − b − l'        d' = m(s + l + o + d) − m(s + l + o)
//! ```
//!
//! Whatever comes out equal to what went in is copied with its own bytes, so that the identity
//! gives the same file. It does not enforce order, which a monotone map preserves. It does not
//! change aggregated events, which have a count and no time. Events of snapshot planes are not
//! mapped, because they are on the system clock; they only follow the base.

use std::path::Path;

use super::event::{EventTimes, NewTimes, put_event, put_stat_metadata, relink, replace_numbers};
use super::fields::{line, plane, space, stat};
use super::kept::Kept;
use super::metadata_plane;
use super::outline::{self, CORRECTION_STAT, Outline, PlaneOutline};
use super::plane_clock::{PlaneClock, PlaneClocks};
use super::runs::{self, Line, Relinking};
use super::sift::{EVENTS_TAG, SHARED_BYTES_MIN};
use super::sink::Sink;
use super::snapshots;
use super::stat::{Stat, StatValue};
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, UNIX_TIME_MIN_PS};
use crate::protobuf::{Fault, Header, Run, Source};
use crate::protobuf::{put_bytes, put_number};
use crate::{MapFunction, RewriteOptions, RewriteStats};

/// Writes `input` with all its times mapped to `output`, which appears when it is complete. `map`
/// takes and returns absolute picoseconds, is called once per line, start and end of an event, and
/// must be monotone if the order is to be kept.
///
/// # Errors
/// Returns an error if a file cannot be read or written, if the input is not XSpace, or if a mapped
/// time does not fit 64 bits.
pub(super) fn rewrite(
    input: &Path,
    output: &Path,
    options: &RewriteOptions<'_>,
    map: &mut MapFunction<'_>,
) -> Result<RewriteStats, Error> {
    let outline = outline::outline(input)?;
    let mut sink = Sink::create(output)?;
    let mut stats = Rewriter::open(input, &outline, *options, None, &mut sink, map)?.run(&outline)?;
    stats.bytes_written = sink.finish()?;
    Ok(stats)
}

/// Names of the parts of one input in a merged file.
pub(super) struct Renaming<'a> {
    /// Name and id of each plane, in order of the input.
    pub(super) planes: &'a [(String, u64)],
    /// Gives line ids that no other line has.
    pub(super) line_ids: &'a mut dyn FnMut(u64) -> u64,
    /// Added to values that link events of one host, so that hosts do not mix.
    pub(super) link_addend: u64,
    /// Which events are kept; `None`: all.
    pub(super) kept: Option<Kept<'a>>,
}

impl Renaming<'_> {
    /// Whether an event is left out; events with a count in place of a time, and pairs of clock
    /// readings, never are.
    fn leaves_out(&self, start: &LineStart, context: &PlaneContext<'_>, times: &EventTimes, bytes: usize) -> bool {
        let kept = self.kept.as_ref().filter(|_| !(times.aggregated || context.on_system_clock));
        kept.is_some_and(|kept| !kept.takes(context.index, start.old_ps, times, bytes))
    }
}

/// One input being rewritten.
pub(super) struct Rewriter<'a> {
    source: Source,
    sink: &'a mut Sink,
    map: &'a mut MapFunction<'a>,
    options: RewriteOptions<'a>,
    renaming: Option<Renaming<'a>>,
    /// Session start of the input and of the output.
    start_ps: Picoseconds,
    base_ps: Picoseconds,
    /// Tells which clock a plane is on.
    clocks: PlaneClocks,
    stats: RewriteStats,
    /// Reused for events with changed links.
    relinked: Vec<u8>,
    /// Events of lines with at least this many bytes are shared out among threads.
    shared_bytes_min: u64,
}

/// What a line needs to know about its plane.
struct PlaneContext<'a> {
    outline: &'a PlaneOutline,
    /// Number of the stat for the correction, if events are annotated.
    annotation: Option<u64>,
    /// Events are already on the system clock.
    on_system_clock: bool,
    /// The clock of stated starts.
    clock: PlaneClock,
    /// Its position in the file.
    index: usize,
}

/// Start of a line.
#[derive(Copy, Clone, Default)]
struct LineStart {
    stated_ns: i64,
    begun: bool,
    old_ps: Picoseconds,
    new_ps: Picoseconds,
}

/// A line whose events are shared out among threads.
struct SharedLine<'r, 'a, 'c> {
    rewriter: &'r mut Rewriter<'a>,
    end: u64,
    start: &'r LineStart,
    context: &'r PlaneContext<'c>,
}

impl Line for SharedLine<'_, '_, '_> {
    fn next_run(&mut self, buffer: Vec<u8>) -> Result<Option<Run>, Error> {
        self.rewriter.source.take_run(EVENTS_TAG, self.end, buffer)
    }

    #[inline]
    fn new_times(&mut self, times: &EventTimes, length: usize, at: u64) -> Result<Option<NewTimes>, Error> {
        self.rewriter.new_times(times, length, at, self.start, self.context)
    }

    fn put(&mut self, fields: &[u8], ends: &[u32]) -> Result<(), Error> {
        self.rewriter.sink.put_fields(fields, ends)
    }

    fn fault(&self, at: u64, fault: Fault) -> Error {
        self.rewriter.source.fault(at, fault)
    }
}

impl<'a> Rewriter<'a> {
    /// Opens an input and fixes the base.
    pub(super) fn open(
        input: &Path,
        outline: &Outline,
        options: RewriteOptions<'a>,
        renaming: Option<Renaming<'a>>,
        sink: &'a mut Sink,
        map: &'a mut MapFunction<'a>,
    ) -> Result<Self, Error> {
        let source = Source::open(input)?;
        let start_ps = Picoseconds::from(outline.start_ns.unwrap_or(0)) * PS_PER_NS;
        // Without a session start there is nothing to map: the epoch is decades from any knot.
        let mapped = outline.start_ns.map(|_| map(start_ps).div_euclid(PS_PER_NS));
        let base = options.base_ns.map(Picoseconds::from).or(mapped).unwrap_or(0);
        let base_ns = fit(&source, 0, base)?;
        let stated = outline.start_ns.is_some() || options.base_ns.is_some();
        let stats = RewriteStats { base_ns: stated.then_some(base_ns), ..RewriteStats::default() };
        let base_ps = base * PS_PER_NS;
        let (relinked, shared_bytes_min) = (Vec::new(), SHARED_BYTES_MIN);
        let clocks = outline.clocks();
        Ok(Self { source, sink, map, options, renaming, start_ps, base_ps, clocks, stats, relinked, shared_bytes_min })
    }

    /// Shares out lines with at least this many bytes of events.
    #[cfg(test)]
    pub(super) fn shared_from(mut self, bytes: u64) -> Self {
        self.shared_bytes_min = bytes;
        self
    }

    /// Writes the whole input.
    pub(super) fn run(mut self, outline: &Outline) -> Result<RewriteStats, Error> {
        let mut planes = outline.planes.iter().enumerate();
        while let Some(field) = outline::next_space_field(&mut self.source)? {
            match field.number {
                space::PLANES => {
                    let Some((index, known)) = planes.next() else {
                        return Err(self.source.malformed(field.at, "the file changed while it was read"));
                    };
                    self.plane(&field, index, known)?;
                }
                space::HOSTNAMES if self.renaming.is_some() => self.source.skip(field.body())?,
                _ => self.copy(&field)?,
            }
        }
        if !outline.planes.iter().any(PlaneOutline::is_snapshots) {
            let base_ns = fit(&self.source, 0, self.base_ps.div_euclid(PS_PER_NS))?;
            if let Some(plane) = snapshots::plane(self.options.snapshots, base_ns) {
                put_bytes(self.sink.out(), space::PLANES, &plane);
            }
        }
        if let Some(plane) = metadata_plane::aligned_plane(self.options.metadata).filter(|_| self.renaming.is_none()) {
            put_bytes(self.sink.out(), space::PLANES, &plane);
        }
        self.stats.bytes_read = self.source.position();
        Ok(self.stats)
    }

    /// Writes a plane.
    fn plane(&mut self, header: &Header, index: usize, outline: &PlaneOutline) -> Result<(), Error> {
        self.sink.open(header.tag(), header.value, header.value_raw());
        let annotates = self.options.annotate && outline.has_lines && !outline.is_snapshots();
        let annotation = annotates.then(|| outline.correction_stat.unwrap_or(outline.largest_stat.saturating_add(1)));
        let clock = self.clocks.of(&outline.starts);
        let context = PlaneContext { outline, annotation, on_system_clock: outline.is_snapshots(), clock, index };
        if let Some((name, id)) = self.renaming.as_ref().and_then(|renaming| renaming.planes.get(index)) {
            put_number(self.sink.out(), plane::ID, *id);
            put_bytes(self.sink.out(), plane::NAME, name.as_bytes());
        }
        while let Some(field) = outline::next_plane_field(&mut self.source, header.end())? {
            match field.number {
                plane::ID | plane::NAME if self.renaming.is_some() => self.source.skip(field.body())?,
                plane::LINES => self.line(&field, &context)?,
                plane::STATS if outline.session_stats.iter().any(Option::is_some) => {
                    self.session_stat(&field, outline)?;
                }
                _ => self.copy(&field)?,
            }
        }
        if let (Some(number), None) = (annotation, outline.correction_stat) {
            put_stat_metadata(self.sink.out(), number, CORRECTION_STAT);
        }
        self.sink.close()
    }

    /// Writes a stat of the session's plane; start and stop follow the map.
    fn session_stat(&mut self, header: &Header, outline: &PlaneOutline) -> Result<(), Error> {
        self.source.ensure(header.body())?;
        let parsed = Stat::parse(self.source.shown(header.body()));
        let parsed = parsed.map_err(|fault| self.source.fault(header.body_at(), fault))?;
        let (StatValue::Number(old), number) = (parsed.value, Some(parsed.number)) else {
            return self.copy(header);
        };
        let mapped = if number == outline.session_stats[0] {
            self.base_ps
        } else if number == outline.session_stats[1] {
            (self.map)(Picoseconds::from(old as i64) * PS_PER_NS)
        } else {
            return self.copy(header);
        };
        let new = fit(&self.source, header.at, mapped.div_euclid(PS_PER_NS))? as u64;
        self.sink.open(header.tag(), header.value, header.value_raw());
        let bytes = self.source.shown(header.body());
        replace_numbers(self.sink.out(), bytes, |field| {
            (matches!(field.number, stat::UINT64 | stat::INT64) && new != old).then_some(new)
        });
        self.source.consume(header.body() as usize);
        self.sink.close()
    }

    /// Writes a line.
    fn line(&mut self, header: &Header, context: &PlaneContext<'_>) -> Result<(), Error> {
        self.sink.open(header.tag(), header.value, header.value_raw());
        let mut start = LineStart::default();
        let (mut id, mut shared) = (None, false);
        while let Some(field) = self.source.next_header(header.end())? {
            match (field.number, field.wire) {
                (line::EVENTS, 2) => {
                    if !start.begun {
                        self.begin_line(&mut start, header, context, 0)?;
                    }
                    self.event(&field, &start, context)?;
                    // Once per line: in a line of nothing but short runs threads would cost more
                    // than they save.
                    if !shared && header.end().saturating_sub(self.source.position()) >= self.shared_bytes_min {
                        let relinking = self.relinking(context);
                        let mut line = SharedLine { rewriter: self, end: header.end(), start: &start, context };
                        runs::rewrite_in_order(&mut line, relinking, context.annotation)?;
                    }
                    shared = true;
                }
                (line::TIMESTAMP_NS, 0) => self.line_timestamp(&field, &mut start, context)?,
                (line::DURATION_PS, 0) => self.line_duration(&field, &mut start, header, context)?,
                (line::ID, 0) if self.renaming.is_some() => {
                    id = Some(self.rename_line(field.value));
                    put_number(self.sink.out(), line::ID, id.unwrap_or(field.value));
                }
                (line::DISPLAY_ID, 0) if self.renaming.is_some() => {
                    let display =
                        if field.value == 0 { 0 } else { id.unwrap_or_else(|| self.rename_line(field.value)) };
                    put_number(self.sink.out(), line::DISPLAY_ID, display);
                }
                (line::ID | line::DISPLAY_ID, 0) => self.sink.put(field.raw())?,
                (line::ID | line::TIMESTAMP_NS | line::EVENTS | line::DURATION_PS | line::DISPLAY_ID, _) => {
                    return Err(outline::mistyped(&self.source, &field, "a line"));
                }
                _ => self.copy(&field)?,
            }
        }
        if !start.begun {
            self.begin_line(&mut start, header, context, 0)?;
        }
        if self.renaming.is_some() && id.is_none() {
            let fresh = self.rename_line(0);
            put_number(self.sink.out(), line::ID, fresh);
        }
        self.sink.close()
    }

    /// An id for a line that no other line of the output has.
    fn rename_line(&mut self, id: u64) -> u64 {
        self.renaming.as_mut().map_or(id, |renaming| (renaming.line_ids)(id))
    }

    /// Writes a line's start.
    fn line_timestamp(
        &mut self,
        field: &Header,
        start: &mut LineStart,
        context: &PlaneContext<'_>,
    ) -> Result<(), Error> {
        let stated_ns = field.value as i64;
        if start.begun && stated_ns != start.stated_ns {
            // Every writer puts fields in order of their numbers; the other order would need the
            // line to be held.
            return Err(self.source.malformed(field.at, "a line has its start after its events, or twice"));
        }
        if start.begun { Ok(()) } else { self.begin_line(start, field, context, stated_ns) }
    }

    /// Determines the start of a line and writes it, unless it is zero, which is not written.
    fn begin_line(
        &mut self,
        start: &mut LineStart,
        field: &Header,
        context: &PlaneContext<'_>,
        stated_ns: i64,
    ) -> Result<(), Error> {
        let stated_ps = Picoseconds::from(stated_ns) * PS_PER_NS;
        let (old_ps, new_ns) = if !context.on_system_clock {
            let old_ps = context.clock.origin_ps + stated_ps;
            (old_ps, ((self.map)(old_ps) - self.base_ps).div_euclid(PS_PER_NS))
        } else if stated_ps >= UNIX_TIME_MIN_PS {
            (stated_ps, Picoseconds::from(stated_ns))
        } else {
            let old_ps = self.start_ps + stated_ps;
            (old_ps, (old_ps - self.base_ps).div_euclid(PS_PER_NS))
        };
        let new_ps = self.base_ps + new_ns * PS_PER_NS;
        let new_ns = fit(&self.source, field.at, new_ns)?;
        *start = LineStart { stated_ns, begun: true, old_ps, new_ps };
        self.stats.before_base += u64::from(new_ns < 0);
        let from_file = field.number == line::TIMESTAMP_NS && field.wire == 0;
        match (from_file, new_ns == stated_ns) {
            (true, true) => self.sink.out().extend_from_slice(field.raw()),
            (false, true) => {}
            _ => put_number(self.sink.out(), line::TIMESTAMP_NS, new_ns as u64),
        }
        Ok(())
    }

    /// Writes a line's duration, which counts from its start.
    fn line_duration(
        &mut self,
        field: &Header,
        start: &mut LineStart,
        header: &Header,
        context: &PlaneContext<'_>,
    ) -> Result<(), Error> {
        if !start.begun {
            self.begin_line(start, header, context, 0)?;
        }
        let old = field.value as i64;
        if old == 0 || context.on_system_clock {
            return self.sink.put(field.raw());
        }
        let new = (self.map)(start.old_ps + Picoseconds::from(old)) - start.new_ps;
        let new = fit(&self.source, field.at, new)?;
        if new == old {
            return self.sink.put(field.raw());
        }
        put_number(self.sink.out(), line::DURATION_PS, new as u64);
        Ok(())
    }

    /// Writes an event.
    #[inline]
    fn event(&mut self, header: &Header, start: &LineStart, context: &PlaneContext<'_>) -> Result<(), Error> {
        let relinking = self.relinking(context);
        let mut length = header.body() as usize;
        let mut bytes = self.source.piece(header.body())?;
        if let Some(Relinking { links, addend }) = relinking {
            self.relinked.clear();
            relink(&mut self.relinked, bytes, links, addend)
                .map_err(|fault| self.source.fault(header.body_at(), fault))?;
            bytes = &self.relinked;
            length = bytes.len();
        }
        let times = match EventTimes::parse(bytes) {
            Ok(times) => times,
            Err(fault) => return Err(self.source.fault(header.body_at(), fault)),
        };
        let new = self.new_times(&times, length, header.at, start, context)?;
        if let Some(new) = new {
            let bytes = if relinking.is_some() { &self.relinked } else { self.source.shown(header.body()) };
            put_event(self.sink.out(), header.as_raw(), (bytes, 0..length), &times, &new, context.annotation);
        }
        self.source.consume(header.body() as usize);
        if new.is_some() { self.sink.relieve() } else { Ok(()) }
    }

    /// How links of a plane's events change, if they do.
    fn relinking<'o>(&self, context: &PlaneContext<'o>) -> Option<Relinking<'o>> {
        let addend = self.renaming.as_ref().map_or(0, |renaming| renaming.link_addend);
        let links = &context.outline.linking_stats[..];
        (addend != 0 && !links.is_empty()).then_some(Relinking { links, addend })
    }

    /// Counts an event of `length` bytes, whose field is at `at`, and maps its times; `None`: it is
    /// left out.
    #[inline]
    fn new_times(
        &mut self,
        times: &EventTimes,
        length: usize,
        at: u64,
        start: &LineStart,
        context: &PlaneContext<'_>,
    ) -> Result<Option<NewTimes>, Error> {
        let Self { source, map, stats, renaming, options, .. } = self;
        let has_time = !(times.aggregated || context.on_system_clock);
        let reach = options.reach.filter(|_| !context.clock.since_boot);
        let is_odd = has_time && times.oddity(start.old_ps, reach).is_some();
        stats.left_out += u64::from(is_odd);
        if is_odd || renaming.as_ref().is_some_and(|renaming| renaming.leaves_out(start, context, times, length)) {
            return Ok(None);
        }
        stats.untimed += u64::from(times.aggregated);
        stats.events += u64::from(!times.aggregated);
        if !has_time {
            let (offset, duration) = (times.offset.value, times.duration.value);
            return Ok(Some(NewTimes { offset, duration, correction_ns: 0 }));
        }
        let old_ps = start.old_ps + Picoseconds::from(times.offset.value);
        let mapped = map(old_ps);
        let offset = mapped - start.new_ps;
        let duration = match times.duration.value {
            0 => 0,
            duration => map(old_ps + Picoseconds::from(duration)) - mapped,
        };
        let (Ok(offset), Ok(duration)) = (i64::try_from(offset), i64::try_from(duration)) else {
            return Err(source.malformed(at, "an event's mapped time does not fit in 64 bits"));
        };
        let correction_ns = match context.annotation {
            Some(_) => (mapped - old_ps + PS_PER_NS / 2).div_euclid(PS_PER_NS) as i64,
            None => 0,
        };
        Ok(Some(NewTimes { offset, duration, correction_ns }))
    }

    /// Writes a field as it is.
    fn copy(&mut self, field: &Header) -> Result<(), Error> {
        self.sink.put(field.raw())?;
        let Self { source, sink, .. } = self;
        source.for_each_chunk(field.body(), |chunk| sink.put(chunk))
    }
}

/// A number that the format can hold.
fn fit(source: &Source, at: u64, value: Picoseconds) -> Result<i64, Error> {
    i64::try_from(value).map_err(|_| source.malformed(at, "a mapped time does not fit in 64 bits"))
}
