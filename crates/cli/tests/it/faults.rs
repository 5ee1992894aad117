//! Bad input and lost ranks: what is said, and what stays on disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use serde_json::Value;

use crate::support::{complaint, free_port, lines, output, probe_sync, text, wait, wait_for_lines};

/// One rank of a run over TCP on loopback, by its environment.
pub fn rank(port: u16, rank: usize, size: usize, arguments: &[&str]) -> Command {
    let mut command = probe_sync(arguments);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Ranks that meet on this machine and record in `out`, with these settings besides; and what
/// starts a rank of theirs again.
pub fn started(out: &Path, size: usize, settings: &[&str]) -> (impl Fn(usize) -> Child + use<>, Vec<Child>) {
    let port = free_port();
    let arguments: Vec<String> = settings.iter().chain(&["--out", text(out)]).map(|&word| word.to_owned()).collect();
    let start = move |r: usize| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        rank(port, r, size, &arguments).spawn().expect("starts")
    };
    let ranks = (0..size).map(&start).collect();
    (start, ranks)
}

/// Sends a signal to a process of this test.
pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("our own child");
}

#[test]
fn ranks_with_different_configuration_are_refused_by_key() {
    let port = free_port();
    let spawn = |r: usize, window: &str| {
        rank(port, r, 2, &["--duration", "2s", "--window", window, "--out", "never_made"]).spawn().expect("starts")
    };
    let (zero, one) = (spawn(0, "1s"), spawn(1, "2s"));
    let (zero, one) = (wait(zero), wait(one));
    assert_eq!((zero.status.code(), one.status.code()), (Some(2), Some(2)));
    let said = complaint(&zero);
    assert!(said.contains("window is \"2s\" on rank 1") && said.contains("\"1s\" on rank 0"), "{said}");
    assert!(!Path::new("never_made").exists());
}

#[test]
fn a_rank_with_an_unusable_configuration_ends_all_with_its_error() {
    let port = free_port();
    let spawn = |r: usize, window: &str| {
        rank(port, r, 2, &["--window", window, "--out", "never_made"]).spawn().expect("starts")
    };
    let (zero, one) = (spawn(0, "1s"), spawn(1, "soon"));
    let (zero, one) = (wait(zero), wait(one));
    assert_eq!((zero.status.code(), one.status.code()), (Some(2), Some(2)));
    assert!(complaint(&zero).contains("rank 1: --window: window: \"soon\""), "{}", complaint(&zero));
}

#[test]
fn taken_ports_are_named() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let port = taken.local_addr().expect("bound").port().to_string();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let out = out.to_str().expect("UTF-8");
    let udp = output(probe_sync(&["run", "--local", "2", "--duration", "1s", "--port", &port, "--out", out]));
    assert_eq!(udp.status.code(), Some(2));
    assert!(complaint(&udp).contains(&format!("127.0.0.1:{port}")), "{}", complaint(&udp));

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
    let port = taken.local_addr().expect("bound").port();
    let tcp = output(rank(port, 0, 2, &["--duration", "1s", "--out", out]));
    assert_eq!(tcp.status.code(), Some(1));
    assert!(complaint(&tcp).contains(&format!("127.0.0.1:{port}")), "{}", complaint(&tcp));
}

#[test]
fn a_rank_zero_that_never_comes_is_named() {
    let mut command = rank(free_port(), 1, 2, &["--duration", "1s"]);
    command.env("PROBE_SYNC_RENDEZVOUS_TIMEOUT", "500ms");
    let output = output(command);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint(&output).contains("rank 1") && complaint(&output).contains("127.0.0.1"),
        "{}",
        complaint(&output)
    );
}

/// A unit test of the command covers the message where the binary has MPI.
#[cfg(not(feature = "mpi"))]
#[test]
fn mpirun_with_a_binary_without_mpi_says_how_to_rebuild() {
    let mut command = probe_sync(&["--duration", "1s"]);
    command.env("OMPI_COMM_WORLD_SIZE", "2").env("OMPI_COMM_WORLD_RANK", "0");
    let output = output(command);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("--features mpi"), "{}", complaint(&output));
}

/// srun without PMIx: no rank runs alone with exit status 0, one says what to do, and a step of one
/// task is a run of one rank.
#[test]
fn processes_of_srun_that_find_themselves_alone_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let run = |variables: &[(&str, &str)]| {
        let mut command = probe_sync(&["run", "--duration", "1s", "--out", out.to_str().expect("UTF-8")]);
        command.envs(variables.iter().copied());
        output(command)
    };
    let step = [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_NTASKS", "4")];
    let without_pmi = run(&[step[0], step[1], ("SLURM_PROCID", "0")]);
    assert_eq!(without_pmi.status.code(), Some(2));
    let said = complaint(&without_pmi);
    assert!(said.contains("srun started 4") && said.contains("--mpi=pmix") && said.contains("RANK"), "{said}");
    let other = run(&[step[0], step[1], ("SLURM_PROCID", "3")]);
    assert_eq!((other.status.code(), complaint(&other).as_str()), (Some(2), ""));
    if cfg!(feature = "mpi") {
        let with_pmi = run(&[step[0], step[1], ("PMI_SIZE", "4"), ("PMI_RANK", "0")]);
        assert_eq!(with_pmi.status.code(), Some(2), "{}", complaint(&with_pmi));
        assert!(complaint(&with_pmi).contains("MPI sees each of them as a separate job"), "{}", complaint(&with_pmi));
        assert!(!out.exists(), "nothing was begun");
        let one = run(&[("SLURM_STEP_NUM_TASKS", "1"), ("PMI_SIZE", "1"), ("PMI_RANK", "0")]);
        assert_eq!(one.status.code(), Some(0), "{}", complaint(&one));
    }
}

