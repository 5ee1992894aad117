//! Benchmark of smoothing a run: the joint solution by size, and the live variant per round.
//!
//! `cargo bench -p probe-sync-estimate --bench smoother [-- --quick | --round]`
//!
//! Made-up rounds of N nodes and degree 10 (a ring with seeded chords), windows of 4 s, clocks
//! whose rates walk, constant asymmetry per pair. Times are of one core; "peak" is the process's
//! largest memory so far, rounds included.
//!
//! With `--round` only what a live round costs: the graph, the watch and the live smoother
//! together, and the smoother alone.
//!
//! It asserts no timing. Under `cargo test --benches` it runs only a small size, so that it keeps
//! compiling and working.

use std::time::Instant;

use probe_sync_estimate::graph::{GraphInput, GraphOptions, GraphSolution, solve};
use probe_sync_estimate::round::{Solver, SolverOptions};
use probe_sync_estimate::smoother::{Online, SmootherOptions, SmootherRound, smooth_run};
use probe_sync_lines::{EdgeFit, NodeWindow, Punctuality};
use probe_sync_time::{NodeId, RoundId, StampSource, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = |flag: &str| std::env::args().any(|argument| argument == flag);
    let quick = given("--quick") || !given("--bench");
    if given("--round") {
        println!("{:>6} {:>7} {:>12} {:>12}", "nodes", "rounds", "round ms p50", "live ms p50");
        return [64, 1024].into_iter().try_for_each(|nodes| round_time(nodes, if quick { 8 } else { 100 }));
    }
    println!(
        "{:>6} {:>7} {:>10} {:>7} {:>10} {:>9} {:>11} {:>11} {:>9}",
        "nodes", "rounds", "measures", "steps", "smooth s", "rms ns", "live ms p50", "live ms max", "peak MiB"
    );
    let sizes: &[(usize, usize)] = if quick { &[(16, 8)] } else { &[(16, 16), (64, 150), (512, 150), (1024, 150)] };
    for &(nodes, rounds) in sizes {
        measure(nodes, rounds)?;
    }
    Ok(())
}

struct Made {
    edges: Vec<EdgeFit>,
    midpoint_ns: i64,
    solution: GraphSolution,
    truth: Vec<f64>,
}

