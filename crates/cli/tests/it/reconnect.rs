//! Ranks whose connection breaks, that hang, or that come late: nobody starts them again.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use probe_sync_collective::proxy::Proxy;
use rustix::process::Signal;
use serde_json::Value;

use crate::faults::{rank, signal, wait_for_round, written_report};
use crate::support::{complaint, free_port, lines, output, probe_sync, text, wait};

/// A rank that finds rank 0 by this port, with sockets that no path within the host replaces.
fn over_tcp(port: u16, number: usize, size: usize, arguments: &[&str]) -> Command {
    let mut command = rank(port, number, size, arguments);
    command.env("PROBE_SYNC_TCP_LOCAL", "tcp");
    command
}

fn latest_round(out: &Path) -> usize {
    lines(&out.join("global_windows.jsonl")).len() - 1
}

/// Waits until this many ranks are away.
fn wait_for_away(out: &Path, away: usize) {
    let wanted = format!("probe_sync_ranks_away {away}");
    let metrics = || std::fs::read_to_string(out.join("metrics.prom")).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !metrics().contains(&wanted) {
        assert!(Instant::now() < deadline, "not {wanted}: {}", metrics());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends the run by a signal to rank 0; all ranks end well.
fn ended_well(ranks: Vec<Child>) -> Vec<Output> {
    signal(&ranks[0], Signal::TERM);
    let ended: Vec<Output> = ranks.into_iter().map(wait).collect();
    for (rank, ended) in ended.iter().enumerate() {
        assert!(ended.status.success(), "rank {rank}: {}", complaint(ended));
    }
    ended
}

/// The absences of a rank: how long each was, in rounds.
fn absences(out: &Path, rank: u64) -> Vec<(u64, u64)> {
    let report = written_report(out);
    let of_rank = report["absences"].as_array().expect("a list").iter().filter(|one| one["rank"] == rank);
    of_rank.map(|one| (one["from"].as_u64().expect("a round"), one["back"].as_u64().expect("it came back"))).collect()
}

/// A run of three ranks, of which rank 1 reaches rank 0 through the proxy.
fn three_through(out: &Path, settings: &[&str]) -> (Vec<Child>, Proxy) {
    let port = free_port();
    let proxy = Proxy::to(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let arguments: Vec<&str> = settings.iter().copied().chain(["--out", text(out)]).collect();
    let port_of = |number| if number == 1 { proxy.address.port() } else { port };
    let start = |number| over_tcp(port_of(number), number, 3, &arguments).spawn().expect("starts");
    ((0..3).map(start).collect(), proxy)
}

const SETTINGS: [&str; 5] = ["--window", "300ms", "--fixed", "--inject-skew", "3"];

#[test]
fn a_rank_whose_connection_breaks_comes_back_by_itself() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let (ranks, proxy) = three_through(&out, &SETTINGS);
    for round in [2, 6] {
        wait_for_round(&out, round);
        proxy.cut();
        wait_for_away(&out, 1);
        wait_for_round(&out, latest_round(&out) + 2);
        proxy.open();
        wait_for_away(&out, 0);
    }
    wait_for_round(&out, latest_round(&out) + 3);
    let ended = ended_well(ranks);
    assert!(complaint(&ended[1]).contains("tries to reconnect"), "{}", complaint(&ended[1]));
    assert_eq!(absences(&out, 1).len(), 2, "its rounds meanwhile were missed");
    let report = written_report(&out);
    assert_eq!(report["absences"].as_array().map(Vec::len), Some(2), "nobody else: {}", report["absences"]);
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert!(report["nodes"][1]["reachable"] == true && report["nodes"][1]["bounds_held"] == true, "{report:#}");
}

#[test]
fn a_rank_whose_connection_a_nat_forgot_comes_back_by_itself() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let settings = [&SETTINGS[..], &["--round-timeout", "1s", "--successors", "0"]].concat();
    let (ranks, proxy) = three_through(&out, &settings);
    wait_for_round(&out, 2);
    proxy.forget();
    wait_for_away(&out, 1);
    wait_for_away(&out, 0);
    wait_for_round(&out, latest_round(&out) + 3);
    ended_well(ranks);
    assert_eq!(absences(&out, 1).len(), 1);
    assert_eq!(written_report(&out)["truth"]["outside_hard_interval"], 0);
}

/// Rank 2 has no out-neighbours.
#[test]
fn a_listener_that_hangs_holds_one_round_and_comes_back_when_it_wakes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port();
    let start = |number: usize| {
        let neighbours = ["1,2", "0,2", "none"][number];
        let own = ["--out-neighbors", neighbours, "--round-timeout", "2s", "--out", text(&out)];
        let arguments = [&SETTINGS[..], &own].concat();
        rank(port, number, 3, &arguments).spawn().expect("starts")
    };
    let ranks: Vec<Child> = (0..3).map(start).collect();
    wait_for_round(&out, 2);
    signal(&ranks[2], Signal::STOP);
    wait_for_away(&out, 1);
    let hung_in = latest_round(&out);
    wait_for_round(&out, hung_in + 4);
    signal(&ranks[2], Signal::CONT);
    wait_for_away(&out, 0);
    wait_for_round(&out, latest_round(&out) + 3);
    ended_well(ranks);
    let [(from, back)] = absences(&out, 2)[..] else { panic!("once: {:?}", absences(&out, 2)) };
    let rounds = lines(&out.join("global_windows.jsonl"));
    assert!(rounds.len() as u64 > back + 3, "{from} {back}");
}

