//! Tests with clocks that wander within a window, whose lines are the least-squares fit of their
//! movement.
//!
//! In `tests` the lines are the states in the middle of the windows. Here a window's line differs
//! from the state, by the same amount for all edges of a node: loops close and do not show it, so
//! the intervals must account for it.

use super::*;
use crate::statistics::SIGMAS_95;

const PARTS: usize = 40;

/// A run whose clocks walk in small steps; a node's movement in a window enters all its edges as
/// its least-squares line.
fn wandering(make: Make, seed: u64) -> Run {
    let mut run = Run::new(Make { walk: 1e-9, asymmetry_ns: 0.0, ..make }, seed);
    let mut random = ChaCha8Rng::seed_from_u64(seed + 1000);
    let mut normal = move || {
        let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
        radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
    };
    let step = WINDOW_S / PARTS as f64;
    let mut states = vec![[0.0; 2]; make.nodes];
    for k in 0..make.rounds {
        let mut middles = Vec::new();
        let mut lines = Vec::new();
        for state in &mut states {
            let (mut sum, mut moment, mut square, mut middle) = (0.0, 0.0, 0.0, [0.0; 2]);
            for part in 0..=PARTS {
                let x = part as f64 * step - WINDOW_S / 2.0;
                (sum, moment, square) = (sum + state[0], moment + x * state[0], square + x * x);
                if part == PARTS / 2 {
                    middle = *state;
                }
                if part < PARTS {
                    let jump = (make.walk * step).sqrt() * normal();
                    *state = [state[0] + step * (state[1] + 0.5 * jump), state[1] + jump];
                }
            }
            middles.push(middle);
            lines.push([sum / (PARTS + 1) as f64, moment / square]);
        }
        for (node, truth) in run.truth[k].iter_mut().enumerate() {
            *truth = [0, 1].map(|c| truth[c] + middles[node][c] - middles[0][c]);
        }
        for edge in &mut run.edges[k] {
            let (i, j) = (edge.src_node_id.index(), edge.dst_node_id.index());
            edge.beta += lines[j][0] - lines[i][0];
            edge.alpha += (lines[j][1] - lines[i][1]) * 1e-9;
        }
        let input = GraphInput {
            nodes: make.nodes,
            reference: NodeId(0),
            reference_midpoint: Timestamp::from_ns(run.midpoints[k]),
            edges: &run.edges[k],
        };
        run.solutions[k] = solve(&input, &GraphOptions::default()).expect("sound edges");
    }
    run
}

#[test]
fn intervals_hold_what_clocks_wander_within_a_window() {
    for (walk, noise_ns) in [(4.0, 5.0), (100.0, 5.0), (1000.0, 5.0), (1000.0, 20.0)] {
        let make = Make { nodes: 10, rounds: 20, degree: 3, noise_ns, asymmetry_ns: 0.0, walk };
        let mut count = 0u32;
        let mut inside = [0u32; 2];
        let mut squares = [[0.0; 2]; 2];
        for seed in 0..6 {
            let run = wandering(make, seed);
            let known = SmootherOptions { asymmetry_variance: Some(1.0), ..SmootherOptions::default() };
            let smoothed = run.smoothed(&[], &known);
            let mut online = Online::new(make.nodes, NodeId(0));
            for (k, round) in run.rounds().iter().enumerate() {
                let live = online.observe(round, &[]);
                for node in 1..make.nodes {
                    let whole = smoothed.at(NodeId(node as u32), at(run.midpoints[k])).expect("measured");
                    let live = live[node].expect("measured");
                    count += 1;
                    for (at, found) in [whole, live].iter().enumerate() {
                        let error = found.offset_ns - run.truth[k][node][0];
                        // What wander alone does, without the asymmetry that is assumed but not
                        // there.
                        let random = (found.sigma_ns.powi(2) - found.asymmetry_sigma_ns.powi(2)).sqrt();
                        inside[at] += u32::from(error.abs() <= SIGMAS_95 * random);
                        squares[at][0] += error * error;
                        squares[at][1] += random * random;
                    }
                }
            }
        }
        let share = inside.map(|inside| f64::from(inside) / f64::from(count));
        let rms = squares.map(|s| s.map(|s| (s / f64::from(count)).sqrt()));
        // Live the wander is learned while it is needed, so that the first rounds' intervals are
        // too narrow.
        for (way, share, least) in [("with all rounds", share[0], 0.85), ("live", share[1], 0.6)] {
            let what = format!("walk {walk}, noise {noise_ns} ns, {way}");
            assert!(share >= least, "{what}: {share} of the truths inside, rms errors and sigmas {rms:?} ns");
        }
    }
}
