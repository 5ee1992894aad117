//! Runs the MPI programs over MPICH in addition to Open MPI: the shared suite, the end of a job,
//! and one measurement.
//!
//! rsmpi binds to the MPI whose `mpicc` it finds, so everything that uses it is built again in a
//! directory of its own. Debian installs both side by side, as `mpicc.mpich` and `mpirun.mpich`
//! (package `mpich`). It does not repeat tests that do not involve MPI.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::selection::{BUILD, cargo};
use crate::demo::fresh_directory;
use crate::setup::Tools;
use crate::steps::{self, Count, Runner};

/// What `--only` can ask for here.
pub const NAMES: [&str; 4] = [SUITE, END, MEASUREMENT, TRUTH];

/// Builds the programs against MPICH and runs them, where it is installed.
pub fn run(runner: &mut Runner, root: &Path, tools: Tools) {
    if !NAMES.iter().any(|name| runner.wants(name)) {
        return;
    }
    let there =
        tools.libclang && steps::answer(MPICC, &["-show"]).is_some() && steps::answer(MPIRUN, &["--version"]).is_some();
    if !there {
        let reason = format!("no {MPICC} and {MPIRUN}, or no libclang; Debian: apt-get install mpich libmpich-dev");
        return NAMES.iter().for_each(|name| runner.skip(name, &reason));
    }
    let target = steps::target(root).join("mpich");
    let mut build = cargo(root, &["build", "--locked", "--bins", "-p", "probe-sync-mpi-tests", "-p", "probe-sync-cli"]);
    build.args(["--features", "probe-sync-cli/mpi"]).env("MPICC", MPICC).env("CARGO_TARGET_DIR", &target);
    if !runner.prerequisite("build programs over MPICH", Count::Step, BUILD, &mut build) {
        return NAMES.iter().for_each(|name| runner.skip(name, "the programs do not build"));
    }
    let program = |name: &str| target.join("debug").join(name);
    let mut suite = mpirun(&program("probe-sync-mpi-tests"));
    runner.command(SUITE, Count::Tests, LIMIT, suite.arg("suite").current_dir(root));
    runner.check(END, || {
        let mut panics = mpirun(&program("probe-sync-mpi-tests"));
        super::ends::must_end(panics.arg("panic").current_dir(root), root, "rank 3 panics on purpose")
    });
    measure(runner, root, &program("probe_sync"));
}

/// A short run whose clocks are known.
fn measure(runner: &mut Runner, root: &Path, binary: &Path) {
    if !runner.wants(MEASUREMENT) && !runner.wants(TRUTH) {
        return;
    }
    let out = match fresh_directory(&root.join("target/xtask/runs")) {
        Ok(out) => out,
        Err(error) => {
            runner.check(MEASUREMENT, || Err(error));
            return;
        }
    };
    let mut command = mpirun(binary);
    command.args(["run", "--fixed", "--window", "2s", "--inject-skew", "7", "--duration", "8s", "--out"]).arg(&out);
    if !runner.prerequisite(MEASUREMENT, Count::Step, LIMIT, command.current_dir(root)) {
        return runner.skip(TRUTH, "there is no run to compare");
    }
    let mut verify = Command::new(steps::target(root).join("debug/probe-sync-testbed"));
    verify.args(["verify", "--nodes", RANKS, "--worst-ns", "500", "--median-ns", "50"]).arg(&out).current_dir(root);
    runner.command(TRUTH, Count::Figures, LIMIT, &mut verify);
}

/// Ranks of `program`, which end after some time.
fn mpirun(program: &Path) -> Command {
    let mut command = Command::new(MPIRUN);
    command.args(["-n", RANKS]).arg(program).env("MPIEXEC_TIMEOUT", "120");
    command
}

const SUITE: &str = "MPICH, suite of 4 ranks";
const END: &str = "MPICH, a rank that panics ends the job";
const MEASUREMENT: &str = "MPICH, run of 4 ranks";
const TRUTH: &str = "MPICH, truth of the run of 4 ranks";

const MPICC: &str = "mpicc.mpich";
const MPIRUN: &str = "mpirun.mpich";
const RANKS: &str = "4";

const LIMIT: Duration = Duration::from_secs(180);
