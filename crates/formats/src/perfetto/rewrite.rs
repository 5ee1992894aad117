//! Sends every time of a trace through a map, packet by packet; all other bytes are copied.
//!
//! A packet keeps its clock: `clocks` moves the readings of snapshots, and states each new time as
//! the packet states the old one, in full or counted from the packet before. The times that packets
//! contain move too: those of the kernel's events (`kernel`), the ends of what a GPU did, and the
//! times of a few packets about the system. Whatever comes out equal to what went in is copied with
//! its own bytes, so that the identity gives the same file. An event whose time cannot be believed
//! or related to the trace's clock keeps it. Packets of other kinds that state times of their own
//! keep those; they are counted.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::ZlibEncoder;

use super::attributes::attributes;
use super::clocks::{BOOTTIME, Clocks, REALTIME};
use super::edits::Edits;
use super::fields as field;
use super::kernel::Kernel;
use super::packet::{self, NESTED, Packet, Snapshot, bytes, inside};
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, Reach, nearest_ns};
use crate::output::Sink;
use crate::protobuf::{Fault, Field, Fields, Source, Value, put_bytes, put_number, put_varint, varint_width};
use crate::{MapFunction, RewriteOptions, RewriteStats};

/// Writes `input` with all its times mapped to `output`, which appears when it is complete.
///
/// # Errors
/// A file cannot be read or written, the input is no Perfetto trace, or a time would be before the
/// zero of its clock; with the byte's offset.
pub(super) fn rewrite(
    input: &Path,
    output: &Path,
    options: &RewriteOptions<'_>,
    map: &mut MapFunction<'_>,
) -> Result<RewriteStats, Error> {
    let first = pass(input, output, options, map, Clocks::default())?;
    let (mut stats, sink) = if first.0.rounded == 0 {
        first
    } else {
        // A clock of a sequence with a coarse unit stood still at first and moved later.
        drop(first);
        pass(input, output, options, map, Clocks::writing_ns())?
    };
    stats.bytes_written = sink.finish()?;
    Ok(stats)
}

/// Writes an output that is not visible yet. If the unit of a clock is too coarse for its new times,
/// these are rounded, and the statistics say so.
fn pass(
    input: &Path,
    output: &Path,
    options: &RewriteOptions<'_>,
    map: &mut MapFunction<'_>,
    clocks: Clocks,
) -> Result<(RewriteStats, Sink), Error> {
    let mut source = Source::open(input)?;
    let mut sink = Sink::create(output)?;
    if !options.metadata.is_empty() {
        put_bytes(sink.out(), field::TRACE_PACKET, &attributes(options.metadata));
    }
    let mut rewriter = Rewriter {
        clocks,
        kernel: Kernel::default(),
        map,
        reach: options.reach,
        annotate: options.annotate,
        stats: RewriteStats::default(),
        kept: BTreeMap::new(),
    };
    while let Some(header) = packet::next(&mut source)? {
        let message = source.shown(header.value);
        let out = sink.out();
        match rewriter.packet(message, out) {
            Ok(true) => {}
            Ok(false) => {
                out.extend_from_slice(header.raw());
                out.extend_from_slice(message);
            }
            Err(fault) => return Err(source.fault(header.body_at(), fault)),
        }
        sink.relieve()?;
        source.consume(header.value as usize);
    }
    let mut stats = rewriter.finish();
    stats.bytes_read = source.position();
    Ok((stats, sink))
}

/// The time of a packet on the wanted clock before and after, ns.
type Move = (i64, i64);

/// State of one pass.
struct Rewriter<'a, 'b> {
    clocks: Clocks,
    kernel: Kernel,
    map: &'a mut MapFunction<'b>,
    reach: Option<Reach>,
    annotate: bool,
    stats: RewriteStats,
    /// By field of the packet: how many state times that stay.
    kept: BTreeMap<u32, u64>,
}

