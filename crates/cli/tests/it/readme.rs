//! The guide's way from a job under rocprofv3 to one Perfetto trace and one query, run as it stands
//! there.
//!
//! `mpirun` is a script here: of the measurement it starts two ranks on this machine, whose system
//! clocks differ by injected errors; in place of the job it waits until this test has recorded two
//! processes as rocprofv3 does. `crates/python/tests/test_readme.py` runs Python's blocks.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use probe_sync_rocpd::writer::{
    Agent, Argument, CodeObject, Kernel, KernelSymbol, Process, Region, Settings, ThreadRecorder, Writer,
};
use serde_json::Value;

use crate::support::{complaint, free_port, text, wait, wait_for_lines};

/// The lines of the block in docs/guide/rocprof.md that has rocprofv3 in it.
fn block() -> String {
    let guide = include_str!("../../../../docs/guide/rocprof.md");
    let found = guide.split("```").skip(1).step_by(2).find(|block| block.contains("rocprofv3 --sys-trace"));
    // Behind the fence stands what kind of block it is.
    let lines = found.and_then(|block| block.split_once('\n')).expect("a block").1.trim().to_owned();
    assert_eq!(lines.lines().count(), 4, "four lines: {lines}");
    lines
}

/// Stands in for MPI's launcher.
const MPIRUN: &str = r#"#!/bin/sh
shift 2
if [ "$1" = rocprofv3 ]; then
    : > job-started
    until [ -e job-ended ]; do sleep 0.05; done
    exit 0
fi
trap 'kill $first $second' TERM
RANK=0 WORLD_SIZE=2 "$@" & first=$!
RANK=1 WORLD_SIZE=2 "$@" & second=$!
wait $first
wait $second
wait
"#;

/// The block as a script in this folder, with the settings of a short measurement.
fn started(folder: &Path) -> Child {
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).expect("a folder");
    let mpirun = bin.join("mpirun");
    std::fs::write(&mpirun, MPIRUN).expect("written");
    std::fs::set_permissions(&mpirun, std::fs::Permissions::from_mode(0o755)).expect("set");
    let program = Path::new(env!("CARGO_BIN_EXE_probe_sync")).parent().expect("a folder");
    let path = format!("{}:{}:{}", text(&bin), text(program), std::env::var("PATH").expect("a path"));
    let mut command = Command::new("bash");
    command.arg("-c").arg(format!("set -e\n{}", block())).current_dir(folder).env("PATH", path);
    let port = free_port().to_string();
    for (name, value) in [
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", &port),
        ("PROBE_SYNC_WINDOW", "500ms"),
        ("PROBE_SYNC_FIXED", "true"),
        ("PROBE_SYNC_INJECT_SKEW", "7"),
        ("PROBE_SYNC_SNAPSHOT_PAIR_PERIOD_MS", "100"),
    ] {
        command.env(name, value);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash")
}

/// A process of the job, with what it records.
struct Recorded {
    writer: Writer,
    thread: ThreadRecorder,
    /// One step of it, to be moved to its time.
    collective: Region,
    kernel: Kernel,
}

