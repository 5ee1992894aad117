//! A Python that has JAX, in a virtual environment of the project's own.
//!
//! Place in the flow: first. Everything lies in `target/flow/venv`; the system's Python only makes it. The version is fixed, so that a
//! figure can be had again, and printed. What it does not do: retry for long; where there is no network it says so.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::steps;

/// The interpreter; otherwise the reason why there is none, and what to do.
pub fn with_jax(root: &Path) -> Result<PathBuf, String> {
    let venv = root.join(VENV);
    let python = venv.join("bin/python");
    if has_jax(&python) {
        return Ok(python);
    }
    if steps::answer("python3", &["-m", "venv", "--help"]).is_none() {
        return Err("python3 with venv is not installed; on Debian: apt-get install python3-venv".to_owned());
    }
    println!("installing JAX {JAX} into {VENV} (some 150 MB; once; the system's Python stays as it is)");
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&venv);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    install.args(["--timeout", "20", "--retries", "1"]).arg(format!("jax=={JAX}"));
    let outcome = steps::visible(&mut make, LIMIT).and_then(|()| steps::visible(&mut install, LIMIT));
    match outcome {
        Ok(()) if has_jax(&python) => Ok(python),
        Ok(()) => Err(format!("JAX {JAX} was installed into {VENV}, but cannot be imported")),
        Err(error) => Err(format!(
            "JAX {JAX} cannot be installed here ({error:#}); with a network and Python 3.11 or later: \
             python3 -m venv {VENV} && {VENV}/bin/pip install jax=={JAX}"
        )),
    }
}

/// Whether that version is there and can be used; asked without loading it, which takes a second.
fn has_jax(python: &Path) -> bool {
    let ask = "import importlib.metadata as m; print(m.version('jax'), m.version('jaxlib'))";
    let answer = steps::answer(&python.to_string_lossy(), &["-c", ask]);
    answer.is_some_and(|versions| versions.trim() == format!("{JAX} {JAX}"))
}

/// The version that the figures in the docs were made with.
pub const JAX: &str = "0.10.2";

const VENV: &str = "target/flow/venv";

const LIMIT: Duration = Duration::from_secs(300);
