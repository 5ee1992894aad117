//! `record` on recordings of real processes: one that ended, one that hangs, one that was killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use probe_sync_record::backend::{Backend, Request};
use probe_sync_record::hook::stack;
use probe_sync_record::{Kind, Policy, Reach, Recorder, collective, instant, memory, scope};
use serde_json::Value;

use crate::support::{complaint, output, probe_sync, wait};

/// What the test below is started for as a process of its own: it records in the folder of this
/// variable.
const FOLDER: &str = "RECORDER_UNDER_TEST";

/// No test of itself: records until it is killed, two threads deep inside of scopes.
#[test]
fn records_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let builder = Recorder::builder().policy(Policy::Flight { bytes: 4 << 20 }).rank(1);
    let _session = builder.spill(folder.join("node0.rec")).start().expect("nothing else records");
    let _training = scope!("training", job = "llm");
    for step in 0..100_000 {
        drop(scope!("step", step = step));
    }
    let other = std::thread::Builder::new().name("loader".into()).spawn(|| {
        let _read = scope!("read", shard = 12);
        std::thread::sleep(LIMIT);
    });
    let _step = scope!("step", step = 100_000);
    let _reduce = scope!("all_reduce", group = "dp");
    // Whoever waits for it may kill this now.
    std::thread::sleep(Duration::from_millis(100));
    std::fs::write(folder.join("inside"), "").expect("writable");
    drop(other.expect("a thread").join());
}

