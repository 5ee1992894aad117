//! `cargo xtask flow`, which tests the whole path from a job to its corrected traces against known
//! truth.
//!
//! It produces the README's first example, and a short form of it is a step of `cargo xtask test`.
//! The runs, their judgement, the table and the picture are `bench/flow/run.py`; this builds the
//! program under test and installs JAX or torch under `target` ([`python`]).

mod python;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::steps;
pub use python::{with_jax, with_torch};

/// What `cargo xtask flow` can be told.
#[derive(Args, Debug)]
pub struct Settings {
    /// What the virtual clocks do: constant, sinusoid or steps
    #[arg(long, default_value = "constant")]
    model: String,
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
    let mut run = script(root, &python, &program);
    run.arg(format!("--runs={}", settings.runs)).arg(format!("--seed={}", settings.seed));
    if settings.record {
        run.args(["--record", "bench/LOG.md", "docs/before_after.svg"]);
    } else {
        run.args(["--model", &settings.model]).args(settings.loaded.then_some("--loaded"));
    }
    steps::visible(&mut run, RECORD)
}

/// One short run with constant clocks, by a program that is built already.
pub fn short(root: &Path, python: &Path, program: &Path) -> Command {
    let mut run = script(root, python, program);
    run.args(["--seconds", "8"]);
    run
}

/// Tests of the judgement.
pub fn tests(root: &Path) -> Command {
    let mut tests = Command::new("python3");
    tests.arg(root.join("bench/flow/test_run.py"));
    tests
}

fn script(root: &Path, python: &Path, program: &Path) -> Command {
    let mut run = Command::new(python);
    run.arg("bench/flow/run.py").arg("--program").arg(program);
    run.arg("--out").arg(root.join("target/flow/runs")).current_dir(root);
    run
}

/// Builds the command that users get, without MPI: all ranks are processes of this machine.
fn release(root: &Path) -> Result<PathBuf> {
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--locked", "--package", "probe-sync-cli"]).current_dir(root);
    steps::visible(&mut build, BUILD)?;
    Ok(steps::target(root).join("release/probe_sync"))
}

const BUILD: Duration = Duration::from_secs(1200);

/// All clocks and loads, a hundred runs of each.
const RECORD: Duration = Duration::from_secs(24 * 3600);
