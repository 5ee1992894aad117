//! Which traces are on one clock as they stand, and how sure a map is of whose offsets little is
//! known.

use probe_sync_writers::OutputFormat;

use super::*;
use crate::{ConvertSettings, MergeReport, Output, OutputKind, convert};

/// A trace of this host.
fn of_host(files: &Files, name: &str, host: &str) -> PathBuf {
    let head = if host.is_empty() { String::new() } else { format!("\"host_name\": \"{host}\", ") };
    let event = event(10_000.0, 10_005.0);
    files.put(name, &format!("{{{head}\"baseTimeNanoseconds\": 0, \"traceEvents\": [{event}]}}"))
}

fn unrelated(traces: Vec<PathBuf>) -> Calibrated {
    calibrate(&Request { traces, ..Request::default() }).expect("facts")
}

fn merged(files: &Files, calibrated: &Calibrated) -> Result<MergeReport, Error> {
    merge(calibrated, &files.0.path().join("all.json"), MergeSettings::default())
}

fn converted(files: &Files, calibrated: &Calibrated, kind: OutputKind, as_they_are: bool) -> Result<(), Error> {
    let output = Output { path: files.0.path().join("all"), kind };
    convert(calibrated, &[output], &ConvertSettings { as_they_are, ..ConvertSettings::default() }).map(drop)
}

#[test]
fn traces_of_several_hosts_are_in_one_output_only_where_that_is_asked_for() {
    let files = Files::new();
    let together = OutputKind::File(OutputFormat::Perfetto);
    let apart = OutputKind::FileOfEach { format: OutputFormat::Kineto, ending: ".pt.trace.json" };
    for (hosts, clock) in [
        (["gpu-01", "gpu-01"], Some("system clock of gpu-01")),
        (["gpu-01", "gpu-01.cluster"], Some("system clock of gpu-01")),
        (["gpu-01", "gpu-02"], None),
        (["gpu-01", ""], None),
        (["", ""], None),
        (["localhost", "localhost"], None),
    ] {
        let traces = [("a.json", hosts[0]), ("b.json", hosts[1])].map(|(name, host)| of_host(&files, name, host));
        let calibrated = unrelated(traces.to_vec());
        let results = [merged(&files, &calibrated).map(drop), converted(&files, &calibrated, together, false)];
        for result in results {
            match (clock, result) {
                (Some(_), result) => result.unwrap_or_else(|error| panic!("{hosts:?}: {error}")),
                (None, Err(error @ Error::Request { .. })) => {
                    let said = error.to_string();
                    assert!(said.contains("the traces may be on different clocks"), "{hosts:?}: {said}");
                    assert!(said.contains("use --no-correction to leave all times unchanged"), "{hosts:?}: {said}");
                }
                (None, other) => panic!("{hosts:?}: {other:?}"),
            }
        }
        assert_eq!(calibrated.timeline, clock.unwrap_or("each node's own clock"), "{hosts:?}");
        converted(&files, &calibrated, together, true).expect("asked for");
        converted(&files, &calibrated, apart, false).expect("each trace has a file of its own");
    }
    let alone = unrelated(vec![of_host(&files, "a.json", "")]);
    converted(&files, &alone, together, false).expect("one trace is on one clock");
    merged(&files, &alone).expect("one trace is on one clock");
}

