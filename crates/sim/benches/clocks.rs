//! Runs whose clocks are hard to follow, judged by the truth:
//! `cargo bench -p probe-sync-sim --bench clocks -- warming|swinging [SEEDS]`.
//!
//! `warming` (12 seeds by default) has clocks that warm up, from a generator for which nothing was
//! tuned; `swinging` (200 seeds) has oscillating clocks on a loaded machine, on which no clock
//! steps.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use probe_sync_sim::accuracy::quantile;
use probe_sync_sim::swinging::{self, Outside, SIGMAS, SLACK_NS, Stated, SwingingOutcome, WINDOWS_S};
use probe_sync_sim::warming::{WarmingCell, WarmingOutcome};
use probe_sync_sim::{Error, Scenario, warming};
use probe_sync_time::StampSource;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let seeds = |usual| words.get(1).map_or(Ok(usual), |count| count.parse::<u64>());
    let printed = match (words.first().map(String::as_str), seeds(12), seeds(200)) {
        (Some("warming"), Ok(seeds), _) => print_warming(seeds),
        (Some("swinging"), _, Ok(seeds)) => print_swinging(seeds),
        // With the other benches: only that it works.
        (None, ..) => print_warming(1).and_then(|()| print_swinging(1)),
        _ => {
            eprintln!("usage: clocks -- warming|swinging [SEEDS]");
            return ExitCode::FAILURE;
        }
    };
    if let Err(error) = printed {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Errors of every node every 250 ms, and whether the stated intervals hold.
fn print_warming(seeds: u64) -> Result<(), Error> {
    print_warming_head(seeds);
    let (mut held, mut count, mut missing) = (0, 0, 0);
    let (mut demands, mut others) = (Vec::new(), Vec::new());
    for cell in WarmingCell::ALL {
        let mut outcome = WarmingOutcome::default();
        of_seeds(seeds, |seed| warming::run(&cell, seed)).iter().for_each(|run| outcome.add(run));
        let [lines, joined, live] = [&outcome.lines, &outcome.joined, &outcome.live].map(|pool| pool.summary());
        missing += lines.missing;
        let limit_ns = if cell.stamps == StampSource::Hardware { 35.0 } else { 100.0 };
        let within = lines.p99_ns <= limit_ns;
        demands.push((within, format!("{}: p99 {:.1} ns, at most {limit_ns} ns", cell.name(), lines.p99_ns)));
        let (Some(stated), Some(hard), Some(stated_live)) = (lines.interval, lines.hard, live.interval) else {
            println!("{:8} no intervals", cell.name());
            continue;
        };
        (held, count) = (held + stated.held, count + stated.count);
        let z = &outcome.asymmetry_z;
        println!(
            "{:8} {:7.1} {:7.1} {:7.1} {:7.1} {:7.1} {:6.1}% {:6.2} {:>12} {:7} {:5.2} {:5.2} {:7.1} {:7.1} {:7.1} {:7.1} {:6.1}% {:5.1} {:5} {:6}",
            cell.name(),
            lines.p50_ns,
            lines.p99_ns,
            p99(outcome.floor_ns),
            lines.max_ns,
            stated.half_width_ns,
            100.0 * stated.share(),
            stated.half_width_per_rms,
            format!("{}/{}", hard.count - hard.held, hard.count),
            lines.missing,
            (z.iter().map(|z| z * z).sum::<f64>() / z.len() as f64).sqrt(),
            z.iter().copied().fold(0.0, f64::max),
            joined.p50_ns,
            joined.p99_ns,
            live.p50_ns,
            live.p99_ns,
            100.0 * stated_live.share(),
            outcome.hole_s,
            outcome.rate_changes,
            outcome.others.len(),
        );
        others.extend(outcome.others);
    }
    let share = held as f64 / count.max(1) as f64;
    let within = (0.93..=0.97).contains(&share);
    demands.push((within, format!("95 % intervals cover {:.1} % in all cells, 93 to 97 %", 100.0 * share)));
    let first = others.first().map_or_else(String::new, |first| format!(", first: {first}"));
    demands.push((others.is_empty(), format!("{} faults but changes of rate{first}", others.len())));
    demands.push((missing == 0, format!("{missing} lines missing")));
    for (reached, demand) in demands {
        println!("{}: {demand}", if reached { "reached" } else { "NOT reached" });
    }
    Ok(())
}

fn print_warming_head(seeds: u64) {
    println!(
        "{seeds} seeds; |error| of every node every 250 ms, ns; floor: p99 if everything but the asymmetry were known; joined: the \
         windows' estimates with linear interpolation;\nz: mean error of a node over the run relative to its stated asymmetry, RMS and \
         largest of the seeds; hole: between two usable estimates of the windows, s"
    );
    println!(
        "{:8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>12} {:>7} {:>5} {:>5} {:>7} {:>7} {:>7} {:>7} {:>7} {:>5} {:>5} {:>6}",
        "stamps",
        "p50",
        "p99",
        "floor",
        "max",
        "±95 %",
        "covers",
        "±/RMS",
        "hard outside",
        "missing",
        "z",
        "most",
        "joined",
        "p99",
        "live",
        "p99",
        "covers",
        "hole",
        "rates",
        "others"
    );
}

/// False reports, and estimates that are further from the truth than they claim.
fn print_swinging(seeds: u64) -> Result<(), Error> {
    let base = Scenario::from_toml(include_str!("../../../bench/scenarios/cell.toml"))?;
    let runs = of_seeds(seeds, |seed| swinging::run(&base, seed).map(|outcome| (seed, outcome)));
    let runs: Vec<(u64, SwingingOutcome)> = runs.into_iter().collect::<Result<_, _>>()?;
    println!(
        "{seeds} seeds; false: clock and path faults reported although none happened; outside: further from the truth than {SIGMAS} \
         sigma + {SLACK_NS} ns; p99 in ns"
    );
    println!(
        "{:>6} {:>6} {:>5} {:>5} {:>6} {:>9} {:>8} {:>9} {:>7} {:>9} {:>7} {:>11}  first false report, or farthest outside",
        "window",
        "pauses",
        "runs",
        "false",
        "rates",
        "estimates",
        "unusable",
        "live p99",
        "outside",
        "smoothed",
        "outside",
        "not in hard"
    );
    for (window_s, pauses) in WINDOWS_S.into_iter().flat_map(|window_s| [(window_s, false), (window_s, true)]) {
        let of_row = |seed| {
            let own: f64 = swinging::scenario(&base, seed).window_s;
            (own - window_s).abs() < 1e-9 && swinging::pauses(seed) == pauses
        };
        let (mut live, mut smoothed, mut wrong) = (Stated::default(), Stated::default(), Vec::new());
        let (mut count, mut rates) = (0, 0);
        for (_, outcome) in runs.iter().filter(|(seed, _)| of_row(*seed)) {
            (count, rates) = (count + 1, rates + outcome.rate_changes());
            wrong.extend(outcome.false_names().map(ToString::to_string));
            live.add(&outcome.live);
            smoothed.add(&outcome.smoothed);
        }
        let farthest = smoothed.farthest.or(live.farthest);
        let farthest = farthest.map_or_else(String::new, |Outside { round, node, error_ns, sigma_ns }| {
            format!("round {round}: node {node} off by {error_ns:.0} ns, sigma {sigma_ns:.0} ns")
        });
        println!(
            "{window_s:4} s {:>6} {count:5} {:5} {rates:6} {:9} {:8} {:9.1} {:7} {:9.1} {:7} {:11}  {}",
            if pauses { "yes" } else { "no" },
            wrong.len(),
            live.errors_ns.len() + smoothed.errors_ns.len(),
            live.unusable + smoothed.unusable,
            p99(live.errors_ns),
            live.outside,
            p99(smoothed.errors_ns),
            smoothed.outside,
            live.outside_hard + smoothed.outside_hard,
            wrong.first().unwrap_or(&farthest),
        );
    }
    Ok(())
}

fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    quantile(&values, 0.99)
}

/// Runs seeds 1 to `seeds` on all cores; results are in order of seeds.
fn of_seeds<T: Send>(seeds: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let (next, all) = (AtomicU64::new(1), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds {
                return;
            }
            let result = run(seed);
            all.lock().expect("no thread panics with it").push((seed, result));
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let mut all = all.into_inner().expect("no thread panicked");
    all.sort_by_key(|(seed, _)| *seed);
    all.into_iter().map(|(_, result)| result).collect()
}