/// The process, when it is inside.
fn recorder(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "record::records_until_it_is_killed", "--test-threads", "1"]).env(FOLDER, folder);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let deadline = Instant::now() + LIMIT;
    while !folder.join("inside").exists() {
        assert!(Instant::now() < deadline, "the recorder does not get inside");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn recovered(file: &Path) -> Value {
    let mut command = probe_sync(&["record", "recover", "--json"]);
    command.arg(file);
    let done = output(command);
    assert!(done.status.success(), "{}", complaint(&done));
    serde_json::from_slice(&done.stdout).expect("JSON")
}

fn check_inside(recovered: &Value, state: &str) {
    assert_eq!((&recovered["state"], &recovered["rank"]), (&state.into(), &1.into()));
    let threads = recovered["threads"].as_array().expect("threads");
    let inside = |thread: &Value| -> Vec<String> {
        let scopes = thread["inside"].as_array().expect("scopes").iter();
        scopes.map(|scope| format!("{} {}", scope["name"].as_str().expect("a name"), scope["arguments"])).collect()
    };
    let all: Vec<Vec<String>> = threads.iter().map(inside).collect();
    let main = [r#"training {"job":"llm"}"#, r#"step {"step":100000}"#, r#"all_reduce {"group":"dp"}"#];
    assert!(all.iter().any(|scopes| *scopes == main), "{all:?}");
    let loader = threads.iter().find(|thread| thread["name"] == "loader").expect("its name is there");
    assert_eq!(inside(loader), [r#"read {"shard":12}"#]);
    for scope in threads.iter().flat_map(|thread| thread["inside"].as_array().expect("scopes")) {
        assert!(scope["for_s"].as_f64().is_some_and(|seconds| (0.0..600.0).contains(&seconds)), "{scope}");
    }
}

#[test]
fn a_process_that_hangs_and_one_that_was_killed_are_named_where_they_are() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut child = recorder(folder.path());
    let file = folder.path().join("node0.rec");
    check_inside(&recovered(&file), "running");
    // SIGKILL.
    child.kill().expect("our own child");
    wait(child);
    check_inside(&recovered(&file), "gone");
    guide_of_the_killed(folder.path(), &file);
}

/// The guide's lines, word for word, on the file that the killed process has left.
fn guide_of_the_killed(folder: &Path, file: &Path) {
    let recording = probe_sync_record::Recording::open(file).expect("sound");
    let at = recording.pairs()[0].system_ns;
    let line = |seconds: i64| format!("1,{},2500000\n", at + seconds * 1_000_000_000);
    let offsets = [line(-100), line(0), line(100)].concat();
    std::fs::write(folder.join("offsets.csv"), format!("node,node_realtime_ns,offset_vs_node0_ns\n{offsets}"))
        .expect("writable");
    let guide = include_str!("../../../../docs/guide/record.md");
    let program = Path::new(env!("CARGO_BIN_EXE_probe_sync")).parent().expect("a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let lines: Vec<&str> =
        guide.lines().filter(|line| line.starts_with("probe_sync record ") && line.contains(" node0.rec")).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    let mut said = String::new();
    for line in lines {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(folder).env("PATH", format!("{}:{path}", program.display()));
        let done = output(command);
        assert!(done.status.success(), "{line}: {}", complaint(&done));
        said += &String::from_utf8_lossy(&done.stdout);
    }
    for part in ["is inside", "all_reduce for ", r#"group="dp""#, "read for ", "killed, or ended"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    assert!(folder.join("node0.pftrace").exists() && folder.join("aligned.pt.trace.json.gz").exists(), "{said}");
}

/// No test of itself: the guide's lines, which record in the folder where the process is.
#[test]
fn runs_the_guides_lines() {
    if std::env::var_os(FOLDER).is_some() {
        crate::record_library::main().expect("the guide's lines record");
    }
}

#[test]
fn the_guides_lines_for_a_library_record_and_write_a_trace() {
    let source = include_str!("record_library.rs");
    let guide = include_str!("../../../../docs/guide/record.md");
    let begin = source.find("    use ").expect("its first line");
    let end = source.find("    Ok(())").expect("its last line");
    let block: String =
        source[begin..end].lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect();
    assert!(guide.contains(&block), "record.md lacks:\n{block}");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "record::runs_the_guides_lines"]).env(FOLDER, folder.path()).current_dir(folder.path());
    let done = output(command);
    assert!(done.status.success(), "{}", complaint(&done));
    let trace = std::fs::read_to_string(folder.path().join("node0.pt.trace.json")).expect("a trace");
    let json: Value = serde_json::from_str(&trace).expect("JSON");
    let steps = json["traceEvents"].as_array().expect("events").iter().filter(|event| event["name"] == "step").count();
    assert_eq!(steps, 3);
    let mut inspect = probe_sync(&["record", "inspect", "--json"]);
    inspect.arg(folder.path().join("node0.rec"));
    let found: Value = serde_json::from_slice(&output(inspect).stdout).expect("JSON");
    assert_eq!((&found["finished"], &found["events"], &found["lost"]), (&true.into(), &9.into(), &0.into()));
}

/// A recording of a rank, whose collectives are one after the other.
fn of_rank(folder: &Path, rank: u32) -> PathBuf {
    let path = folder.join(format!("rank{rank}.rec"));
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 }).rank(rank);
    let session = builder.spill(&path).start().expect("this thread records nothing else");
    let begun = Instant::now();
    for sequence in 0..COLLECTIVES {
        let _reduce = collective!(AllReduce, group = "dp", sequence = sequence);
        // By the clock, so that what a busy machine is late by does not add up.
        std::thread::sleep((begun + LENGTH * (sequence as u32 + 1)).saturating_duration_since(Instant::now()));
    }
    session.finish().expect("whole");
    path
}

/// When the regions of a database are.
fn regions(path: &Path) -> Vec<u8> {
    let database = rusqlite::Connection::open(path).expect("a database");
    let mut rows = database.prepare("SELECT start, end FROM rocpd_region ORDER BY start, end").expect("a view");
    let times = rows.query_map([], |row| Ok(format!("{} {}\n", row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)));
    let times: String = times.expect("rows").map(|row| row.expect("times")).collect();
    assert!(!times.is_empty());
    times.into_bytes()
}

#[test]
fn align_merge_and_check_take_what_is_exported() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let folder = scratch.path();
    // One after the other: rank 0 has ended its last before rank 1 begins its first, which no
    // collective can.
    let recordings = [of_rank(folder, 0), of_rank(folder, 1)];
    let run = |arguments: &[&str], paths: &[&Path], status: i32| {
        let mut command = probe_sync(arguments);
        command.args(paths).current_dir(folder);
        let done = output(command);
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(done.status.code(), Some(status), "{arguments:?}: {said} {}", complaint(&done));
        said
    };
    // By how much rank 1 was later, so that they are side by side.
    let at = |path: &Path| {
        let recording = probe_sync_record::Recording::open(path).expect("sound");
        (recording.pairs()[0].system_ns, recording.pairs().last().expect("pairs").system_ns)
    };
    let ((first, _), (second, end)) = (at(&recordings[0]), at(&recordings[1]));
    let offset = second - first;
    let mut lines = "node,node_realtime_ns,offset_vs_node0_ns,sigma_ns\n".to_owned();
    for time in [first - 1_000_000_000, end + 1_000_000_000] {
        lines += &format!("0,{time},0,1\n1,{time},{offset},1\n");
    }
    std::fs::write(folder.join("offsets.csv"), lines).expect("writable");
    let clocks = ["--offsets", "offsets.csv", "--nodes", "0", "1", "--traces"];
    for (format, ending) in [("kineto", ".pt.trace.json.gz"), ("xspace", ".xplane.pb"), ("rocpd", "_results.db")] {
        let [own, aligned, merged] = ["own", "aligned", "merged"].map(|kind| format!("{format}_{kind}"));
        run(&["record", "convert", "-f", format, "-o", &own], &[&recordings[0], &recordings[1]], 0);
        let traces = |folder: &str| [0, 1].map(|rank| PathBuf::from(format!("{folder}/rank{rank}{ending}")));
        let said = run(&["check", "--traces"], &traces(&own).each_ref().map(PathBuf::as_path), 3);
        // Of each operation the end on rank 0 comes before the start on rank 1; on rank 1 it does
        // not.
        assert!(said.contains(&format!("{COLLECTIVES} of {} edges are broken", 2 * COLLECTIVES)), "{format}: {said}");
        // A database is on the boot clock, which its pairs tie to the system clock.
        let pairs = [0, 1].map(|rank| format!("{own}/rank{rank}_results.snapshot_pairs.jsonl"));
        let pairs = ["--snapshots", pairs[0].as_str(), pairs[1].as_str()];
        let clocks = if format == "rocpd" { [&pairs[..], &clocks].concat() } else { clocks.to_vec() };
        let with = |verb: &[&str], traces: &[PathBuf; 2]| {
            run(&[verb, &clocks].concat(), &traces.each_ref().map(PathBuf::as_path), 0)
        };
        let said = with(&["check"], &traces(&own));
        assert!(said.contains(&format!("causality holds on all {} edges", 2 * COLLECTIVES)), "{format}: {said}");
        with(&["align", "--output", &aligned], &traces(&own));
        run(&["check", "--traces"], &traces(&aligned).each_ref().map(PathBuf::as_path), 0);
        let merged = format!("{merged}{}", ending.trim_end_matches(".gz"));
        with(&["merge", "--output", &merged], &traces(&own));
        assert!(folder.join(merged).exists());
        // At once is as later.
        let once = format!("{format}_once");
        let at_once =
            ["record", "convert", "-f", format, "-o", &once, "--offsets", "offsets.csv", "--nodes", "0", "1", "--"];
        run(&at_once, &[&recordings[0], &recordings[1]], 0);
        for (once, later) in traces(&once).iter().zip(&traces(&aligned)) {
            let [once, later] = [once, later].map(|path| folder.join(path));
            let content =
                |path: &Path| if format == "rocpd" { regions(path) } else { std::fs::read(path).expect("there") };
            assert!(content(&once) == content(&later), "{format}: {} is not {}", once.display(), later.display());
        }
    }
}

