//! `cargo xtask test`: the tests, in two tiers.
//!
//! The quick tier is what anybody runs from a fresh clone: one build, every test that needs nothing
//! but crates and the distribution's MPI, the shared suite under `mpirun`, and one whole run that
//! is judged against the truth. `--all` adds what takes long or needs downloads: tests marked
//! `#[ignore = "long: …"]`, both clippys, documentation, network namespaces, Open MPI 5 with ULFM,
//! MPICH, other people's readers, torch and JAX, a browser, Prometheus, sanitizers and
//! installations. `steps.txt` has all steps but the tests themselves, which are here, and
//! CONTRIBUTING.md a table of them. A failing step does not stop the later ones, except where they
//! would only repeat its failure.

pub mod jobs;
pub mod lines;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::setup::{self, Tools, Wanted};
use crate::steps::{self, Count, Runner};
use crate::{tidy, tools};
use jobs::{Places, selection};

/// How much of the tests to run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Tier {
    /// What needs no downloads beyond crates and the distribution's MPI.
    Quick,
    /// Everything.
    All,
}

/// Sets up and runs the steps of `tier`; with `only`, the steps of both tiers whose name contains
/// it.
///
/// # Errors
/// When anything failed.
pub fn test(root: &Path, tier: Tier, only: Option<&str>) -> Result<()> {
    let start = Instant::now();
    let tier = if only.is_some() { Tier::All } else { tier };
    let tools = setup::setup(root, if tier == Tier::All { Wanted::Everything } else { Wanted::Mpi })?;
    let mut runner = Runner::new(root, only)?;
    println!("{}", steps::free_space(root));
    let mut places = Places::new(root, tools, "dev");
    runner.check("tidy", || tidy::tidy(root));
    places.run(&mut runner, &["text"]);
    match tier {
        Tier::Quick => quick(&mut runner, &mut places, root, tools, tier),
        Tier::All => std::thread::scope(|scope| {
            // Downloads wait for the network while builds use the processor.
            let downloads = only.is_none().then(|| scope.spawn(|| fetch(root, tools)));
            if only.is_none() {
                // A failure is a step of its own.
                let _ = places.programs(&mut runner);
            }
            // Tests and runs that lose ranks mostly wait; lints use the processor meanwhile.
            let mut background = runner.in_background();
            let lints = scope.spawn(move || {
                Places::new(root, tools, "dev").run(&mut background, &["lints"]);
                background
            });
            quick(&mut runner, &mut places, root, tools, tier);
            if let Some(downloads) = downloads {
                downloads.join().expect("a panic there is a panic here");
            }
            places.run(&mut runner, &["survivors"]);
            runner.absorb(lints.join().expect("a panic there is a panic here"));
            // Figures are judged from here on, so nothing runs beside.
            places.run(&mut runner, &["judged", "others", "book", "browser", "flow"]);
            places.run(&mut runner, &["python", "versions", "jax", "torch", "races", "last"]);
            if !tools.complete() {
                runner.skip("feature sets", &format!("cannot build all of them: missing {}", tools.missing()));
            }
        }),
    }
    println!("\n{}", steps::free_space(root));
    println!("all steps took {:.0} s", start.elapsed().as_secs_f64());
    runner.finish()
}

/// What both tiers run.
fn quick(runner: &mut Runner, places: &mut Places<'_>, root: &Path, tools: Tools, tier: Tier) {
    if runner.wants(TESTS) {
        // Compiled apart from running, so that the times tell building from testing.
        match places.programs(runner) {
            Ok(()) => tests(runner, root, tools, tier),
            Err(reason) => runner.skip(TESTS, &reason),
        }
    }
    places.run(runner, &["quick"]);
}

/// Every test once, in the larger set of features; those that take long only in the full tier.
fn tests(runner: &mut Runner, root: &Path, tools: Tools, tier: Tier) {
    let mut test = Command::new("cargo");
    // Also of tests that pass: what they leave out they say there.
    test.arg("test").args(selection(tools)).args(["--no-fail-fast", "--", "--show-output"]).current_dir(root);
    if tier == Tier::All {
        test.arg("--include-ignored");
    }
    // Most of the time tests wait, for rounds and for each other's processes.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        test.env("RUST_TEST_THREADS", (TESTS_PER_CORE * cores).min(TESTS_MAX).to_string());
    }
    let _ = runner.command(TESTS, Count::Tests, TESTS_LIMIT, &mut test);
}

/// Fetches the largest of what later steps need, while others compile. It never fails: each step
/// finds its own tools in place, or says why it does not.
fn fetch(root: &Path, tools: Tools) {
    for name in ["TORCH", "JAX", "CHECKERS"].into_iter().chain(tools.mpi().then_some("ULFM")) {
        let _ = tools::venv(root, name);
    }
}

const TESTS: &str = "tests";

/// Tests at once for each core.
const TESTS_PER_CORE: usize = 3;

/// Each may have several ranks, which want to run when a packet comes.
const TESTS_MAX: usize = 16;

/// All tests take six minutes on two quiet cores.
const TESTS_LIMIT: Duration = Duration::from_secs(3600);
