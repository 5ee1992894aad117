//! `cargo xtask test`: every check and test there is, in one command; CI runs exactly this.
//!
//! Place in the flow: setup, then checks of the text, then tests of the default members, then the same with the optional
//! features, then whole runs: under mpirun, over TCP, and across network namespaces ([`whole_runs`]), then other people's
//! readers on our traces ([`readers`]), then the fuzz targets for a few seconds.
//! A failing step does not stop the later ones, except where they would only repeat its failure.
//!
//! Build time is what this command mostly costs, so everything uses the development profile, and all invocations with
//! features select the same packages and features: cargo then compiles each dependency once for checking and once for
//! running. Leaving packages out whose tests have run already looks cheaper and is not: another selection has other
//! features of common dependencies, and compiles them again.
//! What it does not do: benches (`cargo xtask bench`).

mod readers;
mod whole_runs;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::codegen;
use crate::fuzz;
use crate::setup::{self, Tools};
use crate::steps::{self, Count, Runner};
use crate::tidy;

/// Sets up and runs everything; with `only`, the steps whose name contains it.
///
/// # Errors
/// When anything failed.
pub fn test(root: &Path, only: Option<&str>) -> Result<()> {
    let start = Instant::now();
    let tools = setup::setup(root)?;
    let mut runner = Runner::new(root, only)?;
    text(&mut runner, root);
    default_members(&mut runner, root);
    with_features(&mut runner, root, tools);
    whole_runs::run(&mut runner, root, tools);
    readers::run(&mut runner, root, tools);
    fuzz::run(&mut runner, root, FUZZ_SECONDS)?;
    dependencies(&mut runner, root);
    println!("\nall steps took {:.0} s", start.elapsed().as_secs_f64());
    runner.finish()
}

/// What needs no compiler.
fn text(runner: &mut Runner, root: &Path) {
    runner.command("format", Count::Step, SHORT, &mut cargo(root, &["fmt", "--all", "--check"]));
    runner.check("tidy", || tidy::tidy(root));
    runner.check("codegen", || codegen::codegen(root, true));
}

/// What a machine without MPI and libhwloc builds.
fn default_members(runner: &mut Runner, root: &Path) {
    let mut clippy = cargo(root, &["clippy", "--locked", "--all-targets", "--", "-D", "warnings"]);
    runner.command("clippy", Count::Step, BUILD, &mut clippy);
    runner.command("tests", Count::Tests, BUILD, &mut cargo(root, &["test", "--locked", "--no-fail-fast"]));
}

/// All packages with all features that build here.
fn with_features(runner: &mut Runner, root: &Path, tools: Tools) {
    if !tools.complete() {
        runner.skip("feature sets", &format!("cannot build all of them: missing {}", tools.missing()));
    }
    let mut clippy = selected(root, tools, &["clippy", "--all-targets"]);
    runner.command("clippy with features", Count::Step, BUILD, clippy.args(["--", "-D", "warnings"]));
    let mut test = selected(root, tools, &["test", "--no-fail-fast"]);
    runner.command("tests with features", Count::Tests, BUILD, &mut test);
    let mut doc = selected(root, tools, &["doc", "--no-deps"]);
    runner.command("docs", Count::Step, BUILD, doc.env("RUSTDOCFLAGS", "-Dwarnings"));
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

/// `cargo VERB …` over all packages and features that build here.
fn selected(root: &Path, tools: Tools, verb: &[&str]) -> Command {
    let mut command = cargo(root, verb);
    command.args(["--locked", "--workspace"]);
    if !tools.mpi() {
        command.args(["--exclude", "probe-sync-mpi", "--exclude", "probe-sync-mpi-tests"]);
    }
    let features = tools.features();
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    command
}

fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root);
    command
}

/// Enough to notice what changed; `cargo xtask fuzz` looks for longer.
const FUZZ_SECONDS: u32 = 20;

const SHORT: Duration = Duration::from_secs(120);

/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(900);