impl Rewriter<'_, '_> {
    /// Appends the changed packet with its tag; returns false if nothing changes.
    fn packet(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<bool, Fault> {
        let packet = Packet::parse(message)?;
        match packet.deflated {
            Some(packed) => self.packed(message, packed, out),
            None => self.changed(message, &packet, out),
        }
    }

    /// Does so for a packet that contains no others.
    fn changed(&mut self, message: &[u8], packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<bool, Fault> {
        self.clocks.tell(packet).map_err(Fault::new)?;
        let mut edits = Edits::default();
        // Before the packet's own time, which the snapshot's clocks may state.
        let readings = packet.snapshot.as_ref().map(|snapshot| self.readings(packet.sequence, snapshot)).transpose()?;
        let (time, moved) = self.time(packet)?;
        let is_plain = packet.snapshot.is_none()
            && packet.kernel_events.is_none()
            && packet.gpu_stage.is_none()
            && !packet.has_other_times
            && !(self.annotate && packet.event.is_some());
        if is_plain {
            let Some(time) = time else { return Ok(false) };
            let (head, tail) = (&message[..packet.time_at.start], &message[packet.time_at.end..]);
            put_varint(out, u64::from(field::TRACE_PACKET) << 3 | 2);
            put_varint(out, (head.len() + varint_width(time) + tail.len()) as u64);
            out.extend_from_slice(head);
            put_varint(out, time);
            out.extend_from_slice(tail);
            return Ok(true);
        }
        for found in Fields::of(message) {
            let found = found?;
            match (found.number, time) {
                (field::PACKET_CLOCK_SNAPSHOT, _) if found.at == packet.snapshot_at => {
                    put_readings(&found, readings.as_deref(), &mut edits)?;
                }
                (field::PACKET_TIME, Some(time)) if found.value_at == packet.time_at.start => {
                    edits.number(&found, time);
                }
                _ => self.field(&found, moved, &mut edits)?,
            }
        }
        let changed = edits.apply(message);
        changed.iter().for_each(|new| put_bytes(out, field::TRACE_PACKET, new));
        Ok(changed.is_some())
    }

    /// Changes the packets that are packed into one.
    fn packed(&mut self, message: &[u8], packed: &[u8], out: &mut Vec<u8>) -> Result<bool, Fault> {
        let (mut all, mut changed) = (Vec::new(), false);
        packet::each_packed(packed, &mut |inner| {
            let packet = Packet::parse(inner)?;
            if packet.deflated.is_some() {
                return Err(Fault::new(NESTED));
            }
            match self.changed(inner, &packet, &mut all)? {
                true => changed = true,
                false => put_bytes(&mut all, field::TRACE_PACKET, inner),
            }
            Ok(())
        })?;
        if !changed {
            return Ok(false);
        }
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        let deflated = encoder.write_all(&all).and_then(|()| encoder.finish());
        let deflated = deflated.map_err(|error| Fault::new(format!("packets cannot be compressed: {error}")))?;
        let mut edits = Edits::default();
        for found in Fields::of(message) {
            let found = found?;
            if found.number == field::PACKET_DEFLATED {
                edits.bytes(&found, &deflated);
            }
        }
        edits.apply(message).iter().for_each(|new| put_bytes(out, field::TRACE_PACKET, new));
        Ok(true)
    }

    /// The number for the packet's time if it changes, and where it moves, if that is known.
    fn time(&mut self, packet: &Packet<'_>) -> Result<(Option<u64>, Option<Move>), Fault> {
        let Some(located) = self.clocks.locate(packet) else {
            self.stats.untimed += u64::from(packet.event.is_some());
            return Ok((None, None));
        };
        let is_event = packet.snapshot.is_none() && !packet.of_service;
        self.stats.events += u64::from(is_event);
        let moved = located.time_ns().filter(|time_ns| self.is_believed(*time_ns));
        let moved = moved.map(|old_ns| Ok((old_ns, new_ns(self.map, old_ns)?))).transpose()?;
        self.stats.untimed += u64::from(is_event && moved.is_none());
        let new_ns = moved.map(|(_, new_ns)| new_ns).or(located.time_ns());
        let number = self.clocks.restate(&located, new_ns).map_err(Fault::new)?;
        Ok((number.filter(|number| packet.time != Some(*number)), moved))
    }

    /// Changes the times inside of a field of a packet.
    fn field(&mut self, found: &Field<'_>, moved: Option<Move>, edits: &mut Edits) -> Result<(), Fault> {
        match found.number {
            field::PACKET_KERNEL_EVENTS => self.kernel_events(found, edits)?,
            field::PACKET_GPU_STAGE => {
                if let Some((old_ns, new_start_ns)) = moved {
                    self.duration(found, old_ns, new_start_ns, edits)?;
                }
            }
            field::PACKET_EVENT if self.annotate => annotate(found, moved, edits)?,
            number => {
                if packet::OWN_TIMES.contains(&number) {
                    *self.kept.entry(number).or_insert(0) += 1;
                }
                if let Some((_, path, clock)) = TIMES.iter().find(|(packet, ..)| *packet == number) {
                    let inner = self.times(bytes(found).unwrap_or_default(), path, *clock)?;
                    edits.message(found, inner);
                }
            }
        }
        Ok(())
    }

    /// The readings and units to write for a snapshot.
    fn readings(&mut self, sequence: u32, snapshot: &Snapshot) -> Result<Vec<(u64, u64)>, Fault> {
        let (map, mut beyond) = (&mut *self.map, None);
        let mut move_reading = |old_ns| match new_ns(map, old_ns) {
            Ok(new_ns) => new_ns,
            Err(fault) => {
                beyond = Some(fault);
                old_ns
            }
        };
        let restated = self.clocks.restate_snapshot(sequence, snapshot, &mut move_reading);
        beyond.map_or(restated.map_err(Fault::new), Err)
    }

    fn kernel_events(&mut self, found: &Field<'_>, edits: &mut Edits) -> Result<(), Fault> {
        let Self { kernel, clocks, map, reach, stats, .. } = self;
        let mut beyond = None;
        let changed = kernel.restate(bytes(found).unwrap_or_default(), clocks, &mut |old_ns, is_event| {
            stats.events += u64::from(is_event);
            let believed = old_ns.filter(|old_ns| is_within(*reach, *old_ns));
            stats.untimed += u64::from(is_event && believed.is_none());
            new_ns(map, believed?).map_err(|fault| beyond = Some(fault)).ok()
        })?;
        if let Some(fault) = beyond {
            return Err(fault);
        }
        changed.iter().for_each(|new| edits.bytes(found, new));
        Ok(())
    }

    /// Changes the duration of what a GPU did, so that its end is at its new time.
    fn duration(&mut self, found: &Field<'_>, old_ns: i64, new_start: i64, edits: &mut Edits) -> Result<(), Fault> {
        let mut inner = Edits::default();
        for number in inside(found) {
            let number = number?;
            if number.number == field::STAGE_DURATION {
                let old = number.number("duration")?;
                let end_ns = i64::try_from(old).ok().and_then(|old| old_ns.checked_add(old));
                if let Some(end_ns) = end_ns.filter(|end_ns| self.is_believed(*end_ns)) {
                    let new = new_ns(self.map, end_ns)?.saturating_sub(new_start);
                    inner.number(&number, u64::try_from(new).unwrap_or_default());
                }
            }
        }
        edits.message(found, inner);
        Ok(())
    }

    /// Changes the times at the end of a path of fields.
    fn times(&mut self, message: &[u8], path: &[u32], clock: u32) -> Result<Edits, Fault> {
        let mut edits = Edits::default();
        let [first, rest @ ..] = path else { return Ok(edits) };
        for found in Fields::of(message) {
            let found = found?;
            if found.number != *first {
                continue;
            }
            if !rest.is_empty() {
                let inner = self.times(bytes(&found).unwrap_or_default(), rest, clock)?;
                edits.message(&found, inner);
                continue;
            }
            let on_wanted = self.clocks.on_wanted(clock, found.number("timestamp")?.into());
            if let Some(on_wanted) = on_wanted.filter(|on_wanted| self.is_believed(on_wanted.time_ns)) {
                let new_ns = new_ns(self.map, on_wanted.time_ns)?;
                let number = u64::try_from(on_wanted.restated(new_ns));
                let number = number.map_err(|_| Fault::new("a time would be before the zero of its clock"))?;
                if new_ns != on_wanted.time_ns {
                    edits.number(&found, number);
                }
            }
        }
        Ok(edits)
    }

    fn is_believed(&self, time_ns: i64) -> bool {
        is_within(self.reach, time_ns)
    }

    fn finish(mut self) -> RewriteStats {
        self.stats.rounded = u64::from(self.clocks.has_rounded);
        for (number, count) in self.kept {
            self.stats
                .notes
                .push(format!("{count} packets of field {number} state times of their own, which are unchanged"));
        }
        self.stats
    }
}

/// Changes the readings and units in a snapshot.
fn put_readings(found: &Field<'_>, readings: Option<&[(u64, u64)]>, edits: &mut Edits) -> Result<(), Fault> {
    let (mut inner, mut readings) = (Edits::default(), readings.unwrap_or_default().iter());
    for clock in inside(found) {
        let clock = clock?;
        if clock.number != field::SNAPSHOT_CLOCKS {
            continue;
        }
        let Some((value, unit_ns)) = readings.next() else { break };
        // Of a field that is stated twice the last one holds.
        let (mut time, mut unit) = (None, None);
        for number in inside(&clock) {
            let number = number?;
            match number.number {
                field::CLOCK_TIME => time = Some(number),
                field::CLOCK_UNIT_NS => unit = Some(number),
                _ => {}
            }
        }
        let mut numbers = Edits::default();
        let unit = unit.filter(|unit| unit.value != Value::Number(0));
        let mut both = [time.zip(Some(*value)), unit.zip(Some(*unit_ns))];
        both.sort_by_key(|edit| edit.map(|(field, _)| field.at));
        both.iter().flatten().for_each(|(field, new)| numbers.number(field, *new));
        inner.message(&clock, numbers);
    }
    edits.message(found, inner);
    Ok(())
}

/// Adds to an event that begins how far it was moved.
fn annotate(found: &Field<'_>, moved: Option<Move>, edits: &mut Edits) -> Result<(), Fault> {
    let (Some((old_ns, new_ns)), Some(event)) = (moved, bytes(found)) else { return Ok(()) };
    for part in Fields::of(event) {
        let part = part?;
        let begins = [Value::Number(field::SLICE_BEGIN), Value::Number(field::INSTANT)];
        if part.number == field::EVENT_TYPE && begins.contains(&part.value) {
            let (mut argument, mut inner) = (Vec::new(), Vec::new());
            put_bytes(&mut argument, field::ARGUMENT_KEY, CORRECTION.as_bytes());
            put_number(&mut argument, field::ARGUMENT_INTEGER, new_ns.wrapping_sub(old_ns) as u64);
            put_bytes(&mut inner, field::EVENT_ARGUMENT, &argument);
            let mut added = Edits::default();
            added.append(event, inner);
            edits.message(found, added);
            return Ok(());
        }
    }
    Ok(())
}

/// The new time of one on the wanted clock.
fn new_ns(map: &mut MapFunction<'_>, old_ns: i64) -> Result<i64, Fault> {
    let new_ps = map(Picoseconds::from(old_ns) * PS_PER_NS);
    nearest_ns(new_ps).ok_or_else(|| Fault::new("a new time does not fit in 64 bits of nanoseconds"))
}

fn is_within(reach: Option<Reach>, time_ns: i64) -> bool {
    let time_ps = Picoseconds::from(time_ns) * PS_PER_NS;
    reach.is_none_or(|reach| reach.holds(time_ps, time_ps))
}

/// Times inside of packets: the packet's field, the path of fields below it, and the clock.
const TIMES: [(u32, &[u32], u32); 4] = [
    (field::PACKET_PROCESS_TREE, &[field::PROCESS_TREE_END], BOOTTIME),
    (field::PACKET_PROCESS_STATS, &[field::PROCESS_STATS_END], BOOTTIME),
    (field::PACKET_SYSTEM_STATS, &[field::SYSTEM_STATS_END], BOOTTIME),
    (field::PACKET_ANDROID_LOG, &[field::LOG_EVENT, field::LOG_EVENT_TIME], REALTIME),
];
const CORRECTION: &str = "timestamp_correction_ns";
