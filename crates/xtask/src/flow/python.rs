//! A Python with JAX or torch, in a virtual environment of the project's own.
//!
//! Everything is stored under `target`; the system's Python only creates it. The versions are
//! pinned and printed, so that figures can be reproduced. It does not retry for long; without a
//! network it reports this.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::steps;

/// What a job is written with.
#[derive(Copy, Clone, Debug)]
struct Library {
    name: &'static str,
    /// Everything for pip; the first is the library itself, with the version that the figures in
    /// the docs were made with.
    packages: &'static [&'static str],
    venv: &'static str,
    size: &'static str,
    /// Of the disk to begin with.
    needs_gb: f64,
}

/// An interpreter with JAX; otherwise why there is none, and what to do.
pub fn with_jax(root: &Path) -> Result<PathBuf, String> {
    with(root, &LIBRARY_JAX)
}

/// An interpreter with torch; otherwise why there is none, and what to do.
pub fn with_torch(root: &Path) -> Result<PathBuf, String> {
    with(root, &LIBRARY_TORCH)
}

fn with(root: &Path, library: &Library) -> Result<PathBuf, String> {
    let (Library { name, packages, venv, size, needs_gb }, version) = (library, library.version());
    let folder = root.join(venv);
    let python = folder.join("bin/python");
    if has(&python, library) {
        return Ok(python);
    }
    if steps::answer("python3", &["-m", "venv", "--help"]).is_none() {
        return Err("python3 with venv is not installed; on Debian: apt-get install python3-venv".to_owned());
    }
    // A full disk would fail every later step, in ways that do not say so.
    if let Some(free) = steps::free_gb(root).filter(|free| free < needs_gb) {
        return Err(format!(
            "{name} is {size}, and to install it and go on takes {needs_gb:.0} GB of the disk; {free:.1} GB are free"
        ));
    }
    println!("installing {name} {version} into {venv} ({size}; once; the system's Python stays as it is)");
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    install.args(["--no-cache-dir", "--timeout", "20", "--retries", "1"]).args(*packages);
    let begun = Instant::now();
    let left = || LIMIT.saturating_sub(begun.elapsed());
    let outcome = steps::visible(&mut make, left()).and_then(|()| steps::visible(&mut install, left()));
    match outcome {
        Ok(()) if has(&python, library) => {
            println!("installed in {:.0} s", begun.elapsed().as_secs_f64());
            Ok(python)
        }
        Ok(()) => Err(format!("{name} {version} was installed into {venv}, but cannot be imported")),
        Err(error) => {
            // Half of it is of no use, and takes the space of other steps.
            let _ = std::fs::remove_dir_all(&folder);
            Err(format!(
                "{name} {version} cannot be installed here ({error:#}); with a network and Python 3.11 or later: \
                 python3 -m venv {venv} && {venv}/bin/pip install {}",
                packages.join(" ")
            ))
        }
    }
}

/// Whether that version is there and can be used; asked without loading it, which takes seconds.
fn has(python: &Path, library: &Library) -> bool {
    let names: Vec<&str> =
        library.packages.iter().map(|package| package.split("==").next().unwrap_or(package)).collect();
    let ask =
        format!("import importlib.metadata as m; print([m.version(name) for name in {names:?}][0].split('+')[0])");
    let answer = steps::answer(&python.to_string_lossy(), &["-c", &ask]);
    answer.is_some_and(|version| version.trim() == library.version())
}

impl Library {
    fn version(&self) -> &'static str {
        self.packages.first().and_then(|package| package.split_once("==")).map_or("", |(_, version)| version)
    }
}

const LIBRARY_JAX: Library = Library {
    name: "JAX",
    packages: &["jax==0.10.2", "jaxlib==0.10.2", "matplotlib==3.11.2"],
    venv: "target/flow/venv",
    size: "some 250 MB",
    // 0.7, its downloads, and some room.
    needs_gb: 2.0,
};

// Its wheels need the packages of NVIDIA also where there is no GPU: without them it cannot be
// imported.
const LIBRARY_TORCH: Library = Library {
    name: "torch",
    packages: &["torch==2.15.0", "numpy", "accelerate==1.15.0"],
    venv: "target/torch/venv",
    size: "5.4 GB",
    // 5.8 of 10⁹ bytes, and 10 that the other steps of a test run write; downloads of 2.6 are gone
    // by then.
    needs_gb: 17.0,
};

/// Beside a build on two cores.
const LIMIT: Duration = Duration::from_secs(600);
