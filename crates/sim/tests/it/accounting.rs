//! What the endpoints counted is exactly what the network did, packet by packet and reason by
//! reason.

use probe_sync_probe::PeerCounters;
use probe_sync_sim::{DirectionCounts, Network, Outcome, Scenario, Simulation, Stamps};
use probe_sync_time::{Duration, NodeId};

fn run(scenario: &Scenario, seed: u64, duration: Duration) -> Outcome {
    Simulation::new(scenario.clone(), seed).expect("a sound scenario").run(duration)
}

/// What node `node` counted about `peer`.
fn about(outcome: &Outcome, node: NodeId, peer: NodeId) -> PeerCounters {
    outcome.counters[node.index()].peers.get(&peer).copied().unwrap_or_default()
}

/// Holds every counter against the ground truth; returns the ground truth's sum over all
/// directions, and how many packets came late.
fn check(name: &str, scenario: &Scenario, seed: u64) -> (DirectionCounts, u64) {
    let outcome = run(scenario, seed, Duration::from_ms(400));
    let (mut sum, mut late) = (DirectionCounts::default(), 0);
    for (&(from, to), truth) in &outcome.ground_truth.directions {
        let (sender, receiver) = (about(&outcome, from, to), about(&outcome, to, from));
        let case = format!("{name}, {from}→{to}: {truth:?}\n{sender:?}\n{receiver:?}");
        assert_eq!(sender.sent, truth.sent, "sent: {case}");
        assert_eq!(sender.send_failed, truth.unsendable, "unsendable: {case}");
        assert_eq!(sender.missing_tx_stamps, truth.stamps_withheld, "stamps: {case}");
        assert_eq!(receiver.received, truth.delivered, "received: {case}");
        assert_eq!(receiver.duplicates, truth.duplicates, "duplicates: {case}");
        assert!(receiver.late + receiver.duplicates <= receiver.received, "late: {case}");
        assert_eq!(receiver.too_old, 0, "too old: {case}");
        assert_eq!(receiver.out_of_state, 0, "out of state: {case}");
        assert_eq!(sender.sent - receiver.first_copies(), truth.dropped, "lost: {case}");
        late += receiver.late;
        sum.sent += truth.sent;
        sum.dropped += truth.dropped;
        sum.duplicates += truth.duplicates;
        sum.unsendable += truth.unsendable;
        sum.stamps_withheld += truth.stamps_withheld;
    }
    for (node, counters) in outcome.counters.iter().enumerate() {
        assert_eq!(counters.foreign, outcome.ground_truth.foreign[node], "{name}, node {node}");
        let exchanges = counters.total().exchanges;
        assert_eq!(exchanges.in_flight(), 0, "{name}, node {node}");
        let finished = outcome.exchanges.iter().filter(|(edge, _)| edge.src.index() == node);
        assert_eq!(exchanges.finished, finished.map(|(_, list)| list.len() as u64).sum::<u64>(), "{name}, node {node}");
    }
    (sum, late)
}

fn hostile(nodes: u32) -> Scenario {
    let quiet = Scenario::new(nodes);
    Scenario {
        gap: Duration::from_us(800),
        exchange_timeout: Duration::from_ms(10),
        network: Network {
            delay_ns: 500_000,
            asymmetry_ns_max: 100_000,
            queueing_ns_mean: 200_000.0,
            loss: 0.03,
            duplication: 0.03,
            straggling: 0.03,
            straggling_ns: 11_000_000,
            foreign: 0.05,
            ..quiet.network
        },
        stamps: Stamps { missing: 0.02, unsendable: 0.02, noise_ns_max: 5, ..quiet.stamps },
        ..quiet
    }
}

#[test]
fn a_quiet_network_loses_nothing() {
    let (sum, late) = check("quiet", &Scenario::new(8), 1);
    assert!(sum.sent > 5_000 && late == 0);
    assert_eq!(sum, DirectionCounts { sent: sum.sent, ..Default::default() });
    let outcome = run(&Scenario::new(8), 1, Duration::from_ms(400));
    let total: u64 = outcome.counters.iter().map(|counters| counters.total().exchanges.lost()).sum();
    assert_eq!(total, 0, "no exchange is lost either");
}

#[test]
fn losses_alone() {
    let quiet = Scenario::new(4);
    let network = Network { loss: 0.01, ..quiet.network };
    let (sum, late) = check("1 % loss", &Scenario { network, ..quiet }, 2);
    assert!(sum.dropped > 0 && sum.duplicates + late == 0);
}

#[test]
fn everything_at_once_for_many_seeds() {
    for seed in 0..20 {
        let (sum, late) = check(&format!("hostile, seed {seed}"), &hostile(5), seed);
        let kinds = [sum.dropped, sum.duplicates, late, sum.unsendable, sum.stamps_withheld];
        assert!(kinds.iter().all(|count| *count > 20), "the scenario must exercise every counter: {sum:?}");
    }
}

#[test]
fn two_nodes_that_probe_each_other() {
    check("pair", &hostile(2), 3);
}

#[test]
fn every_reason_of_foreign_datagrams_occurs() {
    let outcome = run(&hostile(5), 4, Duration::from_ms(400));
    let sum = outcome.ground_truth.foreign.iter().fold([0; 8], |sum, f| {
        let reasons = [f.length, f.magic, f.version, f.kind, f.run, f.destination, f.source, f.stamps];
        std::array::from_fn(|i| sum[i] + reasons[i])
    });
    assert!(sum.iter().all(|count| *count > 10), "{sum:?}");
}

#[test]
fn same_seed_same_bytes() {
    let duration = Duration::from_ms(200);
    let first = run(&hostile(6), 9, duration);
    assert_eq!(first, run(&hostile(6), 9, duration));
    assert_ne!(first, run(&hostile(6), 10, duration));
}
