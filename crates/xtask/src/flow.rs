//! `cargo xtask flow`, which tests the whole path from a job to its corrected traces against known
//! truth.
//!
//! It produces the README's first example, and a short form of it is a step of `cargo xtask test`.
//! The runs, their judgement, the table and the picture are `bench/flow/run.py`; this builds the
//! program under test and installs JAX.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::suite::jobs;
use crate::{steps, tools};

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
        return examples(root, settings.jax, settings.torch);
    }
    let python = tools::venv(root, "JAX").map_err(anyhow::Error::msg)?.join("bin/python");
    let program = match &settings.program {
        Some(program) => program.canonicalize().with_context(|| format!("no program {}", program.display()))?,
        // What users get, without MPI: all ranks are processes of this machine.
        None => steps::build(root, "release", &["--package", "probe-sync-cli"])?.join("probe_sync"),
    };
    let (python, program) = (python.to_string_lossy(), program.to_string_lossy());
    let settings = settings.settings.iter().map(String::as_str);
    let run = ["bench/flow/run.py", "--program", &program, "--out", "target/flow/runs"].into_iter().chain(settings);
    steps::call(root, &python, &run.collect::<Vec<_>>())
}

/// The examples with JAX and torch, on a machine that has nothing yet.
fn examples(root: &Path, jax: bool, torch: bool) -> Result<()> {
    steps::build(root, "dev", &["--package", "probe-sync-cli"])?;
    // Without readers the examples say what they leave out.
    let _ = steps::call(root, "python3", &["bench/readers/install.py", "target/readers"]);
    let wanted = [(jax, "jax"), (torch, "torch")].into_iter().filter_map(|(is_wanted, name)| is_wanted.then_some(name));
    jobs::run(root, &wanted.collect::<Vec<_>>())
}
