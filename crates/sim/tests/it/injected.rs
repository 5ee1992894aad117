//! Each kind of fault does what it says, when it says, and nothing else.

use probe_sync_estimate::round::WindowCut;
use probe_sync_sim::{Fault, FaultKind, Network, Outcome, Scenario, Simulation, WrongStamps};
use probe_sync_time::{Duration, Edge, Exchange, NodeId};

const FIVE: NodeId = NodeId(5);

/// Eight nodes for two seconds, all pairs probed; a fault from 0.5 s to 1 s unless it ends
/// otherwise.
fn scenario(what: Option<FaultKind>) -> Scenario {
    let base = Scenario::new(8);
    let faults = what.into_iter().map(|what| Fault { start_s: 0.5, end_s: Some(1.0), what });
    let network = Network { queueing_ns_mean: 0.0, ..base.network };
    Scenario { faults: faults.collect(), network, gap: Duration::from_ms(4), ..base }
}

fn run(what: Option<FaultKind>) -> Outcome {
    Simulation::new(scenario(what), 3).expect("a sound scenario").run(Duration::from_ms(2_000))
}

/// A run's cuts every 250 ms.
fn cuts(what: FaultKind) -> Vec<Vec<WindowCut>> {
    let simulation = Simulation::new(scenario(Some(what)), 3).expect("a sound scenario");
    let mut running = simulation.start(Duration::from_ms(2_000));
    let cut = |window: i64| {
        running.advance_to(Simulation::START + Duration::from_ms(250 * window));
        running.cut()
    };
    (1..=8).map(cut).collect()
}

/// When an exchange began, true time since the start, ms.
fn began_ms(outcome: &Outcome, exchange: &Exchange) -> f64 {
    let clock = &outcome.clocks[exchange.edge.src.index()];
    (clock.invert(exchange.t[0]) - outcome.start).as_ns_f64() * 1e-6
}

/// Apparent one-way delays in excess of 10 µs, ns: forward and reverse, each stamp freed from the
/// true clock errors.
fn excess(outcome: &Outcome, exchange: &Exchange) -> [f64; 2] {
    let (src, dst) = (&outcome.clocks[exchange.edge.src.index()], &outcome.clocks[exchange.edge.dst.index()]);
    let forward = dst.invert(exchange.t[1]) - src.invert(exchange.t[0]);
    let reverse = src.invert(exchange.t[5]) - dst.invert(exchange.t[4]);
    [forward.as_ns_f64() - 10_000.0, reverse.as_ns_f64() - 10_000.0]
}

/// Every exchange on every edge shows `expected(edge)` forward and reverse excess during the fault
/// and none before and after.
#[track_caller]
fn check(what: FaultKind, expected: impl Fn(Edge) -> [f64; 2]) {
    let outcome = run(Some(what));
    let mut during = 0;
    for exchange in outcome.exchanges.values().flatten() {
        let (found, began_ms) = (excess(&outcome, exchange), began_ms(&outcome, exchange));
        let expected = if (500.0..999.0).contains(&began_ms) {
            during += 1;
            expected(exchange.edge)
        } else if (499.0..1_001.0).contains(&began_ms) {
            continue;
        } else {
            [0.0; 2]
        };
        let close = (0..2).all(|way| (found[way] - expected[way]).abs() < 5.0);
        assert!(close, "{:?} at {began_ms} ms: {found:?}, expected {expected:?}", exchange.edge);
    }
    assert!(during > 500, "{during} exchanges");
}

#[test]
fn a_falseticker_is_wrong_alike_for_all_or_differently_for_each() {
    let falseticker = |per_peer, stamps| FaultKind::Falseticker {
        node: FIVE,
        constant_ns: 700.0,
        ramp_ns_per_s: 0.0,
        per_peer,
        stamps,
    };
    // A stamp that is ahead by d makes what arrives seem later and what leaves seem earlier.
    check(falseticker(false, WrongStamps::All), |edge| match edge {
        Edge { src: FIVE, .. } => [-700.0, 700.0],
        Edge { dst: FIVE, .. } => [700.0, -700.0],
        _ => [0.0; 2],
    });
    check(falseticker(false, WrongStamps::Receive), |edge| match edge {
        Edge { src: FIVE, .. } => [0.0, 700.0],
        Edge { dst: FIVE, .. } => [700.0, 0.0],
        _ => [0.0; 2],
    });
    // Peers 0, 1, 2, 3, 4, 6, 7 see −1, +1, −2, +2, −3, +3, −4 times the error.
    let error = |peer: NodeId| [-1.0, 1.0, -2.0, 2.0, -3.0, 0.0, 3.0, -4.0][peer.index()] * 700.0;
    check(falseticker(true, WrongStamps::All), |edge| match edge {
        Edge { src: FIVE, dst } => [-error(dst), error(dst)],
        Edge { src, dst: FIVE } => [error(src), -error(src)],
        _ => [0.0; 2],
    });
}

