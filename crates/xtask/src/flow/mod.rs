//! `cargo xtask flow`, which tests the whole path from a job to its corrected traces against known
//! truth.
//!
//! It produces the README's first example, and a short form of it is a step of `cargo xtask test`.
//! A real JAX job of four ranks is traced while `probe_sync run --inject-skew` measures alongside
//! ([`experiment`]); the traces are bent by that run's virtual clocks and aligned with `--run-dir`,
//! and every time is compared with the true one ([`outcome`]). With `--record` it does so for all
//! clocks, with the machine as it is and with all cores busy, and writes the table ([`table`]) and
//! the picture ([`picture`]) in the docs. Bending and judging are Python programs in `bench/flow`,
//! which share no code with the programs under test.
//!
//! It does not change the system's Python ([`python`] keeps JAX under `target/flow`), and it runs
//! on one machine only.

mod case;
mod experiment;
mod helpers;
mod outcome;
mod picture;
mod python;
mod table;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum as _};

use crate::{results, steps};
use case::{Case, Model};
use experiment::Experiment;
use outcome::Outcome;
pub use python::{with_jax, with_torch};
use table::Run;

/// What `cargo xtask flow` can be told.
#[derive(Args, Debug)]
pub struct Settings {
    /// What the virtual clocks do
    #[arg(long, value_enum, default_value = "constant")]
    model: Model,
    /// Runs, each with clocks and ports of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// The first run's clocks; the others follow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    seed: u32,
    /// Keep all cores busy beside it
    #[arg(long)]
    loaded: bool,
    /// All clocks, with the machine as it is and with all cores busy; writes the table into
    /// bench/LOG.md and the picture into docs
    #[arg(long, conflicts_with_all = ["model", "loaded"])]
    record: bool,
    /// This probe_sync, instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Instead: examples/jax_distributed.py, with the Python package, and xprof on what it leaves
    #[arg(long, conflicts_with_all = ["model", "runs", "seed", "loaded", "record", "program"])]
    jax: bool,
    /// Instead: examples/torch_ddp.py under torchrun, and HolisticTraceAnalysis and Perfetto on
    /// what it leaves
    #[arg(long, conflicts_with_all = ["model", "runs", "seed", "loaded", "record", "program"])]
    torch: bool,
}

impl Settings {
    /// Whether it is asked for the examples with JAX and with torch, which `crate::python` runs.
    pub fn examples(&self) -> [bool; 2] {
        [self.jax, self.torch]
    }
}

/// The command.
///
/// # Errors
/// No JAX, a program that fails, or a run that misses what it must show.
pub fn flow(root: &Path, settings: &Settings) -> Result<()> {
    let python = with_jax(root).map_err(|reason| anyhow::anyhow!(reason))?;
    let program = match &settings.program {
        Some(program) => program.canonicalize().with_context(|| format!("no program {}", program.display()))?,
        None => release(root)?,
    };
    let cases: Vec<(Model, bool)> = if settings.record {
        let both = |loaded| Model::value_variants().iter().map(move |model| (*model, loaded));
        both(false).chain(both(true)).collect()
    } else {
        vec![(settings.model, settings.loaded)]
    };
    let mut runs = Vec::new();
    for (model, loaded) in cases {
        for seed in settings.seed..settings.seed + settings.runs {
            let case = Case { model, loaded, seed, seconds: SECONDS };
            let outcome = Experiment { python: &python, program: &program, case }.perform(root);
            match &outcome {
                Ok(outcome) => report(root, outcome)?,
                Err(error) => println!("  FAILED          {error:#}\n"),
            }
            runs.push(Run { case, outcome: outcome.map_err(|error| format!("{error:#}")) });
        }
    }
    if settings.record {
        record(root, &runs)?;
    }
    let missed = runs.iter().filter(|run| !run.problems().is_empty()).count();
    if missed > 0 { bail!("{missed} of {} runs miss what they must show", runs.len()) } else { Ok(()) }
}

/// Writes the table and the picture.
fn record(root: &Path, runs: &[Run]) -> Result<()> {
    results::write(root, &[("flow", format!("{}\n{}", machine(), table::table(runs)))])?;
    // The first: constant clocks, nothing beside them.
    let first = runs.first().and_then(|run| run.outcome.as_ref().ok()).context("the first run failed: no picture")?;
    std::fs::write(root.join(PICTURE), picture::svg(first)).with_context(|| format!("writing {PICTURE}"))?;
    println!("picture written to {PICTURE}");
    Ok(())
}

/// One short run with constant clocks, by a program that is built already.
///
/// # Errors
/// As [`flow`].
pub fn short(root: &Path, python: &Path, program: &Path) -> Result<()> {
    let case = Case { model: Model::Constant, loaded: false, seed: 1, seconds: SECONDS_SHORT };
    let outcome = Experiment { python, program, case }.perform(root)?;
    report(root, &outcome)?;
    let problems = outcome.problems();
    if problems.is_empty() { Ok(()) } else { bail!("{}", problems.join("; ")) }
}

/// What the figures depend on beside the program.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let fifteen_minutes = average.split_whitespace().nth(2).unwrap_or("unknown");
    format!("{cores} cores, load average of the last 15 minutes {fifteen_minutes}, JAX {}.\n", python::jax_version())
}

/// Tells what a run showed, and draws it beside its files.
fn report(root: &Path, outcome: &Outcome) -> Result<()> {
    let picture = root.join(&outcome.folder).join("before_after.svg");
    std::fs::write(&picture, picture::svg(outcome)).with_context(|| format!("writing {}", picture.display()))?;
    println!("{}", outcome.told());
    Ok(())
}

/// Builds the command that users get, without MPI: all ranks are processes of this machine.
fn release(root: &Path) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--locked", "--package", "probe-sync-cli"]).current_dir(root);
    steps::visible(&mut build, BUILD)?;
    Ok(steps::target(root).join("release/probe_sync"))
}

/// The README's picture, relative to the root.
const PICTURE: &str = "docs/before_after.svg";

/// How long a run measures; the job is traced nearly as long.
const SECONDS: u32 = 12;
const SECONDS_SHORT: u32 = 8;

const BUILD: Duration = Duration::from_secs(1200);
