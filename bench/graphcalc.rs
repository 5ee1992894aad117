//! Benchmark of GraphCalc: its running time by graph size, and which solver is faster on its
//! systems.
//!
//! `cargo bench -p probe-sync-estimate --bench graphcalc [-- [--out FOLDER] [--quick]]`
//!
//! Rounds of N nodes and degree 10 (a ring with seeded random chords) are solved whole (reweighting
//! and hard intervals included), the covariance is timed apart, and one linear system of the same
//! round is given to every solver: conjugate gradients, dense Cholesky, and nalgebra-sparse's
//! Cholesky. With `--out` that system is written as triplets for `bench/graphcalc.py`, which times
//! scipy on it. Medians of repeated runs on one core.
//!
//! "CG diff" is the largest difference from the dense solution, ns, with conjugate gradients
//! stopped at 1e-6 standard deviations per node, a thousandth of what a round asks for.
//!
//! It asserts no timing. Under `cargo test --benches` it runs only small sizes, so that it keeps
//! compiling and working.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nalgebra::DVector;
use nalgebra_sparse::factorization::CscCholesky;
use nalgebra_sparse::{CooMatrix, CscMatrix};
use probe_sync_estimate::graph::linear::{Laplacian, Link, Pair};
use probe_sync_estimate::graph::{GraphInput, GraphOptions, covariance, solve};
use probe_sync_lines::EdgeFit;
use probe_sync_time::{NodeId, StampSource, Timestamp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let given = |flag: &str| arguments.iter().any(|argument| argument == flag);
    // `cargo bench` says so; `cargo test` does not.
    let quick = given("--quick") || !given("--bench");
    let out = arguments.iter().position(|argument| argument == "--out").and_then(|at| arguments.get(at + 1));
    let out = out.map(PathBuf::from);
    println!(
        "{:>6} {:>10} {:>5} {:>6} {:>12} {:>10} {:>10} {:>12} {:>8}",
        "nodes", "round ms", "iter", "steps", "covar ms", "CG ms", "dense ms", "csc chol ms", "CG diff"
    );
    let sizes: &[usize] = if quick { &[8, 32] } else { &[8, 12, 16, 32, 128, 1024, 10240] };
    for &nodes in sizes {
        measure(nodes, out.as_deref())?;
    }
    Ok(())
}

fn measure(nodes: usize, out: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let edges = round(nodes, 10.min(nodes - 1), 7);
    let input =
        GraphInput { nodes, reference: NodeId(0), reference_midpoint: Timestamp::from_ns(MIDPOINT), edges: &edges };
    let without = GraphOptions { covariance: false, ..GraphOptions::default() };
    let solution = solve(&input, &without)?;
    let whole = time(nodes, || solve(&input, &without));

    let (laplacian, right) = system(nodes, &edges);
    let of_covariance = time(nodes, || covariance(&laplacian, 0));
    let mut iterative = vec![[0.0; 2]; nodes];
    let tolerance = 1e-6 * (nodes as f64).sqrt();
    let gradients = time(nodes, || {
        iterative.fill([0.0; 2]);
        laplacian.solve_iterative(&right, &mut iterative, tolerance, 10_000)
    });
    // Dense and unordered sparse factors grow with the cube: 10240 nodes would take an hour and 3
    // GB.
    let dense = (nodes <= 1024).then(|| time(nodes, || laplacian.solve_dense(&right)));
    let matrix = csc(&laplacian);
    let flat = DVector::from_iterator(2 * (nodes - 1), right[1..].iter().flatten().copied());
    let sparse =
        (nodes <= 1024).then(|| time(nodes, || CscCholesky::factor(&matrix).map(|factor| factor.solve(&flat))));
    let shown = |duration: Option<Duration>| duration.map_or("-".to_owned(), |duration| format!("{:.3}", ms(duration)));
    let exact = if nodes <= 128 { laplacian.solve_dense(&right) } else { None };
    let apart = |exact: Vec<Pair>| exact.iter().zip(&iterative).map(|(a, b)| (a[0] - b[0]).abs()).fold(0.0, f64::max);
    let difference = exact.map_or("-".to_owned(), |exact| format!("{:.1e}", apart(exact)));
    println!(
        "{nodes:>6} {:>10.3} {:>5} {:>6} {:>12.3} {:>10.3} {:>10} {:>12} {difference:>8}",
        ms(whole),
        solution.iterations,
        solution.solver_steps,
        ms(of_covariance),
        ms(gradients),
        shown(dense),
        shown(sparse),
    );
    if let Some(folder) = out {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join(format!("system_{nodes}.txt")), text(&matrix, &flat, ms(gradients), ms(whole)))?;
    }
    Ok(())
}

