//! Tests of GraphCalc: the examples of `docs/graph_calc.md`, faults by name, and a seeded
//! simulation with known truth.

use probe_sync_time::{NodeId, StampSource, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const M0: i64 = 1_795_187_183_227_565_825;

/// An edge with random error 5 ns and 0.01 ppm, margin 200 ns.
fn edge(src: u32, dst: u32, midpoint_ns: i64, beta: f64, alpha: f64) -> EdgeFit {
    EdgeFit {
        src_node_id: NodeId(src),
        dst_node_id: NodeId(dst),
        midpoint: Timestamp::from_ns(midpoint_ns),
        alpha,
        beta,
        pairs_count: 100,
        lost_count: 0,
        covariance: [25.0, 0.0, 1e-16],
        margin_ns: 200.0,
        bound_lo_ns: beta - 200.0,
        bound_hi_ns: beta + 200.0,
        alpha_bounds: [alpha - 1e-7, alpha + 1e-7],
        feasible: true,
        purity: 1.0,
        stamp: StampSource::Kernel,
        stamp_errors_ns: [0.0; 2],
    }
}

fn solved(nodes: usize, edges: &[EdgeFit]) -> GraphSolution {
    let input = GraphInput { nodes, reference: NodeId(0), reference_midpoint: Timestamp::from_ns(M0), edges };
    solve(&input, &GraphOptions::default()).expect("nodes exist")
}

#[track_caller]
fn near(found: f64, expected: f64, tolerance: f64) {
    assert!((found - expected).abs() <= tolerance, "{found} is not {expected} ± {tolerance}");
}

/// Clocks that are straight lines: offset at M0 in ns (integer part apart) and rate.
struct Truth {
    whole: Vec<i64>,
    offset: Vec<f64>,
    rate: Vec<f64>,
}

impl Truth {
    fn new(nodes: usize, size: i64, random: &mut ChaCha8Rng) -> Self {
        let mut truth = Self { whole: vec![0], offset: vec![0.0], rate: vec![0.0] };
        for _ in 1..nodes {
            truth.whole.push(random.random_range(-size..=size));
            truth.offset.push(random.random::<f64>());
            truth.rate.push((random.random::<f64>() - 0.5) * 1e-4);
        }
        truth
    }

    fn of(&self, node: usize) -> f64 {
        self.whole[node] as f64 + self.offset[node]
    }

    /// The exact line of an edge whose midpoint the source misplaces by `misplaced` ns.
    fn edge(&self, src: usize, dst: usize, misplaced: i64) -> EdgeFit {
        let alpha = (self.rate[dst] - self.rate[src]) / (1.0 + self.rate[src]);
        let whole = (self.whole[dst] - self.whole[src]) as f64;
        let beta = whole + (self.offset[dst] - self.offset[src] + alpha * misplaced as f64);
        edge(src as u32, dst as u32, M0.wrapping_add(self.whole[src]).wrapping_add(misplaced), beta, alpha)
    }
}

/// A ring with chords of length 3 and 7.
fn ring_with_chords(nodes: usize) -> Vec<(usize, usize)> {
    let chords = |node: usize| [1, 3, 7].map(|step| (node, (node + step) % nodes));
    (0..nodes).flat_map(chords).collect()
}

fn noisy(truth: &Truth, pairs: &[(usize, usize)], asymmetry: f64, random: &mut ChaCha8Rng) -> Vec<EdgeFit> {
    let mut normal = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    let mut of = |&(src, dst): &(usize, usize)| {
        let mut edge = truth.edge(src, dst, (normal() * 3e6) as i64);
        let moved = 5.0 * normal() + asymmetry * normal();
        edge.beta += moved;
        edge.bound_lo_ns += moved;
        edge.bound_hi_ns += moved;
        edge.alpha += 1e-8 * normal();
        edge
    };
    pairs.iter().map(&mut of).collect()
}

#[test]
fn two_nodes_by_hand() {
    let solution = solved(2, &[edge(0, 1, M0, 1000.0, 10e-6)]);
    let node = &solution.nodes[1];
    near(node.offset_ns, 1000.0, 1e-9);
    near(node.drift_ppm, 10.0, 1e-9);
    // 5² random, (10 % of 200)² asymmetry, and (2 % of 200)² of each of the two hosts.
    near(node.sigma_ns, (25f64 + 400.0 + 2.0 * 16.0).sqrt(), 1e-9);
    near(node.drift_sigma_ppm, 0.01, 1e-9);
    near(node.bound_lo_ns, 800.0, 1e-9);
    near(node.bound_hi_ns, 1200.0, 1e-9);
    assert_eq!((node.edges_used, node.reachable, node.converged, solution.loops.count), (1, true, true, 0));
    assert_eq!((solution.nodes[0].offset_ns, solution.nodes[0].sigma_ns), (0.0, 0.0));
}

#[test]
fn three_nodes_by_hand() {
    let edges = [edge(0, 1, M0, 1000.0, 0.0), edge(1, 2, M0 + 1000, 500.0, 0.0), edge(0, 2, M0, 1530.0, 0.0)];
    let solution = solved(3, &edges);
    near(solution.nodes[1].offset_ns, 1010.0, 1e-6);
    near(solution.nodes[2].offset_ns, 1520.0, 1e-6);
    // The loop misses by 30, 10 per edge: (2·400 + 3·(100 − 25/3)) / 3.
    near(solution.asymmetry_sd_ns, (1075f64 / 3.0).sqrt(), 1e-6);
    // An edge in parallel with two in series: two thirds of its variance.
    let edge_variance = 25.0 + 1075.0 / 3.0;
    near(solution.nodes[2].sigma_ns, (2.0 / 3.0 * edge_variance + 2.0 * 16.0f64).sqrt(), 1e-6);
    near(solution.nodes[2].residual, 10.0, 1e-6);
    near(solution.nodes[2].bound_lo_ns, 1330.0, 1e-6);
    near(solution.nodes[2].bound_hi_ns, 1730.0, 1e-6);
    assert_eq!(solution.loops.count, 1);
    near(solution.loops.rms_ns, 30.0, 1e-6);
    near(solution.worst_edge.expect("edges").1.abs(), 10.0, 1e-6);
    assert!(solution.excluded.is_empty() && solution.negative_cycles.is_empty());
}

#[test]
fn opposite_edges_share_one_asymmetry() {
    let both = solved(2, &[edge(0, 1, M0, 1000.0, 0.0), edge(1, 0, M0 + 1000, -1000.0, 0.0)]);
    near(both.nodes[1].offset_ns, 1000.0, 1e-9);
    // Their agreement says nothing about asymmetry: only the random part halves.
    near(both.nodes[1].sigma_ns, (25.0 / 2.0 + 400.0 + 2.0 * 16.0f64).sqrt(), 1.0);
}

#[test]
fn eight_nodes_on_one_host_get_an_interval_of_some_nanoseconds() {
    // Loopback: margin 107 ns, forward and reverse floors 7 ns apart, every node joined to every
    // other.
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let truth = Truth::new(8, 10_000_000, &mut random);
    let pairs: Vec<(usize, usize)> = (0..8).flat_map(|src| (src + 1..8).map(move |dst| (src, dst))).collect();
    let mut edges = noisy(&truth, &pairs, 3.5, &mut random);
    for edge in &mut edges {
        (edge.margin_ns, edge.bound_lo_ns, edge.bound_hi_ns) = (107.0, edge.beta - 107.0, edge.beta + 107.0);
    }
    for (index, node) in solved(8, &edges).nodes.iter().enumerate().skip(1) {
        let half_width = 1.96 * node.sigma_ns;
        assert!((6.0..25.0).contains(&half_width), "{half_width}");
        near(node.offset_ns, truth.of(index), half_width);
    }
}

#[test]
fn truth_lies_in_the_hard_interval_and_sigma_is_honest() {
    let (mut inside, mut total) = (0, 0);
    for seed in 0..20 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let truth = Truth::new(40, 10_000_000, &mut random);
        let solution = solved(40, &noisy(&truth, &ring_with_chords(40), 15.0, &mut random));
        assert!(solution.excluded.is_empty(), "{:?}", solution.excluded);
        assert_eq!((solution.clamped, solution.negative_cycles.len()), (0, 0));
        near(solution.asymmetry_sd_ns, 15.0, 5.0);
        for (index, node) in solution.nodes.iter().enumerate().skip(1) {
            let error = node.offset_ns - truth.of(index);
            assert!(node.converged && node.bound_lo_ns <= truth.of(index) && truth.of(index) <= node.bound_hi_ns);
            near(node.drift_ppm, truth.rate[index] * 1e6, 0.05);
            inside += usize::from(error.abs() <= 1.96 * node.sigma_ns);
            total += 1;
        }
    }
    let coverage = inside as f64 / total as f64;
    assert!((0.9..=0.995).contains(&coverage), "{coverage}");
}

