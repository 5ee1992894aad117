//! Counts of both ends, laid out by direction, through the whole solver of a round.

use probe_sync_lines::{ClockEvent, Culprit, EdgeFit, Fault, FaultKind, NodeWindow, PeerPackets, Punctuality};
use probe_sync_time::{Duration, Edge, NodeId, RoundId, StampSource, Timestamp};

use super::{Solver, SolverOptions, Timeline, directions};

const NODES: u32 = 5;
const ROUNDS: u64 = 8;
/// Packets of a full window, each way.
const SENT: u64 = 240;
const WINDOW_NS: i64 = 2_000_000_000;

/// What a direction shows in a round: packets sent and received.
type Counted = fn(round: u64, from: u32, to: u32) -> [u64; 2];

fn window(round: u64, node: u32, counted: Counted) -> NodeWindow {
    let start = 1_000_000_000_000 + round as i64 * WINDOW_NS;
    let edges = (node + 1..NODES).map(|peer| EdgeFit {
        src_node_id: NodeId(node),
        dst_node_id: NodeId(peer),
        midpoint: Timestamp::from_ns(start + WINDOW_NS / 2),
        alpha: 0.0,
        beta: f64::from((node * 7 + peer * 3 + round as u32) % 5) - 2.0,
        pairs_count: 40,
        lost_count: 0,
        covariance: [900.0, 0.0, 1e-16],
        margin_ns: 6_000.0,
        bound_lo_ns: -6_500.0,
        bound_hi_ns: 6_500.0,
        alpha_bounds: [-1e-6, 1e-6],
        feasible: true,
        purity: 1.0,
        stamp: StampSource::Kernel,
        stamp_errors_ns: [0.0; 2],
    });
    let packets = (0..NODES).filter(|peer| *peer != node).map(|peer| PeerPackets {
        peer: NodeId(peer),
        sent: counted(round, node, peer)[0],
        received: counted(round, peer, node)[1],
    });
    NodeWindow {
        node_id: NodeId(node),
        round_id: RoundId(round),
        window_start: Timestamp::from_ns(start),
        window_end: Timestamp::from_ns(start + WINDOW_NS),
        edges: edges.collect(),
        clock_event: None,
        stop_requested: false,
        packets: packets.collect(),
        unfitted: Vec::new(),
        punctuality: Punctuality::default(),
    }
}

/// Every fault that the solver names over the rounds, each round's windows changed by `change`.
fn named(counted: Counted, change: fn(u64, &mut Vec<NodeWindow>)) -> Vec<Fault> {
    let options = SolverOptions::new(NODES as usize, NodeId(0));
    let mut solver = Solver::new(options);
    let solve = |round| {
        let mut windows: Vec<NodeWindow> = (0..NODES).map(|node| window(round, node, counted)).collect();
        change(round, &mut windows);
        let reference = windows[0].clone();
        solver.solve(RoundId(round), &reference, &windows).expect("our own nodes").data.watch.faults
    };
    (0..ROUNDS).flat_map(solve).collect()
}

fn whole(_: u64, _: u32, _: u32) -> [u64; 2] {
    [SENT, SENT]
}

#[track_caller]
fn check(what: &str, counted: Counted, change: fn(u64, &mut Vec<NodeWindow>), expected: &[(FaultKind, Edge)]) {
    let faults = named(counted, change);
    let found: Vec<_> = faults.iter().map(|fault| (fault.kind, fault.culprit.clone())).collect();
    let wanted: Vec<_> = expected.iter().map(|(kind, edge)| (*kind, Culprit::Edge(*edge))).collect();
    assert_eq!(found, wanted, "{what}: {faults:?}");
}

#[test]
fn one_way_loss_of_two_rounds_is_named_with_its_direction_when_the_next_is_known() {
    fn lossy(round: u64, from: u32, to: u32) -> [u64; 2] {
        if round >= 3 && (from, to) == (3, 1) { [SENT, SENT * 7 / 10] } else { [SENT, SENT] }
    }
    check("30 % from 3 to 1", lossy, |_, _| (), &[(FaultKind::OneWayLoss, Edge::new(3, 1))]);
    let fault = named(lossy, |_, _| ()).remove(0);
    assert_eq!((fault.began, fault.round), (RoundId(3), RoundId(5)));
    assert!((fault.size - 0.3).abs() < 0.01, "{fault:?}");

    fn both(round: u64, from: u32, to: u32) -> [u64; 2] {
        if round >= 3 && from.min(to) == 1 && from.max(to) == 3 { [SENT, SENT * 7 / 10] } else { [SENT, SENT] }
    }
    check("30 % both ways", both, |_, _| (), &[(FaultKind::Loss, Edge::new(1, 3))]);
}

