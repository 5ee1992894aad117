//! Tests of the data that every writer must preserve: all slices with their lengths, moments,
//! flows, arguments and the tree of tracks.
//!
//! Outputs are read back here by readers of our own (fields of protobuf, `serde_json`, the format
//! Kineto); other people's readers are in `bench/readers/perfetto_convert.py`. `benches/write.rs`
//! measures speed.

use std::collections::{BTreeMap, HashMap};

use probe_sync_estimate::series::{Knot, Segment, TimeMap};
use probe_sync_formats::chunk::{ArgRange, Flow, FlowEnd, Process, StringId, Track, TrackId, TrackKind, Value};
use probe_sync_formats::protobuf::{Fields, Value as Wire};
use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;

mod round_trip;

/// A slice as it was read back: track's path, start, end, name.
type Found = (String, i64, i64, String);

/// A host's process with a thread, and a device with a stream below it; once per rank, all of one
/// pid.
fn tracks(ranks: u32) -> Vec<Track> {
    let mut tracks = Vec::new();
    for rank in 0..ranks {
        let first = rank * 4;
        let process = Process { pid: 77, host: format!("host{rank}"), rank: Some(rank), guid: String::new() };
        let below = |parent, kind, name: &str| Track { parent: Some(TrackId(parent)), kind, name: name.into() };
        // The device stands before the process that it is below.
        tracks.push(below(first + 1, TrackKind::Agent, "GPU 0"));
        tracks.push(Track { parent: None, kind: TrackKind::Process(process), name: "train".into() });
        tracks.push(below(first + 1, TrackKind::Thread { tid: 78 }, "main"));
        tracks.push(below(first, TrackKind::Stream, "stream 7"));
    }
    tracks
}

fn chunk_of(slices: &[(u32, i64, i64, String)], flow: impl Fn(usize) -> Flow) -> Chunk {
    let mut chunk = Chunk::default();
    for (index, (track, start, length, name)) in slices.iter().enumerate() {
        let (name, category) = (chunk.strings.intern(name), chunk.strings.intern("c"));
        let key = chunk.strings.intern("index");
        chunk.args.key.push(key);
        chunk.args.value.push(Value::Integer(index as i64));
        chunk.slices.args.push(ArgRange { first: chunk.args.key.len() as u32 - 1, count: 1 });
        chunk.slices.track.push(TrackId(*track));
        chunk.slices.start_ns.push(*start);
        chunk.slices.end_ns.push(start + length);
        chunk.slices.name.push(name);
        chunk.slices.category.push(category);
        chunk.slices.flow.push(flow(index));
    }
    chunk
}

fn write_all(format: OutputFormat, chunks: &[Chunk]) -> (WriteReport, Vec<u8>) {
    let mut writer = open(format, Vec::new(), &Meta { base_ns: 1000, ..Meta::default() });
    chunks.iter().for_each(|chunk| writer.write(chunk).expect("written"));
    writer.finish().expect("finished")
}

/// Number of a field of a message.
fn number(message: &[u8], field: u32) -> Option<u64> {
    Fields::of(message).map(|found| found.expect("sound")).find(|found| found.number == field).map(|found| match found
        .value
    {
        Wire::Number(value) => value,
        other => panic!("{field}: {other:?}"),
    })
}

fn bytes(message: &[u8], field: u32) -> impl Iterator<Item = &[u8]> {
    Fields::of(message).map(|found| found.expect("sound")).filter(move |found| found.number == field).map(|found| {
        match found.value {
            Wire::Bytes(value) | Wire::Fixed(value) => value,
            other => panic!("{other:?}"),
        }
    })
}

fn text(message: &[u8], field: u32) -> Option<String> {
    bytes(message, field).next().map(|text| String::from_utf8(text.to_vec()).expect("UTF-8"))
}

/// A reader of what the Perfetto writer writes, as the protocol demands it: packets by sequence,
/// sorted by time.
#[derive(Default)]
struct PerfettoReader {
    /// Name and parent.
    tracks: BTreeMap<u64, (String, Option<u64>)>,
    names: HashMap<(u64, u64), String>,
    clocks: HashMap<u64, i64>,
    /// By machine: the last offset that was stated, and how many were.
    offsets: BTreeMap<u64, (i64, u64)>,
    /// Time, begins, track, name.
    events: Vec<(i64, bool, u64, String)>,
    flows: Vec<u64>,
    packets: u64,
}

