//! Simulated rounds go through the code of a live run, also where the reference says nothing.

use probe_sync_sim::{Fault, FaultKind, Rounds, Scenario, Simulation};
use probe_sync_time::{Duration, NodeId};

const WINDOW: Duration = Duration::from_ms(1_000);

fn simulation(reference: NodeId, what: Option<FaultKind>) -> Simulation {
    let faults = what.into_iter().map(|what| Fault { start_s: 2.5, end_s: None, what }).collect();
    let scenario = Scenario { reference, faults, pairs_per_second: Some(40.0), ..Scenario::new(6) };
    Simulation::new(scenario, 4).expect("a sound scenario")
}

#[test]
fn a_silent_reference_still_has_a_clock() {
    let simulation = simulation(NodeId(2), Some(FaultKind::LateJoin { node: NodeId(2) }));
    let mut rounds = Rounds::new(&simulation, Duration::from_ms(5_000), WINDOW).expect("windows fit");
    for round in 0..5 {
        let solved = rounds.step().expect("five windows");
        let middle = Simulation::START + Duration::from_ms(1_000 * round + 500);
        let shown = rounds.running().clocks()[2].apply(middle);
        let silent = round < 2;
        assert_eq!(solved.cuts.len(), if silent { 5 } else { 6 }, "round {round}");
        if round != 2 {
            assert!((solved.midpoint().of_reference_node() - shown).as_ns().abs() <= 1, "round {round}");
        }
        let reached = solved.solved.data.all_nodes.iter().filter(|node| node.reachable).count();
        assert_eq!(reached, if silent { 1 } else { 6 }, "round {round}: {:?}", solved.solved.data.all_nodes);
    }
    assert!(rounds.step().is_none());
}

#[test]
fn offsets_are_those_against_the_reference() {
    let simulation = simulation(NodeId(4), None);
    let mut rounds = Rounds::new(&simulation, Duration::from_ms(3_000), WINDOW).expect("windows fit");
    while let Some(round) = rounds.step() {
        let data = &round.solved.data;
        assert_eq!(data.reference, NodeId(4));
        for node in &data.all_nodes {
            let truth_ns = rounds.running().offset_ns(node.node_id, round.midpoint());
            assert!((node.offset_ns - truth_ns).abs() < 500.0, "{truth_ns} ns against {node:?}");
            assert!(node.bound_lo_ns <= truth_ns && truth_ns <= node.bound_hi_ns, "{truth_ns} ns against {node:?}");
            assert_eq!(truth_ns == 0.0, node.node_id == NodeId(4));
        }
    }
}
