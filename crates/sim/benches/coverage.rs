//! The tables of `probe_sync_sim::coverage`: whether 95 % intervals hold, and what a run gains
//! whose end chooses its own windows.
//!
//! `cargo bench -p probe-sync-sim --bench coverage -- windows` prints the second, with 24 seeds;
//! `-- cells` the first, with 60. Another number may follow, and after it the beginning of the
//! cells' names.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use probe_sync_sim::coverage::{Cell, Judged, Tally, run};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let seeds = words.get(1).map(|count| count.parse::<u64>());
    let seeds = |usual| seeds.clone().unwrap_or(Ok(usual));
    let begins = words.get(2).map_or("", String::as_str);
    match (words.first().map(String::as_str), seeds(24), seeds(60)) {
        (Some("windows"), Ok(seeds), _) => windows(seeds),
        (Some("cells"), _, Ok(seeds)) => cells(seeds, begins),
        // With the other benches: only that it works.
        (None, ..) => windows(1),
        _ => {
            eprintln!("usage: coverage -- windows|cells [SEEDS [NAME]]");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Root mean square errors, ns.
fn windows(seeds: u64) {
    println!("{seeds} seeds; RMS error and mean sigma in ns, from the rounds' own windows and from chosen ones");
    println!("{:16} {:>9} {:>9} {:>9} {:>9}", "", "own", "sigma", "chosen", "sigma");
    for cell in Cell::WINDOWS {
        let Judged { fits, solved, .. } = pooled(&cell, seeds);
        let [a, b, c, d] = [fits.rms_ns(), fits.sigma_ns(), solved.rms_ns(), solved.sigma_ns()];
        println!("{:16} {a:9.1} {b:9.1} {c:9.1} {d:9.1}", cell.name);
    }
}

/// Errors compared with the stated uncertainties.
fn cells(seeds: u64, begins: &str) {
    println!(
        "{seeds} seeds; RMS error and mean sigma in ns, share inside 95 % and beyond three sigma in %, largest error in sigma"
    );
    println!("{:14} | {:^38} | {:^38} | {:^38} | hard outside", "", "live", "end of a run", "solve --probes");
    for cell in Cell::COVERAGE.into_iter().filter(|cell| cell.name.starts_with(begins)) {
        let Judged { live, fits, solved } = pooled(&cell, seeds);
        let columns = [live, fits, solved].map(|tally| stated(&tally)).join(" | ");
        println!("{:14} | {columns} | {}", cell.name, live.outside + fits.outside + solved.outside);
    }
}

fn stated(tally: &Tally) -> String {
    let Tally { worst, .. } = tally;
    format!("{:8.1} {:9.1} {:6.1} {:6.2} {worst:5.1}", tally.rms_ns(), tally.sigma_ns(), tally.covered(), tally.far())
}

/// Pools the seeds of a cell, on all cores.
fn pooled(cell: &Cell, seeds: u64) -> Judged {
    let (next, pool) = (AtomicU64::new(1), Mutex::new(Judged::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > seeds {
                return;
            }
            let judged = run(cell, seed);
            pool.lock().expect("no thread panics with it").pool(&judged);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    pool.into_inner().expect("no thread panicked")
}