/// No test of itself: records a stack.
#[test]
fn records_a_stack() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let session = builder.spill(folder.join("stack.rec")).start().expect("nothing else records");
    drop(scope!("deep", stack = || stack().value()));
    session.finish().expect("whole");
}

#[test]
fn stacks_are_named_while_the_program_is_the_one_that_ran() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let folder = folder.path();
    let program = folder.join("program");
    std::fs::copy(std::env::current_exe().expect("this test"), &program).expect("room");
    let mut command = Command::new(&program);
    let done = output({
        command.args(["--exact", "record::records_a_stack"]).env(FOLDER, folder);
        command
    });
    assert!(done.status.success(), "{}", complaint(&done));
    let converted = |name: &str| {
        let mut command = probe_sync(&["record", "convert", "-f", "json", "--metadata", "job=7", "-o", name]);
        command.arg("stack.rec").current_dir(folder);
        let done = output(command);
        assert!(done.status.success(), "{}", complaint(&done));
        let trace: Value = serde_json::from_slice(&std::fs::read(folder.join(name)).expect("there")).expect("JSON");
        let events = trace["traceEvents"].as_array().expect("events");
        let arguments = events.iter().find(|event| event["name"] == "deep").expect("the scope")["args"].clone();
        assert_eq!(arguments["job"], "7");
        let stack = arguments["Call stack"].as_str().expect("a text").to_owned();
        (stack, String::from_utf8_lossy(&done.stdout).into_owned())
    };
    let (stack, said) = converted("named.json");
    assert!(stack.contains("records_a_stack") && stack.contains("it/record.rs:"), "{stack}");
    assert!(!said.contains("addresses"), "{said}");
    std::fs::remove_file(&program).expect("ours");
    let (stack, said) = converted("gone.json");
    assert!(stack.contains("program+0x") && said.contains("program cannot be read"), "{stack}: {said}");
    std::fs::copy(env!("CARGO_BIN_EXE_probe_sync"), &program).expect("room");
    let (stack, said) = converted("other.json");
    assert!(stack.contains("program+0x") && said.contains("program is not the file that ran"), "{stack}: {said}");
}

