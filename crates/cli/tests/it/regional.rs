//! `run --region`: several regions and the run among their masters in one command, by real
//! processes over virtual clocks of known error.
//!
//! A process has one virtual clock in all its runs, so `truth.json` of the job's directory says
//! what every node of the composed file truly shows.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::regions::{error_ns, real_ns};
use crate::support::{complaint, free_port, lines, mpirun, output, probe_sync, text, wait, wait_for_lines};

/// A job's directory.
struct Job {
    folder: tempfile::TempDir,
}

impl Job {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary directory") }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// A file of regions.
    fn regions(&self, content: &str) -> PathBuf {
        let path = self.folder.path().join("regions.txt");
        std::fs::write(&path, content).expect("writable");
        path
    }

    /// A run of local ranks.
    fn local(&self, ranks: &str, regions: &str, more: &[&str]) -> Command {
        let mut command = probe_sync(&["run", "--local", ranks, "--region-file", text(&self.regions(regions))]);
        command.args(["--out", text(&self.out())]).args(SKEWED).args(more);
        command
    }

    /// Ranks that find each other by variables, each in the region that a variable names.
    fn ranks(&self, regions: &[&str], more: &[&str]) -> Vec<Child> {
        let port = free_port().to_string();
        let start = |(rank, region): (usize, &&str)| {
            let mut command = probe_sync(&["run", "--out", text(&self.out())]);
            // A flag is given once.
            let skewed = &SKEWED[if more.contains(&SKEWED[0]) { 2 } else { 0 }..];
            command.args(skewed).args(more).env("RANK", rank.to_string()).env("WORLD_SIZE", regions.len().to_string());
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
            command.env("PROBE_SYNC_CLOCK_PAGE", self.page(rank));
            if !region.is_empty() {
                command.env("PROBE_SYNC_REGION", region);
            }
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
        };
        regions.iter().enumerate().map(start).collect()
    }

    fn truth(&self) -> Value {
        let text = std::fs::read_to_string(self.out().join("truth.json")).expect("truth.json");
        serde_json::from_str(&text).expect("JSON")
    }

    fn composed(&self) -> Vec<Value> {
        lines(&self.out().join("offsets.smoothed.jsonl"))
    }

    /// Where a rank keeps the clock for other processes, if it is its host's first in its region.
    fn page(&self, rank: usize) -> PathBuf {
        self.folder.path().join(format!("page{rank}"))
    }

    /// Waits for the first line of a live file and this many further lines.
    fn wait_for(&self, run: &str, lines: usize) {
        wait_for_lines(&self.out().join(run).join("offsets.jsonl"), 1 + lines);
    }
}

/// True offset of a node of the composed file, when the reference shows `at_ns`.
fn true_offset_ns(truth: &Value, node: u64, at_ns: i64) -> f64 {
    let reference = truth["reference_node"].as_u64().expect("a node");
    let real = real_ns(truth, reference, 0.0, at_ns);
    real + error_ns(truth, node, real, at_ns)
}

/// Checks every line against the truth; the median error, and by node how many lines it has and
/// when the last was.
fn check(job: &Job, nodes: usize) -> (f64, Vec<(usize, i64)>) {
    let (truth, lines) = (job.truth(), job.composed());
    assert_eq!(lines[0]["nodes"].as_array().map(Vec::len), Some(nodes));
    let mut seen = vec![(0, i64::MIN); nodes];
    let mut errors = Vec::new();
    for line in lines[1..].iter().filter(|line| line["reachable"] == true) {
        let number = |key: &str| line[key].as_f64();
        let time = |key: &str| line[key].as_i64().expect("a time");
        let at = time("window_start_ns").midpoint(time("window_end_ns"));
        let node = line["node_id"].as_u64().expect("a node");
        let expected = true_offset_ns(&truth, node, at);
        let inside = number("bound_lo_ns").is_none_or(|lo| lo <= expected)
            && number("bound_hi_ns").is_none_or(|hi| expected <= hi);
        assert!(inside, "{expected} is outside {line}");
        let error = (number("offset_ns").expect("an offset") - expected).abs();
        assert!(error <= 6.0 * number("sigma_ns").expect("a deviation") + 1.0, "{expected} is far from {line}");
        let (count, last) = &mut seen[node as usize];
        (*count, *last) = (*count + 1, (*last).max(at));
        if node != truth["reference_node"] {
            errors.push(error);
        }
    }
    let middle = errors.len() / 2;
    let median = *errors.select_nth_unstable_by(middle, f64::total_cmp).1;
    println!("{} lines, median |error| {median:.1} ns", errors.len());
    (median, seen)
}