#[test]
fn no_launcher_says_how_to_start() {
    let output = output(probe_sync(&["--duration", "1s"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("mpirun -n N probe_sync"), "{}", complaint(&output));
}

#[test]
fn a_stepped_clock_is_flagged_in_its_window() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let report = crate::support::report(&[
        "run",
        "--local",
        "3",
        "--duration",
        "4s",
        "--window",
        "1s",
        "--inject-skew",
        "5",
        "--inject-step",
        "2@2500ms:1ms",
        "--json",
        "--out",
        out.to_str().expect("UTF-8"),
    ]);
    let events = report["clock_events"].as_array().expect("events");
    assert_eq!(events.len(), 1, "{report:#}");
    assert_eq!((&events[0][0], &events[0][1]), (&2.into(), &2.into()), "round 2, node 2: {events:?}");
    let step = events[0][2]["step_ns"].as_f64().expect("a number");
    assert!((step - 1e6).abs() < 2e4, "{step}");
    // The other node's bounds hold in every round, and the stepped one's in the rounds that are not
    // flagged.
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert_eq!(report["truth"]["not_judged"], 1, "{report:#}");
}

#[test]
fn a_stepped_clock_is_named_with_its_size_and_nobody_else_is() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let out_text = out.to_str().expect("UTF-8");
    let step = ["--inject-skew", "5", "--inject-step", "2@4500ms:10ms"];
    let mut arguments = vec!["run", "--local", "4", "--duration", "8s", "--window", "1s", "--out", out_text];
    arguments.extend(step);
    let output = output(probe_sync(&arguments));
    assert!(output.status.success(), "{}", complaint(&output));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("round 4: node 2 stepped by 10.000 ms"), "{table}");
    let rounds = lines(&out.join("global_windows.jsonl"));
    let steps: Vec<&Value> = rounds
        .iter()
        .flat_map(|round| round["watch"]["faults"].as_array().expect("a list"))
        .filter(|fault| fault["kind"] == "step")
        .collect();
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert_eq!((&steps[0]["culprit"]["node"], &steps[0]["began"]), (&2.into(), &4.into()), "{steps:?}");
    assert!((steps[0]["size"].as_f64().expect("ns") - 1e7).abs() < 5e3, "{steps:?}");
    assert_eq!(rounds[4]["watch"]["invalid"], serde_json::json!([2]));
    let metrics = std::fs::read_to_string(out.join("metrics.prom")).expect("written");
    assert!(metrics.contains("probe_sync_faults_total{kind=\"step\"} 1"), "{metrics}");
}

#[test]
fn a_terminated_run_flushes_and_ends_well() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let mut command = probe_sync(&["run", "--local", "3", "--window", "500ms", "--out", out.to_str().expect("UTF-8")]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    wait_for_lines(&out.join("offsets.jsonl"), 1 + 2 * 3);
    signal(&child, Signal::TERM);
    let ended = wait(child);
    assert!(ended.status.success(), "{}", complaint(&ended));
    let rounds = lines(&out.join("global_windows.jsonl")).len();
    assert!(rounds >= 2);
    assert_eq!(lines(&out.join("offsets.jsonl")).len(), 1 + rounds * 3);
    assert!(String::from_utf8_lossy(&ended.stdout).contains("reference"));
}

#[test]
fn a_signal_to_one_rank_alone_ends_the_run_well_with_the_default_window() {
    for signalled in 0..2 {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let out = directory.path().join("out");
        let port = free_port();
        let arguments = ["--out", out.to_str().expect("UTF-8")];
        let ranks: Vec<Child> = (0..3).map(|r| rank(port, r, 3, &arguments).spawn().expect("starts")).collect();
        wait_for_lines(&out.join("offsets.jsonl"), 1);
        signal(&ranks[signalled], Signal::TERM);
        for rank in ranks {
            let ended = wait(rank);
            assert!(ended.status.success(), "rank {signalled} was signalled: {}", complaint(&ended));
        }
    }
}

#[test]
fn a_closed_standard_error_and_odd_variables_do_not_end_a_run() {
    use std::os::unix::ffi::OsStrExt;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let mut command = probe_sync(&[
        "run",
        "--local",
        "2",
        "--duration",
        "1s",
        "--window",
        "250ms",
        "--out",
        out.to_str().expect("UTF-8"),
    ]);
    command.env("NOT_TEXT", std::ffi::OsStr::from_bytes(b"\xff"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    drop(child.stderr.take());
    let ended = wait(child);
    assert!(ended.status.success());
    assert!(String::from_utf8_lossy(&ended.stdout).contains("reference"));
}

#[test]
fn somebody_elses_directory_is_refused_and_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(directory.path().join("thesis.txt"), "x").expect("writable");
    let output = output(probe_sync(&["run", "--local", "2", "--out", directory.path().to_str().expect("UTF-8")]));
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("does not contain a probe_sync run"), "{}", complaint(&output));
    assert!(directory.path().join("thesis.txt").exists());
}

#[test]
fn a_launchers_variables_do_not_disturb_other_commands() {
    for arguments in [&["--help"][..], &["doctor", "--json"]] {
        let mut command = probe_sync(arguments);
        command.env("RANK", "1").env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", "1");
        let output = output(command);
        assert!(output.status.success() || arguments[0] == "doctor", "{}", complaint(&output));
        assert!(!complaint(&output).contains("rank 0"), "{}", complaint(&output));
    }
}

/// The report that a run has left.
pub fn written_report(out: &Path) -> Value {
    let text = std::fs::read_to_string(out.join("report.json")).expect("a report");
    serde_json::from_str(&text).expect("JSON")
}