impl PerfettoReader {
    fn packet(&mut self, packet: &[u8]) {
        let sequence = number(packet, 10).expect("every packet is of a sequence");
        let machine = number(packet, 98);
        self.packets += 1;
        assert!(self.packets > 1 || machine.is_none(), "the first packet says on which machine the trace was recorded");
        if Fields::of(packet).count() == 1 {
            assert_eq!(self.packets, 1, "nothing else says nothing");
            return;
        }
        if let Some(sync) = bytes(packet, 107).next() {
            return self.synchronize(machine.expect("of a machine"), sync);
        }
        if let Some(descriptor) = bytes(packet, 60).next() {
            // The track above all orders the processes, and has no name.
            if number(descriptor, 1) == Some(0) {
                assert_eq!((number(descriptor, 19), self.tracks.is_empty()), (Some(1), true));
                return;
            }
            let named = bytes(descriptor, 3).next().and_then(|process| text(process, 6));
            let named = named.or_else(|| bytes(descriptor, 4).next().and_then(|thread| text(thread, 5)));
            let name = named.or_else(|| text(descriptor, 2)).expect("every track has a name");
            self.tracks.insert(number(descriptor, 1).expect("a uuid"), (name, number(descriptor, 5)));
            return;
        }
        if let Some(snapshot) = bytes(packet, 6).next() {
            let Some(clock) = bytes(snapshot, 1).find(|clock| number(clock, 1) == Some(64)) else {
                assert!(machine.is_none() && self.offsets.is_empty(), "the first packet, of the trace's own machine");
                return;
            };
            self.clocks.insert(sequence, number(clock, 2).expect("a time") as i64);
            self.names.retain(|(of, _), _| *of != sequence);
            return;
        }
        for interned in bytes(packet, 12) {
            for name in bytes(interned, 2) {
                let id = number(name, 1).expect("an id");
                self.names.insert((sequence, id), text(name, 2).expect("a name"));
            }
        }
        let raw = number(packet, 8).expect("a time") as i64;
        let time = if number(packet, 58) == Some(6) {
            raw
        } else {
            let clock = self.clocks.get_mut(&sequence).expect("a clock before the first event");
            *clock += raw;
            *clock
        };
        let time = time - machine.map_or(0, |machine| self.offsets[&machine].0);
        let event = bytes(packet, 11).next().expect("an event");
        let begins = number(event, 9) == Some(1);
        let name = number(event, 10).map_or_else(String::new, |id| self.names[&(sequence, id)].clone());
        self.flows.extend(bytes(event, 47).map(|id| u64::from_le_bytes(id.try_into().expect("eight bytes"))));
        self.events.push((time, begins, number(event, 11).expect("a track"), name));
    }

    /// What trace processor makes of the pairs of a packet: the mean offset of neighbours.
    fn synchronize(&mut self, machine: u64, sync: &[u8]) {
        let time = |pair: &[u8], side: u32| {
            let snapshot = bytes(pair, side).next().expect("a snapshot");
            let clock = bytes(snapshot, 1).find(|clock| number(clock, 1) == Some(6)).expect("BOOTTIME");
            number(clock, 2).filter(|time| *time > 0).expect("a time") as i64
        };
        let pairs: Vec<[i64; 2]> = bytes(sync, 1).map(|pair| [time(pair, 2), time(pair, 3)]).collect();
        let [[own, reference], [own_again, reference_again]] = pairs[..] else { panic!("two pairs: {pairs:?}") };
        let means = [(own + own_again) / 2 - reference, own_again - (reference + reference_again) / 2];
        let known = self.offsets.entry(machine).or_default();
        *known = ((means[0] + means[1]) / 2, known.1 + 1);
    }

    /// The track's names from the process on; lanes are called as their row.
    fn path(&self, mut track: u64) -> String {
        let mut names = Vec::new();
        loop {
            let (name, parent) = &self.tracks[&track];
            names.push(name.split(" (lane").next().expect("a name").to_owned());
            match parent {
                Some(parent) => track = *parent,
                None => break,
            }
        }
        names.dedup();
        names.reverse();
        names.join("/")
    }

