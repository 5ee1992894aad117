//! The whole pure chain on simulated packets: endpoints → edge fits → graph → offsets with bounds,
//! held against the truth.

use probe_sync_estimate::edge_fit::{EdgeWindow, FitOptions, fit};
use probe_sync_estimate::graph::{GraphInput, GraphOptions, GraphSolution, solve};
use probe_sync_lines::EdgeFit;
use probe_sync_sim::{Clocks, Network, Outcome, Scenario, Simulation, Stamps};
use probe_sync_time::{Duration, NodeId, System, Timestamp};

const RUN: Duration = Duration::from_ms(2_000);

fn sixteen() -> Scenario {
    let quiet = Scenario::new(16);
    Scenario {
        clocks: Clocks { wander_ppm: 0.0, ..quiet.clocks },
        network: Network { asymmetry_ns_max: 400, queueing_ns_mean: 2_000.0, loss: 0.01, ..quiet.network },
        stamps: Stamps { noise_ns_max: 2, ..quiet.stamps },
        ..quiet
    }
}

/// Middle of the run on node 0's clock.
fn middle(outcome: &Outcome) -> Timestamp<System> {
    outcome.start + Duration::from_ns(RUN.as_ns() / 2)
}

/// Fits every edge about the middle of the run as the edge's source sees it, `misplaced` later.
fn edges(outcome: &Outcome, misplaced: Duration) -> Vec<EdgeFit> {
    let middle = middle(outcome);
    let windows = outcome.exchanges.iter().map(|(edge, exchanges)| {
        let midpoint = outcome.clocks[edge.src.index()].apply(middle) + misplaced;
        EdgeWindow { edge: *edge, midpoint, exchanges, lost: 0, stamp_errors_ns: [0.0; 2] }
    });
    windows.filter_map(|window| fit(&window, &FitOptions::default())).collect()
}

fn solved(outcome: &Outcome, edges: &[EdgeFit]) -> GraphSolution {
    let nodes = outcome.clocks.len();
    let reference_midpoint = middle(outcome).on_reference();
    let input = GraphInput { nodes, reference: NodeId(0), reference_midpoint, edges };
    solve(&input, &GraphOptions::default()).expect("the edges join existing nodes")
}

/// Every truth lies inside its hard interval; returns errors and claimed standard deviations of
/// nodes 1 and up, ns.
fn check(outcome: &Outcome, solution: &GraphSolution) -> Vec<(f64, f64)> {
    let at = middle(outcome);
    let judged = solution.nodes.iter().skip(1).map(|node| {
        let truth = outcome.offset_ns(node.node_id, at.on_reference());
        assert!(node.reachable && node.converged, "{node:?}");
        assert!(node.bound_lo_ns <= truth && truth <= node.bound_hi_ns, "truth {truth} outside {node:?}");
        // Each hop from node 0 adds a round trip of 20 µs, and two hops reach every node. All
        // packets queue, and up to 800 ns are for rates that may change between those that hardly
        // did.
        assert!(node.bound_hi_ns - node.bound_lo_ns < 2.0 * 21_800.0, "more than two round trips: {node:?}");
        let drift = outcome.clocks[node.node_id.index()].rate_ppm(at);
        assert!((node.drift_ppm - drift).abs() < 1.0, "drift {drift} against {node:?}");
        (node.offset_ns - truth, node.sigma_ns)
    });
    judged.collect()
}

#[test]
fn sixteen_nodes_are_found_within_their_bounds() {
    let mut judged = Vec::new();
    for seed in 0..10 {
        let outcome = Simulation::new(sixteen(), seed).expect("a sound scenario").run(RUN);
        let solution = solved(&outcome, &edges(&outcome, Duration::ZERO));
        assert!(solution.excluded.is_empty(), "{:?}", solution.excluded);
        judged.extend(check(&outcome, &solution));
    }
    let worst = judged.iter().map(|(error, _)| error.abs()).fold(0.0, f64::max);
    let within = judged.iter().filter(|(error, sigma)| error.abs() <= 1.96 * sigma).count();
    let widest = judged.iter().map(|(_, sigma)| 1.96 * sigma).fold(0.0, f64::max);
    assert!(worst < 200.0, "worst error {worst} ns");
    assert!(within * 100 >= judged.len() * 90, "95 % intervals hold {within} of {}", judged.len());
    // Honest, but not absurd: a tenth of the one-way delay, which asymmetry alone could take up.
    assert!(widest < 1_000.0, "widest 95 % half-width {widest} ns");
}

#[test]
fn a_first_round_with_midpoints_20_ms_off_is_as_good() {
    let outcome = Simulation::new(sixteen(), 3).expect("a sound scenario").run(RUN);
    let in_place = check(&outcome, &solved(&outcome, &edges(&outcome, Duration::ZERO)));
    let misplaced = check(&outcome, &solved(&outcome, &edges(&outcome, Duration::from_ms(20))));
    for ((placed, _), (moved, _)) in in_place.iter().zip(&misplaced) {
        assert!((placed - moved).abs() < 30.0, "{placed} ns in place, {moved} ns misplaced");
    }
}