/// Waits until `round` has been solved.
pub fn wait_for_round(out: &Path, round: usize) {
    wait_for_lines(&out.join("global_windows.jsonl"), round + 1);
}

/// The latest round in the files.
fn latest_round(out: &Path) -> usize {
    lines(&out.join("global_windows.jsonl")).len() - 1
}

#[test]
fn a_killed_rank_is_named_the_others_go_on_and_its_successor_takes_its_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let (start, mut ranks) = started(&out, 4, &["--window", "500ms", "--fixed", "--inject-skew", "3"]);
    wait_for_round(&out, 2);
    signal(&ranks[2], Signal::KILL);
    wait(ranks.remove(2));
    wait_for_round(&out, latest_round(&out) + 3);
    ranks.push(start(2));
    let metrics = || std::fs::read_to_string(out.join("metrics.prom")).unwrap_or_default();
    assert!(metrics().contains("probe_sync_ranks_away 1"), "{}", metrics());
    let deadline = Instant::now() + Duration::from_secs(60);
    while !metrics().contains("probe_sync_ranks_away 0") {
        assert!(Instant::now() < deadline, "it does not come back: {}", metrics());
        std::thread::sleep(Duration::from_millis(50));
    }
    wait_for_round(&out, latest_round(&out) + 4);
    signal(&ranks[0], Signal::TERM);
    let ended: Vec<_> = ranks.into_iter().map(wait).collect();
    for ended in &ended {
        assert!(ended.status.success(), "{}", complaint(ended));
    }
    let said = complaint(&ended[0]);
    assert!(said.contains("lost rank 2 on") && said.contains("rank 2 is back"), "{said}");
    assert!(String::from_utf8_lossy(&ended[0].stdout).contains("was absent from round"), "in the table");

    let report = written_report(&out);
    let absences = report["absences"].as_array().expect("a list");
    assert_eq!(absences.len(), 1, "{absences:?}");
    let back = absences[0]["back"].as_u64().expect("it came back");
    assert_eq!((&absences[0]["rank"], &absences[0]["node_id"]), (&2.into(), &2.into()), "{absences:?}");
    assert!(report["unreachable_peers"].as_array().is_some_and(Vec::is_empty), "{report:#}");
    let of_it = |end: &str| report["packets"].as_array().expect("a list").iter().any(|way| way[end] == 2);
    assert!(!of_it("src") && !of_it("dst"), "counts of a part of the run compare with none of the whole");
    // Its packets are of the new life: within two windows it has an offset again, and every offset
    // is inside its bounds.
    let offsets = lines(&out.join("offsets.jsonl"));
    let reachable = |round: u64| {
        let mut of_round = offsets.iter().filter(|line| line["node_id"] == 2 && line["round_id"] == round);
        of_round.next().is_some_and(|line| line["reachable"] == true)
    };
    assert!(!reachable(back) && (reachable(back + 1) || reachable(back + 2)), "back in round {back}");
    assert!(report["nodes"][2]["reachable"] == true && report["nodes"][2]["bounds_held"] == true, "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    // Its files hold both lives, in whole lines.
    let rounds: Vec<u64> = lines(&out.join("windows/node2.jsonl"))
        .iter()
        .map(|line| line["round_id"].as_u64().expect("a number"))
        .collect();
    let latest = lines(&out.join("windows/node2.jsonl")).pop().expect("windows");
    assert!(
        latest["edges"].as_array().is_some_and(|edges| !edges.is_empty()),
        "its own exchanges are answered: {latest}"
    );
    let gap = rounds.windows(2).find(|pair| pair[1] != pair[0] + 1).expect("it was away");
    assert_eq!(gap[1], back + 1, "{rounds:?}");
    let pairs = lines(&out.join("snapshots/node2.snapshot_pairs.jsonl"));
    let times: Vec<i64> = pairs.iter().map(|pair| pair["tracer_clock_ns"].as_i64().expect("a number")).collect();
    assert!(times.is_sorted() && times.windows(2).any(|pair| pair[1] - pair[0] > 500_000_000), "both lives");
}

/// Ranks 0, 1 and 3 of four, whose reference, node 2, was killed after some rounds; and what starts
/// a rank of theirs.
fn four_ranks_that_lose_their_reference(out: &Path) -> (impl Fn(usize) -> Child, Vec<Child>) {
    let settings = ["--window", "500ms", "--fixed", "--inject-skew", "3", "--reference", "2"];
    let (start, mut ranks) = started(out, 4, &settings);
    wait_for_round(out, 6);
    signal(&ranks[2], Signal::KILL);
    wait(ranks.remove(2));
    (start, ranks)
}