#[test]
fn misplaced_midpoints_and_huge_offsets_cost_nothing() {
    // Boot clocks differ by hours, wall and boot clocks by decades.
    for (size, misplaced, tolerance) in
        [(0, 0, 1e-3), (10_000_000, 20_000_000, 1e-3), (10_000_000_000_000, 7_000_000, 0.01)]
    {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let truth = Truth::new(24, size, &mut random);
        let edges: Vec<EdgeFit> = ring_with_chords(24)
            .into_iter()
            .enumerate()
            .map(|(k, (src, dst))| truth.edge(src, dst, if k % 2 == 0 { misplaced } else { -misplaced / 3 }))
            .collect();
        let solution = solved(24, &edges);
        assert!(solution.excluded.is_empty(), "{:?}", solution.excluded);
        for (index, node) in solution.nodes.iter().enumerate() {
            near(node.offset_ns, truth.of(index), tolerance);
            near(node.drift_ppm, truth.rate[index] * 1e6, 1e-4);
        }
    }
}

#[test]
fn offsets_of_decades_lose_only_what_f64_cannot_hold() {
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let truth = Truth::new(24, 1_000_000_000_000_000_000, &mut random);
    let edges: Vec<EdgeFit> = ring_with_chords(24).into_iter().map(|(src, dst)| truth.edge(src, dst, 0)).collect();
    let solution = solved(24, &edges);
    for (index, node) in solution.nodes.iter().enumerate() {
        // One step of f64 is 128 ns there, 256 above 1.15e18.
        near(node.offset_ns, truth.of(index), 256.0);
        assert!(node.reachable);
    }
}

