//! The controller against a network of known physics: an edge's random error is `scale / pairs`,
//! with an optional floor.

use std::collections::BTreeSet;

use probe_sync_lines::NodeEstimate;
use probe_sync_time::{StampSource, Timestamp};

use super::*;
use crate::graph::covariance;
use crate::graph::linear::{Laplacian, Link};
use crate::statistics::SIGMAS_95;

const WINDOW_NS: f64 = 4e9;
const CONFIGURED_NS: i64 = 800_000;

/// A network that answers to the pace.
struct World {
    nodes: usize,
    edges: Vec<Edge>,
    /// Random error of an edge, ns, with one exchange per window.
    scale: f64,
    /// What no number of packets removes of it (stamp noise), ns.
    stuck_ns: f64,
    asymmetry_sd_ns: f64,
    /// A node whose edges are this many times worse.
    weak: Option<(NodeId, f64)>,
    /// Relative scatter of every covariance's root, from round to round.
    scatter: f64,
    disturbed: Vec<NodeId>,
    silent: Vec<NodeId>,
    /// Every node's rate, ppm, and its standard deviation.
    drift_ppm: [f64; 2],
    state: u64,
}

impl World {
    /// Random chords: node i is joined to i + 1, i + 3 and i + 7.
    fn new(nodes: usize) -> Self {
        let steps = |i: u32| [1, 3, 7].map(move |step| Edge::new(i, (i + step) % nodes as u32));
        Self {
            nodes,
            edges: (0..nodes as u32).flat_map(steps).collect(),
            scale: 5_000.0,
            stuck_ns: 0.0,
            asymmetry_sd_ns: 20.0,
            weak: None,
            scatter: 0.0,
            disturbed: Vec::new(),
            silent: Vec::new(),
            drift_ppm: [0.0; 2],
            state: 1,
        }
    }

    fn line(&mut self, edge: Edge, pairs: f64) -> EdgeFit {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let luck = 1.0 + self.scatter * (2.0 * ((self.state >> 33) as f64 / f64::from(1u32 << 31)) - 1.0);
        let weak = self.weak.filter(|(node, _)| [edge.src, edge.dst].contains(node)).map_or(1.0, |(_, times)| times);
        let sd = (self.scale * weak / pairs * luck).max(self.stuck_ns);
        EdgeFit {
            src_node_id: edge.src,
            dst_node_id: edge.dst,
            midpoint: Timestamp::from_ns(0),
            alpha: 0.0,
            beta: 0.0,
            pairs_count: pairs as u32,
            lost_count: 0,
            covariance: [sd * sd, 0.0, 1e-18],
            margin_ns: 6_000.0,
            bound_lo_ns: -6_000.0,
            bound_hi_ns: 6_000.0,
            alpha_bounds: [-1e-6, 1e-6],
            feasible: true,
            purity: 1.0,
            stamp: StampSource::Kernel,
            stamp_errors_ns: [0.0; 2],
        }
    }

    /// One window at this pace, solved and shown to the pacer.
    fn round(&mut self, pacer: &mut Pacer, step: &PacingStep) -> PacingStep {
        let edges: BTreeSet<Edge> = self.edges.iter().chain(&step.extra_edges).copied().collect();
        let degree = |node: NodeId| edges.iter().filter(|edge| edge.src == node).count() as f64;
        let exchanges = step.window_ns.map_or(WINDOW_NS, |ns| ns as f64) / step.cadence_ns as f64;
        let audible = |edge: &&Edge| !self.silent.contains(&edge.src) && !self.silent.contains(&edge.dst);
        let heard: Vec<Edge> = edges.iter().filter(audible).copied().collect();
        let lines: Vec<EdgeFit> = heard.into_iter().map(|edge| self.line(edge, exchanges / degree(edge.src))).collect();
        let nodes = self.estimates(&lines);
        pacer.next(&PacingRound {
            nodes: &nodes,
            reference: NodeId(0),
            edges: &lines,
            excluded: &[],
            asymmetry_sd_ns: self.asymmetry_sd_ns,
            asymmetry_sigma_ns: None,
            disturbed: &self.disturbed,
        })
    }