#[test]
fn windows_that_do_not_coincide_lose_nothing() {
    /// Node 2 cuts every other window late by two fifths: its windows hold 7/5 and 3/5 of what the
    /// others' hold, and what others sent it in the one round it counts in the other.
    fn uneven(round: u64, from: u32, to: u32) -> [u64; 2] {
        let of_two = if round.is_multiple_of(2) { SENT * 7 / 5 } else { SENT * 3 / 5 };
        [if from == 2 { of_two } else { SENT }, if to == 2 { of_two } else { SENT }]
    }
    check("cuts apart by two fifths of a window", uneven, |_, _| (), &[]);
    /// A round trip of a tenth of a window: the first window lacks it, the others make up for it.
    fn far(round: u64, _: u32, _: u32) -> [u64; 2] {
        [SENT, if round == 0 { SENT * 9 / 10 } else { SENT }]
    }
    check("packets on their way", far, |_, _| (), &[]);
}

#[test]
fn a_late_cut_of_a_lossy_network_is_no_loss_one_way() {
    /// A twelfth of all packets is lost. In round 3 node 2 hears late that its window has ended.
    fn late(round: u64, from: u32, to: u32) -> [u64; 2] {
        let of = |node: u32| match (node, round) {
            (2, 3) => SENT * 13 / 10,
            (2, 4) => SENT * 7 / 10,
            _ => SENT,
        };
        [of(from), of(to) * 11 / 12]
    }
    let spans = |round, windows: &mut Vec<NodeWindow>| {
        let late = Duration::from_ns(WINDOW_NS * 3 / 10);
        match round {
            3 => windows[2].window_end += late,
            4 => windows[2].window_start += late,
            _ => {}
        }
    };
    check("a window three tenths late", late, spans, &[]);
}

#[test]
fn a_node_without_counts_is_not_deaf() {
    check("old files", whole, |_, windows| windows.iter_mut().for_each(|window| window.packets.clear()), &[]);
    check("one old file", whole, |_, windows| windows[3].packets.clear(), &[]);
    // What a wrong peer number says is nobody's.
    let foreign_peers = |_, windows: &mut Vec<NodeWindow>| {
        let foreign = |peer| PeerPackets { peer: NodeId(peer), sent: u64::MAX, received: 0 };
        windows[1].packets.extend([foreign(u32::MAX), foreign(NODES), foreign(1)]);
    };
    check("peers that are none", whole, foreign_peers, &[]);
    let mut windows: Vec<NodeWindow> = (0..NODES).map(|node| window(0, node, whole)).collect();
    foreign_peers(0, &mut windows);
    windows.remove(4);
    let counted = directions(&windows, NODES as usize);
    assert_eq!(counted.len(), 12, "each way between the four that are there: {counted:?}");
    assert!(counted.iter().all(|direction| (direction.sent, direction.received) == (SENT, SENT)));
}

#[test]
fn losses_without_a_fit_are_losses_of_the_edge() {
    let dead = |round: u64, windows: &mut Vec<NodeWindow>| {
        // Without packet counts: exchanges tell.
        windows.iter_mut().for_each(|window| window.packets.clear());
        if round >= 3 {
            windows[1].edges.retain(|edge| edge.dst_node_id != NodeId(3));
            windows[1].unfitted = vec![(NodeId(3), 40), (NodeId(u32::MAX), 40)];
        }
    };
    check("nothing comes back", whole, dead, &[(FaultKind::Loss, Edge::new(1, 3))]);
}

/// Windows of 2 s of nodes whose clocks run at rates of their own: node i is 1000·i ns ahead at the
/// first round's middle and gains 500·i ns each second, node 0 is the timeline. All nodes probe
/// all, and know each other to some 3 ns.
fn running(round: u64, here: &[u32]) -> Vec<NodeWindow> {
    let seconds = round as f64 * 2.0;
    let ahead = |node: u32| f64::from(node) * (1000.0 + 500.0 * seconds);
    let at = |node: u32, offset: i64| {
        Timestamp::from_ns(1_000_000_000_000 + round as i64 * WINDOW_NS + offset + ahead(node) as i64)
    };
    let edge = |from: u32, to: u32| EdgeFit {
        src_node_id: NodeId(from),
        dst_node_id: NodeId(to),
        midpoint: at(from, WINDOW_NS / 2),
        alpha: (f64::from(to) - f64::from(from)) * 500e-9,
        beta: ahead(to) - ahead(from),
        covariance: [9.0, 0.0, 1e-18],
        margin_ns: 250.0,
        bound_lo_ns: ahead(to) - ahead(from) - 500.0,
        bound_hi_ns: ahead(to) - ahead(from) + 500.0,
        ..window(0, 0, whole).edges[0].clone()
    };
    let of = |&node: &u32| NodeWindow {
        node_id: NodeId(node),
        window_start: at(node, 0),
        window_end: at(node, WINDOW_NS),
        edges: here.iter().filter(|to| **to > node).map(|to| edge(node, *to)).collect(),
        packets: Vec::new(),
        ..window(round, node, whole)
    };
    here.iter().map(of).collect()
}