/// What `solve` makes of the windows that four ranks have recorded, and says of it.
pub fn solved_again(out: &Path, knots: &str, reference: &str) -> (PathBuf, String) {
    let solved = out.join("again.jsonl");
    let mut command = probe_sync(&["solve", "--knots", knots, "--reference", reference, "--windows"]);
    command.args((0..4).map(|node| out.join(format!("windows/node{node}.jsonl")))).arg("--out").arg(&solved);
    let done = output(command);
    assert!(done.status.success(), "{}", complaint(&done));
    (solved, String::from_utf8_lossy(&done.stdout).into_owned() + &complaint(&done))
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn a_lost_references_timeline_is_carried_by_another_clock_and_the_bounds_hold() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let (_, ranks) = four_ranks_that_lose_their_reference(&out);
    wait_for_round(&out, latest_round(&out) + 8);
    signal(&ranks[0], Signal::TERM);
    let ended: Vec<_> = ranks.into_iter().map(wait).collect();
    ended.iter().for_each(|ended| assert!(ended.status.success(), "{}", complaint(ended)));
    let said = complaint(&ended[0]);
    assert!(said.contains("node 2, whose clock") && said.contains("maintains it"), "{said}");
    assert!(String::from_utf8_lossy(&ended[0].stdout).contains("maintained its timeline"), "in the table");

    let report = written_report(&out);
    assert_eq!(report["reference"], 2, "offsets stay on its timeline");
    let carrier = &report["carriers"][0];
    let (by, since) = (carrier["node"].as_u64().expect("a node"), carrier["since"].as_u64().expect("a round"));
    assert!(by != 2 && carrier["half_width_95_ns"].as_f64().is_some_and(|ns| ns > 0.0), "{carrier}");
    // Against the true clock of the node that is gone: virtual clocks know it still.
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    let offsets = lines(&out.join("offsets.jsonl"));
    let carried = offsets.iter().filter(|line| line["round_id"].as_u64().is_some_and(|round| round >= since));
    let mut judged = 0;
    for line in carried.filter(|line| line["reachable"] == true) {
        let (offset, sigma) = (line["offset_ns"].as_f64().expect("ns"), line["sigma_ns"].as_f64().expect("ns"));
        assert!(sigma > 0.0 && offset.is_finite() && line["bound_lo_ns"].is_null(), "{line}");
        judged += 1;
    }
    assert!(judged >= 15, "{judged} lines");
    // Of all rounds, on a machine that other tests load; hard bounds are those that must hold.
    assert!(report["truth"]["coverage_95"].as_f64().is_some_and(|share| share >= 0.6), "{report:#}");
    check_solved_again(&out, since);
}

/// The recorded windows, solved again, know the rounds without the reference, and agree with what
/// the run said of them.
fn check_solved_again(out: &Path, since: u64) {
    let (solved, table) = solved_again(out, "rounds", "2");
    assert!(table.contains("more rounds without the reference"), "{table}");
    let known = |path: &Path| -> std::collections::BTreeMap<(u64, u64), ([f64; 3], [i64; 2])> {
        let lines = lines(path).into_iter().filter(|line| line["reachable"] == true);
        let value = |line: &Value, key: &str| line[key].as_f64().expect("a number");
        let key =
            |line: &Value| (line["round_id"].as_u64().expect("a round"), line["node_id"].as_u64().expect("a node"));
        let values = |line: &Value| ["offset_ns", "sigma_ns", "drift_ppm"].map(|key| value(line, key));
        let window = |line: &Value| ["window_start_ns", "window_end_ns"].map(|key| line[key].as_i64().expect("a time"));
        lines.map(|line| (key(&line), (values(&line), window(&line)))).collect()
    };
    let (live, again) = (known(&out.join("offsets.jsonl")), known(&solved));
    let mut compared = 0;
    for (key, ([offset, sigma, drift], window)) in live.iter().filter(|((round, node), _)| *round > since && *node != 2)
    {
        let Some(([other, other_sigma, _], other_window)) = again.get(key) else { continue };
        // The last window was cut by the end: each offset holds in the middle of its own.
        let middle = |window: &[i64; 2]| window[0] as f64 / 2.0 + window[1] as f64 / 2.0;
        let moved = offset + drift * 1e-6 * (middle(other_window) - middle(window));
        assert!((moved - other).abs() <= 4.0 * (sigma + other_sigma), "{key:?}: {moved} and {other} ns");
        compared += 1;
    }
    assert!(compared >= 9, "{compared} estimates of rounds that were carried");
}

/// How far from its line, ns, `align` puts events of a trace of `node`: one in the middle of each
/// window, on its own clock, of these lines' times and offsets.
pub fn aligned_off_ns(out: &Path, node: &str, middles: &[(i64, f64)]) -> Vec<f64> {
    let own = |(at, offset): &(i64, f64)| (at + *offset as i64) as f64 / 1e3;
    let event = |line| serde_json::json!({"ph": "X", "pid": 1, "tid": 1, "name": "step", "ts": own(line), "dur": 1.0});
    let trace = serde_json::json!({"traceEvents": middles.iter().map(event).collect::<Vec<_>>()});
    let [raw, aligned] = ["raw.json", "aligned.json"].map(|name| out.with_file_name(name));
    std::fs::write(&raw, trace.to_string()).expect("writable");
    let align = ["align", "--node", node, "--run-dir", text(out), "--trace", text(&raw), "--output", text(&aligned)];
    let done = output(probe_sync(&align));
    assert!(done.status.success(), "{}", complaint(&done));
    let written: Value = serde_json::from_slice(&std::fs::read(&aligned).expect("written")).expect("JSON");
    let events = written["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "X");
    let base = written["baseTimeNanoseconds"].as_i64().unwrap_or(0);
    let times: Vec<f64> = events.map(|event| event["ts"].as_f64().expect("µs") * 1e3).collect();
    assert_eq!(times.len(), middles.len());
    middles.iter().zip(times).map(|((middle, _), time)| (time - (middle - base) as f64).abs()).collect()
}

/// A virtual clock goes on in the process that comes back, so the true map of the reference's own
/// trace is the identity all the time.
#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn a_trace_of_a_reference_that_came_back_is_aligned_by_its_offsets() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let (start, mut ranks) = four_ranks_that_lose_their_reference(&out);
    wait_for_round(&out, latest_round(&out) + 6);
    ranks.push(start(2));
    let moving = |line: &Value| line["node_id"] == 2 && line["reachable"] == true && line["offset_ns"] != 0.0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while lines(&out.join("offsets.jsonl")).iter().filter(|line| moving(line)).count() < 6 {
        assert!(Instant::now() < deadline, "it does not come back");
        std::thread::sleep(Duration::from_millis(100));
    }
    signal(&ranks[0], Signal::TERM);
    ranks.into_iter().map(wait).for_each(|ended| assert!(ended.status.success(), "{}", complaint(&ended)));

    let middles: Vec<(i64, f64, f64)> = lines(&out.join("offsets.jsonl"))
        .iter()
        .filter(|line| line["node_id"] == 2 && line["reachable"] == true)
        .map(|line| {
            let ns = |key: &str| line[key].as_i64().expect("ns");
            let number = |key: &str| line[key].as_f64().expect("a number");
            (ns("window_start_ns").midpoint(ns("window_end_ns")), number("offset_ns"), number("sigma_ns"))
        })
        .collect();
    let lines: Vec<(i64, f64)> = middles.iter().map(|(at, offset, _)| (*at, *offset)).collect();
    let mut moved = 0;
    for (line, off) in middles.iter().zip(aligned_off_ns(&out, "2", &lines)) {
        // A double of Unix microseconds has steps of 250 ns.
        assert!(off < 600.0 + 4.0 * line.2, "{line:?}: {off} ns from where its line says");
        moved += usize::from(line.1 != 0.0);
    }
    assert!(moved >= 6, "{middles:?}");
    check_solved_in_order(&out);
}

