//! Traces that begin long after the measurement: what `align --extrapolate` writes holds the truth
//! within its bound.
//!
//! Simulated clocks wander for days, so that the truth is known. A run of 20 s is measured, and an
//! event each of two nodes is 1 s to 3 days after its end.

use std::path::Path;

use probe_sync_estimate::run::Smoothed;
use probe_sync_estimate::statistics::SIGMAS_95;
use probe_sync_sim::{Rounds, Scenario, Simulation, Thermal};
use probe_sync_time::{Duration, System, Timestamp};
use serde_json::{Value, json};

use crate::support::{complaint, output, probe_sync, text};

const GAPS_S: [i64; 7] = [1, 10, 60, 600, 3_600, 86_400, 259_200];
const NODES: u32 = 3;
/// A bound wider than this many mean errors says nothing.
const WIDEST: f64 = 100.0;

/// Of an event: its gap, how far its time is from the truth, and what is stated, a standard
/// deviation; ns.
struct Written {
    gap_s: i64,
    error_ns: f64,
    sigma_ns: f64,
}

/// Measures, and aligns traces behind it.
fn written(scenario: &Scenario, seed: u64, gaps_s: &[i64], folder: &Path) -> Vec<Written> {
    let (measured, window) = (Duration::from_ms(20_000), Duration::from_ms(1_000));
    let simulation = Simulation::new(scenario.clone(), seed).expect("a sound scenario");
    let mut rounds = Rounds::new(&simulation, measured, window).expect("windows fit");
    let mut solved = Vec::new();
    while let Some(round) = rounds.step() {
        solved.push(round.solved);
    }
    let longest = gaps_s.iter().max().expect("gaps") + 60;
    let run = simulation.start(measured + Duration::from_ms(longest * 1_000));
    let clocks = run.clocks();
    let at = |seconds: i64| Simulation::START + Duration::from_ms(1_000 * seconds);
    for (short, long) in rounds.running().clocks().iter().zip(clocks) {
        assert_eq!(short.apply(at(13)), long.apply(at(13)), "the same clock, drawn for longer");
    }
    let smoothed = Smoothed::new(rounds.options(), solved, None);
    let nodes: Vec<Value> =
        (0..NODES).map(|node| json!({"hostname": format!("host{node}"), "node_id": node})).collect();
    let mut lines = json!({"meta": true, "nodes": nodes, "reference": 0, "ranks": []}).to_string();
    for line in smoothed.knot_lines(smoothed.sufficient_knots().0) {
        lines += &format!("\n{}", serde_json::to_string(&line).expect("JSON"));
    }
    let offsets = folder.join("offsets.jsonl");
    std::fs::write(&offsets, lines + "\n").expect("writable");
    let base = Simulation::START.as_ns() / 1_000_000_000 * 1_000_000_000;
    let mut all = Vec::new();
    for gap_s in gaps_s {
        let moment = at(20 + gap_s);
        for node in 1..NODES {
            let shown = |clock: u32| clocks[clock as usize].apply(moment);
            let trace = folder.join(format!("node{node}_{gap_s}.json"));
            std::fs::write(&trace, kineto(node, base, shown(node))).expect("writable");
            let line = ["align", text(&trace), "--offsets", text(&offsets), "--nodes", &node.to_string(), "-o"];
            let aligned = folder.join("aligned.json");
            let refused = output(probe_sync(&[&line[..], &[text(&aligned)]].concat()));
            assert_eq!(refused.status.code(), Some(1), "{}", complaint(&refused));
            assert!(complaint(&refused).contains("--extrapolate") && !aligned.exists(), "{}", complaint(&refused));
            let done = output(probe_sync(&[&line[..], &[text(&aligned), "--extrapolate", "96h", "--json"]].concat()));
            assert!(done.status.success(), "{}", complaint(&done));
            let said: Value = serde_json::from_slice(&done.stdout).expect("JSON");
            let stated = &said["traces"][0]["alignment"];
            assert!(stated["extrapolated_after"].as_u64() > Some(0), "{stated}");
            let moved = stated["correction_ns"][1].as_f64().expect("a correction");
            let truth = (shown(0) - shown(node)).as_ns_f64();
            let sigma_ns = stated["uncertainty_ns"].as_f64().expect("an uncertainty");
            all.push(Written { gap_s: *gap_s, error_ns: (moved - truth).abs(), sigma_ns });
            std::fs::remove_file(&aligned).expect("written");
        }
    }
    all
}

