//! A single event: the position of its times, and how it is written with other times, links and
//! stats.
//!
//! An event is one message in memory, at most a few kilobytes.

use std::ops::Range;

use super::fields::{event, plane, stat};
use super::stat::{Stat, StatValue};
use crate::model::{Oddity, Picoseconds, Reach};
use crate::protobuf::{
    self, Fault, Field, Fields, RawHeader, Value, overwrite_varint, put_bytes, put_number, put_varint, varint_width,
};

/// A number in an event and its position; `end` is 0 if it is absent.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Placed {
    /// The number.
    pub(super) value: i64,
    value_at: u32,
    end: u32,
}

impl Placed {
    /// Events are no longer than `PIECE_BYTES_MAX`, so positions fit.
    #[inline]
    fn new(value: u64, value_at: usize, end: usize) -> Placed {
        Placed { value: value as i64, value_at: value_at as u32, end: end as u32 }
    }
}

/// An event's times.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct EventTimes {
    /// Offset from the line's start, ps.
    pub(super) offset: Placed,
    /// Duration, ps.
    pub(super) duration: Placed,
    /// It has a count instead of an offset.
    pub(super) aggregated: bool,
    /// The number of its name.
    pub(super) metadata: u64,
}

impl EventTimes {
    /// Start and end, on a line that begins at `line_ps`.
    #[inline]
    pub(super) fn span_ps(&self, line_ps: Picoseconds) -> (Picoseconds, Picoseconds) {
        let start_ps = line_ps + Picoseconds::from(self.offset.value);
        (start_ps, start_ps + Picoseconds::from(self.duration.value))
    }

    /// Overwrites the times in an event's bytes; returns false if the new ones do not fit there.
    #[inline]
    pub(super) fn overwrite(&self, bytes: &mut [u8], new: &NewTimes) -> bool {
        if self.offset.end == 0 && new.offset != 0 {
            return false;
        }
        [(self.offset, new.offset), (self.duration, new.duration)].into_iter().all(|(old, new)| {
            let place = old.value_at as usize..old.end as usize;
            if place.is_empty() || old.value == new {
                return true;
            }
            let fits = varint_width(new as u64) == place.len();
            if fits {
                overwrite_varint(&mut bytes[place], new as u64);
            }
            fits
        })
    }

    /// What is odd about the times of an event on such a line.
    #[inline]
    pub(super) fn oddity(&self, line_ps: Picoseconds, reach: Option<Reach>) -> Option<Oddity> {
        if self.duration.value < 0 {
            return Some(Oddity::Backwards);
        }
        let (start_ps, end_ps) = self.span_ps(line_ps);
        reach.filter(|reach| !reach.holds(start_ps, end_ps)).map(|_| Oddity::Away)
    }

    /// Finds the times of an event; of repeated fields the last counts, as everywhere in protobuf.
    #[inline]
    pub(super) fn parse(bytes: &[u8]) -> Result<EventTimes, Fault> {
        match EventTimes::parse_usual(bytes) {
            Some(times) => Ok(times),
            None => EventTimes::parse_any(bytes),
        }
    }

    /// The events that all profilers write: nothing but name, offset, duration and stats shorter
    /// than 128 bytes. About twice as fast as the general way, which decides whatever this one does
    /// not.
    #[inline]
    fn parse_usual(bytes: &[u8]) -> Option<EventTimes> {
        let mut times = EventTimes::default();
        let mut at = 0;
        while let [tag, rest @ ..] = bytes.get(at..)? {
            let value_at = at + 1;
            if *tag == STATS_TAG {
                let length = *rest.first().filter(|&&length| length < 0x80)?;
                at = value_at + 1 + usize::from(length);
                continue;
            }
            let (value, width) = protobuf::varint(rest)?;
            at = value_at + width;
            let placed = Placed::new(value, value_at, at);
            match *tag {
                METADATA_TAG => times.metadata = value,
                OFFSET_TAG => times.offset = placed,
                DURATION_TAG => times.duration = placed,
                _ => return None,
            }
        }
        Some(times)
    }

    /// The times of any event.
    fn parse_any(bytes: &[u8]) -> Result<EventTimes, Fault> {
        let mut times = EventTimes::default();
        for field in Fields::of(bytes) {
            let field = field?;
            match (field.number, field.value) {
                (event::STATS, Value::Bytes(_)) => {}
                (event::METADATA_ID, Value::Number(value)) => times.metadata = value,
                (event::OFFSET_PS, Value::Number(value)) => {
                    times.offset = Placed::new(value, field.value_at, field.end);
                    times.aggregated = false;
                }
                (event::DURATION_PS, Value::Number(value)) => {
                    times.duration = Placed::new(value, field.value_at, field.end);
                }
                (event::OCCURRENCES, Value::Number(_)) => times.aggregated = true,
                (event::METADATA_ID..=event::OCCURRENCES, _) => {
                    return Err(Fault {
                        at: field.at,
                        problem: format!("field {} of an event has the wrong type", field.number),
                    });
                }
                _ => {}
            }
        }
        Ok(times)
    }
}

/// New times of an event.
#[derive(Copy, Clone, Debug)]
pub(super) struct NewTimes {
    /// Offset from the line's new start, ps.
    pub(super) offset: i64,
    /// Duration, ps.
    pub(super) duration: i64,
    /// How far the start was moved, ns; 0 if the event is not mapped.
    pub(super) correction_ns: i64,
}

