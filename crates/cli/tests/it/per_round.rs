//! `--connections per-round`: nothing stands between rounds, and the run is as any other.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::faults::{check_loss_of_rank_zero, rank, signal, started, wait_for_round, written_report};
use crate::support::{complaint, free_port, lines, output, probe_sync, text, wait};

/// TCP connections of a process, without those closed on its side and without its listeners.
fn connections(child: &Child) -> usize {
    let links = std::fs::read_dir(format!("/proc/{}/fd", child.id())).expect("our own child").flatten();
    let links = links.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    let sockets: BTreeSet<String> =
        links.filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let all = ["/proc/net/tcp", "/proc/net/tcp6"].map(|file| std::fs::read_to_string(file).unwrap_or_default());
    let lines = all.iter().flat_map(|text| text.lines().skip(1));
    let of_it = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(3).is_some_and(|state| *state != "0A") && fields.get(9).is_some_and(|inode| sockets.contains(*inode))
    };
    lines.filter(of_it).count()
}

/// Waits until none of these processes has a connection.
fn wait_until_none_stands(ranks: &[Child]) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let standing: Vec<usize> = ranks.iter().map(connections).collect();
        if standing.iter().all(|count| *count == 0) {
            return;
        }
        assert!(Instant::now() < deadline, "{standing:?} connections stand");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ctl(out: &Path, asks: &[&str]) -> std::process::Output {
    output(probe_sync(&[&["ctl", "--run-dir", text(out)], asks].concat()))
}

#[test]
fn no_connection_stands_between_rounds_and_what_is_asked_comes_with_the_next() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let settings = ["--connections", "per-round", "--window", "500ms", "--fixed", "--inject-skew", "3"];
    let (_, ranks) = started(&out, 5, &settings);
    for round in [1, 3, 5] {
        wait_for_round(&out, round);
        wait_until_none_stands(&ranks);
    }
    let refused = ctl(&out, &["end-round"]);
    assert_eq!(refused.status.code(), Some(1), "{}", complaint(&refused));
    assert!(complaint(&refused).contains("--connections per-round"), "{}", complaint(&refused));
    for asks in [&["pause"][..], &["resume"], &["phase", "warm up"]] {
        let asked = ctl(&out, asks);
        assert!(asked.status.success(), "{asks:?}: {}", complaint(&asked));
    }
    wait_for_round(&out, lines(&out.join("global_windows.jsonl")).len() + 2);
    // A rank that is told to end says so with its window.
    signal(&ranks[3], Signal::TERM);
    for ended in ranks.into_iter().map(wait) {
        assert!(ended.status.success(), "{}", complaint(&ended));
    }
    let report = written_report(&out);
    assert_eq!(report["absences"], serde_json::json!([]), "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
    assert_eq!(report["phases"][0]["name"], "warm up", "{report:#}");
    let rounds = lines(&out.join("global_windows.jsonl"));
    assert!(
        rounds.windows(2).all(|pair| pair[1]["round_id"].as_u64() == pair[0]["round_id"].as_u64().map(|id| id + 1))
    );
    assert!(rounds.iter().any(|round| round["decision"]["paused"] == true), "one of them paused");
}

#[test]
fn a_killed_rank_is_named_and_the_process_after_it_comes_back() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let settings = ["--connections", "per-round", "--window", "500ms", "--fixed", "--round-timeout", "1s"];
    let (start, mut ranks) =
        started(&out, 4, &[&settings[..], &["--inject-skew", "3", "--reconnect-timeout", "0s"]].concat());
    wait_for_round(&out, 2);
    signal(&ranks[2], Signal::KILL);
    wait(ranks.remove(2));
    ranks.push(start(2));
    // A stopped one that wakes after the others have given it up is told so.
    let metrics = || std::fs::read_to_string(out.join("metrics.prom")).unwrap_or_default();
    let until = |away: &str| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !metrics().contains(&format!("probe_sync_ranks_away {away}")) {
            assert!(Instant::now() < deadline, "not {away} away: {}", metrics());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("1");
    until("0");
    wait_for_round(&out, lines(&out.join("global_windows.jsonl")).len() + 3);
    wait_until_none_stands(&ranks);
    signal(&ranks[1], Signal::STOP);
    until("1");
    signal(&ranks[1], Signal::CONT);
    let told = wait(ranks.remove(1));
    assert_eq!(told.status.code(), Some(1));
    assert!(complaint(&told).contains("continues without this rank"), "{}", complaint(&told));
    signal(&ranks[0], Signal::TERM);
    let ended: Vec<_> = ranks.into_iter().map(wait).collect();
    ended.iter().for_each(|ended| assert!(ended.status.success(), "{}", complaint(ended)));
    let report = written_report(&out);
    let absences = report["absences"].as_array().expect("a list");
    let named: Vec<u64> = absences.iter().filter_map(|one| one["rank"].as_u64()).collect();
    assert_eq!(named, [2, 1], "{report:#}");
    assert!(absences[0]["back"].is_u64() && absences[1]["back"].is_null(), "{report:#}");
    assert!(report["nodes"][2]["reachable"] == true, "{report:#}");
    assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn the_next_rank_goes_on_when_rank_zero_is_killed_between_rounds() {
    let _run = check_loss_of_rank_zero(Signal::KILL, "10s", &["--connections", "per-round"]);
}

#[test]
#[ignore = "long: waits for the limits of ranks that hang or were killed"]
fn the_next_rank_goes_on_when_rank_zero_hangs_and_nobody_is_connected() {
    let _run = check_loss_of_rank_zero(Signal::STOP, "2s", &["--connections", "per-round"]);
}

#[test]
fn time_based_rounds_and_ranks_of_one_command_connect_for_each_round_too() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for rounds in ["timed", "master"] {
        let out = directory.path().join(rounds);
        let run = ["run", "--local", "4", "--duration", "3s", "--window", "500ms", "--inject-skew", "7", "--fixed"];
        let how = ["--connections", "per-round", "--rounds", rounds, "--json", "--out", text(&out)];
        let report = crate::support::report(&[&run[..], &how].concat());
        assert_eq!(report["truth"]["outside_hard_interval"], 0, "{report:#}");
        assert!(report["rounds"].as_u64().is_some_and(|rounds| rounds >= 5), "{report:#}");
    }
}

#[test]
fn what_cannot_connect_for_each_round_says_so_on_all_ranks() {
    let port = free_port();
    let start = |r: usize| {
        let arguments = ["--connections", "per-round", "--duration", "1s", "--out", "never_made"];
        rank(port, r, 3, &arguments).env("PROBE_SYNC_TCP_FANOUT", "2").spawn().expect("starts")
    };
    let ranks: Vec<Child> = (0..3).map(start).collect();
    for ended in ranks.into_iter().map(wait) {
        assert_eq!(ended.status.code(), Some(2), "{}", complaint(&ended));
        // One of them tells it for all.
        let said = complaint(&ended);
        assert!(said.is_empty() || said.contains("PROBE_SYNC_TCP_FANOUT=star"), "{said}");
    }
    assert!(!Path::new("never_made").exists());
    let local = output(probe_sync(&["run", "--local", "2", "--connections", "per-round", "--rounds", "local"]));
    assert_eq!(local.status.code(), Some(2));
    assert!(complaint(&local).contains("connections: is per-round"), "{}", complaint(&local));
}