/// The smoother knows better than a carried timeline what was between two rounds with the
/// reference: one line for a time, one after the other.
fn check_solved_in_order(out: &Path) {
    let (solved, table) = solved_again(out, "500ms", "2");
    assert!(!table.contains("more rounds without the reference"), "{table}");
    for node in 0..4 {
        let lines: Vec<Value> = lines(&solved).into_iter().filter(|line| line["node_id"] == node).collect();
        let middle = |line: &Value| {
            let ns = |key: &str| line[key].as_i64().expect("ns");
            ns("window_start_ns").midpoint(ns("window_end_ns"))
        };
        let middles: Vec<i64> = lines.iter().map(middle).collect();
        assert!(middles.len() > 12 && middles.is_sorted_by(|one, next| one < next), "node {node}: {middles:?}");
    }
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn ranks_that_come_back_together_find_each_other_and_one_may_come_back_twice() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let (start, mut ranks) = started(&out, 3, &["--window", "500ms", "--fixed"]);
    let absences = || {
        let metrics = std::fs::read_to_string(out.join("metrics.prom")).unwrap_or_default();
        let line = metrics.lines().find_map(|line| line.strip_prefix("probe_sync_ranks_away ").map(str::to_owned));
        line.and_then(|count| count.parse::<f64>().ok()).unwrap_or(-1.0)
    };
    let wait_for_absences = |count: f64| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while absences() != count {
            assert!(Instant::now() < deadline, "{} instead of {count} are away", absences());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for_round(&out, 1);
    for lost in [&[1, 2][..], &[2]] {
        for rank in lost {
            signal(&ranks[*rank], Signal::KILL);
            wait(std::mem::replace(&mut ranks[*rank], start(*rank)));
        }
        // In whichever round each of them is back.
        let before = latest_round(&out);
        wait_for_round(&out, before + 4);
        wait_for_absences(0.0);
    }
    wait_for_round(&out, latest_round(&out) + 3);
    let between = || {
        let of = |node: u32| lines(&out.join(format!("windows/node{node}.jsonl"))).pop().expect("windows");
        let edges: Vec<Value> =
            [1, 2].iter().flat_map(|node| of(*node)["edges"].as_array().cloned().unwrap_or_default()).collect();
        edges.iter().any(|edge| [&edge["src"], &edge["dst"]].iter().all(|end| **end != 0))
    };
    assert!(between(), "nodes 1 and 2 measure each other");
    signal(&ranks[0], Signal::TERM);
    for rank in ranks {
        let ended = wait(rank);
        assert!(ended.status.success(), "{}", complaint(&ended));
    }
    let report = written_report(&out);
    assert_eq!(report["absences"].as_array().map(Vec::len), Some(3), "{report:#}");
    assert!(report["nodes"].as_array().expect("nodes").iter().all(|node| node["reachable"] == true), "{report:#}");
}

#[test]
fn a_local_run_ends_with_the_first_rank_that_is_lost() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let mut command = probe_sync(&["run", "--local", "3", "--window", "500ms", "--out", out.to_str().expect("UTF-8")]);
    let run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    wait_for_round(&out, 1);
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).expect("Linux");
    let child: i32 = children.split_whitespace().next_back().expect("two children").parse().expect("a pid");
    kill_process(Pid::from_raw(child).expect("a pid"), Signal::KILL).expect("a child of our own child");
    let ended = wait(run);
    assert_eq!(ended.status.code(), Some(1));
    let said = complaint(&ended);
    assert!(said.contains("lost rank") && !said.contains("start it again"), "{said}");
    assert!(latest_round(&out) >= 1, "finished rounds stay");
}

#[test]
fn a_rank_that_hangs_is_named_left_out_and_told_so() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port();
    let settings = ["--window", "500ms", "--fixed", "--round-timeout", "1s", "--reconnect-timeout", "0s"];
    let arguments = [&settings[..], &["--out", text(&out)]].concat();
    let mut ranks: Vec<Child> = (0..3).map(|r| rank(port, r, 3, &arguments).spawn().expect("starts")).collect();
    wait_for_round(&out, 1);
    signal(&ranks[1], Signal::STOP);
    wait_for_round(&out, latest_round(&out) + 4);
    signal(&ranks[1], Signal::CONT);
    let hung = wait(ranks.remove(1));
    assert_eq!(hung.status.code(), Some(1));
    let told = complaint(&hung);
    assert!(told.contains("continues without this rank") && told.contains("restart this rank"), "{told}");
    signal(&ranks[0], Signal::TERM);
    let root = wait(ranks.remove(0));
    assert!(root.status.success() && complaint(&root).contains("rank(s) 1"), "{}", complaint(&root));
    assert!(wait(ranks.remove(0)).status.success());
    assert_eq!(written_report(&out)["absences"][0]["back"], Value::Null);
}

