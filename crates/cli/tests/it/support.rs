//! Starts the command and reads what it wrote.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use probe_sync_record::{Policy, Reach, Recorder, scope};
use serde_json::Value;

/// The command, free of what this test's own environment says about ranks.
pub fn probe_sync(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe_sync"));
    for (name, _) in std::env::vars() {
        let prefixes = ["PROBE_SYNC_", "OMPI_", "PMI", "XLA_", "SLURM_", "FLUX_", "JSM_"];
        let ours = prefixes.iter().any(|prefix| name.starts_with(prefix));
        if ours || ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"].contains(&name.as_str())
        {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// `mpirun`, which root may use, too, with more ranks than there are cores.
pub fn mpirun() -> Command {
    let mut command = Command::new("mpirun");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

/// Runs to the end, bounded.
pub fn output(mut command: Command) -> Output {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    wait(child)
}

/// Waits for a started process, bounded; one that does not end is killed and fails the test.
pub fn wait(mut child: Child) -> Output {
    let collect = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = pipe {
                pipe.read_to_end(&mut text).expect("a pipe can be read");
            }
            text
        })
    };
    let stdout = collect(child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let stderr = collect(child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().expect("our own child") {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().expect("our own child");
                panic!("did not end within {LIMIT:?}");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    Output { status, stdout: stdout.join().expect("a reader"), stderr: stderr.join().expect("a reader") }
}

/// Standard error as text.
pub fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The JSON report of a run that must succeed.
pub fn report(arguments: &[&str]) -> Value {
    let output = output(probe_sync(arguments));
    assert!(output.status.success(), "{}", complaint(&output));
    serde_json::from_slice(&output.stdout).expect("--json prints JSON")
}

/// The objects of a JSON-lines file.
pub fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("whole lines")).collect()
}

/// A TCP port that was free a moment ago, below those that the system gives to outgoing
/// connections: of these any could take it meanwhile.
pub fn free_port() -> u16 {
    let mut drawn =
        (0..PORTS.len()).map(|_| PORTS.start + (RandomState::new().hash_one(()) % PORTS.len() as u64) as u16);
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    drawn.find(free).expect("a free port on loopback")
}

/// Linux gives out 32768 and up.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// Kineto traces of ranks 0 and 1 in the first 90 ms: an all-reduce of 10 µs each, begun at
/// `starts_us`; without, no collective.
pub fn collective_traces(folder: &Path, starts_us: Option<[u32; 2]>) -> [PathBuf; 2] {
    [0, 1].map(|rank: u32| {
        let args = r#""Collective name": "allreduce", "Process Group Name": "0", "Seq": 7, "Process Group Ranks": "[0, 1]""#;
        let event = match starts_us {
            Some(starts_us) => format!(
                r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "pid": 0, "tid": 7, "ts": {}, "dur": 10, "args": {{{args}}}}}"#,
                starts_us[rank as usize]
            ),
            None => r#"{"ph": "X", "name": "step", "pid": 0, "tid": 7, "ts": 10, "dur": 10}"#.to_owned(),
        };
        let path = folder.join(format!("rank{rank}.json"));
        let document = format!(
            r#"{{"baseTimeNanoseconds": 0, "distributedInfo": {{"rank": {rank}, "world_size": 2}}, "traceEvents": [{event}]}}"#
        );
        std::fs::write(&path, document).expect("writable");
        path
    })
}

/// Clocks of two nodes that are right, for traces of the first 90 ms.
pub fn right_clocks(folder: &Path) -> PathBuf {
    let path = folder.join("clocks.csv");
    let lines = "node,node_realtime_ns,offset_vs_node0_ns,sigma_ns\n0,0,0,1\n0,90000000,0,1\n1,0,0,1\n1,90000000,0,1\n";
    std::fs::write(&path, lines).expect("writable");
    path
}

/// A file of four packets between two nodes.
pub fn few_packets(folder: &Path) -> PathBuf {
    let path = folder.join("packets.csv");
    let lines =
        "src,dst,send_ns,recv_ns\n0,1,1000000,1001200\n1,0,1002000,1001200\n0,1,1050000,1051200\n1,0,1052000,1051200\n";
    std::fs::write(&path, lines).expect("writable");
    path
}

/// A finished recording of rank 0 with one scope, by the thread that asks.
pub fn short_recording(folder: &Path) -> PathBuf {
    let path = folder.join("rank0.rec");
    let builder = Recorder::builder().reach(Reach::Thread).policy(Policy::DropNewest { bytes: 1 << 20 }).rank(0);
    let session = builder.spill(&path).start().expect("this thread records nothing else");
    drop(scope!("step", step = 1));
    session.finish().expect("whole");
    path
}

/// Waits until a file holds at least `count` lines.
pub fn wait_for_lines(path: &Path, count: usize) {
    let deadline = Instant::now() + LIMIT;
    while std::fs::read_to_string(path).map_or(0, |text| text.lines().count()) < count {
        assert!(Instant::now() < deadline, "{} did not grow to {count} lines", path.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Far longer than any run of these tests takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);
