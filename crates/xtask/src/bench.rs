//! `cargo xtask bench`, which produces the figures of `bench/LOG.md` on this machine.
//!
//! It builds the programs in release mode and starts them, or the scripts of `bench` that measure
//! and judge: `accuracy.py` simulates, `scale` measures rounds from 2 ranks to hosts in namespaces,
//! `faults` injects every fault over every transport. Times are not judged: machines differ, and
//! only times of one run are comparable.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::setup::{self, MPI_ENVIRONMENT, Tools, Wanted};
use crate::{steps, tools};

/// What `cargo xtask bench` can be told.
#[derive(Args, Debug)]
pub struct Settings {
    /// Instead: simulate the twelve cells and write the tables into bench/LOG.md, section "Accuracy
    /// in simulation"
    #[arg(long)]
    accuracy: bool,
    /// Seeds per cell
    #[arg(long, value_name = "N", requires = "accuracy", default_value_t = 50)]
    seeds: u32,
    /// Instead: rounds of 2 to 128 ranks here and of up to 100 namespace hosts, every backend
    /// beside direct MPI calls, and simulated ones up to 10 000 hosts
    #[arg(long, conflicts_with = "accuracy", group = "with_files")]
    scale: bool,
    /// Instead: every fault over every way of talking with real processes, judged, and what foreign
    /// clients of every listener cost (needs root)
    #[arg(long, conflicts_with = "accuracy", group = "with_files")]
    faults: bool,
    /// With --scale: few rounds of few sizes, to see that it works
    #[arg(long, requires = "scale")]
    short: bool,
    /// With --scale or --faults: folder for tables, CSV and plot
    #[arg(long, value_name = "DIR", requires = "with_files")]
    out: Option<PathBuf>,
}

/// Runs what is asked for, without it all bench targets and the rounds over MPI.
///
/// # Errors
/// Names what failed, after all has run.
pub fn bench(root: &Path, settings: Settings) -> Result<()> {
    let Settings { accuracy, seeds, scale, faults, short, out } = settings;
    if accuracy {
        return python(root, "bench/accuracy.py", &["--seeds", &seeds.to_string()]);
    }
    let tools = setup::setup(root, if scale || faults { Wanted::Mpi } else { Wanted::Everything })?;
    let out = out.unwrap_or_else(|| root.join(if scale { "target/scale" } else { "target/faults" }));
    std::fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let out = out.canonicalize()?.to_string_lossy().into_owned();
    match (scale, faults) {
        (true, _) => measure_scale(root, tools, short, &out),
        (_, true) => inject_faults(root, tools, &out),
        _ => targets(root, tools),
    }
}

/// The bench targets one after another, because they would disturb each other, and rounds alongside
/// raw MPI calls.
fn targets(root: &Path, tools: Tools) -> Result<()> {
    let mut benches = Command::new("cargo");
    benches.args(["bench", "--locked", "--benches"]);
    let mut attempts = vec![("bench targets".to_owned(), benches)];
    if tools.mpi() {
        let programs = steps::build(root, "release", &["--package", "probe-sync-mpi-tests"])?;
        for ranks in ["2", "4", "8", "64", "128"] {
            let mut round = Command::new("mpirun");
            round.args(["--timeout", "300", "-n", ranks]).envs(MPI_ENVIRONMENT);
            round.arg(programs.join("probe-sync-mpi-tests")).arg("bench");
            attempts.push((format!("one round, {ranks} ranks"), round));
        }
    } else {
        println!("\nskipped rounds over MPI: missing {}", tools.missing());
    }
    let mut failed = Vec::new();
    for (name, mut command) in attempts {
        println!("\n== {name}");
        if let Err(error) = steps::visible(command.current_dir(root), LIMIT) {
            println!("{error:#}");
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

/// Measures rounds and whole runs, and passes the costs to the simulation.
fn measure_scale(root: &Path, tools: Tools, short: bool, out: &str) -> Result<()> {
    if tools.mpi() {
        let packages = ["--package", "probe-sync-mpi-tests", "--package", "probe-sync-cli"];
        let programs = steps::build(root, "release", &[&packages[..], &["--features", "probe-sync-cli/mpi"]].concat())?;
        let from = ["--from", &programs.to_string_lossy()];
        let (few, few_hosts): (&[&str], &[&str]) =
            if short { (&["--short"], &["--hosts", "8", "--rounds", "8"]) } else { (&[], &[]) };
        python(root, "bench/scale/run.py", &[&["--out", out], &from[..], few].concat())?;
        let hosts =
            python(root, "bench/scale/hosts.py", &[&["--out", &format!("{out}/hosts")], &from[..], few_hosts].concat());
        // Where hosts are not permitted it has said so.
        if hosts.as_ref().is_err_and(|error| !error.to_string().contains(SKIPPED)) {
            hosts?;
        }
    } else {
        println!("\nskipped rounds over MPI and on hosts: missing {}", tools.missing());
    }
    let costs = Path::new(out).join("costs.toml");
    let mut simulate = Command::new("cargo");
    simulate.args(["bench", "--locked", "--package", "probe-sync-sim", "--bench", "round_cost", "--"]);
    // Without costs of this machine those of the one in bench/LOG.md.
    simulate.args(costs.exists().then_some(&costs)).current_dir(root);
    steps::visible(&mut simulate, LIMIT)
}

/// Runs all cells over the transports that can be had, and foreign clients of all listeners.
fn inject_faults(root: &Path, tools: Tools, out: &str) -> Result<()> {
    let mut ways = "star,tree".to_owned();
    let mut options = vec!["--package", "probe-sync-cli"];
    if tools.mpi() {
        options.extend(["--features", "probe-sync-cli/mpi"]);
        ways.push_str(",mpi");
        match tools::ULFM.install(root) {
            Ok(_) => ways.push_str(",ulfm"),
            Err(reason) => println!("\nskipped ulfm: {reason}"),
        }
    } else {
        println!("\nskipped mpi and ulfm: missing {}", tools.missing());
    }
    let program = steps::build(root, "release", &options)?.join("probe_sync").to_string_lossy().into_owned();
    let cells = ["--out", out, "--program", &program, "--backends", &ways, "--ulfm", tools::ULFM.folder];
    let judged = python(root, "bench/faults/run.py", &cells);
    let clients = ["--out", &format!("{out}/listeners"), "--program", &program];
    python(root, "bench/faults/listeners.py", &clients).and(judged)
}

fn python(root: &Path, script: &str, arguments: &[&str]) -> Result<()> {
    steps::visible(Command::new("python3").arg(script).args(arguments).current_dir(root), LIMIT)
}

/// How `ExitStatus` prints the status of what is not permitted here.
const SKIPPED: &str = "exit status: 77";

/// All cells of one way of simulating, of which half have millions of packets.
const LIMIT: Duration = Duration::from_secs(4 * 3600);
