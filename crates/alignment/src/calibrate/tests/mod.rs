//! Requests on hand-made traces: what goes together, whose clock times end on, and what is refused.

#[cfg(feature = "rocpd")]
mod databases;
mod marks;
mod one_clock;

use super::*;
use crate::{AlignSettings, MergeSettings, align, check, merge};

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn put(&self, name: &str, content: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, content).expect("writable");
        path
    }

    /// A trace with one event of 5 µs at 10 ms.
    fn trace(&self, name: &str) -> PathBuf {
        self.put(
            name,
            r#"{"traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "ts": 10000, "dur": 5, "name": "a"}], "baseTimeNanoseconds": 0}"#,
        )
    }

    /// Offsets of a run with this reference: node 0 is 1 ms behind node 1.
    fn offsets(&self, reference: u32) -> PathBuf {
        let (other, offset_ns) = if reference == 0 { (1, 1e6) } else { (0, -1e6) };
        let line = |start_ns: i64| {
            format!(
                "{{\"node_id\":{other},\"window_start_ns\":{start_ns},\"window_end_ns\":{},\"offset_ns\":{offset_ns},\"drift_ppm\":0.0,\"reachable\":true,\"sigma_ns\":1.0}}\n",
                start_ns + 2_000_000
            )
        };
        let meta =
            format!("{{\"meta\":true,\"reference\":{reference},\"nodes\":[{{\"node_id\":0}},{{\"node_id\":1}}]}}\n");
        self.put("offsets.jsonl", &[meta, line(0), line(20_000_000)].concat())
    }

    fn request(&self, reference: u32) -> Request {
        Request {
            traces: vec![self.trace("a.json"), self.trace("b.json")],
            nodes: vec![0, 1],
            clocks: ClockSource::Offsets(self.offsets(reference)),
            ..Request::default()
        }
    }
}

/// Where the event of each node is written, µs.
fn aligned(files: &Files, calibrated: &Calibrated) -> Vec<String> {
    let folder = files.0.path().join("aligned");
    let done: Vec<PathBuf> = align(calibrated, &folder, AlignSettings::default())
        .expect("maps")
        .map(|aligned| aligned.expect("written").output)
        .collect();
    let time = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("an output");
        let (_, rest) = text.split_once("\"ts\": ").expect("a time");
        rest.split(',').next().expect("a number").to_owned()
    };
    done.iter().map(time).collect()
}

#[test]
fn the_reference_is_the_one_that_the_offsets_name() {
    for (reference, expected) in [(0, ["10000", "9000.000"]), (1, ["11000.000", "10000"])] {
        let files = Files::new();
        let calibrated = calibrate(&files.request(reference)).expect("clocks");
        assert_eq!(calibrated.timeline, format!("system clock of node {reference}"));
        assert_eq!(aligned(&files, &calibrated), expected, "reference {reference}");
        let statistics = files.0.path().join("aligned/alignment_stats/a.json.json");
        assert!(statistics.exists(), "several outputs have their statistics in a folder");
    }
}

#[test]
fn a_run_names_its_own_traces_and_not_what_is_written_there() {
    let files = Files::new();
    files.offsets(0);
    let traces = ["node0.pt.trace.json", "node1.pt.trace.json"].map(|name| files.trace(name));
    files.trace("notes.json");
    let output = files.0.path().join("all.pt.trace.json");
    let request = Request {
        nodes: vec![0, 1],
        clocks: ClockSource::Run(files.0.path().to_owned()),
        outputs: vec![output.clone()],
        ..Request::default()
    };
    for _ in 0..2 {
        let calibrated = calibrate(&request).expect("clocks");
        let paths = calibrated.traces.iter().map(|calibrated| calibrated.trace.path.clone());
        assert_eq!(paths.collect::<Vec<_>>(), traces);
        merge(&calibrated, &output, MergeSettings::default()).expect("merged");
    }
}

