//! Sessions of threads with real packets on loopback: who sees what, how they end, and how the pace
//! changes.

mod modes;
mod succession;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use probe_sync_collective::InProcess;
use probe_sync_estimate::round::SolvedRound;
use probe_sync_lines::NodeWindow;
use probe_sync_sys::{MonotonicClock, TracerClock};
use probe_sync_time::{Clock, Duration, Edge, NodeId, RoundId};

use super::{Context, Driver};
use crate::pace::{Pace, Policy};
use crate::report::RunReport;
use crate::{Config, Error};

fn config(directory: &Path) -> Config {
    Config {
        window: Some(Duration::from_ms(500)),
        duration: Some(Duration::from_ms(2_000)),
        inject_skew: Some(11),
        out: directory.join("out"),
        ..Config::default()
    }
}

/// Runs `config` on `size` ranks, each of which does `work` with its session; returns their results
/// in order of rank.
fn sessions<T: Send + 'static>(
    size: usize,
    config: &Config,
    policy: Option<&Policy>,
    work: fn(Driver<'_>) -> Result<T, Error>,
) -> Vec<Result<T, Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let spawn = |mut collective: InProcess| {
        let context = Context { stop: Arc::clone(&stop), ..Context::default() };
        let (config, policy) = (config.clone(), policy.cloned());
        std::thread::spawn(move || work(Driver::start_at(Ok(config), &mut collective, &context, policy)?))
    };
    let threads: Vec<_> = InProcess::group(size).into_iter().map(spawn).collect();
    threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
}

fn to_the_end(mut session: Driver<'_>) -> Result<Option<RunReport>, Error> {
    while session.next_round()?.is_some() {}
    session.stop()
}

fn windows(directory: &Path, node: usize) -> Vec<NodeWindow> {
    let path = directory.join(format!("out/windows/node{node}.jsonl"));
    let text = std::fs::read_to_string(path).expect("the node's windows");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_session_that_a_program_links_has_no_region() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = Config { region: Some("a".into()), ..config(directory.path()) };
    for result in sessions(2, &config, None, to_the_end) {
        let error = result.expect_err("refused").to_string();
        assert!(error.contains("--region a") && error.contains("probe_sync run"), "{error}");
    }
}

#[test]
fn every_rank_sees_every_round_and_its_own_state() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = Config {
        duration: Some(Duration::from_ms(900)),
        window: Some(Duration::from_ms(300)),
        ..config(directory.path())
    };
    let results = sessions(2, &config, None, |mut session| {
        let mut offsets = Vec::new();
        while let Some(round) = session.next_round()? {
            assert_eq!(round.round_id, RoundId(offsets.len() as u64));
            offsets.push(round.all_nodes[1].offset_ns.to_bits());
        }
        let state = session.state();
        assert_eq!((state.nodes, state.reference, state.rounds, state.ended), (2, NodeId(0), 3, true));
        assert_eq!(state.node.index(), state.rank);
        assert!(session.next_round()?.is_none(), "the run has ended");
        let report = session.stop()?;
        assert_eq!(report.is_some(), state.rank == 0);
        Ok(offsets)
    });
    let offsets: Vec<_> = results.into_iter().map(|result| result.expect("a run")).collect();
    assert_eq!((offsets[0].len(), &offsets[0]), (3, &offsets[1]));
}

#[test]
fn stopping_one_rank_ends_the_run_on_all() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let endless = Config { duration: None, ..config(directory.path()) };
    let results = sessions(3, &endless, None, |mut session| {
        session.next_round()?;
        // Each rank has its own say; the first stop ends the rounds of all.
        if session.state().rank == 2 { session.stop() } else { to_the_end(session) }
    });
    let reports: Vec<_> = results.into_iter().map(|result| result.expect("a run")).collect();
    let report = reports[0].as_ref().expect("the root's report");
    assert!(!report.interrupted && (1..=3).contains(&report.rounds), "{report:?}");
}

#[test]
fn a_context_serves_a_second_session() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let context = Context::default();
    for run in 0..2 {
        let config = Config { duration: None, window: Some(Duration::from_ms(200)), ..config(directory.path()) };
        let mut alone = InProcess::group(1).remove(0);
        let mut session = Driver::start(config, &mut alone, &context).expect("a run");
        assert!(session.next_round().expect("a round").is_some(), "session {run} ended at once");
        let report = session.stop().expect("a run").expect("the root's report");
        assert!(!report.interrupted && report.rounds >= 1, "{report:?}");
    }
    assert!(!context.stop.load(std::sync::atomic::Ordering::Relaxed), "the flag is its caller's");
}

#[test]
fn metrics_that_cannot_be_refreshed_do_not_end_the_run() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let results = sessions(1, &config(directory.path()), None, |mut session| {
        session.next_round()?;
        let metrics = Path::new(&session.started().config.out).join("metrics.prom");
        std::fs::remove_file(&metrics).expect("written after the first round");
        std::fs::create_dir(&metrics).expect("something is in the way");
        to_the_end(session)
    });
    let report = results.into_iter().next().expect("one rank").expect("a run").expect("the root's report");
    assert_eq!((report.rounds, report.error), (4, None));
    assert!(directory.path().join("out/report.json").exists());
}

#[test]
fn a_dropped_session_ends_its_threads_and_keeps_its_rounds() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = Config {
        duration: None,
        window: Some(Duration::from_ms(200)),
        snapshot_pair_period: Duration::from_ms(5),
        ..config(directory.path())
    };
    let results = sessions(1, &config, None, |mut session| {
        session.next_round()?;
        Ok(())
    });
    assert!(results.iter().all(Result::is_ok));
    // Its threads have been joined: no further line is written.
    let path = directory.path().join("out/snapshots/node0.snapshot_pairs.jsonl");
    let pairs = || std::fs::read_to_string(&path).expect("pairs").lines().count();
    let taken = pairs();
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(pairs(), taken);
    assert_eq!(windows(directory.path(), 0).len(), 1);
}