#[test]
fn a_ramp_grows() {
    let ramp = FaultKind::Falseticker {
        node: FIVE,
        constant_ns: 0.0,
        ramp_ns_per_s: 10_000.0,
        per_peer: false,
        stamps: WrongStamps::Receive,
    };
    let outcome = run(Some(ramp));
    let to_five = outcome.exchanges.iter().filter(|(edge, _)| edge.dst == FIVE).flat_map(|(_, list)| list);
    let during = to_five.map(|exchange| (began_ms(&outcome, exchange), excess(&outcome, exchange)[0]));
    let during: Vec<(f64, f64)> = during.filter(|(ms, _)| (500.0..999.0).contains(ms)).collect();
    assert!(during.len() > 100 && during.iter().all(|(ms, excess)| (excess - (ms - 500.0) * 10.0).abs() < 5.0));
}

#[test]
fn paths_change_one_way_or_both_ways() {
    let (src, dst) = (NodeId(2), NodeId(5));
    let hit = |edge: Edge, there: f64, back: f64| match (edge.src, edge.dst) {
        (from, to) if (from, to) == (src, dst) => [there, back],
        (from, to) if (from, to) == (dst, src) => [back, there],
        _ => [0.0; 2],
    };
    check(FaultKind::Asymmetry { src, dst, extra_ns: 5_000 }, |edge| hit(edge, 5_000.0, 0.0));
    check(FaultKind::RouteChange { src, dst, extra_ns: 5_000, both_ways: false }, |edge| hit(edge, 5_000.0, 0.0));
    check(FaultKind::RouteChange { src, dst, extra_ns: 12_000, both_ways: true }, |edge| hit(edge, 12_000.0, 12_000.0));
    check(FaultKind::RouteChange { src, dst, extra_ns: -4_000, both_ways: true }, |edge| hit(edge, -4_000.0, -4_000.0));
}

/// Packets lost between each pair of nodes, and packets sent.
fn losses(what: FaultKind) -> impl Fn(u32, u32) -> f64 {
    let directions = run(Some(what)).ground_truth.directions;
    move |from, to| {
        let counts = directions[&(NodeId(from), NodeId(to))];
        counts.dropped as f64 / counts.sent as f64
    }
}

#[test]
fn packets_are_lost_where_and_when_told() {
    // The fault lasts a quarter of the run, and what is sent in it gets less for want of answers.
    let all = losses(FaultKind::Loss { probability: 0.3, from: None, to: None, both_ways: false });
    assert!((0.04..0.1).contains(&all(1, 2)) && (0.04..0.1).contains(&all(5, 0)), "{} {}", all(1, 2), all(5, 0));
    let from = losses(FaultKind::Loss { probability: 0.5, from: Some(FIVE), to: None, both_ways: false });
    assert!(from(5, 0) > 0.05 && from(0, 5) == 0.0 && from(1, 2) == 0.0);
    let pair = losses(FaultKind::Loss { probability: 0.5, from: Some(FIVE), to: Some(NodeId(2)), both_ways: true });
    // Requests go on, answers get fewer.
    assert!(pair(5, 2).min(pair(2, 5)) > 0.01 && pair(5, 2).max(pair(2, 5)) > 0.05);
    assert!(pair(5, 1) == 0.0 && pair(1, 5) == 0.0);
    let cut = losses(FaultKind::Partition { nodes: vec![NodeId(6), NodeId(7)] });
    assert!(cut(6, 0) > 0.05 || cut(0, 6) > 0.05);
    assert_eq!([cut(6, 7), cut(7, 6), cut(0, 1), cut(4, 2)], [0.0; 4]);
}

#[test]
fn a_partition_ends_all_exchanges_across_it() {
    let outcome = run(Some(FaultKind::Partition { nodes: vec![NodeId(6), NodeId(7)] }));
    for exchange in outcome.exchanges.values().flatten() {
        let across = (exchange.edge.src.0 >= 6) != (exchange.edge.dst.0 >= 6);
        let began_ms = began_ms(&outcome, exchange);
        assert!(!(across && (500.0..999.0).contains(&began_ms)), "{exchange:?} at {began_ms} ms");
    }
    let healthy = &outcome.exchanges[&Edge::new(6, 7)];
    assert!(healthy.iter().any(|exchange| (600.0..900.0).contains(&began_ms(&outcome, exchange))));
}

