//! Tests that this crate's own readers accept the output of the single-process writers, Kineto's
//! JSON and XSpace.
//!
//! Other people's readers are in `bench/readers`.

use probe_sync_alignment::{Request, calibrate, check};
use probe_sync_formats::model::TraceFacts;
use probe_sync_formats::{ChunkOptions, FactOptions, Kineto, TraceFormat, WantedArgs, XSpace, quarter_before_ns};
use proptest::prelude::*;

use super::*;

const FORMATS: [(OutputFormat, &dyn TraceFormat, &str); 2] =
    [(OutputFormat::Kineto, &Kineto, "a.pt.trace.json"), (OutputFormat::XSpace, &XSpace, "a.xplane.pb")];
const START_NS: i64 = 1_795_187_183_203_286_272;

/// A slice as it was read: row, start, end, name, category, arguments.
type Read = (String, i64, i64, String, String, Vec<String>);

fn file(bytes: &[u8], name: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).expect("writable");
    (folder, path)
}

fn facts(format: &dyn TraceFormat, bytes: &[u8], name: &str) -> TraceFacts {
    let (_folder, path) = file(bytes, name);
    format.read_facts(&path, &FactOptions::default()).expect("our own file")
}

/// All slices and moments of a file, and the labels of its processes.
fn read(format: &dyn TraceFormat, bytes: &[u8], name: &str) -> (Vec<Read>, Vec<String>, u64) {
    let (_folder, path) = file(bytes, name);
    let (mut raw, mut tracks, mut flows) = (Vec::new(), Vec::new(), 0);
    let mut sink = |chunk: &Chunk| {
        let Chunk { strings, slices, instants, args, .. } = chunk;
        let told = |range: ArgRange| -> Vec<String> {
            let told = |index: u32| {
                let value = match args.value[index as usize] {
                    Value::Text(id) | Value::Json(id) => strings.text(id).to_owned(),
                    other => format!("{other:?}"),
                };
                format!("{}={value}", strings.text(args.key[index as usize]))
            };
            (range.first..range.first + range.count).map(told).collect()
        };
        for row in 0..slices.track.len() {
            let (name, category) = (strings.text(slices.name[row]), strings.text(slices.category[row]));
            let span = (slices.start_ns[row], slices.end_ns[row]);
            raw.push((slices.track[row], span, name.to_owned(), category.to_owned(), told(slices.args[row])));
        }
        for row in 0..instants.track.len() {
            let (name, category) = (strings.text(instants.name[row]), strings.text(instants.category[row]));
            let span = (instants.time_ns[row], instants.time_ns[row]);
            raw.push((instants.track[row], span, name.to_owned(), category.to_owned(), told(instants.args[row])));
        }
        flows += chunk.flows.track.len() as u64;
        tracks.extend(chunk.tracks.iter().cloned());
        Ok(())
    };
    format
        .read_chunks(
            &path,
            &ChunkOptions { args: WantedArgs::All, ..ChunkOptions::default() },
            &mut |time| time,
            &mut sink,
        )
        .expect("our own file");
    let row = |track: TrackId| -> String {
        let track: &Track = &tracks[track.0 as usize];
        let above = track.parent.map(|parent| tracks[parent.0 as usize].name.clone()).unwrap_or_default();
        format!("{above}/{}", track.name)
    };
    let mut found: Vec<Read> = raw
        .into_iter()
        .map(|(track, (start, end), name, category, args)| (row(track), start, end, name, category, args))
        .collect();
    found.sort();
    let processes = tracks.iter().filter(|track| matches!(track.kind, TrackKind::Process(_) | TrackKind::Agent));
    (found, processes.map(|track| track.name.clone()).collect(), flows)
}

fn told(format: OutputFormat, chunks: &[Chunk], meta: &Meta) -> (WriteReport, Vec<u8>) {
    let mut writer = open(format, Vec::new(), meta);
    chunks.iter().for_each(|chunk| writer.write(chunk).expect("written"));
    writer.finish().expect("finished")
}