    fn slices(mut self) -> Vec<Found> {
        self.events.sort_by_key(|event| event.0);
        let (mut open, mut found) = (HashMap::<u64, Vec<(i64, String)>>::new(), Vec::new());
        for (time, begins, track, name) in &self.events {
            let stack = open.entry(*track).or_default();
            if *begins {
                stack.push((*time, name.clone()));
            } else {
                let (start, name) = stack.pop().expect("something is open");
                found.push((self.path(*track), start, *time, name));
            }
        }
        assert!(open.values().all(Vec::is_empty), "all were ended");
        found.sort();
        found
    }
}

fn read_perfetto(trace: &[u8]) -> PerfettoReader {
    let mut reader = PerfettoReader::default();
    bytes(trace, 1).for_each(|packet| reader.packet(packet));
    reader
}

fn read_chrome(trace: &[u8]) -> Vec<Found> {
    let document: Json = serde_json::from_slice(trace).expect("JSON");
    let base = document["baseTimeNanoseconds"].as_i64().expect("a base");
    let events = document["traceEvents"].as_array().expect("events");
    let (mut processes, mut threads) = (HashMap::new(), HashMap::new());
    for event in events.iter().filter(|event| event["ph"] == "M") {
        let name =
            event["args"]["name"].as_str().unwrap_or_default().split(" (lane").next().expect("a name").to_owned();
        match event["name"].as_str() {
            Some("process_name") => {
                assert!(processes.insert(event["pid"].as_i64(), name).is_none(), "one pid, one process");
            }
            Some("thread_name") => {
                assert!(threads.insert((event["pid"].as_i64(), event["tid"].as_i64()), name).is_none());
            }
            _ => {}
        }
    }
    let ns = |number: &Json| (number.as_f64().expect("a number") * 1000.0).round() as i64;
    let slice = |event: &Json| {
        let (pid, tid) = (event["pid"].as_i64(), event["tid"].as_i64());
        let path = format!("{}/{}", processes[&pid], threads.get(&(pid, tid)).map_or("", String::as_str));
        let start = base + ns(&event["ts"]);
        (path, start, start + ns(&event["dur"]), event["name"].as_str().expect("a name").to_owned())
    };
    let mut found: Vec<Found> = events.iter().filter(|event| event["ph"] == "X").map(slice).collect();
    found.sort();
    found
}

fn expected(slices: &[(u32, i64, i64, String)], between: &str) -> Vec<Found> {
    let path = |track: u32| {
        let process = format!("rank {rank} · host{rank} · train 77", rank = track / 4);
        let below = if track % 4 == 2 { "main".into() } else { format!("GPU 0{between}stream 7") };
        format!("{process}/{below}")
    };
    let found = slices.iter().map(|(track, start, length, name)| (path(*track), *start, start + length, name.clone()));
    let mut found: Vec<Found> = found.collect();
    found.sort();
    found
}

proptest! {
    #[test]
    fn every_slice_is_read_back_whole(
        mut slices in proptest::collection::vec(
            (prop_oneof![Just(2_u32), Just(3), Just(6), Just(7)], 1000_i64..1060, 0_i64..30, "[a-c\"\\\\\n\u{e9}]{0,2}"),
            0..60,
        ),
        sort: bool,
        cut in 0_usize..60,
    ) {
        if sort {
            slices.sort_by_key(|slice| (slice.1, std::cmp::Reverse(slice.2)));
        }
        let (one, two) = slices.split_at(cut.min(slices.len()));
        let mut chunks = vec![chunk_of(one, |_| Flow::default()), chunk_of(two, |_| Flow::default())];
        chunks[0].tracks = tracks(2);
        let (report, trace) = write_all(OutputFormat::Perfetto, &chunks);
        prop_assert_eq!(report.slices, slices.len() as u64);
        prop_assert_eq!(report.bytes, trace.len() as u64);
        prop_assert_eq!(read_perfetto(&trace).slices(), expected(&slices, "/"));
        let (report, trace) = write_all(OutputFormat::ChromeJson, &chunks);
        prop_assert_eq!(report.slices, slices.len() as u64);
        prop_assert_eq!(read_chrome(&trace), expected(&slices, " "));
    }
}