/// The composed ranks: number, node.
fn ranks(job: &Job) -> Vec<(u64, u64)> {
    let header = &job.composed()[0];
    let ranks = header["ranks"].as_array().expect("ranks");
    ranks
        .iter()
        .map(|rank| (rank["rank"].as_u64().expect("a rank"), rank["node_id"].as_u64().expect("a node")))
        .collect()
}

/// Traces of all ranks, an event and an all-reduce in each that truly begin together, are given to
/// their nodes by their ranks, aligned and found sound.
fn align_by_rank(job: &Job, ranks: &[(u64, u64)]) {
    let (truth, lines) = (job.truth(), job.composed());
    let line = &lines[lines.len() / 2];
    let at_ns =
        line["window_start_ns"].as_i64().expect("a time").midpoint(line["window_end_ns"].as_i64().expect("a time"));
    let host = lines[0]["nodes"][0]["hostname"].as_str().expect("a host");
    let group = ranks.iter().map(|(rank, _)| rank.to_string()).collect::<Vec<_>>().join(", ");
    let write = |(rank, node): &(u64, u64)| {
        let path = job.folder.path().join(format!("trace{}.json", ranks.len() as u64 - rank));
        let ts = true_offset_ns(&truth, *node, at_ns) * 1e-3;
        let of_job = format!(
            "\"host_name\": \"{host}\", \"distributedInfo\": {{\"rank\": {rank}, \"world_size\": {}}}",
            ranks.len()
        );
        let args = format!(
            r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": 7, "Process Group Ranks": "[{group}]""#
        );
        let event = format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": {ts:.3}, "dur": 10, "args": {{{args}}}}}"#
        );
        let text = format!("{{{of_job}, \"baseTimeNanoseconds\": {at_ns}, \"traceEvents\": [{event}]}}");
        std::fs::write(&path, text).expect("writable");
        path
    };
    let traces: Vec<PathBuf> = ranks.iter().map(write).collect();
    let aligned = job.folder.path().join("aligned");
    let run = |command: &str, more: &[&str]| {
        let mut command = probe_sync(&[command, "--run-dir", text(&job.out())]);
        output_of(command.args(more).arg("--traces").args(&traces))
    };
    let (status, said) = run("align", &["-v", "--validate", "--output", text(&aligned)]);
    assert_eq!(status, Some(0), "{said}");
    let (last, node) = ranks.last().expect("ranks");
    let settled = format!("node {node}, by its rank {last} of {}, which the run recorded on this node", ranks.len());
    assert!(said.contains(&settled), "{settled} is missing in {said}");
    for trace in &traces {
        let written = std::fs::read(aligned.join(trace.file_name().expect("a file"))).expect("an output");
        let written: Value = serde_json::from_slice(&written).expect("JSON");
        let apart_us = written["traceEvents"][0]["ts"].as_f64().expect("a time");
        assert!(apart_us.abs() < 5.0, "{}: {apart_us} µs; clocks are ms apart", trace.display());
    }
    assert_eq!(run("check", &[]).0, Some(0), "{}", run("check", &[]).1);
    let merged = job.folder.path().join("combined.json.gz");
    let (status, said) = run("merge", &["--output", text(&merged)]);
    assert!(status == Some(0) && merged.exists(), "{said}");
}

fn output_of(command: &mut Command) -> (Option<i32>, String) {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let output = wait(child);
    (output.status.code(), format!("{}{}", String::from_utf8_lossy(&output.stdout), complaint(&output)))
}

