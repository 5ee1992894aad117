//! `hang` on recorded dumps of jobs whose guilty ranks are known.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::{complaint, output, probe_sync, text};

/// Returns a recorded set of dumps, or `None` where the shared data is absent.
fn recorded(set: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/fr").join(set);
    if !folder.is_dir() {
        println!("skipped: {} is absent", folder.display());
        return None;
    }
    Some(folder)
}

fn guilty(document: &Value) -> Vec<u64> {
    let causes = document["causes"].as_array().expect("an array");
    let ranks = causes.iter().flat_map(|cause| cause["ranks"].as_array().expect("an array"));
    ranks.map(|rank| rank.as_u64().expect("a rank")).collect()
}

#[test]
fn guilty_ranks_of_recorded_jobs_are_named() {
    for (set, expected) in [("gpu_error_1st", [12, 14]), ("lock_gil_1st", [9, 14])] {
        let Some(folder) = recorded(set) else { continue };
        let told = output(probe_sync(&["hang", text(&folder), "--json"]));
        assert!(told.status.success(), "{}", complaint(&told));
        let document: Value = serde_json::from_slice(&told.stdout).expect("JSON");
        assert_eq!(guilty(&document), expected, "{document:#}");
        let told = output(probe_sync(&["hang", text(&folder)]));
        let lines = String::from_utf8(told.stdout).expect("text");
        assert!(lines.lines().count() <= 10, "{lines}");
    }
}

/// Dumps state no host, so that clocks must be given or left out on purpose.
#[test]
fn the_last_operations_of_a_recorded_job_are_merged() {
    let Some(folder) = recorded("gpu_error_1st") else { return };
    let dumps: Vec<String> = (0..16).map(|rank| text(&folder.join(format!("_dump_{rank}"))).to_owned()).collect();
    let scratch = tempfile::tempdir().expect("a folder");
    let path = scratch.path().join("last.pftrace");
    let merge = |flags: &[&str]| {
        let mut command = probe_sync(&["merge", "--output", text(&path)]);
        command.args(flags).args(&dumps);
        output(command)
    };
    let refused = merge(&[]);
    assert_eq!(refused.status.code(), Some(2), "{}", complaint(&refused));
    assert!(complaint(&refused).contains("neither a clock nor a host name"), "{}", complaint(&refused));
    let done = merge(&["--no-correction"]);
    let all = probe_sync(&["merge", "--no-correction", text(&folder), "--output", text(&path)]);
    for done in [done, output(all)] {
        assert!(done.status.success(), "{}", complaint(&done));
        assert!(String::from_utf8_lossy(&done.stdout).contains("16 traces, 289 events"), "{done:?}");
    }
}

#[test]
fn a_rank_whose_dump_is_cut_off_costs_itself() {
    let Some(folder) = recorded("lock_gil_1st") else { return };
    let copy = tempfile::tempdir().expect("a folder");
    for rank in 0..16 {
        let name = format!("_dump_{rank}");
        let bytes = fs::read(folder.join(&name)).expect("a dump");
        let length = if rank == 3 { bytes.len() / 2 } else { bytes.len() };
        fs::write(copy.path().join(&name), &bytes[..length]).expect("writable");
    }
    let told = output(probe_sync(&["hang", text(copy.path()), "--json"]));
    let document: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(guilty(&document), [9, 14], "{document:#}");
    assert_eq!(document["missing_dumps"][0]["rank"], 3);
    assert!(document["missing_dumps"][0]["reason"].as_str().expect("text").contains("the file ends"), "{document:#}");
}