#[test]
fn ends_of_flows_stand_on_the_innermost_slice_that_begins_then() {
    let slices = [(2, 1000, 50, "outer"), (2, 1000, 5, "launch"), (3, 1010, 5, "kernel"), (3, 1020, 5, "next")];
    let slices = slices.map(|(track, start, length, name)| (track, start, length, name.to_owned()));
    let own = |index: usize| Flow { id: if index == 3 { 9 } else { 0 }, end: FlowEnd::In };
    let mut chunk = chunk_of(&slices, own);
    chunk.tracks = tracks(1);
    let ends =
        [(2, 1000, 9, FlowEnd::Out), (3, 1010, 9, FlowEnd::In), (3, 1011, 9, FlowEnd::In), (2, 1030, 9, FlowEnd::In)];
    for (track, time, id, end) in ends {
        chunk.flows.track.push(TrackId(track));
        chunk.flows.time_ns.push(time);
        chunk.flows.flow.push(Flow { id, end });
    }
    for format in [OutputFormat::Perfetto, OutputFormat::ChromeJson] {
        let (report, trace) = write_all(format, std::slice::from_ref(&chunk));
        assert_eq!((report.flow_ends, report.unbound_flow_ends), (5, 2), "{format:?}");
        if format == OutputFormat::Perfetto {
            assert_eq!(read_perfetto(&trace).flows, [9, 9, 9]);
            let with_flow =
                bytes(&trace, 1).filter(|packet| bytes(packet, 11).any(|event| bytes(event, 47).count() > 0));
            let track_of = |packet: &[u8]| bytes(packet, 11).next().and_then(|event| number(event, 10));
            assert_eq!(
                with_flow.map(track_of).collect::<Vec<_>>(),
                [Some(2), Some(3), Some(4)],
                "names in the order of use"
            );
        } else {
            let document: Json = serde_json::from_slice(&trace).expect("JSON");
            let events = document["traceEvents"].as_array().expect("events");
            let phases: Vec<&str> =
                events.iter().filter_map(|event| event["ph"].as_str()).filter(|ph| "sf".contains(ph)).collect();
            assert_eq!(phases, ["s", "f", "f"]);
        }
    }
}

#[test]
fn moments_values_and_arguments_are_read_back() {
    let mut chunk = chunk_of(&[(2, 1500, 5, "a".into())], |_| Flow::default());
    chunk.tracks = tracks(1);
    chunk.tracks.push(Track {
        parent: Some(TrackId(0)),
        kind: TrackKind::Counter { unit: "B".into() },
        name: "bytes".into(),
    });
    let json = chunk.strings.push("{\"a\":[1,\"x\ny\",null]}");
    let (name, odd) = (chunk.strings.intern("moment"), chunk.strings.push("tab\there \"quoted\" \u{1}"));
    let values = [
        Value::Integer(i64::MIN),
        Value::Integer(-3),
        Value::Float(0.25),
        Value::Float(f64::NAN),
        Value::Boolean(true),
        Value::Text(odd),
        Value::Json(json),
    ];
    let first = chunk.args.key.len() as u32;
    for (index, value) in values.into_iter().enumerate() {
        let key = chunk.strings.intern(&format!("k{index}"));
        chunk.args.key.push(key);
        chunk.args.value.push(value);
    }
    chunk.instants.track.push(TrackId(2));
    chunk.instants.time_ns.push(1501);
    chunk.instants.name.push(name);
    chunk.instants.category.push(StringId::EMPTY);
    chunk.instants.args.push(ArgRange { first, count: values.len() as u32 });
    chunk.counters.track.push(TrackId(4));
    chunk.counters.time_ns.push(1502);
    chunk.counters.value.push(2.5);
    let (report, trace) = write_all(OutputFormat::ChromeJson, std::slice::from_ref(&chunk));
    assert_eq!((report.instants, report.counters), (1, 1));
    let document: Json = serde_json::from_slice(&trace).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    let of = |phase: &str| events.iter().find(|event| event["ph"] == phase).expect(phase);
    assert_eq!(
        of("i")["args"],
        serde_json::json!({
            "k0": "-9223372036854775808", "k1": -3, "k2": 0.25, "k3": "NaN", "k4": true, "k5": "tab\there \"quoted\" \u{1}",
            "k6": {"a": [1, "x\ny", null]},
        })
    );
    assert_eq!((&of("C")["args"]["value"], of("C")["ts"].as_f64()), (&serde_json::json!(2.5), Some(0.502)));
    let (report, trace) = write_all(OutputFormat::Perfetto, &[chunk]);
    assert_eq!((report.instants, report.counters), (1, 1));
    let events: Vec<&[u8]> = bytes(&trace, 1).flat_map(|packet| bytes(packet, 11)).collect();
    let moment = events.iter().find(|event| number(event, 9) == Some(3)).expect("the moment");
    let annotations: Vec<&[u8]> = bytes(moment, 4).collect();
    assert_eq!(
        annotations.iter().map(|one| number(one, 4)).collect::<Vec<_>>()[..2],
        [Some(i64::MIN as u64), Some(-3_i64 as u64)]
    );
    assert_eq!(
        (number(annotations[4], 2), text(annotations[5], 6)),
        (Some(1), Some("tab\there \"quoted\" \u{1}".into()))
    );
    assert_eq!(text(annotations[6], 6), Some("{\"a\":[1,\"x\ny\",null]}".into()));
    let value = events.iter().find(|event| number(event, 9) == Some(4)).expect("the value");
    assert_eq!(bytes(value, 44).next(), Some(&2.5_f64.to_le_bytes()[..]));
}

