//! `convert` on real traces: what is in the outputs against what `align` writes of the same traces.
//!
//! Perfetto's own reader on the same outputs: `bench/readers/perfetto_convert.py`.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::support::{complaint, output, probe_sync, right_clocks};
use crate::traces::{data, traces};

/// Name, start and length of a span, ns.
type Span = (String, i128, i128);

/// A number of microseconds with up to three digits after the point, as it stands in the file:
/// doubles would round it.
fn ns(number: &Value) -> i128 {
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{fraction:0<3}").parse().unwrap_or_else(|_| panic!("{text}"))
}

/// All spans of files in Chrome's JSON.
fn spans(paths: &[PathBuf]) -> Vec<Span> {
    let mut found = Vec::new();
    for path in paths {
        let mut bytes = std::fs::read(path).expect("a file");
        if bytes.starts_with(&[0x1f, 0x8b]) {
            let mut unpacked = Vec::new();
            flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked).expect("gzip");
            bytes = unpacked;
        }
        let document: Value = serde_json::from_slice(&bytes).expect("JSON");
        let base = i128::from(document["baseTimeNanoseconds"].as_i64().unwrap_or(0));
        for event in document["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X") {
            let name = event["name"].as_str().expect("a name").to_owned();
            found.push((name, base + ns(&event["ts"]), ns(&event["dur"])));
        }
    }
    found.sort();
    found
}

fn convert(arguments: &[&str], traces: &[PathBuf], folder: &Path) -> Output {
    let mut command = probe_sync(&["convert", "-o", "job", "-d"]);
    command.arg(folder).args(arguments).arg("-i").args(traces);
    output(command)
}

#[test]
fn several_formats_are_written_in_one_pass_with_the_times_of_align() {
    let Some(data) = data() else { return };
    let set = data.join("torch/b_4node_offset_drift");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let (raw, offsets) = (traces(&set), set.join("offsets.csv"));
    let clocks = ["--assume-order", "--offsets", offsets.to_str().expect("UTF-8")];
    let mut align = probe_sync(&["align", "--output"]);
    align.arg(scratch.path().join("aligned")).args(clocks).arg("--traces").args(&raw);
    let aligned = output(align);
    assert!(aligned.status.success(), "{}", complaint(&aligned));
    let formats = ["-f", "pftrace", "json", "json.gz"];
    let done = convert(&[&clocks[..], &formats].concat(), &raw, &scratch.path().join("new/folder"));
    assert!(done.status.success(), "{}", complaint(&done));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert_eq!(said.matches("10720 slices, 8 instants, 800 flow ends").count(), 3, "{said}");
    let at = |name: &str| scratch.path().join("new/folder").join(name);
    let expected = spans(&traces(&scratch.path().join("aligned")));
    assert_eq!(expected.len(), 10720);
    for name in ["job_results.json", "job_results.json.gz"] {
        assert_eq!(spans(&[at(name)]), expected, "{name}: as align has them, to the nanosecond");
    }
    // What it wrote is a trace of ours again, and a second conversion changes no time.
    let again = convert(&["-f", "json"], &[at("job_results.json")], &scratch.path().join("again"));
    assert!(again.status.success(), "{}", complaint(&again));
    assert_eq!(spans(&[scratch.path().join("again/job_results.json")]), expected);
    let report: Value =
        serde_json::from_slice(&std::fs::read(at("job_results.pftrace.alignment_stats.json")).expect("a report"))
            .expect("JSON");
    assert_eq!(report["outputs"][0]["report"]["slices"], 10720);
}

/// Ends of flows by their id: phase and time of each, in order of time.
fn flows(path: &Path) -> HashMap<String, Vec<(i128, String)>> {
    let document: Value = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    let mut found: HashMap<String, Vec<(i128, String)>> = HashMap::new();
    for event in document["traceEvents"].as_array().expect("events") {
        let phase = event["ph"].as_str().unwrap_or_default();
        if ["s", "t", "f"].contains(&phase) {
            let ends = found.entry(event["id"].to_string()).or_default();
            ends.push((ns(&event["ts"]), phase.to_owned()));
        }
    }
    found.values_mut().for_each(|ends| ends.sort());
    found
}