#[test]
fn traces_of_unknown_clocks_are_checked_only() {
    let files = Files::new();
    let request = Request { traces: vec![files.trace("a.json"), files.trace("b.json")], ..Request::default() };
    let calibrated = calibrate(&request).expect("facts");
    assert!(calibrated.traces.iter().all(|calibrated| calibrated.map.is_none()));
    assert_eq!(calibrated.timeline, "each node's own clock");
    assert!(check(&calibrated).text().contains("nothing to check"));
    let refused = align(&calibrated, &files.0.path().join("out"), AlignSettings::default()).expect_err("no clock");
    assert!(refused.to_string().contains("the clock of"), "{refused}");
    let output = files.0.path().join("all.json");
    assert!(merge(&calibrated, &output, MergeSettings::default()).is_err());
    let settings = MergeSettings { allow_uncalibrated: true, ..MergeSettings::default() };
    assert_eq!(merge(&calibrated, &output, settings).expect("merged").uncalibrated, ["node 0", "node 1"]);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let check = |change: &dyn Fn(&Files, &mut Request), expected: &str| {
        let files = Files::new();
        let mut request = files.request(0);
        change(&files, &mut request);
        let refused = calibrate(&request).expect_err(expected).to_string();
        assert!(refused.contains(expected), "{refused}");
    };
    check(&|_, request| request.traces.clear(), "no traces");
    check(&|_, request| request.nodes.truncate(1), "2 traces, but 1 node numbers");
    check(&|files, request| request.snapshots = vec![files.put("pairs", "")], "2 traces, but 1 snapshot files");
    check(&|_, request| request.markers = regex::Regex::new("a").ok(), "a group named system_ns");
    check(
        &|_, request| request.timeline = OutputClock::Tracer,
        "there are no pairs that relate the tracer clock of node 0",
    );
    let moving = "node,node_realtime_ns,offset_vs_node0_ns\n0,0,5\n";
    check(
        &|files, request| request.clocks = ClockSource::Offsets(files.put("offsets.csv", moving)),
        "node 0 is the reference, but has an offset of 5 ns",
    );
}

#[test]
fn no_input_is_overwritten() {
    let files = Files::new();
    let calibrated = calibrate(&files.request(0)).expect("clocks");
    let refuse = |output: &Path| {
        let refused = merge(&calibrated, output, MergeSettings::default()).expect_err("an input");
        assert!(refused.to_string().contains("would overwrite the input"), "{refused}");
    };
    refuse(&calibrated.traces[0].trace.path);
    refuse(&files.0.path().join("offsets.jsonl"));
    assert!(check(&calibrated).write(&files.0.path().join("b.json")).is_err());
    assert!(align(&calibrated, files.0.path(), AlignSettings::default()).is_err());
}

/// Traces of a run that measured two nodes from 0 to 22 ms.
fn beside(files: &Files, events: &[(&str, &str)], change: impl Fn(&mut Request)) -> Result<Calibrated, Error> {
    let traces = events
        .iter()
        .map(|(name, events)| files.put(name, &format!("{{\"baseTimeNanoseconds\": 0, \"traceEvents\": [{events}]}}")));
    // The request's own traces are overwritten.
    let mut request = files.request(0);
    request.traces = traces.collect();
    request.nodes = (0..events.len() as u32).collect();
    change(&mut request);
    calibrate(&request)
}

