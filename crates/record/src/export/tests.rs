//! Recordings that were made here, as traces.

use std::path::Path;

use probe_sync_alignment::{AlignSettings, Request, align, calibrate};
use probe_sync_time::SkewedClock;

use super::{ExportError, Exported, Format, Reference, WithTrace, write_each};
use crate::hook::{Hooks, Metadata, stack};
use crate::read::ArgumentValue;
use crate::{
    Builder, Kind, Policy, Reach, Recorder, Recording, Session, Value, correlate, counter, flow, instant, memory,
    scope, span,
};

fn session(bytes: usize) -> Session {
    session_of(3, bytes)
}

fn session_of(rank: u32, bytes: usize) -> Session {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes }).rank(rank);
    builder.start().expect("nothing else records this thread")
}

fn recording() -> Recording {
    recording_of(3)
}

fn recording_of(rank: u32) -> Recording {
    let session = session_of(rank, 1 << 20);
    let spans = {
        let _step = scope!("step", step = 17, what = "warm \"up\"");
        let _link = correlate(99);
        let _launch = scope!(Kind::Runtime, "launch");
        instant!("moment");
        counter!("queue", 4);
        flow!(Out, "sent", 7);
        flow!(In, "received", 7);
        (span!("request"), span!("other"))
    };
    drop(spans.0);
    let _open = scope!("open at the end");
    let recording = session.finish().expect("whole");
    drop(spans.1);
    recording
}

fn write(recording: &Recording, format: Format, folder: &Path) -> (Exported, Vec<u8>) {
    let ending = format.endings().iter().find(|ending| !ending.ends_with(".gz")).expect("each has a plain one");
    let path = folder.join(format!("{}{ending}", format.as_str()));
    let exported = recording.on_system().expect("pairs").write(format, &path).expect("written");
    (exported, std::fs::read(path).expect("it is there"))
}

fn standard(recording: &Recording) -> Result<Hooks, crate::Error> {
    Hooks::with_standard(recording, Vec::new())
}

fn count(bytes: &[u8], part: &str) -> usize {
    bytes.windows(part.len()).filter(|window| *window == part.as_bytes()).count()
}

#[test]
fn a_recording_becomes_a_trace_in_every_format() {
    let recording = recording();
    let folder = tempfile::tempdir().expect("a temporary directory");
    for format in Format::ALL {
        let built = format != Format::Rocpd || cfg!(feature = "rocpd");
        if !built {
            continue;
        }
        let (exported, bytes) = write(&recording, format, folder.path());
        assert_eq!((exported.scopes, exported.unfinished, exported.spans, exported.lost), (3, 1, 2, 0), "{format:?}");
        assert_eq!((exported.outside, exported.near_step, exported.clock_failed), (0, 0, 0), "{exported:?}");
        for name in ["step", "launch", "moment", "queue", "sent", "received", "request", "open at the end"] {
            assert!(count(&bytes, name) > 0, "{format:?} lacks {name}");
        }
        assert_eq!(exported.bytes, bytes.len() as u64);
    }
}

