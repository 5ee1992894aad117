//! The smoother against what it must equal: a textbook smoother on one edge, a dense solution on a
//! small graph, the truth.

use nalgebra::{DMatrix, DVector, Matrix2, Vector2};
use probe_sync_lines::EdgeFit;
use probe_sync_time::{Edge, Reference, RoundId, StampSource, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::evidence::Constants;
use super::student::{WEIGHTED_PAIR, WEIGHTED_SINGLE, factor, weight};
use super::system::{System, Weights};
use super::*;
use crate::graph::linear::{Block, Pair};
use crate::graph::{GraphInput, GraphOptions, GraphSolution, solve};
use crate::motion;

const WINDOW_S: f64 = 4.0;

/// A run of made-up lines with known truth.
struct Run {
    nodes: usize,
    /// Per round and node: offset ns and rate ns/s.
    truth: Vec<Vec<Pair>>,
    edges: Vec<Vec<EdgeFit>>,
    midpoints: Vec<i64>,
    solutions: Vec<GraphSolution>,
}

/// What a run is made of.
#[derive(Copy, Clone)]
struct Make {
    nodes: usize,
    rounds: usize,
    /// Nodes that each node probes.
    degree: usize,
    noise_ns: f64,
    asymmetry_ns: f64,
    walk: f64,
}

impl Run {
    fn new(make: Make, seed: u64) -> Self {
        Self::stepped(make, seed, &[])
    }

    /// `steps`: from which round on which node's clock is ahead by how much more, ns.
    fn stepped(make: Make, seed: u64, steps: &[(usize, usize, f64)]) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut normal = move || {
            let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
            radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
        };
        let mut states: Vec<Pair> = (0..make.nodes).map(|_| [1e6 * normal(), 1e4 * normal()]).collect();
        let truth: Vec<Vec<Pair>> = (0..make.rounds)
            .map(|round| {
                let mut now = states.clone();
                for (at, node, by) in steps.iter().filter(|(at, ..)| *at <= round) {
                    let _ = at;
                    now[*node][0] += by;
                }
                for state in &mut states {
                    let (u, v) = (normal(), normal());
                    let [a, ab, b] = motion::walk(make.walk, WINDOW_S);
                    let jump = [a.sqrt() * u, ab / a.sqrt() * u + (b - ab * ab / a).max(0.0).sqrt() * v];
                    *state = [state[0] + WINDOW_S * state[1] + jump[0], state[1] + jump[1]];
                }
                now.iter().map(|s| [s[0] - now[0][0], s[1] - now[0][1]]).collect()
            })
            .collect();
        let pairs: Vec<(usize, usize)> = (0..make.nodes)
            .flat_map(|from| (1..=make.degree).map(move |k| (from, (from + k * k) % make.nodes)))
            .filter(|(from, to)| from != to)
            .collect();
        let biases: Vec<f64> = pairs.iter().map(|_| make.asymmetry_ns * normal()).collect();
        let midpoints: Vec<i64> =
            (0..make.rounds).map(|k| 1_790_000_000_000_000_000 + (k as f64 * WINDOW_S * 1e9) as i64).collect();
        let rate_noise = make.noise_ns / 1.2;
        let mut edges = Vec::new();
        for (round, midpoint) in midpoints.iter().enumerate() {
            let line = |((from, to), bias): (&(usize, usize), &f64), noise: [f64; 2]| {
                let (i, j) = (truth[round][*from], truth[round][*to]);
                EdgeFit {
                    src_node_id: NodeId(*from as u32),
                    dst_node_id: NodeId(*to as u32),
                    midpoint: Timestamp::from_ns(midpoint + i[0].round() as i64),
                    alpha: (j[1] - i[1] + rate_noise * noise[1]) * 1e-9 / (1.0 + i[1] * 1e-9),
                    beta: j[0] - i[0] + bias + make.noise_ns * noise[0],
                    pairs_count: 100,
                    lost_count: 0,
                    covariance: [make.noise_ns.powi(2), 0.0, (rate_noise * 1e-9).powi(2)],
                    margin_ns: 5_000.0,
                    bound_lo_ns: j[0] - i[0] - 6_000.0,
                    bound_hi_ns: j[0] - i[0] + 6_000.0,
                    alpha_bounds: [-1e-4, 1e-4],
                    feasible: true,
                    purity: 1.0,
                    stamp: StampSource::Hardware,
                    stamp_errors_ns: [0.0; 2],
                }
            };
            edges.push(pairs.iter().zip(&biases).map(|pair| line(pair, [normal(), normal()])).collect::<Vec<_>>());
        }
        let solutions = midpoints
            .iter()
            .zip(&edges)
            .map(|(midpoint, edges)| {
                let input = GraphInput {
                    nodes: make.nodes,
                    reference: NodeId(0),
                    reference_midpoint: Timestamp::from_ns(*midpoint),
                    edges,
                };
                solve(&input, &GraphOptions::default()).expect("sound edges")
            })
            .collect();
        Self { nodes: make.nodes, truth, edges, midpoints, solutions }
    }

    fn rounds(&self) -> Vec<SmootherRound<'_>> {
        (0..self.midpoints.len())
            .map(|k| {
                let midpoint = Timestamp::from_ns(self.midpoints[k]);
                SmootherRound::solved(RoundId(k as u64), midpoint, &self.edges[k], &self.solutions[k], &[])
            })
            .collect()
    }

    fn smoothed(&self, breaks: &[ClockBreak], options: &SmootherOptions) -> RunSolution {
        smooth_run(self.nodes, &self.rounds(), breaks, options)
    }
}