#[test]
fn a_database_has_stacks_memory_threads_and_the_cpu() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let folder = folder.path();
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let session = builder.spill(folder.join("memory.rec")).start().expect("nothing else records");
    memory!(Allocate, address = 4096, bytes = 64, device = "cuda:1");
    drop(scope!("deep", stack = || stack().value()));
    instant!("moment", batch = 7);
    memory!(Free, address = 4096, bytes = 64, device = "cuda:1");
    session.finish().expect("whole");
    let run = |arguments: &[&str]| {
        let mut command = probe_sync(arguments);
        command.current_dir(folder);
        let done = output(command);
        assert!(done.status.success(), "{arguments:?}: {}", complaint(&done));
    };
    run(&["record", "convert", "-f", "rocpd", "-o", "memory.db", "memory.rec"]);
    let database = rusqlite::Connection::open(folder.join("memory.db")).expect("a database");
    for (query, expected) in [
        ("SELECT group_concat(type || size || address) FROM rocpd_memory_allocate", "ALLOC644096,FREE644096"),
        ("SELECT DISTINCT agent_type || agent_name || agent_type_index FROM memory_allocations", "GPUcuda:11"),
        ("SELECT call_stack LIKE '%a_database_has_stacks%' FROM rocpd_event WHERE call_stack != '{}'", "1"),
        ("SELECT count(*) FROM rocpd_event WHERE line_info ->> 'file' LIKE '%record.rs'", "4"),
        ("SELECT value FROM rocpd_arg WHERE name = 'batch'", "7"),
        ("SELECT count(*) FROM rocpd_info_thread WHERE start < \"end\"", "1"),
        ("SELECT extdata ->> 'cpu_cores_count' > 0 FROM rocpd_info_agent WHERE type = 'CPU'", "1"),
    ] {
        let found: rusqlite::types::Value = database.query_row(query, [], |row| row.get(0)).expect(query);
        let found = match found {
            rusqlite::types::Value::Integer(number) => number.to_string(),
            rusqlite::types::Value::Text(text) => text,
            other => panic!("{query}: {other:?}"),
        };
        assert_eq!(found, expected, "{query}");
    }
    run(&["convert", "--no-correction", "-f", "json", "-o", "memory", "-d", ".", "-i", "memory.db"]);
    let trace: Value =
        serde_json::from_slice(&std::fs::read(folder.join("memory_results.json")).expect("there")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let deep = &events.iter().find(|event| event["name"] == "deep").expect("the scope")["args"];
    assert!(deep["call_stack"][0].as_str().is_some_and(|name| name.contains("a_database_has_stacks")), "{deep}");
    assert!(deep["line_info"]["line"].is_u64(), "{deep}");
    run(&[
        "convert",
        "--no-correction",
        "-f",
        "kineto",
        "pftrace",
        "xspace",
        "-o",
        "all",
        "-d",
        ".",
        "-i",
        "memory.db",
    ]);
    let mut written = 0;
    for file in std::fs::read_dir(folder).expect("readable").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        if name.starts_with("all") && !name.ends_with("alignment_stats.json") {
            let bytes = std::fs::read(file.path()).expect("written");
            for part in ["call_stack", "a_database_has_stacks", "line_info", "record.rs"] {
                let there = bytes.windows(part.len()).any(|window| window == part.as_bytes());
                assert!(there, "{} lacks {part}", file.path().display());
            }
            written += 1;
        }
    }
    assert_eq!(written, 3);
}

