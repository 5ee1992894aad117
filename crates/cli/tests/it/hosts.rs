//! Runs between hosts: network namespaces with names of their own, one network, no default route.
//! Skipped, with the reason, where namespaces are not permitted. And what a rendezvous on this
//! machine must withstand: signals, ranks without the key.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{complaint, free_port, lines, output, probe_sync, text, wait};

/// Hosts that go when this is dropped.
struct Hosts {
    name: String,
    script: PathBuf,
}

impl Hosts {
    /// `count` hosts with these settings; `None` where this machine does not permit them.
    fn up(name: &str, count: u32, settings: &[(&str, &str)]) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/hosts/hosts.sh");
        let hosts = Self { name: format!("{name}{}", std::process::id()), script };
        let mut command = hosts.script(&["up", &count.to_string()]);
        command.envs(settings.iter().copied());
        let made = output(command);
        match made.status.code() {
            Some(0) => Some(hosts),
            Some(77) => {
                println!("skipped: {}", complaint(&made));
                None
            }
            _ => panic!("{}", complaint(&made)),
        }
    }

    fn script(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.script);
        command.args(arguments).env("HOSTS_NAME", &self.name);
        command
    }

    fn host(&self, rank: usize) -> String {
        format!("{}{}", self.name, rank + 1)
    }

    /// Starts a rank on each of the first `size` hosts; they find each other by the first one's
    /// name, which leads to 127.0.1.1 there.
    fn ranks(&self, size: usize, settings: &[(&str, &str)], arguments: &[&str]) -> Vec<Output> {
        let start = |rank: usize| {
            let program = env!("CARGO_BIN_EXE_probe_sync");
            let mut command = self.script(&[&["enter", &self.host(rank), program], arguments].concat());
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string()).env_remove("PROBE_SYNC_JOB");
            command.env("MASTER_ADDR", self.host(0)).env("MASTER_PORT", "29500").envs(settings.iter().copied());
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash and ip")
        };
        (0..size).map(start).collect::<Vec<Child>>().into_iter().map(wait).collect()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        let down = output(self.script(&["down"]));
        assert!(std::thread::panicking() || down.status.success(), "{}", complaint(&down));
    }
}

