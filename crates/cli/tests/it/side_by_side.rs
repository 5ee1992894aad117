//! `merge` of Perfetto traces that exist already into a TAR with a `perfetto_manifest`: its numbers
//! against clocks that are known exactly.
//!
//! The traces are what `convert` makes of databases whose times stay on each node's own
//! CLOCK_BOOTTIME, as rocprofv3 writes them. Perfetto's own reader on the same archive:
//! `bench/readers/perfetto_convert.py`.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::boot_clock::{Set, run};
use crate::support::{complaint, output, probe_sync};

/// The set's databases as Perfetto traces, each on its node's boot clock.
fn traces(set: &Set, to: &Path) -> Vec<PathBuf> {
    let converted = |(node, database): (usize, PathBuf)| {
        let mut command = probe_sync(&["convert", "-f", "pftrace", "-o", &format!("node{node}"), "-d"]);
        command.arg(to).arg("-i").arg(database);
        let done = output(command);
        assert!(done.status.success(), "{}", complaint(&done));
        to.join(format!("node{node}_results.pftrace"))
    };
    set.databases().into_iter().enumerate().map(converted).collect()
}

/// The members of a TAR file, in order.
fn members(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut archive = tar::Archive::new(std::fs::File::open(path).expect("a TAR"));
    let read = |entry: std::io::Result<tar::Entry<'_, std::fs::File>>| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a name").to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("its content");
        (name, content)
    };
    archive.entries().expect("entries").map(read).collect()
}

fn manifest(members: &[(String, Vec<u8>)]) -> Value {
    assert_eq!(members[0].0, "perfetto_manifest.json");
    // Trace processor knows it by these bytes, spaces left out.
    let text: Vec<u8> = members[0].1.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    assert!(text.starts_with(b"{\"perfetto_manifest\""));
    let document: Value = serde_json::from_slice(&members[0].1).expect("JSON");
    document["perfetto_manifest"].clone()
}

/// What a node's boot clock showed at true times, ns: readings within 2 µs.
fn readings(set: &Set, node: usize) -> BTreeMap<i64, i64> {
    let text = std::fs::read(set.offsets().with_file_name(format!("clock_node{node}.json"))).expect("readings");
    let readings: Value = serde_json::from_slice(&text).expect("JSON");
    let number = |reading: &Value, key: &str| reading[key].as_i64().expect("ns");
    let list = readings["snapshots"].as_array().expect("a list");
    list.iter().map(|reading| (number(reading, "true_ns"), number(reading, "node_boottime_ns"))).collect()
}

/// A clock between two readings, or beyond the last, ns.
fn between(readings: &BTreeMap<i64, i64>, true_ns: i64) -> f64 {
    let points: Vec<(i64, i64)> = readings.iter().map(|(&at, &shown)| (at, shown)).collect();
    let next = points.partition_point(|(at, _)| *at < true_ns).clamp(1, points.len() - 1);
    let ((from, shown), (to, then)) = (points[next - 1], points[next]);
    (shown - points[0].1) as f64 + (then - shown) as f64 * (true_ns - from) as f64 / (to - from) as f64
}

fn merge(traces: &[PathBuf], flags: &[&str], files: &[(&str, &[PathBuf])], to: &Path) -> Output {
    run("merge", traces, flags, &[files, &[("--output", &[to.to_owned()])]].concat())
}

