//! Facts of Perfetto traces that are made here, packet by packet, as Perfetto's own library and
//! service write them.

use std::io::Write as _;
use std::path::PathBuf;

use super::*;
use crate::model::{ClockPair, PairKind, TraceClock};
use crate::perfetto::fields as field;
use crate::protobuf::{put_bytes, put_number};

mod chunks;
mod rewrite;

const BOOTTIME: u32 = 6;
const MONOTONIC: u32 = 3;
const REALTIME: u32 = 1;
const MS: u64 = 1_000_000;

/// A trace being written.
#[derive(Clone, Default)]
struct Made(Vec<u8>);

impl Made {
    /// Adds a packet of sequence 1.
    fn packet(mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut packet = Vec::new();
        put_number(&mut packet, field::PACKET_SEQUENCE, 1);
        fill(&mut packet);
        put_bytes(&mut self.0, field::TRACE_PACKET, &packet);
        self
    }

    /// A snapshot of clocks: which, their readings, their unit in ns, and whether they count from
    /// the last time.
    fn snapshot(self, readings: &[(u32, u64, u64, bool)], trace_clock: Option<u32>) -> Self {
        let mut snapshot = Vec::new();
        for &(clock, value, unit_ns, is_incremental) in readings {
            let mut reading = Vec::new();
            put_number(&mut reading, field::CLOCK_ID, clock.into());
            put_number(&mut reading, field::CLOCK_TIME, value);
            put_number(&mut reading, field::CLOCK_IS_INCREMENTAL, is_incremental.into());
            put_number(&mut reading, field::CLOCK_UNIT_NS, unit_ns);
            put_bytes(&mut snapshot, field::SNAPSHOT_CLOCKS, &reading);
        }
        if let Some(clock) = trace_clock {
            put_number(&mut snapshot, field::SNAPSHOT_TRACE_CLOCK, clock.into());
        }
        self.packet(|packet| put_bytes(packet, field::PACKET_CLOCK_SNAPSHOT, &snapshot))
    }

    /// Readings of clocks in ns.
    fn read(self, readings: &[(u32, u64)], trace_clock: Option<u32>) -> Self {
        let readings: Vec<_> = readings.iter().map(|&(clock, value)| (clock, value, 1, false)).collect();
        self.snapshot(&readings, trace_clock)
    }

    /// The clock of packets that name none.
    fn default_clock(self, clock: u32) -> Self {
        let mut defaults = Vec::new();
        put_number(&mut defaults, field::PACKET_CLOCK, clock.into());
        self.packet(|packet| {
            put_number(packet, field::PACKET_FLAGS, field::STATE_CLEARED);
            put_bytes(packet, field::PACKET_DEFAULTS, &defaults);
        })
    }

    /// A slice that begins, with a name.
    fn begin(self, time: u64, clock: Option<u32>, name: &str) -> Self {
        let mut event = Vec::new();
        put_number(&mut event, field::EVENT_TYPE, field::SLICE_BEGIN);
        put_bytes(&mut event, field::EVENT_NAME, name.as_bytes());
        self.packet(|packet| {
            put_number(packet, field::PACKET_TIME, time);
            if let Some(clock) = clock {
                put_number(packet, field::PACKET_CLOCK, clock.into());
            }
            put_bytes(packet, field::PACKET_EVENT, &event);
        })
    }

    /// The packets so far, deflated into one.
    fn deflated(self) -> Self {
        let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        packer.write_all(&self.0).expect("packed");
        let packed = packer.finish().expect("packed");
        Made::default().packet(|packet| put_bytes(packet, field::PACKET_DEFLATED, &packed))
    }

