//! Rewrites the events of a long line with several threads.
//!
//! Workers parse a run of events, the calling thread maps their times in file order, and workers
//! write the events with the new times. Only the map and the filter see one event after another;
//! they take less time than the rest. Every run thus goes to a worker twice.

use std::collections::VecDeque;
use std::ops::Range;

use super::event::{EventTimes, NewTimes, put_event, relink};
use super::sift::EVENTS_TAG;
use crate::Error;
use crate::in_order::{Stages, in_order};
use crate::protobuf::{Fault, RawHeader, Run};

/// Which stats of a plane's events link events of one host, and what is added to their values.
#[derive(Copy, Clone)]
pub(super) struct Relinking<'a> {
    pub(super) links: &'a [u64],
    pub(super) addend: u64,
}

/// A line whose events are rewritten.
pub(super) trait Line {
    /// The next run of events, in a buffer of its own or in `buffer`; `None` if the next event is
    /// not complete in the source's buffer, or another field comes next.
    fn next_run(&mut self, buffer: Vec<u8>) -> Result<Option<Run>, Error>;

    /// Counts an event of `length` bytes, whose field is at `at`, and maps its times; `None`: it is
    /// left out.
    fn new_times(&mut self, times: &EventTimes, length: usize, at: u64) -> Result<Option<NewTimes>, Error>;

    /// Writes events that end at `ends` of `fields`.
    fn put(&mut self, fields: &[u8], ends: &[u32]) -> Result<(), Error>;

    /// The error for a fault at a byte of the file.
    fn fault(&self, at: u64, fault: Fault) -> Error;
}

/// Rewrites the runs of a line.
///
/// # Errors
/// Returns the error that the earliest event causes.
pub(super) fn rewrite_in_order(
    line: &mut impl Line,
    relinking: Option<Relinking<'_>>,
    annotation: Option<u64>,
) -> Result<(), Error> {
    let (mut mapped, spare) = (VecDeque::new(), Vec::new());
    let stages = LineRuns { line, mapped: &mut mapped, spare };
    in_order(stages, |task| match task {
        Task::Parse(run, room) => Outcome::Parsed(parse(run, room, relinking)),
        Task::Write(parsed) => Outcome::Written(written(parsed, annotation)),
    })?;
    // What was mapped after the last run had been read.
    for parsed in mapped {
        let parsed = written(parsed, annotation);
        line.put(&parsed.room.out, &parsed.room.ends)?;
    }
    Ok(())
}

/// Work of a worker.
enum Task {
    Parse(Run, Room),
    Write(ParsedRun),
}

/// The result of a task.
enum Outcome {
    Parsed(ParsedRun),
    Written(ParsedRun),
}

/// A run and its events.
struct ParsedRun {
    run: Run,
    room: Room,
    /// A fault in an event behind all of these, and the position of that event in the run.
    fault: Option<(usize, Fault)>,
}

/// Buffers, which are reused.
#[derive(Default)]
struct Room {
    /// In file order.
    events: Vec<RunEvent>,
    /// Contents of all events with changed links, if links change.
    relinked: Vec<u8>,
    /// New times of all events; `None`: left out.
    times: Vec<Option<NewTimes>>,
    /// The events that are kept, with their new times.
    out: Vec<u8>,
    /// Their ends in `out`.
    ends: Vec<u32>,
}

/// An event; runs are too short for longer positions.
struct RunEvent {
    /// Position of its value in the run; its field begins where the one before ends.
    value: Range<u32>,
    /// Position of its content in the buffer of relinked events, if there is one, otherwise in the
    /// run.
    content: Range<u32>,
    times: EventTimes,
}