fn at(ns: i64) -> Timestamp<Reference> {
    Timestamp::from_ns(ns)
}

/// Nothing estimated but the states.
fn given(walk: f64, asymmetry_ns: f64) -> SmootherOptions {
    SmootherOptions {
        walk_density: Some(walk),
        asymmetry_variance: Some(asymmetry_ns * asymmetry_ns),
        rescale: false,
        robust: false,
        ..SmootherOptions::default()
    }
}

/// Means and covariances of the Rauch–Tung–Striebel smoother, in matrices.
fn textbook(
    times: &[f64],
    measured: &[Vector2<f64>],
    noise: &[Matrix2<f64>],
    q: f64,
) -> Vec<(Vector2<f64>, Matrix2<f64>)> {
    let step = |k: usize| {
        let d = times[k] - times[k - 1];
        let f = Matrix2::new(1.0, d, 0.0, 1.0);
        (f, Matrix2::new(d.powi(3) / 3.0, d * d / 2.0, d * d / 2.0, d) * q)
    };
    let mut filtered = vec![(measured[0], noise[0])];
    for k in 1..times.len() {
        let (f, walk) = step(k);
        let (x, p) = filtered[k - 1];
        let (x, p) = (f * x, f * p * f.transpose() + walk);
        let gain = p * (p + noise[k]).try_inverse().expect("regular");
        filtered.push((x + gain * (measured[k] - x), (Matrix2::identity() - gain) * p));
    }
    let mut smoothed = filtered.clone();
    for k in (0..times.len() - 1).rev() {
        let (f, walk) = step(k + 1);
        let (x, p) = filtered[k];
        let (ahead, spread) = (f * x, f * p * f.transpose() + walk);
        let gain = p * f.transpose() * spread.try_inverse().expect("regular");
        let (later, width) = smoothed[k + 1];
        smoothed[k] = (x + gain * (later - ahead), p + gain * (width - spread) * gain.transpose());
    }
    smoothed
}

