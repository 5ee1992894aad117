//! Filters of merged files, on small jobs whose every event is known.

use std::path::{Path, PathBuf};

use crate::Error;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{FilterSettings, Kinds};
use crate::window::Bound;
use crate::{Calibrated, MergeReport, MergeSettings, Request, calibrate, merge};

/// Two ranks of one host, with clocks that agree: a step, an operator that launches a kernel by a
/// flow, and an all-reduce with its launch, once a step.
fn job(folder: &Path, steps: u64) -> Vec<PathBuf> {
    let write = |rank: u64| {
        let mut events =
            vec![json!({"ph": "M", "pid": 1, "tid": 1, "ts": 0, "name": "process_name", "args": {"name": "python"}})];
        for step in 0..steps {
            let at = 1000 * step + 10 * rank;
            let slice = |category: &str, name: &str, tid: u64, ts: u64, dur: u64, args: Value| json!({"ph": "X", "cat": category, "name": name, "pid": if tid > 5 { 0 } else { 1 }, "tid": tid, "ts": ts, "dur": dur, "args": args});
            events.push(slice("user_annotation", &format!("ProfilerStep#{step}"), 1, at, 900, json!({})));
            for (number, (name, kernel)) in
                [("gemm", "sgemm"), ("reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL")].iter().enumerate()
            {
                let (number, start) = (number as u64, at + 100 + 300 * number as u64);
                let correlation = 10 * step + number + 1;
                events.push(slice("cpu_op", &format!("aten::{name}"), 1, start, 50 + 20 * number, json!({})));
                events.push(slice(
                    "cuda_runtime",
                    "cudaLaunchKernel",
                    1,
                    start + 10,
                    5,
                    json!({"correlation": correlation}),
                ));
                events.push(json!({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": correlation, "pid": 1, "tid": 1, "ts": start + 10}));
                let mut args = json!({"correlation": correlation});
                if number == 1 {
                    args["Collective name"] = json!("allreduce");
                    args["Process Group Name"] = json!("0");
                    args["Process Group Ranks"] = json!("[0, 1]");
                    args["Seq"] = json!(step);
                }
                events.push(slice("kernel", kernel, 7, start + 30, 100, args));
                events.push(json!({"ph": "f", "bp": "e", "cat": "ac2g", "name": "ac2g", "id": correlation, "pid": 0, "tid": 7, "ts": start + 30}));
            }
            events.push(json!({"ph": "C", "name": "memory", "pid": 1, "ts": at + 500, "args": {"bytes": step}}));
        }
        let document = json!({"distributedInfo": {"rank": rank, "world_size": 2}, "host_name": "gpu-01", "baseTimeNanoseconds": 1_800_000_000_000_000_000_i64, "traceEvents": events});
        let path = folder.join(format!("rank{rank}.json"));
        std::fs::write(&path, document.to_string()).map(|()| path).expect("written")
    };
    vec![write(0), write(1)]
}

fn calibrated(traces: Vec<PathBuf>) -> Calibrated {
    calibrate(&Request { traces, ..Request::default() }).expect("clocks")
}

fn merged(calibrated: &Calibrated, output: &Path, filter: FilterSettings) -> Result<MergeReport, Error> {
    let settings = MergeSettings { filter, allow_uncalibrated: true, ..MergeSettings::default() };
    merge(calibrated, output, settings)
}

/// The events of a file that are no metadata.
fn events(path: &Path) -> Vec<Value> {
    let mut document: Value = serde_json::from_slice(&std::fs::read(path).expect("read")).expect("JSON");
    let Value::Array(mut events) = document["traceEvents"].take() else { panic!("{}", path.display()) };
    events.retain(|event| event["ph"] != "M");
    events
}

/// Number of events of each phase that a merge keeps, and its statements about the others.
fn check(filter: FilterSettings, phases: [(&str, usize); 4], left_out: [u64; 4]) {
    let folder = TempDir::new().expect("a folder");
    let (calibrated, output) = (calibrated(job(folder.path(), 10)), folder.path().join("all.json"));
    let said = filter.to_string();
    let report = merged(&calibrated, &output, filter).expect("merged");
    let events = events(&output);
    for (phase, expected) in phases {
        let found = events.iter().filter(|event| event["ph"] == phase).count();
        assert_eq!(found, expected, "{said}: {phase}");
    }
    let filter = report.filter.expect("it was filtered");
    assert_eq!([filter.outside, filter.of_other_kinds, filter.too_short, filter.half_flows], left_out, "{said}");
    assert_eq!(filter.events, filter.left_out + events.len() as u64, "{said}: every event is counted once");
    let statistics = std::fs::read(folder.path().join("all.json.alignment_stats.json")).expect("statistics");
    let statistics: Value = serde_json::from_slice(&statistics).expect("JSON");
    assert_eq!(statistics["filter"]["left_out"], filter.left_out, "{said}");
}

fn only(kinds: &[&str]) -> FilterSettings {
    let mut only = Kinds::default();
    kinds.iter().for_each(|kind| only.add(kind).expect("a kind"));
    FilterSettings { only, ..FilterSettings::default() }
}

#[test]
fn what_lies_outside_goes_and_half_flows_with_it() {
    // Two ranks: 7 slices, a counter and 2 flows of two ends in each of ten steps.
    let ranks = FilterSettings { ranks: Some("1".parse().expect("ranks")), ..FilterSettings::default() };
    check(ranks, [("X", 70), ("s", 20), ("f", 20), ("C", 10)], [0; 4]);
    let steps = FilterSettings { steps: Some("3..4".parse().expect("steps")), ..FilterSettings::default() };
    check(steps, [("X", 28), ("s", 8), ("f", 8), ("C", 4)], [112 + 16, 0, 0, 64]);
    // From within the first kernel of step 2 on: the launch before it is gone, and with it the
    // flow.
    let from = FilterSettings { from: "+2.140ms".parse().expect("a time"), ..FilterSettings::default() };
    let folder = TempDir::new().expect("a folder");
    let (all, output) = (calibrated(job(folder.path(), 10)), folder.path().join("all.json"));
    merged(&all, &output, from).expect("merged");
    let found = events(&output);
    let count = |phase: &str| found.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!((count("s"), count("f"), count("C")), (30, 30, 16));
}

#[test]
fn kinds_are_kept_by_what_they_are() {
    check(only(&["steps"]), [("X", 20), ("s", 0), ("f", 0), ("C", 0)], [0, 120 + 20, 0, 80]);
    check(only(&["gpu"]), [("X", 40), ("s", 0), ("f", 0), ("C", 0)], [0, 100 + 20, 0, 80]);
    // The kernel, its launch, and the flow between the two.
    check(only(&["collectives"]), [("X", 40), ("s", 20), ("f", 20), ("C", 0)], [0, 100 + 20, 0, 40]);
    check(only(&["^aten::g", "steps"]), [("X", 40), ("s", 0), ("f", 0), ("C", 0)], [0, 100 + 20, 0, 80]);
}

#[test]
fn a_size_is_kept_and_what_tells_who_was_late_stays() {
    let folder = TempDir::new().expect("a folder");
    let all = calibrated(job(folder.path(), 200));
    for name in ["all.json", "all.json.gz", "all.pftrace"] {
        let whole = merged(
            &all,
            &folder.path().join(format!("whole.{name}")),
            FilterSettings { bytes_max: Some(1 << 40), ..FilterSettings::default() },
        );
        let whole = whole.expect("merged").filter.expect("it was filtered");
        assert_eq!(whole.left_out, 0, "{name}");
        let bytes_max = whole.bytes * 3 / 4;
        let output = folder.path().join(name);
        let report = merged(&all, &output, FilterSettings { bytes_max: Some(bytes_max), ..FilterSettings::default() });
        let filter = report.expect("merged").filter.expect("it was filtered");
        assert!(filter.bytes <= bytes_max && filter.bytes > bytes_max / 3, "{name}: {filter:?}");
        assert!(filter.shortest_ns.is_some() && filter.too_short > 0, "{name}: {filter:?}");
        if name == "all.json" {
            let events = events(&output);
            let named = |part: &str| {
                events.iter().filter(|event| event["name"].as_str().is_some_and(|name| name.contains(part))).count()
            };
            assert_eq!((named("ProfilerStep#"), named("ncclDevKernel")), (400, 400));
        }
    }
    // Collectives and steps alone are more.
    let refused = merged(
        &all,
        &folder.path().join("none.json"),
        FilterSettings { bytes_max: Some(3000), ..FilterSettings::default() },
    );
    let said = refused.expect_err("too small").to_string();
    assert!(said.contains("--max-size 3000: collectives, steps"), "{said}");
    assert!(!folder.path().join("none.json").exists());
}

#[test]
fn what_leaves_nothing_or_cannot_be_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let all = calibrated(job(folder.path(), 10));
    let refused = |name: &str, filter: FilterSettings, part: &str| {
        let output = folder.path().join(name);
        let said = merged(&all, &output, filter).expect_err(part).to_string();
        assert!(said.contains(part), "{said}");
        assert!(!output.exists(), "{part}");
    };
    for name in ["all.json", "all.pftrace"] {
        refused(name, only(&["no such event"]), "--only no such event leaves none of");
    }
    let ranks = |text: &str| FilterSettings { ranks: Some(text.parse().expect("ranks")), ..FilterSettings::default() };
    refused("all.json", ranks("0-1,7"), "no trace is from 7; the traces are from 0, 1");
    let steps = |text: &str| FilterSettings { steps: Some(text.parse().expect("steps")), ..FilterSettings::default() };
    refused("all.json", steps("8..12"), "no trace has a step 12; the traces have steps 0 to 9");
    let both = FilterSettings { from: Bound::Share(0.9), ..steps("1") };
    refused("all.json", both, "do not overlap");
}

#[test]
fn ranks_and_steps_are_said_in_ranges() {
    let check = |text: &str, expected: Result<&str, &str>| match (text.parse::<super::Ranks>(), expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected),
        (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
        (found, _) => panic!("{text}: {found:?}"),
    };
    check("0-7,12", Ok("0-7,12"));
    check("3", Ok("3"));
    check("7-3", Err("not a list of ranks"));
    check("", Err("not a list of ranks"));
    check("0-", Err("not a list of ranks"));
    let check = |text: &str, expected: Result<&str, &str>| match (text.parse::<super::Steps>(), expected) {
        (Ok(found), Ok(expected)) => assert_eq!(found.to_string(), expected),
        (Err(said), Err(part)) => assert!(said.contains(part), "{said}"),
        (found, _) => panic!("{text}: {found:?}"),
    };
    check("10..12", Ok("10..12"));
    check("10..=12", Ok("10..12"));
    check("-1", Ok("-1..-1"));
    check("12..10", Err("ends before it begins"));
    check("ten", Err("not a range of steps"));
}