#[test]
fn the_parts_of_a_collective_are_joined_in_the_order_in_which_ranks_came() {
    let Some(data) = data() else { return };
    let set = data.join("torch/b_4node_offset_drift");
    let (raw, offsets) = (traces(&set), set.join("offsets.csv"));
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let clocks = ["-f", "json", "--assume-order", "--offsets", offsets.to_str().expect("UTF-8")];
    let joined = |arguments: &[&str]| {
        let done = convert(&[&clocks[..], arguments].concat(), &raw, scratch.path());
        assert!(done.status.success(), "{arguments:?}: {}", complaint(&done));
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        (flows(&scratch.path().join("job_results.json")), said)
    };
    let (plain, _) = joined(&[]);
    let (mut all, said) = joined(&["--collective-flows"]);
    // As many as `check` finds: 23 operations of all four ranks.
    assert!(said.contains("collectives: 23 operations of 92 parts joined by flows; not joined because their operation is ambiguous: 220 parts"), "{said}");
    all.retain(|id, _| !plain.contains_key(id));
    assert_eq!(all.len(), 23);
    for ends in all.values() {
        let phases: Vec<&str> = ends.iter().map(|(_, phase)| phase.as_str()).collect();
        assert_eq!(phases, ["s", "t", "t", "f"], "from the first to the last: {ends:?}");
    }
    // On clocks of their own nobody is first or last.
    let apart = convert(&["-f", "json", "--collective-flows"], &raw, scratch.path());
    assert_eq!(apart.status.code(), Some(2), "{}", complaint(&apart));
    assert!(complaint(&apart).contains("the traces may be on different clocks"), "{}", complaint(&apart));
    // What a window leaves of an operation is joined, and one part alone is not.
    let (mut half, _) = joined(&["--collective-flows", "--start", "50%", "--inclusive", "false"]);
    half.retain(|id, _| !plain.contains_key(id));
    assert!(!half.is_empty() && half.len() < 23, "{}", half.len());
    for ends in half.values() {
        assert_eq!((ends[0].1.as_str(), ends[ends.len() - 1].1.as_str()), ("s", "f"), "{ends:?}");
    }
}