#[test]
fn one_offset_per_file_puts_clocks_that_differ_by_hours_together_as_far_as_it_says() {
    for (name, nodes) in [("a_2node", 2), ("b_4node_offset_drift", 4)] {
        let Some(set) = Set::find(name, nodes) else { return };
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let traces = traces(&set, scratch.path());
        let (pairs, offsets) = (set.all_pairs(scratch.path()), [set.offsets()]);
        let clocks: [(&str, &[PathBuf]); 2] = [("--offsets", &offsets), ("--snapshots", &pairs)];
        let tar = scratch.path().join("job.tar");
        let done = merge(&traces, &["-v", "--assume-order"], &clocks, &tar);
        assert!(done.status.success(), "{}", complaint(&done));
        let said = String::from_utf8_lossy(&done.stdout).into_owned();

        let members = members(&tar);
        assert_eq!(members.len(), nodes + 1);
        let manifest = manifest(&members);
        let reference = json!({"file": "node0_results.pftrace", "clock": "BOOTTIME"});
        assert_eq!(manifest["version"], 1);
        assert_eq!(manifest["trace_time"], reference);
        let text = std::fs::read(scratch.path().join("job.tar.alignment_stats.json")).expect("its statistics");
        let report: Value = serde_json::from_slice(&text).expect("JSON");
        let files = manifest["files"].as_array().expect("files");
        assert_eq!(files.len(), nodes);
        let first = readings(&set, 0);
        for (node, file) in files.iter().enumerate() {
            let path = file["path"].as_str().expect("a name");
            assert_eq!(path, format!("node{node}_results.pftrace"));
            let content = &members.iter().find(|(name, _)| name == path).expect("a member").1;
            assert_eq!(*content, std::fs::read(&traces[node]).expect("the trace"), "{path} is copied as it is");
            assert_eq!(file["machine"], json!({"name": format!("node {node}")}));
            let told = &report["tar"]["files"][node];
            if node == 0 {
                assert!(
                    file.get("clocks").is_none() && told["offset_ns"] == 0,
                    "a clock is not related to itself: {file}"
                );
                continue;
            }
            assert_eq!((&file["clocks"]["clock"], &file["clocks"]["sync_to"]), (&json!("BOOTTIME"), &reference));
            let offset_ns = file["clocks"]["offset_ns"].as_i64().expect("ns");
            let left_ns = told["drift_left_ns"].as_u64().expect("ns");
            assert_eq!(told["offset_ns"], offset_ns);
            assert!(said.contains(&format!("offset_ns {offset_ns} relative to node0_results.pftrace")), "{said}");
            assert!(said.contains(&format!("a remaining drift of at most {left_ns} ns")), "{said}");
            check_truth(&first, &readings(&set, node), offset_ns, left_ns);
        }
        let again = scratch.path().join("again.tar");
        assert!(merge(&traces, &["--assume-order"], &clocks, &again).status.success());
        assert_eq!(std::fs::read(again).expect("a TAR"), std::fs::read(tar).expect("a TAR"), "same input, same bytes");
    }
}

/// At any true time the reference's clock shows what the other's shows plus the offset, within the
/// drift that is left and what the readings are wrong by; and the drift is there.
fn check_truth(reference: &BTreeMap<i64, i64>, other: &BTreeMap<i64, i64>, offset_ns: i64, left_ns: u64) {
    let (zero, of_other) = (*reference.values().next().expect("readings"), *other.values().next().expect("readings"));
    let off: Vec<f64> = other
        .iter()
        .map(|(&true_ns, &shown)| {
            let by_offset = (of_other + offset_ns - zero) as f64 + (shown - of_other) as f64;
            between(reference, true_ns) - by_offset
        })
        .collect();
    let worst = off.iter().fold(0.0_f64, |worst, off| worst.max(off.abs()));
    assert!(worst <= left_ns as f64 + 3_000.0, "off by {worst} ns, {left_ns} ns are said to be left");
    assert!(worst >= 0.5 * left_ns as f64 - 3_000.0, "off by {worst} ns only, {left_ns} ns are said to be left");
}

