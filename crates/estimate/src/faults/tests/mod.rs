//! The watch over rounds solved by the real graph: sixteen nodes, degree 6, edges with noise and
//! constant asymmetry, one fault each.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

mod reference;
mod two_nodes;

use super::*;
use crate::graph::{GraphInput, GraphOptions, solve};
use probe_sync_lines::{ClockBreak, ClockEvent, Fault};
use probe_sync_time::{NodeId, StampSource, Timestamp};

const NODES: usize = 16;
const ROUNDS: u64 = 14;
const BEGIN: u64 = 6;
const WINDOW_S: f64 = 4.0;
const M0: i64 = 1_795_187_183_000_000_000;

/// An edge of theirs.
const EDGE: Edge = Edge { src: NodeId(5), dst: NodeId(8) };

type Events = Vec<(NodeId, ClockEvent)>;

/// What a fault does to a round.
#[derive(Clone, Copy, Default)]
struct Change {
    /// Added to a node's offset, ns, by round and node.
    offset: Option<fn(u64, u32) -> f64>,
    /// Done to an edge; false takes it away.
    edge: Option<fn(u64, &mut EdgeFit) -> bool>,
    /// What nodes see of their own clocks in a round.
    events: Option<fn(u64) -> Events>,
    /// Packets by direction; none are counted without it.
    packets: Option<fn(u64) -> Vec<DirectionCount>>,
    /// All nodes report their windows, whether or not they are heard.
    all_report: bool,
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// All verdicts of a run.
fn watched(seed: u64, change: Change) -> Vec<Findings> {
    let pairs: Vec<(usize, usize)> = (0..NODES).flat_map(|n| [1, 3, 7].map(|step| (n, (n + step) % NODES))).collect();
    watched_over(NODES, &pairs, seed, change)
}

/// All verdicts of a run of this many nodes, connected by these edges.
fn watched_over(nodes: usize, pairs: &[(usize, usize)], seed: u64, change: Change) -> Vec<Findings> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut offsets: Vec<f64> = (0..nodes).map(|_| 1e7 * (random.random::<f64>() - 0.5)).collect();
    let mut rates: Vec<f64> = (0..nodes).map(|_| 6e4 * (random.random::<f64>() - 0.5)).collect();
    (offsets[0], rates[0]) = (0.0, 0.0);
    let asymmetries: Vec<f64> = pairs.iter().map(|_| 40.0 * normal(&mut random)).collect();
    let mut watch = Watch::default();
    let mut verdicts = Vec::new();
    for round in 0..ROUNDS {
        let midpoint = M0 + (round as f64 * WINDOW_S * 1e9) as i64;
        let at = |node: usize| offsets[node] + change.offset.map_or(0.0, |offset| offset(round, node as u32));
        let moved: Vec<f64> = (0..nodes).map(|node| at(node) - at(0)).collect();
        let mut edges: Vec<EdgeFit> = Vec::new();
        for (&(src, dst), asymmetry) in pairs.iter().zip(&asymmetries) {
            let beta = moved[dst] - moved[src] + asymmetry + 30.0 * normal(&mut random);
            let alpha = (rates[dst] - rates[src]) * 1e-9 + 1e-8 * normal(&mut random);
            let mut edge = EdgeFit {
                src_node_id: NodeId(src as u32),
                dst_node_id: NodeId(dst as u32),
                midpoint: Timestamp::from_ns(midpoint + moved[src].round() as i64),
                alpha,
                beta,
                pairs_count: 80,
                lost_count: 0,
                covariance: [900.0, 0.0, 1e-16],
                margin_ns: 6_000.0 + 20.0 * normal(&mut random),
                bound_lo_ns: beta - 6_500.0,
                bound_hi_ns: beta + 6_500.0,
                alpha_bounds: [alpha - 1e-6, alpha + 1e-6],
                feasible: true,
                purity: 1.0,
                stamp: StampSource::Kernel,
                stamp_errors_ns: [0.0; 2],
            };
            if change.edge.is_none_or(|change| change(round, &mut edge)) {
                edges.push(edge);
            }
        }
        let input =
            GraphInput { nodes, reference: NodeId(0), reference_midpoint: Timestamp::from_ns(midpoint), edges: &edges };
        let solution = solve(&input, &GraphOptions::default()).expect("our own nodes");
        verdicts.push(watch.observe(&RoundView {
            round: RoundId(round),
            reference: NodeId(0),
            reference_midpoint: Timestamp::from_ns(midpoint),
            edges: &edges,
            nodes: &solution.nodes,
            reporting: &(0..if change.all_report { nodes as u32 } else { 0 }).map(NodeId).collect::<Vec<_>>(),
            excluded: &solution.excluded,
            clock_events: &change.events.map_or_else(Vec::new, |events| events(round)),
            unfitted: &[],
            directions: &change.packets.map_or_else(Vec::new, |packets| packets(round)),
        }));
        for node in 1..nodes {
            rates[node] += 2.0 * normal(&mut random);
            offsets[node] += rates[node] * WINDOW_S;
        }
    }
    verdicts
}