#[test]
fn on_one_edge_it_is_the_textbook_smoother() {
    let make = Make { nodes: 2, rounds: 20, degree: 1, noise_ns: 50.0, asymmetry_ns: 0.0, walk: 30.0 };
    let mut run = Run::new(make, 4);
    // One direction only: 0 → 1.
    run.edges.iter_mut().for_each(|edges| edges.truncate(1));
    let solution = run.smoothed(&[], &given(make.walk, 1.0));
    assert!(solution.converged, "{} steps", solution.solver_steps);
    let excess = motion::window_excess(2.0 * make.walk, WINDOW_S);
    let noise = Matrix2::new(make.noise_ns.powi(2) + excess[0], 0.0, 0.0, (make.noise_ns / 1.2).powi(2) + excess[1]);
    let base = run.truth[0][1][0];
    let measured: Vec<Vector2<f64>> =
        run.edges.iter().map(|edges| Vector2::new(edges[0].beta - base, edges[0].alpha * 1e9)).collect();
    let times: Vec<f64> = (0..make.rounds).map(|k| k as f64 * WINDOW_S).collect();
    let expected = textbook(&times, &measured, &vec![noise; make.rounds], 2.0 * make.walk);
    for (k, (mean, covariance)) in expected.iter().enumerate() {
        let found = solution.at(NodeId(1), at(run.midpoints[k])).expect("measured");
        // The textbook smooths what the clocks wander within a window, too; that is this little.
        assert!(
            (found.offset_ns - base - mean[0]).abs() < 0.5,
            "round {k}: {} against {}",
            found.offset_ns - base,
            mean[0]
        );
        let random = (found.sigma_ns.powi(2) - found.asymmetry_sigma_ns.powi(2)).sqrt();
        assert!((random / covariance[(0, 0)].sqrt() - 1.0).abs() < 1e-6, "round {k}: {random} against {covariance}");
    }
}

#[test]
fn on_a_small_graph_it_is_the_dense_solution_and_its_error() {
    let make = Make { nodes: 6, rounds: 7, degree: 2, noise_ns: 30.0, asymmetry_ns: 20.0, walk: 10.0 };
    let run = Run::new(make, 9);
    let rounds = run.rounds();
    let layout = Layout::new(run.nodes, &rounds, &[]);
    let options = given(make.walk, make.asymmetry_ns);
    let mut fit =
        Fit::new(layout, &vec![Constants { walk: make.walk, shared: 0.0, white_fm: 0.0 }; run.nodes], &options);
    let weights = fit.weights();
    let system = System::new(&fit.layout, &weights);
    let end = system.solve(&mut fit.states, 1e-9, 2000);
    assert!(end.reached, "{end:?}");
    let dense = Dense::new(&fit, &weights);
    let solved = dense.solve();
    let reference = |state: &[f64], at: usize, k: usize| state[2 * at + k];
    for (at, span) in fit.layout.spans.iter().enumerate() {
        for knot in span.first..=span.last {
            let (own, zero) = (fit.layout.state(at, knot), fit.layout.state(0, knot));
            for k in 0..2 {
                let found = fit.states[own][k] - fit.states[zero][k];
                let expected = reference(solved.as_slice(), own, k) - reference(solved.as_slice(), zero, k);
                assert!((found - expected).abs() < 1e-4, "span {at} knot {knot}: {found} against {expected}");
            }
        }
    }
    let solution = solution::collect(run.nodes, &fit, &fit.white_fm);
    let inverse = dense.inverse();
    for node in 1..run.nodes {
        for (k, midpoint) in run.midpoints.iter().enumerate() {
            let found = solution.at(NodeId(node as u32), at(*midpoint)).expect("measured").sigma_ns;
            let (own, zero) = (2 * (node * make.rounds + k), 2 * k);
            let exact = (inverse[(own, own)] + inverse[(zero, zero)] - 2.0 * inverse[(own, zero)]).sqrt();
            assert!((0.97..1.2).contains(&(found / exact)), "node {node} round {k}: {found} against {exact}");
            let pair = solution.between(NodeId(node as u32), NodeId(0), at(*midpoint)).expect("measured");
            assert!((pair.sigma_ns / found - 1.0).abs() < 0.05, "{pair:?} against {found}");
        }
    }
}

/// The whole system in one matrix, asymmetries included.
struct Dense {
    matrix: DMatrix<f64>,
    right: DVector<f64>,
}