    fn facts(&self) -> Result<TraceFacts, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path: PathBuf = folder.path().join("made.pftrace");
        std::fs::write(&path, &self.0).expect("written");
        Perfetto.read_facts(&path, &FactOptions::default()).map_err(|error| error.to_string())
    }

    /// The trace's facts, with the span in ms.
    fn check(&self, clock: TraceClock, stated: Option<&str>, span_ms: (i128, i128)) -> TraceFacts {
        let facts = self.facts().expect("facts");
        let span = facts.span.map(|(first, last)| (first / 1_000_000_000, last / 1_000_000_000));
        assert_eq!((facts.clock, facts.stated_clock, span), (clock, stated, Some(span_ms)), "{:?}", facts.notes);
        facts
    }

    fn refused(&self, part: &str) {
        let refused = self.facts().expect_err(part);
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn times_are_brought_to_the_clock_that_perfetto_knows_of_every_file() {
    let boot = TraceClock::Boot;
    let stated = Some("BOOTTIME");
    Made::default().begin(500 * MS, None, "a").check(boot, None, (500, 500));
    let plain = Made::default().read(&[(BOOTTIME, 100 * MS)], None).begin(500 * MS, None, "a");
    plain.check(boot, stated, (500, 500));
    plain.clone().deflated().check(boot, stated, (500, 500));
    // Perfetto's library: times count from the packet before, in units of a snapshot's own.
    let own = Made::default().snapshot(&[(64, 100_000, 1000, true), (BOOTTIME, 100 * MS, 1, false)], None);
    let own = own.default_clock(64).begin(5_000, None, "a").begin(2_000, None, "b");
    own.check(boot, stated, (105, 107));
    // One of the packets names its clock.
    own.clone().begin(300 * MS, Some(BOOTTIME), "c").check(boot, stated, (105, 300));
    own.default_clock(BOOTTIME).begin(400 * MS, None, "d").check(boot, stated, (105, 400));
    let monotonic = Made::default().read(&[(BOOTTIME, 900 * MS), (MONOTONIC, 200 * MS)], Some(MONOTONIC));
    monotonic.begin(250 * MS, None, "a").check(boot, stated, (950, 950));
    let other = Made::default().read(&[(BOOTTIME, 900 * MS), (MONOTONIC, 200 * MS)], None);
    other.begin(250 * MS, Some(MONOTONIC), "a").check(boot, stated, (950, 950));
    let now = 1_795_187_183_000 * MS;
    let system = Made::default().read(&[(REALTIME, now)], Some(REALTIME)).begin(now, None, "a");
    system.check(TraceClock::System, Some("REALTIME"), (1_795_187_183_000, 1_795_187_183_000));
    Made::default().read(&[(BOOTTIME, now)], None).begin(now, None, "a").check(
        TraceClock::System,
        stated,
        (1_795_187_183_000, 1_795_187_183_000),
    );
}

#[test]
fn snapshots_of_the_system_clock_are_pairs_with_the_time_that_reading_took() {
    let now = 1_795_187_183_000 * MS;
    let mut made = Made::default();
    for (at, late) in [(100, 400), (200, 9_400), (300, 300)] {
        let (boot, system) = (at * MS, now + at * MS);
        made = made.read(&[(BOOTTIME, boot), (REALTIME, system), (MONOTONIC, boot - 50 * MS + late)], None);
    }
    let facts = made.begin(150 * MS, None, "a").facts().expect("facts");
    let pair = |at: u64, width: f64| ClockPair {
        tracer_ps: i128::from(at * MS) * 1000,
        system_ns: (now + at * MS) as i64,
        kind: PairKind::Bracketed(width),
    };
    assert_eq!(facts.pairs, [pair(100, 1_100.0), pair(200, 10_100.0), pair(300, 1_000.0)]);
}

#[test]
fn markers_are_read_from_names_of_both_kinds() {
    let (mut entry, mut interned, mut event) = (Vec::new(), Vec::new(), Vec::new());
    put_number(&mut entry, field::INTERNED_ID, 7);
    put_bytes(&mut entry, field::INTERNED_TEXT, b"probe_sync.rank#3/8");
    put_bytes(&mut interned, field::INTERNED_NAME, &entry);
    put_number(&mut event, field::EVENT_TYPE, field::INSTANT);
    put_number(&mut event, field::EVENT_NAME_ID, 7);
    let made = Made::default().packet(|packet| {
        put_number(packet, field::PACKET_TIME, 90 * MS);
        put_bytes(packet, field::PACKET_INTERNED, &interned);
        put_bytes(packet, field::PACKET_EVENT, &event);
    });
    let made = made.begin(80 * MS, None, "probe_sync.clock#1795187183000000000").begin(500 * MS, None, "a");
    let facts = made.check(TraceClock::Boot, None, (500, 500));
    assert_eq!(facts.identity.marked_rank, Some((3, 8)));
    let marker = ClockPair {
        tracer_ps: i128::from(80 * MS) * 1000,
        system_ns: 1_795_187_183_000_000_000,
        kind: PairKind::Marker,
    };
    assert_eq!((facts.pairs, facts.events), (vec![marker], 3));
}

#[test]
fn what_cannot_be_related_is_refused_with_what_to_do() {
    let monotonic = Made::default().read(&[(MONOTONIC, 200 * MS), (REALTIME, 300 * MS)], Some(MONOTONIC));
    monotonic.refused("its times are on MONOTONIC, and its ClockSnapshot does not include BOOTTIME");
    let late = Made::default().begin(1, None, "a").read(&[(BOOTTIME, 1), (MONOTONIC, 1)], Some(MONOTONIC));
    late.refused("it declares its clock (MONOTONIC) only after packets with times");
    Made::default().begin(1, Some(MONOTONIC), "a").refused("no ClockSnapshot relates to BOOTTIME");
    let of_machine = |packet: &mut Vec<u8>| put_number(packet, field::PACKET_MACHINE, 2);
    Made::default().packet(of_machine).refused("byte 2: the trace covers several machines");
    Made::default().packet(|packet| put_bytes(packet, field::PACKET_ZSTD, b"x")).refused("compressed with zstd");
    let damaged = |packet: &mut Vec<u8>| put_bytes(packet, field::PACKET_DEFLATED, b"damaged");
    Made::default().packet(damaged).refused("compressed packets are damaged");
    let nested = Made::default().begin(1, None, "a").deflated().deflated();
    nested.refused("compressed packets are nested");
    let cut = Made(Made::default().begin(1, None, "a").0[..9].to_vec());
    cut.refused("extends past the end");
    Made(b"\x12\x01a".to_vec()).refused("not a Perfetto trace: field 2");
}

#[test]
fn a_trace_that_is_packed_is_read_as_the_plain_one() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(&Made::default().begin(500 * MS, None, "a").0).expect("packed");
    Made(packer.finish().expect("packed")).check(TraceClock::Boot, None, (500, 500));
}