/// A device that is not there.
struct Absent;

impl Backend for Absent {
    fn name(&self) -> &str {
        "gpu"
    }

    fn prepare(&mut self, _: &Request) -> Result<(), String> {
        Err("no such device".into())
    }

    fn start(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn stop(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn inspect_says_what_filters_omitted_and_which_device_was_absent() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("filtered.rec");
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 });
    let builder = builder.kinds(&[Kind::User]).count_omitted(true).one_in(3).longer_than(Duration::from_secs(60));
    let session = builder.backend(Absent).spill(&path).start().expect("nothing else records");
    for _ in 0..9 {
        drop(scope!("step"));
        drop(scope!(Kind::Io, "read"));
    }
    session.finish().expect("whole");
    let said = |json: &[&str]| {
        let mut command = probe_sync(&[&["record", "inspect"], json].concat());
        command.arg(&path);
        let done = output(command);
        assert!(done.status.success(), "{}", complaint(&done));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let text = said(&[]);
    for part in [
        "the filter kinds omitted 9 events",
        "the filter one_in 3 omitted 6 scopes",
        "the filter longer_than 60 s omitted 3 scopes",
        "backend gpu: not available, the session continues without it: no such device",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json: Value = serde_json::from_str(&said(&["--json"])).expect("JSON");
    assert_eq!(json["omitted"], serde_json::json!({"kinds": 9, "one_in": 6, "longer_than": 3, "windows": 0}));
}

#[test]
fn what_is_no_recording_is_refused_with_its_name() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("no.rec");
    std::fs::write(&path, vec![7; 100_000]).expect("writable");
    for verb in ["inspect", "recover"] {
        let mut command = probe_sync(&["record", verb]);
        command.arg(&path);
        let done = output(command);
        assert_eq!(done.status.code(), Some(1));
        assert!(complaint(&done).contains("no.rec: byte 0: it is not a probe_sync recording"), "{}", complaint(&done));
    }
    let mut command = probe_sync(&["record", "convert", "-f", "otf2", "-o", "x"]);
    command.arg(&path);
    let done = output(command);
    assert_eq!(done.status.code(), Some(2));
    assert!(complaint(&done).contains("`otf2` is not a format"), "{}", complaint(&done));
}

const COLLECTIVES: u64 = 4;
/// How long one lasts.
const LENGTH: Duration = Duration::from_millis(60);
/// The time after which a process that was not killed ends by itself, and a test gives up.
const LIMIT: Duration = Duration::from_secs(60);