fn measure(nodes: usize, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let made = make(nodes, count)?;
    let rounds: Vec<SmootherRound<'_>> = made
        .iter()
        .zip((0..).map(RoundId))
        .map(|(made, id)| {
            SmootherRound::solved(id, Timestamp::from_ns(made.midpoint_ns), &made.edges, &made.solution, &[])
        })
        .collect();
    let begun = Instant::now();
    let smoothed = smooth_run(nodes, &rounds, &[], &SmootherOptions::default());
    let seconds = begun.elapsed().as_secs_f64();
    let mut squares = 0.0;
    for made in &made {
        for node in 1..nodes {
            let found = smoothed
                .at(NodeId(node as u32), Timestamp::from_ns(made.midpoint_ns))
                .map_or(f64::NAN, |found| found.offset_ns);
            squares += (found - made.truth[node]).powi(2);
        }
    }
    let mut online = Online::new(nodes, NodeId(0));
    let mut live: Vec<f64> = rounds
        .iter()
        .map(|round| {
            let begun = Instant::now();
            std::hint::black_box(online.observe(round, &[]));
            begun.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    live.sort_by(f64::total_cmp);
    println!(
        "{nodes:>6} {count:>7} {:>10} {:>7} {seconds:>10.3} {:>9.1} {:>11.2} {:>11.2} {:>9}",
        made.iter().map(|made| made.edges.len()).sum::<usize>(),
        smoothed.solver_steps,
        (squares / (made.len() * (nodes - 1)) as f64).sqrt(),
        live[live.len() / 2],
        live[live.len() - 1],
        peak_mib(),
    );
    Ok(())
}

fn round_time(nodes: usize, count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let made = make(nodes, count)?;
    let mut solver = Solver::new(SolverOptions::new(nodes, NodeId(0)));
    let mut online = Online::new(nodes, NodeId(0));
    let (mut whole, mut live) = (Vec::new(), Vec::new());
    for (id, made) in (0..).map(RoundId).zip(&made) {
        let windows: Vec<NodeWindow> = (0..nodes).map(|node| window(node, id, made)).collect();
        let begun = Instant::now();
        std::hint::black_box(solver.solve(id, &windows[0], &windows)?);
        whole.push(begun.elapsed().as_secs_f64() * 1e3);
        let round = SmootherRound::solved(id, Timestamp::from_ns(made.midpoint_ns), &made.edges, &made.solution, &[]);
        let begun = Instant::now();
        std::hint::black_box(online.observe(&round, &[]));
        live.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    let [whole, live] = [whole, live].map(|mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!("{nodes:>6} {count:>7} {whole:>12.2} {live:>12.2}");
    Ok(())
}

/// A node's window with its edges of a round.
fn window(node: usize, round_id: RoundId, made: &Made) -> NodeWindow {
    let middle_ns = made.midpoint_ns + made.truth[node].round() as i64;
    let [window_start, window_end] = [-2, 2].map(|seconds| Timestamp::from_ns(middle_ns + seconds * 1_000_000_000));
    NodeWindow {
        node_id: NodeId(node as u32),
        round_id,
        window_start,
        window_end,
        edges: made.edges.iter().filter(|edge| edge.src_node_id.index() == node).cloned().collect(),
        clock_event: None,
        stop_requested: false,
        packets: Vec::new(),
        unfitted: Vec::new(),
        punctuality: Punctuality::default(),
    }
}

fn make(nodes: usize, count: usize) -> Result<Vec<Made>, Box<dyn std::error::Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let pairs: Vec<(usize, usize, f64)> = (0..nodes)
        .flat_map(|from| (0..5).map(move |k| (from, k)))
        .map(|(from, k)| {
            let to = if k == 0 { (from + 1) % nodes } else { random.random_range(0..nodes) };
            (from, to, 20.0 * normal(&mut random))
        })
        .filter(|(from, to, _)| from != to)
        .collect();
    let mut clocks: Vec<[f64; 2]> =
        (0..nodes).map(|_| [random.random_range(-1e7..1e7), random.random_range(-3e4..3e4)]).collect();
    let mut made = Vec::with_capacity(count);
    for round in 0..count {
        let midpoint_ns = MIDPOINT + round as i64 * 4_000_000_000;
        let truth: Vec<f64> = clocks.iter().map(|clock| clock[0] - clocks[0][0]).collect();
        let edges: Vec<EdgeFit> = pairs
            .iter()
            .map(|(from, to, bias)| {
                let noise = [30.0 * normal(&mut random), 20.0 * normal(&mut random)];
                let rate = clocks[*to][1] - clocks[*from][1] + noise[1];
                edge(
                    *from,
                    *to,
                    midpoint_ns + truth[*from].round() as i64,
                    rate * 1e-9,
                    truth[*to] - truth[*from] + bias + noise[0],
                )
            })
            .collect();
        let input = GraphInput {
            nodes,
            reference: NodeId(0),
            reference_midpoint: Timestamp::from_ns(midpoint_ns),
            edges: &edges,
        };
        let solution = solve(&input, &GraphOptions { covariance: false, ..GraphOptions::default() })?;
        made.push(Made { edges, midpoint_ns, solution, truth });
        for clock in &mut clocks {
            let jump = 4.0 * normal(&mut random);
            *clock = [clock[0] + 4.0 * clock[1] + 2.0 * jump, clock[1] + jump];
        }
    }
    Ok(made)
}

fn edge(from: usize, to: usize, midpoint_ns: i64, alpha: f64, beta: f64) -> EdgeFit {
    EdgeFit {
        src_node_id: NodeId(from as u32),
        dst_node_id: NodeId(to as u32),
        midpoint: Timestamp::from_ns(midpoint_ns),
        alpha,
        beta,
        pairs_count: 90,
        lost_count: 0,
        covariance: [900.0, 0.0, 400e-18],
        margin_ns: 5_000.0,
        bound_lo_ns: beta - 5_000.0,
        bound_hi_ns: beta + 5_000.0,
        alpha_bounds: [alpha - 1e-7, alpha + 1e-7],
        feasible: true,
        purity: 0.8,
        stamp: StampSource::Hardware,
        stamp_errors_ns: [0.0; 2],
    }
}

fn normal(random: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

/// Largest resident memory of this process so far (`VmHWM`), MiB; 0 where the system does not say.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).map_or(0, |kib| kib / 1024)
}

const MIDPOINT: i64 = 1_790_000_000_000_000_000;
