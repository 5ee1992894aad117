//! Small runs judged from end to end.

use probe_sync_time::{Duration, NodeId};

use super::*;
use crate::scenario::{Scenario, Stamps};
use crate::{Error, Simulation, in_turn};

/// Five nodes for 12 s, 20 pairs/s, half loaded, paths asymmetric by 20 ns.
fn scenario() -> Scenario {
    let mut scenario = Scenario { neighbors: 4, pairs_per_second: Some(20.0), ..Scenario::new(5) };
    scenario.network.queueing_ns_mean = 0.0;
    scenario.network.load = 0.5;
    scenario.network.asymmetry_sd_ns = 20.0;
    scenario.stamps = Stamps::hardware();
    scenario
}

fn plan(methods: &[Method]) -> Plan {
    let (duration, window) = (Duration::from_ms(12_000), Duration::from_ms(4_000));
    Plan { duration, window, methods: methods.to_vec() }
}

fn judged(scenario: &Scenario, seed: u64, methods: &[Method]) -> SeedRun {
    judge(scenario, seed, &plan(methods), &|_| true, in_turn).expect("a sound scenario").expect("nobody stopped it")
}

#[test]
fn every_method_finds_the_offsets_of_a_small_run() {
    let run = judged(&scenario(), 1, &Method::ALL);
    assert_eq!(run, judged(&scenario(), 1, &Method::ALL), "the same seed");
    assert_eq!((run.methods.len(), run.edges, run.floor_ns.len()), (Method::ALL.len(), 10, 4));
    // Rough limits: milliseconds of offset are found to within what each method claims to do.
    let limit_ns = |method| match method {
        Method::Mean => 30_000.0,
        Method::Ntp => 2_000.0,
        _ => 500.0,
    };
    for (method, judgements) in &run.methods {
        assert_eq!(judgements.len(), 4 * 3, "{method:?}");
        for judgement in judgements {
            let error = judgement.error_ns().expect("an estimate").abs();
            assert!(error < limit_ns(*method), "{error} ns by {method:?}: {judgement:?}");
            let ours = matches!(method, Method::Hull | Method::Live | Method::Smooth | Method::Ours);
            assert_eq!((judgement.half_width_95_ns.is_some(), judgement.hard_ns.is_some()), (ours, ours));
            let [low, high] = judgement.hard_ns.unwrap_or([f64::NEG_INFINITY, f64::INFINITY]);
            assert!(low <= judgement.truth_ns && judgement.truth_ns <= high, "{judgement:?}");
        }
    }
    assert_eq!(run.between.len(), 4 * (2 * 3 + 2));
    assert!(run.between.iter().all(|judgement| judgement.error_ns().is_some_and(|error| error.abs() < 500.0)));
    let inside = |judgement: &Judgement| {
        judgement.hard_ns.is_some_and(|[low, high]| low <= judgement.truth_ns && judgement.truth_ns <= high)
    };
    assert!(run.between.iter().all(inside), "hard intervals hold between the middles too");
}

#[test]
fn any_node_can_be_the_reference() {
    let (usual, other) = (judged(&scenario(), 1, &Method::ALL), Scenario { reference: NodeId(3), ..scenario() });
    let run = judged(&other, 1, &Method::ALL);
    assert_eq!((run.packets, run.edges), (usual.packets, usual.edges), "the packets are the same");
    for (method, judgements) in &run.methods {
        let nodes: Vec<u32> = judgements[..4].iter().map(|judgement| judgement.node.0).collect();
        assert_eq!((nodes, judgements.len()), (vec![0, 1, 2, 4], 4 * 3), "{method:?}");
        let limit_ns = if matches!(method, Method::Mean) { 30_000.0 } else { 2_000.0 };
        assert!(judgements.iter().all(|judgement| judgement.error_ns().is_some_and(|error| error.abs() < limit_ns)));
    }
    assert_eq!(run.floor_ns.len(), 4);
}

#[test]
fn other_methods_change_nothing_for_one() {
    let all = judged(&scenario(), 2, &Method::ALL);
    let one = judged(&scenario(), 2, &[Method::Huygens]);
    assert_eq!(all.methods.iter().find(|(method, _)| *method == Method::Huygens), one.methods.first());
    assert_eq!((all.packets, &all.floor_ns), (one.packets, &one.floor_ns));
    assert_eq!(one.between, []);
}

#[test]
fn the_floor_of_two_nodes_is_the_asymmetry_of_their_path() {
    let mut scenario = Scenario { pairs_per_second: Some(20.0), ..Scenario::new(2) };
    scenario.network.asymmetry_sd_ns = 300.0;
    let simulation = Simulation::new(scenario.clone(), 3).expect("a sound scenario");
    let bias = simulation.asymmetry_ns(simulation.edges()[0]);
    let run = judged(&scenario, 3, &[Method::Hull]);
    assert!((run.floor_ns[0] - bias.abs()).abs() < 1e-6, "{:?} against {bias}", run.floor_ns);
    // And it is what remains: the offset found is off by just this much, but for some ns of noise.
    let error = run.methods[0].1[0].error_ns().expect("an estimate");
    assert!((error - bias).abs() < 60.0, "{error} against {bias}");
    scenario.network.asymmetry_sd_ns = 0.0;
    assert_eq!(judged(&scenario, 3, &[Method::Hull]).floor_ns, [0.0]);
}

#[test]
fn a_stopped_run_has_no_result_and_a_window_must_fit() {
    assert_eq!(judge(&scenario(), 1, &plan(&[Method::Hull]), &|_| false, in_turn), Ok(None));
    let plan = Plan { window: Duration::from_ms(20_000), ..plan(&[Method::Hull]) };
    assert!(matches!(judge(&scenario(), 1, &plan, &|_| true, in_turn), Err(Error::Window { .. })));
}
