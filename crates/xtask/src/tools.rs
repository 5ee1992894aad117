//! Programs that commands call and that are installed below `target`: crates with programs, and
//! Python packages in virtual environments.
//!
//! The system's Python only creates the environments. Waiting is bounded; an unreachable registry is reported to the callers, which decide
//! whether it is a failure.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::steps;
use crate::suite::lines;

/// Finds or makes the virtual environment of that name in `steps.txt`, and returns its folder; the
/// error says why it is missing and what to do.
pub fn venv(root: &Path, name: &str) -> Result<PathBuf, String> {
    let mut words = lines::meaning("venvs", name).expect("a line of steps.txt").split(' ');
    let below = words.next().unwrap_or_default();
    let needs_gb: f64 = words.next().and_then(|number| number.parse().ok()).unwrap_or_default();
    let packages: Vec<&str> = words.collect();
    let folder = root.join("target").join(below);
    // Asked without loading the packages, which takes seconds.
    let ask = "import importlib.metadata as m, sys\nfor word in sys.argv[1:]:\n    name, _, version = word.partition('==')\n    assert m.version(name).split('+')[0].startswith(version)";
    let python = folder.join("bin/python");
    let is_complete = || steps::answer(&python.to_string_lossy(), &[&["-c", ask], &packages[..]].concat()).is_some();
    if is_complete() {
        return Ok(folder);
    }
    if steps::answer("python3", &["-m", "venv", "--help"]).is_none() {
        return Err("python3 with venv is not installed; on Debian: apt-get install python3-venv".to_owned());
    }
    let packages = packages.join(" ");
    // A full disk would fail every later step, in ways that do not say so.
    if let Some(free) = steps::free_gb(root).filter(|free| *free < needs_gb) {
        return Err(format!("installing and using {packages} takes {needs_gb} GB of the disk; {free:.1} GB are free"));
    }
    println!("installing {packages} into target/{below} (once; the system's Python stays as it is)");
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    install.args(["--no-cache-dir", "--timeout", "20", "--retries", "1"]).args(packages.split(' '));
    match steps::visible(&mut make, LIMIT).and_then(|()| steps::visible(&mut install, LIMIT)) {
        Ok(()) if is_complete() => Ok(folder),
        Ok(()) => Err(format!("{packages} was installed into target/{below}, but is not complete")),
        Err(error) => {
            // Half of it is of no use, and takes the space of other steps.
            let _ = std::fs::remove_dir_all(&folder);
            Err(format!(
                "{packages} cannot be installed here ({error:#}); with a network and Python 3.11 or later: python3 -m venv \
                 target/{below} && target/{below}/bin/pip install {packages}"
            ))
        }
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
        let installed = steps::visible(&mut install, LIMIT);
        // Six times as large as the program, and nobody needs it again.
        let _ = std::fs::remove_dir_all(&build);
        installed.with_context(|| format!("{name} {version} cannot be installed"))?;
    }
    Ok(program)
}

/// Makes an empty folder, and removes what an earlier run left there.
///
/// # Errors
/// The file system refuses.
pub fn empty_folder(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))
}

/// Two cores and a cold cache, next to a build.
const LIMIT: Duration = Duration::from_secs(900);