#[test]
fn what_hooks_add_is_in_every_format() {
    let session = session(1 << 20);
    let _net = scope!(Kind::Function, "forward", module = "net");
    {
        let _layer = scope!(Kind::Function, "forward", module = "layer1");
        drop(scope!(Kind::Function, "aten::mm", shapes = || Value::Json("[[2,3],[3,4]]")));
        drop(scope!("deep", stack = || stack().value()));
    }
    let recording = session.finish().expect("whole");
    let folder = tempfile::tempdir().expect("a temporary directory");
    for format in Format::ALL {
        let built = format != Format::Rocpd || cfg!(feature = "rocpd");
        if !built {
            continue;
        }
        let (_, bytes) = write(&recording, format, folder.path());
        let named = if cfg!(feature = "symbols") { "what_hooks_add_is_in_every_format" } else { "+0x" };
        // A database has columns for it.
        let stack = if format == Format::Rocpd { "\"line\":" } else { "Call stack" };
        for part in [stack, named, "Module Hierarchy", "net/layer1", "Input Dims", "flops", "aten::mm"] {
            assert!(count(&bytes, part) > 0, "{format:?} lacks {part}");
        }
        let job = [("job".to_owned(), ArgumentValue::Text("of the night".into()))];
        let hooks = Hooks::with_standard(&recording, vec![Box::new(Metadata::of(job))]).expect("readable");
        let path = folder.path().join(format!("job{}", format.endings()[0].trim_end_matches(".gz")));
        let system = recording.on_system().expect("pairs").with_hooks(hooks);
        system.write(format, &path).expect("written");
        let bytes = std::fs::read(path).expect("it is there");
        assert!(count(&bytes, "of the night") > 0 && count(&bytes, "net/layer1") > 0, "{format:?}");
    }
}

#[test]
fn each_group_of_details_is_recorded_alone() {
    let group = |set: fn(Builder, bool) -> Builder, own: &[&str]| {
        let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
        let session = set(builder.details(false), true).start().expect("nothing else records this thread");
        {
            let _net = scope!(Kind::Function, "net", module = || "net");
            let shapes = || Value::Json("[[2,3],[3,4]]");
            drop(scope!(Kind::Function, "mm", shapes = || shapes(), stack = || stack().value(), job = || 7));
        }
        let recording = session.finish().expect("whole");
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (_, bytes) = write(&recording, Format::ChromeJson, folder.path());
        let all = ["Input Dims", "flops", "Call stack", "Module Hierarchy", "job"];
        let found: Vec<&str> = all.into_iter().filter(|key| count(&bytes, &format!("\"{key}\":")) > 0).collect();
        assert_eq!(found, own);
    };
    group(Builder::shapes, &["Input Dims"]);
    group(Builder::flops, &["Input Dims", "flops"]);
    group(Builder::stacks, &["Call stack"]);
    group(Builder::modules, &["Module Hierarchy"]);
    group(Builder::details, &["Input Dims", "flops", "Call stack", "Module Hierarchy", "job"]);
    group(|builder, _| builder, &[]);
    let memory = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 }).memory(false);
    let session = memory.start().expect("nothing else records this thread");
    memory!(Allocate, address = 1, bytes = 2, device = "cpu");
    instant!("moment");
    assert_eq!(session.finish().expect("whole").threads()[0].events, 1);
}

#[test]
fn arguments_of_hooks_are_what_readers_expect() {
    let session = session(1 << 20);
    let _net = scope!(Kind::Function, "forward", module = "net");
    drop(scope!(Kind::Function, "aten::mm", shapes = || Value::Json("[[2,3],[3,4]]")));
    drop(scope!("deep", stack = || stack().value()));
    let recording = session.finish().expect("whole");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (_, bytes) = write(&recording, Format::ChromeJson, folder.path());
    let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let arguments = |name: &str| &events.iter().find(|event| event["name"] == name).expect(name)["args"];
    let expected = serde_json::json!({"Input Dims": [[2, 3], [3, 4]], "Module Hierarchy": "net", "flops": 48});
    assert_eq!(*arguments("aten::mm"), expected);
    let deep = arguments("deep").as_object().expect("arguments");
    assert!(!deep.contains_key("stack"), "addresses that have names are omitted: {deep:?}");
    assert!(deep["Call stack"].as_str().expect("a text").contains(';'), "{deep:?}");
    // The scope is still open, and its hooks are asked nevertheless.
    assert_eq!(arguments("forward")["Module Hierarchy"], "net");
}

