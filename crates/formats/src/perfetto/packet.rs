//! The packets of a Perfetto trace, and the clocks, times and messages of one.
//!
//! Reference: `protos/perfetto/trace/trace_packet.proto` and `clock_snapshot.proto`, with the
//! numbers of `fields`.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use flate2::read::ZlibDecoder;

use crate::Error;
use crate::perfetto::fields as field;
use crate::protobuf::{Fault, Field, Fields, Header, Source, Value, varint};

/// A packet's fields; messages as bytes with their place in it.
#[derive(Default)]
pub(super) struct Packet<'a> {
    pub(super) time: Option<u64>,
    /// Where the time stands in the packet.
    pub(super) time_at: Range<usize>,
    /// The clock that it names for its time.
    pub(super) clock: Option<u32>,
    pub(super) sequence: u32,
    /// Earlier statements of its sequence are no longer valid.
    pub(super) cleared: bool,
    /// It is meaningless without them.
    pub(super) needs_state: bool,
    /// Packets before it were lost.
    pub(super) is_after_loss: bool,
    machine: u32,
    synchronizes: bool,
    pub(super) snapshot: Option<Snapshot>,
    /// Where the snapshot stands in the packet.
    pub(super) snapshot_at: usize,
    pub(super) default_clock: Option<u32>,
    pub(super) deflated: Option<&'a [u8]>,
    zstd: bool,
    pub(super) event: Option<&'a [u8]>,
    pub(super) interned: Option<&'a [u8]>,
    pub(super) attributes: Option<&'a [u8]>,
    /// It is about the recording, and not about the program.
    pub(super) of_service: bool,
    /// A bundle of events of the kernel, with times of their own.
    pub(super) kernel_events: Option<&'a [u8]>,
    pub(super) descriptor: Option<&'a [u8]>,
    /// Defaults of the sequence's events.
    pub(super) defaults: Option<&'a [u8]>,
    /// The thread that its sequence belongs to, as old writers say it.
    pub(super) thread: Option<&'a [u8]>,
    pub(super) gpu_stage: Option<&'a [u8]>,
    pub(super) gpu_counters: Option<&'a [u8]>,
    /// It contains times that only a rewriter looks for.
    pub(super) has_other_times: bool,
}

/// Clocks that were read at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) readings: Vec<Reading>,
    /// The clock of the trace, if stated.
    pub(super) trace_clock: Option<u32>,
}

/// Reading of a clock.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) clock: u32,
    /// In units of the clock.
    pub(super) value: u64,
    /// Times on it count from the packet before.
    pub(super) is_incremental: bool,
    pub(super) unit_ns: u64,
}

