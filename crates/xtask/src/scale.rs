//! `cargo xtask bench --scale`, which determines the cost of rounds from 2 ranks to 10 000 hosts
//! with one command.
//!
//! It builds the programs, runs `bench/scale/run.py` for measurements and `bench/scale/hosts.py`
//! for whole runs on namespace hosts, and passes the measured costs to the simulation, the bench
//! `round_cost` of `probe-sync-sim`. A short form of the whole runs is a step of
//! `cargo xtask test`. Times are not judged; the whole runs are judged by their results.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::setup;
use crate::steps::{self, Count, Runner};

/// Measures and simulates; files go to `out`, or `target/scale`.
///
/// # Errors
/// A program does not build, nothing could be measured, or a whole run did not end as it must.
pub fn scale(root: &Path, short: bool, out: Option<PathBuf>) -> Result<()> {
    let tools = setup::setup(root, setup::Wanted::Mpi)?;
    let out = out.unwrap_or_else(|| root.join("target/scale"));
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let out = out.canonicalize().with_context(|| format!("the folder {}", out.display()))?;
    let programs = steps::target(root).join("release");
    if tools.mpi() {
        let packages =
            ["--package", "probe-sync-mpi-tests", "--package", "probe-sync-cli", "--features", "probe-sync-cli/mpi"];
        let mut build = Command::new("cargo");
        build.args(["build", "--release", "--locked"]).args(packages).current_dir(root);
        steps::visible(&mut build, LIMIT)?;
        let mut measure = script(root, "bench/scale/run.py", &out, &programs);
        measure.args(short.then_some("--short"));
        steps::visible(&mut measure, LIMIT)?;
        let mut hosts = script(root, HOSTS, &out.join("hosts"), &programs);
        if short {
            hosts.args(["--hosts", "8", "--rounds", "8"]);
        }
        let whole_runs = steps::visible(&mut hosts, LIMIT);
        // Where hosts are not permitted it has said so.
        if whole_runs.as_ref().is_err_and(|error| !error.to_string().contains(SKIPPED)) {
            whole_runs?;
        }
    } else {
        println!("\nskipped rounds over MPI and on hosts: missing {}", tools.missing());
    }
    let costs = out.join("costs.toml");
    let mut simulate = Command::new("cargo");
    simulate.args(["bench", "--locked", "--package", "probe-sync-sim", "--bench", "round_cost", "--"]);
    // Without costs of this machine those of the one in bench/LOG.md.
    simulate.args(costs.exists().then_some(&costs)).current_dir(root);
    steps::visible(&mut simulate, LIMIT)
}

/// A short form of the whole runs on namespace hosts, with programs of the development profile.
pub fn hosts(runner: &mut Runner, root: &Path) {
    let out = root.join("target/xtask/runs/hosts");
    let mut command = script(root, HOSTS, &out, &steps::target(root).join("debug"));
    command.args(["--hosts", "8", "--rounds", "8"]);
    runner.command(NAME, Count::Figures, WHOLE_RUNS, &mut command);
}

fn script(root: &Path, name: &str, out: &Path, programs: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(root.join(name)).arg("--out").arg(out).arg("--from").arg(programs).current_dir(root);
    command
}

/// What `--only` can ask for.
pub const NAME: &str = "hosts, 8, over MPI and TCP, one killed and one stopped";

const HOSTS: &str = "bench/scale/hosts.py";

/// How `ExitStatus` prints the status of what is not permitted here.
const SKIPPED: &str = "exit status: 77";

const LIMIT: Duration = Duration::from_secs(3600);
const WHOLE_RUNS: Duration = Duration::from_secs(300);