#[test]
fn ranks_meet_by_a_shared_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (out, file) = (directory.path().join("out"), directory.path().join("rendezvous"));
    let arguments = ["--duration", "1s", "--window", "500ms", "--out", out.to_str().expect("UTF-8")];
    let start = |r: usize| {
        let mut command = rank(1, r, 3, &arguments);
        command.env_remove("MASTER_ADDR").env_remove("MASTER_PORT");
        command.env("PROBE_SYNC_RENDEZVOUS", format!("file:{}", file.display())).spawn().expect("starts")
    };
    let ranks: Vec<Child> = [2, 0, 1].map(start).into();
    for ended in ranks.into_iter().map(wait) {
        assert!(ended.status.success(), "{}", complaint(&ended));
    }
    assert!(latest_round(&out) >= 1);
}

/// In a tree of two, rank 1 passes on for 2, 3 and 4, and rank 2 for 3.
#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn a_rank_that_passes_on_for_others_hangs_and_only_it_is_left_out() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port();
    let arguments = ["--window", "500ms", "--fixed", "--round-timeout", "6s", "--out", out.to_str().expect("UTF-8")];
    let start = |r: usize| rank(port, r, 7, &arguments).env("PROBE_SYNC_TCP_FANOUT", "2").spawn().expect("starts");
    let mut ranks: Vec<Child> = (0..7).map(start).collect();
    wait_for_round(&out, 1);
    signal(&ranks[1], Signal::STOP);
    wait_for_round(&out, latest_round(&out) + 4);
    // One below it ends in the next tree, too.
    signal(&ranks[2], Signal::KILL);
    wait_for_round(&out, latest_round(&out) + 3);
    signal(&ranks[1], Signal::KILL);
    signal(&ranks[0], Signal::TERM);
    let ended: Vec<_> = ranks.drain(..).map(wait).collect();
    for (rank, ended) in ended.iter().enumerate().filter(|(rank, _)| ![1, 2].contains(rank)) {
        assert!(ended.status.success(), "rank {rank}: {}", complaint(ended));
    }
    let absences = written_report(&out)["absences"].clone();
    let named: Vec<u64> = absences.as_array().expect("a list").iter().filter_map(|one| one["rank"].as_u64()).collect();
    assert_eq!(named, [1, 2], "{absences}");
}

#[test]
fn who_comes_back_with_other_settings_is_turned_away_with_the_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let out = out.to_str().expect("UTF-8");
    let port = free_port();
    let start = |r: usize, spacing: &str| {
        let arguments = ["--window", "500ms", "--fixed", "--spacing", spacing, "--out", out];
        rank(port, r, 2, &arguments).spawn().expect("starts")
    };
    let (zero, one) = (start(0, "100us"), start(1, "100us"));
    wait_for_round(Path::new(out), 1);
    signal(&one, Signal::KILL);
    wait(one);
    let other = wait(start(1, "90us"));
    assert_eq!(other.status.code(), Some(1));
    assert!(complaint(&other).contains("spacing"), "{}", complaint(&other));
    let again = start(1, "100us");
    wait_for_round(Path::new(out), latest_round(Path::new(out)) + 4);
    signal(&zero, Signal::TERM);
    let (zero, again) = (wait(zero), wait(again));
    assert!(zero.status.success() && again.status.success(), "{}{}", complaint(&zero), complaint(&again));
    assert!(written_report(Path::new(out))["absences"][0]["back"].is_u64());
}

/// The folder of the master after the first.
pub fn second_masters(out: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(out).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.to_string_lossy().contains("-from-round")).find(|path| path.join("run.json").exists())
}