#[test]
fn a_node_that_reboots_is_silent_and_comes_back_with_another_clock() {
    let reboot = FaultKind::Reboot { node: FIVE, offset_ns: 2_000_000 };
    let outcome = run(Some(reboot.clone()));
    let clean = run(None);
    let five = |edge: &Edge| edge.src == FIVE || edge.dst == FIVE;
    let of_five = outcome.exchanges.iter().filter(|(edge, _)| five(edge)).flat_map(|(_, list)| list);
    let began: Vec<f64> = of_five.map(|exchange| began_ms(&outcome, exchange)).collect();
    assert!(began.iter().all(|ms| *ms < 500.0 || *ms >= 999.0));
    assert!(began.iter().any(|ms| *ms < 400.0) && began.iter().any(|ms| *ms > 1_100.0), "it is back");
    let jump = |ms| {
        let at = (Simulation::START + Duration::from_ms(ms)).on_reference();
        outcome.offset_ns(FIVE, at) - clean.offset_ns(FIVE, at)
    };
    assert_eq!([jump(499), jump(1_000)], [0.0, 2e6]);
    // Its windows: none while it is silent, the first one after it from its return on.
    let windows = cuts(reboot);
    let of_node = |cut: &Vec<WindowCut>| cut.iter().find(|cut| cut.node == FIVE).cloned();
    let own: Vec<Option<WindowCut>> = windows.iter().map(of_node).collect();
    let present: Vec<bool> = own.iter().map(Option::is_some).collect();
    assert_eq!(present, [true, false, false, true, true, true, true, true]);
    let back = own[3].clone().expect("present");
    assert!((back.end - back.start).as_ns() < 2_000_000 && back.clock_event.is_none(), "{back:?}");
    assert!(windows.iter().all(|cut| cut.len() >= 7), "all others are there");
    let whole = own[4].clone().expect("present");
    assert!(((whole.end - whole.start).as_ns() - 250_000_000).abs() < 100_000);
}

#[test]
fn a_node_that_joins_late_says_nothing_before() {
    let windows = cuts(FaultKind::LateJoin { node: FIVE });
    let live: Vec<usize> = windows.iter().map(Vec::len).collect();
    assert_eq!(live, [7, 8, 8, 8, 8, 8, 8, 8], "it joins at the very end of the second window");
    let edges_to_five = |cut: &[WindowCut]| -> usize {
        let edges = cut.iter().flat_map(|cut| &cut.edges).filter(|edge| edge.edge.dst == FIVE || edge.edge.src == FIVE);
        edges.map(|edge| edge.exchanges.len()).sum()
    };
    assert_eq!([edges_to_five(&windows[0]), edges_to_five(&windows[1])], [0, 0]);
    assert!(edges_to_five(&windows[2]) > 100);
}

#[test]
fn clock_events_come_with_the_window_that_holds_them() {
    let step = |seen| FaultKind::Step { node: FIVE, step_ns: 10_000_000, seen };
    for (window, cut) in cuts(step(true)).iter().enumerate() {
        let seen: Vec<(NodeId, i64)> =
            cut.iter().filter_map(|cut| Some((cut.node, cut.clock_event?.step_ns))).collect();
        // The fault begins at the very end of the second window.
        let expected = if window == 1 { vec![(FIVE, 10_000_000)] } else { Vec::new() };
        assert_eq!(seen, expected, "window {window}");
    }
    assert!(cuts(step(false)).iter().flatten().all(|cut| cut.clock_event.is_none()));
    let reference = FaultKind::Step { node: NodeId(0), step_ns: 10_000_000, seen: true };
    let (moved, clean) = (run(Some(reference)), run(None));
    let at = |ms| (Simulation::START + Duration::from_ms(ms)).on_reference();
    let change = |node| moved.offset_ns(NodeId(node), at(1_500)) - clean.offset_ns(NodeId(node), at(1_490));
    for node in 1..8 {
        // Truth at 1500 of the stepped reference is that of 10 ms earlier; rates of 50 ppm make 500
        // ns of 10 ms.
        assert!((change(node) + 10_000_000.0).abs() < 1.0, "all others seem to move back: {}", change(node));
    }
}

#[test]
fn a_fault_leaves_the_others_packets_alone() {
    let faulty = run(Some(FaultKind::Falseticker {
        node: FIVE,
        constant_ns: 700.0,
        ramp_ns_per_s: 0.0,
        per_peer: true,
        stamps: WrongStamps::All,
    }));
    let clean = run(None);
    for (edge, exchanges) in &clean.exchanges {
        let touched = edge.src == FIVE || edge.dst == FIVE;
        assert_eq!(faulty.exchanges[edge] != *exchanges, touched, "{edge:?}");
    }
}

#[test]
fn a_paused_node_keeps_the_kernels_stamps_and_starts_nothing() {
    let outcome = run(Some(FaultKind::Pause { node: FIVE }));
    for exchange in outcome.exchanges.values().flatten() {
        let (began_ms, found) = (began_ms(&outcome, exchange), excess(&outcome, exchange));
        assert!(found.iter().all(|excess| excess.abs() < 5.0), "{exchange:?} at {began_ms} ms: {found:?}");
        assert!(exchange.edge.src != FIVE || !(501.0..999.0).contains(&began_ms), "it started one at {began_ms} ms");
    }
}