impl Recorded {
    fn new(rank: u32, folder: &Path) -> Self {
        let output = folder.join(format!("traces/host{rank}/{rank}_results.db"));
        let mut process = Process::current();
        process.guid = format!("0000000{rank}-0000-7000-8000-000000000000");
        process.environment = [("RANK", rank.to_string()), ("WORLD_SIZE", "2".to_owned())]
            .map(|(name, value)| (name.to_owned(), value))
            .into();
        let writer = Writer::open(Settings { output, ..Settings::default() }, process).expect("a new file");
        let (thread, agent) = (writer.thread(1, Some("main")), writer.agent(Agent::default()));
        let code_object = writer.code_object(CodeObject { agent, uri: "memory://1".to_owned() });
        let symbol = writer.kernel_symbol(KernelSymbol {
            kernel_name: "gemm.kd".to_owned(),
            display_name: "gemm".to_owned(),
            code_object,
        });
        let argument = |name: &'static str, value: &str| Argument {
            kind: "int".into(),
            name: name.into(),
            value: value.to_owned(),
        };
        let category = writer.intern("RCCL_API");
        let collective = Region {
            name: writer.intern("ncclAllReduce"),
            category,
            arguments: Box::new([argument("count", "64"), argument("datatype", "7"), argument("comm", "0x55d0")]),
            ..Region::default()
        };
        // The communicator of all, made before the first step.
        let (now, own) = (boot_ns(), rank.to_string());
        assert!(thread.region(Region {
            start_ns: now,
            end_ns: now + COLLECTIVE_NS,
            name: writer.intern("ncclCommInitRank"),
            category,
            arguments: Box::new([argument("comm", "0x55d0"), argument("nranks", "2"), argument("myrank", &own)]),
            ..Region::default()
        }));
        let (queue, stream) = (writer.queue("Queue 0"), writer.stream("Stream 0"));
        let kernel = Kernel { category, region: collective.name, queue, stream, ..Kernel::new(symbol, agent) };
        Self { writer, thread, collective, kernel }
    }

    /// All-reduce and kernel of a step.
    fn step(&self, start_ns: i64) {
        assert!(self.thread.region(Region { start_ns, end_ns: start_ns + COLLECTIVE_NS, ..self.collective.clone() }));
        assert!(self.thread.kernel(Kernel { start_ns, end_ns: start_ns + KERNEL_NS, ..self.kernel.clone() }));
    }

    fn finish(self) {
        drop(self.thread);
        assert_eq!(self.writer.finish().expect("written").dropped, 0);
    }
}

/// CLOCK_BOOTTIME, as rocprofv3 reads it.
fn boot_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// What both processes of the job do at the same moments, on CLOCK_BOOTTIME.
fn record(folder: &Path) {
    let processes = [0, 1].map(|rank| Recorded::new(rank, folder));
    for _ in 0..STEPS {
        std::thread::sleep(Duration::from_millis(10));
        let start_ns = boot_ns();
        processes.iter().for_each(|process| process.step(start_ns));
    }
    processes.into_iter().for_each(Recorded::finish);
}

#[test]
fn four_lines_lead_from_a_job_under_rocprofv3_to_one_perfetto_trace_and_one_query() {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let folder = scratch.path();
    let mut child = started(folder);
    let (started, offsets): (PathBuf, PathBuf) = (folder.join("job-started"), folder.join("run/offsets.jsonl"));
    let deadline = Instant::now() + Duration::from_secs(90);
    while !started.exists() || !offsets.exists() {
        let ended = child.try_wait().expect("our own child").is_some();
        if ended || Instant::now() > deadline {
            panic!("the measurement did not begin: {}", complaint(&wait(child)));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    // The clocks must be known before the job's first event and after its last: a line for each of
    // two nodes a round, and what the nodes are.
    wait_for_lines(&offsets, 1 + 2 * 2);
    record(folder);
    let known = std::fs::read_to_string(&offsets).expect("offsets").lines().count();
    wait_for_lines(&offsets, known + 2 * 3);
    std::fs::write(folder.join("job-ended"), "").expect("written");
    let done = wait(child);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{said}\n{}", complaint(&done));

    assert!(said.contains("holds"), "--validate: {said}");
    let trace = std::fs::metadata(folder.join("job.pftrace")).expect("one trace");
    assert!(trace.len() > 50 * STEPS as u64, "{} bytes", trace.len());
    let statistics = std::fs::read(folder.join("job.pftrace.alignment_stats.json")).expect("its statistics");
    let statistics: Value = serde_json::from_slice(&statistics).expect("JSON");
    for (rank, of) in statistics["traces"].as_array().expect("traces").iter().enumerate() {
        assert_eq!(of["node"], rank, "{of}");
        assert!(of["events"].as_u64().expect("a number") >= 2 * STEPS as u64, "{of}");
    }
    let sum = (STEPS as i64 * KERNEL_NS).to_string();
    let words: Vec<&str> = said.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).collect();
    for rank in ["0", "1"] {
        assert!(words.windows(3).any(|row| row == [rank, "gemm", &sum]), "rank {rank} has {sum} ns of gemm: {said}");
    }
}

/// Moments at which both processes do something.
const STEPS: usize = 150;
/// Longer than clocks on a busy machine are wrong by.
const COLLECTIVE_NS: i64 = 500_000;
const KERNEL_NS: i64 = 7_000;