#[test]
fn arrows_are_on_the_operation_and_on_nothing_that_begins_with_it() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    // In whole microseconds: a slice of another thread takes as long, and a part of the operation
    // begins with it.
    let trace = |rank: u32| {
        let span = |name: &str, tid: u32, ts: u32, dur: u32, args: &str| {
            format!(
                r#"{{"ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {ts}, "dur": {dur}, "args": {{{args}}}}}"#
            )
        };
        let args =
            r#""Collective name": "allgather", "Process Group Name": "0", "Seq": 1, "Process Group Ranks": "[0, 1]""#;
        // Both ranks say of which step it is: of a single operation times do not prove that both
        // show the same.
        let spans = [
            span("train_step#7", 3, 90 + rank, 90, ""),
            span("DataLoader", 2, 100 + rank, 50, ""),
            span("gloo:all_gather", 1, 100 + rank, 50, args),
            span("aten::empty", 1, 100 + rank, 5, ""),
        ];
        let head = format!(r#""distributedInfo": {{"rank": {rank}, "world_size": 2}}, "baseTimeNanoseconds": 0"#);
        let path = scratch.path().join(format!("rank{rank}.json"));
        std::fs::write(&path, format!(r#"{{{head}, "traceEvents": [{}]}}"#, spans.join(", "))).expect("written");
        path
    };
    let offsets = right_clocks(scratch.path());
    let flags =
        ["-f", "json", "--collective-flows", "--nodes", "0", "1", "--offsets", offsets.to_str().expect("UTF-8")];
    let done = convert(&flags, &[trace(0), trace(1)], scratch.path());
    assert!(done.status.success(), "{}", complaint(&done));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(said.contains("1 operation of 2 parts joined"), "{said}");
    let document: Value =
        serde_json::from_slice(&std::fs::read(scratch.path().join("job_results.json")).expect("a file")).expect("JSON");
    let events = document["traceEvents"].as_array().expect("events");
    // An end stands behind the slice that it belongs to.
    let before =
        events.iter().zip(&events[1..]).filter(|(_, end)| ["s", "f"].contains(&end["ph"].as_str().unwrap_or("")));
    let names: Vec<&str> = before.map(|(slice, _)| slice["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["gloo:all_gather", "gloo:all_gather"]);
}

#[test]
fn windows_leave_out_what_is_outside() {
    let Some(data) = data() else { return };
    let raw = traces(&data.join("torch/a_2node_noskew"));
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let all = spans(&raw);
    let window = |arguments: &[&str]| {
        let done = convert(&[&["-f", "json", "--no-correction"], arguments].concat(), &raw, scratch.path());
        assert!(done.status.success(), "{arguments:?}: {}", complaint(&done));
        (spans(&[scratch.path().join("job_results.json")]), String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let middle = all[all.len() / 2].1;
    let (whole, said) = window(&["--start", &middle.to_string()]);
    let expected: Vec<Span> = all.iter().filter(|span| span.1 >= middle).cloned().collect();
    assert_eq!(whole, expected);
    assert!(said.contains("outside the window"), "{said}");
    let (part, _) = window(&["--end", &middle.to_string(), "--inclusive", "false"]);
    assert_eq!(part, all.iter().filter(|span| span.1 <= middle).cloned().collect::<Vec<_>>());
    let (half, _) = window(&["--start", "25%", "--end", "75%"]);
    assert!(!half.is_empty() && half.len() < all.len());
}

#[test]
fn hosts_keep_their_clocks_on_machines_of_their_own() {
    let Some(data) = data() else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    for (set, spans) in [("torch/b_4node_offset_drift", 10_720), ("rocpd/b_4node_offset_drift", 720)] {
        let (set, is_database) = (data.join(set), set.starts_with("rocpd"));
        let raw = if is_database {
            (0..4).map(|node| set.join(format!("node{node}_results.db"))).collect()
        } else {
            traces(&set)
        };
        let offsets = set.join("offsets.csv");
        let of_offsets = ["--assume-order", "--offsets", offsets.to_str().expect("UTF-8")];
        let clocks: &[&str] = if is_database { &["--from-collectives"] } else { &of_offsets };
        let done = convert(&[&["-f", "pftrace", "--machines"], clocks].concat(), &raw, scratch.path());
        assert!(done.status.success(), "{}", complaint(&done));
        let text = std::fs::read_to_string(scratch.path().join("job_results.pftrace.alignment_stats.json"));
        let report: Value = serde_json::from_str(&text.expect("its statistics")).expect("JSON");
        let written = &report["outputs"][0]["report"];
        let number = |name: &str| written[name].as_u64().expect("a number");
        assert_eq!(number("slices"), spans);
        // Clocks that drift by some ppm for seconds: hundreds of instants, and little is left.
        // Other people's reader: bench/readers/perfetto_convert.py.
        assert!(number("clock_pairs") >= 200 && (1..=40).contains(&number("clock_off_ns")), "{written}");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let expected = format!("{} pairs of instants", number("clock_pairs"));
        assert!(said.contains(&expected), "{said}");
        for (flags, problem) in [
            (&["-f", "json", "--machines"][..], "--machines: only Perfetto's protobuf format can describe clocks"),
            (
                &["-f", "pftrace", "--machines", "--collective-flows"][..],
                "--machines: Perfetto's trace processor does not connect flows",
            ),
        ] {
            let refused = convert(&[flags, clocks].concat(), &raw, scratch.path());
            assert_eq!(refused.status.code(), Some(2), "{}", complaint(&refused));
            assert!(complaint(&refused).contains(problem), "{}", complaint(&refused));
        }
        let unknown = convert(&["-f", "pftrace", "--machines"], &raw, scratch.path());
        assert_eq!(unknown.status.code(), Some(2), "{}", complaint(&unknown));
        assert!(complaint(&unknown).contains("--machines: the clock of"), "{}", complaint(&unknown));
    }
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let (good, bad) = (scratch.path().join("good.json"), scratch.path().join("bad.json"));
    let event = r#"{"ph":"X","pid":1,"tid":1,"ts":5,"dur":2,"name":"a"}"#;
    let twice = r#"{"ph":"X","pid":1,"tid":1,"ts":9,"dur":2,"name":"twice"}"#;
    let write = |path: &Path, last: &str| {
        let text = format!("{{\"traceEvents\":[{event},{twice},{twice},{last}],\"baseTimeNanoseconds\":0}}");
        std::fs::write(path, text).expect("writable");
    };
    write(&good, event);
    std::fs::write(&bad, format!("{{\"traceEvents\":[{event},")).expect("writable");
    let folder = scratch.path().join("out");
    let check = |arguments: &[&str], trace: &Path, status: i32, part: &str| {
        let done = convert(arguments, &[trace.to_owned()], &folder);
        assert_eq!(done.status.code(), Some(status), "{arguments:?}: {}", complaint(&done));
        assert!(complaint(&done).contains(part), "{arguments:?}: {}", complaint(&done));
        assert!(!folder.exists(), "{arguments:?}");
    };
    check(&["-f", "json"], &bad, 1, "the file ends inside traceEvents");
    check(&["-f", "otf3"], &good, 2, "otf3");
    check(&["-f", "json", "--start", "9", "--end", "8"], &good, 2, "not after its start");
    check(&["-f", "json", "--start", "half"], &good, 2, "neither nanoseconds, nor");
    check(&["-f", "json", "--start-marker", "none"], &good, 2, "no trace has an event named none");
    check(&["-f", "json", "--start-marker", "twice"], &good, 2, "2 events named twice");
    check(&["-f", "json", "--start-marker", "a", "--start", "5"], &good, 2, "cannot be used with");
    // An output that is the input.
    let same = convert(&["-f", "json"], std::slice::from_ref(&good), scratch.path());
    assert!(same.status.success(), "{}", complaint(&same));
    let result = scratch.path().join("job_results.json");
    let kept = std::fs::read(&result).expect("the output");
    let over = convert(&["-f", "json"], std::slice::from_ref(&result), scratch.path());
    assert_eq!(over.status.code(), Some(2), "{}", complaint(&over));
    assert_eq!(std::fs::read(&result).expect("the output"), kept);
}

/// By process: how much later than the true time that they state its markers begin, ns, sorted.
fn delays_of_markers(path: &Path) -> BTreeMap<String, Vec<i128>> {
    let document: Value = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    let base = i128::from(document["baseTimeNanoseconds"].as_i64().expect("a base"));
    let mut delays: BTreeMap<String, Vec<i128>> = BTreeMap::new();
    for event in document["traceEvents"].as_array().expect("events").iter().filter(|event| event["name"] == "clkmark") {
        let truth: i128 = event["args"]["true_ns"].as_str().and_then(|text| text.parse().ok()).expect("the true time");
        delays.entry(event["pid"].to_string()).or_default().push(base + ns(&event["ts"]) - truth);
    }
    delays.values_mut().for_each(|delays| delays.sort_unstable());
    delays
}

/// Markers of an XSpace state the true time, so that the clock of the output is judged by nothing
/// that reads clocks.
#[test]
fn xspaces_of_all_nodes_are_on_one_clock() {
    let Some(data) = data() else { return };
    for (name, nodes) in [("a_2node_noskew", 2), ("b_4node_offset_drift", 4)] {
        let set = data.join("jax").join(name);
        let traces: Vec<PathBuf> = (0..nodes).map(|node| set.join(format!("node{node}.xplane.pb"))).collect();
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let offsets = set.join("offsets.csv");
        let clocks = ["--assume-order", "--offsets", offsets.to_str().expect("UTF-8"), "-f", "json", "pftrace"];
        let done = convert(&clocks, &traces, scratch.path());
        assert!(done.status.success(), "{}", complaint(&done));
        let delays = delays_of_markers(&scratch.path().join("job_results.json"));
        assert_eq!(delays.len(), nodes);
        let medians: Vec<i128> = delays.values().map(|delays| delays[delays.len() / 2]).collect();
        let spread = medians.iter().max().expect("nodes") - medians.iter().min().expect("nodes");
        println!("{name}: markers are late by {medians:?} ns");
        assert!(spread <= 3_000 && medians.iter().all(|median| (0..20_000).contains(median)), "{name}: {medians:?} ns");
        let refused = convert(&["-f", "json"], &traces, &scratch.path().join("raw"));
        assert_eq!(refused.status.code(), Some(2), "{}", complaint(&refused));
        assert!(complaint(&refused).contains("the traces may be on different clocks"), "{}", complaint(&refused));
        let raw = convert(&["-f", "json", "--no-correction"], &traces, &scratch.path().join("raw"));
        assert!(raw.status.success(), "{}", complaint(&raw));
        let count = |folder: &Path| spans(&[folder.join("job_results.json")]).len();
        assert_eq!(count(scratch.path()), count(&scratch.path().join("raw")));
    }
}

/// Databases, Kineto traces and XSpaces in one file for a viewer, by the way of `merge`.
#[test]
fn merge_writes_a_viewers_file_of_any_traces_together() {
    let Some(data) = data() else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let at = |name: &str| scratch.path().join(name);
    let set = data.join("jax/b_4node_offset_drift");
    let xspaces: Vec<PathBuf> = (0..4).map(|node| set.join(format!("node{node}.xplane.pb"))).collect();
    let merge = |flags: &[&str], traces: &[PathBuf], to: &Path| {
        let mut command = probe_sync(&["merge", "--output"]);
        command.arg(to).args(flags).arg("--traces").args(traces);
        output(command)
    };
    let offsets = set.join("offsets.csv");
    let clocks = ["--assume-order", "--offsets", offsets.to_str().expect("UTF-8")];
    let done = merge(&[&clocks[..], &["--validate"]].concat(), &xspaces, &at("all.json"));
    assert!(done.status.success(), "{}", complaint(&done));
    let converted = convert(&[&clocks[..], &["-f", "json"]].concat(), &xspaces, scratch.path());
    assert!(converted.status.success(), "{}", complaint(&converted));
    let bytes = |name: &str| std::fs::read(at(name)).expect("an output");
    assert_eq!(bytes("all.json"), bytes("job_results.json"), "one way through the code");
    let report: Value = serde_json::from_slice(&bytes("all.json.alignment_stats.json")).expect("JSON");
    assert_eq!(report["traces"].as_array().expect("traces").len(), 4);
    // Three formats; what has no clock is taken only where it is asked for.
    let mixed = [
        data.join("rocpd/a_2node/node0_results.db"),
        traces(&data.join("torch/a_2node_noskew"))[0].clone(),
        xspaces[0].clone(),
    ];
    let refused = merge(&[], &mixed, &at("mixed.pftrace"));
    assert!(!refused.status.success() && !at("mixed.pftrace").exists(), "{}", complaint(&refused));
    let one_by_one: u64 =
        mixed.iter().map(|trace| slices(&convert(&["-f", "json"], std::slice::from_ref(trace), scratch.path()))).sum();
    for name in ["mixed.pftrace", "mixed.json", "mixed.json.gz"] {
        let done = merge(&["--no-correction"], &mixed, &at(name));
        assert!(done.status.success(), "{}", complaint(&done));
        // What is said of all traces is said once.
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(told.matches("all traces: its clock is unknown; its times are unchanged").count(), 1, "{told}");
    }
    for name in ["mixed.json", "mixed.json.gz"] {
        assert_eq!(spans(&[at(name)]).len() as u64, one_by_one);
    }
    // Of another format's own file, or with what only that has, it is refused.
    let check = |flags: &[&str], name: &str, part: &str| {
        let refused = merge(flags, &mixed, &at(name));
        assert!(refused.status.code() == Some(2) && complaint(&refused).contains(part), "{}", complaint(&refused));
        assert!(!at(name).exists());
    };
    check(&["--no-correction"], "other.db", "have different formats; only an output that ends in .pftrace");
    check(
        &["--no-correction", "--schema", "3.0.0"],
        "other.pftrace",
        "--schema only applies to a merge into the traces' own format",
    );
    // Kineto traces alone stay Kineto, with what their profiler wrote beside the events.
    let torch = traces(&data.join("torch/a_2node_noskew"));
    let done = merge(&["--no-correction"], &torch, &at("torch.json"));
    assert!(done.status.success(), "{}", complaint(&done));
    let document: Value = serde_json::from_slice(&bytes("torch.json")).expect("JSON");
    assert!(
        document.get("schemaVersion").is_some(),
        "{:?}",
        document.as_object().map(|object| object.keys().collect::<Vec<_>>())
    );
}

/// How many slices a conversion says it wrote.
fn slices(done: &Output) -> u64 {
    assert!(done.status.success(), "{}", complaint(done));
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let count = said.split(" slices,").next().and_then(|before| before.rsplit(' ').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

#[cfg(not(feature = "otf2"))]
#[test]
fn without_its_library_otf2_is_refused_with_what_to_do() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let trace = scratch.path().join("a.json");
    std::fs::write(&trace, "{\"traceEvents\": []}").expect("written");
    let done = convert(&["-f", "otf2"], &[trace], &scratch.path().join("new"));
    assert_eq!(done.status.code(), Some(2), "{}", complaint(&done));
    assert!(complaint(&done).contains("libotf2-trace-dev) and build with --features otf2"), "{}", complaint(&done));
    assert!(!scratch.path().join("new").exists());
}
