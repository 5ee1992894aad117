//! The library as a launcher links it: ranks bring a `Collective`, real packets on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use probe_sync::collective::InProcess;
use probe_sync::policy::{Pace, Policy};
use probe_sync::{Config, Context, Error, Observer, RunReport, Started, run, run_with_policy};
use probe_sync_estimate::round::GlobalWindowData;
use probe_sync_estimate::window::NodeWindowData;
use probe_sync_time::{Duration, Edge};

/// Counts what it is told, and ends the run after some rounds if it shall.
struct Counting {
    rounds: usize,
    stop_after: Option<(usize, Arc<AtomicBool>)>,
}

impl Observer for Counting {
    fn started(&mut self, started: &Started<'_>) {
        assert_eq!(started.clocks, 1);
    }

    fn round(&mut self, round: &GlobalWindowData, _latency: StdDuration) {
        assert_eq!(round.round_id.0, self.rounds as u64);
        self.rounds += 1;
        if let Some((rounds, stop)) = &self.stop_after
            && self.rounds == *rounds
        {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs `configs.len()` ranks as threads; what each returned, in order of rank.
fn ranks(configs: Vec<Result<Config, Error>>, stop_after: Option<usize>) -> Vec<Result<Option<RunReport>, Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let group = InProcess::group(configs.len());
    let spawn = |(config, mut collective): (Result<Config, Error>, InProcess)| {
        let context = Context { stop: Arc::clone(&stop), towards_root: None };
        let stop_after = stop_after.map(|rounds| (rounds, Arc::clone(&stop)));
        std::thread::spawn(move || run(config, &mut collective, &context, &mut Counting { rounds: 0, stop_after }))
    };
    let threads: Vec<_> = configs.into_iter().zip(group).map(spawn).collect();
    threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
}

fn config(out: &std::path::Path) -> Config {
    Config {
        window: Duration::from_ms(500),
        duration: Some(Duration::from_ms(2_000)),
        inject_skew: Some(11),
        out: out.join("out"),
        ..Config::default()
    }
}

#[test]
fn threads_of_one_process_find_the_truth() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut results = ranks((0..4).map(|_| Ok(config(directory.path()))).collect(), None);
    let report = results.remove(0).expect("the root's run").expect("the root's report");
    assert!(results.into_iter().all(|result| result.expect("a rank's run").is_none()));
    assert_eq!((report.rounds, report.ranks), (4, 4));
    let truth = report.truth.expect("known truth");
    assert_eq!((truth.judged, truth.outside_hard_interval), (9, 0));
    assert!(truth.worst_error_ns < 20_000.0, "{truth:?}");
}

#[test]
fn raising_the_flag_ends_the_run_with_a_report() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let endless = || Ok(Config { duration: None, ..config(directory.path()) });
    let mut results = ranks((0..2).map(|_| endless()).collect(), Some(2));
    let report = results.remove(0).expect("the root's run").expect("the root's report");
    assert!(report.interrupted && report.rounds >= 2, "{report:?}");
}

/// Makes every window after the first shorter, and probes faster.
struct Hasten;

impl Policy for Hasten {
    fn next(&mut self, round: &GlobalWindowData, windows: &[NodeWindowData], _: &Pace) -> Pace {
        assert!(windows.len() == 2 && round.all_nodes.iter().all(|node| node.reachable));
        Pace { cadence: Duration::from_us(400), window: Duration::from_ms(125), extra_edges: Vec::new() }
    }
}

#[test]
fn a_policy_changes_the_pace_of_all_nodes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let threads: Vec<_> = InProcess::group(2)
        .into_iter()
        .map(|mut collective| {
            let config = config(directory.path());
            std::thread::spawn(move || {
                let context = Context { stop: Arc::default(), towards_root: None };
                let mut observer = Counting { rounds: 0, stop_after: None };
                run_with_policy(Ok(config), &mut collective, &context, &mut observer, &mut Hasten)
            })
        })
        .collect();
    let reports: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic").expect("a run")).collect();
    let report = reports[0].as_ref().expect("the root's report");
    assert!(report.rounds > 5, "2 s hold more than four windows now");
    let mut counted = [[0; 2]; 2];
    for (node, counted) in counted.iter_mut().enumerate() {
        let text = std::fs::read_to_string(out.join(format!("windows/node{node}.jsonl"))).expect("the node's windows");
        let windows: Vec<NodeWindowData> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let length = |window: &NodeWindowData| (window.window_end - window.window_start).as_ns();
        assert!(length(&windows[0]) > 2 * length(windows.last().expect("windows")), "node {node}");
        for packets in windows.iter().flat_map(|window| &window.packets) {
            assert_eq!(packets.peer.index(), 1 - node);
            counted[0] += packets.sent;
            counted[1] += packets.received;
        }
    }
    // The windows tile the run: together they hold what the account holds, but for what came after the last cut.
    for direction in &report.packets {
        let (src, dst) = (direction.src.index(), direction.dst.index());
        let [sent, received] = [counted[src][0], counted[dst][1]];
        assert!((100..=direction.sent).contains(&sent), "{direction:?}, {counted:?}");
        assert!((100..=direction.received).contains(&received), "{direction:?}, {counted:?}");
    }
}

