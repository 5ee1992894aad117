//! A run that is driven window by window is the run that is made in one go, and can be steered.

use std::collections::BTreeMap;

use probe_sync_estimate::round::WindowCut;
use probe_sync_sim::{Network, Running, Scenario, Simulation};
use probe_sync_time::{Duration, Edge, Exchange, NodeId};

fn lossy() -> Simulation {
    let quiet = Scenario::new(5);
    let network = Network { loss: 0.2, ..quiet.network };
    let exchange_timeout = Duration::from_ms(100);
    Simulation::new(Scenario { network, exchange_timeout, ..quiet }, 11).expect("a sound scenario")
}

/// Advances by `window` and cuts, `windows` times.
fn cuts(running: &mut Running<'_>, window: Duration, windows: u32) -> Vec<Vec<WindowCut>> {
    let cut = |_| {
        running.advance_to(running.now() + window);
        running.cut()
    };
    (0..windows).map(cut).collect()
}

#[test]
fn windows_hold_exactly_what_the_whole_run_holds() {
    let simulation = lossy();
    let whole = simulation.run(Duration::from_ms(900));
    let mut running = simulation.start(Duration::from_ms(900));
    let windows = cuts(&mut running, Duration::from_ms(300), 3);
    let rest = running.finish();
    let mut joined: BTreeMap<Edge, Vec<Exchange>> = BTreeMap::new();
    for edge in windows.iter().flatten().flat_map(|cut| &cut.edges) {
        joined.entry(edge.edge).or_default().extend(&edge.exchanges);
    }
    for (edge, exchanges) in &rest.exchanges {
        joined.entry(*edge).or_default().extend(exchanges);
    }
    assert_eq!(joined, whole.exchanges);
    assert_eq!((rest.counters, rest.ground_truth, rest.end), (whole.counters, whole.ground_truth, whole.end));
    let lost: u32 = windows.iter().flatten().flat_map(|cut| &cut.edges).map(|edge| edge.lost).sum();
    assert!(lost > 100, "{lost} of some 4500 exchanges lost, of six packets that are lost at 20 %");
}

#[test]
fn windows_join_without_a_gap_on_each_nodes_clock() {
    let simulation = lossy();
    let mut running = simulation.start(Duration::from_ms(300));
    let windows = cuts(&mut running, Duration::from_ms(100), 3);
    for node in 0..5 {
        let clock = running.clocks()[node].clone();
        let mut expected = clock.apply(Simulation::START).as_ns();
        for (window, cut) in windows.iter().enumerate() {
            assert_eq!(cut[node].node, NodeId(node as u32));
            assert_eq!(cut[node].start.as_ns(), expected);
            expected = clock.apply(Simulation::START + Duration::from_ms(100 * (window as i64 + 1))).as_ns();
            assert_eq!(cut[node].end.as_ns(), expected);
        }
    }
}

#[test]
fn a_longer_gap_makes_fewer_packets_from_then_on() {
    let quiet = Simulation::new(Scenario::new(4), 2).expect("a sound scenario");
    let mut running = quiet.start(Duration::from_ms(400));
    running.advance_to(Simulation::START + Duration::from_ms(200));
    let fast = running.packets_sent();
    (0..4).for_each(|node| running.set_gap(NodeId(node), Duration::from_ms(20)));
    running.advance_to(Simulation::START + Duration::from_ms(400));
    let slow = running.packets_sent() - fast;
    // Four nodes, six packets per exchange, one exchange per 2 ms and then per 20 ms.
    assert!((2350..=2450).contains(&fast), "{fast} packets in the first half");
    assert!((220..=264).contains(&slow), "{slow} packets in the second half");
}
