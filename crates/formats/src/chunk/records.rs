//! Events of any table as records in one run of bytes, as the sorter keeps them and writes them to
//! disk.
//!
//! A record is self-contained and includes its texts. Layout: kind, track, start, end, flow, name,
//! category, arguments; integers are varints, and times take eight bytes. It does not validate its
//! own data when reading it back.

use super::order::Row;
use crate::chunk::{ArgRange, Args, Chunk, Flow, FlowEnd, TrackId, Value};
use crate::chunk::{StringId, Strings};
use crate::protobuf::{put_varint, varint};

/// Sort key of records: time; ends of flows first; then longer events first, so that parents
/// precede their children.
pub(super) type Key = (i64, std::cmp::Reverse<i64>);

/// The key of an event.
pub(super) fn key(chunk: &Chunk, row: Row) -> Key {
    let (start, end) = span(chunk, row);
    (start, std::cmp::Reverse(if matches!(row, Row::Flow(_)) { i64::MAX } else { end }))
}

/// Start and end of an event.
pub(super) fn span(chunk: &Chunk, row: Row) -> (i64, i64) {
    match row {
        Row::Slice(row) => (chunk.slices.start_ns[row], chunk.slices.end_ns[row]),
        Row::Instant(row) => (chunk.instants.time_ns[row], chunk.instants.time_ns[row]),
        Row::Counter(row) => (chunk.counters.time_ns[row], chunk.counters.time_ns[row]),
        Row::Flow(row) => (chunk.flows.time_ns[row], chunk.flows.time_ns[row]),
    }
}

/// Appends an event.
pub(super) fn put(out: &mut Vec<u8>, chunk: &Chunk, row: Row) {
    let strings = &chunk.strings;
    match row {
        Row::Slice(row) => {
            let slices = &chunk.slices;
            head(out, SLICE, slices.track[row]);
            out.extend_from_slice(&slices.start_ns[row].to_le_bytes());
            put_varint(out, slices.end_ns[row].wrapping_sub(slices.start_ns[row]) as u64);
            put_flow(out, slices.flow[row]);
            put_text(out, strings.text(slices.name[row]));
            put_text(out, strings.text(slices.category[row]));
            put_args(out, chunk, slices.args[row]);
        }
        Row::Instant(row) => {
            let instants = &chunk.instants;
            head(out, INSTANT, instants.track[row]);
            out.extend_from_slice(&instants.time_ns[row].to_le_bytes());
            put_text(out, strings.text(instants.name[row]));
            put_text(out, strings.text(instants.category[row]));
            put_args(out, chunk, instants.args[row]);
        }
        Row::Counter(row) => {
            head(out, COUNTER, chunk.counters.track[row]);
            out.extend_from_slice(&chunk.counters.time_ns[row].to_le_bytes());
            out.extend_from_slice(&chunk.counters.value[row].to_le_bytes());
        }
        Row::Flow(row) => {
            head(out, FLOW, chunk.flows.track[row]);
            out.extend_from_slice(&chunk.flows.time_ns[row].to_le_bytes());
            put_flow(out, chunk.flows.flow[row]);
        }
    }
}

/// Appends the event of a record to a chunk, its track number increased by `tracks`.
pub(super) fn take(record: &[u8], chunk: &mut Chunk, tracks: u32) {
    let mut reader = Reader(record);
    let kind = reader.byte();
    let track = TrackId(reader.number() as u32 + tracks);
    let start = i64::from_le_bytes(reader.fixed());
    let Chunk { strings, slices, instants, counters, flows, args, .. } = chunk;
    match kind {
        SLICE => {
            let length = reader.number() as i64;
            slices.track.push(track);
            slices.start_ns.push(start);
            slices.end_ns.push(start.wrapping_add(length));
            slices.flow.push(reader.flow());
            slices.name.push(strings.intern(reader.text()));
            slices.category.push(strings.intern(reader.text()));
            slices.args.push(reader.args(strings, args));
        }
        INSTANT => {
            instants.track.push(track);
            instants.time_ns.push(start);
            instants.name.push(strings.intern(reader.text()));
            instants.category.push(strings.intern(reader.text()));
            instants.args.push(reader.args(strings, args));
        }
        COUNTER => {
            counters.track.push(track);
            counters.time_ns.push(start);
            counters.value.push(f64::from_le_bytes(reader.fixed()));
        }
        _ => {
            flows.track.push(track);
            flows.time_ns.push(start);
            flows.flow.push(reader.flow());
        }
    }
}

