//! The facts of a Perfetto trace: its clock, the times of its events, the relation of that clock to
//! the system clock, and markers.
//!
//! One pass over the packets fills `model::TraceFacts`; `packet` decodes them, and `clocks`
//! converts their times. A trace is refused if it already covers several machines or cannot be
//! inspected. Everything with a time counts as an event unless it belongs to the recording itself.
//! Only a marker (`probe_sync.rank#3/8`) states whose trace it is; without one the caller must. It
//! does not read collectives.

use std::io::Read;
use std::path::Path;

use flate2::read::ZlibDecoder;

use super::clocks::{self, Clocks};
use super::packet::{Packet, bytes, inside};
use crate::Error;
use crate::marker::{Marker, Stamps};
use crate::model::{PS_PER_NS, Picoseconds, Spread, TraceClock, TraceFacts, UNIX_TIME_MIN_PS};
use crate::perfetto::fields as field;
use crate::protobuf::{Fault, Fields, Source};
use crate::{ALIGNED_TO, FactOptions};

/// Reads the facts of a trace in one pass.
///
/// # Errors
/// The file cannot be read, is packed or no Perfetto trace, is of several machines, or on a clock
/// that cannot be used; with the byte's offset.
pub(super) fn read_facts(path: &Path, options: &FactOptions) -> Result<TraceFacts, Error> {
    let mut source = Source::open(path)?;
    if source.limit() == u64::MAX {
        return Err(source.malformed(
            0,
            "the trace is compressed with gzip, and a TAR would contain it compressed; decompress it first (gunzip)",
        ));
    }
    let mut reader = Reader::new(options);
    while let Some(header) = source.next_header(source.limit())? {
        if (header.number, header.wire) != (field::TRACE_PACKET, 2) {
            let problem = format!("not a Perfetto trace: field {} has wire type {}", header.number, header.wire);
            return Err(source.malformed(header.at, problem));
        }
        let told = reader.packet(source.piece(header.value)?, false);
        told.map_err(|fault| source.fault(header.body_at(), fault))?;
        source.consume(header.value as usize);
    }
    if reader.unplaced > 0 && reader.span.is_none() {
        return Err(source.malformed(0, UNPLACED));
    }
    Ok(reader.finish())
}

/// State of one pass.
struct Reader<'a> {
    options: &'a FactOptions,
    clocks: Clocks,
    stamps: Stamps,
    facts: TraceFacts,
    /// First and last time of an event, ns.
    span: Option<(i64, i64)>,
    spread: Spread,
    untimed: u64,
    unplaced: u64,
    of_kernel: u64,
}

impl<'a> Reader<'a> {
    fn new(options: &'a FactOptions) -> Self {
        Self {
            options,
            clocks: Clocks::default(),
            stamps: Stamps::default(),
            facts: TraceFacts::default(),
            span: None,
            spread: Spread::default(),
            untimed: 0,
            unplaced: 0,
            of_kernel: 0,
        }
    }

    /// Takes in a packet; places in a fault are those of the packet.
    fn packet(&mut self, message: &[u8], is_unpacked: bool) -> Result<(), Fault> {
        let packet = Packet::parse(message)?;
        let refused = |problem: &str| Err(Fault { at: 0, problem: problem.to_owned() });
        if packet.zstd {
            return refused(ZSTD);
        }
        if packet.machine != 0 || packet.synchronizes {
            return refused(SEVERAL_MACHINES);
        }
        if let Some(packed) = packet.deflated {
            return if is_unpacked { refused("compressed packets are nested") } else { self.unpack(packed) };
        }
        self.clocks.tell(&packet).map_err(|problem| Fault { at: 0, problem })?;
        if let Some(message) = packet.attributes {
            self.attributes(message)?;
        }
        if let Some(message) = packet.interned {
            self.names(packet.sequence, message)?;
        }
        self.of_kernel += u64::from(packet.of_kernel);
        self.event(&packet)
    }

    /// Processes the packets contained in a packet.
    fn unpack(&mut self, packed: &[u8]) -> Result<(), Fault> {
        let wrong = |problem: String| Fault { at: 0, problem };
        let mut unpacked = Vec::new();
        let mut decoder = ZlibDecoder::new(packed).take(UNPACKED_MAX + 1);
        decoder
            .read_to_end(&mut unpacked)
            .map_err(|error| wrong(format!("compressed packets are damaged: {error}")))?;
        if unpacked.len() as u64 > UNPACKED_MAX {
            return Err(wrong(format!("compressed packets expand to more than {UNPACKED_MAX} bytes")));
        }
        let inner = |fault: Fault| wrong(format!("in its compressed packets, byte {}: {}", fault.at, fault.problem));
        for found in Fields::of(&unpacked) {
            let found = found.map_err(inner)?;
            let message = bytes(&found).filter(|_| found.number == field::TRACE_PACKET);
            let message = message.ok_or_else(|| wrong(format!("compressed field {} is not a packet", found.number)))?;
            self.packet(message, true).map_err(|fault| inner(fault.within(found.value_at)))?;
        }
        Ok(())
    }