/// Rank 1 of four comes late and rank 3 never.
#[test]
fn a_run_begins_with_the_ranks_that_are_there_and_takes_in_those_that_come_late() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port();
    let arguments = [&SETTINGS[..], &["--start-timeout", "1s", "--out", text(&out)]].concat();
    let start = |number| rank(port, number, 4, &arguments).spawn().expect("starts");
    let mut ranks: Vec<Child> = [0, 2].map(start).into();
    wait_for_away(&out, 2);
    wait_for_round(&out, 2);
    ranks.push(start(1));
    wait_for_away(&out, 1);
    wait_for_round(&out, latest_round(&out) + 3);
    let status = output(probe_sync(&["status", text(&out)]));
    let ended = ended_well(ranks);
    let said = complaint(&ended[0]);
    for missing in [1, 3] {
        assert!(said.contains(&format!("rank {missing} is missing: it did not join within 1s")), "{said}");
    }
    assert!(said.contains("rank 1 is back"), "{said}");
    let shown = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(shown.contains("missing     rank 3"), "{shown}");

    let report = written_report(&out);
    let of = |rank: u64| {
        let of_rank = |absence: &&Value| absence["rank"] == rank;
        report["absences"].as_array().expect("a list").iter().find(of_rank).expect("it is named").clone()
    };
    assert!(of(1)["from"] == 0 && of(1)["back"].is_u64() && of(1)["host"] != "", "{}", report["absences"]);
    assert!(of(3)["from"] == 0 && of(3)["back"].is_null() && of(3)["host"] == "", "{}", report["absences"]);
    let nodes = &report["nodes"];
    for (node, known) in [(0, true), (1, true), (2, true), (3, false)] {
        assert_eq!(nodes[node]["reachable"], known, "node {node}: {nodes:#}");
    }
    assert_eq!(nodes[1]["host"], nodes[0]["host"], "its host is known now");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    // Both ways: the others probe it, and it probes them.
    let edges = |node: usize| {
        let windows = lines(&out.join(format!("windows/node{node}.jsonl")));
        let last = windows.last().expect("windows");
        let fitted = last["edges"].as_array().expect("a list").iter();
        fitted.map(|edge| edge["dst"].as_u64().expect("a node")).collect::<Vec<_>>()
    };
    assert_eq!((edges(0), edges(1)), (vec![1, 2], vec![2]));
    let run: Value = serde_json::from_str(&std::fs::read_to_string(out.join("run.json")).expect("it")).expect("JSON");
    assert_eq!(run["nodes"][1]["hostname"], run["nodes"][0]["hostname"], "{run:#}");
}

#[test]
fn a_rank_that_is_alone_when_the_time_is_over_waits_for_a_second() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let port = free_port();
    let arguments = ["--start-timeout", "100ms", "--duration", "1s", "--window", "500ms", "--out", text(&out)];
    let start = |number| rank(port, number, 3, &arguments).spawn().expect("starts");
    let zero = start(0);
    std::thread::sleep(Duration::from_millis(500));
    let one = start(1);
    for ended in [zero, one].map(wait) {
        assert!(ended.status.success(), "{}", complaint(&ended));
    }
    assert!(latest_round(&out) >= 1);
}