    fn estimates(&self, lines: &[EdgeFit]) -> Vec<NodeEstimate> {
        let link = |line: &EdgeFit| {
            let weight = 1.0 / (line.covariance[0] + self.asymmetry_sd_ns.powi(2));
            Link { from: line.src_node_id.index(), to: line.dst_node_id.index(), weight: [weight, 0.0, weight] }
        };
        let silent = |node: usize| self.silent.contains(&NodeId(node as u32));
        let fixed = (0..self.nodes).map(|node| node == 0 || silent(node)).collect();
        let laplacian = Laplacian::new(lines.iter().map(link).collect(), fixed);
        let blocks = covariance(&laplacian, 0);
        let estimate = |node: usize| NodeEstimate {
            node_id: NodeId(node as u32),
            offset_ns: 0.0,
            drift_ppm: self.drift_ppm[0],
            residual: 0.0,
            reachable: !silent(node),
            converged: true,
            sigma_ns: if silent(node) { f64::INFINITY } else { blocks[node][0].sqrt() },
            asymmetry_sigma_ns: 0.0,
            drift_sigma_ppm: self.drift_ppm[1],
            bound_lo_ns: f64::NEG_INFINITY,
            bound_hi_ns: f64::INFINITY,
            edges_used: 6,
            edges_excluded: 0,
        };
        (0..self.nodes).map(estimate).collect()
    }

    /// Runs rounds from the configured pace; every step.
    fn run(&mut self, pacer: &mut Pacer, from: PacingStep, rounds: usize) -> Vec<PacingStep> {
        let mut steps = vec![from];
        for _ in 0..rounds {
            let step = self.round(pacer, steps.last().expect("at least the first"));
            steps.push(step);
        }
        steps.remove(0);
        steps
    }
}

fn pacer(world: &World, target_ns: f64, budget: Budget) -> (Pacer, PacingStep) {
    let options = PacingOptions { target_ns, cadence_ns: CONFIGURED_NS, budget, window: None };
    let pacer = Pacer::new(world.nodes, &world.edges, options);
    let first = PacingStep {
        cadence_ns: pacer.cadence_ns(),
        window_ns: None,
        extra_edges: Vec::new(),
        verdict: Verdict::Unknown,
        nodes_within: 0,
        nodes_judged: 0,
        half_width_ns: 0.0,
        floor_ns: 0.0,
    };
    (pacer, first)
}

fn cost(steps: &[PacingStep]) -> f64 {
    // The first window goes at the configured pace; a step's cadence is the next window's.
    let windows = steps.len() as f64;
    let next: f64 = steps[..steps.len() - 1].iter().map(|step| CONFIGURED_NS as f64 / step.cadence_ns as f64).sum();
    (1.0 + next) / windows
}

#[test]
fn a_quiet_network_is_probed_slowly_and_at_a_steady_pace() {
    let mut world = World { scatter: 0.2, scale: 2_000.0, ..World::new(16) };
    let (mut pacer, first) = pacer(&world, 200.0, Budget::default());
    let steps = world.run(&mut pacer, first, 40);
    assert!(cost(&steps[..16]) < 0.2, "{}", cost(&steps[..16]));
    assert!(steps.iter().all(|step| step.verdict == Verdict::Reached && step.nodes_within == 15), "{steps:?}");
    let settled: BTreeSet<i64> = steps[8..].iter().map(|step| step.cadence_ns).collect();
    assert_eq!(settled.len(), 1, "{settled:?}");
    let pairs = WINDOW_NS / *settled.first().expect("one") as f64 / 3.0;
    assert!((PAIRS_MIN - 1.0..2.0 * PAIRS_MIN).contains(&pairs), "{pairs}");
}

#[test]
fn windows_that_turn_out_too_thin_are_filled_again() {
    // The window before was faster than the pace in force, or exchanges have been lost since: two a
    // window and an edge.
    let mut world = World { scale: 100.0, ..World::new(16) };
    let (mut pacer, first) = pacer(&world, 1_000.0, Budget { bits_per_second: None, cpu_share: Some(0.01) });
    let thin = PacingStep { cadence_ns: (WINDOW_NS / 3.0 / 2.0) as i64, ..first };
    let steps = world.run(&mut pacer, thin, 12);
    let pairs = WINDOW_NS / steps[11].cadence_ns as f64 / 3.0;
    assert!((PAIRS_MIN * 0.7..2.0 * PAIRS_MIN).contains(&pairs), "{pairs}");
    // No more than the budget, though it is not enough.
    let (mut poor, first) = self::pacer(&world, 1_000.0, Budget { bits_per_second: None, cpu_share: Some(48e-6) });
    let steps = world.run(&mut poor, first, 6);
    assert!(steps.iter().all(|step| step.cadence_ns == 1_000_000_000), "{steps:?}");
}