/// An event from one µs to another.
fn event(from_us: f64, until_us: f64) -> String {
    format!(r#"{{"ph": "X", "pid": 1, "tid": 1, "ts": {from_us}, "dur": {}, "name": "a"}}"#, until_us - from_us)
}

fn allow(text_ns: i64) -> impl Fn(&mut Request) {
    move |request| request.extrapolate = probe_sync_time::Duration::from_ns(text_ns)
}

#[test]
fn a_trace_outside_the_measurement_is_refused() {
    // Node 1 is 1 ms ahead: on its own clock it was measured from 1 to 23 ms.
    let check = |node_0: (f64, f64), node_1: (f64, f64), expected: Result<(), (&str, i128)>| {
        let files = Files::new();
        let (zero, one) = (event(node_0.0, node_0.1), event(node_1.0, node_1.1));
        let events = [("a.json", zero.as_str()), ("b.json", one.as_str())];
        match (beside(&files, &events, |_| {}), expected) {
            (Ok(_), Ok(())) => {}
            (Err(Error::Outside { problem, beyond_ns }), Err((text, expected_ns))) => {
                assert!(problem.contains(text), "{problem}");
                assert_eq!(beyond_ns, expected_ns, "{problem}");
                // What it asks for is enough, and a nanosecond less is not.
                assert!(beside(&files, &events, allow(beyond_ns as i64)).is_ok());
                assert!(beside(&files, &events, allow(beyond_ns as i64 - 1)).is_err());
            }
            (found, expected) => panic!("{node_0:?} {node_1:?}: {:?} instead of {expected:?}", found.map(|_| ())),
        }
    };
    check((0.0, 22_000.0), (1_000.0, 23_000.0), Ok(()));
    check(
        (1_000.0, 2_000.0),
        (999.0, 2_000.0),
        Err(("b.json: events from 1970-01-01T00:00:00.000999000Z (999000 ns) to", 1_000)),
    );
    check((1_000.0, 2_000.0), (5_000.0, 23_000.5), Err(("its last event is 500.0 ns after the end", 500)));
    check(
        (1_000.0, 2_000.0),
        (0.0, 30_000.0),
        Err(("first event is 1.000000 ms before the start and its last event is 7.000000 ms after the end", 7_000_000)),
    );
    // The reference needs no offset, but another job's trace is refused.
    check(
        (-1.0, 2_000.0),
        (1_000.0, 2_000.0),
        Err(("but node 0 was measured from 1970-01-01T00:00:00.000000000Z (0 ns)", 1_000)),
    );
    let day_us = 86_400e6;
    let next_day = (day_us, day_us + 5.0);
    check(next_day, next_day, Err(("--extrapolate 86400s to extrapolate", 86_399_978_005_000)));
}

#[test]
fn a_refusal_names_every_trace_and_the_farthest_event() {
    let files = Files::new();
    let (zero, one) = (event(0.0, 22_010.0), event(5_000.0, 23_500.0));
    let refused = beside(&files, &[("a.json", &zero), ("b.json", &one)], |_| {}).expect_err("both outlive the run");
    let text = refused.to_string();
    assert!(text.contains("a.json") && text.contains("b.json") && text.contains("--extrapolate 500us"), "{text}");
    let many: Vec<(String, String)> = (0..10).map(|index| (format!("t{index}.json"), zero.clone())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, events)| (name.as_str(), events.as_str())).collect();
    let refused = beside(&files, &many, |request| request.nodes = vec![0; 10]).expect_err("all outlive it").to_string();
    assert!(refused.contains("t7.json") && !refused.contains("t8.json"), "{refused}");
    assert!(refused.contains("; and 2 more traces. Clocks are only known"), "{refused}");
}

#[test]
fn metadata_and_markers_are_no_events_outside() {
    let files = Files::new();
    let inside = event(1_000.0, 2_000.0);
    for outside in [
        r#"{"ph": "M", "ts": 99000000, "name": "process_name", "args": {"name": "x"}}"#,
        r#"{"ph": "X", "cat": "Trace", "pid": 7, "tid": 7, "ts": 0, "dur": 99000000, "name": "PyTorch Profiler (0)"}"#,
        r#"{"ph": "i", "pid": "Traces", "tid": "Trace", "ts": 99000000, "name": "Iteration Start: PyTorch Profiler"}"#,
        r#"{"ph": "X", "pid": "Spans", "tid": "x", "ts": 99000000, "dur": 1, "name": "PyTorch Profiler (0)"}"#,
        r#"{"ph": "i", "pid": "", "tid": "", "ts": 99000000, "name": "Record Window End"}"#,
        r#"{"ph": "X", "pid": 1, "tid": 1, "ts": 99000000, "dur": 1, "name": "probe_sync.clock#99000000000"}"#,
        r#"{"ph": "X", "pid": 1, "tid": 1, "ts": 99000000, "dur": 1, "name": "probe_sync.rank#0/2"}"#,
    ] {
        let events = format!("{inside}, {outside}");
        beside(&files, &[("a.json", &inside), ("b.json", &events)], |_| {}).expect(outside);
    }
    let other = r#"{"ph": "i", "pid": 1, "tid": 1, "ts": 99000000, "name": "work"}"#;
    let events = format!("{inside}, {other}");
    assert!(beside(&files, &[("a.json", &inside), ("b.json", &events)], |_| {}).is_err(), "an instant of the program");
    beside(&files, &[("a.json", ""), ("b.json", "")], |_| {}).expect("nothing is outside where nothing is");
}