/// Finds the times of a run's events, with links changed.
fn parse(run: Run, mut room: Room, relinking: Option<Relinking<'_>>) -> ParsedRun {
    let Room { events, relinked, .. } = &mut room;
    events.clear();
    relinked.clear();
    let mut fault = None;
    for value in run.values(EVENTS_TAG) {
        let parsed = match relinking {
            None => EventTimes::parse(&run.bytes()[value.clone()]).map(|times| (value.clone(), times)),
            Some(Relinking { links, addend }) => {
                let from = relinked.len();
                relink(relinked, &run.bytes()[value.clone()], links, addend)
                    .and_then(|()| EventTimes::parse(&relinked[from..]))
                    .map(|times| (from..relinked.len(), times))
            }
        };
        match parsed {
            Ok((content, times)) => events.push(RunEvent { value: short(value), content: short(content), times }),
            Err(of_event) => {
                fault = Some((value.start, of_event));
                break;
            }
        }
    }
    ParsedRun { run, room, fault }
}

/// A range of a run.
fn short(range: Range<usize>) -> Range<u32> {
    range.start as u32..range.end as u32
}

fn long(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Writes the events of a run that are kept.
fn written(mut parsed: ParsedRun, annotation: Option<u64>) -> ParsedRun {
    let Room { events, relinked, times, out, ends } = &mut parsed.room;
    let bytes = parsed.run.bytes();
    if annotation.is_none() && relinked.is_empty() && overwritten(bytes, events, times, out, ends) {
        return parsed;
    }
    out.clear();
    ends.clear();
    let contents = if relinked.is_empty() { bytes } else { &relinked[..] };
    let mut at = 0;
    for (event, new) in events.iter().zip(times) {
        let value = long(&event.value);
        if let Some(new) = new {
            let (tag, length) = bytes[at..value.start].split_at(1);
            let header = RawHeader { tag, length, value: value.len() as u64 };
            put_event(out, header, (contents, long(&event.content)), &event.times, new, annotation);
            ends.push(out.len() as u32);
        }
        at = value.end;
    }
    parsed
}

/// Copies a run of events and overwrites their times; returns false if some event is left out or
/// has times of another length.
fn overwritten(
    bytes: &[u8],
    events: &[RunEvent],
    times: &[Option<NewTimes>],
    out: &mut Vec<u8>,
    ends: &mut Vec<u32>,
) -> bool {
    out.clear();
    ends.clear();
    let end = events.last().map_or(0, |event| event.value.end as usize);
    out.extend_from_slice(&bytes[..end]);
    events.iter().zip(times).all(|(event, new)| {
        ends.push(event.value.end);
        new.is_some_and(|new| event.times.overwrite(&mut out[long(&event.value)], &new))
    })
}

/// The events of a long line.
struct LineRuns<'r, L> {
    line: &'r mut L,
    /// Runs that are to be written, in file order.
    mapped: &'r mut VecDeque<ParsedRun>,
    /// Buffers of finished runs.
    spare: Vec<(Vec<u8>, Room)>,
}

impl<L: Line> Stages for LineRuns<'_, L> {
    type Given = Task;
    type Made = Outcome;
    type Error = Error;

    fn next(&mut self) -> Result<Option<Task>, Error> {
        if let Some(parsed) = self.mapped.pop_front() {
            return Ok(Some(Task::Write(parsed)));
        }
        let (buffer, room) = self.spare.pop().unwrap_or_default();
        let run = self.line.next_run(buffer)?;
        Ok(run.map(|run| Task::Parse(run, room)))
    }

    fn take(&mut self, outcome: Outcome) -> Result<(), Error> {
        match outcome {
            Outcome::Parsed(parsed) => self.map(parsed),
            Outcome::Written(ParsedRun { run, room, .. }) => {
                self.line.put(&room.out, &room.ends)?;
                self.spare.push((run.into_buffer(), room));
                Ok(())
            }
        }
    }
}

impl<L: Line> LineRuns<'_, L> {
    /// Maps the times of a run.
    fn map(&mut self, mut parsed: ParsedRun) -> Result<(), Error> {
        let Room { events, times, .. } = &mut parsed.room;
        times.clear();
        let mut at = parsed.run.position();
        for RunEvent { value, content, times: old } in events {
            times.push(self.line.new_times(old, content.len(), at)?);
            at = parsed.run.position() + u64::from(value.end);
        }
        if let Some((at, fault)) = parsed.fault {
            return Err(self.line.fault(parsed.run.position() + at as u64, fault));
        }
        self.mapped.push_back(parsed);
        Ok(())
    }
}