fn head(out: &mut Vec<u8>, kind: u8, track: TrackId) {
    out.push(kind);
    put_varint(out, u64::from(track.0));
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_flow(out: &mut Vec<u8>, flow: Flow) {
    if flow.id == 0 {
        out.push(NO_FLOW);
        return;
    }
    out.push(match flow.end {
        FlowEnd::Out => FLOW_OUT,
        FlowEnd::Step => FLOW_STEP,
        FlowEnd::In => FLOW_IN,
    });
    out.extend_from_slice(&flow.id.to_le_bytes());
}

fn put_args(out: &mut Vec<u8>, chunk: &Chunk, range: ArgRange) {
    put_varint(out, u64::from(range.count));
    for index in range.first as usize..(range.first + range.count) as usize {
        put_text(out, chunk.strings.text(chunk.args.key[index]));
        let (tag, bits, text) = match chunk.args.value[index] {
            Value::Integer(value) => (INTEGER, value as u64, None),
            Value::Unsigned(value) => (UNSIGNED, value, None),
            Value::Float(value) => (FLOAT, value.to_bits(), None),
            Value::Boolean(value) => (BOOLEAN, u64::from(value), None),
            Value::Text(id) => (TEXT, 0, Some(id)),
            Value::Json(id) => (JSON, 0, Some(id)),
        };
        out.push(tag);
        match text {
            Some(id) => put_text(out, chunk.strings.text(id)),
            None => put_varint(out, bits),
        }
    }
}

/// Reads what [`put`] wrote: anything else is a broken invariant of this module, not bad input.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.bytes(1)[0]
    }

    fn fixed(&mut self) -> [u8; 8] {
        self.bytes(8).try_into().expect("eight bytes were taken")
    }

    fn number(&mut self) -> u64 {
        let (value, width) = varint(self.0).expect("a record ends after its last number");
        self.bytes(width);
        value
    }

    fn text(&mut self) -> &'a str {
        let length = self.number() as usize;
        std::str::from_utf8(self.bytes(length)).expect("it was a str when it was put there")
    }

    fn flow(&mut self) -> Flow {
        match self.byte() {
            NO_FLOW => Flow::default(),
            end => {
                let end = match end {
                    FLOW_OUT => FlowEnd::Out,
                    FLOW_STEP => FlowEnd::Step,
                    _ => FlowEnd::In,
                };
                Flow { id: u64::from_le_bytes(self.fixed()), end }
            }
        }
    }

    fn args(&mut self, strings: &mut Strings, args: &mut Args) -> ArgRange {
        let first = args.key.len() as u32;
        let count = self.number() as u32;
        for _ in 0..count {
            args.key.push(strings.intern(self.text()));
            args.value.push(self.value(strings));
        }
        ArgRange { first, count }
    }

    fn value(&mut self, strings: &mut Strings) -> Value {
        let mut text = |reader: &mut Self| -> StringId { strings.push(reader.text()) };
        match self.byte() {
            INTEGER => Value::Integer(self.number() as i64),
            UNSIGNED => Value::Unsigned(self.number()),
            FLOAT => Value::Float(f64::from_bits(self.number())),
            BOOLEAN => Value::Boolean(self.number() != 0),
            TEXT => Value::Text(text(self)),
            _ => Value::Json(text(self)),
        }
    }
}

const SLICE: u8 = 0;
const INSTANT: u8 = 1;
const COUNTER: u8 = 2;
const FLOW: u8 = 3;
const NO_FLOW: u8 = 0;
const FLOW_OUT: u8 = 1;
const FLOW_IN: u8 = 2;
const FLOW_STEP: u8 = 3;
const INTEGER: u8 = 0;
const FLOAT: u8 = 1;
const BOOLEAN: u8 = 2;
const TEXT: u8 = 3;
const JSON: u8 = 4;
const UNSIGNED: u8 = 5;