#[test]
fn where_packets_decide_the_pace_settles_just_within_the_target() {
    for (scale, scatter) in [(2e4, 0.0), (5e4, 0.2), (4e5, 0.1)] {
        let mut world = World { scale, scatter, ..World::new(16) };
        let (mut pacer, first) = pacer(&world, 200.0, Budget::default());
        let steps = world.run(&mut pacer, first, 40);
        let late = &steps[10..];
        let within = late.iter().filter(|step| step.verdict == Verdict::Reached).count();
        assert!(within >= late.len() - 1, "scale {scale}: {within} of {}", late.len());
        let [least, most] = [late.iter().map(|s| s.cadence_ns).min(), late.iter().map(|s| s.cadence_ns).max()];
        assert!(most.expect("rounds") < 2 * least.expect("rounds"), "scale {scale}: {least:?} to {most:?}");
        assert!(late.iter().any(|step| step.half_width_ns > 100.0), "scale {scale}: far better than asked for");
    }
}

#[test]
fn a_jump_of_the_load_is_answered_within_two_rounds() {
    let mut world = World::new(16);
    let (mut pacer, first) = pacer(&world, 200.0, Budget::default());
    let quiet = world.run(&mut pacer, first, 12).pop().expect("rounds");
    world.scale = 100_000.0;
    let steps = world.run(&mut pacer, quiet, 4);
    assert!(steps[0].half_width_ns > 400.0, "the jump itself is seen: {steps:?}");
    assert!(steps[2..].iter().all(|step| step.verdict == Verdict::Reached), "{steps:?}");
}

#[test]
fn asymmetry_beyond_the_target_is_named_and_not_fought_with_packets() {
    let mut world = World { asymmetry_sd_ns: 300.0, scale: 20_000.0, ..World::new(16) };
    let (mut asymmetric, first) = pacer(&world, 200.0, Budget::default());
    let steps = world.run(&mut asymmetric, first, 20);
    let last = steps.last().expect("rounds");
    assert_eq!(last.verdict, Verdict::AsymmetryAlone);
    assert!(last.floor_ns > 200.0 && last.half_width_ns < 1.06 * last.floor_ns, "{last:?}");
    assert!(last.cadence_ns > 4 * CONFIGURED_NS, "{last:?}");
}

#[test]
fn the_budget_is_never_exceeded() {
    let check = |budget: Budget, shortest_ns: i64| {
        assert_eq!(budget.cadence_min_ns(), shortest_ns);
        let mut world = World { scale: 3e6, ..World::new(16) };
        let (mut pacer, first) = pacer(&world, 200.0, budget);
        assert!(first.cadence_ns >= shortest_ns);
        let steps = world.run(&mut pacer, first, 12);
        assert!(steps.iter().all(|step| step.cadence_ns >= shortest_ns), "{steps:?}");
        assert_eq!(steps.last().map(|step| step.verdict), Some(Verdict::BudgetSpent));
    };
    // 6 packets of 108 bytes are 5184 bits; 6 of 8 µs are 48 µs.
    check(Budget { bits_per_second: Some(5_184_000.0), cpu_share: None }, 1_000_000);
    check(Budget { bits_per_second: Some(51_840_000.0), cpu_share: Some(0.25) }, 192_000);
    assert_eq!(Budget::default().cadence_min_ns(), 20_000);
}

#[test]
fn packets_that_do_not_help_are_not_sent() {
    let mut world = World { stuck_ns: 400.0, ..World::new(16) };
    let (mut pacer, first) = pacer(&world, 200.0, Budget::default());
    let steps = world.run(&mut pacer, first, 10);
    let last = steps.last().expect("rounds");
    assert_eq!((last.verdict, last.cadence_ns), (Verdict::PacketsDoNotHelp, CONFIGURED_NS), "{steps:?}");
    // It is tried again after a while: this network has become better.
    world.stuck_ns = 0.0;
    let last = world.run(&mut pacer, last.clone(), 10).pop().expect("rounds");
    assert_eq!(last.verdict, Verdict::Reached);
}

