//! `align`, `merge` and `check` on real multi-node traces whose clocks are known exactly.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::{complaint, output, probe_sync};

/// The folder of real inputs; absent from a fresh clone that stands alone.
pub(crate) fn data() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if path.is_dir() {
        return Some(path);
    }
    println!("skipped: ../shared/data is not here");
    None
}

pub(crate) fn traces(set: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(set)
        .expect("a data set")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().expect("a file").to_string_lossy().into_owned();
            name.ends_with(".xplane.pb") || name.ends_with("trace.json") || name.ends_with(".json.gz")
        })
        .collect();
    found.sort();
    found
}

/// As [`run`], on traces that are listed in the order of their nodes.
fn run_in_order(arguments: &[&str], paths: &[(&str, &[PathBuf])]) -> Output {
    run(&[arguments, &["--assume-order"]].concat(), paths)
}

fn run(arguments: &[&str], paths: &[(&str, &[PathBuf])]) -> Output {
    let mut command = probe_sync(arguments);
    for (flag, values) in paths {
        command.arg(flag).args(*values);
    }
    output(command)
}

/// Broken and judged edges of a check.
fn edges(traces: &[PathBuf], offsets: Option<&Path>, scratch: &Path) -> (u64, u64) {
    let json = scratch.join("check.json");
    let offsets: Vec<PathBuf> = offsets.map(Path::to_path_buf).into_iter().collect();
    let mut paths: Vec<(&str, &[PathBuf])> = vec![("--traces", traces)];
    let target = [json.clone()];
    paths.push(("--json", &target));
    if !offsets.is_empty() {
        paths.push(("--offsets", &offsets));
    }
    let checked = if offsets.is_empty() { run(&["check"], &paths) } else { run_in_order(&["check"], &paths) };
    let report: Value = serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON");
    let number = |key: &str| report["result"][key].as_u64().expect("a count");
    let violations = number("broken") - number("explained");
    assert_eq!(checked.status.code(), Some(if violations > 0 { 3 } else { 0 }), "{}", complaint(&checked));
    (number("broken"), number("edges"))
}

#[test]
fn broken_edges_are_counted_and_repaired_by_alignment() {
    let Some(data) = data() else { return };
    let table = [
        ("jax/a_2node_noskew", 0, 24),
        ("jax/b_4node_offset_drift", 46, 144),
        ("jax/c_2node_pytracer", 5, 38),
        ("torch/a_2node_noskew", 0, 12),
        ("torch/b_4node_offset_drift", 46, 92),
        ("torch/c_2node_stack", 8, 18),
    ];
    for (set, broken, judged) in table {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let set_path = data.join(set);
        let raw = traces(&set_path);
        let offsets = [set_path.join("offsets.csv")];
        assert_eq!(edges(&raw, None, scratch.path()), (broken, judged), "{set} raw");
        assert_eq!(edges(&raw, Some(&offsets[0]), scratch.path()), (0, judged), "{set} through the map");
        let aligned = [scratch.path().join("aligned")];
        let done = run_in_order(&["align"], &[("--traces", &raw), ("--offsets", &offsets), ("--output", &aligned)]);
        assert!(done.status.success(), "{set}: {}", complaint(&done));
        let written = traces(&aligned[0]);
        assert_eq!(written.len(), raw.len(), "{set}");
        assert_eq!(edges(&written, None, scratch.path()), (0, judged), "{set} aligned");
        for trace in &written {
            let name = trace.file_name().expect("a file").to_string_lossy().into_owned();
            let stats = aligned[0].join("alignment_stats").join(format!("{name}.json"));
            let stats: Value = serde_json::from_slice(&std::fs::read(stats).expect("statistics")).expect("JSON");
            assert_eq!(stats["clamped"], 0, "{set}: {stats:#}");
            assert!(stats["events"].as_u64().expect("a count") > 0);
        }
    }
}

