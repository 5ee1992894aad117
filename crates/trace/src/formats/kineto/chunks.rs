//! A Kineto trace as chunks of columns, for the writers of other formats.
//!
//! Place in the flow: one pass over the file, every time through the map. Spans (`X`) become slices, `i` moments, `s`, `t` and `f` ends of
//! flows. What metadata events say of processes and threads may stand anywhere, so tracks are declared with the last chunk. The
//! process that Kineto labels `CPU` is the trace's process; `GPU 0` and the like are devices below it, and their threads are streams.
//! Other phases are counted, not carried. What it does not do: order events, write.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::Path;

use foldhash::fast::FixedState;

use super::base::{self, BASE_KEY};
use super::decimal;
use super::document::{Document, Event, Item};
use super::scan::{self, Fault};
use crate::Error;
use crate::formats::{ChunkOptions, ChunkSink, ChunkStats, MapFunction};
use crate::model::Picoseconds;
use crate::write::{ArgRange, Chunk, Flow, FlowEnd, Process, StringId, Track, TrackId, TrackKind, Value};

/// Reads a trace.
///
/// # Errors
/// Whatever is wrong with the input, with its offset; what `sink` refuses.
pub(super) fn read_chunks(
    path: &Path,
    options: &ChunkOptions,
    map: &mut MapFunction<'_>,
    sink: &mut ChunkSink<'_>,
) -> Result<ChunkStats, Error> {
    let base_ns = base::find(path)?;
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
        let problem = "baseTimeNanoseconds stands in the file more than once, or is no whole number";
        return Err(Error::malformed(path, document.position(), problem));
    }
    reader.declare();
    sink(&reader.chunk)?;
    Ok(reader.stats)
}

/// What a file calls a process or a thread: a number or a text, as it is written.
type Token = Box<[u8]>;
/// Where in an event what is wrong.
type EventFault = (usize, &'static str);

/// What one pass keeps.
struct Reader<'a> {
    options: &'a ChunkOptions,
    base_ps: Picoseconds,
    chunk: Chunk,
    stats: ChunkStats,
    /// Numbers of the tracks of processes, by what the file calls them.
    processes: HashMap<Token, u32, FixedState>,
    /// Numbers of the tracks of threads, by process and what the file calls them.
    threads: HashMap<(u32, Token), u32, FixedState>,
    /// By track: what the file calls its process, and its thread.
    tracks: Vec<(Token, Option<Token>)>,
    /// The thread of the event before, which the next one mostly shares.
    last: Option<u32>,
    names: Names,
}

/// What metadata events say.
#[derive(Default)]
struct Names {
    /// Name and label of processes.
    processes: BTreeMap<Token, (String, String)>,
    threads: BTreeMap<(Token, Token), String>,
}

