//! How fast XSpace is rewritten: `cargo bench -p probe-sync-formats --bench xspace [-- OPTIONS]`.
//!
//! The input is made by repeating a real file's events, line by line, until the size is reached:
//! merged with itself it would have thousands of planes instead of long lines. Options and what is
//! printed: module `support`.

mod support;

use probe_sync_formats::XSpace;
use probe_sync_formats::protobuf::{Fields, Value, put_bytes, put_number};

use support::{Bench, Outcome};

fn main() -> Outcome<()> {
    let bench = Bench {
        format: &XSpace,
        real: "../../../shared/data/jax/b_4node_offset_drift/node1.xplane.pb",
        ending: ".xplane.pb",
        make: |real, output, size| Ok(std::fs::write(output, repeated(&std::fs::read(real)?, size as usize))?),
        script: "xspace_upb.py",
    };
    bench.run()
}

/// A file of about `size` bytes with the events of a real one, again and again.
fn repeated(bytes: &[u8], size: usize) -> Vec<u8> {
    let lines = messages(bytes, PLANES).flat_map(|plane| messages(plane, LINES));
    let once = lines.map(<[u8]>::len).sum::<usize>().max(1);
    let copies = size.div_ceil(once) as u64;
    let mut out = Vec::with_capacity(size + size / 2);
    copy(bytes, &mut out, |number, value, out| match value {
        Value::Bytes(plane) if number == PLANES && messages(plane, LINES).next().is_some() => {
            let mut longer = Vec::new();
            copy(plane, &mut longer, |number, value, out| match value {
                Value::Bytes(line) if number == LINES => {
                    put_bytes(out, LINES, &repeated_line(line, copies));
                    true
                }
                _ => false,
            });
            put_bytes(out, PLANES, &longer);
            true
        }
        _ => false,
    });
    out
}

/// A line with its events repeated, each time later by as much as the line is long.
fn repeated_line(line: &[u8], copies: u64) -> Vec<u8> {
    let offset = |event| Fields::of(event).flatten().find(|field| field.number == OFFSET_PS).map_or(0, number);
    let span = messages(line, EVENTS).map(offset).max().unwrap_or(0) + 1_000_000;
    let mut out = Vec::new();
    copy(line, &mut out, |number, _, _| number == EVENTS);
    let mut later = Vec::new();
    for repetition in 0..copies {
        for event in messages(line, EVENTS) {
            later.clear();
            copy(event, &mut later, |number, value, out| match value {
                Value::Number(offset) if number == OFFSET_PS => {
                    put_number(out, OFFSET_PS, offset + repetition * span);
                    true
                }
                _ => false,
            });
            put_bytes(&mut out, EVENTS, &later);
        }
    }
    out
}

fn number(field: probe_sync_formats::protobuf::Field<'_>) -> u64 {
    if let Value::Number(value) = field.value { value } else { 0 }
}

/// The messages in a field of a message that is known to be good.
fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::of(message).flatten().filter(move |field| field.number == number).filter_map(|field| match field.value {
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    })
}

/// Copies the fields of a message, except those that `instead` handles.
fn copy(message: &[u8], out: &mut Vec<u8>, mut instead: impl FnMut(u32, Value<'_>, &mut Vec<u8>) -> bool) {
    for field in Fields::of(message).flatten() {
        if !instead(field.number, field.value, out) {
            out.extend_from_slice(&message[field.at..field.end]);
        }
    }
}

/// `XSpace.planes`, `XPlane.lines`, `XLine.events`, `XEvent.offset_ps`.
const PLANES: u32 = 1;
const LINES: u32 = 3;
const EVENTS: u32 = 4;
const OFFSET_PS: u32 = 2;