/// Passes the packets of a file to `take` in order, and those that are packed into them in their
/// place.
///
/// # Errors
/// The file cannot be read or is no Perfetto trace; errors of `take`; with the byte's offset.
pub(super) fn each(path: &Path, take: &mut dyn FnMut(&Packet<'_>) -> Result<(), Fault>) -> Result<Source, Error> {
    let mut source = Source::open(path)?;
    while let Some(header) = next(&mut source)? {
        let message = source.shown(header.value);
        let taken = Packet::parse(message).and_then(|packet| match packet.deflated {
            Some(packed) => each_packed(packed, &mut |message| {
                let packet = Packet::parse(message)?;
                if packet.deflated.is_some() { Err(Fault::new(NESTED)) } else { take(&packet) }
            }),
            None => take(&packet),
        });
        taken.map_err(|fault| source.fault(header.body_at(), fault))?;
        source.consume(header.value as usize);
    }
    Ok(source)
}

/// The header of the next packet, whose bytes are in the buffer; `None` at the end.
///
/// # Errors
/// The file cannot be read, or has another field in this place.
pub(super) fn next(source: &mut Source) -> Result<Option<Header>, Error> {
    let Some(header) = source.next_header(source.limit())? else { return Ok(None) };
    if (header.number, header.wire) != (field::TRACE_PACKET, 2) {
        let problem = format!("not a Perfetto trace: field {} has wire type {}", header.number, header.wire);
        return Err(source.malformed(header.at, problem));
    }
    source.ensure(header.value)?;
    Ok(Some(header))
}

/// Passes on the packets that are packed into one.
///
/// # Errors
/// They are damaged or too large; errors of `take`.
pub(super) fn each_packed(packed: &[u8], take: &mut dyn FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
    let mut unpacked = Vec::new();
    let mut decoder = ZlibDecoder::new(packed).take(UNPACKED_MAX + 1);
    decoder
        .read_to_end(&mut unpacked)
        .map_err(|error| Fault::new(format!("compressed packets are damaged: {error}")))?;
    if unpacked.len() as u64 > UNPACKED_MAX {
        return Err(Fault::new(format!("compressed packets expand to more than {UNPACKED_MAX} bytes")));
    }
    let inner = |fault: Fault| Fault::new(format!("in its compressed packets, byte {}: {}", fault.at, fault.problem));
    for found in Fields::of(&unpacked) {
        let found = found.map_err(inner)?;
        let message = bytes(&found).filter(|_| found.number == field::TRACE_PACKET);
        let message =
            message.ok_or_else(|| Fault::new(format!("compressed field {} is not a packet", found.number)))?;
        take(message).map_err(|fault| inner(fault.within(found.value_at)))?;
    }
    Ok(())
}

impl<'a> Packet<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, Fault> {
        let mut packet = Packet::default();
        for found in Fields::of(message) {
            let found = found?;
            match found.number {
                field::PACKET_TIME => {
                    (packet.time, packet.time_at) = (Some(found.number("timestamp")?), found.value_at..found.end);
                }
                field::PACKET_CLOCK => packet.clock = clock(&found)?,
                field::PACKET_SEQUENCE => packet.sequence = small(&found, "trusted_packet_sequence_id")?,
                field::PACKET_FLAGS => {
                    let flags = found.number("sequence_flags")?;
                    packet.cleared |= flags & field::STATE_CLEARED != 0;
                    packet.needs_state = flags & field::NEEDS_STATE != 0;
                }
                field::PACKET_CLEARED => packet.cleared |= found.number("incremental_state_cleared")? != 0,
                field::PACKET_AFTER_LOSS => packet.is_after_loss = found.number("previous_packet_dropped")? != 0,
                field::PACKET_MACHINE => packet.machine = small(&found, "machine_id")?,
                field::PACKET_CLOCK_SYNC => packet.synchronizes = true,
                field::PACKET_CLOCK_SNAPSHOT => {
                    (packet.snapshot, packet.snapshot_at) = (Some(Snapshot::parse(&found)?), found.at);
                }
                field::PACKET_DEFAULTS => {
                    (packet.default_clock, packet.defaults) = (of_defaults(&found)?, bytes(&found));
                }
                field::PACKET_DEFLATED => packet.deflated = bytes(&found),
                field::PACKET_ZSTD => packet.zstd = true,
                field::PACKET_EVENT => packet.event = bytes(&found),
                field::PACKET_INTERNED => packet.interned = bytes(&found),
                field::PACKET_ATTRIBUTES => packet.attributes = bytes(&found),
                field::PACKET_KERNEL_EVENTS => packet.kernel_events = bytes(&found),
                field::PACKET_DESCRIPTOR => (packet.descriptor, packet.of_service) = (bytes(&found), true),
                field::PACKET_THREAD => packet.thread = bytes(&found),
                field::PACKET_GPU_STAGE => packet.gpu_stage = bytes(&found),
                field::PACKET_GPU_COUNTERS => packet.gpu_counters = bytes(&found),
                number => {
                    packet.of_service |= OF_SERVICE.contains(&number);
                    packet.has_other_times |= OTHER_TIMES.contains(&number) || OWN_TIMES.contains(&number);
                }
            }
        }
        if packet.zstd {
            return Err(Fault::new(ZSTD));
        }
        if packet.machine != 0 || packet.synchronizes {
            return Err(Fault::new(SEVERAL_MACHINES));
        }
        Ok(packet)
    }
}

impl Snapshot {
    fn parse(message: &Field<'_>) -> Result<Self, Fault> {
        let mut snapshot = Snapshot::default();
        for found in inside(message) {
            let found = found.map_err(|fault| fault.within(message.value_at))?;
            match found.number {
                field::SNAPSHOT_CLOCKS if snapshot.readings.len() < READINGS_MAX => {
                    let reading = Reading::parse(&found).map_err(|fault| fault.within(message.value_at))?;
                    snapshot.readings.push(reading);
                }
                field::SNAPSHOT_TRACE_CLOCK => snapshot.trace_clock = clock(&found)?,
                _ => {}
            }
        }
        Ok(snapshot)
    }

    /// Reading of a clock with a unit of 1 ns.
    pub(super) fn of(&self, clock: u32) -> Option<i128> {
        self.readings.iter().find(|reading| reading.clock == clock).map(Reading::ns)
    }
}

impl Reading {
    fn parse(message: &Field<'_>) -> Result<Self, Fault> {
        let mut reading = Reading { unit_ns: 1, ..Reading::default() };
        for found in inside(message) {
            let found = found.map_err(|fault| fault.within(message.value_at))?;
            match found.number {
                field::CLOCK_ID => reading.clock = small(&found, "clock_id")?,
                field::CLOCK_TIME => reading.value = found.number("timestamp")?,
                field::CLOCK_IS_INCREMENTAL => reading.is_incremental = found.number("is_incremental")? != 0,
                field::CLOCK_UNIT_NS => reading.unit_ns = found.number("unit_multiplier_ns")?.max(1),
                _ => {}
            }
        }
        Ok(reading)
    }