impl<'a> Reader<'a> {
    fn new(base_ns: i64, options: &'a ChunkOptions) -> Reader<'a> {
        Reader {
            options,
            base_ps: Picoseconds::from(base_ns) * 1000,
            chunk: Chunk::default(),
            stats: ChunkStats::default(),
            processes: HashMap::default(),
            threads: HashMap::default(),
            tracks: Vec::new(),
            last: None,
            names: Names::default(),
        }
    }

    fn event(&mut self, event: &Event<'_>, map: &mut MapFunction<'_>) -> Result<(), EventFault> {
        let (bytes, spans) = (event.bytes, &event.spans);
        let phase = match &bytes[spans.ph.clone()] {
            [b'"', phase, b'"'] => *phase,
            _ => 0,
        };
        if phase == b'M' {
            return self.metadata(event);
        }
        if !matches!(phase, b'X' | b'i' | b'I' | b's' | b't' | b'f') {
            *self.stats.other_phases.entry(char::from(phase)).or_default() += 1;
            return Ok(());
        }
        if spans.ts.is_empty() {
            self.stats.untimed += 1;
            return Ok(());
        }
        let ts =
            decimal::parse(&bytes[spans.ts.clone()]).ok_or((spans.ts.start, "ts is not a number of microseconds"))?;
        let start = self.base_ps + ts.ps;
        let at = nanoseconds(map(start)).ok_or((spans.ts.start, TOO_FAR))?;
        let track = self.track(event)?;
        self.stats.events += 1;
        match phase {
            b'X' => self.slice(event, track, start, at, map),
            b'i' | b'I' => self.instant(event, track, at),
            _ => {
                self.flow(event, track, at, phase);
                Ok(())
            }
        }
    }

    fn slice(
        &mut self,
        event: &Event<'_>,
        track: TrackId,
        start: Picoseconds,
        at: i64,
        map: &mut MapFunction<'_>,
    ) -> Result<(), EventFault> {
        let (bytes, span) = (event.bytes, &event.spans.dur);
        let end = if span.is_empty() {
            at
        } else {
            let dur =
                decimal::parse(&bytes[span.clone()]).ok_or((span.start, "dur is not a number of microseconds"))?;
            if dur.ps < 0 {
                return Err((span.start, "the event ends before it begins"));
            }
            nanoseconds(map(start + dur.ps)).ok_or((span.start, TOO_FAR))?
        };
        let (args, name, category) =
            (self.args(event)?, self.text(bytes, &event.spans.name), self.text(bytes, &event.spans.cat));
        let slices = &mut self.chunk.slices;
        slices.track.push(track);
        slices.start_ns.push(at);
        slices.end_ns.push(end);
        slices.flow.push(Flow::default());
        slices.args.push(args);
        slices.name.push(name);
        slices.category.push(category);
        Ok(())
    }

    fn instant(&mut self, event: &Event<'_>, track: TrackId, at: i64) -> Result<(), EventFault> {
        let bytes = event.bytes;
        let (args, name, category) =
            (self.args(event)?, self.text(bytes, &event.spans.name), self.text(bytes, &event.spans.cat));
        let instants = &mut self.chunk.instants;
        instants.track.push(track);
        instants.time_ns.push(at);
        instants.args.push(args);
        instants.name.push(name);
        instants.category.push(category);
        Ok(())
    }

    fn flow(&mut self, event: &Event<'_>, track: TrackId, at: i64, phase: u8) {
        let (bytes, spans) = (event.bytes, &event.spans);
        // The id is of this file: of another rank's the same number is another flow.
        let what = (self.options.part, &bytes[spans.cat.clone()], &bytes[spans.name.clone()], &bytes[spans.id.clone()]);
        let id = FixedState::with_seed(0).hash_one(what).max(1);
        let end = match phase {
            b's' => FlowEnd::Out,
            b't' => FlowEnd::Step,
            _ => FlowEnd::In,
        };
        let flows = &mut self.chunk.flows;
        flows.track.push(track);
        flows.time_ns.push(at);
        flows.flow.push(Flow { id, end });
    }

    fn text(&mut self, bytes: &[u8], span: &Range<usize>) -> StringId {
        self.chunk.strings.intern(&text(&bytes[span.clone()]))
    }

    /// The number of the event's track.
    fn track(&mut self, event: &Event<'_>) -> Result<TrackId, EventFault> {
        let (bytes, spans) = (event.bytes, &event.spans);
        let (pid, tid) = (&bytes[spans.pid.clone()], &bytes[spans.tid.clone()]);
        if let Some(last) = self.last {
            let (last_pid, last_tid) = &self.tracks[last as usize];
            if **last_pid == *pid && last_tid.as_deref() == Some(tid) {
                return Ok(TrackId(last));
            }
        }
        let process = match self.processes.get(pid) {
            Some(process) => *process,
            None => {
                let number = self.add(event, (pid.into(), None))?;
                self.processes.insert(pid.into(), number);
                number
            }
        };
        let key = (process, tid.into());
        let thread = match self.threads.get(&key) {
            Some(thread) => *thread,
            None => {
                let number = self.add(event, (pid.into(), Some(tid.into())))?;
                self.threads.insert(key, number);
                number
            }
        };
        self.last = Some(thread);
        Ok(TrackId(thread))
    }

    fn add(&mut self, event: &Event<'_>, called: (Token, Option<Token>)) -> Result<u32, EventFault> {
        if self.tracks.len() >= TRACKS_MAX {
            return Err((event.spans.tid.start, "the file has more than a million processes and threads"));
        }
        self.tracks.push(called);
        Ok(self.tracks.len() as u32 - 1)
    }

    fn args(&mut self, event: &Event<'_>) -> Result<ArgRange, EventFault> {
        let (bytes, span) = (event.bytes, &event.spans.args);
        let first = self.chunk.args.key.len() as u32;
        if !self.options.args || bytes[span.clone()].first() != Some(&b'{') {
            return Ok(ArgRange { first, count: 0 });
        }
        let Chunk { strings, args, .. } = &mut self.chunk;
        let walked = scan::object(&bytes[..span.end], span.start, |key, at| {
            let raw = &bytes[at];
            let value = match raw.first() {
                Some(b'"') => Value::Text(strings.push(&text(raw))),
                Some(b'{' | b'[' | b'n') => Value::Json(strings.push(&String::from_utf8_lossy(raw))),
                Some(b't') => Value::Boolean(true),
                Some(b'f') => Value::Boolean(false),
                _ => number(raw).unwrap_or_else(|| Value::Text(strings.push(&String::from_utf8_lossy(raw)))),
            };
            args.key.push(strings.intern(&String::from_utf8_lossy(key)));
            args.value.push(value);
            Ok(())
        });
        walked.map_err(|fault: Fault| (fault.at, fault.problem))?;
        Ok(ArgRange { first, count: args.key.len() as u32 - first })
    }

    fn metadata(&mut self, event: &Event<'_>) -> Result<(), EventFault> {
        let (bytes, spans) = (event.bytes, &event.spans);
        let (pid, tid) = (&bytes[spans.pid.clone()], &bytes[spans.tid.clone()]);
        if bytes[spans.args.clone()].first() != Some(&b'{') || self.names.threads.len() >= TRACKS_MAX {
            return Ok(());
        }
        let what = &bytes[spans.name.clone()];
        let names = &mut self.names;
        let walked = scan::object(&bytes[..spans.args.end], spans.args.start, |key, at| {
            let said = || text(&bytes[at.clone()]).into_owned();
            match (what, key) {
                (b"\"process_name\"", b"name") => names.processes.entry(pid.into()).or_default().0 = said(),
                (b"\"process_labels\"", b"labels") => names.processes.entry(pid.into()).or_default().1 = said(),
                (b"\"thread_name\"", b"name") => {
                    names.threads.insert((pid.into(), tid.into()), said());
                }
                _ => {}
            }
            Ok(())
        });
        walked.map(|_| ()).map_err(|fault: Fault| (fault.at, fault.problem))
    }

    /// Declares the tracks of all events.
    fn declare(&mut self) {
        let label = |pid: &[u8]| self.names.processes.get(pid).map_or("", |(_, label)| label.as_str());
        let of_cpu = self.names.processes.iter().find(|(pid, (_, label))| label == "CPU" && integer(pid).is_some());
        let main = of_cpu.map(|(pid, _)| pid.clone());
        let mut tracks: Vec<Track> = Vec::with_capacity(self.tracks.len() + 1);
        // The process may have no event of its own.
        let added = self.tracks.len() as u32;
        let main_id = main.as_ref().map(|pid| TrackId(self.processes.get(pid).copied().unwrap_or(added)));
        for (pid, tid) in &self.tracks {
            let is_main = main.as_ref() == Some(pid);
            let below_main =
                main.is_some() && !is_main && (integer(pid).is_none() || !matches!(label(pid), "" | "CPU"));
            let Some(tid) = tid else {
                let parent = main_id.filter(|_| below_main);
                tracks.push(if below_main { self.device(pid, parent) } else { self.process(pid) });
                continue;
            };
            let parent = self.processes.get(pid).map(|process| TrackId(*process));
            let name = self.names.threads.get(&(pid.clone(), tid.clone())).cloned();
            let name =
                name.unwrap_or_else(|| format!("{} {}", if below_main { "stream" } else { "thread" }, text(tid)));
            let kind = match integer(tid) {
                Some(tid) if !below_main => TrackKind::Thread { tid },
                _ => TrackKind::Stream,
            };
            tracks.push(Track { parent, kind, name });
        }
        if let Some(pid) = main.filter(|_| main_id == Some(TrackId(added))) {
            tracks.push(self.process(&pid));
        }
        self.chunk.tracks = tracks;
    }

    fn process(&self, pid: &[u8]) -> Track {
        let (name, label) = self.names.processes.get(pid).cloned().unwrap_or_default();
        let mut names = vec![name];
        names.extend(integer(pid).is_none().then(|| text(pid).into_owned()));
        names.extend((label != "CPU").then_some(label));
        names.retain(|part| !part.is_empty());
        names.dedup();
        let (host, rank) = (self.options.host.clone(), self.options.rank);
        let process = Process { pid: integer(pid).unwrap_or(0), host, rank, guid: String::new() };
        Track { parent: None, kind: TrackKind::Process(process), name: names.join(" ") }
    }

    fn device(&self, pid: &[u8], parent: Option<TrackId>) -> Track {
        let (name, label) = self.names.processes.get(pid).cloned().unwrap_or_default();
        let called = [label, name, text(pid).into_owned()].into_iter().find(|part| !part.is_empty());
        Track { parent, kind: TrackKind::Agent, name: called.unwrap_or_else(|| "other".into()) }
    }
}

/// The nearest nanosecond.
#[inline]
fn nanoseconds(ps: Picoseconds) -> Option<i64> {
    i64::try_from(decimal::round_to_nanoseconds(ps) / 1000).ok()
}

/// A whole number, with or without quotes.
fn integer(token: &[u8]) -> Option<i64> {
    text(token).parse().ok()
}

/// A JSON number.
fn number(raw: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(raw).ok()?;
    let whole = text.parse().ok().map(Value::Integer);
    whole.or_else(|| text.parse().ok().filter(|value: &f64| value.is_finite()).map(Value::Float))
}

/// What a JSON string says, or any other value as it is written; what is no UTF-8 is replaced.
fn text(raw: &[u8]) -> Cow<'_, str> {
    let bare = match raw {
        [b'"', inner @ .., b'"'] => inner,
        other => other,
    };
    match scan::key(bare) {
        Some(Cow::Borrowed(plain)) => String::from_utf8_lossy(plain),
        Some(Cow::Owned(decoded)) => Cow::Owned(String::from_utf8_lossy(&decoded).into_owned()),
        None => String::from_utf8_lossy(bare),
    }
}

/// Said of a time that no output can hold.
const TOO_FAR: &str = "the time does not fit 64 bits of nanoseconds";
/// Processes and threads of one file.
const TRACKS_MAX: usize = 1_000_000;