/// Four ranks of which rank 0 is struck by `strike`: the others go on, lose no decided round, and
/// stay within their bounds. `mode` are settings, of time-based rounds or of those of a master. The
/// run is in the folder `out` of what is returned.
pub fn check_loss_of_rank_zero(strike: Signal, round_timeout: &str, mode: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port();
    let settings = ["--window", "500ms", "--fixed", "--inject-skew", "3", "--round-timeout", round_timeout];
    // A tree of two is a mode, too.
    let (tree, mode) = match mode {
        ["tree", others @ ..] => (Some(("PROBE_SYNC_TCP_FANOUT", "2")), others),
        all => (None, all),
    };
    let arguments = [&settings[..], mode, &["--out", out.to_str().expect("UTF-8")]].concat();
    let start = |r: usize| rank(port, r, 4, &arguments).envs(tree).spawn().expect("starts");
    let mut ranks: Vec<Child> = (0..4).map(start).collect();
    wait_for_round(&out, 6);
    signal(&ranks[0], strike);
    let deadline = Instant::now() + Duration::from_secs(60);
    let folder = loop {
        match second_masters(&out) {
            Some(folder) if lines_so_far(&folder.join("global_windows.jsonl")) >= 6 => break folder,
            _ => assert!(Instant::now() < deadline, "nobody took over"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let timed = mode.contains(&"timed");
    if !timed {
        // The socket of the lost one is still there: killed, nobody is behind it; stopped, somebody
        // who does not answer.
        assert!(out.join("control.sock").exists());
        let asked = output(probe_sync(&["ctl", "--run-dir", out.to_str().expect("UTF-8"), "phase", "second master"]));
        assert!(asked.status.success(), "{}", complaint(&asked));
    }
    // A phase is reported when a round of it has been solved.
    let rounds = folder.join("global_windows.jsonl");
    wait_for_lines(&rounds, lines_so_far(&rounds) + 3);
    let zero = ranks.remove(0);
    let woken = (strike == Signal::STOP).then(|| {
        signal(&zero, Signal::CONT);
        complaint(&wait(zero))
    });
    signal(&ranks[2], Signal::TERM);
    let ended: Vec<_> = ranks.into_iter().map(wait).collect();
    ended.iter().for_each(|ended| assert!(ended.status.success(), "{}", complaint(ended)));
    if strike == Signal::STOP {
        // What it wakes to is another's run.
        assert!(woken.as_ref().is_some_and(|said| said.contains("continue with rank 1 as their master")), "{woken:?}");
        // The new master hears it ask, and go again: it was rank 0, whatever the two are called
        // inside of the group.
        assert!(!complaint(&ended[0]).contains("lost rank 1"), "{}", complaint(&ended[0]));
    }
    let table = String::from_utf8_lossy(&ended[0].stdout).into_owned();
    assert!(table.contains("rank 0 was lost: this rank is the master from round"), "{table}{}", complaint(&ended[0]));
    let report = written_report(&folder);
    assert_eq!(report["taken_over"]["from_rank"], 0, "{report:#}");
    if !timed {
        assert_eq!(report["phases"][0]["name"], "second master", "{report:#}");
    }
    assert!(!folder.join("control.sock").exists(), "the socket goes with the run");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert!(report["truth"]["coverage_95"].as_f64().is_some_and(|share| share >= 0.6), "{report:#}");
    assert_eq!(report["absences"][0]["rank"], 0, "{report:#}");
    let numbers = |path: &Path| -> Vec<u64> {
        lines(path).iter().map(|line| line["round_id"].as_u64().expect("a number")).collect()
    };
    let mut all = numbers(&out.join("global_windows.jsonl"));
    let after = numbers(&folder.join("global_windows.jsonl"));
    // What the old master recorded and told nobody counts for nothing.
    all.retain(|round| *round < after[0]);
    all.extend(after);
    assert!(all.iter().copied().eq(0..all.len() as u64), "{all:?}");
    let export = out.join("run.pb");
    let mut command = probe_sync(&["export", "--run-dir", out.to_str().expect("UTF-8"), "--out"]);
    command.arg(&export);
    let done = output(command);
    assert!(done.status.success(), "{}", complaint(&done));
    let read = probe_sync::export::read(&std::fs::read(&export).expect("written")).expect("our own");
    let exported: Vec<u64> = read.rounds.iter().map(|round| round.round_id).collect();
    assert_eq!(exported, all, "of both masters");
    directory
}

fn lines_so_far(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// Starts ranks, strikes some of them and then rank 0, and returns the report of the master that
/// goes on to the end; `last` asks for it.
fn report_after(size: usize, first: &[usize], restart: bool, last: usize) -> (Value, Vec<u64>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port();
    let settings = ["--window", "500ms", "--fixed", "--inject-skew", "3", "--round-timeout", "3s"];
    let arguments = [&settings[..], &["--out", out.to_str().expect("UTF-8")]].concat();
    let start = |r: usize| rank(port, r, size, &arguments).spawn().expect("starts");
    let mut ranks: std::collections::BTreeMap<usize, Child> = (0..size).map(|r| (r, start(r))).collect();
    wait_for_round(&out, 5);
    for rank in first {
        let mut struck = ranks.remove(rank).expect("it runs");
        signal(&struck, Signal::KILL);
        struck.wait().expect("our own child");
        if restart {
            ranks.insert(*rank, start(*rank));
            let metrics = || std::fs::read_to_string(out.join("metrics.prom")).unwrap_or_default();
            let deadline = Instant::now() + Duration::from_secs(60);
            let round = latest_round(&out);
            while !metrics().contains("probe_sync_ranks_away 0") || latest_round(&out) < round + 4 {
                assert!(Instant::now() < deadline, "it does not come back: {}", metrics());
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    let mut zero = ranks.remove(&0).expect("it runs");
    signal(&zero, Signal::KILL);
    zero.wait().expect("our own child");
    let deadline = Instant::now() + Duration::from_secs(80);
    let folder = loop {
        match second_masters(&out) {
            Some(folder) if lines_so_far(&folder.join("global_windows.jsonl")) >= 4 => break folder,
            _ => assert!(Instant::now() < deadline, "nobody took over"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    signal(&ranks[&last], Signal::TERM);
    for (rank, child) in ranks {
        let ended = wait(child);
        assert!(ended.status.success(), "rank {rank}: {}", complaint(&ended));
    }
    let rounds = lines(&folder.join("global_windows.jsonl"));
    (written_report(&folder), rounds.iter().map(|line| line["round_id"].as_u64().expect("a number")).collect())
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn a_rank_that_came_back_has_a_voice_when_rank_zero_is_lost() {
    // Rank 1 would have stood by; it came back, so rank 2 does.
    let (report, rounds) = report_after(3, &[1], true, 1);
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert!(rounds.windows(2).all(|pair| pair[1] == pair[0] + 1), "{rounds:?}");
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn the_rank_after_the_next_goes_on_when_rank_zero_and_the_next_are_killed_together() {
    let (report, rounds) = report_after(6, &[1], false, 5);
    assert_eq!(report["taken_over"]["from_rank"], 0, "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert!(rounds.windows(2).all(|pair| pair[1] == pair[0] + 1), "{rounds:?}");
}

#[test]
fn the_next_rank_goes_on_when_rank_zero_is_killed() {
    let _run = check_loss_of_rank_zero(Signal::KILL, "10s", &[]);
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn the_next_rank_goes_on_when_rank_zero_hangs() {
    let _run = check_loss_of_rank_zero(Signal::STOP, "2s", &[]);
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn a_rank_that_is_started_again_after_rank_zero_was_lost_comes_back_to_the_next_master() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (out, own) = (directory.path().join("out"), directory.path().join("of_rank_2"));
    let port = free_port();
    let settings = ["--window", "500ms", "--fixed", "--inject-skew", "3", "--round-timeout", "3s"];
    // Rank 2 is on another disk, as on a host of its own.
    let start = |r: usize| {
        let folder = if r == 2 { &own } else { &out };
        let arguments = [&settings[..], &["--out", folder.to_str().expect("UTF-8")]].concat();
        rank(port, r, 4, &arguments).spawn().expect("starts")
    };
    let mut ranks: Vec<Child> = (0..4).map(start).collect();
    wait_for_round(&out, 4);
    signal(&ranks[0], Signal::KILL);
    let deadline = Instant::now() + Duration::from_secs(60);
    let folder = loop {
        match second_masters(&out) {
            Some(folder) if lines_so_far(&folder.join("global_windows.jsonl")) >= 3 => break folder,
            _ => assert!(Instant::now() < deadline, "nobody took over"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    signal(&ranks[2], Signal::KILL);
    ranks[2].wait().expect("our own child");
    assert!(own.join("successors/rank2.json").exists(), "its next process finds the way by it");
    ranks[2] = start(2);
    let metrics = || std::fs::read_to_string(folder.join("metrics.prom")).unwrap_or_default();
    let rounds = folder.join("global_windows.jsonl");
    let lines_then = lines_so_far(&rounds);
    // Rank 0 alone is away then.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !metrics().contains("probe_sync_ranks_away 1") || lines_so_far(&rounds) < lines_then + 6 {
        assert!(Instant::now() < deadline, "it does not come back: {}", metrics());
        std::thread::sleep(Duration::from_millis(50));
    }
    wait(ranks.remove(0));
    signal(&ranks[2], Signal::TERM);
    let ended: Vec<_> = ranks.into_iter().map(wait).collect();
    ended.iter().for_each(|ended| assert!(ended.status.success(), "{}", complaint(ended)));
    let report = written_report(&folder);
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    let absence = report["absences"].as_array().expect("a list").iter().find(|one| one["rank"] == 2);
    let back = absence.and_then(|absence| absence["back"].as_u64());
    let back = back.unwrap_or_else(|| panic!("it is named, and named back: {report:#}"));
    let (all, last) = (lines(&rounds), lines(&rounds).pop().expect("rounds"));
    assert!(all.windows(2).all(|pair| pair[1]["round_id"].as_u64() == pair[0]["round_id"].as_u64().map(|id| id + 1)));
    assert!(last["round_id"].as_u64() > Some(back), "{last}");
    let node = &last["all_nodes"][2];
    assert!(node["reachable"] == true && node["offset_ns"].is_number(), "its offset is known again: {last}");
    for (folder, rank) in [(&own, 2), (&out, 1), (&out, 3)] {
        let kept = folder.join(format!("successors/rank{rank}.json"));
        assert!(!kept.exists(), "nobody is to come back to a run that has ended well: {}", kept.display());
    }
}

#[test]
fn without_successors_the_end_of_rank_zero_ends_all() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port();
    let settings = ["--window", "500ms", "--successors", "0", "--reconnect-timeout", "1s"];
    let arguments = [&settings[..], &["--out", text(&out)]].concat();
    let mut ranks: Vec<Child> = (0..3).map(|r| rank(port, r, 3, &arguments).spawn().expect("starts")).collect();
    wait_for_round(&out, 1);
    signal(&ranks[0], Signal::KILL);
    wait(ranks.remove(0));
    for rank in ranks {
        let ended = wait(rank);
        assert_eq!(ended.status.code(), Some(1));
        assert!(complaint(&ended).contains("lost rank 0"), "{}", complaint(&ended));
    }
    assert!(latest_round(&out) >= 1, "finished rounds stay");
}

#[test]
fn simulated_faults_are_tabled_and_written() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("small.toml");
    let cell = include_str!("../../../../bench/scenarios/cell.toml");
    let small = cell.replace("nodes = 16", "nodes = 10").replace("duration_s = 64.0", "duration_s = 15.0");
    std::fs::write(&file, small.replace("window_s = 4.0", "window_s = 1.0")).expect("writable");
    let [file, out] = [file, directory.path().join("out")].map(|path| path.to_str().expect("UTF-8").to_owned());
    let table = output(probe_sync(&["sim", "--wide", "--faults", "--scenario", &file, "--seed", "1", "--out", &out]));
    assert!(table.status.success(), "{}", complaint(&table));
    assert!(String::from_utf8_lossy(&table.stdout).contains("node 5 stepped by 10.000 ms"));
    let csv = std::fs::read_to_string(format!("{out}/faults.csv")).expect("written");
    let row = |name: &str| csv.lines().find(|line| line.starts_with(&format!("{name},")));
    let step = row("step 10 ms").expect("a row").split(',').map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        (step[1].as_str(), step[3].as_str(), step[4].as_str()),
        ("1", "0", "0"),
        "one run, named, nothing else: {csv}"
    );
    assert!(row("clean").is_some_and(|row| row.contains("0,0,0,0,,,,,")), "{csv}");

    let refused = output(probe_sync(&["sim", "--faults", "--nodes", "4"]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(complaint(&refused).contains("--faults needs 9 nodes"), "{}", complaint(&refused));
}
