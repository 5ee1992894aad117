//! `cargo xtask test`: the tests, in two tiers.
//!
//! The quick tier is what anybody runs from a fresh clone: one build, every test that needs nothing
//! but crates and the distribution's MPI, the shared suite under `mpirun`, and one whole run that
//! is judged against the truth. `--all` adds what takes long or needs downloads: tests marked
//! `#[ignore = "long: …"]`, both clippys, documentation, network namespaces, Open MPI 5 with ULFM,
//! MPICH, other people's readers, torch and JAX, a browser, Prometheus, sanitizers and
//! installations. CONTRIBUTING.md has a table of all steps. A failing step does not stop the later
//! ones, except where they would only repeat its failure. [`build`] says which packages and
//! features each step builds; [`jobs`] runs the steps that start our programs.

mod browser;
pub mod build;
pub mod jobs;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::book;
use crate::python;
use crate::races;
use crate::setup::{self, Tools, Wanted};
use crate::steps::{self, Count, Runner};
use crate::tidy;
use crate::tools;
use build::{BUILD, TESTS, cargo, everything, plain};
use jobs::Places;

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
    text(&mut runner, root);
    let mut places = Places::new(root, tools);
    match tier {
        Tier::Quick => quick(&mut runner, &mut places, root, tools, tier),
        Tier::All => std::thread::scope(|scope| {
            // Downloads wait for the network while builds use the processor.
            let downloads = only.is_none().then(|| scope.spawn(|| fetch(root, tools)));
            // Tests and runs that lose ranks mostly wait; lints use the processor meanwhile, once
            // the tests are built.
            if only.is_none() {
                let _ = places.programs(&mut runner);
            }
            let mut background = runner.in_background();
            let lints = scope.spawn(move || {
                checks(&mut background, root, tools);
                background
            });
            quick(&mut runner, &mut places, root, tools, tier);
            if let Some(downloads) = downloads {
                downloads.join().expect("a panic there is a panic here");
            }
            places.run(&mut runner, "survivors");
            runner.absorb(lints.join().expect("a panic there is a panic here"));
            // Figures are judged from here on, so nothing runs beside.
            places.run(&mut runner, "judged");
            rest(&mut runner, &mut places, root, tools);
        }),
    }
    println!("\n{}", steps::free_space(root));
    println!("all steps took {:.0} s", start.elapsed().as_secs_f64());
    runner.finish()
}

/// What both tiers run.
fn quick(runner: &mut Runner, places: &mut Places<'_>, root: &Path, tools: Tools, tier: Tier) {
    if runner.wants(TESTS_STEP) {
        // Compiled apart from running, so that the times tell building from testing.
        match places.programs(runner) {
            Ok(_) => tests(runner, root, tools, tier),
            Err(reason) => runner.skip(TESTS_STEP, &reason),
        }
    }
    places.run(runner, "quick");
}

/// What only the full tier has, behind its whole runs.
fn rest(runner: &mut Runner, places: &mut Places<'_>, root: &Path, tools: Tools) {
    places.run(runner, "others");
    book::run(runner, root, tools);
    browser::run(runner, places, root);
    places.run(runner, "flow");
    python::run(runner, root, python::Wheel::ForTests);
    places.run(runner, "installed");
    record_bench(runner, root);
    races::run(runner, root);
    dependencies(runner, root);
}

/// Fetches what later steps need while others compile, the largest first. It never fails: each step
/// finds its own tools in place, or says why it does not.
fn fetch(root: &Path, tools: Tools) {
    let _ = tools::TORCH.install(root);
    let _ = tools::JAX.install(root);
    if tools.mpi() {
        let _ = tools::ULFM.install(root);
    }
    let mut prometheus = Command::new("python3");
    prometheus.args(["bench/metrics.py", "--fetch"]).current_dir(root);
    let installers =
        [("readers", jobs::readers(root)), ("python", python::installer(root)), ("prometheus", prometheus)];
    for (name, mut install) in installers {
        let _ = steps::logged(&mut install, &root.join(format!("target/xtask/logs/fetch-{name}.log")), FETCH);
    }
    let _ = tools::CHECKERS.install(root);
    let _ = browser::browser(root).and_then(|()| browser::axe(root));
}

/// What needs no compiler.
fn text(runner: &mut Runner, root: &Path) {
    runner.command("format", Count::Step, SHORT, &mut cargo(root, &["fmt", "--all", "--check"]));
    runner.check("tidy", || tidy::tidy(root));
    runner.command("codegen", Count::Step, BUILD, &mut codegen(root, true));
}