#[test]
fn one_wrong_edge_is_excluded_and_named() {
    for error in [300.0, -5_000.0, 1e6, -1e13] {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let truth = Truth::new(16, 1_000_000, &mut random);
        let mut edges = noisy(&truth, &ring_with_chords(16), 5.0, &mut random);
        let wrong = edges[7].edge();
        edges[7].beta += error;
        edges[7].bound_lo_ns += error;
        edges[7].bound_hi_ns += error;
        let solution = solved(16, &edges);
        let named: Vec<Edge> = solution.excluded.iter().map(|(edge, _)| *edge).collect();
        assert_eq!(named, [wrong], "{error}");
        assert_eq!(solution.nodes[wrong.src.index()].edges_excluded, 1);
        for (index, node) in solution.nodes.iter().enumerate() {
            near(node.offset_ns, truth.of(index), 40.0);
            assert!(node.bound_lo_ns <= truth.of(index) && truth.of(index) <= node.bound_hi_ns);
        }
    }
}

#[test]
fn a_contradiction_that_cannot_be_pinned_down_is_named_and_claims_nothing() {
    // Three nodes, one loop: it misses by 3000 ns, five times what the margins allow, and any edge
    // may be the wrong one.
    let edges = [edge(0, 1, M0, 1000.0, 0.0), edge(1, 2, M0 + 1000, 500.0, 0.0), edge(0, 2, M0, 4500.0, 0.0)];
    let solution = solved(3, &edges);
    assert_eq!(solution.negative_cycles.len(), 1);
    assert_eq!(solution.negative_cycles[0].len(), 3);
    assert_eq!((solution.nodes[1].bound_lo_ns, solution.nodes[1].bound_hi_ns), (f64::NEG_INFINITY, f64::INFINITY));
    near(solution.loops.rms_ns, 3000.0, 1e-6);
    // Nor does the standard deviation pretend.
    assert!(solution.nodes[2].sigma_ns > 500.0, "{}", solution.nodes[2].sigma_ns);
}

#[test]
fn a_tight_edge_moves_the_estimate_into_the_interval() {
    // The estimate of an infeasible-looking weight: the bounds of 0→1 leave only [990, 1010], its
    // beta says 1100.
    let mut first = edge(0, 1, M0, 1100.0, 0.0);
    (first.bound_lo_ns, first.bound_hi_ns) = (990.0, 1010.0);
    let solution = solved(2, &[first]);
    assert_eq!(solution.clamped, 1);
    near(solution.nodes[1].offset_ns, 1010.0, 1e-9);
}

#[test]
fn unreachable_nodes_are_reported() {
    let edges = [edge(0, 1, M0, 1000.0, 0.0), edge(2, 3, M0, 500.0, 0.0)];
    let solution = solved(5, &edges);
    let reachable: Vec<bool> = solution.nodes.iter().map(|node| node.reachable).collect();
    assert_eq!(reachable, [true, true, false, false, false]);
    assert_eq!((solution.nodes[3].bound_lo_ns, solution.nodes[3].bound_hi_ns), (f64::NEG_INFINITY, f64::INFINITY));
    assert_eq!(solved(1, &[]).nodes.len(), 1);
}