/// The addresses in run.json.
fn addresses(out: &Path) -> Vec<String> {
    let run = std::fs::read_to_string(out.join("run.json")).expect("run.json");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    run["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| node["address"].as_str().expect("text").to_owned())
        .collect()
}

/// A run of three hosts without any flag for the network: probes go between addresses that begin
/// so, and the truth is found.
fn check_run(name: &str, made: &[(&str, &str)], settings: &[(&str, &str)], flags: &[&str], begins: &str) {
    let Some(hosts) = Hosts::up(name, 3, made) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let run = ["run", "--duration", "2s", "--window", "1s", "--inject-skew", "7", "--json", "--out", text(&out)];
    let ended = hosts.ranks(3, settings, &[&run[..], flags].concat());
    for (rank, output) in ended.iter().enumerate() {
        assert!(output.status.success(), "{name}, rank {rank}: {}", complaint(output));
    }
    let found = addresses(&out);
    assert!(found.len() == 3 && found.iter().all(|address| address.starts_with(begins)), "{name}: {found:?}");
    let report: Value = serde_json::from_slice(&ended[0].stdout).expect("--json prints JSON");
    assert_eq!(report["truth"]["judged"], 2, "{name}: {report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{name}: {report:#}");
}

#[test]
fn hosts_without_a_default_route_find_the_network_that_they_share() {
    check_run("psa", &[("HOSTS_LOCAL_ADDRESS", "1")], &[], &[], "10.78.");
}

#[test]
fn hosts_with_two_networks_take_the_one_that_nccl_uses() {
    check_run("psb", &[("HOSTS_SECOND", "1")], &[("NCCL_SOCKET_IFNAME", "=eth1")], &[], "10.79.");
}

#[test]
fn hosts_with_ipv6_alone_and_small_packets_are_measured() {
    check_run("psc", &[("HOSTS_FAMILY", "6"), ("HOSTS_MTU", "1300")], &[], &[], "[fd78::");
}

#[test]
fn hosts_on_a_vlan_are_measured() {
    check_run("pse", &[("HOSTS_VLAN", "1"), ("HOSTS_MTU", "600")], &[], &[], "10.78.");
}

#[test]
fn doctor_looks_at_all_hosts() {
    let Some(hosts) = Hosts::up("psd", 3, &[]) else { return };
    let ended = hosts.ranks(3, &[], &["doctor", "--peers", "--json", "--duration", "2s"]);
    let survey: Value = serde_json::from_slice(&ended[0].stdout).expect("--json prints JSON");
    let rows = survey["hosts"].as_array().expect("hosts");
    assert_eq!(rows.len(), 3, "{survey:#}");
    for (rank, row) in rows.iter().enumerate() {
        assert_eq!(row["host"], hosts.host(rank), "{row:#}");
        for side in ["reaches", "reached_by"] {
            assert_eq!(row[side], serde_json::json!({"reached": 2, "of": 2}), "{row:#}");
        }
        assert!(row["delay_ns"].as_f64().is_some_and(|ns| ns > 0.0) && row["time_sync"].is_object(), "{row:#}");
    }
    assert_eq!(survey["directions"].as_array().expect("directions").len(), 6, "{survey:#}");
    assert!(ended[1].stdout.is_empty(), "rank 0 speaks");
}

#[test]
fn doctor_with_peers_of_one_machine_and_without_ranks() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = probe_sync(&["doctor", "--peers", "--local", "2", "--duration", "1s", "--window", "500ms"]);
    // Of a job whose ranks are in regions.
    command.env("PROBE_SYNC_REGION", "a");
    command.env("TMPDIR", folder.path());
    let told = output(command);
    let table = String::from_utf8_lossy(&told.stdout).into_owned();
    for part in ["reaches", "reached by", "lost out", "clock source", "time sync", "1/1"] {
        assert!(table.contains(part), "no {part} in {table}{}", complaint(&told));
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing is left behind");
    for (arguments, part) in [(&["doctor", "--peers"][..], "--local N"), (&["doctor", "--window", "2s"], "--peers")] {
        let refused = output(probe_sync(arguments));
        assert_eq!(refused.status.code(), Some(2), "{}", complaint(&refused));
        assert!(complaint(&refused).contains(part), "{}", complaint(&refused));
    }
}

#[test]
fn the_gate_before_a_job_names_hosts_whose_clocks_are_too_far_apart() {
    let job = [
        "doctor",
        "--peers",
        "--strict",
        "--local",
        "2",
        "--duration",
        "1s",
        "--window",
        "500ms",
        "--inject-skew",
        "7",
    ];
    for (limits, status, part) in [
        (&[][..], 0, "ok       1"),
        (&["--max-offset", "1ms"], 3, "ahead of the reference's"),
        (&["--max-rate", "10ppm"], 3, "ppm relative to the reference"),
    ] {
        let done = output(probe_sync(&[&job[..], limits].concat()));
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(done.status.code(), Some(status), "{limits:?}: {said}{}", complaint(&done));
        assert!(said.contains(part), "{limits:?}: no {part} in {said}");
        assert_eq!(said.lines().count(), 2, "a line per host: {said}");
    }
    assert_eq!(output(probe_sync(&["doctor", "--strict"])).status.code(), Some(2));
}

/// A rank of two over loopback.
fn rank_of_two(rank: u32, port: u16, arguments: &[&str]) -> Command {
    let mut command = probe_sync(&[&["run", "--duration", "1s", "--window", "500ms"], arguments].concat());
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1");
    command.env("MASTER_PORT", port.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns true if the process has a handler for the signal.
fn catches(process: u32, signal: rustix::process::Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    caught & (1 << (signal.as_raw() - 1)) != 0
}

#[test]
fn a_signal_ends_the_rendezvous_at_once() {
    for (rank, signal) in [(0, rustix::process::Signal::INT), (1, rustix::process::Signal::TERM)] {
        let port = free_port();
        let child = rank_of_two(rank, port, &[]).spawn().expect("the command starts");
        let deadline = Instant::now() + Duration::from_secs(120);
        while !catches(child.id(), signal) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).expect("our own child");
        let ended = wait(child);
        assert_eq!(ended.status.code(), Some(1), "rank {rank}: {:?} {}", ended.status, complaint(&ended));
        assert!(complaint(&ended).contains("stop requested"), "rank {rank}: {}", complaint(&ended));
    }
}

#[test]
fn ranks_with_the_key_file_run_and_others_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (key, out) = (folder.path().join("key"), folder.path().join("out"));
    std::fs::write(&key, [7; 32]).expect("writable");
    let mode = |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("our own file");
    mode(0o644);
    let open = output(rank_of_two(1, free_port(), &["--key-file", text(&key)]));
    assert_eq!(open.status.code(), Some(2), "{}", complaint(&open));
    assert!(complaint(&open).contains("mode 0644") && complaint(&open).contains("chmod 600"), "{}", complaint(&open));
    mode(0o600);
    let port = free_port();
    let common = ["--key-file", text(&key), "--json", "--out", text(&out)];
    let root = rank_of_two(0, port, &common).spawn().expect("the command starts");
    let foreign = output(rank_of_two(1, port, &["--out", text(&out)]));
    assert!(complaint(&foreign).contains("another key"), "{}", complaint(&foreign));
    let joined = rank_of_two(1, port, &common).spawn().expect("the command starts");
    for (rank, ended) in [wait(root), wait(joined)].iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}", complaint(ended));
    }
    assert_eq!(lines(&out.join("global_windows.jsonl")).len(), 2);
    // Neither the key nor anything made of it.
    let run = std::fs::read_to_string(out.join("run.json")).expect("run.json");
    assert!(run.contains(text(&key)) && !run.contains("session") && !run.contains("fingerprint"), "{run}");
}