/// Writes the event at `content` of `bytes` with other times; numbers that stayed keep their bytes.
/// With an `annotation`, the number of the stat for the correction, appends that too.
#[inline]
pub(super) fn put_event(
    out: &mut Vec<u8>,
    header: RawHeader<'_>,
    (bytes, content): (&[u8], Range<usize>),
    times: &EventTimes,
    new: &NewTimes,
    annotation: Option<u64>,
) {
    let mut patches = [(times.offset, new.offset), (times.duration, new.duration)];
    if patches[0].0.value_at > patches[1].0.value_at {
        patches.swap(0, 1);
    }
    let correction = annotation.filter(|_| !times.aggregated).map(|number| (number, new.correction_ns));
    let states_offset = times.offset.end == 0 && new.offset != 0;
    let mut length = content.len();
    for (old, new) in &patches {
        if old.end > 0 && old.value != *new {
            length = length + varint_width(*new as u64) - (old.end - old.value_at) as usize;
        }
    }
    if states_offset {
        length += 1 + varint_width(new.offset as u64);
    }
    if let Some((number, correction_ns)) = correction {
        length += 2 + correction_width(number, correction_ns);
    }
    put_piece(out, header.tag, 0..header.tag.len());
    if length as u64 == header.value {
        put_piece(out, header.length, 0..header.length.len());
    } else {
        put_varint(out, length as u64);
    }
    let mut done = content.start;
    for (old, new) in &patches {
        if old.end > 0 && old.value != *new {
            put_piece(out, bytes, done..content.start + old.value_at as usize);
            put_varint(out, *new as u64);
            done = content.start + old.end as usize;
        }
    }
    put_piece(out, bytes, done..content.end);
    if states_offset {
        put_number(out, event::OFFSET_PS, new.offset as u64);
    }
    if let Some((number, correction_ns)) = correction {
        put_correction(out, number, correction_ns);
    }
}

/// Appends a range of `bytes`. A single byte, such as a tag, is pushed, and a short range is copied
/// at a fixed size and cut: a few moves instead of a call.
#[inline(always)]
fn put_piece(out: &mut Vec<u8>, bytes: &[u8], range: Range<usize>) {
    if range.len() == 1 {
        out.push(bytes[range.start]);
        return;
    }
    match bytes[range.start..].first_chunk::<SHORT_BYTES>() {
        Some(piece) if range.len() <= SHORT_BYTES => {
            let end = out.len() + range.len();
            out.extend_from_slice(piece);
            out.truncate(end);
        }
        _ => out.extend_from_slice(&bytes[range]),
    }
}

/// Copies a message into `out`, replacing the numbers for which `replace` returns a value.
pub(super) fn replace_numbers(out: &mut Vec<u8>, bytes: &[u8], mut replace: impl FnMut(&Field<'_>) -> Option<u64>) {
    for field in Fields::of(bytes).map_while(Result::ok) {
        match replace(&field) {
            Some(value) => put_number(out, field.number, value),
            None => out.extend_from_slice(&bytes[field.at..field.end]),
        }
    }
}

/// Appends an event to `out` with `addend` added to the values of linking stats.
pub(super) fn relink(out: &mut Vec<u8>, bytes: &[u8], links: &[u64], addend: u64) -> Result<(), Fault> {
    for field in Fields::of(bytes) {
        let field = field?;
        let linked = match (field.number, field.value) {
            (event::STATS, Value::Bytes(inner)) => {
                let stat = Stat::parse(inner).map_err(|fault| fault.within(field.value_at))?;
                match stat.value {
                    StatValue::Number(value) if value != 0 && links.contains(&stat.number) => Some((inner, value)),
                    _ => None,
                }
            }
            _ => None,
        };
        let Some((inner, value)) = linked else {
            out.extend_from_slice(&bytes[field.at..field.end]);
            continue;
        };
        let mut changed = Vec::with_capacity(inner.len() + 10);
        let shifted = value.wrapping_add(addend);
        replace_numbers(&mut changed, inner, |field| {
            matches!(field.number, stat::UINT64 | stat::INT64).then_some(shifted)
        });
        put_bytes(out, event::STATS, &changed);
    }
    Ok(())
}

/// Length of the stat with an event's correction.
fn correction_width(number: u64, correction_ns: i64) -> usize {
    2 + varint_width(number) + varint_width(correction_ns as u64)
}

/// Appends the stat with an event's correction.
fn put_correction(out: &mut Vec<u8>, number: u64, correction_ns: i64) {
    put_varint(out, u64::from(event::STATS) << 3 | 2);
    put_varint(out, correction_width(number, correction_ns) as u64);
    put_number(out, stat::METADATA_ID, number);
    put_number(out, stat::INT64, correction_ns as u64);
}

/// Appends an entry that names a stat.
pub(super) fn put_stat_metadata(out: &mut Vec<u8>, number: u64, name: &str) {
    let (mut metadata, mut entry) = (Vec::new(), Vec::new());
    put_number(&mut metadata, 1, number);
    put_bytes(&mut metadata, 2, name.as_bytes());
    put_number(&mut entry, 1, number);
    put_bytes(&mut entry, 2, &metadata);
    put_bytes(out, plane::STAT_METADATA, &entry);
}

/// Most bytes that are copied without a call.
const SHORT_BYTES: usize = 16;
/// Tags of an event's usual fields, each one byte.
const METADATA_TAG: u8 = (event::METADATA_ID << 3) as u8;
const OFFSET_TAG: u8 = (event::OFFSET_PS << 3) as u8;
const DURATION_TAG: u8 = (event::DURATION_PS << 3) as u8;
const STATS_TAG: u8 = (event::STATS << 3 | 2) as u8;