#[test]
fn two_regions_of_one_machine_are_one_timeline() {
    let job = Job::new();
    // Not in order, so that nodes of the file are not numbered as ranks are.
    let told = output(job.local("8", "west 0,2-4 # and more\nwest 7\neast 1,5,6\n", &["--duration", "4s", "--json"]));
    assert!(told.status.success(), "{}", complaint(&told));
    let document: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!(document["regions"][1]["first_node"], 5, "{document:#}");
    assert!(
        !complaint(&told).contains("left out"),
        "the masters' run begins first and ends last: {}",
        complaint(&told)
    );
    let (median, seen) = check(&job, 8);
    assert!(median < 2_000.0, "{median}");
    assert!(seen.iter().all(|(lines, _)| *lines >= 3), "{seen:?}");
    let ranks = ranks(&job);
    assert_eq!(ranks, [(0, 0), (2, 1), (3, 2), (4, 3), (7, 4), (1, 5), (5, 6), (6, 7)]);
    align_by_rank(&job, &ranks);
    // A second job finds the first one's directory, and moves it aside.
    let again = output(job.local("2", "west 0\neast 1", &["--duration", "1s"]));
    assert!(again.status.success(), "{}", complaint(&again));
    assert!(
        job.folder.path().join("out.1/regions/west/offsets.jsonl").exists()
            && !job.out().join("regions/west/windows/node2.jsonl").exists()
    );
    assert_eq!(job.composed()[0]["nodes"].as_array().map(Vec::len), Some(2));
}

#[test]
#[ignore = "long: waits for the limits of ranks that were killed"]
fn three_regions_of_processes_of_their_own_end_when_one_of_them_is_stopped() {
    let job = Job::new();
    let regions = job.ranks(&["a", "a", "a", "b", "b", "b", "c", "c"], &["--duration", LONG]);
    for (run, nodes) in [("regions/a", 3), ("regions/b", 3), ("regions/c", 2), ("masters", 3)] {
        job.wait_for(run, 3 * nodes);
    }
    // Rank 0's clock is the machine's own: the pages of all regions show it, each from a virtual
    // clock that is milliseconds off.
    for rank in [0, 3, 6] {
        let shown = output(probe_sync(&["clock", "--json", text(&job.page(rank))]));
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{}", complaint(&shown)));
        let number = |key: &str| shown[key].as_i64().expect("a number");
        let read_within = 5_000_000;
        assert!(
            number("earliest_ns") - read_within <= number("system_ns") && number("system_ns") <= number("latest_ns"),
            "{shown}"
        );
        assert!(number("latest_ns") - number("earliest_ns") < 2_000_000, "{shown}");
    }
    let ask = |directory: &Path, what: &str| output(probe_sync(&["ctl", "--run-dir", text(directory), what]));
    let refused = ask(&job.out(), "pause");
    assert!(complaint(&refused).contains("regions/NAME"), "{}", complaint(&refused));
    assert!(ask(&job.out().join("regions/b"), "end-round").status.success(), "a region's own socket");
    assert!(ask(&job.out(), "stop").status.success());
    for (rank, child) in regions.into_iter().enumerate() {
        let output = wait(child);
        assert!(output.status.success(), "rank {rank}: {}", complaint(&output));
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(told.contains("8 nodes of 3 regions"), rank == 0, "rank {rank}: {told}");
    }
    let (median, _) = check(&job, 8);
    assert!(median < 2_000.0, "{median}");
    let ranks = ranks(&job);
    assert_eq!(ranks, (0..8).map(|rank| (rank, rank)).collect::<Vec<_>>());
    align_by_rank(&job, &ranks);
}

#[test]
#[ignore = "long: waits for the limits of ranks that were killed"]
fn a_lost_node_and_a_lost_master_end_no_other_region() {
    let job = Job::new();
    let mut ranks =
        job.ranks(&["a", "a", "b", "b", "b", "c", "c", "c"], &["--round-timeout", "2s", "--duration", LONG]);
    for (run, nodes) in [("regions/a", 2), ("regions/b", 3), ("regions/c", 3), ("masters", 3)] {
        job.wait_for(run, 3 * nodes);
    }
    // A node of b, and c's master.
    ranks[3].kill().expect("our own child");
    ranks[5].kill().expect("our own child");
    job.wait_for("regions/a", 12 * 2);
    // Signals reach the ranks that are left, but those of a region that lost its master have to be
    // asked themselves.
    for rank in [0, 6, 7] {
        kill_process(Pid::from_child(&ranks[rank]), Signal::TERM).expect("our own child");
    }
    let outputs: Vec<_> = ranks.into_iter().map(wait).collect();
    let said = complaint(&outputs[0]);
    for (rank, output) in outputs.iter().enumerate().filter(|(rank, _)| ![0, 3, 5].contains(rank)) {
        assert!(output.status.success(), "rank {rank}: {}", complaint(output));
    }
    // The command did what it could, and says what is missing.
    assert_eq!(outputs[0].status.code(), Some(1), "{said}");
    assert!(
        said.contains("region c: its master, rank 5, was lost") && said.contains("probe_sync solve --windows"),
        "{said}"
    );
    let told = String::from_utf8_lossy(&outputs[0].stdout).into_owned();
    assert!(told.contains("of 3 regions"), "{told}");
    let (_, seen) = check(&job, 6);
    // The nodes of a, of b, and c's master as the masters' run knew it.
    let second = 1_000_000_000;
    let end = seen[1].1;
    assert!(seen[2].1 > end - second && seen[4].1 > end - second, "{seen:?}");
    assert!(seen[3].0 > 0 && seen[3].1 < end - second && seen[5].0 > 0 && seen[5].1 < end - second, "{seen:?}");
}

