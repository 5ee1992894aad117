//! Rewriting: every time is where the map says, all else is as it was, and the identity changes no
//! byte.

use std::path::Path;

use super::*;
use crate::model::{PS_PER_NS, Picoseconds};
use crate::perfetto::clocks::Clocks;
use crate::perfetto::kernel::Kernel;
use crate::perfetto::packet;
use crate::protobuf::put_varint;
use crate::{RewriteOptions, RewriteStats};

const MONOTONIC_RAW: u32 = 5;
const GLOBAL: u64 = 2;
const RAW: u64 = 4;

impl Made {
    /// Events of the kernel at these times of a clock of ftrace, switches in columns at others, and
    /// what the bundle says of its clock.
    fn kernel(self, clock: u64, times: &[u64], switches: &[u64], same_moment: Option<(u64, u64)>) -> Self {
        let (mut bundle, mut columns, mut column, mut before) = (Vec::new(), Vec::new(), Vec::new(), 0);
        put_number(&mut bundle, 1, 3);
        for time in times {
            let mut event = Vec::new();
            put_number(&mut event, field::KERNEL_EVENT_TIME, *time);
            put_number(&mut event, 2, 4711);
            put_bytes(&mut bundle, field::BUNDLE_EVENT, &event);
        }
        for time in switches {
            put_varint(&mut column, time - before);
            before = *time;
        }
        put_bytes(&mut columns, 5, b"python");
        put_bytes(&mut columns, field::SWITCH_TIMES, &column);
        put_bytes(&mut bundle, field::BUNDLE_SWITCHES, &columns);
        put_number(&mut bundle, field::BUNDLE_CLOCK, clock);
        if let Some((global, boot)) = same_moment {
            put_number(&mut bundle, field::BUNDLE_GLOBAL_TIME, global);
            put_number(&mut bundle, field::BUNDLE_BOOT_TIME, boot);
        }
        self.packet(|packet| put_bytes(packet, field::PACKET_KERNEL_EVENTS, &bundle))
    }

    /// What a GPU did, and for how long.
    fn gpu_stage(self, time: u64, duration: u64) -> Self {
        let mut stage = Vec::new();
        put_number(&mut stage, 1, 9);
        put_number(&mut stage, field::STAGE_DURATION, duration);
        self.packet(|packet| {
            put_number(packet, field::PACKET_TIME, time);
            put_bytes(packet, field::PACKET_GPU_STAGE, &stage);
        })
    }

    /// The trace through a map.
    fn rewritten(
        &self,
        map: &dyn Fn(Picoseconds) -> Picoseconds,
        options: &RewriteOptions<'_>,
    ) -> (Made, RewriteStats) {
        let folder = tempfile::tempdir().expect("a folder");
        let (input, output) = (folder.path().join("in.pftrace"), folder.path().join("out.pftrace"));
        std::fs::write(&input, &self.0).expect("written");
        let stats = Perfetto.rewrite(&input, &output, options, &mut |time| map(time)).expect("rewritten");
        (Made(std::fs::read(&output).expect("written")), stats)
    }

    /// All times on the clock of the trace, ns, in order.
    fn times(&self) -> Vec<Option<i64>> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("made.pftrace");
        std::fs::write(&path, &self.0).expect("written");
        times(&path)
    }
}

fn times(path: &Path) -> Vec<Option<i64>> {
    let (mut clocks, mut kernel, mut times) = (Clocks::default(), Kernel::default(), Vec::new());
    packet::each(path, &mut |packet| {
        clocks.tell(packet).expect("sound");
        times.extend(clocks.locate(packet).map(|located| located.time_ns()));
        if let Some(bundle) = packet.kernel_events {
            kernel.restate(bundle, &clocks, &mut |time, is_event| {
                times.extend(is_event.then_some(time));
                time
            })?;
        }
        Ok(())
    })
    .expect("readable");
    times
}

