//! `cargo xtask bench`, which produces the figures of `bench/LOG.md` on this machine.
//!
//! It builds the programs in release mode and starts them, or the scripts of `bench` that measure
//! and judge: `accuracy.py` simulates, `traces.py` times whole commands beside `cat`, `scale` measures rounds from 2 ranks to hosts in namespaces,
//! `faults` injects every fault over every transport. Times are not judged: machines differ, and
//! only times of one run are comparable.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use crate::setup::{self, Tools, Wanted};
use crate::suite::jobs;
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
    /// Instead: align, merge, check and stragglers on traces of 200 MiB per rank, each beside `cat`
    /// of the same bytes (or gzip), and scripts with orjson and upb; writes the ratios into
    /// bench/traces.json
    #[arg(long, conflicts_with_all = ["accuracy", "with_files"])]
    traces: bool,
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
    let Settings { accuracy, seeds, scale, faults, traces, short, out } = settings;
    if accuracy {
        return steps::call(root, "bench/accuracy.py", &["--seeds", &seeds.to_string()]);
    }
    if traces {
        let program = steps::build(root, "release", &["--package", "probe-sync-cli"])?.join("probe_sync");
        return steps::call(root, "bench/traces.py", &[&program.to_string_lossy(), "--peers", "--write"]);
    }
    let tools = setup::setup(root, if scale || faults { Wanted::Mpi } else { Wanted::Everything })?;
    let out = std::path::absolute(out.unwrap_or_else(|| if scale { "target/scale" } else { "target/faults" }.into()))?;
    let out = out.to_string_lossy();
    match (scale, faults) {
        (true, _) => measure_scale(root, tools, short, &out),
        (_, true) => inject_faults(root, tools, &out),
        _ => jobs::run(root, &["bench"]),
    }
}

/// Measures rounds and whole runs, and passes the costs to the simulation.
fn measure_scale(root: &Path, tools: Tools, short: bool, out: &str) -> Result<()> {
    if tools.mpi() {
        let packages = ["-p", "probe-sync-mpi-tests", "-p", "probe-sync-cli", "--features", "probe-sync-cli/mpi"];
        let programs = steps::build(root, "release", &packages)?;
        let from = ["--from", &programs.to_string_lossy(), "--out"];
        let few = [&["--short"][..], &["--hosts", "8", "--rounds", "8"]];
        let [few, few_hosts] = if short { few } else { [&[][..]; 2] };
        steps::call(root, "bench/scale/run.py", &[&from, &[out][..], few].concat())?;
        let hosts =
            steps::call(root, "bench/scale/hosts.py", &[&from, &[&*format!("{out}/hosts")][..], few_hosts].concat());
        // Where hosts are not permitted it has said so.
        if hosts.as_ref().is_err_and(|error| !error.to_string().contains(SKIPPED)) {
            hosts?;
        }
    } else {
        println!("\nskipped rounds over MPI and on hosts: missing {}", tools.missing());
    }
    // Without costs of this machine those of the one in bench/LOG.md.
    let costs = format!("{out}/costs.toml");
    let costs = if Path::new(&costs).exists() { &[&*costs][..] } else { &[] };
    let simulate = ["bench", "--locked", "--package", "probe-sync-sim", "--bench", "round_cost", "--"];
    steps::call(root, "cargo", &[&simulate, costs].concat())
}

/// Runs all cells over the transports that can be had, and foreign clients of all listeners.
fn inject_faults(root: &Path, tools: Tools, out: &str) -> Result<()> {
    let mut ways = "star,tree".to_owned();
    let mut options = vec!["--package", "probe-sync-cli"];
    if tools.mpi() {
        options.extend(["--features", "probe-sync-cli/mpi"]);
        ways.push_str(",mpi");
        match tools::venv(root, "ULFM") {
            Ok(_) => ways.push_str(",ulfm"),
            Err(reason) => println!("\nskipped ulfm: {reason}"),
        }
    } else {
        println!("\nskipped mpi and ulfm: missing {}", tools.missing());
    }
    let program = steps::build(root, "release", &options)?.join("probe_sync").to_string_lossy().into_owned();
    let cells = ["--out", out, "--program", &program, "--backends", &ways, "--ulfm", "target/ulfm"];
    let judged = steps::call(root, "bench/faults/run.py", &cells);
    let clients = ["--out", &format!("{out}/listeners"), "--program", &program];
    steps::call(root, "bench/faults/listeners.py", &clients).and(judged)
}

/// How `ExitStatus` prints the status of what is not permitted here.
const SKIPPED: &str = "exit status: 77";
