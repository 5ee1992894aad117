//! What commands print with `--json`, against the JSON Schemas that are committed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probe_sync_record::{Policy, Reach, Recorder, scope};
use serde_json::Value;

use crate::support::{collective_traces, complaint, few_packets, output, probe_sync, right_clocks, text};

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Hash of a schema without its descriptions, which may be improved: FNV-1a, which is a few lines.
fn hash(text: &str) -> String {
    let mut schema: Value = serde_json::from_str(text).expect("JSON");
    without_words(&mut schema);
    let text = schema.to_string();
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

fn without_words(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // A field that is called so is an object, and stays.
            fields.retain(|key, value| key != "description" || !value.is_string());
            fields.values_mut().for_each(without_words);
        }
        Value::Array(values) => values.iter_mut().for_each(without_words),
        _ => {}
    }
}

#[test]
fn schemas_are_those_that_are_committed_and_released_ones_never_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = output(probe_sync(&["json-schemas", "-o", text(folder.path())]));
    assert!(made.status.success(), "{}", complaint(&made));
    let mut count = 0;
    for entry in std::fs::read_dir(folder.path()).expect("a folder") {
        let fresh = entry.expect("an entry").path();
        let name = fresh.file_name().expect("a name");
        assert!(
            read(&committed().join(name)) == read(&fresh),
            "docs/schemas/{} is not what the types say: a field that changed or went needs the next schema number (crates/cli/src/documents.rs) and a new file; \
             `probe_sync json-schemas -o docs/schemas` writes it, and docs/schemas/RELEASED gets its line",
            name.display()
        );
        count += 1;
    }
    assert!(count >= 20, "{count}");
    let released = read(&committed().join("RELEASED"));
    let released: BTreeMap<&str, &str> = released.lines().filter_map(|line| line.split_once(' ')).collect();
    let (mut files, mut differ) = (0, Vec::new());
    for entry in std::fs::read_dir(committed()).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name != "RELEASED" {
            let expected = hash(&read(&path));
            if released.get(name.as_str()) != Some(&expected.as_str()) {
                differ.push(format!("{name} {expected}"));
            }
            files += 1;
        }
    }
    assert!(differ.is_empty(), "docs/schemas/RELEASED:\n{}", differ.join("\n"));
    assert_eq!(files, released.len(), "a released schema was removed");
}

/// Runs a command whose standard output has to be one document of its schema.
fn check(command: &str, arguments: &[&str]) {
    check_as(command, &[&[command], arguments].concat());
}