/// A round with noise, rates, asymmetry and misplaced midpoints, of `degree` edges per node.
fn round(nodes: usize, degree: usize, seed: u64) -> Vec<EdgeFit> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let offset: Vec<f64> = (0..nodes).map(|_| random.random_range(-1e7..1e7)).collect();
    let rate: Vec<f64> = (0..nodes).map(|_| random.random_range(-5e-5..5e-5)).collect();
    let mut edges = Vec::new();
    for src in 0..nodes {
        for k in 0..degree.div_ceil(2) {
            let dst = if k == 0 { (src + 1) % nodes } else { random.random_range(0..nodes) };
            if src != dst {
                let noise = random.random_range(-20.0..20.0);
                let misplaced = random.random_range(-5e6..5e6f64).round();
                let alpha = rate[dst] - rate[src] + random.random_range(-1e-8..1e-8);
                let beta = offset[dst] - offset[src] + alpha * misplaced + noise;
                let midpoint_ns = MIDPOINT + (offset[src] + misplaced) as i64;
                edges.push(edge((src, dst), midpoint_ns, alpha, beta));
            }
        }
    }
    edges
}

fn edge((src, dst): (usize, usize), midpoint_ns: i64, alpha: f64, beta: f64) -> EdgeFit {
    EdgeFit {
        src_node_id: NodeId(src as u32),
        dst_node_id: NodeId(dst as u32),
        midpoint: Timestamp::from_ns(midpoint_ns),
        alpha,
        beta,
        pairs_count: 90,
        lost_count: 0,
        covariance: [25.0, 0.0, 4e-17],
        margin_ns: 107.0,
        bound_lo_ns: beta - 107.0,
        bound_hi_ns: beta + 107.0,
        alpha_bounds: [alpha - 1e-7, alpha + 1e-7],
        feasible: true,
        purity: 0.8,
        stamp: StampSource::Kernel,
        stamp_errors_ns: [0.0; 2],
    }
}

/// The linear system of such a round, with weights spread over two decades as reweighting spreads
/// them.
fn system(nodes: usize, edges: &[EdgeFit]) -> (Laplacian, Vec<Pair>) {
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let link = |edge: &EdgeFit| {
        let weight = 10f64.powf(random.random_range(-4.0..-2.0));
        Link { from: edge.src_node_id.index(), to: edge.dst_node_id.index(), weight: [weight, 0.1 * weight, weight] }
    };
    let laplacian = Laplacian::new(edges.iter().map(link).collect(), (0..nodes).map(|node| node == 0).collect());
    let right = laplacian.right_side(edges.iter().map(|edge| [edge.beta, edge.alpha * 1e9]));
    (laplacian, right)
}

/// The same matrix without the reference's rows; duplicates are summed.
fn csc(laplacian: &Laplacian) -> CscMatrix<f64> {
    let size = 2 * laplacian.free();
    let mut triplets = CooMatrix::new(size, size);
    for Link { from, to, weight: [a, b, c] } in laplacian.links() {
        for (row, column, sign) in [(from, from, 1.0), (to, to, 1.0), (from, to, -1.0), (to, from, -1.0)] {
            if *row > 0 && *column > 0 {
                let (row, column) = (2 * (row - 1), 2 * (column - 1));
                triplets.push(row, column, sign * a);
                triplets.push(row, column + 1, sign * b);
                triplets.push(row + 1, column, sign * b);
                triplets.push(row + 1, column + 1, sign * c);
            }
        }
    }
    CscMatrix::from(&triplets)
}

/// `size`, our times, then one right side value per line, then row, column, value per line.
fn text(matrix: &CscMatrix<f64>, right: &DVector<f64>, solve_ms: f64, round_ms: f64) -> String {
    let mut text = format!("{} {solve_ms} {round_ms}\n", matrix.nrows());
    for value in right {
        let _ = writeln!(text, "{value:e}");
    }
    for (row, column, value) in matrix.triplet_iter() {
        let _ = writeln!(text, "{row} {column} {value:e}");
    }
    text
}

/// Median duration over as many runs as about a second allows, 3 to 200.
fn time<T>(nodes: usize, mut run: impl FnMut() -> T) -> Duration {
    let started = Instant::now();
    std::hint::black_box(run());
    let once = started.elapsed().max(Duration::from_nanos(100));
    let runs = if nodes > 2048 { 3 } else { (1.0 / once.as_secs_f64()).clamp(3.0, 200.0) as usize };
    let mut times: Vec<Duration> = (0..runs)
        .map(|_| {
            let started = Instant::now();
            std::hint::black_box(run());
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

const MIDPOINT: i64 = 1_795_187_183_227_565_825;
