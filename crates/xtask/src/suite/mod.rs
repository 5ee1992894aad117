//! `cargo xtask test`: every check and test there is, in one command; CI runs exactly this.
//!
//! Place in the flow: setup, then checks of the text, then clippy over both sets of features and the documentation, while what later steps need is fetched
//! (`ahead`), then every test once with all features that build here, then whole runs: under mpirun, over TCP, and across network namespaces ([`whole_runs`]), then
//! other people's readers on our traces ([`readers`]) and metrics ([`metrics`]), the report page in a browser ([`browser`]), then one real job from its traces to the truth (`flow`), then the Python
//! package (`python`) and the C interface as its users get it ([`c_interface`]), the recorder under ThreadSanitizer (`races`).
//! A failing step does not stop the later ones, except where they would only repeat its failure.
//! [`selection`] says which packages and features each step builds; everything uses the development profile.
//! What it does not do: benches (`cargo xtask bench`); libFuzzer (`cargo xtask fuzz`), whose build with coverage takes minutes: here the fuzz targets get
//! their seeds and 500 mutations each, as tests of their package. No step compiles libFuzzer's side of them.

mod ahead;
mod browser;
mod c_interface;
mod ends;
mod launchers;
mod metrics;
mod mpich;
pub mod readers;
pub mod selection;
mod ulfm;
mod whole_runs;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::book;
use crate::codegen;
use crate::flow;
use crate::python;
use crate::races;
use crate::setup::{self, Tools};
use crate::steps::{self, Count, Runner};
use crate::tidy;
use selection::{BUILD, TESTS, cargo, everything, plain};

pub use ulfm::install as install_ulfm;

/// Sets up and runs everything; with `only`, the steps whose name contains it.
///
/// # Errors
/// When anything failed.
pub fn test(root: &Path, only: Option<&str>) -> Result<()> {
    let start = Instant::now();
    let tools = setup::setup(root)?;
    let mut runner = Runner::new(root, only)?;
    println!("{}", steps::free_space(root));
    // Joined at the end of the scope: what follows measures times.
    let is_built = std::thread::scope(|scope| {
        if only.is_none() {
            scope.spawn(|| ahead::fetch(root, tools));
        }
        text(&mut runner, root);
        checks(&mut runner, root, tools);
        build_tests(&mut runner, root, tools)
    });
    if is_built {
        tests(&mut runner, root, tools);
    } else {
        runner.skip(TESTS_STEP, "they do not build");
    }
    whole_runs::run(&mut runner, root, tools);
    readers::run(&mut runner, root, tools);
    metrics::run(&mut runner, root, tools);
    book::run(&mut runner, root, tools);
    browser::run(&mut runner, root, tools);
    whole_flow(&mut runner, root, tools);
    python::run(&mut runner, root, python::Wheel::ForTests);
    c_interface::run(&mut runner, root);
    record_bench(&mut runner, root);
    races::run(&mut runner, root);
    dependencies(&mut runner, root);
    println!("\n{}", steps::free_space(root));
    println!("all steps took {:.0} s", start.elapsed().as_secs_f64());
    runner.finish()
}

/// What needs no compiler.
fn text(runner: &mut Runner, root: &Path) {
    runner.command("format", Count::Step, SHORT, &mut cargo(root, &["fmt", "--all", "--check"]));
    runner.check("tidy", || tidy::tidy(root));
    runner.check("codegen", || codegen::codegen(root, true));
}

/// Both sets of packages and features through clippy, and documentation in the larger set.
fn checks(runner: &mut Runner, root: &Path, tools: Tools) {
    // Clippy over all targets type-checks the tests as well, so the smaller set needs no run of its own: features only add.
    // What a binary says that lacks MPI is a unit test of the command in every set.
    let mut clippy = plain(root, &["clippy", "--all-targets"]);
    runner.command("clippy", Count::Step, BUILD, clippy.args(["--", "-D", "warnings"]));
    if !tools.complete() {
        runner.skip("feature sets", &format!("cannot build all of them: missing {}", tools.missing()));
    }
    let mut clippy = everything(root, tools, &["clippy", "--all-targets"]);
    runner.command("clippy with features", Count::Step, BUILD, clippy.args(["--", "-D", "warnings"]));
    let mut doc = everything(root, tools, &["doc", "--no-deps"]);
    runner.command("docs", Count::Step, BUILD, doc.env("RUSTDOCFLAGS", "-Dwarnings"));
}

/// Compiled apart from running, so that the times tell building from testing. False where tests are wanted and do not build.
fn build_tests(runner: &mut Runner, root: &Path, tools: Tools) -> bool {
    let mut build = everything(root, tools, &["build", "--bins", "--tests"]);
    !runner.wants(TESTS_STEP) || runner.prerequisite("build tests", Count::Step, BUILD, &mut build)
}

/// Every test once, in the larger set.
fn tests(runner: &mut Runner, root: &Path, tools: Tools) {
    let mut test = everything(root, tools, &["test", "--no-fail-fast"]);
    // Also of tests that pass: what they leave out they say there.
    test.args(["--", "--show-output"]);
    // Most of the time tests wait, for rounds and for each other's processes.
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        test.env("RUST_TEST_THREADS", (TESTS_PER_CORE * cores).min(TESTS_MAX).to_string());
    }
    runner.command(TESTS_STEP, Count::Tests, TESTS, &mut test);
}

/// A traced JAX job of four ranks, aligned by a run beside it, against the truth: the short form of `cargo xtask flow`.
fn whole_flow(runner: &mut Runner, root: &Path, tools: Tools) {
    if !runner.wants(FLOW) {
        return;
    }
    let mut build = everything(root, tools, &["build", "--bins", "--tests"]);
    if !runner.prerequisite("build programs for the flow", Count::Step, BUILD, &mut build) {
        return runner.skip(FLOW, "the programs do not build");
    }
    match flow::with_jax(root) {
        Ok(python) => {
            runner.check(FLOW, || flow::short(root, &python, &root.join("target/debug/probe_sync")));
        }
        Err(reason) => runner.skip(FLOW, &reason),
    }
}

/// The bench of the recorder, a few passes and without the other recorders, so that it does not rot.
fn record_bench(runner: &mut Runner, root: &Path) {
    let arguments = ["run", "--locked", "--manifest-path", "bench/record/Cargo.toml", "--no-default-features"];
    let mut command = cargo(root, &arguments);
    command.args(["--", "--short"]).env("CARGO_TARGET_DIR", steps::target(root).join("bench-record"));
    runner.command("bench, recorder", Count::Figures, BUILD, &mut command);
}

/// Licences, versions and sources of the dependencies, and where the network allows it the advisories about them.
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

const FLOW: &str = "flow of a traced job";

/// Tests at once for each core.
const TESTS_PER_CORE: usize = 3;

/// Each may have several ranks, which want to run when a packet comes.
const TESTS_MAX: usize = 16;

const SHORT: Duration = Duration::from_secs(120);