/// A trace with times on every kind of clock: of the service, of Perfetto's library, of the kernel.
fn every_clock() -> Made {
    let now = 1_795_187_183_000 * MS;
    let service = |made: Made, boot: u64| {
        let readings =
            [(BOOTTIME, boot), (REALTIME, now + boot), (MONOTONIC, boot - 50 * MS), (MONOTONIC_RAW, boot / 2 + 77)];
        made.read(&readings, None)
    };
    let made = service(Made::default(), 100 * MS).begin(110 * MS, None, "a");
    let made = made.begin(70 * MS, Some(MONOTONIC), "b").begin(now + 130 * MS, Some(REALTIME), "c");
    let made = made.kernel(0, &[131 * MS, 132 * MS + 7], &[133 * MS, 133 * MS + 999, 140 * MS], None);
    let made = made.kernel(GLOBAL, &[31 * MS], &[33 * MS, 34 * MS], Some((30 * MS, 141 * MS)));
    let made = made.kernel(GLOBAL, &[35 * MS], &[], None).kernel(RAW, &[55 * MS], &[56 * MS], None);
    let made = made.snapshot(&[(64, 100_000, 1000, true), (BOOTTIME, 150 * MS, 1, false)], None).default_clock(64);
    let made = made.begin(5_000, None, "d").begin(0, None, "e").begin(2_001, None, "f").gpu_stage(1, 90 * MS);
    let made = service(made, 200 * MS).begin(201 * MS, Some(BOOTTIME), "g").begin(3, None, "h");
    let packed = Made::default().begin(10, None, "i").begin(now + 230 * MS, Some(REALTIME), "j").deflated();
    let made = Made([made.0, packed.0].concat()).begin(10, None, "k");
    made.snapshot(&[(65, 7, 1, false), (MONOTONIC, 400 * MS, 1, false)], None).begin(1007, Some(65), "l")
}

#[test]
fn the_identity_changes_no_byte() {
    let made = every_clock();
    assert!(made.times().iter().all(Option::is_some), "{:?}", made.times());
    let (same, stats) = made.rewritten(&|time| time, &RewriteOptions::default());
    assert_eq!((same.0, stats.bytes_written, stats.untimed), (made.0.clone(), made.0.len() as u64, 0));
    // The packets' times and the kernel's events: 13 of packets, 11 of the kernel.
    assert_eq!(stats.events, 24);
}

#[test]
fn times_are_where_the_map_says_on_every_kind_of_clock() {
    let made = every_clock();
    let maps: [&dyn Fn(Picoseconds) -> Picoseconds; 3] = [
        // To Unix time, 50 ppm fast.
        &|time| time + 1_795_187_000_000_000_000_000 + time / 20_000,
        &|time| time + 7_000_123,
        &|time| time - time / 3_000 - 4_000_777,
    ];
    for map in maps {
        let (moved, stats) = made.rewritten(map, &RewriteOptions::default());
        let expected: Vec<Option<i64>> = made.times().into_iter().map(|time| Some(mapped(map, time?))).collect();
        assert_eq!((moved.times(), stats.rounded), (expected, 0));
        let facts = moved.facts().expect("facts");
        // The system clock is the common one now.
        assert!(facts.pairs.iter().all(|pair| pair.tracer_ps == i128::from(pair.system_ns) * PS_PER_NS));
        assert_eq!(facts.pairs.len(), 2);
    }
}

fn mapped(map: &dyn Fn(Picoseconds) -> Picoseconds, time_ns: i64) -> i64 {
    crate::model::nearest_ns(map(i128::from(time_ns) * PS_PER_NS)).expect("64 bits")
}

#[test]
fn what_a_gpu_did_ends_at_the_time_of_its_end() {
    let made = Made::default().gpu_stage(100 * MS, 50 * MS);
    let (moved, _) = made.rewritten(&|time| time * 2, &RewriteOptions::default());
    assert_eq!(moved.0, Made::default().gpu_stage(200 * MS, 100 * MS).0);
}