#[test]
fn readings_beyond_all_numbers_are_no_times() {
    let made = Made::default().snapshot(&[(64, u64::MAX, u64::MAX, true), (BOOTTIME, u64::MAX, u64::MAX, false)], None);
    let made = made.read(&[(MONOTONIC, u64::MAX), (BOOTTIME, 0), (REALTIME, u64::MAX)], None).default_clock(64);
    made.clone().begin(u64::MAX, None, "a").refused("the times of the trace cannot be converted");
    made.begin(u64::MAX, Some(MONOTONIC), "a").begin(5 * MS, Some(BOOTTIME), "b").check(
        TraceClock::Boot,
        Some("BOOTTIME"),
        (0, 5),
    );
}

#[test]
fn an_output_of_this_program_says_what_clock_it_is_on() {
    let (mut entry, mut attributes) = (Vec::new(), Vec::new());
    put_bytes(&mut entry, field::ATTRIBUTE_KEY, b"probe_sync_timeline");
    put_bytes(&mut entry, field::ATTRIBUTE_TEXT, b"system clock of node 0");
    put_bytes(&mut attributes, field::ATTRIBUTES_ENTRY, &entry);
    let made = Made::default().packet(|packet| put_bytes(packet, field::PACKET_ATTRIBUTES, &attributes));
    let facts = made.begin(1, None, "a").facts().expect("facts");
    assert_eq!(facts.aligned_to.as_deref(), Some("system clock of node 0"));
}

#[test]
fn packets_are_told_from_planes_of_an_xspace() {
    let check = |head: &[u8], expected: bool| {
        assert_eq!(Perfetto.detect(Evidence::Head(head)), expected, "{head:?}");
    };
    let trace = Made::default().begin(1, None, "a").0;
    check(&trace, true);
    check(&trace[..6], true);
    // Fields 1 and 2 of a plane: a number and a name. A packet's field 6 is a plane's, too; the
    // next packet tells.
    check(b"\x0a\x06\x08\x01\x12\x02ab", false);
    check(b"\x0a\x04\x12\x02ab", false);
    check(&[b"\x0a\x02\x32\x00", &trace[..]].concat(), true);
    check(b"{\"traceEvents\"", false);
    check(b"", false);
}