#[test]
fn the_timeline_goes_on_without_its_node_and_says_how_sure_it_is() {
    let options = SolverOptions::new(4, NodeId(0));
    let mut timeline = Timeline::new(options.clone());
    let mut sigma = 0.0;
    for round in 0..30 {
        let here: &[u32] = match round {
            0..10 => &[0, 1, 2, 3],
            10..20 => &[1, 2, 3],
            // Back, and still there: nobody goes back to it.
            20 => &[0, 1, 2, 3],
            _ => &[2, 3],
        };
        if [15, 25].contains(&round) {
            // Somebody else goes on with what the last round says.
            timeline = Timeline::resume(options.clone(), timeline.last().expect("rounds").clone());
        }
        let windows = running(round, here);
        let leading = timeline.leading(&windows).expect("somebody knows").clone();
        let data = timeline.solve(RoundId(round), &leading, &windows).expect("our own nodes").data;
        assert_eq!(data.reference, NodeId(0));
        let carriers: &[Option<u32>] = if round < 10 { &[None] } else { &[Some(1), Some(2), Some(3)] };
        assert!(carriers.contains(&data.carried_by.map(|node| node.0)), "round {round}: {:?}", data.carried_by);
        // The instant is the timeline's own, whoever carries it.
        let apart = (data.window_start.as_ns() - 1_000_000_000_000 - round as i64 * WINDOW_NS).abs();
        assert!(apart < 1_000, "round {round} begins {apart} ns away");
        for &node in here {
            let (estimate, seconds) = (data.node(NodeId(node)).expect("all"), round as f64 * 2.0);
            let error = estimate.offset_ns - f64::from(node) * (1000.0 + 500.0 * seconds);
            assert!(
                error.abs() <= 3.0 * estimate.sigma_ns + 1e-6,
                "round {round}, node {node}: {error} ns, σ {}",
                estimate.sigma_ns
            );
        }
        let known = data.node(NodeId(3)).expect("all");
        match data.carried_by {
            None => assert!(known.sigma_ns < 100.0 && known.bound_lo_ns.is_finite(), "{known:?}"),
            Some(_) => {
                assert!(known.sigma_ns > sigma, "σ {} after {sigma} in round {round}", known.sigma_ns);
                assert!(known.bound_lo_ns.is_infinite() && known.bound_hi_ns.is_infinite(), "no packet bounds it");
            }
        }
        sigma = known.sigma_ns;
    }
    assert!((1_000.0..20_000.0).contains(&sigma), "a rate of up to 0.1 ppm for 40 s: {sigma}");
}

#[test]
fn a_timeline_that_nobody_knows_is_not_carried() {
    let options = SolverOptions::new(3, NodeId(0));
    let mut timeline = Timeline::new(options.clone());
    assert!(timeline.leading(&running(0, &[1, 2])).is_none(), "node 0 was never measured");
    let windows = running(0, &[0, 1]);
    let leading = timeline.leading(&windows).expect("node 0").clone();
    timeline.solve(RoundId(0), &leading, &windows).expect("our own nodes");
    assert!(timeline.leading(&running(1, &[2])).is_none(), "node 2 was never measured");
    assert_eq!(timeline.leading(&running(1, &[1, 2])).map(|window| window.node_id), Some(NodeId(1)));
}

#[test]
fn a_pause_and_a_step_of_the_carrier_do_not_lose_the_timeline() {
    let options = SolverOptions::new(4, NodeId(0));
    let mut timeline = Timeline::new(options.clone());
    for round in 0..16 {
        let here: &[u32] = if round < 8 { &[0, 1, 2, 3] } else { &[1, 2, 3] };
        let mut windows = running(round, here);
        if round == 7 {
            // All pause, and then the reference is lost.
            windows.iter_mut().for_each(|window| window.edges.clear());
        }
        if round == 12 {
            let carrier = timeline.leader();
            let stepped = windows.iter_mut().find(|window| window.node_id == carrier).expect("it is here");
            let at = stepped.window_start;
            stepped.clock_event = Some(ClockEvent { step_ns: 1_000_000_000, slew_ppm: 0.0, at, step_between: None });
        }
        let before = timeline.leader();
        let leading = timeline.leading(&windows).expect("somebody knows").clone();
        assert_eq!(timeline.leader() != before, [8, 12].contains(&round), "round {round}");
        let data = timeline.solve(RoundId(round), &leading, &windows).expect("our own nodes").data;
        let apart = (data.window_start.as_ns() - 1_000_000_000_000 - round as i64 * WINDOW_NS).abs();
        assert!(apart < 2_000, "round {round} begins {apart} ns away");
    }
}