proptest! {
    #[test]
    fn slices_come_back_to_the_nanosecond(
        raw in proptest::collection::vec((2_u32..4, 0_i64..2_000_000_000, 0_i64..900, "[a-z\"\\\\é\n]{1,5}"), 1..60),
        based: bool,
    ) {
        let slices: Vec<_> = raw.iter().map(|(track, start, length, name)| (*track, START_NS + start, *length, name.clone())).collect();
        let mut chunk = chunk_of(&slices, |_| Flow::default());
        chunk.tracks = tracks(1);
        let meta = Meta { base_ns: if based { START_NS - 5 } else { 0 }, ..Meta::default() };
        for (format, reader, name) in FORMATS {
            let (report, bytes) = told(format, std::slice::from_ref(&chunk), &meta);
            prop_assert_eq!(report.bytes, bytes.len() as u64);
            let (found, _, _) = read(reader, &bytes, name);
            let mut found: Vec<_> = found.into_iter().map(|(_, start, end, name, ..)| (start, end, name)).collect();
            let mut expected: Vec<_> = slices.iter().map(|(_, start, length, name)| (*start, start + length, name.clone())).collect();
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
        }
    }
}

/// A call that launches, what it launched on a device, a moment and a value.
fn launch() -> Chunk {
    let slices = [
        (2, START_NS + 100, 900, "forward"),
        (2, START_NS + 200, 50, "hipLaunchKernel"),
        (3, START_NS + 400, 300, "Cijk"),
    ];
    let mut chunk = chunk_of(&slices.map(|(track, at, length, name)| (track, at, length, name.to_owned())), |index| {
        let end = if index == 1 { FlowEnd::Out } else { FlowEnd::In };
        Flow { id: if index > 0 { u64::MAX - 3 } else { 0 }, end }
    });
    for (row, category) in ["function", "runtime", ""].into_iter().enumerate() {
        chunk.slices.category[row] = chunk.strings.intern(category);
    }
    let bytes = chunk.strings.intern("Bytes");
    chunk.args.key.push(bytes);
    chunk.args.value.push(Value::Integer(4096));
    chunk.instants.track.push(TrackId(2));
    chunk.instants.time_ns.push(START_NS + 300);
    chunk.instants.name.push(chunk.strings.intern("[memory]"));
    chunk.instants.category.push(chunk.strings.intern("memory"));
    chunk.instants.args.push(ArgRange { first: chunk.args.key.len() as u32 - 1, count: 1 });
    chunk.tracks = tracks(1);
    chunk.tracks.push(Track {
        parent: Some(TrackId(1)),
        kind: TrackKind::Counter { unit: "B".into() },
        name: "allocated".into(),
    });
    chunk.counters.track.push(TrackId(4));
    chunk.counters.time_ns.push(START_NS + 300);
    chunk.counters.value.push(4096.0);
    chunk
}

#[test]
fn a_kineto_trace_says_what_its_viewers_look_for() {
    let meta = Meta { world_size: Some(8), backend: Some("nccl".into()), ..Meta::default() };
    let (report, bytes) = told(OutputFormat::Kineto, &[launch()], &meta);
    assert_eq!((report.slices, report.instants, report.counters, report.flow_ends), (3, 1, 1, 2));
    let text = String::from_utf8(bytes.clone()).expect("UTF-8");
    let head = "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, \"world_size\": 8}";
    assert!(text.find(head).expect("in the file") < 100, "{text}");
    let document: Json = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["host_name"], "host0");
    assert_eq!(document["baseTimeNanoseconds"].as_i64(), Some(quarter_before_ns(START_NS)));
    let events = document["traceEvents"].as_array().expect("events");
    let check = |phase: &str, name: &str, expected: Json| {
        let found: Vec<&Json> = events.iter().filter(|event| event["ph"] == phase && event["name"] == name).collect();
        assert_eq!(found.len(), 1, "{phase} {name}");
        for (key, value) in expected.as_object().expect("members") {
            assert_eq!(found[0][key], *value, "{phase} {name} {key}");
        }
    };
    check("X", "forward", serde_json::json!({"cat": "cpu_op", "pid": 77, "tid": 78, "dur": 0.9}));
    check("X", "hipLaunchKernel", serde_json::json!({"cat": "cuda_runtime", "args": {"index": 1}}));
    let args = serde_json::json!({"index": 2, "device": 0, "stream": 7});
    check("X", "Cijk", serde_json::json!({"cat": "kernel", "pid": 0, "tid": 7, "args": args}));
    check("i", "[memory]", serde_json::json!({"cat": "cpu_instant_event", "s": "t", "args": {"Bytes": 4096}}));
    check("C", "allocated", serde_json::json!({"pid": 77, "args": {"value": 4096.0}}));
    check("s", "ac2g", serde_json::json!({"cat": "ac2g", "id": 1, "pid": 77}));
    check("f", "ac2g", serde_json::json!({"cat": "ac2g", "id": 1, "pid": 0, "bp": "e"}));
    let labels: Vec<&Json> =
        events.iter().filter(|event| event["name"] == "process_labels").map(|event| &event["args"]["labels"]).collect();
    assert_eq!(labels, ["GPU 0", "CPU"]);
    let (found, processes, flows) = read(&Kineto, &bytes, "a.pt.trace.json");
    assert_eq!((found.len(), flows), (4, 2));
    assert_eq!(processes, ["train", "GPU 0"]);
    assert!(found.iter().any(|slice| slice.0 == "GPU 0/stream 7" && slice.3 == "Cijk"), "{found:?}");
}

