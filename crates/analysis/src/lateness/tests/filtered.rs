//! Stragglers of a merged file from which events were left out, on the real set whose clocks are
//! known.

use std::path::{Path, PathBuf};

use probe_sync_alignment::Error;
use probe_sync_alignment::{
    Calibrated, ClockSource, FilterSettings, MergeReport, MergeSettings, Request, StepNames, Steps, calibrate, merge,
};
use probe_sync_formats::ALIGNED_TO;
use probe_sync_formats::testing::folder;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{LateInstance, lateness};

fn merged(calibrated: &Calibrated, output: &Path, filter: FilterSettings) -> Result<MergeReport, Error> {
    merge(calibrated, output, MergeSettings { filter, allow_uncalibrated: true, ..MergeSettings::default() })
}

/// The traces of a merged file, one per rank again.
fn divided(merged: &Path, folder: &Path) -> Vec<PathBuf> {
    let mut document: Value = serde_json::from_slice(&std::fs::read(merged).expect("read")).expect("JSON");
    let (nodes, base) = (document["nodes"].take(), document["baseTimeNanoseconds"].clone());
    let events = document["traceEvents"].take();
    let of_rank = |(rank, node): (usize, &Value)| {
        let first = 1_000_000 * (rank as u64 + 1);
        let own = |event: &&Value| event["pid"].as_u64().is_some_and(|pid| (first..first + 1_000_000).contains(&pid));
        let events: Vec<&Value> = events.as_array().into_iter().flatten().filter(own).collect();
        let document = json!({"distributedInfo": node["distributedInfo"], "host_name": node["host_name"], "baseTimeNanoseconds": base, ALIGNED_TO: "host", "traceEvents": events});
        let path = folder.join(format!("rank{rank}.json"));
        std::fs::write(&path, document.to_string()).map(|()| path).expect("written")
    };
    nodes.as_array().expect("nodes").iter().enumerate().map(of_rank).collect()
}

/// What is said of an instance; not whether the lead is certain, since an aligned file does not say
/// how sure its times are.
fn told(instance: &LateInstance) -> (String, Option<u32>, i64, i64, Option<i64>) {
    (instance.name.clone(), instance.latest_rank, instance.lead_ns, instance.last_arrival_ns, instance.step)
}

#[test]
fn the_stragglers_of_a_filtered_file_are_those_of_its_span() {
    let Some(set) = folder("torch/b_4node_offset_drift") else { return };
    let mut traces: Vec<PathBuf> =
        std::fs::read_dir(&set).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    traces.retain(|path| path.to_string_lossy().ends_with(".json.gz"));
    traces.sort();
    let clocks = ClockSource::Offsets(set.join("offsets.csv"));
    let all = calibrate(&Request { traces, assume_order: true, clocks, ..Request::default() }).expect("clocks");
    let settings = StepNames { pattern: regex::Regex::new(r"^train_step#(\d+)$").expect("a pattern") };
    let whole = lateness(&all, &settings).expect("lateness");
    let steps: Vec<i64> = whole.instances.iter().filter_map(|instance| instance.step).collect();
    let (first, last) = (steps[steps.len() / 3], steps[2 * steps.len() / 3]);
    let folder = TempDir::new().expect("a folder");
    let output = folder.path().join("some.json");
    let asked =
        FilterSettings { steps: Some(Steps(first..=last)), step_names: settings.clone(), ..FilterSettings::default() };
    let size = merged(&all, &output, asked.clone()).expect("merged").filter.expect("it was filtered").bytes;
    for bytes_max in [None, Some(size * 7 / 10)] {
        let report = merged(&all, &output, FilterSettings { bytes_max, ..asked.clone() }).expect("merged");
        let filter = report.filter.expect("it was filtered");
        print!("{}", filter.text());
        let [Some(from), Some(to)] = filter.span_ns else { panic!("{filter:?}") };
        let some =
            calibrate(&Request { traces: divided(&output, folder.path()), ..Request::default() }).expect("clocks");
        let found = lateness(&some, &settings).expect("lateness");
        let within = |instance: &&LateInstance| {
            instance.arrivals.iter().all(|part| part.arrival_ns >= from && part.arrival_ns <= to)
        };
        let expected: Vec<_> = whole.instances.iter().filter(within).map(told).collect();
        let found: Vec<_> = found.instances.iter().filter(within).map(told).collect();
        assert!(expected.len() >= 5, "{expected:?}");
        assert_eq!(found, expected);
    }
}