#[test]
#[ignore = "long: waits for the limits of ranks that were killed"]
fn a_region_that_nobody_could_measure_costs_the_others_nothing() {
    let job = Job::new();
    // Windows so long and packets so rare that, on a busy machine too, the kill comes before the few
    // exchanges that would give an offset.
    let long = ["--window", "3s", "--cadence", "100ms", "--round-timeout", "2s", "--duration", "9s"];
    let mut ranks = job.ranks(&["a", "a", "b", "b"], &long);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !job.out().join("regions/b/run.json").is_file() {
        assert!(Instant::now() < deadline, "region b does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
    // In its first window: the rank that is left ends in order, and has nothing to say of anybody.
    ranks[3].kill().expect("our own child");
    let outputs: Vec<_> = ranks.into_iter().map(wait).collect();
    let said = complaint(&outputs[0]);
    assert_eq!(outputs[0].status.code(), Some(1), "{said}");
    assert!(said.contains("region b: "), "{said}");
    // The nodes of a, and b's master as the masters' run knew it.
    check(&job, 3);
}

#[test]
fn a_job_of_which_all_regions_fail_ends_and_says_why() {
    if Path::new("/dev/nvidiactl").exists() {
        println!("skipped: this host has an NVIDIA driver, and the regions would not fail");
        return;
    }
    let job = Job::new();
    let ended = output(job.local("4", "a 0-1\nb 2-3\n", &["--duration", LONG, "--tracer-clock", "cupti"]));
    let said = complaint(&ended);
    assert!(!ended.status.success() && said.contains("the run of region b ended: refused"), "{said}");
}

#[test]
#[ignore = "long: waits for the limits of ranks that were killed"]
fn where_rank_0_is_lost_the_other_regions_end_in_order_and_say_how_to_compose() {
    let job = Job::new();
    let mut ranks = job.ranks(&["a", "b", "b", "c", "c"], &["--round-timeout", "2s", "--duration", LONG]);
    for (run, nodes) in [("regions/b", 2), ("regions/c", 2), ("masters", 3)] {
        job.wait_for(run, 3 * nodes);
    }
    ranks[0].kill().expect("our own child");
    job.wait_for("regions/b", 9 * 2);
    // One region ends: the master in rank 0's place ends the others.
    kill_process(Pid::from_child(&ranks[4]), Signal::TERM).expect("our own child");
    let outputs: Vec<_> = ranks.into_iter().map(wait).collect();
    for (rank, output) in outputs.iter().enumerate().skip(1) {
        assert!(output.status.success(), "rank {rank}: {}", complaint(output));
        let told = complaint(output).contains("rank 0 was lost, so the regions were not put on one timeline");
        assert_eq!(told, rank == 1, "rank {rank}: {}", complaint(output));
    }
    assert!(!job.out().join("offsets.smoothed.jsonl").exists());
    // As it says.
    let windows = (0..3).map(|node| job.out().join(format!("masters/windows/node{node}.jsonl")));
    let masters = job.folder.path().join("masters.jsonl");
    let mut solve = probe_sync(&["solve", "--out", text(&masters), "--windows"]);
    solve.args(windows);
    assert!(output(solve).status.success());
    let mut compose =
        probe_sync(&["compose", "--masters", text(&masters), "--out", text(&job.folder.path().join("offsets.jsonl"))]);
    for (name, node) in [("b", 1), ("c", 2)] {
        compose.arg(format!("--region={name}={}", job.out().join("regions").join(name).display()));
        compose.arg(format!("--master={name}={node}"));
    }
    let composed = output(compose);
    assert!(composed.status.success(), "{}", complaint(&composed));
}

#[test]
fn a_region_that_rank_0_does_not_see_brings_its_files() {
    let job = Job::new();
    let port = free_port().to_string();
    let key = job.folder.path().join("key");
    std::fs::write(&key, [7; 40]).expect("writable");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("our own file");
    let start = |(rank, region): (usize, &str)| {
        let out = if rank == 0 { job.out() } else { job.folder.path().join(format!("host{rank}/out")) };
        let mut command =
            probe_sync(&["run", "--region", region, "--duration", "3s", "--out", text(&out), "--key-file", text(&key)]);
        command.args(SKEWED).env("RANK", rank.to_string()).env("WORLD_SIZE", "3");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts")
    };
    let ranks: Vec<_> = ["a", "b", "b"].into_iter().enumerate().map(start).collect();
    for output in ranks.into_iter().map(wait) {
        assert!(output.status.success(), "{}", complaint(&output));
    }
    check(&job, 3);
    assert!(
        job.out().join("snapshots/node1.snapshot_pairs.pb").exists(),
        "the pairs of b's master, who has brought them"
    );
    align_by_rank(&job, &[(0, 0), (1, 1), (2, 2)]);
}

#[test]
fn what_makes_no_regions_is_refused_on_all_ranks_alike() {
    let check = |regions: &str, more: &[&str], parts: &[&str]| {
        let job = Job::new();
        let output = output(job.local("3", regions, &[&["--duration", "1s"], more].concat()));
        assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
        parts.iter().for_each(|part| assert!(complaint(&output).contains(part), "{part}: {}", complaint(&output)));
        assert!(!job.out().exists(), "nothing was begun");
    };
    check("a 0-2", &[], &["all 3 ranks are in region a", "omit the region"]);
    check("a 0-1\nb 3", &[], &["regions.txt: line 2", "there is no rank 3; the job has 3"]);
    check("a 0-1", &[], &["regions.txt: rank 2 is missing"]);
    check("a 0-1\nb 1-2", &[], &["line 2: rank 1 is already in region a"]);
    check("a 0-1\nb 2", &["--region", "a"], &["region_file are both given"]);
    check("a 0-1\n../b 2", &[], &["not a region name"]);
    for regions in [["a", "b", ""], ["", "b", "b"]] {
        let job = Job::new();
        let outputs: Vec<_> = job.ranks(&regions, &["--duration", "1s"]).into_iter().map(wait).collect();
        assert!(
            outputs.iter().all(|output| output.status.code() == Some(2)),
            "{:?}",
            outputs.iter().map(complaint).collect::<Vec<_>>()
        );
        let said = complaint(&outputs[0]);
        assert!(said.contains("give a region to all ranks") && said.contains("PROBE_SYNC_REGION"), "{said}");
        assert!(!job.out().exists());
    }
}

#[test]
#[cfg_attr(not(feature = "mpi"), ignore = "this binary has no MPI")]
fn regions_under_mpirun_are_one_timeline() {
    let job = Job::new();
    let file = job.regions("a 0-2\nb 3-5\nc 6-7\n");
    let mut command = mpirun();
    command
        .args(["--timeout", "60", "-n", "8", env!("CARGO_BIN_EXE_probe_sync"), "run", "--duration", "4s"])
        .args(SKEWED);
    command.args(["--region-file", text(&file), "--out", text(&job.out())]);
    let (status, said) = output_of(&mut command);
    assert_eq!(status, Some(0), "{said}");
    let (median, _) = check(&job, 8);
    assert!(median < 2_000.0, "{median}");
    align_by_rank(&job, &ranks(&job));
}

const SKEWED: [&str; 6] = ["--window", "1s", "--inject-skew", "7", "--skew-model", "sinusoid"];

/// Jobs of this length are ended as soon as they have what is needed; the limit is for those that a
/// failed test leaves.
const LONG: &str = "300s";