#[test]
fn many_texts_do_not_grow_the_memory() {
    let mut writer = open(OutputFormat::Perfetto, Vec::new(), &Meta::default());
    let mut total = 0;
    for part in 0..40_u32 {
        let slices: Vec<(u32, i64, i64, String)> = (0..100)
            .map(|index| (2, i64::from(part * 1000 + index), 0, format!("{part} {index} {}", "x".repeat(10_000))))
            .collect();
        total += slices.len();
        let mut chunk = chunk_of(&slices, |_| Flow::default());
        if part == 0 {
            chunk.tracks = tracks(1);
        }
        writer.write(&chunk).expect("written");
    }
    let (_, trace) = writer.finish().expect("finished");
    let begun = bytes(&trace, 1).filter(|packet| bytes(packet, 6).count() > 0).count();
    assert!(begun > 1, "40 MB of names were never forgotten");
    assert_eq!(read_perfetto(&trace).slices().len(), total);
}

#[test]
fn an_output_that_fails_and_a_time_before_zero_are_errors() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("full"))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for format in [OutputFormat::Perfetto, OutputFormat::ChromeJson, OutputFormat::Kineto, OutputFormat::XSpace] {
        let mut writer = open(format, Full, &Meta::default());
        let mut chunk = chunk_of(&[(2, 5, 5, "a".into())], |_| Flow::default());
        chunk.tracks = tracks(1);
        writer.write(&chunk).expect("it is in the buffer");
        assert!(matches!(writer.finish(), Err(Error::Sink { .. })), "{format:?}");
    }
    let mut chunk = chunk_of(&[(2, -5, 5, "a".into())], |_| Flow::default());
    chunk.tracks = tracks(1);
    let refused = open(OutputFormat::Perfetto, Vec::new(), &Meta::default()).write(&chunk).expect_err("before zero");
    assert!(
        refused.to_string().contains("slices: row 0: a Perfetto trace cannot contain a time before the clock's zero"),
        "{refused}"
    );
    chunk.slices.end_ns[0] = 60 * 24 * 3600 * 1_000_000_000;
    let refused = open(OutputFormat::XSpace, Vec::new(), &Meta::default()).write(&chunk).expect_err("too far");
    assert!(refused.to_string().contains("more than 53 days from the first event"), "{refused}");
}

/// Perfetto takes all processes of number 0 for one, under the name that was written last.
#[test]
fn processes_of_unknown_pid_are_groups_of_their_own() {
    let process = |rank: u32| {
        let process = Process { host: "gpu-07".into(), rank: Some(rank), ..Process::default() };
        Track { parent: None, kind: TrackKind::Process(process), name: "/host:CPU".into() }
    };
    let thread = |parent: u32| {
        let kind = TrackKind::Thread { tid: 5 };
        Track { parent: Some(TrackId(parent)), kind, name: "python".into() }
    };
    let mut chunk = chunk_of(&[(2, 1000, 5, "a".into()), (3, 1000, 5, "b".into())], |_| Flow::default());
    chunk.tracks = vec![process(0), process(1), thread(0), thread(1)];
    let (_, trace) = write_all(OutputFormat::Perfetto, &[chunk]);
    let described = bytes(&trace, 1).filter_map(|packet| bytes(packet, 60).next());
    let numbered = described.filter(|descriptor| bytes(descriptor, 3).chain(bytes(descriptor, 4)).next().is_some());
    assert_eq!(numbered.count(), 0);
    let rows: Vec<String> = read_perfetto(&trace).slices().into_iter().map(|(path, ..)| path).collect();
    assert!(
        rows[0].contains("rank 0 · gpu-07 · /host:CPU") && rows[1].contains("rank 1 · gpu-07 · /host:CPU"),
        "{rows:?}"
    );
}

