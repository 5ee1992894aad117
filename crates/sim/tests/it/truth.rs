//! Every stamp agrees with the true clocks: the constraints that estimates rest on hold for the
//! truth.

use probe_sync_sim::{Clocks, Network, Outcome, Scenario, Simulation};
use probe_sync_time::{Duration, Edge, Exchange, System, Timestamp};

/// theta = offset_dst − offset_src at the true time at which the source's clock shows `at`, ns.
fn theta(outcome: &Outcome, edge: Edge, at: Timestamp<System>) -> f64 {
    let source = &outcome.clocks[edge.src.index()];
    // Two steps of the inverse: rates are below 1e-4, so the second correction is below 1e-8 of the
    // offset.
    let mut real = at;
    for _ in 0..3 {
        real = at - Duration::from_ns_f64(source.error_ns(real));
    }
    outcome.offset_ns(edge.dst, real.on_reference()) - outcome.offset_ns(edge.src, real.on_reference())
}

#[test]
fn forward_packets_bound_the_truth_from_above_and_reverse_packets_from_below() {
    let base = Scenario::new(6);
    let scenario = Scenario {
        clocks: Clocks { wander_ppm: 0.05, ..base.clocks },
        network: Network { asymmetry_ns_max: 3_000, ..base.network },
        ..base
    };
    let outcome = Simulation::new(scenario.clone(), 5).expect("a sound scenario").run(Duration::from_ms(2_000));
    let delay = scenario.network.delay_ns as f64;
    let mut count = 0;
    for exchange in outcome.exchanges.values().flatten() {
        for (at, u) in exchange.forward() {
            let excess = u.as_ns_f64() - theta(&outcome, exchange.edge, at) - delay;
            assert!((-3.0..60_000.0).contains(&excess), "{exchange:?}: forward delay {excess} above the floor");
        }
        for (at, l) in exchange.reverse() {
            let excess = theta(&outcome, exchange.edge, at) - l.as_ns_f64() - delay;
            assert!((-3.0..60_000.0).contains(&excess), "{exchange:?}: reverse delay {excess} above the floor");
        }
        count += 1;
    }
    assert!(count > 5_000, "{count} exchanges");
    assert!(outcome.exchanges.values().all(|list| list.len() > 100), "every edge is probed");
}

#[test]
fn each_direction_has_a_constant_of_its_own() {
    let base = Scenario::new(6);
    let clocks = Clocks { offset_ns_max: 0, skew_ppm_max: 0.0, ..base.clocks };
    let network = Network { asymmetry_ns_max: 1_000_000, queueing_ns_mean: 0.0, ..base.network };
    let scenario = Scenario { clocks, network, ..base };
    let outcome = Simulation::new(scenario, 7).expect("a sound scenario").run(Duration::from_ms(200));
    let mut delays = Vec::new();
    for exchanges in outcome.exchanges.values() {
        let of = |exchange: &Exchange| [exchange.forward()[0].1, -exchange.reverse()[0].1];
        assert!(exchanges.iter().all(|exchange| of(exchange) == of(&exchanges[0])), "constant");
        delays.extend(of(&exchanges[0]));
    }
    delays.sort_unstable();
    delays.dedup();
    assert_eq!(delays.len(), 30, "two directions of 15 pairs");
}

#[test]
fn a_thousand_nodes_run() {
    let scenario = Scenario { gap: Duration::from_ms(20), ..Scenario::new(1000) };
    let outcome = Simulation::new(scenario, 6).expect("a sound scenario").run(Duration::from_ms(200));
    let finished: usize = outcome.exchanges.values().map(Vec::len).sum();
    assert_eq!(outcome.exchanges.len(), 5000);
    assert!(finished > 9_000, "{finished} exchanges");
}