/// The same where the document is not called as the command.
fn check_as(command: &str, line: &[&str]) {
    let found = output(probe_sync(line));
    // A machine that cannot measure has a document, too.
    assert!(found.status.success() || line[0] == "doctor", "{line:?}: {}", complaint(&found));
    let document: Value = serde_json::from_slice(&found.stdout)
        .unwrap_or_else(|error| panic!("{command}: {error}: {}", String::from_utf8_lossy(&found.stdout)));
    let number = document["schema"].as_u64().expect("a schema number");
    let schema = committed().join(format!("{command}.v{number}.json"));
    let fields: Value = serde_json::from_str(&read(&schema)).expect("JSON");
    for field in document.as_object().expect("an object").keys() {
        assert!(fields["properties"].get(field).is_some(), "{command}: {field} is not in {}", schema.display());
    }
    for field in fields["required"].as_array().expect("what is required") {
        let field = field.as_str().expect("a name");
        assert!(document.get(field).is_some(), "{command}: {field} is required");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let whole = folder.path().join("whole.json");
    std::fs::write(&whole, &found.stdout).expect("writable");
    assert!(valid(&schema, &whole).unwrap_or(true), "{command}");
    // A schema that takes anything proves nothing.
    let mut less = document;
    less["schema"] = Value::from("one");
    std::fs::write(&whole, less.to_string()).expect("writable");
    assert!(!valid(&schema, &whole).unwrap_or(false), "{command}: a number that is none");
}

/// The verdict of `check-jsonschema` on a file; `None`, with a message, if it is not installed.
fn valid(schema: &Path, file: &Path) -> Option<bool> {
    let mut judge = std::process::Command::new("check-jsonschema");
    let Ok(found) = judge.arg("--schemafile").args([schema, file]).output() else {
        println!("skipped: check-jsonschema is not installed (pip install check-jsonschema)");
        return None;
    };
    print!("{}{}", String::from_utf8_lossy(&found.stdout), complaint(&found));
    Some(found.status.success())
}

#[test]
fn every_document_is_as_its_schema_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let [one, two] = collective_traces(folder.path(), Some([10, 12]));
    let (clocks, packets) = (right_clocks(folder.path()), few_packets(folder.path()));
    let traces = [text(&one), text(&two), "--offsets", text(&clocks), "--nodes", "0", "1"];
    let with = |more: &[&'static str], out: &str| -> Vec<String> {
        let flags = traces.iter().chain(more).map(|part| (*part).to_owned());
        let out = (!out.is_empty()).then(|| ["-o".to_owned(), text(&at(out)).to_owned()]);
        flags.chain(out.into_iter().flatten()).collect()
    };
    let run = |command: &str, arguments: Vec<String>| {
        check(command, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    };
    run("align", with(&["--validate", "--json"], "aligned"));
    run("merge", with(&["--validate", "--json", "--only", "gpu", "--mark-late"], "all.json"));
    run("merge", with(&["--json"], "all.pftrace"));
    run("check", with(&["--json"], ""));
    run("stragglers", with(&["--json"], ""));
    let folder_of = [with(&["--json", "-f", "pftrace", "-d"], ""), vec![text(&at("converted")).to_owned()]].concat();
    run("convert", folder_of);
    check("solve", &["--json", "--packets", text(&packets), "-o", text(&at("solved.jsonl"))]);
    check("doctor", &["--json"]);
    let measured = at("measured");
    let line =
        ["run", "--local", "2", "--fixed", "--duration", "1s", "--window", "500ms", "-q", "--out", text(&measured)];
    check_as("run", &[&line[..], &["--json"]].concat());
    check("status", &[text(&measured), "--json"]);
    check("report", &[text(&measured), "--json"]);
    for part in ["run/windows", "run/probes"] {
        std::fs::create_dir_all(at(part)).expect("writable");
    }
    std::fs::write(at("run/run.json"), "{}").expect("writable");
    std::fs::write(at("run/global_windows.jsonl"), "").expect("writable");
    check("export", &["--json", "--run-dir", text(&at("run")), "-o", text(&at("run.pb"))]);
}

#[test]
fn documents_of_simulations_recordings_and_queries_are_as_their_schemas_say() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let small = ["--nodes", "4", "--neighbors", "3", "--rate", "20", "--duration", "8s", "--window", "2s", "--json"];
    check("sim", &small);
    let adaptive = ["--adaptive", "--nodes", "4", "--neighbors", "3", "--load", "0.2", "--seeds", "1"];
    check("sim", &[&adaptive[..], &["--duration", "4s", "--window", "1s", "--json", "-o", text(&at("sim"))]].concat());

    let (file, copies) = (at("rank0.rec"), at("copies"));
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 }).rank(0);
    let session = builder.spill(&file).control(folder.path()).start().expect("this thread records nothing else");
    {
        let _training = scope!("training", job = "llm");
        drop(scope!("step", step = 1));
        check_as("record_recover", &["record", "recover", text(&file), "--json"]);
        check_as("record_session", &["record", "snapshot", text(folder.path()), "-o", text(&copies), "--json"]);
    }
    check_as("record_session", &["record", "stop", text(folder.path()), "--json"]);
    check_as("record_session", &["record", "start", text(folder.path()), "--json"]);
    session.finish().expect("whole");
    check_as("record_inspect", &["record", "inspect", text(&file), "--json"]);
    let database = at("rank0_results.db");
    for (format, out) in [("kineto", at("rank0.pt.trace.json")), ("rocpd", database.clone())] {
        check_as("record_convert", &["record", "convert", text(&file), "-f", format, "-o", text(&out), "--json"]);
    }
    for sql in ["SELECT name, start, NULL AS none FROM regions", "SELECT 1 AS one WHERE 0"] {
        check("query", &[text(&database), "--no-correction", "--sql", sql, "--json"]);
    }
    // All pairs of two ranks of this machine.
    let peers = ["doctor", "--peers", "--local", "2", "--duration", "1s", "--window", "500ms", "--json"];
    check_as("doctor_peers", &peers);
    check_as("doctor_strict", &[&peers[..], &["--strict"]].concat());
}
