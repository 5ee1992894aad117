//! Programs from the registry that commands call, taken from `PATH` in the requested version or
//! built under `target/tools`.
//!
//! An unreachable registry is reported to the callers, which decide whether it is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::steps;

/// The path of a program of the crate of its name.
///
/// # Errors
/// It is not there and cannot be built.
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

/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(900);
