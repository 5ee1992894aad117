//! Databases of rocprofv3 on CLOCK_BOOTTIME: what ties them, what is refused, and the collectives
//! in them, on sets whose clocks are known exactly.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{complaint, output, probe_sync};

/// A set, and how many nodes it has.
pub struct Set {
    folder: PathBuf,
    pub nodes: usize,
}

impl Set {
    /// `None`, with a message, if the real inputs are missing.
    pub fn find(name: &str, nodes: usize) -> Option<Set> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/rocpd").join(name);
        if folder.is_dir() {
            return Some(Set { folder, nodes });
        }
        println!("skipped: ../shared/data/rocpd/{name} is not here");
        None
    }

    pub fn databases(&self) -> Vec<PathBuf> {
        (0..self.nodes).map(|node| self.folder.join(format!("node{node}_results.db"))).collect()
    }

    pub fn offsets(&self) -> PathBuf {
        self.folder.join("offsets.csv")
    }

    /// The readings of a node's clocks as a file of pairs that names this tracer clock.
    fn pairs(&self, node: usize, clock: &str, to: &Path) -> PathBuf {
        let text = std::fs::read(self.folder.join(format!("clock_node{node}.json"))).expect("readings");
        let readings: Value = serde_json::from_slice(&text).expect("JSON");
        let line = |reading: &Value| {
            let pair = json!({
                "sys_clock_ns": reading["node_realtime_ns"],
                "tracer_clock_ns": reading["node_boottime_ns"],
                "bracket_ns": reading["win"],
                "tracer_clock": clock,
            });
            format!("{pair}\n")
        };
        let lines: String = readings["snapshots"].as_array().expect("a list").iter().map(line).collect();
        let path = to.join(format!("node{node}.{clock}.jsonl"));
        std::fs::write(&path, lines).expect("written");
        path
    }

    pub fn all_pairs(&self, to: &Path) -> Vec<PathBuf> {
        (0..self.nodes).map(|node| self.pairs(node, "boottime", to)).collect()
    }

    /// A command on the set's databases.
    fn run(&self, command: &str, flags: &[&str], files: &[(&str, &[PathBuf])]) -> Output {
        run(command, &self.databases(), flags, files)
    }

    /// A command that must fail: what it says.
    fn refused(&self, flags: &[&str], files: &[(&str, &[PathBuf])]) -> String {
        let done = self.run("check", flags, files);
        assert_eq!(done.status.code(), Some(1), "{}", complaint(&done));
        complaint(&done)
    }
}

/// A command on these traces.
pub fn run(command: &str, traces: &[PathBuf], flags: &[&str], files: &[(&str, &[PathBuf])]) -> Output {
    let mut command = probe_sync(&[&[command], flags].concat());
    command.arg("--traces").args(traces);
    for (flag, values) in files {
        command.arg(flag).args(*values);
    }
    output(command)
}

/// Edges and broken ones of operations of all ranks and of rooted ones, and those of them that
/// uncertainty does not explain.
fn edges(done: &Output, report: &Path) -> ([(u64, u64); 2], u64) {
    let text = std::fs::read(report).unwrap_or_else(|_| panic!("no report: {}", complaint(done)));
    let report: Value = serde_json::from_slice(&text).expect("JSON");
    let mut found = [(0, 0); 2];
    for line in report["result"]["operations"].as_array().expect("a list") {
        let number = |key: &str| line[key].as_u64().expect("a count");
        let rooted = matches!(line["name"].as_str(), Some("ncclBroadcast" | "ncclReduce"));
        let of = &mut found[usize::from(rooted)];
        *of = (of.0 + number("edges"), of.1 + number("broken"));
    }
    (found, report["violations"].as_u64().expect("a count"))
}