/// A trace of a single instant.
fn kineto(rank: u32, base_ns: i64, at: Timestamp<System>) -> String {
    let ns = at.as_ns() - base_ns;
    let event = format!(
        r#"{{"ph": "i", "s": "t", "name": "late", "pid": 7, "tid": 7, "ts": {}.{:03}}}"#,
        ns / 1_000,
        ns % 1_000
    );
    format!(
        r#"{{"baseTimeNanoseconds": {base_ns}, "distributedInfo": {{"rank": {rank}, "world_size": {NODES}}}, "traceEvents": [{event}]}}"#
    )
}

fn check(name: &str, scenario: &Scenario, seeds: std::ops::Range<u64>, gaps_s: &[i64]) {
    let folder = tempfile::tempdir().expect("a folder");
    let all: Vec<Written> = seeds.flat_map(|seed| written(scenario, seed, gaps_s, folder.path())).collect();
    for gap_s in gaps_s {
        let of: Vec<&Written> = all.iter().filter(|written| written.gap_s == *gap_s).collect();
        let ratio = |written: &&&Written| written.error_ns / (SIGMAS_95 * written.sigma_ns);
        let worst = of.iter().map(|written| ratio(&written)).fold(0.0, f64::max);
        let held = of.iter().filter(|written| ratio(written) <= 1.0).count();
        let mean = |value: fn(&Written) -> f64| of.iter().map(|written| value(written)).sum::<f64>() / of.len() as f64;
        let (error, bound) = (mean(|of| of.error_ns), SIGMAS_95 * mean(|of| of.sigma_ns));
        println!(
            "{name}, {gap_s} s: {held} of {} within ±95 %, mean error {error:.0} ns, mean bound ±{bound:.0} ns, worst {worst:.2} bounds",
            of.len()
        );
        assert!(
            held * 20 >= of.len() * 18 && worst < 2.0,
            "{name}, {gap_s} s: {held} of {}, worst {worst:.2}",
            of.len()
        );
        assert!(bound < WIDEST * error.max(1.0), "{name}, {gap_s} s: ±{bound:.0} ns says nothing beside {error:.0} ns");
    }
}

/// Three nodes whose rates wander and whose temperature changes.
fn scenario(wander_ppm: f64, thermal: Thermal) -> Scenario {
    let mut scenario = Scenario { pairs_per_second: Some(20.0), ..Scenario::new(NODES) };
    (scenario.clocks.skew_ppm_max, scenario.clocks.offset_ns_max) = (30.0, 10_000_000);
    (scenario.clocks.wander_ppm, scenario.clocks.thermal) = (wander_ppm, thermal);
    scenario
}

#[test]
#[ignore = "long: solves runs with gaps of up to three days"]
fn what_is_extrapolated_holds_the_truth() {
    let quiet = Thermal { every_s: 0.0, sd_ppm: 0.0, tau_s: 0.0 };
    let warm = Thermal { every_s: 60.0, sd_ppm: 0.02, tau_s: 20.0 };
    check("wandering", &scenario(0.002, quiet), 1..9, &GAPS_S[..5]);
    check("warm and cold", &scenario(0.002, warm), 1..9, &GAPS_S[..5]);
    // Clocks of days are long lists.
    check("days", &scenario(0.002, warm), 1..12, &GAPS_S[5..]);
}