#[test]
fn extrapolated_events_are_counted_and_less_sure() {
    let files = Files::new();
    let late = event(5_000.0, 4_023_000.0);
    let calibrated =
        beside(&files, &[("a.json", &event(1.0, 2.0)), ("b.json", &late)], allow(4_000_000_000)).expect("meant");
    let map = calibrated.traces[1].map.as_ref().expect("offsets");
    let (inside, outside) = (map.map(5_000_000_000), map.map(4_023_000_000_000));
    assert_eq!(inside.time_ps, 4_000_000_000);
    assert_eq!(outside.place, probe_sync_estimate::series::Place::After);
    assert!(outside.sigma_ns > 100.0 * inside.sigma_ns.max(1.0), "{outside:?}");
}

/// How many times of each trace are said to be extrapolated, before and after.
fn extrapolated(files: &Files, calibrated: &Calibrated) -> Vec<(u64, u64)> {
    let folder = files.0.path().join("counted");
    let done = align(calibrated, &folder, AlignSettings::default()).expect("maps");
    let stats = done.map(|aligned| aligned.expect("written").stats);
    stats.map(|stats| (stats.extrapolated_before, stats.extrapolated_after)).collect()
}

#[test]
fn events_in_the_first_and_last_half_window_are_not_extrapolated() {
    // Lines are at 1 and 21 ms, the middles of the windows of 0 to 2 and 20 to 22 ms; node 1 is 1
    // ms ahead.
    let check = |from_us: f64, until_us: f64, expected: (u64, u64)| {
        let files = Files::new();
        let events = [("a.json", event(1.0, 2.0)), ("b.json", event(from_us, until_us))];
        let events = events.each_ref().map(|(name, events)| (*name, events.as_str()));
        let calibrated = beside(&files, &events, allow(1_000_000_000)).expect("allowed");
        let map = calibrated.traces[1].map.as_ref().expect("offsets");
        let places = [from_us, until_us].map(|us| map.map((us * 1e6) as i128).place);
        assert_ne!(places, [probe_sync_estimate::series::Place::Inside; 2], "beyond the lines");
        assert_eq!(extrapolated(&files, &calibrated), [(0, 0), expected], "{from_us} to {until_us}");
        let merged = files.0.path().join("all.json");
        let stats = &merge(&calibrated, &merged, MergeSettings::default()).expect("merged").traces[1];
        // A merge may ask for a time twice.
        let counted = (stats.extrapolated_before > 0, stats.extrapolated_after > 0);
        assert_eq!(counted, (expected.0 > 0, expected.1 > 0), "{from_us} to {until_us}");
    };
    check(1_000.0, 1_500.0, (0, 0));
    check(22_500.0, 23_000.0, (0, 0));
    check(999.0, 1_500.0, (1, 0));
    check(900.0, 23_100.0, (1, 1));
    check(22_500.0, 23_001.0, (0, 1));
    check(30_000.0, 30_001.0, (0, 2));
}

#[test]
fn times_beyond_the_pairs_that_tie_a_clock_are_extrapolated_where_it_was_measured() {
    // The trace's clock is an hour behind; pairs at 5 and 15 ms of node 1's own clock.
    let files = Files::new();
    let pair = |ms: i64| {
        let system = ms * 1_000_000;
        format!("{{\"sys_clock_ns\":{system},\"tracer_clock_ns\":{},\"bracket_ns\":100}}\n", system - 3_600_000_000_000)
    };
    let pairs = files.put("pairs.jsonl", &[pair(5), pair(10), pair(15)].concat());
    let us = |ms: f64| ms * 1e3 - 3.6e9;
    for (from_ms, until_ms, expected) in [(6.0, 14.0, (0, 0)), (2.0, 14.0, (1, 0)), (6.0, 19.0, (0, 1))] {
        let late = event(us(from_ms), us(until_ms));
        let change = |request: &mut Request| {
            (request.nodes, request.snapshots) = (vec![1], vec![pairs.clone()]);
            request.extrapolate = probe_sync_time::Duration::from_ns(1_000_000_000);
        };
        let calibrated = beside(&files, &[("b.json", &late)], change).expect("tied");
        let folder = files.0.path().join("out.json");
        let stats = align(&calibrated, &folder, AlignSettings::default())
            .expect("a map")
            .next()
            .expect("one")
            .expect("written")
            .stats;
        assert_eq!((stats.extrapolated_before, stats.extrapolated_after), expected, "{from_ms} to {until_ms}");
        assert_eq!((stats.beyond_pairs, stats.corrected, stats.times), (expected.0 + expected.1, 2, 2));
    }
}

