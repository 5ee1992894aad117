//! `convert -f otf2` on real traces: what libotf2's own readers find in the archive, against what
//! `align` writes of the same traces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::boot_clock::Set;
use crate::support::{complaint, output, probe_sync};
use crate::traces::{data, traces};

/// Name, start and end of a region, ns.
type Span = (String, i64, i64);

/// What `otf2-print` shows of an archive.
#[derive(Default)]
struct Printed {
    spans: Vec<Span>,
    /// By communicator and location: what its collectives are, with their roots, in order.
    collectives: BTreeMap<(String, String), Vec<String>>,
    /// By communicator: its number of members.
    members: BTreeMap<String, usize>,
    locations: Vec<String>,
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// `None`, with a message, if the program is not installed.
fn print(archive: &Path) -> Option<Printed> {
    if Command::new("otf2-print").arg("--version").output().is_err() {
        println!("skipped: otf2-print is not here (Debian: otf2-tools)");
        return None;
    }
    let ask = |flags: &[&str]| {
        let mut command = Command::new("otf2-print");
        command.args(flags).arg(archive);
        let done = output(command);
        assert!(done.status.success(), "{}", complaint(&done));
        assert!(!utf8(&done.stderr).contains("rror"), "{}", utf8(&done.stderr));
        utf8(&done.stdout)
    };
    let mut printed = Printed::default();
    let definitions = ask(&["-G"]);
    for line in definitions.lines() {
        match line.split_whitespace().next() {
            Some("LOCATION") => printed.locations.push(line.to_owned()),
            Some("GROUP") if line.contains("COMM_GROUP") => {
                let (before, _) = line.split_once(" Members:").expect("its members");
                let count = before.rsplit(", ").next().and_then(|count| count.parse().ok()).expect("a count");
                // Group n is that of communicator n − 1.
                let number: usize = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
                printed.members.insert((number - 1).to_string(), count);
            }
            _ => {}
        }
    }
    let mut open: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    for line in ask(&[]).lines() {
        let mut words = line.split_whitespace();
        let (kind, location) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
        let time = || line.split_whitespace().nth(2).expect("a time").parse::<i64>().expect("ns");
        let region = || {
            let (_, name) = line.split_once("Region: \"").expect("a region");
            name.rsplit_once("\" <").expect("its number").0.to_owned()
        };
        match kind {
            "ENTER" => open.entry(location).or_default().push((region(), time())),
            "LEAVE" => {
                let (name, start) = open.get_mut(&location).and_then(Vec::pop).expect("it was entered");
                assert_eq!(name, region(), "regions nest: {line}");
                printed.spans.push((name, start, time()));
            }
            "MPI_COLLECTIVE_END" => {
                let (what, of) = line.split_once("Communicator: ").expect("a communicator");
                let (_, of) = of.split_once('<').expect("its number");
                let (communicator, rest) = of.split_once('>').expect("its number");
                let (_, root) = rest.split_once("Root: ").expect("a root");
                let operation = what.split_once("Operation: ").expect("an operation").1;
                let root = root.split([' ', ',']).next().unwrap_or_default();
                let key = (communicator.to_owned(), location);
                printed.collectives.entry(key).or_default().push(format!("{operation}{root}"));
            }
            _ => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "all that was entered was left");
    printed.spans.sort();
    Some(printed)
}

/// Slices and instants of a file in Chrome's JSON.
fn spans(path: &Path) -> Vec<Span> {
    let document: Value = serde_json::from_slice(&std::fs::read(path).expect("a file")).expect("JSON");
    let base = document["baseTimeNanoseconds"].as_i64().expect("a base");
    let ns = |number: &Value| {
        let text = number.to_string();
        let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
        format!("{whole}{fraction:0<3}").parse::<i64>().expect("ns")
    };
    let events = document["traceEvents"].as_array().expect("events").iter();
    let mut found: Vec<Span> = events
        .filter_map(|event| {
            let length = match event["ph"].as_str() {
                Some("X") => ns(&event["dur"]),
                Some("i") => 0,
                _ => return None,
            };
            let start = base + ns(&event["ts"]);
            Some((event["name"].as_str().expect("a name").to_owned(), start, start + length))
        })
        .collect();
    found.sort();
    found
}

fn convert(arguments: &[&str], traces: &[PathBuf], folder: &Path, files: &[(&str, &[PathBuf])]) -> Output {
    let mut command = probe_sync(&["convert", "-o", "job", "-d"]);
    command.arg(folder).args(arguments).arg("-i").args(traces);
    for (flag, values) in files {
        command.arg(flag).args(*values);
    }
    output(command)
}

/// Traces of one job, and what tells their clocks.
struct Job {
    traces: Vec<PathBuf>,
    clocks: Vec<(&'static str, Vec<PathBuf>)>,
    scratch: tempfile::TempDir,
}

impl Job {
    fn new(traces: Vec<PathBuf>, offsets: PathBuf) -> Self {
        let scratch = tempfile::tempdir().expect("a temporary directory");
        Self { traces, clocks: vec![("--offsets", vec![offsets])], scratch }
    }

    fn of_databases(name: &str, nodes: usize) -> Option<Self> {
        let set = Set::find(name, nodes)?;
        let mut job = Self::new(set.databases(), set.offsets());
        job.clocks.push(("--snapshots", set.all_pairs(job.scratch.path())));
        Some(job)
    }

    fn files(&self) -> Vec<(&str, &[PathBuf])> {
        self.clocks.iter().map(|(flag, files)| (*flag, files.as_slice())).collect()
    }

    /// The spans that `align` writes, by way of the writer for Chrome's JSON.
    fn aligned(&self) -> Vec<Span> {
        let at = self.scratch.path().join("aligned");
        let mut align = probe_sync(&["align", "--assume-order", "--output"]);
        align.arg(&at).arg("--traces").args(&self.traces);
        for (flag, files) in self.files() {
            align.arg(flag).args(files);
        }
        let done = output(align);
        assert!(done.status.success(), "{}", complaint(&done));
        let names = self.traces.iter().map(|trace| at.join(trace.file_name().expect("a name")));
        let done = convert(&["-f", "json"], &names.collect::<Vec<_>>(), self.scratch.path(), &[]);
        assert!(done.status.success(), "{}", complaint(&done));
        spans(&self.scratch.path().join("job_results.json"))
    }

    /// Writes the archive; what the command says.
    fn convert(&self) -> String {
        let flags = ["-f", "otf2", "--assume-order", "--collective-flows"];
        let done = convert(&flags, &self.traces, self.scratch.path(), &self.files());
        assert!(done.status.success(), "{}", complaint(&done));
        utf8(&done.stdout)
    }

    /// The archive as its reader prints it, and what the command said.
    fn archive(&self) -> Option<(Printed, String)> {
        let said = self.convert();
        Some((print(&self.path())?, said))
    }

    fn path(&self) -> PathBuf {
        self.scratch.path().join("job_otf2/traces.otf2")
    }
}

/// Every member of a communicator does the same operations in the same order; how many parts there
/// are.
fn check_collectives(printed: &Printed) -> usize {
    let communicators: BTreeSet<&String> = printed.collectives.keys().map(|(communicator, _)| communicator).collect();
    assert_eq!(communicators, printed.members.keys().collect(), "none is defined in vain");
    for communicator in communicators {
        let of_members: Vec<&Vec<String>> =
            printed.collectives.iter().filter(|((of, _), _)| of == communicator).map(|(_, all)| all).collect();
        assert_eq!(of_members.len(), printed.members[communicator], "communicator {communicator}");
        assert!(of_members.windows(2).all(|pair| pair[0] == pair[1]), "communicator {communicator}: {of_members:?}");
    }
    printed.collectives.values().map(Vec::len).sum()
}

#[test]
fn archives_hold_every_slice_with_the_times_of_align_and_all_certain_collectives() {
    let Some(data) = data() else { return };
    let check = |job: &Job, operations: usize, parts: usize| {
        let Some((printed, said)) = job.archive() else { return };
        let expected = job.aligned();
        assert_eq!(printed.spans.len(), expected.len(), "{said}");
        let differs = printed.spans.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert!(!expected.is_empty() && differs.is_none(), "{said}: {differs:?}");
        assert!(said.contains(&format!("{operations} operations of {parts} parts joined")), "{said}");
        assert!(said.contains(&format!("  {parts} parts of collectives in ")), "{said}");
        assert_eq!(check_collectives(&printed), parts, "{said}");
        assert!(printed.locations.iter().all(|line| line.contains("# Events: ")), "{:?}", printed.locations);
    };
    let set = |name: &str| {
        let folder = data.join(name);
        Job::new(traces(&folder), folder.join("offsets.csv"))
    };
    check(&set("torch/b_4node_offset_drift"), 23, 92);
    let planes = (0..4).map(|node| data.join(format!("jax/b_4node_offset_drift/node{node}.xplane.pb"))).collect();
    check(&Job::new(planes, data.join("jax/b_4node_offset_drift/offsets.csv")), 36, 144);
    for (name, nodes, operations) in [("a_2node", 2, 36), ("b_4node_offset_drift", 4, 80)] {
        let Some(job) = Job::of_databases(name, nodes) else { return };
        check(&job, operations, operations * nodes);
    }
}

#[test]
fn the_root_of_a_broadcast_is_a_place_in_its_communicator() {
    let Some(job) = Job::of_databases("b_4node_offset_drift", 4) else { return };
    let Some((printed, _)) = job.archive() else { return };
    let all: Vec<&String> = printed.collectives.values().flatten().collect();
    for root in 0..4 {
        for operation in ["BCAST, ", "REDUCE, "] {
            let of_root = format!("{operation}{root}");
            assert_eq!(all.iter().filter(|one| **one == &of_root).count(), 20, "{of_root}: {all:?}");
        }
    }
}

#[test]
fn pythons_reader_counts_what_was_written() {
    let Some(job) = Job::of_databases("a_2node", 2) else { return };
    let script = "
import collections, sys, otf2
with otf2.reader.open(sys.argv[1]) as trace:
    counts = collections.Counter(type(event).__name__ for _, event in trace.events)
    hosts = sorted({location.group.system_tree_parent.name for location in trace.definitions.locations})
    print(trace.timer_resolution, hosts, *(counts[name] for name in ('Enter', 'Leave', 'MpiCollectiveEnd')))
";
    // The system's own: the package is Debian's, and another Python does not see it.
    let python = |arguments: &[&str]| {
        let mut command = Command::new("/usr/bin/python3");
        command.args(arguments).arg(job.path());
        command
    };
    if !python(&["-c", "import otf2"]).output().is_ok_and(|done| done.status.success()) {
        println!("skipped: Python's otf2 is not here (Debian: python3-otf2)");
        return;
    }
    job.convert();
    let read = output(python(&["-c", script]));
    assert!(read.status.success(), "{}", complaint(&read));
    assert_eq!(utf8(&read.stdout).trim(), "1000000000 ['node0', 'node1'] 216 216 72");
}

#[test]
fn an_archive_replaces_nothing_and_half_of_one_is_not_left() {
    let Some(data) = data() else { return };
    let set = data.join("torch/a_2node_noskew");
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let formats = ["-f", "otf2", "pftrace", "--no-correction"];
    let done = convert(&formats, &traces(&set), scratch.path(), &[]);
    assert!(done.status.success(), "{}", complaint(&done));
    let names = || {
        let entries = std::fs::read_dir(scratch.path()).expect("a folder");
        entries.map(|entry| entry.expect("an entry").file_name()).collect::<BTreeSet<_>>()
    };
    let before = names();
    let again = convert(&formats, &traces(&set), scratch.path(), &[]);
    assert_eq!(again.status.code(), Some(1), "{}", complaint(&again));
    assert!(complaint(&again).contains("job_otf2: cannot create: it already exists"), "{}", complaint(&again));
    assert_eq!(names(), before);
    // A trace that ends early: no folder appears.
    let cut = scratch.path().join("cut.json");
    std::fs::write(&cut, "{\"traceEvents\": [{\"ph\": \"X\", \"pid\": 1").expect("written");
    let failed = convert(&["-f", "otf2"], &[cut], &scratch.path().join("new"), &[]);
    assert_eq!(failed.status.code(), Some(1), "{}", complaint(&failed));
    assert!(!scratch.path().join("new").exists());
}

#[test]
fn a_disk_that_takes_no_more_is_an_error_and_leaves_nothing() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let event = |number: u32| {
        let ts = 10 * number;
        format!(r#"{{"ph": "X", "pid": 1, "tid": 1, "ts": {ts}, "dur": 5, "name": "a{}"}}"#, number % 7)
    };
    let events: Vec<String> = (0..40_000).map(event).collect();
    let trace = scratch.path().join("a.json");
    std::fs::write(&trace, format!("{{\"traceEvents\": [{}]}}", events.join(","))).expect("written");
    // Files of at most 64 KiB; the signal that comes with more is ignored, so that writing fails.
    let convert = probe_sync(&["convert", "-f", "otf2", "-d"]);
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$@\"", "bash"]).arg(convert.get_program());
    limited.args(convert.get_args()).arg(scratch.path().join("new")).arg("-i").arg(&trace);
    let done = output(limited);
    assert_eq!(done.status.code(), Some(1), "{}", complaint(&done));
    assert!(complaint(&done).contains("libotf2 cannot write"), "{}", complaint(&done));
    assert!(!complaint(&done).contains("[OTF2]"), "{}", complaint(&done));
    assert!(!scratch.path().join("new").exists());
}
