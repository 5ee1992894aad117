//! The library as a launcher links it: ranks bring a `Collective`, real packets on loopback.

mod clock;
mod ends;
mod late;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use probe_sync::collective::InProcess;
use probe_sync::{Config, Context, Counter, Driver, Error, Observer, RunReport, Started, run};
use probe_sync_lines::Round;
use probe_sync_time::{Duration, NodeId};

/// Counts its notifications, and ends the run after some rounds if requested.
struct Counting {
    rounds: usize,
    stop_after: Option<(usize, Arc<AtomicBool>)>,
}

impl Observer for Counting {
    fn started(&mut self, started: &Started<'_>) {
        assert_eq!(started.clocks, 1);
    }

    fn round(&mut self, round: &Round, _latency: StdDuration) {
        assert_eq!(round.round_id.0, self.rounds as u64);
        self.rounds += 1;
        if let Some((rounds, stop)) = &self.stop_after
            && self.rounds == *rounds
        {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Runs `configs.len()` ranks as threads; returns their results in order of rank.
fn ranks(configs: Vec<Result<Config, Error>>, stop_after: Option<usize>) -> Vec<Result<Option<RunReport>, Error>> {
    let stop = Arc::new(AtomicBool::new(false));
    let group = InProcess::group(configs.len());
    let spawn = |(config, mut collective): (Result<Config, Error>, InProcess)| {
        let context = Context { stop: Arc::clone(&stop), ..Context::default() };
        let stop_after = stop_after.map(|rounds| (rounds, Arc::clone(&stop)));
        std::thread::spawn(move || match config {
            Ok(config) => run(config, &mut collective, &context, &mut Counting { rounds: 0, stop_after }),
            Err(error) => Err(Driver::refuse(error, &mut collective, &context)),
        })
    };
    let threads: Vec<_> = configs.into_iter().zip(group).map(spawn).collect();
    threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
}

fn config(out: &std::path::Path) -> Config {
    Config {
        window: Some(Duration::from_ms(500)),
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
    let long = || Ok(Config { duration: Some(Duration::from_ms(600_000)), ..config(directory.path()) });
    let mut results = ranks((0..2).map(|_| long()).collect(), Some(2));
    let report = results.remove(0).expect("the root's run").expect("the root's report");
    assert!(report.interrupted && report.rounds >= 2, "{report:?}");
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
    // 500 ms at 800 µs are 625 exchanges in the first window, and more are lost to slower windows
    // than not.
    let planned = pacing.exchanges_per_host / pacing.exchanges_per_host_fixed;
    let started = report.counters[&Counter::ExchangesStarted] as f64 / 2_500.0;
    assert!(planned < 0.7 && started < 0.8, "{planned} planned, {started} started");
    let text = std::fs::read_to_string(directory.path().join("out/run.json")).expect("run.json");
    let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(document["pacing"]["final_cadence_ns"], pacing.final_cadence_ns);
    assert_eq!(document["configuration"]["adaptive"], "true");
}

#[test]
fn any_node_can_be_the_reference() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let against = |text: &str| {
        let mut config = config(directory.path());
        config.set("reference", text, "--reference")?;
        Ok(config)
    };
    let mut results = ranks((0..3).map(|_| against("2")).collect(), None);
    let report = results.remove(0).expect("the root's run").expect("the root's report");
    assert_eq!((report.reference, report.nodes[2].offset_ns), (NodeId(2), 0.0));
    let truth = report.truth.expect("known truth");
    assert_eq!((truth.judged, truth.outside_hard_interval), (6, 0), "{truth:?}");
    assert!(truth.worst_error_ns < 20_000.0, "{truth:?}");
    // Node 0 has the real clock; against node 2's it is as wrong as that one is.
    assert!(report.nodes[0].true_offset_ns.is_some_and(|offset| offset.abs() > 20_000.0), "{:?}", report.nodes);

    let mut results = ranks((0..2).map(|_| against("auto")).collect(), None);
    let report = results.remove(0).expect("the root's run").expect("the root's report");
    assert_eq!(report.reference, NodeId(0), "all have the same timestamps");

    for result in ranks((0..2).map(|_| against("9")).collect(), None) {
        let said = result.expect_err("refused").to_string();
        assert!(said.contains("reference names node 9") && said.contains("2 nodes"), "{said}");
    }
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