#[test]
fn the_stack_of_a_guilty_rank_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let entry = |sequence: u32, state: &str| {
        format!(
            r#"{{"record_id": {sequence}, "process_group": ["0", "default_pg"], "collective_seq_id": {sequence}, "profiling_name": "gloo:all_reduce", "state": "{state}"}}"#
        )
    };
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("writable");
    for (rank, entries) in [(0, entry(1, "completed") + "," + &entry(2, "scheduled")), (1, entry(1, "completed"))] {
        let groups = r#""pg_config": {"0": {"desc": "default_pg", "ranks": "[0, 1]"}}"#;
        write(&format!("rank_{rank}"), &format!(r#"{{"version": "2.10", {groups}, "entries": [{entries}]}}"#));
        let stack = format!("MainThread (most recent call last):\n  File \"/j/train.py\", line {rank}, in stuck\n");
        write(&format!("rank_{rank}.stack"), &stack);
    }
    write("notes_3.txt", "not a stack");
    let files: Vec<String> =
        ["rank_0", "rank_1", "rank_1.stack"].map(|name| text(&folder.path().join(name)).to_owned()).to_vec();
    let told = output(probe_sync(&["hang", &files[0], &files[1], &files[2]]));
    assert!(told.status.success() && String::from_utf8_lossy(&told.stdout).contains("in stuck"), "single files");
    let told = output(probe_sync(&["hang", text(folder.path())]));
    let lines = String::from_utf8(told.stdout.clone()).expect("text");
    assert!(told.status.success() && lines.contains("stack        rank 1: in stuck (train.py:1)\n"), "{lines}");
    assert!(!lines.contains("rank 0: in"), "only guilty ranks: {lines}");
    assert!(lines.contains("notes_3.txt: contains no stack"), "{lines}");
}

#[test]
fn a_recording_serves_where_there_is_no_dump() {
    use probe_sync_record::{Reach, Recorder, collective, scope};

    let folder = tempfile::tempdir().expect("a folder");
    // Rank 1 loads data and does not come to the second barrier.
    let record = |rank: u32| {
        let session = Recorder::builder().rank(rank).reach(Reach::Thread).start().expect("a session");
        drop(collective!(Barrier, group = "world", ranks = "[0,1]", sequence = 1));
        let open = (rank == 0).then(|| collective!(Barrier, group = "world", ranks = "[0,1]", sequence = 2));
        let loading = (rank == 1).then(|| scope!("load data"));
        let path = folder.path().join(format!("process_{rank}.rec"));
        session.snapshot().expect("a copy").save(&path).expect("writable");
        drop((open, loading));
    };
    for rank in [0, 1] {
        std::thread::scope(|scope| scope.spawn(|| record(rank)).join().expect("no panic"));
    }
    let told = output(probe_sync(&["hang", text(folder.path())]));
    let lines = String::from_utf8(told.stdout.clone()).expect("text");
    assert!(told.status.success(), "{}", complaint(&told));
    assert!(lines.contains("rank 1") && lines.contains("it never enqueued barrier #2 of world"), "{lines}");
    assert!(lines.contains("stack        rank 1: in load data\n"), "{lines}");
    // Beside dumps, whose groups and numbers are others, it is only a stack.
    let entry = r#"{"record_id": 1, "process_group": ["0", "world"], "collective_seq_id": 9, "profiling_name": "nccl:all_gather", "state": "scheduled"}"#;
    let groups = r#"{"0": {"desc": "world", "ranks": "[0, 1]"}}"#;
    let dump = format!(r#"{{"version": "2.10", "pg_config": {groups}, "entries": [{entry}]}}"#);
    fs::write(folder.path().join("rank_0"), dump).expect("writable");
    let told = output(probe_sync(&["hang", text(folder.path())]));
    let lines = String::from_utf8(told.stdout).expect("text");
    assert!(lines.contains("probably rank 1: all_gather #9 of world waits for it; no dump"), "{lines}");
    assert!(lines.contains("stack        rank 1: in load data\n"), "{lines}");
}

#[test]
fn ras_serves_where_there_are_no_dumps_and_otherwise_says_why_one_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let place =
        |rank: u32| format!(r#""rank": {rank}, "host": "10.0.0.{rank}", "pid": 7, "cuda_dev": 0, "nvml_dev": 0"#);
    let ranks: Vec<String> =
        [0, 1].map(|rank| format!(r#"{{{}, "collective_counts": {{"AllReduce": 5}}}}"#, place(rank))).to_vec();
    let missing = format!(r#"{{{}, "status": {{"unresponsive": true, "considered_dead": false}}}}"#, place(2));
    let communicator =
        format!(r#"{{"hash": "0xa", "size": 3, "ranks": [{}], "missing_ranks": [{missing}]}}"#, ranks.join(","));
    let ras = folder.path().join("job_ras.json");
    fs::write(&ras, format!(r#"{{"communicators": [{communicator}]}}"#)).expect("writable");
    fs::write(folder.path().join("cameras.json"), "[]").expect("writable");
    let told = output(probe_sync(&["hang", text(folder.path())]));
    let lines = String::from_utf8(told.stdout.clone()).expect("text");
    assert!(told.status.success() && lines.contains("probably rank 2: "), "{lines}{}", complaint(&told));
    assert!(lines.contains("NCCL gets no response from it"), "{lines}");
    // The dumps of the others say what they wait for.
    let entry = r#"{"record_id": 1, "process_group": ["0", "world"], "collective_seq_id": 9, "profiling_name": "nccl:all_gather", "state": "scheduled"}"#;
    for rank in [0, 1] {
        let groups = r#"{"0": {"desc": "world", "ranks": "[0, 1, 2]"}}"#;
        let dump = format!(r#"{{"version": "2.10", "pg_config": {groups}, "entries": [{entry}]}}"#);
        fs::write(folder.path().join(format!("rank_{rank}")), dump).expect("writable");
    }
    let told = output(probe_sync(&["hang", text(folder.path())]));
    let lines = String::from_utf8(told.stdout).expect("text");
    assert!(lines.contains("all_gather #9 of world") && lines.contains("NCCL gets no response from it"), "{lines}");
    // One that cannot be read costs itself, and the command where there is nothing else.
    fs::write(&ras, "[]").expect("writable");
    let told = output(probe_sync(&["hang", text(folder.path())]));
    let lines = String::from_utf8(told.stdout.clone()).expect("text");
    assert!(told.status.success() && lines.contains("job_ras.json: "), "{lines}");
    let told = output(probe_sync(&["hang", text(&ras)]));
    assert!(complaint(&told).contains("job_ras.json"), "{}", complaint(&told));
}

#[test]
fn what_is_not_a_dump_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let check = |name: &str, bytes: &[u8], expected: &str| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("writable");
        let told = output(probe_sync(&["hang", text(&path)]));
        assert!(!told.status.success());
        assert!(complaint(&told).contains(expected), "{}", complaint(&told));
    };
    check("rank_0", b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00idtR.", "would load or call code");
    check("rank_1", b"", "the file is empty");
    check("rank_2.json", b"{\"traceEvents\": []}", "it has no version");
    check("dump", b"{}", "does not end with a rank");
}