/// What writes the generated files, or with `check` compares them with their sources.
pub fn codegen(root: &Path, check: bool) -> Command {
    let mut command = cargo(root, &["run", "--quiet", "--locked", "--package", "codegen", "--"]);
    command.args(check.then_some("--check"));
    command
}

/// Runs both sets of packages and features through clippy, and builds the documentation of the
/// larger set.
fn checks(runner: &mut Runner, root: &Path, tools: Tools) {
    // Clippy over all targets type-checks the tests as well, so the smaller set needs no run of its
    // own: features only add. What a binary says that lacks MPI is a unit test of the command in
    // every set.
    let clippy = ["clippy", "--all-targets"];
    let deny: &[&str] = &["--", "-D", "warnings"];
    runner.command("clippy", Count::Step, LINT, &mut lint(root, &plain(root, &clippy), deny));
    runner.command("clippy with features", Count::Step, LINT, &mut lint(root, &everything(root, tools, &clippy), deny));
    runner.command("docs", Count::Step, LINT, &mut lint(root, &everything(root, tools, &["doc", "--no-deps"]), &[]));
    if !tools.complete() {
        runner.skip("feature sets", &format!("cannot build all of them: missing {}", tools.missing()));
    }
}

/// A call of cargo that runs beside the tests: at a low priority, and in a folder of its own,
/// because cargo locks the one it builds in.
fn lint(root: &Path, cargo: &Command, flags: &[&str]) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "10"]).arg(cargo.get_program()).args(cargo.get_args()).args(flags).current_dir(root);
    command.env("CARGO_TARGET_DIR", steps::target(root).join("lints")).env("RUSTDOCFLAGS", "-Dwarnings");
    command
}

/// Every test once, in the larger set; those that take long only in the full tier.
fn tests(runner: &mut Runner, root: &Path, tools: Tools, tier: Tier) {
    let mut test = everything(root, tools, &["test", "--no-fail-fast"]);
    // Also of tests that pass: what they leave out they say there.
    test.args(["--", "--show-output"]);
    if tier == Tier::All {
        test.arg("--include-ignored");
    }
    // Most of the time tests wait, for rounds and for each other's processes.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        test.env("RUST_TEST_THREADS", (TESTS_PER_CORE * cores).min(TESTS_MAX).to_string());
    }
    runner.command(TESTS_STEP, Count::Tests, TESTS, &mut test);
}

/// The bench of the recorder, a few passes and without the other recorders, so that it does not
/// rot.
fn record_bench(runner: &mut Runner, root: &Path) {
    let arguments = ["run", "--locked", "--manifest-path", "bench/record/Cargo.toml", "--no-default-features"];
    let mut command = cargo(root, &arguments);
    command.args(["--", "--short"]).env("CARGO_TARGET_DIR", steps::target(root).join("bench-record"));
    runner.command("bench, recorder", Count::Figures, BUILD, &mut command);
}

/// Licences, versions and sources of the dependencies, and where the network allows it the
/// advisories about them.
fn dependencies(runner: &mut Runner, root: &Path) {
    if steps::answer("cargo", &["deny", "--version"]).is_none() {
        runner.skip("cargo deny", "cargo-deny is not installed; `cargo install --locked cargo-deny`");
        return;
    }
    let quiet = ["check", "--hide-inclusion-graph"];
    let mut command = cargo(root, &["deny", "--locked"]);
    runner.command("cargo deny", Count::Step, SHORT, command.args(quiet).args(["bans", "licenses", "sources"]));
    if steps::answer("cargo", &["deny", "fetch", "db"]).is_none() {
        runner.skip("cargo deny, advisories", "the advisory database cannot be fetched here");
        return;
    }
    let mut command = cargo(root, &["deny", "--locked"]);
    runner.command("cargo deny, advisories", Count::Step, SHORT, command.args(quiet).arg("advisories"));
}

const TESTS_STEP: &str = "tests";

/// Tests at once for each core.
const TESTS_PER_CORE: usize = 3;

/// Each may have several ranks, which want to run when a packet comes.
const TESTS_MAX: usize = 16;

const SHORT: Duration = Duration::from_secs(120);

/// Above the installers' own deadlines, which are what normally ends them.
const FETCH: Duration = Duration::from_secs(300);

/// In the background of everything else, from a cold cache.
const LINT: Duration = Duration::from_secs(1800);
