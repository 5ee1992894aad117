//! Usual mistakes, each with its exit status, what is said of the cause and of the remedy, and
//! nothing left behind.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::{collective_traces, complaint, output, probe_sync, text};

/// What one who makes it is told.
struct Mistake {
    /// After the command's name, in a folder of traces (one.json, two.json), their clocks
    /// (offsets.csv) and files that are none.
    line: &'static str,
    /// Variables of the environment.
    variables: &'static [(&'static str, &'static str)],
    status: i32,
    cause: &'static str,
    remedy: &'static str,
}

const fn mistake(line: &'static str, status: i32, cause: &'static str, remedy: &'static str) -> Mistake {
    Mistake { line, variables: &[], status, cause, remedy }
}

const fn with(
    variables: &'static [(&'static str, &'static str)],
    line: &'static str,
    cause: &'static str,
    remedy: &'static str,
) -> Mistake {
    Mistake { line, variables, status: 2, cause, remedy }
}

const MISTAKES: &[Mistake] = &[
    // Paths, patterns, directories.
    mistake("merge nope.json -o x.json", 1, "nope.json: cannot open: No such file", "check the path"),
    mistake("merge rank*.json -o x.json", 1, "No such file", "no file matches this pattern"),
    mistake("merge empty -o x.json", 2, "there is no trace", "*.pt.trace.json"),
    mistake("merge one.json --offsets nope.csv -o x.json", 1, "nope.csv: cannot open", "check the path"),
    mistake("merge one.json --run-dir empty -o x.json", 1, "empty/offsets.jsonl: cannot open", "check the path"),
    mistake("check both --nodes 0 1", 2, "files of a folder have no reliable order", "name the files"),
    mistake("merge one.json two.json --no-correction -o one.json", 2, "would overwrite the input", "one.json"),
    mistake("merge one.json again.json --no-correction -o x.json", 1, "are both", "give one of them"),
    mistake("merge one.json --no-correction -o /proc/x.json", 1, "/proc/x.json: cannot create", "check the path"),
    mistake("export --run-dir empty -o x.pb", 1, "cannot read empty/run.json", "check the path"),
    mistake("status nope", 1, "there is no probe_sync run here", "give the directory"),
    mistake("ctl --run-dir empty stop", 1, "empty/control.sock", "is one in progress there, on this host?"),
    mistake("ctl pause --run-dir empty", 1, "empty/control.sock", "check the path"),
    mistake("clock words.txt", 1, "words.txt", "is not a clock page"),
    mistake("clock nope", 1, "cannot read the clock in nope", "check the path"),
    mistake("solve --probes nope.jsonl -o x.jsonl", 1, "cannot read nope.jsonl", "check the path"),
    mistake("compose --masters nope --region a=b -o x.jsonl", 1, "cannot read nope", "check the path"),
    mistake("record inspect nope.rec", 1, "nope.rec: No such file", "check the path"),
    mistake("sim --scenario nope.toml -o x", 2, "cannot read nope.toml", "--help"),
    // Formats.
    mistake("merge words.txt -o x.json", 1, "words.txt: byte 0: is not JSON", "JSON"),
    mistake("merge cut.json --no-correction -o x.json", 1, "cut.json: byte 25", "the file ends inside traceEvents"),
    mistake("merge bad.json.gz --no-correction -o x.json", 1, "bad.json.gz", "ends early or is damaged"),
    mistake("merge void.json --no-correction -o x.json", 1, "void.json: byte 0", "ends before any JSON"),
    mistake("merge one.json --no-correction -o x.db", 2, "x.db", "the name must end in .json"),
    mistake("merge one.json --no-correction -o x.foo", 2, "x.foo", "the name must end in .json"),
    mistake("convert one.json -f pdf -d x", 2, "invalid value 'pdf'", "possible values: pftrace"),
    mistake("align one.json --nodes 0 --offsets two.json -o x.json", 1, "two.json: line 1", "node_id"),
    mistake("solve --packets words.txt -o x.jsonl", 1, "words.txt: the first line has no column", "src"),
    mistake("record inspect words.txt", 1, "words.txt: byte 0: it is not a probe_sync recording", "another version"),
    // Whose traces, and which clock.
    mistake("merge one.json two.json -o x.json", 2, "different clocks: one.json contains neither", "--no-correction"),
    mistake("convert one.json two.json -f pftrace -d x", 2, "different clocks: one.json contains", "--no-correction"),
    mistake("align one.json --offsets three.csv -o x.json", 1, "cannot tell which node wrote", "Give --nodes"),
    mistake("stragglers one.json two.json", 2, "the traces may be on different clocks", "give --run-dir"),
    // Flags and values.
    mistake(
        "merge one.json --no-corection -o x.json",
        2,
        "unexpected argument",
        "a similar argument exists: '--no-correction'",
    ),
    mistake("chek one.json", 2, "unrecognized subcommand 'chek'", "a similar subcommand exists: 'check'"),
    mistake("check", 2, "no traces", "name files or folders"),
    mistake("merge one.json --no-correction", 2, "required arguments were not provided", "--output <FILE>"),
    mistake("merge one.json --nodes zero -o x.json", 2, "invalid value 'zero' for '--nodes", "--help"),
    mistake("merge one.json --no-correction --ranks 5 -o x.json", 2, "no trace is from 5", "the traces are from"),
    mistake("merge one.json --no-correction --steps 3..1 -o x.json", 2, "'3..1'", "ends before it begins"),
    mistake("merge one.json --no-correction --steps 3..4 -o x.json", 2, "no trace has a step 3", "set --step-name"),
    mistake("merge one.json --no-correction --max-size lots -o x.json", 2, "is not a size", "400M"),
    mistake("merge one.json --no-correction --only ( -o x.json", 2, "regex parse error", "unclosed group"),
    mistake("solve -o x.jsonl", 2, "required arguments were not provided", "--probes"),
    mistake("run --local 2 --duration soon -o x", 2, "--duration", "a number with its unit"),
    mistake("run --local 0 -o x", 2, "invalid value '0' for '--local", "1..=4096"),
    mistake(
        "check --json one.json two.json",
        2,
        "would overwrite one.json, which is a trace",
        "name traces before --json",
    ),
    mistake("config", 2, "required arguments", "--example"),
    // Files of settings, variables.
    mistake("run --config nope.toml --local 2 -o x", 2, "configuration file nope.toml", "No such file"),
    mistake("run --config wrong.toml --local 2 -o x", 2, "wrong.toml: duration", "a number with its unit"),
    mistake("run --config typo.toml --local 2 -o x", 2, "typo.toml: duraton: unknown key", "did you mean duration?"),
    mistake("run --local 2 --duration 1s --key-file nope -o x", 2, "nope: key_file: cannot be read", "No such file"),
    with(
        &[("PROBE_SYNC_DURATION", "soon")],
        "run --local 2 -o x",
        "environment variable PROBE_SYNC_DURATION",
        "a number with its unit",
    ),
    // Launchers and jobs.
    with(
        &[("RANK", "5"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1")],
        "run --duration 1s -o x",
        "RANK=5",
        "must be less than WORLD_SIZE=2",
    ),
    with(&[("RANK", "0")], "run --duration 1s -o x", "WORLD_SIZE is not", "RANK is set"),
    with(
        &[("RANK", "0"), ("WORLD_SIZE", "2")],
        "run --duration 1s -o x",
        "MASTER_ADDR is not",
        "set it to the host of rank 0",
    ),
    with(
        &[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")],
        "run --duration 1s -o x",
        "MASTER_PORT=0",
        "name a port that is free",
    ),
    with(&[("PROBE_SYNC_ID", "x"), ("RANK", "1"), ("WORLD_SIZE", "2")], "run -o x", "PROBE_SYNC_ID", "--help"),
    // Another rank that is not there, at an address as it stands in a URL.
    Mistake {
        status: 1,
        ..with(
            &[
                ("RANK", "1"),
                ("WORLD_SIZE", "2"),
                ("MASTER_ADDR", "[::1]"),
                ("MASTER_PORT", "1"),
                ("PROBE_SYNC_RENDEZVOUS_TIMEOUT", "1s"),
            ],
            "run --duration 1s -o x",
            "Connection refused",
            "rank 0 at [::1]:1",
        )
    },
    mistake("run --local 2 --neighbors 0 -o x", 2, "neighbors", "at least 1"),
    // What the system refuses.
    mistake("merge one.json --no-correction -o /dev/full", 1, "No space left on device", "free some space"),
    mistake("run --local 2 --duration 1s --out /proc/x", 2, "rank 0: cannot create /proc/x", "No such file"),
];

/// Every file and folder below.
fn tree(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            open.extend(path.is_dir().then(|| path.clone()));
            found.insert(path);
        }
    }
    found
}

fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let [one, two] = collective_traces(folder.path(), Some([10, 12]));
    std::fs::create_dir(at("empty")).expect("a folder");
    std::fs::create_dir(at("both")).expect("a folder");
    for (from, name) in [(&one, "one.json"), (&two, "two.json")] {
        std::fs::copy(from, at(&format!("both/{name}"))).expect("copied");
        std::fs::rename(from, at(name)).expect("renamed");
    }
    // Another trace of the first one's rank, at the same time.
    let again = std::fs::read_to_string(at("one.json")).expect("a trace").replace("\"dur\": 10", "\"dur\": 11");
    std::fs::write(at("again.json"), again).expect("writable");
    for (name, content) in [
        ("words.txt", &b"words\n"[..]),
        ("cut.json", b"{\"traceEvents\": [{\"ts\": 1"),
        ("bad.json.gz", b"\x1f\x8b\x08 none"),
        ("void.json", b""),
        ("offsets.csv", b"node,node_realtime_ns,offset_vs_node0_ns\n0,0,0\n0,90000000,0\n1,0,0\n1,90000000,0\n"),
        ("three.csv", b"node,node_realtime_ns,offset_vs_node0_ns\n0,0,0\n1,0,0\n1,90000000,0\n2,0,0\n2,90000000,0\n"),
        ("wrong.toml", b"duration = \"soon\"\n"),
        ("typo.toml", b"duraton = \"1s\"\n"),
    ] {
        std::fs::write(at(name), content).expect("writable");
    }
    folder
}

#[test]
fn usual_mistakes_are_told_with_cause_and_remedy_and_leave_nothing() {
    assert!(MISTAKES.len() >= 40, "{}", MISTAKES.len());
    let folder = prepared();
    let before = tree(folder.path());
    for Mistake { line, variables, status, cause, remedy } in MISTAKES {
        let mut command = probe_sync(&line.split(' ').collect::<Vec<_>>());
        command.current_dir(folder.path()).envs(variables.iter().copied());
        let found = output(command);
        let said = complaint(&found);
        assert_eq!(found.status.code(), Some(*status), "{line}: {said}");
        assert!(said.contains(cause), "{line}: the cause, {cause}, is missing in {said}");
        assert!(said.contains(remedy), "{line}: the remedy, {remedy}, is missing in {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
        for reason in ["No such file or directory", "No space left on device"] {
            assert!(said.matches(reason).count() <= 1, "{line}: a cause is told once: {said}");
        }
        assert_eq!(tree(folder.path()), before, "{line}: {} is as it was", text(folder.path()));
    }
}