#[test]
fn an_output_that_fails_does_not_hide_those_that_are_written() {
    let files = Files::new();
    let calibrated =
        calibrate(&Request { clocks: ClockSource::Offsets(files.offsets(0)), ..files.request(0) }).expect("clocks");
    let folder = files.0.path().join("out");
    // The first of the two cannot have its name.
    let names: Vec<PathBuf> =
        calibrated.traces.iter().map(|trace| folder.join(trace.trace.path.file_name().expect("a name"))).collect();
    std::fs::create_dir_all(names[0].join("taken")).expect("a folder");
    let mut aligning = align(&calibrated, &folder, AlignSettings::default()).expect("maps");
    // One worker begins with the failing one, and nothing is written.
    if probe_sync_formats::workers() > 1 {
        let aligned = aligning.next().expect("the second").expect("written");
        assert_eq!(aligned.output, names[1]);
        let refused = aligning.next().expect("the first").expect_err("its name is taken").to_string();
        let said = format!("1 of 2 outputs were already written and are kept: {}", names[1].display());
        assert!(refused.contains(&said) && refused.contains(&names[0].display().to_string()), "{refused}");
        assert!(names[1].is_file());
    } else {
        assert!(aligning.next().expect("the first").is_err());
    }
    assert!(aligning.next().is_none());
}

#[test]
fn a_report_says_that_the_live_offsets_of_a_run_were_used() {
    let files = Files::new();
    let offsets = files.offsets(0);
    let request = Request { clocks: ClockSource::Run(files.0.path().to_owned()), ..files.request(0) };
    let of_report = || {
        let calibrated = calibrate(&request).expect("clocks");
        let folder = files.0.path().join("counted");
        let done = align(&calibrated, &folder, AlignSettings::default()).expect("maps");
        done.flat_map(|aligned| aligned.expect("written").stats.notes).collect::<Vec<_>>()
    };
    let live =
        |notes: Vec<String>| notes.iter().filter(|note| note.contains("offsets.smoothed.jsonl does not exist")).count();
    assert_eq!(live(of_report()), 2, "of both traces");
    std::fs::copy(offsets, files.0.path().join("offsets.smoothed.jsonl")).expect("writable");
    assert_eq!(live(of_report()), 0);
}

#[test]
fn a_request_that_names_no_clocks_is_told_from_clocks_that_are_not_there() {
    let files = Files::new();
    let output = files.0.path().join("out");
    let errors = |request: &Request| {
        let calibrated = calibrate(request).expect("facts");
        let of_align = align(&calibrated, &output, AlignSettings::default()).expect_err("no clock");
        let of_merge = merge(&calibrated, &files.0.path().join("all.json"), MergeSettings::default());
        [of_align, of_merge.expect_err("no clock")]
    };
    let request = Request { clocks: ClockSource::Nothing, ..files.request(0) };
    assert!(errors(&request).iter().all(|error| matches!(error, Error::Request { .. })), "{:?}", errors(&request));
    let request = Request { nodes: vec![0, 7], ..files.request(0) };
    assert!(errors(&request).iter().all(|error| matches!(error, Error::Nodes { .. })), "{:?}", errors(&request));
}

