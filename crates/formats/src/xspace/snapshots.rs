//! The plane of snapshot pairs, as it is written.
//!
//! It is the last plane of an aligned file if the caller supplies pairs and the input has none.
//! Each pair is an event at the system clock's time, with the tracer clock's time as a stat under
//! both names that readers know. The times are the node's own: readers of such planes use the pairs
//! for the step from tracer clock to system clock and the offsets for the step to the reference, so
//! mapped pairs would apply the offset twice. `facts` reads the plane back.

use super::event::put_stat_metadata;
use super::fields::{event, line, plane, stat};
use super::outline::SNAPSHOT_PLANE;
use crate::model::{ClockPair, PS_PER_NS, PairKind, Picoseconds};
use crate::protobuf::{put_bytes, put_number};

/// A plane with these pairs, its times counted from `base_ns`; `None` if none can be written.
pub(super) fn plane(pairs: &[ClockPair], base_ns: i64) -> Option<Vec<u8>> {
    let readable = |pair: &&ClockPair| pair.tracer_ps >= 0 && matches!(pair.kind, PairKind::Bracketed(_));
    let mut sorted: Vec<&ClockPair> = pairs.iter().filter(readable).collect();
    sorted.sort_by_key(|pair| pair.system_ns);
    let first_ns = sorted.first()?.system_ns;
    let mut of_line = Vec::new();
    put_number(&mut of_line, line::ID, 1);
    put_bytes(&mut of_line, line::NAME, b"snapshots");
    put_number(&mut of_line, line::TIMESTAMP_NS, first_ns.wrapping_sub(base_ns) as u64);
    for pair in sorted {
        // An event cannot be further from its line's start than 64 bits of picoseconds: 106 days.
        let offset_ps = Picoseconds::from(pair.system_ns) * PS_PER_NS - Picoseconds::from(first_ns) * PS_PER_NS;
        let Ok(offset_ps) = i64::try_from(offset_ps) else { break };
        put_bytes(&mut of_line, line::EVENTS, &one_event(pair, offset_ps));
    }
    let mut message = Vec::new();
    put_number(&mut message, plane::ID, PLANE_ID);
    put_bytes(&mut message, plane::NAME, SNAPSHOT_PLANE.as_bytes());
    put_bytes(&mut message, plane::LINES, &of_line);
    put_bytes(&mut message, plane::EVENT_METADATA, &event_metadata());
    for (name, number) in STATS.into_iter().zip(1..) {
        put_stat_metadata(&mut message, number, name);
    }
    Some(message)
}

fn one_event(pair: &ClockPair, offset_ps: i64) -> Vec<u8> {
    let mut of_event = Vec::new();
    put_number(&mut of_event, event::METADATA_ID, 1);
    put_number(&mut of_event, event::OFFSET_PS, offset_ps as u64);
    let tracer_ns = pair.tracer_ps.div_euclid(PS_PER_NS) as u64;
    let bracket_ns = match pair.kind {
        PairKind::Bracketed(width) => width.round() as u64,
        PairKind::Marker => 0,
    };
    for (value, number) in [tracer_ns, tracer_ns, bracket_ns].into_iter().zip(1..) {
        let mut of_stat = Vec::new();
        put_number(&mut of_stat, stat::METADATA_ID, number);
        put_number(&mut of_stat, stat::UINT64, value);
        put_bytes(&mut of_event, event::STATS, &of_stat);
    }
    of_event
}

/// An entry that names the events.
fn event_metadata() -> Vec<u8> {
    let (mut metadata, mut entry) = (Vec::new(), Vec::new());
    put_number(&mut metadata, 1, 1);
    put_bytes(&mut metadata, 2, b"snapshot");
    put_number(&mut entry, 1, 1);
    put_bytes(&mut entry, 2, &metadata);
    entry
}

/// The names of the stats, in order of their numbers.
const STATS: [&str; 3] = ["rocm_ns", "tracer_ns", "bracket_ns"];
/// Above the ids of devices.
const PLANE_ID: u64 = 1 << 20;
