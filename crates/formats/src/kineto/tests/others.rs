//! Files of other programs than Kineto: real ones of VizTracer 1.1 and dftracer 2.2, and arrays and
//! lines by hand.

use probe_sync_alignment::{AlignSettings, ClockSource, MergeSettings, Request, align, calibrate, merge};

use super::*;
use crate::chunk::Chunk;
use crate::model::{ClockPair, PairKind, TraceClock, TraceFacts};
use crate::{ChunkStats, detect};

/// A real file.
fn real(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kineto/tests").join(name)
}

/// A folder, and in it a file with this text.
fn written(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn facts(path: &Path) -> Result<TraceFacts, Error> {
    read_facts(path, &FactOptions::default())
}

/// The events of a file, as names, starts and lengths.
fn slices(path: &Path) -> (Vec<(String, i64, i64)>, ChunkStats) {
    let mut found = Vec::new();
    let stats = ChromeJson.read_chunks(path, &ChunkOptions::default(), &mut |time| time, &mut |chunk: &Chunk| {
        let times = chunk.slices.start_ns.iter().zip(&chunk.slices.end_ns);
        let named = chunk.slices.name.iter().map(|name| chunk.strings.text(*name).to_owned());
        found.extend(named.zip(times).map(|(name, (start, end))| (name, *start, end - start)));
        Ok(())
    });
    (found, stats.unwrap())
}

#[test]
fn viztracer_states_its_clock_and_the_system_time() {
    let path = real("viztracer.json");
    assert_eq!(detect(&path).unwrap().name(), "chrome");
    let found = facts(&path).unwrap();
    assert_eq!((found.clock, found.base_ns, found.events), (TraceClock::Monotonic, None, 7));
    assert_eq!((found.identity.rank, found.identity.world_size), (Some(1), Some(2)));
    let first_ns = 2_839_874_483_279;
    let system_ns = 1_795_997_995_048_991_497 + first_ns;
    let kind = PairKind::Bracketed(1000.0);
    assert_eq!(found.pairs, [ClockPair { tracer_ps: i128::from(first_ns) * 1000, system_ns, kind }]);
    // Without the difference nothing ties its clock.
    let text = std::fs::read_to_string(&path).unwrap();
    let (_folder, path) = written("a.json", &text.replace(", \"baseTimeNanoseconds\": 1795997995048991497", ""));
    let found = facts(&path).unwrap();
    assert_eq!((found.clock, found.pairs.len()), (TraceClock::Monotonic, 0));
}

#[test]
fn times_of_viztracer_are_brought_to_the_reference_clock() {
    let folder = tempfile::tempdir().unwrap();
    let offsets = folder.path().join("offsets.csv");
    let at = |second: i64| 1_796_000_830_000_000_000 + second * 1_000_000_000;
    let lines: String = (0..10).map(|second| format!("1,{},{}\n", at(second), 2_500_000)).collect();
    std::fs::write(&offsets, format!("node,node_realtime_ns,offset_vs_node0_ns\n{lines}")).unwrap();
    let request = Request {
        traces: vec![real("viztracer.json")],
        nodes: vec![1],
        clocks: ClockSource::Offsets(offsets),
        ..Request::default()
    };
    let output = folder.path().join("aligned.json");
    let calibrated = calibrate(&request).unwrap();
    for aligned in align(&calibrated, &output, AlignSettings::default()).unwrap() {
        aligned.unwrap();
    }
    let found = facts(&output).unwrap();
    assert_eq!((found.clock, found.aligned_to.as_deref()), (TraceClock::System, Some("system clock of node 0")));
    assert_eq!(found.pairs, []);
    let expected = |ts_ns: i64| 1_795_997_995_048_991_497 + ts_ns - 2_500_000;
    let (moved, _) = slices(&output);
    assert_eq!(moved[0].0, "work (/tmp/app/train.py:3)");
    let starts: Vec<i64> = moved.iter().take(3).map(|(_, start, _)| *start).collect();
    assert_eq!(starts, [2_839_874_534_285, 2_839_874_483_279, 2_839_884_059_985].map(expected));
    // A merge keeps all events, next to Kineto's.
    let kineto = folder.path().join("kineto.json");
    let event = r#"{"ph": "X", "pid": 1, "tid": 1, "ts": 1796000834000000, "dur": 5, "name": "a"}"#;
    std::fs::write(&kineto, format!(r#"{{"schemaVersion": 1, "traceEvents": [{event}]}}"#)).unwrap();
    let both = Request { traces: vec![kineto, real("viztracer.json")], nodes: vec![0, 1], ..request };
    let output = folder.path().join("all.json");
    let report = merge(&calibrate(&both).unwrap(), &output, MergeSettings::default()).unwrap();
    assert_eq!(report.traces.iter().map(|trace| trace.events).collect::<Vec<_>>(), [1, 9]);
    assert_eq!(slices(&output).0.len(), 7);
}

#[test]
fn lines_of_dftracer_are_read_and_become_an_object() {
    let path = real("dftracer.pfw.gz");
    assert_eq!(detect(&path).unwrap().name(), "chrome");
    let found = facts(&path).unwrap();
    assert_eq!((found.clock, found.identity.hostname.as_deref(), found.events), (TraceClock::System, Some("vm"), 17));
    let (events, stats) = slices(&path);
    assert_eq!((events.len(), stats.events, stats.other_phases.len()), (17, 17, 0));
    assert_eq!(events[15], ("batch".to_owned(), 1_796_000_835_246_914_000, 6_282_000));
    let text = contents(&path);
    let (same, _) = rewritten(&text, RewriteOptions::default(), |time| time).unwrap();
    assert_eq!(same, text);
    let (moved, stats) = rewritten(&text, RewriteOptions::default(), |time| time + 7_000).unwrap();
    let moved = json(&moved);
    assert_eq!(moved["baseTimeNanoseconds"].as_i64(), stats.base_ns);
    let all = moved["traceEvents"].as_array().unwrap();
    let phases: BTreeSet<&str> = all.iter().map(|event| event["ph"].as_str().unwrap()).collect();
    assert_eq!((all.len(), phases), (text.iter().filter(|byte| **byte == b'\n').count(), BTreeSet::from(["M", "X"])));
    let other_unit = String::from_utf8(text).unwrap().replace("\"value\":\"US\"", "\"value\":\"MS\"");
    let (_folder, path) = written("a.pfw", &other_unit);
    let said = facts(&path).unwrap_err().to_string();
    assert!(said.contains("not in microseconds"), "{said}");
}

#[test]
fn arrays_and_lines_need_no_end() {
    let events = [r#"{"ph":"X","pid":1,"tid":1,"ts":1700000000000000,"dur":2,"name":"a"}"#; 2];
    let [one, two] = events;
    for text in [
        format!("[{one},{two}]"),
        format!("[\n{one},\n{two},\n"),
        format!("[{one}\n{two}\n"),
        format!("[\n{one}\n{two}\n]\n"),
        format!("{one}\n{two}"),
    ] {
        let (_folder, path) = written("a.json", &text);
        let found = facts(&path).unwrap();
        assert_eq!((found.events, found.span.map(|(first, last)| last - first)), (2, Some(2 * MICROSECOND)), "{text}");
        assert_eq!(rewritten(text.as_bytes(), RewriteOptions::default(), |time| time).unwrap().0, text.as_bytes());
        let metadata = [("probe_sync_timeline".to_owned(), "x".to_owned())];
        let options = RewriteOptions { metadata: &metadata, ..RewriteOptions::default() };
        let (stated, _) = rewritten(text.as_bytes(), options, |time| time).unwrap();
        let stated = json(&stated);
        assert_eq!(stated["probe_sync_timeline"], "x");
        assert_eq!(stated["traceEvents"].as_array().map(Vec::len), Some(2), "{text}");
    }
    let (_folder, path) = written("a.json", &format!("[{one},{}", &two[..20]));
    let said = facts(&path).unwrap_err().to_string();
    assert!(said.contains("ends inside"), "{said}");
}

#[test]
fn begins_and_ends_are_spans() {
    let event = |phase: &str, tid: u32, ts: u32, name: &str| {
        format!(r#"{{"ph":"{phase}","pid":1,"tid":{tid},"ts":{ts},"name":"{name}","args":{{"a":{ts}}}}}"#)
    };
    let text = [
        event("B", 1, 10, "outer"),
        event("B", 2, 11, "other"),
        event("B", 1, 12, "inner"),
        event("E", 1, 15, ""),
        event("E", 2, 16, ""),
        event("E", 1, 20, ""),
        event("E", 1, 21, ""),
        event("B", 1, 30, "open"),
        event("C", 1, 31, "counter"),
    ];
    let (_folder, path) = written("a.json", &format!("[{}", text.join(",\n")));
    let (found, stats) = slices(&path);
    let expected = [("inner", 12_000, 3_000), ("other", 11_000, 5_000), ("outer", 10_000, 10_000)];
    assert_eq!(found, expected.map(|(name, start, length)| (name.to_owned(), start, length)));
    assert_eq!((stats.events, stats.other_phases), (4, BTreeMap::from([('B', 1), ('E', 1)])));
}

#[test]
fn numbers_of_counters_are_series_of_their_process() {
    let event =
        |ts: u32, name: &str, args: &str| format!(r#"{{"ph":"C","pid":7,"ts":{ts},"name":"{name}","args":{args}}}"#);
    let text = [
        event(1, "memory", r#"{"memory":5,"peak":"8","unit":"MB"}"#),
        event(2, "memory", r#"{"memory":6.5,"peak":1e400}"#),
        event(3, "idle", "null"),
    ];
    let (_folder, path) = written("a.json", &format!("[{}]", text.join(",")));
    let (mut values, mut tracks) = (Vec::new(), Vec::new());
    let stats = ChromeJson.read_chunks(&path, &ChunkOptions::default(), &mut |time| time, &mut |chunk: &Chunk| {
        chunk.check(0)?;
        let counters = &chunk.counters;
        values.extend(
            counters
                .track
                .iter()
                .zip(counters.time_ns.clone())
                .zip(counters.value.clone())
                .map(|((track, at), value)| (track.0, at, value)),
        );
        tracks.extend(chunk.tracks.iter().map(|track| (track.label(), track.parent.map(|parent| parent.0))));
        Ok(())
    });
    assert_eq!(stats.unwrap().events, 3);
    assert_eq!(values, [(0, 1_000, 5.0), (1, 1_000, 8.0), (0, 2_000, 6.5)]);
    let expected = [("memory", Some(2)), ("memory peak", Some(2)), ("pid 7", None)];
    assert_eq!(tracks, expected.map(|(name, parent)| (name.to_owned(), parent)));
}