#[test]
#[ignore = "long: aligns a long trace with many markers"]
fn markers_repair_clocks_that_wander_and_step_within_the_trace() {
    let Some(data) = data() else { return };
    // With seeds 14 and 22 wander hides the step from markers 115 ms apart; only the offsets tell.
    for seed in ["1", "14", "22"] {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let sets = scratch.path().join("sets");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/wander_sets.py");
        let mut make = std::process::Command::new("python3");
        make.arg(script).arg("--data").arg(&data).arg("--out").arg(&sets).args(["--seed", seed]);
        let Ok(made) = make.output() else {
            println!("skipped: no python3 to make the sets with");
            return;
        };
        assert!(made.status.success(), "{}", complaint(&made));
        for set in ["jax_wander", "jax_step", "torch_wander", "torch_step"] {
            let raw = traces(&sets.join(set));
            let offsets = [sets.join(set).join("offsets.csv")];
            let left = run_in_order(&["check", "--realtime-only"], &[("--traces", &raw), ("--offsets", &offsets)]);
            assert_eq!(left.status.code(), Some(3), "{set} {seed}: a straight line through REALTIME must not suffice");
            let (broken, judged) = edges(&raw, Some(&offsets[0]), scratch.path());
            assert_eq!(broken, 0, "{set} {seed}");
            assert!(judged >= 92, "{set} {seed}: {judged}");
        }
    }
}

#[test]
fn collectives_alone_repair_what_they_can_and_say_how_sure() {
    let Some(data) = data() else { return };
    for set in ["jax/b_4node_offset_drift", "torch/b_4node_offset_drift"] {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let raw = traces(&data.join(set));
        let aligned = [scratch.path().join("aligned")];
        let done = run(&["align", "--from-collectives"], &[("--traces", &raw), ("--output", &aligned)]);
        assert!(done.status.success(), "{set}: {}", complaint(&done));
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(said.contains("a width of") && said.contains("node 3"), "{said}");
        let (broken, _) = edges(&traces(&aligned[0]), None, scratch.path());
        assert_eq!(broken, 0, "{set}");
    }
}