#[test]
fn json_is_whole_and_its_arguments_are_typed() {
    let recording = recording();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (_, bytes) = write(&recording, Format::ChromeJson, folder.path());
    let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    let events = json["traceEvents"].as_array().expect("events");
    let of = |name: &str| events.iter().find(|event| event["name"] == name && event["ph"] != "M").expect(name);
    let arguments = |name: &str| of(name)["args"].clone();
    assert_eq!(arguments("step"), serde_json::json!({"step": 17, "what": "warm \"up\""}));
    assert_eq!(arguments("launch"), serde_json::json!({"correlation": 99}));
    assert!(arguments("open at the end")["unfinished"].is_string() && arguments("other")["unfinished"].is_string());
    assert_eq!(of("queue")["args"]["value"], 4.0);
    let ends: Vec<&str> =
        events.iter().filter(|event| event["cat"] == "flow").filter_map(|event| event["ph"].as_str()).collect();
    assert_eq!(ends.iter().filter(|end| ["s", "f"].contains(end)).count(), 2, "{ends:?}");
    let process = events.iter().find(|event| event["name"] == "process_name").expect("a process");
    let label = process["args"]["name"].as_str().expect("a name");
    assert!(label.starts_with("rank 3 · "), "{label}");
}

#[test]
fn what_was_lost_is_counted_and_stands_in_the_trace() {
    let session = session(1 << 20);
    let emitted = 100_000;
    for _ in 0..emitted {
        drop(scope!("again"));
    }
    let recording = session.finish().expect("whole");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (exported, bytes) = write(&recording, Format::ChromeJson, folder.path());
    assert!(exported.lost > 0);
    assert_eq!(exported.scopes + exported.lost, emitted);
    assert_eq!(count(&bytes, "\"again\"") as u64, exported.scopes);
    assert!(count(&bytes, &format!("{} events lost", exported.lost)) > 0, "{exported:?}");
}

/// A Kineto trace by another profiler: a kernel each of the ids, from `at` ns on, and an operator on a
/// thread of process `pid`.
fn other_trace(folder: &Path, pid: u32, at: i64, ids: &[u64]) -> std::path::PathBuf {
    let us = |ns: i64| format!("{}.{:03}", ns / 1000, ns % 1000);
    let operator = format!(
        r#"{{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":{pid},"tid":{pid},"ts":{},"dur":1,"args":{{"External id":99}}}}"#,
        us(at)
    );
    let kernel = |(place, id): (usize, &u64)| {
        let ts = us(at + 1000 * place as i64);
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":{ts},"dur":0.5,"args":{{"device":0,"stream":7,"External id":{id}}}}}"#
        )
    };
    let own_span = format!(
        r#"{{"ph":"X","cat":"Trace","name":"PyTorch Profiler (0)","pid":"Spans","tid":"PyTorch Profiler","ts":{},"dur":2}}"#,
        us(at)
    );
    let events: Vec<String> = [operator, own_span].into_iter().chain(ids.iter().enumerate().map(kernel)).collect();
    let path = folder.join("other.pt.trace.json");
    std::fs::write(&path, format!("{{\"traceEvents\":[{}]}}", events.join(","))).expect("writable");
    path
}