#[test]
fn coarse_units_are_refined_only_where_times_move() {
    let made = Made::default().snapshot(&[(64, 100, 1000, true), (BOOTTIME, 100_000, 1, false)], None);
    let made = made.default_clock(64).begin(5, None, "a").begin(1, None, "b");
    let (moved, stats) = made.rewritten(&|time| time + 123_000, &RewriteOptions::default());
    assert_eq!((moved.times(), stats.rounded), (vec![Some(105_123), Some(106_123)], 0));
    let fine = Made::default().snapshot(&[(64, 100_123, 1, true), (BOOTTIME, 100_123, 1, false)], None);
    assert_eq!(moved.0, fine.default_clock(64).begin(5_000, None, "a").begin(1_000, None, "b").0);
}

#[test]
fn a_clock_that_moves_later_than_its_first_snapshot_is_finer_from_the_start() {
    let made = Made::default().snapshot(&[(64, 100, 1000, true), (BOOTTIME, 100_000, 1, false)], None);
    let made = made.default_clock(64).begin(5, None, "a").begin(900, None, "b");
    let map = |time: Picoseconds| if time < 500_000_000 { time } else { time + 7_000 };
    let (moved, stats) = made.rewritten(&map, &RewriteOptions::default());
    assert_eq!((moved.times(), stats.rounded), (vec![Some(105_000), Some(1_005_007)], 0));
}

#[test]
fn a_time_before_the_zero_of_its_clock_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (folder.path().join("in.pftrace"), folder.path().join("out.pftrace"));
    std::fs::write(&input, Made::default().begin(5, None, "a").0).expect("written");
    let refused = Perfetto.rewrite(&input, &output, &RewriteOptions::default(), &mut |time| time - 6_000);
    let said = refused.expect_err("refused").to_string();
    assert!(said.contains("byte 2") && said.contains("before the zero of its clock, BOOTTIME"), "{said}");
    assert!(!output.exists());
}

#[test]
fn events_say_how_far_they_were_moved_if_asked() {
    let options = RewriteOptions { annotate: true, ..RewriteOptions::default() };
    let (moved, _) = Made::default().begin(500, None, "a").rewritten(&|time| time + 7_000, &options);
    let name = b"timestamp_correction_ns";
    let at = moved.0.windows(name.len()).position(|part| part == name).expect("the argument");
    assert_eq!(moved.0[at + name.len()..][..2], [(field::ARGUMENT_INTEGER << 3) as u8, 7]);
    assert_eq!(moved.times(), [Some(507)]);
}

#[test]
fn a_packet_may_state_a_snapshot_and_its_own_time_on_it() {
    // As Perfetto's library begins each sequence.
    let reading = |clock: u32, value: u64, is_incremental: bool| {
        let mut reading = Vec::new();
        put_number(&mut reading, field::CLOCK_ID, clock.into());
        put_number(&mut reading, field::CLOCK_TIME, value);
        put_number(&mut reading, field::CLOCK_IS_INCREMENTAL, is_incremental.into());
        reading
    };
    let begins = |boot: u64, own: u64| {
        let (mut snapshot, mut defaults) = (Vec::new(), Vec::new());
        put_bytes(&mut snapshot, field::SNAPSHOT_CLOCKS, &reading(BOOTTIME, boot, false));
        put_bytes(&mut snapshot, field::SNAPSHOT_CLOCKS, &reading(64, own, true));
        put_number(&mut defaults, field::PACKET_CLOCK, 64);
        Made::default().packet(|packet| {
            put_bytes(packet, field::PACKET_CLOCK_SNAPSHOT, &snapshot);
            put_number(packet, field::PACKET_TIME, 0);
            put_number(packet, field::PACKET_FLAGS, field::STATE_CLEARED);
            put_bytes(packet, field::PACKET_DEFAULTS, &defaults);
        })
    };
    let made = begins(5 * MS, 5 * MS).begin(700, None, "a").begin(300, None, "b");
    let maps: [&dyn Fn(Picoseconds) -> Picoseconds; 2] = [&|time| time + 9_000_000, &|time| time - 4_000_000];
    for map in maps {
        let (moved, _) = made.rewritten(map, &RewriteOptions::default());
        let boot = mapped(map, 5_000_000) as u64;
        assert_eq!(moved.0, begins(boot, boot).begin(700, None, "a").begin(300, None, "b").0);
    }
}