#[test]
fn offsets_from_collectives_measure_no_span() {
    let files = Files::new();
    let collective = |rank: u32, ts: u32| {
        let args =
            r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": 7, "Process Group Ranks": "[0, 1]""#;
        let event = format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": {ts}, "dur": 10, "args": {{{args}}}}}"#
        );
        let head = format!(r#""distributedInfo": {{"rank": {rank}, "world_size": 2}}"#);
        files.put(&format!("rank{rank}.json"), &format!("{{{head}, \"traceEvents\": [{event}]}}"))
    };
    let request = Request {
        traces: vec![collective(0, 10), collective(1, 1000)],
        clocks: ClockSource::Collectives,
        ..Request::default()
    };
    let calibrated = calibrate(&request).expect("bounds");
    assert!(calibrated.traces.iter().all(|calibrated| calibrated.map.is_some()));
}

#[test]
fn hosts_and_ranks_of_a_run_settle_whose_traces_are_and_the_statistics_say_so() {
    let files = Files::new();
    let meta = "{\"meta\":true,\"nodes\":[{\"node_id\":0,\"hostname\":\"a\"},{\"node_id\":1,\"hostname\":\"b\"}],\
                \"ranks\":[{\"rank\":0,\"world_size\":2,\"hostname\":\"a\",\"node_id\":0,\"launcher\":\"torchrun\"},\
                {\"rank\":1,\"world_size\":2,\"hostname\":\"b\",\"node_id\":1,\"launcher\":\"torchrun\"}]}\n";
    let offsets = std::fs::read_to_string(files.offsets(0)).expect("written");
    let (_, lines) = offsets.split_once('\n').expect("a first line");
    files.put("offsets.jsonl", &format!("{meta}{lines}"));
    let trace = |name: &str, head: &str| {
        files.put(
            name,
            &format!("{{{head}, \"baseTimeNanoseconds\": 0, \"traceEvents\": [{}]}}", event(5_000.0, 5_005.0)),
        )
    };
    // By name and by place in the list it would be the other way round.
    let one = trace("node0.pt.trace.json", r#""distributedInfo": {"rank": 1, "world_size": 2}"#);
    let zero = trace("node1.pt.trace.json", r#""host_name": "a""#);
    let request = Request { clocks: ClockSource::Run(files.0.path().to_owned()), ..Request::default() };
    let calibrated = calibrate(&request).expect("facts");
    let paths: Vec<&PathBuf> = calibrated.traces.iter().map(|calibrated| &calibrated.trace.path).collect();
    assert_eq!(paths, [&zero, &one]);
    assert_eq!(aligned(&files, &calibrated), ["5000", "4000.000"]);
    let statistics = |name: &str| {
        let path = files.0.path().join(format!("aligned/alignment_stats/{name}.json"));
        let text = std::fs::read_to_string(path).expect("statistics");
        serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
    };
    let found = statistics("node0.pt.trace.json");
    assert_eq!(found["node"], 1);
    assert_eq!(found["node_settled_by"], "its rank 1 of 2, which the run recorded on this node");
    assert_eq!(found["tied_by"], "assumed");
    let merged = files.0.path().join("all.json");
    merge(&calibrated, &merged, MergeSettings::default()).expect("merged");
    let text = std::fs::read_to_string(&merged).expect("an output");
    assert!(text.contains("\"rank 1 · ") && text.contains("\"node 0 · a · "), "{text}");
}

#[test]
fn nothing_settles_whose_traces_are_but_facts_and_the_caller() {
    let files = Files::new();
    let mut request = Request { nodes: Vec::new(), ..files.request(0) };
    let refused = calibrate(&request).expect_err("as many traces as nodes").to_string();
    assert!(refused.contains("cannot tell which node wrote 2 of the 2 traces"), "{refused}");
    request.assume_order = true;
    let calibrated = calibrate(&request).expect("meant");
    assert_eq!(aligned(&files, &calibrated), ["10000", "9000.000"]);
    for (traces, nodes) in [(request.traces.clone(), vec![0, 1]), (Vec::new(), Vec::new())] {
        let clocks = ClockSource::Run(files.0.path().to_owned());
        let both = calibrate(&Request { traces, nodes, clocks, ..request.clone() }).expect_err("no order of a list");
        assert!(both.to_string().contains("--assume-order needs a list"), "{both}");
    }
}
