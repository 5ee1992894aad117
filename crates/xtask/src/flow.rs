//! `cargo xtask flow`, which tests the whole path from a job to its corrected traces against known
//! truth.
//!
//! It produces the README's first example, and a short form of it is a step of `cargo xtask test`.
//! The runs, their judgement, the table and the picture are `bench/flow/run.py`; this builds the
//! program under test and installs JAX.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::{python, steps, tools};

/// What `cargo xtask flow` can be told.
#[derive(Args, Debug)]
pub struct Settings {
    /// This probe_sync, instead of building one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["jax", "torch"])]
    program: Option<PathBuf>,
    /// Instead: examples/jax_distributed.py, with the Python package, and xprof on what it leaves
    #[arg(long)]
    jax: bool,
    /// Instead: examples/torch_ddp.py under torchrun, and HolisticTraceAnalysis and Perfetto on
    /// what it leaves
    #[arg(long)]
    torch: bool,
    /// For bench/flow/run.py: --model constant|sinusoid|steps, --runs N, --seed N, --seconds N,
    /// --loaded, and --record, which tries all of them and writes bench/LOG.md and the picture
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, conflicts_with_all = ["jax", "torch"])]
    settings: Vec<String>,
}

/// The command.
///
/// # Errors
/// No JAX, a program that fails, or a run that misses what it must show.
pub fn flow(root: &Path, settings: &Settings) -> Result<()> {
    if settings.jax || settings.torch {
        return python::flows(root, settings.jax, settings.torch);
    }
    let python = tools::JAX.install(root).map_err(anyhow::Error::msg)?.join("bin/python");
    let program = match &settings.program {
        Some(program) => program.canonicalize().with_context(|| format!("no program {}", program.display()))?,
        // What users get, without MPI: all ranks are processes of this machine.
        None => steps::build(root, "release", &["--package", "probe-sync-cli"])?.join("probe_sync"),
    };
    let mut run = Command::new(python);
    run.arg("bench/flow/run.py").arg("--program").arg(program).arg("--out").arg(root.join("target/flow/runs"));
    steps::visible(run.args(&settings.settings).current_dir(root), RECORD)
}

/// All clocks and loads, a hundred runs of each.
const RECORD: Duration = Duration::from_secs(24 * 3600);