#[test]
fn nodes_take_pairs_at_periods_of_their_own_and_of_clocks_that_are_handed_in() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let common = Config {
        duration: Some(Duration::from_ms(400)),
        window: Some(Duration::from_ms(200)),
        ..config(directory.path())
    };
    let spawn = |(rank, mut collective): (i64, InProcess)| {
        let config = Config { snapshot_pair_period: Duration::from_ms(20 + 30 * rank), ..common.clone() };
        let clock =
            || TracerClock::of_callback("profiler", move || Ok(MonotonicClock.now().as_ns())).expect("it reads");
        let context = Context { tracer_clock: (rank == 1).then(clock), ..Context::default() };
        std::thread::spawn(move || to_the_end(Driver::start(config, &mut collective, &context)?))
    };
    let threads: Vec<_> = (0..).zip(InProcess::group(2)).map(spawn).collect();
    for thread in threads {
        thread.join().expect("no rank panics").expect("periods may differ");
    }
    let read = |name: &str| std::fs::read(directory.path().join("out").join(name)).expect("written by the run");
    let run: serde_json::Value = serde_json::from_slice(&read("run.json")).expect("JSON");
    for (node, period_ns) in [(0, 20_000_000), (1, 50_000_000)] {
        let pairs = read(&format!("snapshots/node{node}.snapshot_pairs.pb"));
        let pairs = crate::snapshots::read(&pairs).expect("our own bytes");
        assert_eq!(pairs.sampling_period_ns, period_ns, "node {node}");
        let chosen = &run["nodes"][node]["tracer_clock"];
        assert_eq!(chosen["name"], pairs.tracer_clock.as_str(), "{run:#}");
        assert_eq!(chosen["reason"], pairs.tracer_clock_reason.as_str(), "{run:#}");
        let expected = if node == 1 { "provided by the caller" } else { "auto: " };
        assert!(pairs.tracer_clock_reason.starts_with(expected), "{}", pairs.tracer_clock_reason);
        assert_eq!(pairs.tracer_clock == "profiler", node == 1);
    }
    assert_eq!(run["nodes"][0]["stamp_error_ns"], 0, "loopback has no clock of its own");
}

/// Makes every window after the first shorter, and probes faster.
fn hasten(round: &SolvedRound, _: &Pace) -> Pace {
    assert!(round.data.all_nodes.len() == 2 && round.data.all_nodes.iter().all(|node| node.reachable));
    Pace { cadence: Duration::from_us(400), window: Duration::from_ms(125), extra_edges: Vec::new() }
}

#[test]
fn a_policy_changes_the_pace_of_all_nodes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let results = sessions(2, &config(directory.path()), Some(&Policy::Scripted(hasten)), to_the_end);
    let reports: Vec<_> = results.into_iter().map(|result| result.expect("a run")).collect();
    let report = reports[0].as_ref().expect("the root's report");
    assert!(report.rounds > 5, "2 s hold more than four windows now");
    let mut counted = [[0; 2]; 2];
    for (node, counted) in counted.iter_mut().enumerate() {
        let windows = windows(directory.path(), node);
        let length = |window: &NodeWindow| window.window_end - window.window_start;
        let last = length(windows.last().expect("windows"));
        assert!(length(&windows[0]) > last + last, "node {node}");
        for packets in windows.iter().flat_map(|window| &window.packets) {
            assert_eq!(packets.peer.index(), 1 - node);
            counted[0] += packets.sent;
            counted[1] += packets.received;
        }
    }
    // The windows tile the run: together they hold what the account holds, but for what came after
    // the last cut.
    for direction in &report.packets {
        let (src, dst) = (direction.src.index(), direction.dst.index());
        let [sent, received] = [counted[src][0], counted[dst][1]];
        assert!((100..=direction.sent).contains(&sent), "{direction:?}, {counted:?}");
        assert!((100..=direction.received).contains(&received), "{direction:?}, {counted:?}");
    }
}

/// Adds an edge after the first round and takes it away after the third.
fn join(round: &SolvedRound, current: &Pace) -> Pace {
    // The ring is 0→1→2→3→0, so 3 never probes 1 by itself.
    let extra_edges = if round.data.round_id < RoundId(3) { vec![Edge::new(3, 1)] } else { Vec::new() };
    Pace { extra_edges, ..current.clone() }
}

#[test]
fn all_ranks_probe_the_edges_that_the_master_adds() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = Config {
        neighbors: Some(2),
        window: Some(Duration::from_ms(200)),
        duration: Some(Duration::from_ms(1_600)),
        ..config(directory.path())
    };
    let results = sessions(4, &config, Some(&Policy::Scripted(join)), to_the_end);
    results.into_iter().for_each(|result| drop(result.expect("a run")));
    let probed = |window: &NodeWindow| window.edges.iter().any(|edge| edge.dst_node_id.0 == 1);
    let found: Vec<bool> = windows(directory.path(), 3).iter().map(probed).collect();
    assert_eq!((found[0], found[2], found.last()), (false, true, Some(&false)), "{found:?}");
    assert!((6..=9).contains(&found.len()), "1.6 s hold eight windows of 200 ms: {found:?}");
    let rounds: Vec<RoundId> = windows(directory.path(), 3).iter().map(|window| window.round_id).collect();
    assert!(rounds.iter().copied().eq((0..).map(RoundId).take(rounds.len())), "{rounds:?}");
}