#[test]
fn pairs_or_collectives_repair_boot_clocks_that_differ_by_hours() {
    for (name, nodes, clean) in [("a_2node", 2, [(48, 0), (12, 0)]), ("b_4node_offset_drift", 4, [(160, 0), (80, 0)])] {
        let Some(set) = Set::find(name, nodes) else { return };
        let scratch = tempfile::tempdir().expect("a temporary directory");
        let report = [scratch.path().join("check.json")];
        let numbers: Vec<String> = (0..nodes).map(|node| node.to_string()).collect();
        let of_nodes: Vec<&str> = std::iter::once("--nodes").chain(numbers.iter().map(String::as_str)).collect();

        let done = set.run("check", &of_nodes, &[("--json", &report)]);
        assert_eq!(edges(&done, &report[0]), ([(0, 0); 2], 0), "{name} as it is: nothing relates the clocks");
        assert_eq!(done.status.code(), Some(4), "{}", complaint(&done));

        let pairs = set.all_pairs(scratch.path());
        let clocks: [(&str, &[PathBuf]); 3] =
            [("--json", &report), ("--snapshots", &pairs), ("--offsets", &[set.offsets()])];
        let done = set.run("check", &of_nodes, &clocks);
        assert_eq!(edges(&done, &report[0]), (clean, 0), "{name} by pairs");
        assert!(done.status.success(), "{}", complaint(&done));

        let done = set.run("check", &[&of_nodes[..], &["--from-collectives"]].concat(), &[("--json", &report)]);
        // Each half of the operations is judged by clocks that the other half gave, which are less
        // certain.
        let ([all, rooted], violations) = edges(&done, &report[0]);
        assert_eq!(([all.0, rooted.0], violations), ([clean[0].0, clean[1].0], 0), "{name} alone");
        assert!(done.status.success(), "{}", complaint(&done));
    }
}

#[test]
fn collectives_alone_put_databases_on_the_references_boot_clock_and_say_so() {
    let Some(set) = Set::find("b_4node_offset_drift", 4) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let aligned = [scratch.path().join("aligned")];
    let nodes = ["--nodes", "0", "1", "2", "3"];
    let done = set.run("align", &[&nodes[..], &["--from-collectives"]].concat(), &[("--output", &aligned)]);
    assert!(done.status.success(), "{}", complaint(&done));
    let written: Vec<PathBuf> = (0..4).map(|node| aligned[0].join(format!("node{node}_results.db"))).collect();
    for database in &written {
        let bytes = std::fs::read(database).expect("written");
        let told = b"probe_sync_timelineboot clock of node 0";
        assert!(bytes.windows(told.len()).any(|window| window == told), "{}", database.display());
    }
    let report = [scratch.path().join("check.json")];
    let done = run("check", &written, &nodes, &[("--json", &report)]);
    assert_eq!(edges(&done, &report[0]), ([(160, 0), (80, 0)], 0), "{}", complaint(&done));
}

#[test]
fn roots_are_nobodys_where_no_fact_says_whose_trace_is_whose() {
    let Some(set) = Set::find("b_4node_offset_drift", 4) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let report = [scratch.path().join("check.json")];
    let mut turned = set.databases();
    turned.reverse();
    let done = run("check", &turned, &["--from-collectives"], &[("--json", &report)]);
    assert_eq!(edges(&done, &report[0]), ([(160, 0), (0, 0)], 0), "{}", complaint(&done));
}

#[test]
fn what_does_not_tie_a_boot_clock_is_refused_with_what_would() {
    let Some(set) = Set::find("b_4node_offset_drift", 4) else { return };
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let (pairs, offsets) = (set.all_pairs(scratch.path()), [set.offsets()]);
    let refused =
        |pairs: &[PathBuf]| set.refused(&["--assume-order"], &[("--offsets", &offsets), ("--snapshots", pairs)]);

    let alone = set.refused(&["--assume-order"], &[("--offsets", &offsets)]);
    let parts =
        ["node0_results.db", "on CLOCK_BOOTTIME", "--tracer-clock boottime", "--snapshots", "--from-collectives"];
    assert!(parts.iter().all(|part| alone.contains(part)), "{alone}");
    let as_system = set.refused(&["--assume-order", "--realtime-only"], &[("--offsets", &offsets)]);
    assert!(as_system.contains("on CLOCK_BOOTTIME"), "{as_system}");

    let mut other_clock = pairs.clone();
    other_clock[2] = set.pairs(2, "monotonic", scratch.path());
    let said = refused(&other_clock);
    let parts = ["node2_results.db", "for the clock monotonic", "CLOCK_BOOTTIME (boottime)"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");

    let mut other_boot = pairs.clone();
    other_boot.swap(0, 1);
    let said = refused(&other_boot);
    let parts = ["node0_results.db", "from 88454.300 to 88458.477 s", "from 7054.297 to 7058.477 s", "another boot"];
    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
}