    pub(super) fn ns(&self) -> i128 {
        i128::from(self.value).saturating_mul(i128::from(self.unit_ns))
    }
}

/// The clock that TracePacketDefaults name.
fn of_defaults(message: &Field<'_>) -> Result<Option<u32>, Fault> {
    for found in inside(message) {
        let found = found.map_err(|fault| fault.within(message.value_at))?;
        if found.number == field::PACKET_CLOCK {
            return clock(&found);
        }
    }
    Ok(None)
}

/// Whether a file's first bytes are packets, and not planes of an XSpace, which have the same tag.
/// A plane has fields 1 to 6, of which only the first is a number.
pub(super) fn begins_trace(head: &[u8]) -> bool {
    let mut rest = head;
    while let Some((&PACKET_TAG, after_tag)) = rest.split_first() {
        let Some((length, width)) = varint(after_tag) else { return false };
        let body = &after_tag[width..];
        let whole = usize::try_from(length).unwrap_or(usize::MAX).min(body.len());
        // What is cut off at the end of the head is no fault.
        for found in Fields::of(&body[..whole]).map_while(Result::ok) {
            let is_number = matches!(found.value, Value::Number(_));
            if (if is_number { &OF_PACKET_NUMBERS[..] } else { &OF_PACKET_MESSAGES[..] }).contains(&found.number) {
                return true;
            }
            if found.number > LARGEST || found.number == 1 && is_number {
                return false;
            }
        }
        rest = &body[whole..];
    }
    false
}

/// The fields of a nested message; none if it is not a message.
pub(super) fn inside<'a>(message: &Field<'a>) -> Fields<'a> {
    Fields::of(bytes(message).unwrap_or_default())
}

pub(super) fn bytes<'a>(found: &Field<'a>) -> Option<&'a [u8]> {
    if let Value::Bytes(bytes) = found.value { Some(bytes) } else { None }
}

/// The number of a clock; 0 names none.
fn clock(found: &Field<'_>) -> Result<Option<u32>, Fault> {
    small(found, "the number of a clock").map(|clock| Some(clock).filter(|clock| *clock != 0))
}

fn small(found: &Field<'_>, name: &str) -> Result<u32, Fault> {
    let value = found.number(name)?;
    u32::try_from(value)
        .map_err(|_| Fault { at: found.at, problem: format!("{name} is {value}, which does not fit in 32 bits") })
}

/// JSON of Chrome, profiles of memory and of energy, statsd, the kernel of Windows, modems, virtual
/// machines: their times are on clocks of their own.
pub(super) const OWN_TIMES: [u32; 10] = [5, 37, 40, 62, 74, 84, 91, 95, 110, 125];
pub(super) const NESTED: &str = "compressed packets are nested";
const SEVERAL_MACHINES: &str = "the trace covers several machines and already describes how their clocks differ: open it directly, \
    and give traces of single machines here";
const ZSTD: &str = "packets are compressed with zstd and cannot be read: record without compression, or decompress them (traceconv \
    decompress_packets)";
/// Packets that are packed into one; Perfetto's service packs 512 KiB.
const UNPACKED_MAX: u64 = 64 << 20;
const PACKET_TAG: u8 = (field::TRACE_PACKET << 3 | 2) as u8;
/// Fields of packets that a plane has not: numbers (user, time, sequence, flags, clock, process,
/// first of a sequence, machine), and messages (event, interned texts, configuration, statistics,
/// synchronisation, system, packed packets, defaults, descriptor, trace's id, attributes, packed
/// packets).
const OF_PACKET_NUMBERS: [u32; 8] = [field::PACKET_USER, 8, 10, 13, 58, 79, 87, 98];
const OF_PACKET_MESSAGES: [u32; 12] = [11, 12, 33, 35, 36, 45, 50, 59, 60, 89, 126, 133];
/// The largest number of a field of either.
const LARGEST: u32 = 255;
/// Most clocks in a snapshot; Perfetto knows nine, and a sequence has a few of its own.
const READINGS_MAX: usize = 256;
/// Snapshots, configuration, statistics, descriptions, the service's own events: their times may be
/// before the first and after the last event.
const OF_SERVICE: [u32; 13] = [33, 34, 35, 36, 45, 46, 69, 78, 89, 90, 109, 124, 134];
/// Processes, statistics of them and of the system, and the log of Android.
const OTHER_TIMES: [u32; 4] =
    [field::PACKET_PROCESS_TREE, field::PACKET_SYSTEM_STATS, field::PACKET_PROCESS_STATS, field::PACKET_ANDROID_LOG];
