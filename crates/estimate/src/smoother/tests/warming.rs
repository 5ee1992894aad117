//! Tests that a clock that begins to warm up in the middle of a run is followed, and that a run
//! without warming is unchanged.
//!
//! As in `tests`, lines are the states in the middle of the windows, so the tests judge how well
//! the smoother follows.

use super::*;
use crate::statistics::SIGMAS_95;

const NODE: usize = 3;
const ONSET_S: f64 = 33.0;
const TAU_S: f64 = 15.0;

/// What a change of `ns_per_s` that sets in at [`ONSET_S`] has added to offset and rate.
fn warmth(ns_per_s: f64, t: f64) -> Pair {
    let since = (t - ONSET_S).max(0.0);
    let left = (-since / TAU_S).exp();
    [ns_per_s * (since - TAU_S * (1.0 - left)), ns_per_s * (1.0 - left)]
}

/// A run in which [`NODE`] warms up, every other clock keeps its rate.
fn warming(seed: u64, ns_per_s: f64) -> Run {
    let make = Make { nodes: 8, rounds: 24, degree: 3, noise_ns: 6.0, asymmetry_ns: 0.0, walk: 1e-6 };
    let mut run = Run::new(make, seed);
    for (k, edges) in run.edges.iter_mut().enumerate() {
        let added = warmth(ns_per_s, k as f64 * WINDOW_S);
        run.truth[k][NODE] = [0, 1].map(|c| run.truth[k][NODE][c] + added[c]);
        for edge in edges.iter_mut() {
            let ends = [edge.src_node_id, edge.dst_node_id].map(|node| node.index() == NODE);
            let sign = f64::from(i8::from(ends[1]) - i8::from(ends[0]));
            edge.beta += sign * added[0];
            edge.alpha += sign * added[1] * 1e-9;
        }
        let input = GraphInput {
            nodes: make.nodes,
            reference: NodeId(0),
            reference_midpoint: Timestamp::from_ns(run.midpoints[k]),
            edges,
        };
        run.solutions[k] = solve(&input, &GraphOptions::default()).expect("sound edges");
    }
    run
}

/// The error of [`NODE`] `t` seconds after the first midpoint, and what is stated of it, asymmetry
/// apart.
fn judged(run: &Run, smoothed: &RunSolution, ns_per_s: f64, t: f64) -> [f64; 2] {
    let found = smoothed.at(NodeId(NODE as u32), at(run.midpoints[0] + (t * 1e9) as i64)).expect("measured");
    let steady = run.truth[0][NODE][0] + t * run.truth[0][NODE][1];
    let random = (found.sigma_ns.powi(2) - found.asymmetry_sigma_ns.powi(2)).sqrt();
    [found.offset_ns - steady - warmth(ns_per_s, t)[0], random]
}

#[test]
fn a_warming_clock_is_followed_between_the_knots() {
    for ns_per_s in [200.0, -600.0] {
        let (mut square, mut inside, mut count) = (0.0, [0u32; 2], 0u32);
        for seed in 0..8 {
            let run = warming(seed, ns_per_s);
            let known = SmootherOptions { asymmetry_variance: Some(0.01), ..SmootherOptions::default() };
            let followed = run.smoothed(&[], &known);
            let quiet = run.smoothed(&[], &SmootherOptions { walk_density: Some(4.0), ..known });
            for quarter in 120..220 {
                let t = f64::from(quarter) / 4.0;
                let both = [&followed, &quiet].map(|smoothed| judged(&run, smoothed, ns_per_s, t));
                let [error, sigma] = both[0];
                assert!(error.abs() < 4.0 * sigma + 2.0, "seed {seed}, {t} s: {error} ns off, {sigma} ns stated");
                square += error * error;
                both.iter().zip(&mut inside).for_each(|([error, sigma], inside)| {
                    *inside += u32::from(error.abs() <= SIGMAS_95 * sigma);
                });
                count += 1;
            }
        }
        let rms = (square / f64::from(count)).sqrt();
        assert!(rms < 6.0, "{ns_per_s} ns/s: rms {rms} ns, with 6 ns of noise per edge");
        let [followed, quiet] = inside.map(|inside| f64::from(inside) / f64::from(count));
        assert!(
            followed > 0.90,
            "{ns_per_s} ns/s: {followed} of the truths inside, {quiet} with one density for the run"
        );
    }
}

#[test]
fn a_quiet_run_is_what_one_density_makes_of_it() {
    let make = Make { nodes: 10, rounds: 20, degree: 3, noise_ns: 10.0, asymmetry_ns: 10.0, walk: 4.0 };
    let (mut squares, mut sigmas) = ([0.0; 2], [0.0; 2]);
    for seed in 0..10 {
        let run = Run::new(make, seed);
        let options =
            [None, Some(make.walk)].map(|walk_density| SmootherOptions { walk_density, ..SmootherOptions::default() });
        for (way, options) in options.iter().enumerate() {
            let smoothed = run.smoothed(&[], options);
            for (k, midpoint) in run.midpoints.iter().enumerate() {
                for node in 1..make.nodes {
                    let found = smoothed.at(NodeId(node as u32), at(*midpoint)).expect("measured");
                    squares[way] += (found.offset_ns - run.truth[k][node][0]).powi(2);
                    sigmas[way] += found.sigma_ns;
                }
            }
        }
    }
    let error = (squares[0] / squares[1]).sqrt();
    assert!(error < 1.03, "rms error {error} of that with the true density");
    assert!((sigmas[0] / sigmas[1] - 1.0).abs() < 0.05, "sigma {} of that", sigmas[0] / sigmas[1]);
}