#[test]
fn a_target_that_is_easy_lengthens_the_cadence_and_is_reported() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let easy = || Config {
        adaptive: true,
        target_error: Some(Duration::from_ms(1)),
        budget_cpu: Some(0.5),
        ..config(directory.path())
    };
    let mut results = ranks((0..3).map(|_| Ok(easy())).collect(), None);
    let report = results.remove(0).expect("the root's run").expect("the root's report");
    let pacing = report.pacing.expect("an adaptive run");
    assert_eq!((pacing.rounds, pacing.nodes_judged, pacing.nodes_within), (4, 2, 2), "{pacing:?}");
    assert!(pacing.final_cadence_ns > 3 * pacing.configured_cadence_ns, "{pacing:?}");
    assert_eq!(pacing.shortest_cadence_ns, pacing.configured_cadence_ns, "{pacing:?}");
    // 500 ms at 800 µs are 625 exchanges in the first window, and more are lost to slower windows than not.
    let planned = pacing.exchanges_per_host / pacing.exchanges_per_host_fixed;
    let started = report.counters["exchanges_started"] as f64 / 2_500.0;
    assert!(planned < 0.7 && started < 0.8, "{planned} planned, {started} started");
    let text = std::fs::read_to_string(directory.path().join("out/run.json")).expect("run.json");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["pacing"]["final_cadence_ns"], pacing.final_cadence_ns);
    assert_eq!(document["configuration"]["adaptive"], "true");
}

/// Adds an edge after the first round, and takes it away after the third.
struct Join(Edge);

impl Policy for Join {
    fn next(&mut self, round: &GlobalWindowData, _: &[NodeWindowData], current: &Pace) -> Pace {
        let extra_edges = if (0..3).contains(&round.round_id.0) { vec![self.0] } else { Vec::new() };
        Pace { extra_edges, ..current.clone() }
    }
}

#[test]
fn all_ranks_probe_the_edges_that_the_master_adds() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let out = directory.path().join("out");
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = InProcess::group(4)
        .into_iter()
        .map(|mut collective| {
            let config = Config {
                neighbors: Some(2),
                window: Duration::from_ms(200),
                duration: None,
                ..config(directory.path())
            };
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let context = Context { stop: Arc::clone(&stop), towards_root: None };
                let mut observer = Counting { rounds: 0, stop_after: Some((7, stop)) };
                // The ring is 0→1→2→3→0, so 3 never probes 1 by itself.
                run_with_policy(Ok(config), &mut collective, &context, &mut observer, &mut Join(Edge::new(3, 1)))
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| drop(thread.join().expect("no panic").expect("a run")));
    let text = std::fs::read_to_string(out.join("windows/node3.jsonl")).expect("the node's windows");
    let windows: Vec<NodeWindowData> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let probed = |window: &NodeWindowData| window.edges.iter().any(|edge| edge.dst_node_id.0 == 1);
    let found: Vec<bool> = windows.iter().map(probed).collect();
    assert_eq!((found[0], found[2], found.last()), (false, true, Some(&false)), "{found:?}");
}

#[test]
fn one_unusable_configuration_refuses_all_ranks_alike() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut wrong = config(directory.path());
    let error = wrong.set("window", "soon", "--window").expect_err("no duration");
    let results = ranks(vec![Ok(config(directory.path())), Err(error)], None);
    let said: Vec<String> = results.into_iter().map(|result| result.expect_err("refused").to_string()).collect();
    assert_eq!(said[0], said[1]);
    assert!(said[0].contains("rank 1") && said[0].contains("--window"), "{said:?}");
}