#[test]
fn an_xspace_says_what_its_viewers_look_for() {
    let (report, bytes) = told(OutputFormat::XSpace, &[launch()], &Meta::default());
    assert_eq!((report.slices, report.instants, report.counters, report.flow_ends), (3, 1, 1, 2));
    let (found, planes, _) = read(&XSpace, &bytes, "a.xplane.pb");
    assert_eq!(planes, ["/device:GPU:0", "/host:CPU"]);
    let rows: Vec<(&str, &str, &[String])> =
        found.iter().map(|(row, _, _, name, _, args)| (row.as_str(), name.as_str(), args.as_slice())).collect();
    let args = |told: &[&str]| told.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let flow = |end: i64| format!("flow={:?}", Value::Integer(1 << 2 | end));
    let expected = [
        ("/device:GPU:0/stream 7", "Cijk", args(&["index=Integer(2)", &flow(1)])),
        ("/host:CPU/_counters_", "allocated", args(&["counter_value=Float(4096.0)"])),
        ("/host:CPU/main", "forward", args(&["category=function", "index=Integer(0)"])),
        ("/host:CPU/main", "hipLaunchKernel", args(&["category=runtime", "index=Integer(1)", &flow(2)])),
        ("/host:CPU/main", "[memory]", args(&["category=memory", "Bytes=Integer(4096)"])),
    ];
    assert_eq!(rows, expected.iter().map(|(row, name, args)| (*row, *name, args.as_slice())).collect::<Vec<_>>());
}

#[test]
fn whose_a_trace_is_and_on_which_clock_comes_back() {
    let metadata = vec![("probe_sync_timeline".to_owned(), "system clock of node 0".to_owned())];
    let meta = Meta { world_size: Some(8), metadata, ..Meta::default() };
    for (format, reader, name) in FORMATS {
        let mut chunk = launch();
        let TrackKind::Process(process) = &mut chunk.tracks[1].kind else { panic!("the process") };
        process.rank = Some(3);
        let facts = facts(reader, &told(format, &[chunk], &meta).1, name);
        let identity = &facts.identity;
        assert_eq!((identity.rank, identity.world_size), (Some(3), Some(8)), "{format:?}");
        assert_eq!(identity.hostname.as_deref(), Some("host0"), "{format:?}");
        assert_eq!(facts.aligned_to.as_deref(), Some("system clock of node 0"), "{format:?}");
        let (first, last) = facts.span.expect("events");
        assert_eq!(
            (first / 1000, last / 1000),
            (i128::from(START_NS + 100), i128::from(START_NS + 1000)),
            "{format:?}"
        );
        assert!(!facts.merged && facts.since_boot.is_empty(), "{format:?}");
    }
}

#[test]
fn several_processes_are_told_apart() {
    let slices: Vec<_> = (0..3).map(|rank| (rank * 4 + 2, START_NS, 9, "a".to_owned())).collect();
    let kernels = (0..3).map(|rank| (rank * 4 + 3, START_NS, 9, "k".to_owned()));
    let mut chunk = chunk_of(&slices.into_iter().chain(kernels).collect::<Vec<_>>(), |_| Flow::default());
    chunk.tracks = tracks(3);
    let (_, bytes) = told(OutputFormat::XSpace, std::slice::from_ref(&chunk), &Meta::default());
    let (mut found, ..) = read(&XSpace, &bytes, "a.xplane.pb");
    found.dedup_by(|one, other| one.0 == other.0);
    assert_eq!(found.len(), 6, "each on a row of its own: {found:?}");
    let (_, bytes) = told(OutputFormat::Kineto, &[chunk], &Meta::default());
    let document: Json = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(document["distributedInfo"], Json::Null, "no rank is that of all");
    let events = document["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X");
    let rows: std::collections::BTreeSet<_> =
        events.map(|event| (event["pid"].as_i64(), event["tid"].as_i64())).collect();
    assert_eq!(rows.len(), 6);
}