#[test]
fn devices_of_another_trace_are_joined_to_their_launches() {
    let recording = recording();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let at = recording.on_system().expect("pairs").clock().at(recording.status().end).0 - 5000;
    let write = |path: &Path, ids: Option<&str>, format: Format| {
        let with = WithTrace { path: path.into(), ids: ids.map(str::to_owned) };
        let output = folder.path().join(format!("devices{}", format.endings()[0]));
        let exported = recording.on_system().expect("pairs").with_trace(with).write(format, &output)?;
        Ok::<_, ExportError>((exported, std::fs::read(output).expect("there")))
    };
    let path = other_trace(folder.path(), std::process::id(), at, &[99, 5000]);
    for (ids, flows) in [(Some("External id"), (2, 3)), (None, (1, 1)), (Some("correlation"), (1, 1))] {
        let (exported, bytes) = write(&path, ids, Format::ChromeJson).expect("written");
        let json: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        let events = json["traceEvents"].as_array().expect("events");
        let ends = |phase: &str| {
            let ends = events.iter().filter(|event| event["ph"] == phase);
            ends.map(|event| event["id"].clone()).collect::<Vec<_>>()
        };
        // The flow of the program, and that of the launch; the other kernel's has no beginning.
        let (begun, ended) = (ends("s"), ends("f"));
        assert_eq!((begun.len(), ended.len()), flows, "{ids:?}");
        assert!(begun.iter().all(|id| ended.contains(id)));
        let kernels: Vec<_> = events.iter().filter(|event| event["name"] == "gemm").collect();
        assert_eq!(kernels.len(), 2);
        assert_eq!(kernels[0]["args"]["stream"], 7);
        assert_eq!(events.iter().filter(|event| event["name"] == "aten::mm").count(), 0, "only devices");
        let note = format!("2 events on 2 tracks of devices are from {}", path.display());
        assert!(exported.notes.contains(&note), "{:?}", exported.notes);
    }
    let refused = |path: &Path, format: Format| write(path, None, format).expect_err("refused").to_string();
    let other = std::process::id() + 1;
    let text = refused(&other_trace(folder.path(), other, at, &[1]), Format::ChromeJson);
    assert!(text.contains(&format!("of process {other}, and the recording of process")), "{text}");
    let text = refused(&other_trace(folder.path(), std::process::id(), at, &[]), Format::ChromeJson);
    assert!(text.contains("no events of devices"), "{text}");
    let text = refused(&other_trace(folder.path(), std::process::id(), at + 3_600_000_000_000, &[1]), Format::Kineto);
    assert!(text.contains("none of its events lies within the time of the recording"), "{text}");
    #[cfg(feature = "rocpd")]
    assert!(refused(&path, Format::Rocpd).contains("choose another format"));
}

#[cfg(feature = "rocpd")]
#[test]
fn devices_of_a_database_are_on_the_boot_clock_of_the_recording() {
    let recording = recording();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [database, both] = ["own.db", "both.json"].map(|name| folder.path().join(name));
    let system = recording.on_system().expect("pairs");
    system.write(Format::Rocpd, &database).expect("written");
    // Our own database has no devices, and its times are those of the recording.
    let boot = super::clock::BootClock::of(system.clock(), recording.facts().system_ahead_of_boot_ns.expect("known"));
    let at = system.clock().at(recording.status().start).0;
    assert_eq!(boot.to_system(i128::from(boot.of_system(at)) * 1000), i128::from(at) * 1000);
    let with = WithTrace { path: database, ids: None };
    let text = system.with_trace(with).write(Format::ChromeJson, &both).expect_err("refused").to_string();
    assert!(text.contains("no events of devices"), "{text}");
    assert!(!both.exists());
}

/// Offsets of these nodes around a time: each is ahead by 2.5 ms more than the one before, and
/// wanders.
fn offsets(folder: &Path, around: i64, nodes: u32) -> std::path::PathBuf {
    let mut lines = "node,node_realtime_ns,offset_vs_node0_ns\n".to_owned();
    for node in 0..nodes {
        for (seconds, wander) in [(-4, 0), (0, 400), (4, 100)] {
            let offset = i64::from(node) * (2_500_000 + wander);
            lines += &format!("{node},{},{offset}\n", around + seconds * 1_000_000_000);
        }
    }
    let path = folder.join("offsets.csv");
    std::fs::write(&path, lines).expect("writable");
    path
}

