//! `cargo xtask demo`, which goes from a fresh clone to measured clocks with one command.
//!
//! The README recommends it to newcomers. It runs under `mpirun` if MPI is available; otherwise it
//! runs the same measurement over TCP on loopback and says so. It does not check the figures;
//! `cargo xtask test` does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::setup::{self, Tools};
use crate::steps;

/// Sets up, builds, measures.
///
/// # Errors
/// The build or the run fails.
pub fn demo(root: &Path) -> Result<()> {
    let tools = setup::setup(root, setup::Wanted::Mpi)?;
    build(root, tools)?;
    let out = fresh_directory(&root.join("target/demo"))?;
    let binary = steps::target(root).join("quick/probe_sync");
    let mut command = if tools.mpi() {
        println!("\n8 MPI ranks, each a node with a virtual clock of known error, for 12 s:");
        let mut command = Command::new("mpirun");
        command.args(["--timeout", "120", "-n", "8"]).envs(setup::MPI_ENVIRONMENT).arg(&binary).arg("run");
        command
    } else {
        println!("\nMPI is not to be had here (missing {}).", tools.missing());
        println!(
            "8 processes over TCP on loopback instead, each a node with a virtual clock of known error, for 12 s:"
        );
        let mut command = Command::new(&binary);
        command.args(["run", "--local", "8"]);
        command
    };
    command
        .args(["--duration", "12s", "--fixed", "--window", "2s", "--inject-skew", "7", "--out"])
        .arg(&out)
        .current_dir(root);
    steps::visible(&mut command, RUN_LIMIT)?;
    println!("files of the run: {}", out.strip_prefix(root).unwrap_or(&out).display());
    Ok(())
}

fn build(root: &Path, tools: Tools) -> Result<()> {
    let mut command = Command::new("cargo");
    command.args(["build", "--profile", "quick", "--locked", "--package", "probe-sync-cli"]).current_dir(root);
    // A run reads no database: SQLite is a fifth of the processor time of a release build.
    command.arg("--no-default-features");
    let features = tools.features();
    if !features.is_empty() {
        command.args(["--features", &features.join(",")]);
    }
    steps::visible(&mut command, BUILD_LIMIT)
}

/// A directory below `parent` that no earlier run wrote to.
pub fn fresh_directory(parent: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    for number in 1..=MAX_RUNS {
        let directory = parent.join(format!("run{number}"));
        match std::fs::create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("creating {}", directory.display())),
        }
    }
    anyhow::bail!("{} holds {MAX_RUNS} runs; remove some", parent.display())
}

const RUN_LIMIT: Duration = Duration::from_secs(150);

const BUILD_LIMIT: Duration = Duration::from_secs(1200);

const MAX_RUNS: u32 = 10_000;