/// A window in which a node's clock steps by `ns` halfway.
fn broken_window(edge: &mut EdgeFit, node: u32, ns: f64) {
    if edge.src_node_id.0 == node || edge.dst_node_id.0 == node {
        let sign = if edge.src_node_id.0 == node { -1.0 } else { 1.0 };
        (edge.alpha, edge.beta) = (sign * 500e-6, edge.beta + sign * 0.4 * ns);
        (edge.feasible, edge.margin_ns) = (false, -0.4 * ns.abs());
        (edge.bound_lo_ns, edge.bound_hi_ns) = (f64::NEG_INFINITY, f64::INFINITY);
    }
}

/// What a node's watch reports of a step or a slew.
fn event(node: u32, step_ns: i64, slew_ppm: f64) -> (NodeId, ClockEvent) {
    (NodeId(node), ClockEvent { step_ns, slew_ppm, at: Timestamp::from_ns(M0), step_between: None })
}

/// Kinds, culprits and first rounds of all that was named.
fn named(verdicts: &[Findings]) -> Vec<(FaultKind, Culprit, u64)> {
    let faults = verdicts.iter().flat_map(|findings| &findings.faults);
    faults.map(|fault| (fault.kind, fault.culprit.clone(), fault.began.0)).collect()
}

/// Nodes with interrupted clocks, and the rounds before which they are interrupted.
fn broken_into(verdicts: &[Findings]) -> Vec<(u32, u64)> {
    let mut all: Vec<(u32, u64)> =
        verdicts.iter().flat_map(|findings| &findings.breaks).map(|broken| (broken.node.0, broken.round.0)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A node's rate is off by `ns_per_s`, as the lines of its edges show it.
fn turn(edge: &mut EdgeFit, node: u32, ns_per_s: f64) {
    if of(edge, node) {
        edge.alpha += if edge.src_node_id.0 == node { -1e-9 } else { 1e-9 } * ns_per_s;
    }
}

fn of(edge: &EdgeFit, node: u32) -> bool {
    edge.src_node_id.0 == node || edge.dst_node_id.0 == node
}

fn shift(edge: &mut EdgeFit, ns: f64) {
    (edge.beta, edge.bound_lo_ns, edge.bound_hi_ns) = (edge.beta + ns, edge.bound_lo_ns + ns, edge.bound_hi_ns + ns);
}

/// Exactly the expected faults are named, each within two rounds of [`BEGIN`] (or of the stated
/// round), and only `culprits`' edges are ever left out.
#[track_caller]
fn check(what: &str, change: Change, expected: &[(FaultKind, Culprit, u64)], sick: impl Fn(Edge) -> bool) {
    for seed in 0..8 {
        let verdicts = watched(seed, change);
        let faults: Vec<&Fault> = verdicts.iter().flat_map(|findings| &findings.faults).collect();
        let found: Vec<(FaultKind, Culprit)> = faults.iter().map(|fault| (fault.kind, fault.culprit.clone())).collect();
        let wanted: Vec<(FaultKind, Culprit)> = expected.iter().map(|(kind, who, _)| (*kind, who.clone())).collect();
        assert_eq!(found, wanted, "{what}, seed {seed}: {faults:?}");
        for (fault, (.., begin)) in faults.iter().zip(expected) {
            assert!((*begin..=begin + 2).contains(&fault.round.0), "{what}, seed {seed}: {fault:?}");
        }
        let healthy = verdicts.iter().flat_map(|findings| &findings.left_out).find(|(_, edge)| !sick(*edge));
        assert_eq!(healthy, None, "{what}, seed {seed}");
    }
}

fn node(node: u32) -> Culprit {
    Culprit::Node(NodeId(node))
}

fn touches(node: u32) -> impl Fn(Edge) -> bool {
    move |edge| edge.src.0 == node || edge.dst.0 == node
}

#[test]
fn nothing_is_said_of_a_clean_run() {
    check("clean", Change::default(), &[], |_| false);
    for seed in 100..160 {
        let said: Vec<Findings> =
            watched(seed, Change::default()).into_iter().filter(|v| *v != Findings::default()).collect();
        assert!(said.is_empty(), "seed {seed}: {said:?}");
    }
}

#[test]
fn steps_are_named_whether_a_window_holds_them_or_not() {
    let after = Change {
        offset: Some(|round, node| if node == 5 && round >= BEGIN { 1e7 } else { 0.0 }),
        edge: None,
        ..Change::default()
    };
    check("between windows", after, &[(FaultKind::Step, node(5), BEGIN)], touches(5));
    let within = Change {
        offset: Some(|round, node| if node == 5 && round > BEGIN { 1e7 } else { 0.0 }),
        edge: Some(|round, edge| {
            if round == BEGIN {
                broken_window(edge, 5, 1e7);
            }
            true
        }),
        ..Change::default()
    };
    check("within a window", within, &[(FaultKind::Step, node(5), BEGIN)], touches(5));
}

#[test]
fn a_step_of_the_reference_is_the_references() {
    let after = Change {
        offset: Some(|round, node| if node == 0 && round >= BEGIN { 1e7 } else { 0.0 }),
        edge: None,
        ..Change::default()
    };
    check("between windows", after, &[(FaultKind::Step, node(0), BEGIN)], touches(0));
    let within = Change {
        offset: Some(|round, node| if node == 0 && round > BEGIN { 1e7 } else { 0.0 }),
        edge: Some(|round, edge| {
            if round == BEGIN {
                broken_window(edge, 0, 1e7);
            }
            true
        }),
        ..Change::default()
    };
    check("within a window", within, &[(FaultKind::Step, node(0), BEGIN)], touches(0));
    let verdicts = watched(1, after);
    let size = verdicts.iter().flat_map(|findings| &findings.faults).map(|fault| fault.size).next().expect("named");
    assert!((size - 1e7).abs() < 1e3, "the reference jumped ahead by 10 ms, not {size} ns");
}

/// A swing of 50 µs in 20 s of node 5: offset in ns and rate in ns/s in the middle of a round.
fn swing(round: u64) -> [f64; 2] {
    let omega = std::f64::consts::TAU / 20.0;
    let angle = omega * WINDOW_S * round as f64 + 0.7;
    [5e4 * angle.sin(), 5e4 * omega * angle.cos()]
}

#[test]
fn a_clock_that_swings_between_steady_ones_does_not_step() {
    let change = Change {
        offset: Some(|round, node| if node == 5 { swing(round)[0] } else { 0.0 }),
        edge: Some(|round, edge| {
            turn(edge, 5, swing(round)[1]);
            true
        }),
        ..Change::default()
    };
    for seed in 0..8 {
        let verdicts = watched(seed, change);
        let faults: Vec<&Fault> = verdicts.iter().flat_map(|findings| &findings.faults).collect();
        let is_its_rate = |fault: &&&Fault| fault.kind == FaultKind::RateJump && fault.culprit == node(5);
        assert_eq!(faults.iter().filter(is_its_rate).count(), faults.len(), "seed {seed}: {faults:?}");
        assert!(!faults.is_empty(), "seed {seed}: its rate changes by 20 ppm");
        assert!(verdicts.iter().all(|findings| findings.invalid.is_empty()), "seed {seed}: nothing is wrong with it");
    }
}

#[test]
fn after_a_step_of_the_reference_a_change_of_rate_is_still_one() {
    // Seen from the reference all windows before its step lie 50 µs off: they must not make a step
    // of what node 5's rate explains.
    const LATER: u64 = BEGIN + 2;
    let change = Change {
        offset: Some(|round, node| match node {
            0 if round >= BEGIN => 5e4,
            5 if round >= LATER => 2e4 * WINDOW_S * ((round - LATER) as f64 + 0.5),
            _ => 0.0,
        }),
        edge: Some(|round, edge| {
            if round >= LATER {
                turn(edge, 5, 2e4);
            }
            true
        }),
        ..Change::default()
    };
    let expected = [(FaultKind::Step, node(0), BEGIN), (FaultKind::RateJump, node(5), LATER)];
    for seed in 0..4 {
        let verdicts = watched(seed, change);
        let faults = verdicts.iter().flat_map(|findings| &findings.faults);
        let named: Vec<_> = faults.map(|fault| (fault.kind, fault.culprit.clone(), fault.began.0)).collect();
        assert_eq!(named, expected, "seed {seed}");
    }
}

#[test]
fn a_margin_that_falls_back_to_its_floor_is_no_change_of_route() {
    // Queues hold an edge's margin 2 µs above its floor from round 4 on, seen by windows of great
    // uncertainty; from round 9 on it is at the floor again, and sure of it.
    fn queued(round: u64, edge: &mut EdgeFit) -> bool {
        if edge.edge() == EDGE && (4..9).contains(&round) {
            edge.margin_ns += 2_000.0;
            edge.covariance[0] = 250_000.0;
        }
        true
    }
    // In another run the same edge's packets get 2 µs faster in round 9: its floor itself falls.
    fn shorter(round: u64, edge: &mut EdgeFit) -> bool {
        if edge.edge() == EDGE && round >= 9 {
            edge.margin_ns -= 2_000.0;
        }
        queued(round, edge)
    }
    for seed in 0..20 {
        assert_eq!(named(&watched(seed, Change { edge: Some(queued), ..Change::default() })), [], "seed {seed}");
        let found = named(&watched(seed, Change { edge: Some(shorter), ..Change::default() }));
        assert_eq!(found, [(FaultKind::RouteChange, Culprit::Edge(EDGE), 9)], "seed {seed}");
    }
}

#[test]
fn a_level_of_two_uncertain_windows_accuses_no_edge() {
    // Before round 2 nothing is learnt; rounds 2 and 3 are good to 400 ns and lie 1.8 µs too low,
    // those that follow are good to 30 ns.
    let low = |round: u64, edge: &mut EdgeFit| {
        if edge.edge() == EDGE && round < 4 {
            edge.margin_ns -= 1_800.0;
            edge.covariance[0] = 160_000.0;
        }
        true
    };
    for seed in 0..20 {
        assert_eq!(named(&watched(seed, Change { edge: Some(low), ..Change::default() })), [], "seed {seed}");
    }
}

#[test]
fn a_step_that_a_line_hides_shows_in_the_margins() {
    // 8 µs in the middle of a window whose packets take 6 µs each way: a line turned by 2 ppm fits,
    // with margins of 2 µs.
    let change = Change {
        offset: Some(|round, node| match node {
            5 if round == BEGIN => 4e3,
            5 if round > BEGIN => 8e3,
            _ => 0.0,
        }),
        edge: Some(|round, edge| {
            if of(edge, 5) && round == BEGIN {
                turn(edge, 5, 8e3 / WINDOW_S);
                edge.margin_ns -= 4e3;
            }
            true
        }),
        ..Change::default()
    };
    check("8 µs within a window", change, &[(FaultKind::Step, node(5), BEGIN)], touches(5));
}

#[test]
fn a_rate_that_changes_late_in_a_window_is_no_step() {
    // By 5 ppm after 3 of 4 s: the window's line turns by a quarter of it only, and its margins
    // fall by 0.094·r·T = 1875 ns.
    fn late(round: u64, node: u32) -> f64 {
        match round {
            _ if node != 5 || round < BEGIN => 0.0,
            BEGIN => 625.0,
            _ => 5e3 * (WINDOW_S * (round - BEGIN) as f64 - 1.0),
        }
    }
    let change = Change {
        offset: Some(late),
        edge: Some(|round, edge| {
            if of(edge, 5) && round >= BEGIN {
                turn(edge, 5, if round == BEGIN { 1.25e3 } else { 5e3 });
                edge.margin_ns -= if round == BEGIN { 1_875.0 } else { 0.0 };
            }
            true
        }),
        ..Change::default()
    };
    for seed in 0..4 {
        let verdicts = watched(seed, change);
        let kinds: Vec<FaultKind> =
            verdicts.iter().flat_map(|findings| &findings.faults).map(|fault| fault.kind).collect();
        assert_eq!(kinds, [FaultKind::RateJump], "seed {seed}");
        assert!(verdicts.iter().all(|findings| findings.breaks.is_empty()), "seed {seed}");
    }
}

#[test]
fn a_slow_change_of_rate_is_found_over_several_rounds() {
    // 160 ns/s: hardly a round is off its prediction, which follows.
    fn ramp(round: u64, node: u32) -> f64 {
        if node == 5 && round >= BEGIN { 160.0 * WINDOW_S * (round - BEGIN) as f64 } else { 0.0 }
    }
    let rate = |round: u64, edge: &mut EdgeFit| {
        edge.covariance = [40_000.0, 0.0, 4e-15];
        if round >= BEGIN {
            turn(edge, 5, 160.0);
        }
        true
    };
    let mut named = 0;
    for seed in 0..8 {
        let verdicts = watched(seed, Change { offset: Some(ramp), edge: Some(rate), ..Change::default() });
        let faults: Vec<&Fault> = verdicts.iter().flat_map(|findings| &findings.faults).collect();
        assert!(faults.iter().all(|fault| fault.kind == FaultKind::RateJump && fault.culprit == node(5)), "{faults:?}");
        named += usize::from(!faults.is_empty());
    }
    assert_eq!(named, 8);
}

#[test]
fn an_edge_that_the_graph_bears_with_is_still_asymmetric() {
    // 800 ns off: below what the graph excludes, far above all others.
    let always = |_: u64, edge: &mut EdgeFit| {
        if edge.edge() == Edge::new(5, 8) {
            shift(edge, 800.0);
        }
        true
    };
    for seed in 0..8 {
        let verdicts = watched(seed, Change { offset: None, edge: Some(always), ..Change::default() });
        let faults: Vec<&Fault> = verdicts.iter().flat_map(|findings| &findings.faults).collect();
        let [fault] = faults[..] else { panic!("seed {seed}: {faults:?}") };
        assert_eq!((fault.kind, &fault.culprit), (FaultKind::AsymmetricEdge, &Culprit::Edge(Edge::new(5, 8))));
        assert!(fault.began.0 <= 2 && (900.0..2_000.0).contains(&fault.size), "seed {seed}: {fault:?}");
    }
}

/// Three of a node's seven edges are off by 4 µs from the first round on: the node is named. In a
/// network of few edges one of two of a node is.
#[test]
fn edges_of_a_node_that_disagree_from_the_beginning_are_named() {
    fn bias(edge: &mut EdgeFit, peers: u32) {
        let [from, to] = [edge.src_node_id.0, edge.dst_node_id.0];
        if of(edge, 3) && from + to - 3 < peers {
            shift(edge, if from == 3 { 4_000.0 } else { -4_000.0 });
        }
    }
    let three = |_: u64, edge: &mut EdgeFit| {
        bias(edge, 3);
        true
    };
    let one = |_: u64, edge: &mut EdgeFit| {
        bias(edge, 1);
        true
    };
    let all = |nodes: usize| -> Vec<(usize, usize)> {
        (0..nodes).flat_map(|a| (a + 1..nodes).map(move |b| (a, b))).collect()
    };
    for seed in 0..8 {
        let of = |nodes, edge| {
            named(&watched_over(nodes, &all(nodes), seed, Change { edge: Some(edge), ..Change::default() }))
        };
        assert_eq!(of(8, three), [(FaultKind::Falseticker, node(3), 0)], "seed {seed}");
        let few = of(5, one);
        let is_edge = |(kind, culprit, _): &(FaultKind, Culprit, u64)| {
            *kind == FaultKind::AsymmetricEdge && *culprit == Culprit::Edge(Edge::new(0, 3))
        };
        assert!(few.len() == 1 && is_edge(&few[0]), "seed {seed}: {few:?}");
        assert!(of(5, |_, _| true).is_empty(), "seed {seed}: nothing is off");
    }
}

#[test]
fn an_edge_that_stays_lossy_when_the_network_is_well_again_is_named() {
    let loss = |round: u64, edge: &mut EdgeFit| {
        let own = edge.edge() == Edge::new(5, 8);
        if (BEGIN..BEGIN + 3).contains(&round) || own && round >= BEGIN {
            (edge.pairs_count, edge.lost_count) = (10, 70);
        }
        true
    };
    let named: Vec<(FaultKind, Culprit)> = watched(1, Change { offset: None, edge: Some(loss), ..Change::default() })
        .iter()
        .flat_map(|findings| &findings.faults)
        .map(|fault| (fault.kind, fault.culprit.clone()))
        .collect();
    let expected = [Culprit::Everyone, Culprit::Edge(Edge::new(5, 8))].map(|culprit| (FaultKind::Loss, culprit));
    assert_eq!(named, expected);
}

/// What went each way over [`EDGE`]: nothing is lost but as `there` says.
fn both_ways(there: DirectionCount) -> Vec<DirectionCount> {
    vec![there, DirectionCount { from: there.to, to: there.from, sent: 30, received: 30, apart: 0.0 }]
}

#[test]
fn packets_that_a_late_cut_moved_to_another_round_are_not_lost() {
    /// As it was counted where the receiver cut its window 0.7 s late, in a long round: later
    /// rounds lack what that one had too many of.
    fn late(round: u64) -> Vec<DirectionCount> {
        let (sent, received, apart) = match round {
            BEGIN => (112, 136, 0.0),
            7 => (24, 0, 0.557),
            8 => (36, 24, 0.0),
            9 => (24, 36, 0.0),
            _ => (30, 30, 0.0),
        };
        both_ways(DirectionCount { from: EDGE.src, to: EDGE.dst, sent, received, apart })
    }
    check("late cut", Change { packets: Some(late), ..Change::default() }, &[], |_| false);
    /// As it was counted of a process that two rounds long had no time to read its socket.
    fn unread(round: u64) -> Vec<DirectionCount> {
        let (sent, received) = match round {
            BEGIN => (24, 12),
            7 => (28, 12),
            8 => (28, 44),
            9 => (24, 36),
            _ => (24, 24),
        };
        both_ways(DirectionCount { from: EDGE.src, to: EDGE.dst, sent, received, apart: 0.0 })
    }
    check("packets read late", Change { packets: Some(unread), ..Change::default() }, &[], |_| false);
    fn lossy(round: u64) -> Vec<DirectionCount> {
        let received = if round < BEGIN { 36 } else { 20 };
        both_ways(DirectionCount { from: EDGE.src, to: EDGE.dst, sent: 36, received, apart: 0.0 })
    }
    let change = Change { packets: Some(lossy), ..Change::default() };
    check("loss", change, &[(FaultKind::OneWayLoss, Culprit::Edge(EDGE), BEGIN)], |_| false);
}

#[test]
fn stamps_wrong_by_a_ramp_are_a_jump_of_the_rate() {
    fn ramp(round: u64, node: u32) -> f64 {
        if node == 5 && round >= BEGIN { 200.0 * WINDOW_S * (round - BEGIN) as f64 + 400.0 } else { 0.0 }
    }
    let rate = |round: u64, edge: &mut EdgeFit| {
        if round >= BEGIN {
            turn(edge, 5, 200.0);
        }
        true
    };
    let change = Change { offset: Some(ramp), edge: Some(rate), ..Change::default() };
    check("200 ns/s", change, &[(FaultKind::RateJump, node(5), BEGIN)], touches(5));
}

#[test]
fn a_change_of_rate_breaks_no_history_and_costs_no_edge() {
    fn bent(round: u64, node: u32) -> f64 {
        if node == 5 && round >= BEGIN { 120.0 * WINDOW_S * ((round - BEGIN) as f64 + 0.5) } else { 0.0 }
    }
    let rate = |round: u64, edge: &mut EdgeFit| {
        if round >= BEGIN {
            turn(edge, 5, 120.0);
        }
        true
    };
    let change = Change { offset: Some(bent), edge: Some(rate), ..Change::default() };
    for seed in 0..5 {
        let verdicts = watched(seed, change);
        let named: Vec<&Fault> = verdicts.iter().flat_map(|findings| &findings.faults).collect();
        assert!(named.iter().any(|fault| fault.kind == FaultKind::RateJump && fault.culprit == node(5)), "{named:?}");
        let breaks: Vec<&ClockBreak> = verdicts.iter().flat_map(|findings| &findings.breaks).collect();
        assert!(breaks.is_empty(), "offsets go on through a change of rate: {breaks:?}");
        let left_out: Vec<&(RoundId, Edge)> = verdicts.iter().flat_map(|findings| &findings.left_out).collect();
        assert!(left_out.is_empty(), "its edges say what they said before: {left_out:?}");
    }
}

#[test]
fn timestamps_that_differ_by_peer_name_the_falseticker() {
    let change = Change {
        offset: None,
        edge: Some(|round, edge| {
            if of(edge, 5) && round >= BEGIN {
                let peer = edge.src_node_id.0 + edge.dst_node_id.0 - 5;
                shift(edge, if peer % 4 < 2 { 20e3 } else { -20e3 });
            }
            true
        }),
        ..Change::default()
    };
    check("to each peer another", change, &[(FaultKind::Falseticker, node(5), BEGIN)], touches(5));
}

#[test]
fn late_receive_stamps_name_the_falseticker() {
    let change = Change {
        offset: Some(|round, node| if node == 5 && round >= BEGIN { 2_500.0 } else { 0.0 }),
        edge: Some(|round, edge| {
            if of(edge, 5) && round >= BEGIN {
                edge.margin_ns += 2_500.0;
            }
            true
        }),
        ..Change::default()
    };
    check("5 µs late", change, &[(FaultKind::Falseticker, node(5), BEGIN)], touches(5));
}

#[test]
fn one_edge_is_named_alone() {
    let culprit = || Culprit::Edge(EDGE);
    let only = |edge: Edge| edge == EDGE;
    let asymmetric = |round: u64, edge: &mut EdgeFit| {
        if edge.edge() == EDGE && round >= BEGIN {
            shift(edge, 2_500.0);
            edge.margin_ns += 2_500.0;
        }
        true
    };
    let expected = [(FaultKind::AsymmetricEdge, culprit(), BEGIN)];
    check("5 µs one way", Change { offset: None, edge: Some(asymmetric), ..Change::default() }, &expected, only);
    let always = |_: u64, edge: &mut EdgeFit| {
        if edge.edge() == EDGE {
            shift(edge, 2_500.0);
        }
        true
    };
    let expected = [(FaultKind::AsymmetricEdge, culprit(), 0)];
    check("from the beginning", Change { offset: None, edge: Some(always), ..Change::default() }, &expected, only);
    let route = |round: u64, edge: &mut EdgeFit| {
        if edge.edge() == EDGE && round >= BEGIN {
            edge.margin_ns += 20e3;
        }
        true
    };
    check(
        "route",
        Change { offset: None, edge: Some(route), ..Change::default() },
        &[(FaultKind::RouteChange, culprit(), BEGIN)],
        only,
    );
}

#[test]
fn absence_is_named() {
    let silent = |round: u64, edge: &mut EdgeFit| !(of(edge, 5) && (BEGIN..BEGIN + 4).contains(&round));
    let back = BEGIN + 4;
    let expected = [(FaultKind::Silent, node(5), BEGIN), (FaultKind::Rejoined, node(5), back)];
    check("silence", Change { offset: None, edge: Some(silent), ..Change::default() }, &expected, touches(5));

    let reset = |round: u64, node: u32| if node == 5 && round >= BEGIN { -3e8 } else { 0.0 };
    let expected = [
        (FaultKind::Silent, node(5), BEGIN),
        (FaultKind::Rejoined, node(5), back),
        (FaultKind::Restart, node(5), back),
    ];
    check("reboot", Change { offset: Some(reset), edge: Some(silent), ..Change::default() }, &expected, touches(5));

    let late = |round: u64, edge: &mut EdgeFit| !(of(edge, 5) && round < BEGIN);
    let expected = [(FaultKind::Silent, node(5), 0), (FaultKind::JoinedLate, node(5), BEGIN)];
    check("late", Change { offset: None, edge: Some(late), ..Change::default() }, &expected, touches(5));

    fn far(node: NodeId) -> bool {
        (4..8).contains(&node.0)
    }
    let parted = |round: u64, edge: &mut EdgeFit| {
        far(edge.src_node_id) == far(edge.dst_node_id) || !(BEGIN..BEGIN + 4).contains(&round)
    };
    let group = || Culprit::Nodes((4..8).map(NodeId).collect());
    let expected = [(FaultKind::Partition, group(), BEGIN), (FaultKind::Rejoined, group(), back)];
    check("partition", Change { offset: None, edge: Some(parted), ..Change::default() }, &expected, |edge| {
        far(edge.src) || far(edge.dst)
    });
}

#[test]
fn nodes_that_report_are_named_when_they_are_silent_for_two_rounds() {
    // A starved machine: for one window hardly anybody exchanged anything.
    let starved = |round: u64, edge: &mut EdgeFit| round != BEGIN || edge.src_node_id.0 < 3;
    let change = Change { edge: Some(starved), all_report: true, ..Change::default() };
    check("starved", change, &[], |_| false);
    let silent = |round: u64, edge: &mut EdgeFit| !(of(edge, 5) && (BEGIN..BEGIN + 4).contains(&round));
    let expected = [(FaultKind::Silent, node(5), BEGIN), (FaultKind::Rejoined, node(5), BEGIN + 4)];
    let change = Change { edge: Some(silent), all_report: true, ..Change::default() };
    check("silence", change, &expected, touches(5));
}

#[test]
fn losses_name_edge_node_or_network() {
    fn lose(edge: &mut EdgeFit) {
        (edge.pairs_count, edge.lost_count) = (10, 70);
    }
    let of_edge = |round: u64, edge: &mut EdgeFit| {
        if edge.edge() == Edge::new(5, 8) && round >= BEGIN {
            lose(edge);
        }
        true
    };
    let expected = [(FaultKind::Loss, Culprit::Edge(Edge::new(5, 8)), BEGIN)];
    check("edge", Change { offset: None, edge: Some(of_edge), ..Change::default() }, &expected, |_| false);
    let of_node = |round: u64, edge: &mut EdgeFit| {
        if of(edge, 5) && round >= BEGIN {
            lose(edge);
        }
        true
    };
    check(
        "node",
        Change { offset: None, edge: Some(of_node), ..Change::default() },
        &[(FaultKind::Loss, node(5), BEGIN)],
        |_| false,
    );
    let of_all = |round: u64, edge: &mut EdgeFit| {
        if round >= BEGIN {
            lose(edge);
        }
        true
    };
    let expected = [(FaultKind::Loss, Culprit::Everyone, BEGIN)];
    check("network", Change { offset: None, edge: Some(of_all), ..Change::default() }, &expected, |_| false);
}

#[test]
fn faults_read_as_sentences() {
    let said = Fault::new(FaultKind::Step, node(5), 1e7, RoundId(7)).to_string();
    assert_eq!(said, "round 7: node 5 stepped by 10.000 ms");
    let cut =
        Fault::new(FaultKind::Partition, Culprit::Nodes((0..12).map(NodeId).collect()), 12.0, RoundId(3)).to_string();
    assert_eq!(cut, "round 3: nodes 0, 1, 2, 3, 4, 5, 6, 7 and 4 more are cut off from the reference");
    let inconsistent = Fault::new(FaultKind::Falseticker, node(5), -1e4, RoundId(2)).to_string();
    assert_eq!(inconsistent, "round 2: node 5 gives its peers timestamps that are inconsistent by 10.000 µs");
}