    fn event(&mut self, packet: &Packet<'_>) -> Result<(), Fault> {
        if packet.time.is_none() {
            self.untimed += u64::from(packet.event.is_some());
            return Ok(());
        }
        // Incremental clocks count on with every packet that has a time.
        let time_ns = self.clocks.time_ns(packet);
        if packet.snapshot.is_some() || packet.of_service || packet.attributes.is_some() {
            return Ok(());
        }
        self.facts.events += 1;
        let Some(time_ns) = time_ns else {
            self.unplaced += 1;
            return Ok(());
        };
        let marker = match packet.event {
            Some(event) => self.marker(packet.sequence, event)?,
            None => None,
        };
        if let Some(marker) = marker {
            self.stamps.add(marker, Picoseconds::from(time_ns) * PS_PER_NS, PS_PER_NS);
            return Ok(());
        }
        let time_ps = Picoseconds::from(time_ns) * PS_PER_NS;
        self.spread.add(time_ps, time_ps);
        let (first, last) = self.span.unwrap_or((time_ns, time_ns));
        self.span = Some((first.min(time_ns), last.max(time_ns)));
        Ok(())
    }

    /// Parses the name of an event that begins, if it is a marker.
    fn marker(&self, sequence: u32, event: &[u8]) -> Result<Option<Marker>, Fault> {
        let (mut marker, mut kind) = (None, 0);
        for found in Fields::of(event) {
            let found = found?;
            match found.number {
                field::EVENT_TYPE => kind = found.number("type")?,
                field::EVENT_NAME_ID => marker = self.clocks.named(sequence, found.number("name_iid")?),
                field::EVENT_NAME => {
                    marker = bytes(&found).and_then(|name| Marker::of(name, self.options.markers.as_ref()));
                }
                _ => {}
            }
        }
        Ok(marker.filter(|_| matches!(kind, field::SLICE_BEGIN | field::INSTANT)))
    }

    /// Keeps the names that are markers.
    fn names(&mut self, sequence: u32, message: &[u8]) -> Result<(), Fault> {
        for entry in Fields::of(message) {
            let entry = entry?;
            if entry.number != field::INTERNED_NAME {
                continue;
            }
            let (mut number, mut marker) = (0, None);
            for found in inside(&entry) {
                let found = found?;
                match found.number {
                    field::INTERNED_ID => number = found.number("iid")?,
                    field::INTERNED_TEXT => {
                        marker = bytes(&found).and_then(|name| Marker::of(name, self.options.markers.as_ref()));
                    }
                    _ => {}
                }
            }
            if let Some(marker) = marker {
                self.clocks.name(sequence, number, marker);
            }
        }
        Ok(())
    }

    /// Finds the clock that this program put the times on.
    fn attributes(&mut self, message: &[u8]) -> Result<(), Fault> {
        for entry in Fields::of(message) {
            let (mut key, mut text): (&[u8], &[u8]) = (b"", b"");
            for found in inside(&entry?) {
                let found = found?;
                match found.number {
                    field::ATTRIBUTE_KEY => key = bytes(&found).unwrap_or_default(),
                    field::ATTRIBUTE_TEXT => text = bytes(&found).unwrap_or_default(),
                    _ => {}
                }
            }
            if key == ALIGNED_TO.as_bytes() {
                self.facts.aligned_to = Some(String::from_utf8_lossy(text).into_owned());
            }
        }
        Ok(())
    }

    fn finish(self) -> TraceFacts {
        let Self { clocks, stamps, mut facts, span, .. } = self;
        let all = span.map(|(first, last)| (Picoseconds::from(first) * PS_PER_NS, Picoseconds::from(last) * PS_PER_NS));
        let believed = self.spread.reach().map(|reach| (reach.first_ps, reach.last_ps));
        if believed.is_some() {
            facts.warnings.push(
                "some events lie days or decades away from all others; they were not analysed and are kept \
                unchanged"
                    .to_owned(),
            );
        }
        facts.span = believed.or(all);
        // A trace that was made of others may call any clock BOOTTIME; its size shows which it is.
        let counts_from_boot =
            clocks.wanted == clocks::BOOTTIME && facts.span.is_some_and(|(first, _)| first < UNIX_TIME_MIN_PS);
        facts.clock = if counts_from_boot { TraceClock::Boot } else { TraceClock::System };
        facts.stated_clock =
            clocks.is_stated.then_some(if clocks.wanted == clocks::REALTIME { "REALTIME" } else { "BOOTTIME" });
        facts.pairs = clocks.pairs().collect();
        let named = facts.stated_clock.unwrap_or("BOOTTIME");
        let mut note = |count: u64, text: &str| {
            if count > 0 {
                facts.notes.push(format!("{count} {text}"));
            }
        };
        note(clocks.pairs_left_out, "snapshots of the system clock beyond the first million were ignored");
        note(self.untimed, "events have no timestamp in their packet and were not analysed");
        note(self.of_kernel, "packets with kernel events were not analysed");
        note(
            self.unplaced,
            &format!("times are on clocks that no ClockSnapshot relates to {named}, and were not analysed"),
        );
        facts.notes.extend(stamps.notes());
        facts.take_stamps(stamps);
        facts
    }
}

const SEVERAL_MACHINES: &str = "the trace covers several machines and already describes how their clocks differ: open it directly, \
    and give traces of single machines here";
const UNPLACED: &str = "the times of the trace cannot be converted: its events are on clocks that no ClockSnapshot relates to \
    BOOTTIME; record it with snapshots of all clocks";
const ZSTD: &str = "packets are compressed with zstd and cannot be read: record without compression, or decompress them (traceconv \
    decompress_packets)";
/// Packets that are packed into one; Perfetto's service packs 512 KiB.
const UNPACKED_MAX: u64 = 64 << 20;