#[test]
fn at_once_and_later_by_align_are_the_same_bytes() {
    let recordings = [recording_of(3), recording_of(2)];
    let folder = tempfile::tempdir().expect("a temporary directory");
    let folder = folder.path();
    let start = |recording: &Recording| {
        let system = recording.on_system().expect("pairs");
        system.clock().at(recording.status().start).0
    };
    let reference = Reference::offsets(offsets(folder, start(&recordings[0]), 3));
    let bytes = |path: &Path| std::fs::read(path).expect("there");
    for format in [Format::Kineto, Format::XSpace] {
        let ending = format.endings().iter().find(|ending| !ending.ends_with(".gz")).expect("a plain one");
        let [own, later, at_once] = ["own", "later", "once"].map(|name| folder.join(format!("{name}{ending}")));
        recordings[0].on_system().expect("pairs").write(format, &own).expect("written");
        let alone = reference.clone().of_node(1);
        let aligned = |traces: &[std::path::PathBuf], nodes: &[u32], to: &Path| {
            let clocks = reference.clocks.clone();
            let request = Request { traces: traces.into(), nodes: nodes.into(), clocks, ..Request::default() };
            let calibrated = calibrate(&request).expect("a clock");
            align(&calibrated, to, AlignSettings::default())
                .expect("outputs")
                .for_each(|done| drop(done.expect("aligned")));
        };
        aligned(&[own], &[1], &later);
        recordings[0].on_reference(&alone).expect("pairs").write(format, &at_once).expect("written");
        assert!(bytes(&later) == bytes(&at_once), "{format:?} alone");
        // Together, too: what they have in common is that of all.
        let together = Reference { nodes: vec![2, 1], ..reference.clone() };
        let each = |kind: &str| {
            let folder = folder.join(format!("{}.{kind}", format.as_str()));
            std::fs::create_dir(&folder).expect("new");
            ["a", "b"].map(|name| folder.join(format!("{name}{ending}"))).to_vec()
        };
        let [own, later, at_once] = ["own", "later", "once"].map(each);
        write_each(&recordings, &standard, &[], None, format, &own).expect("written");
        aligned(&own, &together.nodes, later[0].parent().expect("its folder"));
        let exported = write_each(&recordings, &standard, &[], Some(&together), format, &at_once).expect("written");
        for (at, path) in at_once.iter().enumerate() {
            assert!(bytes(&later[at]) == bytes(path), "{format:?} {at}");
            assert_eq!((&exported[at].path, exported[at].bytes), (path, bytes(path).len() as u64));
        }
        // Two of one rank are no two traces of one alignment.
        let twice = [recording_of(3), recording_of(3)];
        let nodes = Reference { nodes: vec![1, 1], ..reference.clone() };
        assert!(write_each(&twice, &standard, &[], Some(&nodes), format, &each("twice")).is_ok(), "{format:?}");
    }
    // In a format that align does not know, too.
    let path = folder.join("once.pftrace");
    let reference = reference.of_node(1);
    let exported =
        recordings[0].on_reference(&reference).expect("pairs").write(Format::Perfetto, &path).expect("written");
    assert!(exported.bytes > 0 && exported.scopes == 3);
}

#[test]
fn a_virtual_clock_is_in_the_pairs_and_no_boot_clock() {
    let clock = SkewedClock { off_ns: 3_600_000_000_000, ..SkewedClock::default() };
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let session = builder.virtual_clock(clock.clone()).ranks(4).start().expect("nothing else records this thread");
    drop(scope!("step"));
    let recording = session.finish().expect("whole");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos() as i64;
    assert!(recording.pairs().iter().all(|pair| (now + clock.off_ns - pair.system_ns).abs() < 60_000_000_000));
    assert_eq!((recording.facts().virtual_clock.as_ref(), recording.facts().ranks), (Some(&clock), Some(4)));
    let folder = tempfile::tempdir().expect("a temporary directory");
    if cfg!(feature = "rocpd") {
        let path = folder.path().join("virtual.db");
        let refused = recording.on_system().expect("pairs").write(Format::Rocpd, &path).expect_err("no such clock");
        assert!(refused.to_string().contains("virtual clock") && !path.exists(), "{refused}");
    }
}