impl Dense {
    fn new(fit: &Fit, weights: &Weights) -> Self {
        let layout = &fit.layout;
        let size = 2 * layout.states + layout.node_pairs.len();
        let (mut matrix, mut right) = (DMatrix::zeros(size, size), DVector::zeros(size));
        let mut add = |rows: &[(usize, [f64; 2])], weight: Block, value: Pair| {
            let weight = motion::square(weight);
            for (i, a) in rows {
                right[*i] += motion::between(*a, weight, value);
                for (j, b) in rows {
                    matrix[(*i, *j)] += motion::between(*a, weight, *b);
                }
            }
        };
        for (number, node_pair) in layout.node_pairs.iter().enumerate() {
            let b = 2 * layout.states + number;
            add(&[(b, [1.0, 0.0])], [weights.node_pairs[number], 0.0, 0.0], [0.0; 2]);
            for at in node_pair.measures.clone() {
                let measure = &layout.measures[at];
                let (from, to) =
                    (2 * layout.state(measure.from, measure.knot), 2 * layout.state(measure.to, measure.knot));
                let rows = [
                    (from, [-1.0, 0.0]),
                    (from + 1, [0.0, -1.0]),
                    (to, [1.0, 0.0]),
                    (to + 1, [0.0, 1.0]),
                    (b, [measure.sign, 0.0]),
                ];
                add(&rows, weights.measures[at], measure.value);
            }
        }
        for span in &layout.spans {
            for k in 0..span.len() - 1 {
                let delta = layout.knots[span.first + k + 1] - layout.knots[span.first + k];
                let (a, b) = (2 * (span.base + k), 2 * (span.base + k + 1));
                let rows = [(a, [-1.0, 0.0]), (a + 1, [-delta, -1.0]), (b, [1.0, 0.0]), (b + 1, [0.0, 1.0])];
                add(&rows, motion::stiffness(weights.walks[span.base + k], delta), [0.0; 2]);
            }
        }
        // The gauge: the reference's first state is pinned, weakly against everything and strongly
        // against rounding.
        for k in 0..2 {
            matrix[(k, k)] += 1e-6;
        }
        Self { matrix, right }
    }

    fn solve(&self) -> DVector<f64> {
        self.matrix.clone().cholesky().expect("positive").solve(&self.right)
    }

    fn inverse(&self) -> DMatrix<f64> {
        self.matrix.clone().cholesky().expect("positive").inverse()
    }
}

/// Share of truths within the 95 % interval, and the root mean square error, over `seeds`.
fn coverage(make: Make, seeds: std::ops::Range<u64>) -> (f64, f64) {
    let (mut inside, mut count, mut squares) = (0u32, 0u32, 0.0);
    for seed in seeds {
        let run = Run::new(make, seed);
        let solution = run.smoothed(&[], &SmootherOptions::default());
        assert!(solution.converged, "seed {seed}");
        for node in 1..make.nodes {
            for (k, midpoint) in run.midpoints.iter().enumerate() {
                let found = solution.at(NodeId(node as u32), at(*midpoint)).expect("measured");
                let error = found.offset_ns - run.truth[k][node][0];
                inside += u32::from(error.abs() <= found.half_width_95_ns);
                squares += error * error;
                count += 1;
            }
        }
    }
    (f64::from(inside) / f64::from(count), (squares / f64::from(count)).sqrt())
}

#[test]
fn intervals_hold_what_they_promise() {
    let base = Make { nodes: 12, rounds: 12, degree: 3, noise_ns: 40.0, asymmetry_ns: 20.0, walk: 4.0 };
    for (name, make) in [
        ("asymmetry rules", Make { noise_ns: 5.0, ..base }),
        ("noise rules", Make { asymmetry_ns: 1.0, ..base }),
        ("both", base),
        ("wandering clocks", Make { walk: 400.0, ..base }),
    ] {
        let (share, rms) = coverage(make, 0..8);
        assert!((0.91..=0.99).contains(&share), "{name}: {share} of the truths inside, rms {rms} ns");
    }
}

#[test]
fn a_step_splits_the_clock_and_hurts_nobody() {
    let make = Make { nodes: 8, rounds: 10, degree: 3, noise_ns: 20.0, asymmetry_ns: 10.0, walk: 4.0 };
    for node in [3, 0] {
        let run = Run::stepped(make, 1, &[(5, node, 10e6)]);
        let breaks = [ClockBreak { node: NodeId(node as u32), round: RoundId(5) }];
        let solution = run.smoothed(&breaks, &SmootherOptions::default());
        for n in 1..make.nodes {
            for (k, midpoint) in run.midpoints.iter().enumerate() {
                let found = solution.at(NodeId(n as u32), at(*midpoint)).expect("measured");
                let error = found.offset_ns - run.truth[k][n][0];
                assert!(error.abs() < 60.0, "step of {node}: node {n} round {k}: {error} ns");
            }
        }
    }
}