#[test]
fn what_ranks_recognise_each_other_by_is_said_where_it_can_be_guessed() {
    let mut command = probe_sync(&["run", "--duration", "1s"]);
    command.env("RANK", "0").env("WORLD_SIZE", "2").env("MASTER_ADDR", "no.such.name.invalid");
    command.env("MASTER_PORT", free_port().to_string()).env("SLURM_JOB_ID", "77");
    command.env("PROBE_SYNC_RENDEZVOUS_TIMEOUT", "300ms").stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let first = BufReader::new(child.stderr.take().expect("piped")).lines().next();
    let first = first.expect("a line").expect("text");
    assert!(first.contains("SLURM_JOB_ID") && first.contains("guess") && first.contains("--key-file"), "{first}");
    wait(child);
}

#[test]
fn a_master_raises_its_limit_of_open_files_to_what_its_ranks_need() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 16 && exec \"$@\"", "sh"]).arg(env!("CARGO_BIN_EXE_probe_sync"));
    command.args(["run", "--local", "16", "--window", "500ms", "--duration", "2s", "--out"]).arg(&out);
    let ended = output(command);
    assert!(ended.status.success(), "{}", complaint(&ended));
    // Where the hard limit is as low, it says what to do.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 16 && exec \"$@\"", "sh"]).arg(env!("CARGO_BIN_EXE_probe_sync"));
    command.args(["run", "--local", "16", "--duration", "2s", "--out"]).arg(&out);
    let ended = output(command);
    let said = complaint(&ended);
    assert!(!ended.status.success() && said.contains("ulimit -n"), "{said}");
}