#[test]
fn alarms_bring_the_configured_pace_back_at_once() {
    let alarm = |change: fn(&mut World), restore: fn(&mut World)| {
        let mut world = World::new(16);
        let (mut pacer, first) = pacer(&world, 200.0, Budget::default());
        let quiet = world.run(&mut pacer, first, 12).pop().expect("rounds");
        assert!(quiet.cadence_ns > 10 * CONFIGURED_NS);
        change(&mut world);
        let alarmed = world.round(&mut pacer, &quiet);
        assert_eq!(alarmed.cadence_ns, CONFIGURED_NS);
        restore(&mut world);
        let after = world.round(&mut pacer, &alarmed);
        assert_eq!(after.cadence_ns, CONFIGURED_NS);
        let calm = world.run(&mut pacer, after, 8).pop().expect("rounds");
        assert!((calm.cadence_ns as f64 / quiet.cadence_ns as f64 - 1.0).abs() < 0.1, "{calm:?}");
    };
    alarm(|world| world.disturbed = vec![NodeId(3)], |world| world.disturbed.clear());
    // One that stays is no news.
    alarm(|world| world.disturbed = vec![NodeId(3)], |_| {});
    alarm(|world| world.silent = vec![NodeId(5)], |_| {});
    alarm(|world| world.silent = vec![NodeId(5)], |world| world.silent.clear());
}

#[test]
fn a_weak_node_gets_edges_and_gives_them_back() {
    let mut world = World { scale: 8_000.0, asymmetry_sd_ns: 60.0, ..World::new(40) };
    let (mut pacer, first) = pacer(&world, 200.0, Budget::default());
    let calm = world.run(&mut pacer, first, 8).pop().expect("rounds");
    assert_eq!(calm.extra_edges, []);
    world.weak = Some((NodeId(9), 20.0));
    let steps = world.run(&mut pacer, calm, 12);
    let last = steps.last().expect("rounds");
    assert!(!last.extra_edges.is_empty() && last.extra_edges.len() <= 10, "{last:?}");
    let own: BTreeSet<_> = world.edges.iter().map(|edge| pair(*edge)).collect();
    for edge in &last.extra_edges {
        assert!([edge.src, edge.dst].contains(&NodeId(9)) && !own.contains(&pair(*edge)), "{edge:?}");
    }
    world.weak = None;
    let last = world.run(&mut pacer, last.clone(), 40).pop().expect("rounds");
    assert_eq!((last.extra_edges.len(), last.nodes_within), (0, 39));
}

#[test]
fn runs_of_any_size_and_hostile_rounds_are_answered() {
    for nodes in [1, 2, 300] {
        let mut world = World { edges: Vec::new(), ..World::new(8) };
        world.nodes = nodes;
        if nodes > 8 {
            world = World { asymmetry_sd_ns: 400.0, ..World::new(nodes) };
        }
        let (mut pacer, first) = pacer(&world, 200.0, Budget::default());
        let last = world.run(&mut pacer, first, 4).pop().expect("rounds");
        let judged = if nodes > 8 { nodes - 1 } else { 0 };
        let judged_by_edges = last.nodes_judged as usize;
        assert!(judged_by_edges == judged || nodes <= 2, "{last:?}");
        assert_eq!(nodes > 8, !last.extra_edges.is_empty(), "{last:?}");
    }
    let mut world = World::new(8);
    let (mut pacer, first) = pacer(&world, 0.0, Budget { bits_per_second: Some(0.0), cpu_share: Some(-1.0) });
    for scale in [f64::NAN, f64::INFINITY, 0.0] {
        world.scale = scale;
        let step = world.round(&mut pacer, &first);
        assert!(step.cadence_ns > 0 && step.cadence_ns <= 60_000_000_000);
    }
}

mod by_hand {
    use super::*;

    /// Nodes 0, 1, 2 in a chain, each edge of variance 4.
    fn chain() -> WhatIfCovariance {
        let mut world = World { nodes: 3, asymmetry_sd_ns: 0.0, scale: 2.0, ..World::new(8) };
        world.edges = vec![Edge::new(0, 1), Edge::new(1, 2)];
        let lines: Vec<EdgeFit> = world.edges.clone().into_iter().map(|edge| world.line(edge, 1.0)).collect();
        let nodes = world.estimates(&lines);
        WhatIfCovariance::new(&PacingRound {
            nodes: &nodes,
            reference: NodeId(0),
            edges: &lines,
            excluded: &[],
            asymmetry_sd_ns: 0.0,
            asymmetry_sigma_ns: None,
            disturbed: &[],
        })
    }