#[test]
fn merged_traces_hold_all_nodes_and_keep_causality() {
    let Some(data) = data() else { return };
    for (set, name) in [("jax/b_4node_offset_drift", "all.xplane.pb"), ("torch/b_4node_offset_drift", "all.json.gz")] {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let raw = traces(&data.join(set));
        let (merged, offsets) = ([scratch.path().join(name)], [data.join(set).join("offsets.csv")]);
        let done = run_in_order(
            &["merge", "--validate"],
            &[("--traces", &raw), ("--offsets", &offsets), ("--output", &merged)],
        );
        assert!(done.status.success(), "{set}: {}", complaint(&done));
        assert!(String::from_utf8_lossy(&done.stdout).contains("causality holds"));
        let refused = run(&["merge"], &[("--traces", &raw), ("--output", &merged)]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(complaint(&refused).contains("--no-correction"), "{}", complaint(&refused));
    }
}

#[test]
fn alignment_of_the_reference_changes_no_real_trace() {
    let Some(data) = data() else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let offsets = [scratch.path().join("offsets.csv")];
    // From 1970 to 2033: every real trace is inside.
    std::fs::write(&offsets[0], "node,node_realtime_ns,offset_vs_node0_ns\n0,0,0\n0,2000000000000000000,0\n")
        .expect("writable");
    let mut seen = 0;
    for framework in ["jax", "torch"] {
        for set in std::fs::read_dir(data.join(framework)).expect("data sets") {
            let set = set.expect("an entry").path();
            if !set.file_name().expect("a name").to_string_lossy().starts_with("x_real") {
                continue;
            }
            for trace in traces(&set) {
                // Uncompressed, so that bytes can be compared.
                let output = [if framework == "jax" {
                    scratch.path().join("out.xplane.pb")
                } else {
                    scratch.path().join("out.json")
                }];
                let input = std::slice::from_ref(&trace);
                let done = run(
                    &["align", "--node", "0"],
                    &[("--traces", input), ("--offsets", &offsets), ("--output", &output)],
                );
                assert!(done.status.success(), "{}: {}", trace.display(), complaint(&done));
                let original = unpacked(&trace);
                let written = without_own(&std::fs::read(&output[0]).expect("the output"), &original);
                assert!(written == original, "{} changed", trace.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 10, "{seen} real traces");
}

/// An aligned trace without what says that it is aligned: an XSpace's last plane, members of a JSON
/// object.
fn without_own(aligned: &[u8], original: &[u8]) -> Vec<u8> {
    let lines: Vec<&[u8]> = aligned.split_inclusive(|byte| *byte == b'\n').collect();
    let own = |line: &&[u8]| line.starts_with(b"  \"probe_sync_");
    if let Some(first) = lines.iter().position(own) {
        // Each member is written after a line's end of its own; the last is followed by what
        // followed the brace.
        let count = lines[first..].iter().take_while(|line| own(line)).count();
        let last = lines[first + count - 1];
        let after = last.windows(2).position(|pair| pair == b"\",").expect("a comma after a text") + 2;
        let before = lines[..first].concat();
        let before = before.strip_suffix(b"\n").expect("a line's end").to_vec();
        return [&before[..], &last[after..], &lines[first + count..].concat()].concat();
    }
    let (same, plane) = aligned.split_at(original.len().min(aligned.len()));
    assert!(plane.windows(22).any(|part| part == b"probe_sync aligned to "), "nothing says that it is aligned");
    same.to_vec()
}

fn unpacked(trace: &Path) -> Vec<u8> {
    let bytes = std::fs::read(trace).expect("a trace");
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return bytes;
    }
    let mut plain = Vec::new();
    let mut reader = flate2::read::MultiGzDecoder::new(&bytes[..]);
    std::io::Read::read_to_end(&mut reader, &mut plain).expect("gzip");
    plain
}

#[test]
fn hostile_traces_are_refused_in_one_line() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let nested = format!("{{\"traceEvents\": {}", "[".repeat(100_000));
    let gzip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x4b];
    let cases: [(&str, &[u8]); 5] = [
        ("cut.json", b"{\"traceEvents\": [{\"ph\": \"X\", \"ts\": 1"),
        ("nested.json", nested.as_bytes()),
        ("cut.json.gz", &gzip),
        ("wrong.xplane.pb", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("nothing", b""),
    ];
    let offsets = [scratch.path().join("offsets.csv")];
    std::fs::write(&offsets[0], "node,node_realtime_ns,offset_vs_node0_ns\n0,0,0\n").expect("writable");
    for (name, content) in cases {
        let path = [scratch.path().join(name)];
        std::fs::write(&path[0], content).expect("writable");
        let target = [scratch.path().join("out")];
        let done =
            run(&["align", "--node", "0"], &[("--trace", &path), ("--offsets", &offsets), ("--output", &target)]);
        assert_eq!(done.status.code(), Some(1), "{name}");
        let said = complaint(&done);
        assert!(said.contains(name) && said.trim().lines().count() == 1, "{name}: {said}");
        assert!(!target[0].exists(), "{name}: nothing half-written is left");
    }
    if let Some(data) = data() {
        let mangled = traces(&data.join("jax/x_corrupt_utf8_mangled"));
        let refused = run(&["check"], &[("--traces", &mangled)]);
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(complaint(&refused).trim().lines().count(), 1, "{}", complaint(&refused));
    }
}

#[test]
fn inputs_are_never_overwritten_and_names_keep_their_promise() {
    let Some(data) = data() else { return };
    let set = data.join("jax/b_4node_offset_drift");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let own = scratch.path().join("node0.xplane.pb");
    std::fs::copy(set.join("node0.xplane.pb"), &own).expect("writable");
    let original = std::fs::read(&own).expect("a copy");
    let offsets = [set.join("offsets.csv")];
    for target in [
        own.clone(),
        scratch.path().join("../").join(scratch.path().file_name().expect("a name")).join("node0.xplane.pb"),
    ] {
        let (input, target) = ([own.clone()], [target]);
        let done =
            run(&["align", "--node", "0"], &[("--trace", &input), ("--offsets", &offsets), ("--output", &target)]);
        assert_eq!(done.status.code(), Some(2));
        assert!(complaint(&done).contains("would overwrite the input"), "{}", complaint(&done));
    }
    assert!(std::fs::read(&own).expect("still there") == original);
    let (input, target) = (traces(&set), [scratch.path().join("all.db")]);
    let done = run_in_order(&["merge"], &[("--traces", &input), ("--offsets", &offsets), ("--output", &target)]);
    assert!(complaint(&done).contains("must end in .xplane.pb"), "{}", complaint(&done));
}

#[test]
fn an_event_that_says_nothing_leaves_the_merged_file_readable() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let (input, output) = (scratch.path().join("e.json"), scratch.path().join("m.json"));
    let events =
        "{\"traceEvents\":[{},{\"ph\":\"X\",\"ts\":5,\"pid\":1,\"tid\":1,\"name\":\"a\"}],\"baseTimeNanoseconds\":0}";
    std::fs::write(&input, events).expect("writable");
    let done = run(
        &["merge", "--allow-uncalibrated", "--nodes", "0", "1"],
        &[("--traces", &[input.clone(), input]), ("--output", std::slice::from_ref(&output))],
    );
    assert!(done.status.success(), "{}", complaint(&done));
    let merged: Value = serde_json::from_slice(&std::fs::read(&output).expect("the output")).expect("JSON");
    assert!(merged["traceEvents"].as_array().expect("events").len() >= 4);
}

#[test]
fn nodes_without_clocks_are_left_out_of_the_verdict() {
    let Some(data) = data() else { return };
    let set = data.join("jax/b_4node_offset_drift");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let table = std::fs::read_to_string(set.join("offsets.csv")).expect("offsets");
    let without: String =
        table.lines().filter(|line| !line.starts_with("3,")).map(|line| format!("{line}\n")).collect();
    let offsets = [scratch.path().join("offsets.csv")];
    std::fs::write(&offsets[0], without).expect("writable");
    let done = run(&["check", "--nodes", "0", "1", "2", "3"], &[("--traces", &traces(&set)), ("--offsets", &offsets)]);
    assert_eq!(done.status.code(), Some(4), "a part is no success: {}", complaint(&done));
    let said = String::from_utf8_lossy(&done.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("node3.xplane.pb skipped because its clock is unknown"), "{said}");
    assert!(said.contains("36 parts of collectives could not be checked"), "{said}");
}

/// The exact offsets of a set as a run writes them: with hosts and ranks.
fn as_a_run(set: &Path, folder: &Path) -> PathBuf {
    let table = std::fs::read_to_string(set.join("offsets.csv")).expect("offsets");
    let node = |k: u32| format!("{{\"node_id\":{k},\"hostname\":\"node{k}.cluster.local\"}}");
    let rank = |k: u32| format!("{{\"rank\":{k},\"world_size\":4,\"hostname\":\"node{k}\",\"node_id\":{k}}}");
    let all = |one: &dyn Fn(u32) -> String| (0..4).map(one).collect::<Vec<_>>().join(",");
    let mut text = format!("{{\"meta\":true,\"nodes\":[{}],\"ranks\":[{}]}}\n", all(&node), all(&rank));
    for row in table.lines().skip(1) {
        let cells: Vec<i64> = row.split(',').map(|cell| cell.parse().expect("a whole number")).collect();
        let at = cells[1] - cells[2];
        text += &format!(
            "{{\"node_id\":{},\"window_start_ns\":{at},\"window_end_ns\":{at},\"offset_ns\":{}}}\n",
            cells[0], cells[2]
        );
    }
    let path = folder.join("offsets.jsonl");
    std::fs::write(&path, text).expect("writable");
    path
}

#[test]
fn hosts_and_ranks_of_the_run_settle_whose_trace_is_whose() {
    let Some(data) = data() else { return };
    for name in ["jax/b_4node_offset_drift", "torch/b_4node_offset_drift"] {
        let set = data.join(name);
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let (mut raw, offsets) = (traces(&set), [as_a_run(&set, scratch.path())]);
        // The order of the list decides nothing.
        raw.reverse();
        let checked = run(&["check"], &[("--traces", &raw), ("--offsets", &offsets)]);
        assert!(checked.status.success(), "{name}: {}", complaint(&checked));
        let target = [scratch.path().join("aligned")];
        let done = run(&["align", "-v"], &[("--traces", &raw), ("--offsets", &offsets), ("--output", &target)]);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(said.contains("  node 3, by its host node3, on which the run recorded only this node"), "{said}");
    }
}

#[test]
fn a_trace_of_another_node_is_refused() {
    let Some(data) = data() else { return };
    let set = data.join("torch/b_4node_offset_drift");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let (raw, offsets) = (traces(&set), [as_a_run(&set, scratch.path())]);
    let target = [scratch.path().join("out.json")];
    let done =
        run(&["align", "--node", "3"], &[("--trace", &raw[..1]), ("--offsets", &offsets), ("--output", &target)]);
    assert_eq!(done.status.code(), Some(2));
    assert!(complaint(&done).contains("was written on node0, which is node 0, not node 3"), "{}", complaint(&done));
    // A table knows no hosts: as many nodes as ranks settle it, another number does not.
    let known = [set.join("offsets.csv")];
    let done = run(&["check"], &[("--traces", &raw), ("--offsets", &known)]);
    assert!(done.status.success(), "{}", complaint(&done));
    let table = [scratch.path().join("five.csv")];
    let five =
        std::fs::read_to_string(&known[0]).expect("offsets") + "4,1795187181691820534,0\n4,1795187183413037070,0\n";
    std::fs::write(&table[0], five).expect("writable");
    let done = run(&["align"], &[("--traces", &raw), ("--offsets", &table), ("--output", &target)]);
    assert_eq!(done.status.code(), Some(1));
    assert!(complaint(&done).contains("cannot tell which node wrote 4 of the 4 traces"), "{}", complaint(&done));
    assert!(!target[0].exists());
}

#[test]
fn a_trace_of_another_time_is_refused_and_the_flag_that_allows_it_is_named() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| scratch.path().join(name);
    let (trace, offsets, output) = ([at("a.json")], [at("offsets.csv")], [at("out.json")]);
    let event = r#"{"ph": "X", "pid": 1, "tid": 1, "ts": 10000000, "dur": 5, "name": "a"}"#;
    std::fs::write(&trace[0], format!("{{\"baseTimeNanoseconds\": 0, \"traceEvents\": [{event}]}}")).expect("writable");
    std::fs::write(&offsets[0], "node,node_realtime_ns,offset_vs_node0_ns\n1,0,5000\n1,4000000000,5000\n")
        .expect("writable");
    let paths: [(&str, &[PathBuf]); 3] = [("--trace", &trace), ("--offsets", &offsets), ("--output", &output)];
    for (allowed, expected) in [(&[][..], 1), (&["--extrapolate", "6s"], 1), (&["--extrapolate", "6001ms"], 0)] {
        let done = run(&[&["align", "--node", "1"], allowed].concat(), &paths);
        assert_eq!(done.status.code(), Some(expected), "{allowed:?}: {}", complaint(&done));
        if expected == 1 {
            assert!(complaint(&done).contains("--extrapolate 6001ms to extrapolate"), "{}", complaint(&done));
            assert!(complaint(&done).contains("1970-01-01T00:00:10.000005000Z"), "{}", complaint(&done));
        }
    }
}

/// Its times would be corrected a second time, and look right.
#[test]
fn what_was_aligned_is_not_aligned_again() {
    let Some(data) = data() else { return };
    for set in ["torch/b_4node_offset_drift", "jax/b_4node_offset_drift"] {
        let (set, scratch) = (data.join(set), tempfile::tempdir().expect("a temporary directory"));
        let (raw, offsets) = (traces(&set), [set.join("offsets.csv")]);
        let (once, twice) = ([scratch.path().join("once")], [scratch.path().join("twice")]);
        let first = run_in_order(&["align"], &[("--traces", &raw), ("--offsets", &offsets), ("--output", &once)]);
        assert!(first.status.success(), "{}", complaint(&first));
        let aligned = traces(&once[0]);
        assert_eq!(aligned.len(), 4);
        let again = run_in_order(&["align"], &[("--traces", &aligned), ("--offsets", &offsets), ("--output", &twice)]);
        let said = complaint(&again);
        assert!(said.contains("is already aligned, to the system clock of node 0"), "{said}");
        assert!(!again.status.success() && !twice[0].exists());
        // As they are they may be checked.
        assert_eq!(edges(&aligned, None, scratch.path()).0, 0);
    }
}
