//! `cargo xtask bench --faults`, which tests every fault over every transport, with real processes,
//! in one command.
//!
//! It builds `probe_sync` with MPI, installs Open MPI 5 if available, runs `bench/faults/run.py`,
//! which injects faults into ranks and evaluates the results, and then `bench/faults/listeners.py`,
//! which measures the cost of foreign clients of every listener. One cell over TCP is a step of
//! `cargo xtask test`. The scripts judge the results and state why a cell makes no sense.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::setup;
use crate::steps::{self, Count, Runner};

/// Runs all cells and measures all listeners; files go to `out`, or `target/faults`. `install_ulfm`
/// brings Open MPI 5 to `target/ulfm`, or says why it cannot.
///
/// # Errors
/// The program does not build, a cell did not do as it must, or a round took more than a tenth
/// longer.
pub fn faults(root: &Path, out: Option<PathBuf>, install_ulfm: impl FnOnce(&Path) -> Result<(), String>) -> Result<()> {
    let tools = setup::setup(root, setup::Wanted::Mpi)?;
    let out = out.unwrap_or_else(|| root.join("target/faults"));
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let out = out.canonicalize().with_context(|| format!("the folder {}", out.display()))?;
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--locked", "--package", "probe-sync-cli"]).current_dir(root);
    let mut ways = "star,tree".to_owned();
    if tools.mpi() {
        build.args(["--features", "probe-sync-cli/mpi"]);
        ways.push_str(",mpi");
        match install_ulfm(root) {
            Ok(()) => ways.push_str(",ulfm"),
            Err(reason) => println!("\nskipped ulfm: {reason}"),
        }
    } else {
        println!("\nskipped mpi and ulfm: missing {}", tools.missing());
    }
    steps::visible(&mut build, LIMIT)?;
    let program = steps::target(root).join("release/probe_sync");
    let mut cells = script(root, CELLS, &out, &program);
    cells.args(["--backends", &ways]).arg("--ulfm").arg(root.join("target/ulfm"));
    let judged = steps::visible(&mut cells, LIMIT);
    let mut listeners = script(root, "bench/faults/listeners.py", &out.join("listeners"), &program);
    steps::visible(&mut listeners, LIMIT).and(judged)
}

/// One cell with a program of the development profile: a rank of a tree is cut off, told so when
/// its network is back, and returns.
pub fn cell(runner: &mut Runner, root: &Path) {
    let out = root.join("target/xtask/runs/faults");
    let mut command = script(root, CELLS, &out, &steps::target(root).join("debug/probe_sync"));
    command.args(["--backends", "tree", "--only", "all packets dropped"]);
    runner.command(NAME, Count::Figures, CELL, &mut command);
}

/// What whole runs over Open MPI 5 do when ranks are killed or hang.
pub fn over_ulfm(runner: &mut Runner, root: &Path) {
    let out = root.join("target/xtask/runs/faults-ulfm");
    let mut command = script(root, CELLS, &out, &steps::target(root).join("debug/probe_sync"));
    command.args(["--backends", "ulfm", "--only", "SIGKILL|for good"]).arg("--ulfm").arg(root.join("target/ulfm"));
    runner.command(ULFM, Count::Figures, OVER_ULFM, &mut command);
}

fn script(root: &Path, name: &str, out: &Path, program: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg(root.join(name)).arg("--out").arg(out).arg("--program").arg(program).current_dir(root);
    command
}

/// What `--only` can ask for.
pub const NAME: &str = "fault matrix, a rank of a tree cut off and back";

/// What `--only` can ask for.
pub const ULFM: &str = "fault matrix, ULFM";

const CELLS: &str = "bench/faults/run.py";
const LIMIT: Duration = Duration::from_secs(3600);
const CELL: Duration = Duration::from_secs(300);
/// Two minutes on a quiet machine.
const OVER_ULFM: Duration = Duration::from_secs(900);