#[test]
fn hosts_of_the_run_name_the_machines_and_files_of_one_host_share_an_offset() {
    let Some(set) = Set::find("a_2node", 2) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let mut traces = traces(&set, scratch.path());
    let again = scratch.path().join("again");
    std::fs::create_dir(&again).expect("a folder");
    let second = again.join("node1_results.pftrace");
    std::fs::copy(&traces[1], &second).expect("copied");
    traces.push(second);
    let pairs = set.all_pairs(scratch.path());
    let pairs = [pairs[0].clone(), pairs[1].clone(), pairs[1].clone()];
    // The set's offsets as those of a run, with the hosts that it recorded.
    let run = scratch.path().join("offsets.jsonl");
    let mut lines =
        json!({"meta": true, "nodes": [{"node_id": 0, "hostname": "gpu-01"}, {"node_id": 1, "hostname": "gpu-02"}]})
            .to_string();
    for (round, line) in std::fs::read_to_string(set.offsets()).expect("offsets").lines().skip(1).enumerate() {
        let fields: Vec<i64> = line.split(',').map(|field| field.parse::<f64>().expect("a number") as i64).collect();
        let at = fields[1] - fields[2];
        let line = json!({"round_id": round, "window_id": round, "window_start_ns": at - 1_000_000, "window_end_ns": at + 1_000_000, "node_id": fields[0],
            "offset_ns": fields[2], "drift_ppm": 0.0, "residual": 1.0, "reachable": true, "converged": true, "sigma_ns": 1.0});
        lines.push_str(&format!("\n{line}"));
    }
    std::fs::write(&run, lines + "\n").expect("written");
    let tar = scratch.path().join("job.tar");
    let done = merge(
        &traces,
        &["--nodes", "0", "1", "1", "--extrapolate", "10s"],
        &[("--offsets", &[run]), ("--snapshots", &pairs)],
        &tar,
    );
    assert!(done.status.success(), "{}", complaint(&done));
    let members = members(&tar);
    let names: Vec<&str> = members.iter().skip(1).map(|(name, _)| name.as_str()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(names, sorted, "in the order in which trace processor reads them");
    assert_eq!(names.len(), 3);
    let files = manifest(&members)["files"].as_array().expect("files").clone();
    let machines: Vec<&str> = files.iter().map(|file| file["machine"]["name"].as_str().expect("a name")).collect();
    assert_eq!(machines, ["gpu-01", "gpu-02", "gpu-02"]);
    assert_eq!(files[1]["clocks"], files[2]["clocks"]);
}

#[test]
fn what_a_manifest_cannot_say_is_refused_and_leaves_nothing() {
    let Some(set) = Set::find("a_2node", 2) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let traces = traces(&set, scratch.path());
    let (pairs, offsets) = (set.all_pairs(scratch.path()), [set.offsets()]);
    let clocks: [(&str, &[PathBuf]); 2] = [("--offsets", &offsets), ("--snapshots", &pairs)];
    let refused = |traces: &[PathBuf], flags: &[&str], files: &[(&str, &[PathBuf])], name: &str, part: &str| {
        let output = scratch.path().join(name);
        let done = merge(traces, flags, files, &output);
        assert!(!done.status.success() && complaint(&done).contains(part), "{flags:?} {name}: {}", complaint(&done));
        assert!(!output.exists(), "{name}");
    };
    refused(&traces, &[], &[], "job.tar", "the clock of");
    refused(&traces, &["--no-correction"], &[], "job.tar", "the clock of");
    refused(&traces, &["--assume-order"], &clocks[..1], "job.tar", "nothing relates them to the system clock");
    refused(&traces, &[], &clocks, "job.tar", "--nodes");
    refused(&traces, &["--assume-order", "--annotate"], &clocks, "job.tar", "--annotate only applies to a merge into");
    refused(&traces, &["--assume-order"], &clocks, "job.db", "the name must end in .pftrace");
    let databases = set.databases();
    refused(&databases, &["--assume-order"], &clocks, "job.tar", "only accepts Perfetto traces");
    let write = |flags: &[&str], name: &str| {
        let mut command = probe_sync(&[&["convert", "-f", "pftrace", "-o", name], flags].concat());
        command.arg("-d").arg(scratch.path()).arg("--offsets").args(&offsets).arg("--snapshots").args(&pairs);
        command.args(["--assume-order", "-i"]).args(&databases);
        let done = output(command);
        assert!(done.status.success(), "{}", complaint(&done));
        scratch.path().join(format!("{name}_results.pftrace"))
    };
    let (aligned, machines) = (write(&[], "aligned"), write(&["--machines"], "machines"));
    refused(
        &[aligned, traces[1].clone()],
        &["--assume-order"],
        &clocks,
        "job.tar",
        "is already aligned, to the system clock of node 0",
    );
    refused(
        &[machines, traces[1].clone()],
        &["--assume-order"],
        &clocks,
        "job.tar",
        "the trace covers several machines",
    );
}

#[test]
fn perfetto_traces_are_aligned_once() {
    let Some(set) = Set::find("a_2node", 2) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let traces = traces(&set, scratch.path());
    let (pairs, offsets) = (set.all_pairs(scratch.path()), [set.offsets()]);
    let folders = ["aligned", "again"].map(|name| [scratch.path().join(name)]);
    let align = |traces: &[PathBuf], output: &[PathBuf]| {
        let files: [(&str, &[PathBuf]); 3] = [("--offsets", &offsets), ("--snapshots", &pairs), ("--output", output)];
        run("align", traces, &["--assume-order"], &files)
    };
    let done = align(&traces, &folders[0]);
    assert!(done.status.success(), "{}", complaint(&done));
    let aligned: Vec<PathBuf> =
        traces.iter().map(|trace| folders[0][0].join(trace.file_name().expect("a name"))).collect();
    let again = align(&aligned, &folders[1]);
    assert!(complaint(&again).contains("is already aligned"), "{}", complaint(&again));
    assert!(!again.status.success() && !folders[1][0].exists());
}
