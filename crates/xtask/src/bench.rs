//! `cargo xtask bench`, which produces the figures of `bench/LOG.md` on this machine with one
//! command.
//!
//! It runs the bench targets in release mode, one after another because they would disturb each
//! other, and under `mpirun` the rounds alongside raw MPI calls. With `--accuracy`,
//! `probe_sync sim` instead simulates the cells, the faults and adaptive probing, and the bench
//! `clocks` of `probe-sync-sim` clocks that swing or warm up; the tables are put between their
//! markers in bench/LOG.md. Those figures depend only on seeds and are the same on every machine.
//! It does not evaluate the figures: machines differ, and only times of one run are comparable.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::results;
use crate::setup::{self, Tools};
use crate::steps;

/// Runs the benches.
///
/// # Errors
/// Names the benches that failed, after all have run.
pub fn bench(root: &Path) -> Result<()> {
    let tools = setup::setup(root, setup::Wanted::Everything)?;
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

/// Simulates the twelve cells, the faults, swinging clocks, adaptive probing and clocks that warm
/// up, and writes their tables into bench/LOG.md.
///
/// # Errors
/// When a simulation fails or the marks are missing.
pub fn accuracy(root: &Path, seeds: u32) -> Result<()> {
    let out = root.join("target/accuracy");
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    simulate(root, &out, &["--cells"], seeds)?;
    let cells = std::fs::read_to_string(out.join("accuracy.md")).context("reading the tables")?;
    let faults = simulate(root, &out, &["--faults"], seeds.min(FAULT_SEEDS_MAX))?;
    let adaptive = simulate(root, &out, &["--adaptive"], seeds.min(ADAPTIVE_SEEDS_MAX))?;
    let swinging = clocks(root, &out, "swinging", (4 * seeds).min(SWINGING_SEEDS_MAX))?;
    let warming = clocks(root, &out, "warming", seeds.min(WARMING_SEEDS_MAX))?;
    let plain = |table: &str| format!("```\n{}\n```", table.trim());
    let tables = [
        ("accuracy", cells),
        ("faults", plain(&faults)),
        ("swinging", plain(&swinging)),
        ("adaptive", plain(&adaptive)),
        ("warming", plain(&warming)),
    ];
    results::write(root, &tables)?;
    println!("files and plots in {}", out.display());
    Ok(())
}

/// Runs `probe_sync sim` and returns what it prints.
fn simulate(root: &Path, out: &Path, what: &[&str], seeds: u32) -> Result<String> {
    let mut command = Command::new("cargo");
    command.args(["run", "--release", "--locked", "--package", "probe-sync-cli", "--", "sim"]).args(what);
    command.arg("--seeds").arg(seeds.to_string()).arg("--out").arg(out);
    printed(root, out, &mut command)
}

/// Runs the bench `clocks` and returns what it prints.
fn clocks(root: &Path, out: &Path, what: &str, seeds: u32) -> Result<String> {
    let mut command = Command::new("cargo");
    command.args(["bench", "--locked", "--package", "probe-sync-sim", "--bench", "clocks", "--", what]);
    printed(root, out, command.arg(seeds.to_string()))
}

fn printed(root: &Path, out: &Path, command: &mut Command) -> Result<String> {
    let printed = out.join("printed.txt");
    let file = std::fs::File::create(&printed).with_context(|| format!("creating {}", printed.display()))?;
    steps::visible(command.stdout(file).current_dir(root), ACCURACY_LIMIT)?;
    std::fs::read_to_string(&printed).with_context(|| format!("reading {}", printed.display()))
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

/// 600 simulated runs, of which half have millions of packets.
const ACCURACY_LIMIT: Duration = Duration::from_secs(7200);

/// More seeds change these tables little and take hours.
const FAULT_SEEDS_MAX: u32 = 20;

/// More seeds of swinging clocks tell no more.
const SWINGING_SEEDS_MAX: u32 = 200;
const ADAPTIVE_SEEDS_MAX: u32 = 5;

/// As many as the demands on these tables are stated for.
const WARMING_SEEDS_MAX: u32 = 12;
