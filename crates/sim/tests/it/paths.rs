//! What packets meet on their way, against the laws that the scenario states.

use probe_sync_sim::{Clocks, Network, Outcome, Scenario, Simulation, Stamps};
use probe_sync_time::{Duration, Edge};

/// Perfect clocks and stamps on a network that adds nothing but its base delay.
fn bare(nodes: u32) -> Scenario {
    let base = Scenario::new(nodes);
    Scenario {
        gap: Duration::from_ms(1),
        clocks: Clocks { offset_ns_max: 0, skew_ppm_max: 0.0, ..base.clocks },
        network: Network { queueing_ns_mean: 0.0, ..base.network },
        ..base
    }
}

fn run(scenario: Scenario, ms: i64) -> (Simulation, Outcome) {
    let simulation = Simulation::new(scenario, 5).expect("a sound scenario");
    let outcome = simulation.run(Duration::from_ms(ms));
    (simulation, outcome)
}

/// Forward and reverse delays of an edge's packets, ns: pairs of the coded packets.
fn delays(outcome: &Outcome, edge: Edge) -> (Vec<[f64; 2]>, Vec<[f64; 2]>) {
    let exchanges = &outcome.exchanges[&edge];
    let forward = exchanges.iter().map(|exchange| exchange.forward().map(|(_, u)| u.as_ns_f64()));
    let reverse = exchanges.iter().map(|exchange| exchange.reverse().map(|(_, l)| -l.as_ns_f64()));
    (forward.collect(), reverse.collect())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn sd(values: &[f64]) -> f64 {
    let mean = mean(values);
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

#[test]
fn pairs_differ_in_base_delay_and_asymmetry() {
    let base = bare(40);
    let network = Network { delay_ns: 4_000, delay_spread_ns: 4_000, asymmetry_sd_ns: 50.0, ..base.network };
    let (simulation, outcome) = run(Scenario { network, neighbors: 12, gap: Duration::from_ms(5), ..base }, 200);
    let (mut bases, mut biases) = (Vec::new(), Vec::new());
    for edge in simulation.edges() {
        let (forward, reverse) = delays(&outcome, *edge);
        let (forward, reverse) = (forward[0][0], reverse[0][0]);
        bases.push((forward + reverse) / 2.0);
        biases.push((forward - reverse) / 2.0);
        // Delays are whole ns.
        assert!((biases.last().expect("pushed") - simulation.asymmetry_ns(*edge)).abs() <= 1.0, "{edge:?}");
    }
    assert_eq!(biases.len(), 240);
    assert!(bases.iter().all(|base| (4_000.0..=8_000.0).contains(base)));
    // Standard errors of 240 draws: 75 ns of the bases' mean, 3 ns of the biases' mean, 5 % of
    // their spread.
    assert!((mean(&bases) - 6_000.0).abs() < 225.0 && (sd(&bases) - 4_000.0 / 12f64.sqrt()).abs() < 120.0);
    assert!(mean(&biases).abs() < 10.0 && (sd(&biases) - 50.0).abs() < 8.0, "{} ± {}", mean(&biases), sd(&biases));
}

#[test]
fn the_packets_of_a_coded_pair_meet_the_same_queue() {
    let base = bare(2);
    let network = Network { load: 0.8, ..base.network };
    let (simulation, outcome) = run(Scenario { network, ..base }, 4_000);
    let (forward, reverse) = delays(&outcome, simulation.edges()[0]);
    let waits = |pairs: &[[f64; 2]]| -> Vec<f64> { pairs.iter().map(|pair| pair[0] - 10_000.0).collect() };
    let (forward_waits, reverse_waits) = (waits(&forward), waits(&reverse));
    // 4000 packets, of which those within 4 ms are correlated: a few hundred independent ones.
    for waits in [&forward_waits, &reverse_waits] {
        let free = waits.iter().filter(|wait| wait.abs() < 1.0).count() as f64 / waits.len() as f64;
        assert!((free - 0.2).abs() < 0.06, "{free} wait for nothing");
        assert!((mean(waits) / 80_000.0 - 1.0).abs() < 0.25, "mean wait {} ns", mean(waits));
    }
    let correlation = |first: &[f64], second: &[f64]| {
        let products = first.iter().zip(second).map(|(a, b)| (a - mean(first)) * (b - mean(second)));
        products.sum::<f64>() / first.len() as f64 / (sd(first) * sd(second))
    };
    let seconds: Vec<f64> = forward.iter().map(|pair| pair[1] - 10_000.0).collect();
    assert!(correlation(&forward_waits, &seconds) > 0.8, "100 µs apart");
    let count = forward_waits.len().min(reverse_waits.len());
    assert!(
        correlation(&forward_waits[..count], &reverse_waits[..count]).abs() < 0.15,
        "directions have queues of their own"
    );
}

#[test]
fn loads_differ_and_change_as_told() {
    let base = bare(12);
    let free_parts = |load_spread, load_change_s| -> Vec<f64> {
        let network = Network { load: 0.4, load_spread, load_change_s, ..base.network };
        let (_, outcome) = run(Scenario { network, neighbors: 11, ..base.clone() }, 1_000);
        let parts = outcome.exchanges.keys().map(|edge| {
            let (forward, _) = delays(&outcome, *edge);
            forward.iter().filter(|pair| pair[0] == 10_000.0).count() as f64 / forward.len() as f64
        });
        parts.collect()
    };
    let (same, different, changing) = (free_parts(0.0, 0.0), free_parts(0.3, 0.0), free_parts(0.3, 0.02));
    for parts in [&same, &different, &changing] {
        assert!((mean(parts) - 0.6).abs() < 0.05, "{} of packets wait for nothing", mean(parts));
    }
    // Each edge counts some 180 packets: 0.04 by chance. Uniform loads ± 0.3 add 0.17, unless they
    // change all the time.
    assert!(
        sd(&same) < 0.06 && sd(&different) > 0.13 && sd(&changing) < 0.08,
        "{} {} {}",
        sd(&same),
        sd(&different),
        sd(&changing)
    );
}

#[test]
fn software_makes_packets_seem_longer_under_way() {
    let base = bare(2);
    let stamps = Stamps { late_ns_mean: 500.0, ..base.stamps };
    let (simulation, outcome) = run(Scenario { stamps, ..base }, 4_000);
    let (forward, reverse) = delays(&outcome, simulation.edges()[0]);
    for delays in [forward, reverse] {
        let excess: Vec<f64> = delays.iter().map(|pair| pair[0] - 10_000.0).collect();
        // Two exponential times: mean 1000, standard deviation 707.
        assert!(excess.iter().all(|excess| *excess >= -1.0));
        assert!(
            (mean(&excess) - 1_000.0).abs() < 50.0 && (sd(&excess) - 707.0).abs() < 60.0,
            "{} ± {}",
            mean(&excess),
            sd(&excess)
        );
    }
}

#[test]
fn a_rate_per_edge_is_kept_on_every_edge() {
    let scenario = Scenario { pairs_per_second: Some(50.0), neighbors: 5, ..bare(9) };
    let (_, outcome) = run(scenario, 2_000);
    for (edge, exchanges) in &outcome.exchanges {
        assert!((98..=101).contains(&exchanges.len()), "{edge:?}: {} exchanges in 2 s", exchanges.len());
    }
}
