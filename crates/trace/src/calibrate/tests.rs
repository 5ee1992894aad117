//! Requests on hand-made traces: what goes together, whose clock times end on, and what is refused.

use std::path::{Path, PathBuf};

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
                "{{\"node_id\":{other},\"window_start_ns\":{start_ns},\"window_end_ns\":{},\"offset_ns\":{offset_ns},\"drift_ppm\":0.0,\"reachable\":true}}\n",
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
    assert!(check(&calibrated).text().contains("nothing to judge"));
    let refused = align(&calibrated, &files.0.path().join("out"), AlignSettings::default()).expect_err("no clock");
    assert!(refused.to_string().contains("no clock is known for"), "{refused}");
    let output = files.0.path().join("all.json");
    assert!(merge(&calibrated, &output, MergeSettings::default()).is_err());
    let settings = MergeSettings { allow_uncalibrated: true, ..MergeSettings::default() };
    assert_eq!(merge(&calibrated, &output, settings).expect("merged").uncalibrated, ["node0", "node1"]);
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
    check(&|_, request| request.timeline = OutputClock::Tracer, "no pairs tie the reference node's tracer clock");
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