    #[test]
    fn an_edge_more_and_less() {
        // P of the chain: [[4, 4], [4, 8]]. An edge 0–2 of variance 4: P e = (4, 8), Δ₂₂ = 64/(4 +
        // 8) = 16/3.
        let mut what_if = chain();
        let error_budget = ErrorBudget { random_ns: 8f64.sqrt() * SIGMAS_95, floor_ns: 0.0 };
        let short = [(NodeId(2), error_budget)];
        let free = |i: NodeId, j: NodeId| i == j || i.0.abs_diff(j.0) == 1;
        assert_eq!(what_if.best_edge(&short, &free, 1), Some((NodeId(2), NodeId(0))));
        what_if.add((NodeId(2), NodeId(0)));
        // 8 − 16/3 is left: two edges of 4 in a row, in parallel with one.
        assert!((what_if.variance(2) - 8.0 / 3.0).abs() < 1e-9, "{}", what_if.variance(2));
        assert_eq!(what_if.best_edge(&short, &|_, _| true, 1), None);
        // Both edges of the chain are bridges.
        assert_eq!(chain().spare_edge(&[Edge::new(1, 2)], &short, 1e9), None);
    }
}

const SECOND: i64 = 1_000_000_000;

/// As [`pacer`], free to choose windows between 1 and 16 s.
fn stretching(world: &World, target_ns: f64) -> (Pacer, PacingStep) {
    let (window, budget) = (Some([SECOND, 16 * SECOND]), Budget::default());
    let options = PacingOptions { target_ns, cadence_ns: CONFIGURED_NS, budget, window };
    let (_, first) = pacer(world, target_ns, budget);
    (Pacer::new(world.nodes, &world.edges, options), PacingStep { window_ns: Some(SECOND), ..first })
}

fn seconds(steps: &[PacingStep]) -> Vec<i64> {
    steps.iter().map(|step| step.window_ns.expect("the pacer's to choose") / SECOND).collect()
}

#[test]
fn windows_grow_while_clocks_are_calm_and_save_packets() {
    let mut world = World::new(16);
    let (mut pacer, first) = stretching(&world, 1_000.0);
    let steps = world.run(&mut pacer, first, 12);
    assert_eq!(seconds(&steps)[..6], [2, 4, 8, 16, 16, 16]);
    let last = steps.last().expect("rounds");
    assert_eq!(last.verdict, Verdict::Reached, "{last:?}");
    let pairs = 16e9 / last.cadence_ns as f64 / 3.0;
    assert!((PAIRS_MIN - 1.0..2.0 * PAIRS_MIN).contains(&pairs), "{pairs} exchanges of an edge in a window");
}

#[test]
fn a_clock_that_bends_shortens_the_window_and_the_noise_of_its_rate_does_not() {
    let mut world = World::new(4);
    let (mut pacer, first) = stretching(&world, 1_000.0);
    let grown = world.run(&mut pacer, first, 6).pop().expect("rounds");
    // 0.5 ppm over 16 s is 8 µs, and an eighth of that is 1 µs off a line: four times what is
    // allowed.
    world.drift_ppm = [0.5, 0.001];
    let bent = world.run(&mut pacer, grown, 1).pop().expect("a round");
    assert_eq!(seconds(std::slice::from_ref(&bent)), [8]);
    world.drift_ppm = [0.9, 0.001];
    let bent = world.run(&mut pacer, bent, 1).pop().expect("a round");
    assert_eq!(seconds(std::slice::from_ref(&bent)), [4], "0.4 ppm over 8 s leave 0.4 µs");
    world.drift_ppm = [0.95, 0.001];
    let steady = world.run(&mut pacer, bent, 1).pop().expect("a round");
    assert_eq!(seconds(std::slice::from_ref(&steady)), [8], "0.05 ppm over 4 s leave 25 ns, over 8 s 50 ns");
    // A change that the rates' own noise explains says nothing of the clock.
    world.drift_ppm = [1.2, 0.1];
    let noisy = world.run(&mut pacer, steady, 1);
    assert_eq!(seconds(&noisy), [16]);
}

#[test]
fn an_alarm_brings_the_shortest_window_back() {
    let mut world = World::new(16);
    let (mut pacer, first) = stretching(&world, 1_000.0);
    let grown = world.run(&mut pacer, first, 6).pop().expect("rounds");
    world.disturbed = vec![NodeId(3)];
    let steps = world.run(&mut pacer, grown, 4);
    assert_eq!(seconds(&steps), [1, 1, 2, 4]);
    assert!(steps[0].cadence_ns <= CONFIGURED_NS, "{steps:?}");
}