#[test]
fn broken_fits_are_left_out_with_the_reason() {
    let good = edge(0, 1, M0, 1000.0, 0.0);
    let broken = [
        (EdgeFit { beta: f64::NAN, ..good.clone() }, "finite"),
        (EdgeFit { covariance: [1.0, 2.0, 1.0], ..good.clone() }, "positive definite"),
        (EdgeFit { dst_node_id: NodeId(0), ..good.clone() }, "itself"),
        (EdgeFit { beta: 1e300, ..good.clone() }, "range"),
        (EdgeFit { bound_lo_ns: 2000.0, ..good.clone() }, "order"),
    ];
    for (bad, word) in broken {
        let solution = solved(2, &[bad, good.clone()]);
        assert!(solution.excluded[0].1.contains(word), "{:?}", solution.excluded);
        near(solution.nodes[1].offset_ns, 1000.0, 1e-9);
    }
    let input =
        GraphInput { nodes: 1, reference: NodeId(0), reference_midpoint: Timestamp::from_ns(0), edges: &[good] };
    assert_eq!(solve(&input, &GraphOptions::default()), Err(Error::NoSuchNode { edge: Edge::new(0, 1), nodes: 1 }));
    let input = GraphInput { reference: NodeId(1), edges: &[], ..input };
    assert_eq!(solve(&input, &GraphOptions::default()), Err(Error::NoSuchReference { reference: NodeId(1), nodes: 1 }));
}

/// Sixteen nodes of degree 6; `change` changes the edges of nodes 5 and 11. Nobody else loses an
/// edge, and the worst of the others' errors stays within 1.5 times what it is without the fault.
#[track_caller]
fn two_nodes_disturb_only_themselves(what: &str, change: impl Fn(usize, &mut EdgeFit)) {
    let worst = |solution: &GraphSolution, truth: &Truth| {
        let errors = (1..16)
            .filter(|node| *node != 5 && *node != 11)
            .map(|node| (solution.nodes[node].offset_ns - truth.of(node)).abs());
        errors.fold(0.0, f64::max)
    };
    let [mut clean, mut faulty] = [0f64; 2];
    for seed in 0..40 {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let truth = Truth::new(16, 10_000_000, &mut random);
        let mut edges = noisy(&truth, &ring_with_chords(16), 20.0, &mut random);
        clean = clean.max(worst(&solved(16, &edges), &truth));
        let changed = edges
            .iter_mut()
            .filter(|edge| [5, 11].contains(&edge.src_node_id.0) || [5, 11].contains(&edge.dst_node_id.0));
        changed.enumerate().for_each(|(place, edge)| change(place, edge));
        let solution = solved(16, &edges);
        let healthy = solution
            .excluded
            .iter()
            .filter(|(edge, _)| ![5, 11].contains(&edge.src.0) && ![5, 11].contains(&edge.dst.0));
        assert_eq!(healthy.count(), 0, "{what}, seed {seed}: {:?}", solution.excluded);
        assert!(solution.asymmetry_sd_ns < 60.0, "{what}, seed {seed}: {} ns", solution.asymmetry_sd_ns);
        faulty = faulty.max(worst(&solution, &truth));
    }
    assert!(faulty < 1.5 * clean, "{what}: {faulty} ns against {clean} ns");
}

#[test]
fn falsetickers_and_steps_disturb_only_themselves() {
    for error in [500.0, 1e3, 5e3, 1e5, 1e7] {
        two_nodes_disturb_only_themselves(&format!("{error} ns, another sign to every other peer"), |place, edge| {
            let error = if place % 2 == 0 { error } else { -error };
            (edge.beta, edge.bound_lo_ns, edge.bound_hi_ns) =
                (edge.beta + error, edge.bound_lo_ns + error, edge.bound_hi_ns + error);
        });
    }
    two_nodes_disturb_only_themselves("a step of 10 ms in mid-window", |place, edge| {
        edge.beta += 1e6 * (3.0 + place as f64);
        edge.alpha = 500e-6;
        (edge.feasible, edge.margin_ns) = (false, -4e6);
        (edge.bound_lo_ns, edge.bound_hi_ns) = (f64::NEG_INFINITY, f64::INFINITY);
    });
}