/// A map with these knots: time and correction, ns.
fn map_of(knots: &[(i64, i64)]) -> TimeMap {
    let ps = |ns: i64| i128::from(ns) * 1000;
    let knots =
        knots.iter().map(|&(at, correction)| Knot { at_ps: ps(at), correction_ps: ps(correction), sigma_ns: 10.0 });
    TimeMap::new(&[Segment { knots: knots.collect(), ..Segment::default() }]).expect("usable knots")
}

#[test]
fn machines_keep_their_clocks_and_state_how_these_differ() {
    // Fast and slow by 1000 ppm, and far from the reference.
    let maps = [
        map_of(&[(5_000_000, 4_000_000), (105_000_000, 4_100_000)]),
        map_of(&[(9_000_000_000, 8_000_000_000), (9_100_000_000, 7_999_900_000)]),
    ];
    let mut writer = open(OutputFormat::Perfetto, Vec::new(), &Meta::default());
    let mut slices = Vec::new();
    for (rank, map) in (0_u32..).zip(&maps) {
        let machine = Machine { id: rank + 1, to_reference: map.clone() };
        writer.on_machine(Some(&machine)).expect("written");
        // Calls that follow each other at once, others inside, and pauses.
        let first = if rank == 0 { 5_000_000 } else { 9_000_000_000 };
        let own: Vec<_> = (0..2000_i64)
            .map(|call| (rank * 4 + 2, first + call * 400 + call / 10 * 10_000, 400 - call % 2 * 390, "a".to_owned()))
            .collect();
        let mut chunk = chunk_of(&own, |_| Flow::default());
        chunk.tracks = if rank == 0 { tracks(2) } else { Vec::new() };
        writer.write(&chunk).expect("written");
        let mapped = |ns: i64| (map.map(i128::from(ns) * 1000).time_ps / 1000) as i64;
        slices.extend(
            own.into_iter().map(|(track, start, length, name)| {
                (track, mapped(start), mapped(start + length) - mapped(start), name)
            }),
        );
    }
    let (report, trace) = writer.finish().expect("finished");
    let reader = read_perfetto(&trace);
    assert_eq!(reader.offsets.values().map(|known| known.1).sum::<u64>(), report.clock_pairs);
    assert!(report.clock_pairs > 100 && report.clock_pairs < 4000, "{report:?}");
    assert!((1..=40).contains(&report.clock_off_ns), "{report:?}");
    let (found, expected) = (reader.slices(), expected(&slices, "/"));
    assert_eq!(found.len(), expected.len());
    let mut worst = 0;
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((&found.0, &found.3), (&expected.0, &expected.3));
        worst = worst.max((found.1 - expected.1).abs()).max((found.2 - expected.2).abs());
    }
    // The map is rounded to a nanosecond at either side.
    assert!(
        worst >= report.clock_off_ns as i64 - 1 && worst <= report.clock_off_ns as i64 + 1,
        "{worst} ns, {report:?}"
    );
}

#[test]
fn a_machine_is_refused_where_it_cannot_be() {
    let machine = |id| Machine { id, to_reference: TimeMap::identity() };
    let refused = |format, id| {
        let mut writer = open(format, Vec::new(), &Meta::default());
        writer.on_machine(Some(&machine(id))).expect_err("refused").to_string()
    };
    assert!(refused(OutputFormat::Perfetto, 0).contains("number the others from 1"));
    assert!(refused(OutputFormat::ChromeJson, 1).contains("JSON supports only one clock"));
    assert!(refused(OutputFormat::Kineto, 1).contains("JSON supports only one clock"));
    assert!(refused(OutputFormat::XSpace, 1).contains("an XSpace supports only one clock"));
    // A time of its own clock that is before the zero of the trace's.
    let mut writer = open(OutputFormat::Perfetto, Vec::new(), &Meta::default());
    let to_reference = map_of(&[(1000, 2000), (9000, 2000)]);
    writer.on_machine(Some(&Machine { id: 1, to_reference })).expect("written");
    let mut chunk = chunk_of(&[(2, 1500, 5, "a".into())], |_| Flow::default());
    chunk.tracks = tracks(1);
    let said = writer.write(&chunk).expect_err("refused").to_string();
    assert!(said.contains("a time of 1500 ns on the clock of machine 1 is before the zero"), "{said}");
}