#[test]
fn live_intervals_hold_too_and_later_packets_help() {
    let make = Make { nodes: 12, rounds: 20, degree: 3, noise_ns: 60.0, asymmetry_ns: 10.0, walk: 4.0 };
    let (mut inside, mut count, mut live, mut whole) = (0u32, 0u32, 0.0, 0.0);
    for seed in 20..28 {
        let run = Run::new(make, seed);
        let mut online = Online::new(make.nodes, NodeId(0));
        let smoothed = run.smoothed(&[], &SmootherOptions::default());
        for (k, round) in run.rounds().iter().enumerate() {
            let estimates = online.observe(round, &[]);
            for (node, found) in estimates.iter().enumerate().skip(1) {
                let found = found.expect("measured");
                let error = found.offset_ns - run.truth[k][node][0];
                inside += u32::from(error.abs() <= found.half_width_95_ns);
                count += 1;
                if k >= 4 {
                    live += error.powi(2);
                    let later = smoothed.at(NodeId(node as u32), at(run.midpoints[k])).expect("measured");
                    whole += (later.offset_ns - run.truth[k][node][0]).powi(2);
                }
            }
        }
    }
    let share = f64::from(inside) / f64::from(count);
    assert!((0.91..=0.99).contains(&share), "{share} of the truths inside");
    assert!(whole < live, "squares {whole} with later packets, {live} without");
}

#[test]
fn live_many_residuals_narrow_what_is_claimed_and_few_widen_it() {
    assert!((factor([120.0, 60.0]) - 2.0).abs() < 1e-12, "twice the squares are twice the variance");
    assert!((factor([60.0, 120.0]) - 360.0 / 420.0).abs() < 1e-12, "of a small cluster half the squares say little");
    assert!((factor([7_500.0, 15_000.0]) - 0.51).abs() < 0.01, "of a large one they do");
    assert_eq!(factor([1e9, 1.0]), 25.0);
}

#[test]
fn live_a_step_starts_the_clock_anew() {
    let make = Make { nodes: 8, rounds: 10, degree: 3, noise_ns: 20.0, asymmetry_ns: 10.0, walk: 4.0 };
    for node in [3, 0] {
        let run = Run::stepped(make, 2, &[(5, node, -10e6)]);
        for told in [true, false] {
            let mut online = Online::new(make.nodes, NodeId(0));
            for (k, round) in run.rounds().iter().enumerate() {
                let broken = if told && k == 5 { vec![NodeId(node as u32)] } else { Vec::new() };
                for (n, found) in online.observe(round, &broken).iter().enumerate().skip(1) {
                    let error = found.expect("measured").offset_ns - run.truth[k][n][0];
                    assert!(error.abs() < 80.0, "step of {node}, told {told}: node {n} round {k}: {error} ns");
                }
            }
        }
    }
}

mod hostile;
mod shared;
mod wander;
mod warming;

#[test]
fn what_weights_leave_of_a_variance() {
    let steps = 200_000;
    let mean = |value: &dyn Fn(f64) -> f64, upper: f64| {
        let step = upper / f64::from(steps);
        (0..steps).map(|k| value((f64::from(k) + 0.5) * step) * step).sum::<f64>()
    };
    // A normal variable's square, and the sum of two squares, which is exponential with mean 2.
    let single = |z: f64| weight(1.0, z * z) * z * z * (-0.5 * z * z).exp() * (2.0 / std::f64::consts::PI).sqrt();
    let pair = |x: f64| weight(2.0, x) * x * 0.25 * (-0.5 * x).exp();
    assert!((mean(&single, 12.0) - WEIGHTED_SINGLE).abs() < 1e-5);
    assert!((mean(&pair, 80.0) - WEIGHTED_PAIR).abs() < 1e-5);
}
