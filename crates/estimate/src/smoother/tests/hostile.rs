//! Tests of the smoother with hostile input: it must not panic, corrupt its state or return
//! nonsense.
//!
//! The input consists of damaged copies of the synthetic runs in `tests`, which checks the numbers
//! of well-formed runs.

use super::*;

/// Values that have broken numerical code before.
const NASTY: [f64; 14] = [
    0.0,
    -0.0,
    1e-300,
    -1e-9,
    1.0,
    0.999_999,
    -1e9,
    1e19,
    -1e19,
    1e160,
    f64::MAX,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

const NASTY_NS: [i64; 6] = [i64::MIN, i64::MAX, 0, -1, 1, 1_790_000_000_000_000_000];

fn damage(run: &mut Run, random: &mut ChaCha8Rng) {
    let nasty = |random: &mut ChaCha8Rng| NASTY[random.random_range(0..NASTY.len())];
    for _ in 0..random.random_range(1..6) {
        let k = random.random_range(0..run.midpoints.len());
        let nodes = &mut run.solutions[k].nodes;
        let edges = &mut run.edges[k];
        let at = if edges.is_empty() { 0 } else { random.random_range(0..edges.len()) };
        match random.random_range(0..14) {
            0 => run.midpoints[k] = NASTY_NS[random.random_range(0..NASTY_NS.len())],
            1 if k > 0 => run.midpoints[k] = run.midpoints[k - 1],
            2 => nodes.truncate(random.random_range(0..4)),
            3 if !nodes.is_empty() => nodes[0].reachable = false,
            4 if !nodes.is_empty() => {
                let which = random.random_range(0..nodes.len());
                (nodes[which].offset_ns, nodes[which].drift_ppm) = (nasty(random), nasty(random));
            }
            5 => edges.clear(),
            6 if !edges.is_empty() => edges[at].beta = nasty(random),
            7 if !edges.is_empty() => edges[at].alpha = nasty(random),
            8 if !edges.is_empty() => edges[at].margin_ns = nasty(random),
            9 if !edges.is_empty() => edges[at].covariance = [nasty(random), nasty(random), nasty(random)],
            10 if !edges.is_empty() => edges[at].covariance = [nasty(random).abs(), 0.0, nasty(random).abs()],
            11 if !edges.is_empty() => {
                edges[at].midpoint = Timestamp::from_ns(NASTY_NS[random.random_range(0..NASTY_NS.len())]);
            }
            12 if !edges.is_empty() => edges[at].dst_node_id = NodeId(random.random()),
            13 if !edges.is_empty() => edges[at].feasible = false,
            _ => {}
        }
    }
}

fn sound(found: &SmoothedOffset, what: &str) {
    let numbers = [found.offset_ns, found.drift_ppm];
    let errors = [found.sigma_ns, found.half_width_95_ns, found.asymmetry_sigma_ns, found.drift_sigma_ppm];
    let good = numbers.iter().all(|x| x.is_finite()) && errors.iter().all(|x| x.is_finite() && *x >= 0.0);
    assert!(good, "{what}: {found:?}");
}

/// One damaged run, offline and live.
fn survive(seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let make = Make {
        nodes: random.random_range(2..6),
        rounds: random.random_range(1..7),
        degree: 2,
        noise_ns: 20.0,
        asymmetry_ns: 10.0,
        walk: 4.0,
    };
    let mut run = Run::new(make, seed);
    damage(&mut run, &mut random);
    let breaks: Vec<ClockBreak> = (0..random.random_range(0..4))
        .map(|_| ClockBreak { node: NodeId(random.random_range(0..8)), round: RoundId(random.random_range(0..9)) })
        .collect();
    let claimed = random.random_range(0..make.nodes + 2);
    let reference = NodeId(random.random_range(0..10) / 8);
    let options = SmootherOptions { reference, ..SmootherOptions::default() };
    let solution = smooth_run(claimed, &run.rounds(), &breaks, &options);
    let times = run.midpoints.iter().flat_map(|t| [*t, t.saturating_add(1_500_000_000)]);
    for t in times.chain(NASTY_NS) {
        for node in 0..make.nodes as u32 + 2 {
            let what = format!("seed {seed}, node {node} at {t}");
            solution.at(NodeId(node), at(t)).iter().for_each(|found| sound(found, &what));
            solution.between(NodeId(node), NodeId(1), at(t)).iter().for_each(|found| sound(found, &what));
        }
    }
    let mut online = Online::new(claimed, reference);
    for (k, round) in run.rounds().iter().enumerate() {
        let broken: Vec<NodeId> = breaks.iter().filter(|b| b.round.0 == k as u64).map(|b| b.node).collect();
        for found in online.observe(round, &broken).iter().flatten() {
            sound(found, &format!("seed {seed}, live round {k}"));
        }
    }
}

#[test]
fn damaged_rounds_never_panic_nor_give_what_is_no_number() {
    for seed in 0..300 {
        survive(seed);
    }
}

#[test]
fn live_a_pending_outlier_moves_on_with_its_clock() {
    let make = Make { nodes: 6, rounds: 8, degree: 3, noise_ns: 20.0, asymmetry_ns: 5.0, walk: 4.0 };
    // Node 2 is stepped in round 5, and no packet tells of it in round 6. It runs at up to 20 ppm.
    let mut run = Run::stepped(make, 3, &[(5, 2, 1e6)]);
    run.edges[6].retain(|edge| edge.src_node_id != NodeId(2) && edge.dst_node_id != NodeId(2));
    run.solutions[6].nodes[2].reachable = false;
    let mut online = Online::new(make.nodes, NodeId(0));
    for (k, round) in run.rounds().iter().enumerate() {
        let found = online.observe(round, &[])[2].expect("heard of lately");
        let error = found.offset_ns - run.truth[k][2][0];
        assert!(error.abs() < 5.0 * found.sigma_ns, "round {k}: {error} ns with {found:?}");
    }
}

#[test]
fn live_an_edge_that_is_left_out_leaves_no_mark() {
    let make = Make { nodes: 8, rounds: 12, degree: 3, noise_ns: 10.0, asymmetry_ns: 5.0, walk: 4.0 };
    for seed in 0..4 {
        let run_with = |bad_rounds: usize| {
            let mut run = Run::new(make, seed);
            let bad = |edge: &EdgeFit| edge.src_node_id == NodeId(2) && edge.dst_node_id == NodeId(3);
            for edges in &mut run.edges {
                edges.iter_mut().filter(|edge| bad(edge)).for_each(|edge| edge.beta += 5_000.0);
                edges.retain(|edge| !bad(edge) || bad_rounds > 0);
            }
            let mut online = Online::new(make.nodes, NodeId(0));
            let left_out = [Edge { src: NodeId(2), dst: NodeId(3) }];
            let told = |(k, round): (usize, &SmootherRound<'_>)| {
                let left_out: &[Edge] = if k < bad_rounds { &[] } else { &left_out };
                online.observe(&SmootherRound { left_out, ..*round }, &[])
            };
            run.rounds().iter().enumerate().map(told).last().expect("rounds")
        };
        let (never, twice) = (run_with(0), run_with(2));
        for (node, (a, b)) in never.iter().zip(&twice).enumerate() {
            let [a, b] = [a, b].map(|found| found.expect("measured"));
            let apart = (a.offset_ns - b.offset_ns).abs();
            assert!(apart < 10.0, "seed {seed} node {node}: {apart} ns apart");
            assert!(
                b.sigma_ns < 3.0 * a.sigma_ns + 1.0,
                "seed {seed} node {node}: sigma {} for {}",
                b.sigma_ns,
                a.sigma_ns
            );
        }
    }
}