#[test]
fn packets_whose_state_was_lost_have_no_time_and_stay() {
    let needing = |made: Made, time: u64| {
        made.packet(|packet| {
            put_number(packet, field::PACKET_TIME, time);
            put_number(packet, field::PACKET_FLAGS, field::NEEDS_STATE);
            put_bytes(packet, field::PACKET_EVENT, b"");
        })
    };
    // A ring buffer begins in the middle of a sequence: this is a difference, not 24 500 ns after
    // boot.
    let made = needing(Made::default(), 24_500).begin(900 * MS, Some(BOOTTIME), "a");
    let facts = made.check(TraceClock::Boot, Some("BOOTTIME"), (900, 900));
    assert_eq!(facts.notes, ["1 packets refer to others that were lost and were not analysed"]);
    let (moved, stats) = made.rewritten(&|time| time + 1_000_000, &RewriteOptions::default());
    assert_eq!(moved.0, needing(Made::default(), 24_500).begin(900 * MS + 1_000, Some(BOOTTIME), "a").0);
    assert_eq!(stats.untimed, 1);
}

#[test]
fn snapshots_hold_for_the_times_that_follow_them_whatever_their_place_in_the_file() {
    // The service writes snapshots before the events that lie between them. The machine was
    // suspended for 1 s after the first.
    let made = Made::default().read(&[(BOOTTIME, 100 * MS), (MONOTONIC, 100 * MS)], None);
    let made = made.read(&[(BOOTTIME, 1_300 * MS), (MONOTONIC, 300 * MS)], None);
    let made = made.begin(200 * MS, Some(MONOTONIC), "a").begin(400 * MS, Some(MONOTONIC), "b");
    assert_eq!(made.times(), [Some(200_000_000), Some(1_400_000_000)]);
    let map = |time: Picoseconds| time + time / 20_000;
    let (moved, _) = made.rewritten(&map, &RewriteOptions::default());
    assert_eq!(moved.times(), [200_000_000, 1_400_000_000].map(|time| Some(mapped(&map, time))));
}

#[test]
fn any_pair_of_the_kernels_clock_converts_a_time_alike() {
    // Pairs are read after a bundle's events: the pair before a time stands in an earlier bundle.
    let made = Made::default().kernel(GLOBAL, &[31 * MS], &[], Some((40 * MS, 141 * MS)));
    let made = made.kernel(GLOBAL, &[400 * MS], &[], Some((500 * MS, 601 * MS)));
    assert_eq!(made.times(), [Some(132_000_000), Some(501_000_000)]);
    let map = |time: Picoseconds| time + 1_000_000_000_000_000 + time / 20_000;
    let (moved, _) = made.rewritten(&map, &RewriteOptions::default());
    assert_eq!(moved.times(), [132_000_000, 501_000_000].map(|time| Some(mapped(&map, time))));
    let shift = |boot: u64| mapped(&map, boot as i64) as u64 - boot;
    let expected = Made::default().kernel(
        GLOBAL,
        &[31 * MS + shift(132 * MS)],
        &[],
        Some((40 * MS + shift(141 * MS), 141 * MS + shift(141 * MS))),
    );
    let expected = expected.kernel(
        GLOBAL,
        &[400 * MS + shift(501 * MS)],
        &[],
        Some((500 * MS + shift(601 * MS), 601 * MS + shift(601 * MS))),
    );
    assert_eq!(moved.0, expected.0);
}

#[test]
fn a_clock_without_a_number_is_the_traces() {
    let made = Made::default().read(&[(BOOTTIME, 100 * MS), (REALTIME, 900 * MS)], Some(0)).begin(5 * MS, Some(0), "a");
    let (moved, _) = made.rewritten(&|time| time + 1_000_000, &RewriteOptions::default());
    assert_eq!(moved.times(), [Some(5_001_000)]);
}
