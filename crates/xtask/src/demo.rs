//! `cargo xtask demo`, which goes from a fresh clone to measured clocks with one command.
//!
//! The README recommends it to newcomers. It runs under `mpirun` if MPI is available; otherwise it
//! runs the same measurement over TCP on loopback and says so. It does not check the figures;
//! `cargo xtask test` does.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::setup;
use crate::steps;
use crate::tools::empty_folder;

/// Sets up, builds, measures.
///
/// # Errors
/// The build or the run fails.
pub fn demo(root: &Path) -> Result<()> {
    let tools = setup::setup(root, setup::Wanted::Mpi)?;
    // A run reads no database: SQLite is a fifth of the processor time of a release build.
    let features = ["--features", &tools.features().join(",")];
    let programs = steps::build(
        root,
        "quick",
        &[&["--package", "probe-sync-cli", "--no-default-features"], &features[..]].concat(),
    )?;
    let out = root.join("target/demo/run");
    empty_folder(&out)?;
    let binary = programs.join("probe_sync");
    let mut command = if tools.mpi() {
        println!("\n8 MPI ranks, each a node with a virtual clock of known error, for 12 s:");
        let mut command = Command::new("mpirun");
        command.args(["--timeout", "120", "-n", "8"]).envs(setup::MPI_ENVIRONMENT).arg(&binary).arg("run");
        command
    } else {
        println!("\nMPI is not available (missing {}).", tools.missing());
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

const RUN_LIMIT: Duration = Duration::from_secs(150);