#[test]
fn traces_that_align_wrote_are_merged_on_the_clock_that_they_state() {
    let files = Files::new();
    let written = |reference: u32| {
        let calibrated = calibrate(&files.request(reference)).expect("clocks");
        let folder = files.0.path().join(format!("aligned{reference}"));
        let done = align(&calibrated, &folder, AlignSettings::default()).expect("maps");
        done.map(|aligned| aligned.expect("written").output).collect::<Vec<_>>()
    };
    let [first, other] = [written(0), written(1)];
    let sigma_ns = calibrate(&files.request(0)).expect("clocks").traces[1].map.as_ref().expect("a map").map(0).sigma_ns;
    let calibrated = unrelated(first.clone());
    let report = merged(&files, &calibrated).expect("one clock");
    assert_eq!((calibrated.timeline.as_str(), report.uncalibrated.len()), ("system clock of node 0", 0));
    assert!(report.traces[1].notes.iter().any(|note| note.ends_with("on the system clock of node 0")), "{report:?}");
    // As sure as the files say.
    let stated: Vec<f64> = report.traces.iter().map(|trace| trace.uncertainty_ns).collect();
    assert!(
        stated[0] == 0.0 && sigma_ns > 0.0 && (stated[1] - sigma_ns).abs() < 0.5 * sigma_ns,
        "{stated:?} {sigma_ns}"
    );
    let text = std::fs::read_to_string(files.0.path().join("all.json")).expect("merged");
    assert!(text.contains(r#""probe_sync_timeline":"system clock of node 0""#), "{text}");
    let mixed = unrelated(vec![first[0].clone(), other[1].clone()]);
    let said = merged(&files, &mixed).expect_err("two clocks").to_string();
    assert!(
        said.contains("is on the system clock of node 0") && said.contains("on the system clock of node 1"),
        "{said}"
    );
    let unstated = unrelated(vec![first[0].clone(), files.trace("b.json")]);
    let said = merged(&files, &unstated).expect_err("one states no clock").to_string();
    assert!(said.contains("b.json contains neither a clock nor a host name"), "{said}");
}

#[test]
fn offsets_without_a_bound_say_nothing_of_how_sure_they_are() {
    let line = |at: i64, stated: &str| {
        format!("{{\"node_id\":1,\"midpoint_sys_ns\":{at},\"offset_ns\":{},\"slope_ppm\":0.5{stated}}}\n", at % 97)
    };
    let table = |rows: &[&str]| rows.join("\n") + "\n";
    let header = "node,node_realtime_ns,offset_vs_node0_ns";
    let many: String = (0..40).map(|at| line(at * 1_000_000, "")).collect();
    for (content, at_least, known) in [
        ([line(0, ""), line(20_000_000, "")].concat(), f64::INFINITY, "have no uncertainty, and 2 are too few"),
        ([0, 20_000_000].map(|at| line(at, ",\"residual_ns\":50000")).concat(), 50_000.0, ""),
        ([0, 20_000_000].map(|at| line(at, ",\"residual\":50000,\"sigma_ns\":null")).concat(), 50_000.0, ""),
        ([0, 20_000_000].map(|at| line(at, ",\"sigma_ns\":70,\"residual\":50000")).concat(), 70.0, ""),
        ([0, 20_000_000].map(|at| line(at, ",\"residual_ns\":0")).concat(), f64::INFINITY, "too few"),
        (many, 100.0, "using their scatter"),
        (table(&[header, "1,0,2500000", "1,90000000,2500000"]), 100.0, "using their scatter"),
        (table(&[&format!("{header},sigma_ns"), "1,0,2500000,120", "1,90000000,2500000,120"]), 120.0, ""),
    ] {
        let files = Files::new();
        let clocks = ClockSource::Offsets(files.put("offsets.txt", &content));
        let calibrated = calibrate(&Request { clocks, ..files.request(0) }).expect("offsets");
        let stats = merged(&files, &calibrated).expect("merged").traces[1].clone();
        let found = stats.uncertainty_ns;
        let fits =
            if at_least.is_infinite() { found.is_infinite() } else { (at_least..1.1 * at_least).contains(&found) };
        assert!(fits, "{content}: {found}");
        let said = calibrated.traces[1].notes.iter().find(|note| note.contains("have no uncertainty"));
        assert_eq!(said.is_some(), !known.is_empty(), "{content}: {said:?}");
        assert!(said.is_none_or(|said| said.contains(known)), "{content}: {said:?}");
        let look = calibrated.traces[1].look().expect("a map")(10_000_000_000);
        assert_eq!(look.sigma_ns.is_infinite(), at_least.is_infinite(), "{content}");
    }
}

/// The directory of a run with pairs of node 0, whose tracer clock is an hour behind.
fn run_with_pairs(files: &Files) -> ClockSource {
    files.offsets(0);
    std::fs::create_dir(files.0.path().join("snapshots")).expect("a folder");
    let pair = |ms: i64| {
        let system = ms * 1_000_000;
        format!("{{\"sys_clock_ns\":{system},\"tracer_clock_ns\":{},\"bracket_ns\":100}}\n", system + 3_600_000_000_000)
    };
    files.put("snapshots/node0.snapshot_pairs.jsonl", &[pair(1), pair(10), pair(20)].concat());
    ClockSource::Run(files.0.path().to_owned())
}

#[test]
fn the_tracer_clock_of_a_reference_is_known_without_its_trace_where_the_run_took_pairs() {
    let files = Files::new();
    let request = Request {
        traces: vec![files.trace("b.json")],
        nodes: vec![1],
        clocks: run_with_pairs(&files),
        timeline: OutputClock::Tracer,
        ..Request::default()
    };
    let calibrated = calibrate(&request).expect("pairs of the run");
    assert_eq!(calibrated.timeline, "tracer clock of node 0");
    let map = calibrated.traces[0].map.as_ref().expect("offsets");
    // Node 1 is 1 ms ahead, and node 0's tracer clock an hour.
    assert_eq!(map.map(10_000_000_000).time_ps, 9_000_000_000 + 3_600_000_000_000_000);
    let clocks = ClockSource::Offsets(files.offsets(0));
    let said = calibrate(&Request { clocks, ..request }).expect_err("no pairs").to_string();
    assert!(said.contains("node 0, the reference") && said.contains("--run-dir of a run that took"), "{said}");
}

#[test]
fn markers_of_the_reference_are_not_when_it_was_measured() {
    let files = Files::new();
    // Markers from 5 to 10 ms, events from 1 to 19 ms of a node that was measured from 0 to 22 ms.
    let marker = |at: i64| {
        let name = format!("probe_sync.clock#{}", at * 1_000_000);
        format!(r#"{{"ph": "i", "pid": 1, "tid": 1, "ts": {}, "name": "{name}"}}"#, at * 1000 + 10)
    };
    let events: Vec<String> =
        (5..=10).map(marker).chain([event(1_000.0, 1_005.0), event(19_000.0, 19_005.0)]).collect();
    let calibrated = beside(&files, &[("a.json", &events.join(", ")), ("b.json", &event(5_000.0, 5_005.0))], |_| {});
    let calibrated = calibrated.expect("measured");
    let stats = merged(&files, &calibrated).expect("merged").traces[0].clone();
    let beyond = stats.extrapolated_before + stats.extrapolated_after;
    assert!(beyond > 0 && stats.beyond_pairs == beyond, "{stats:?}");
    let said = check(&calibrated).remarks();
    assert!(said.is_empty(), "{said:?}");
}
