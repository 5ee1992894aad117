//! `cargo xtask bench`: the figures of `docs/RESULTS.md` from this machine, one command.
//!
//! Place in the flow: runs the bench targets in release mode, one after another because they would disturb each other,
//! and under `mpirun` the rounds beside raw MPI calls.
//! What it does not do: judge the figures. Machines differ; only figures of one run may be compared.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::setup::{self, Tools};
use crate::steps;

/// Runs the benches.
///
/// # Errors
/// Names the benches that failed, after all have run.
pub fn bench(root: &Path) -> Result<()> {
    let tools = setup::setup(root)?;
    let mut failed = Vec::new();
    let mut attempt = |name: &str, command: &mut Command| {
        println!("\n== {name}");
        if let Err(error) = steps::visible(command.current_dir(root), LIMIT) {
            println!("{error:#}");
            failed.push(name.to_owned());
        }
    };
    attempt("bench targets", Command::new("cargo").args(["bench", "--locked", "--benches"]));
    rounds(root, tools, &mut attempt);
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

fn rounds(root: &Path, tools: Tools, attempt: &mut dyn FnMut(&str, &mut Command)) {
    if !tools.mpi() {
        println!("\nskipped rounds over MPI: missing {}", tools.missing());
        return;
    }
    let mut build = Command::new("cargo");
    attempt("build mpi-tests", build.args(["build", "--release", "--locked", "--package", "probe-sync-mpi-tests"]));
    for ranks in ["2", "4", "8", "64", "128"] {
        let mut command = Command::new("mpirun");
        command.args(["--timeout", "300", "-n", ranks]).envs(setup::MPI_ENVIRONMENT);
        command.arg(root.join("target/release/probe-sync-mpi-tests")).arg("bench");
        attempt(&format!("one round, {ranks} ranks"), &mut command);
    }
}

const LIMIT: Duration = Duration::from_secs(900);