/// A collective as a recorder states it, on a rank of four.
fn all_reduce(rank: u32, sequence: i64, start: i64, end: i64) -> Chunk {
    let mut chunk = chunk_of(&[(2, start, end - start, "all_reduce".into())], |_| Flow::default());
    chunk.tracks = tracks(1);
    if let TrackKind::Process(process) = &mut chunk.tracks[1].kind {
        process.rank = Some(rank);
    }
    chunk.slices.category[0] = chunk.strings.intern("collective");
    let mut arg = |key: &str, value: Value| {
        let key = chunk.strings.intern(key);
        chunk.args.key.push(key);
        chunk.args.value.push(value);
    };
    arg("Seq", Value::Integer(sequence));
    arg("Group size", Value::Integer(2));
    let texts = [
        ("Collective name", "allreduce"),
        ("Process Group Name", "dp"),
        ("Process Group Ranks", "[0, 1]"),
        ("dtype", "Float"),
    ];
    for (key, text) in texts {
        let (key, text) = (chunk.strings.intern(key), chunk.strings.push(text));
        chunk.args.key.push(key);
        chunk.args.value.push(Value::Text(text));
    }
    chunk.slices.args[0] = ArgRange { first: 1, count: chunk.args.key.len() as u32 - 1 };
    chunk
}

#[test]
fn whole_numbers_of_64_bits_come_back() {
    let mut chunk = chunk_of(&[(2, START_NS, 5, "a".to_owned())], |_| Flow::default());
    chunk.tracks = tracks(1);
    let values = [Value::Unsigned(17_093_776_592_125_785_438), Value::Unsigned(u64::MAX), Value::Integer(i64::MIN)];
    let first = chunk.args.key.len() as u32;
    for value in values {
        let key = chunk.strings.intern("Comms Id");
        chunk.args.key.push(key);
        chunk.args.value.push(value);
    }
    chunk.slices.args[0] = ArgRange { first, count: values.len() as u32 };
    let expected = values.map(|value| format!("Comms Id={value:?}"));
    for (format, reader, name) in FORMATS {
        let (_, bytes) = told(format, std::slice::from_ref(&chunk), &Meta::default());
        let mut args = read(reader, &bytes, name).0.swap_remove(0).5;
        args.retain(|arg| arg.starts_with("Comms Id"));
        assert_eq!(args, expected, "{name}");
    }
    let (_, json) = told(OutputFormat::ChromeJson, std::slice::from_ref(&chunk), &Meta::default());
    assert!(String::from_utf8_lossy(&json).contains(r#""Comms Id":"17093776592125785438""#));
    // DebugAnnotation { uint_value }
    let (_, perfetto) = told(OutputFormat::Perfetto, std::slice::from_ref(&chunk), &Meta::default());
    let mut annotation = vec![3 << 3];
    probe_sync_formats::protobuf::put_varint(&mut annotation, 17_093_776_592_125_785_438);
    assert!(perfetto.windows(annotation.len()).any(|bytes| bytes == annotation));
}

#[test]
fn collectives_of_a_recorder_are_judged() {
    let check_late = |late: i64, expected: (usize, usize)| {
        let folder = tempfile::tempdir().expect("a folder");
        let traces =
            [(0, START_NS, START_NS + 50_000), (1, START_NS + late, START_NS + 90_000)].map(|(rank, start, end)| {
                let (_, bytes) = told(OutputFormat::Kineto, &[all_reduce(rank, 7, start, end)], &Meta::default());
                let path = folder.path().join(format!("rank{rank}.pt.trace.json"));
                std::fs::write(&path, bytes).expect("writable");
                path
            });
        let request = Request { traces: traces.into(), ..Request::default() };
        let calibrated = calibrate(&request).expect("two traces");
        let verdict = check(&calibrated);
        assert_eq!((verdict.result.edges, verdict.result.broken), expected, "{}", verdict.text());
    };
    // Both began before either ended; rank 0 ended before rank 1 began.
    check_late(20_000, (2, 0));
    check_late(60_000, (2, 1));
}