#[cfg(feature = "rocpd")]
#[test]
fn a_database_is_on_the_boot_clock_or_on_the_reference_clock() {
    let recording = recording();
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [offsets, own, aligned] = ["offsets.csv", "own.db", "aligned.db"].map(|name| folder.path().join(name));
    let system = recording.on_system().expect("pairs");
    let (at, _) = system.clock().at(recording.status().start);
    let line = |seconds: i64| format!("1,{},2500000\n", at + seconds * 1_000_000_000);
    let lines = [line(-4), line(4)].concat();
    std::fs::write(&offsets, format!("node,node_realtime_ns,offset_vs_node0_ns\n{lines}")).expect("writable");
    system.write(Format::Rocpd, &own).expect("written");
    let refused = system.write(Format::Rocpd, &own).expect_err("it is there");
    assert!(refused.to_string().contains("never overwritten"), "{refused}");
    let reference = Reference::offsets(&offsets).of_node(1);
    let exported = recording.on_reference(&reference).expect("pairs").write(Format::Rocpd, &aligned).expect("written");
    assert!(exported.bytes > 0 && aligned.exists());
}

#[test]
fn other_endings_are_refused_and_leave_nothing() {
    let recording = recording();
    let folder = tempfile::tempdir().expect("a temporary directory");
    for format in Format::ALL {
        let path = folder.path().join("trace.txt");
        let refused = recording.on_system().expect("pairs").write(format, &path).expect_err("no such ending");
        assert!(refused.to_string().contains(&format!("{} files must end in", format.as_str())), "{refused}");
        assert!(!path.exists());
        assert_eq!(format.as_str().parse(), Ok(format));
    }
    assert!("otf2".parse::<Format>().expect_err("none of ours").contains("use one of kineto"));
}

/// A clock on which a thousand ns are one: most scopes have no length, and share their times.
#[test]
fn on_a_coarse_clock_the_trace_is_the_tree() {
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 8 << 20 });
    let session =
        builder.pair_period(std::time::Duration::from_millis(10)).start().expect("nothing else records this thread");
    let mut random = 1_u64;
    let mut open = Vec::new();
    for at in 0..60_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match random >> 61 {
            0..4 if open.len() < 100 => open.push(scope!("scope", number = at)),
            4 if at % 2 == 0 => instant!("moment"),
            4 => counter!("open", open.len()),
            _ => drop(open.pop()),
        }
        if at % 2000 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(3));
        }
    }
    while open.pop().is_some() {}
    let recording = session.finish().expect("whole");
    let first = recording.pairs()[0].system_ns;
    let slow =
        |pair: &crate::ClockPair| crate::ClockPair { system_ns: first + (pair.system_ns - first) / 1000, ..*pair };
    let pairs: Vec<_> = recording.pairs().iter().map(slow).collect();
    let system = recording.on_system_by(&pairs).expect("pairs");
    let clock = |ticks| system.clock().at(ticks).0;
    let tree = crate::tree::Tree::of(&recording, &recording.threads()[0], clock).expect("sound");
    let of_slices = tree.nodes.iter().filter(|node| node.name != "open");
    let mut starts: Vec<i64> = of_slices.map(|node| node.placed.start).collect();
    starts.sort_unstable();
    assert!(starts.windows(2).all(|two| two[0] < two[1]), "two begin together");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("coarse.json");
    let exported = system.write(Format::ChromeJson, &path).expect("written");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).expect("there")).expect("JSON");
    let base = json["baseTimeNanoseconds"].as_i64().expect("a base");
    let ns = |value: &serde_json::Value| (value.as_f64().unwrap_or(0.0) * 1000.0).round() as i64;
    let events = json["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X");
    let mut found: Vec<(i64, i64)> = events.map(|event| (base + ns(&event["ts"]), ns(&event["dur"]))).collect();
    let scopes = tree.nodes.iter().filter(|node| node.name == "scope");
    let mut expected: Vec<(i64, i64)> =
        scopes.map(|node| (node.placed.start, node.placed.end - node.placed.start)).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found.len(), expected.len());
    let differs = found.iter().zip(&expected).find(|(found, expected)| found != expected);
    assert_eq!(differs, None, "{exported:?}");
}
