//! `cargo xtask python`: the Python package as its users get it, built, installed and tested in a virtual environment.
//!
//! Place in the flow: a command, and a part of `cargo xtask test` after the programs are built, since tests compare with the
//! command line. Everything lies in `target/python`: `install.py` of `crates/python/tests` puts maturin and mypy there, maturin makes the wheel,
//! and the tests run against what pip installed. Types are checked against the running library (`stubtest`), and the wheel is used by
//! every Python from 3.10 to 3.13 that is here.
//!
//! What it does not do: fail because the package registry cannot be reached; that is a skip with its reason.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::steps::{Count, Runner};

/// Builds, installs and tests the package.
///
/// # Errors
/// When anything failed.
pub fn python(root: &Path) -> Result<()> {
    let mut runner = Runner::new(root, None)?;
    let mut cli = Command::new("cargo");
    cli.args(["build", "--locked", "--package", "probe-sync-cli"]).current_dir(root);
    runner.command("build the command line", Count::Step, BUILD, &mut cli);
    run(&mut runner, root);
    runner.finish()
}

/// The steps; all of their names begin with `python`.
pub fn run(runner: &mut Runner, root: &Path) {
    if !STEPS.iter().any(|name| runner.wants(name)) {
        return;
    }
    let mut install = Command::new("python3");
    install.arg(root.join(TESTS).join("install.py")).arg(root.join(FOLDER)).current_dir(root);
    let skipped = |runner: &mut Runner, reason: &str| STEPS[1..].iter().for_each(|name| runner.skip(name, reason));
    if !runner.prerequisite(STEPS[0], Count::Step, INSTALL, &mut install) || !root.join(VENV).join("bin/mypy").exists()
    {
        return skipped(runner, "the tools are not there");
    }
    let wheel = match build(runner, root) {
        Ok(wheel) => wheel,
        Err(error) => return skipped(runner, &format!("{error:#}")),
    };
    let mut tests = in_venv(root, &[]);
    tests.arg(root.join(TESTS).join("run.py")).env("JAX_PYTHON", root.join("target/flow/venv/bin/python"));
    if std::env::var_os("TORCH_PYTHON").is_none() {
        tests.env("TORCH_PYTHON", root.join("target/torch/venv/bin/python"));
    }
    runner.command(STEPS[3], Count::Tests, LIMIT, &mut tests);
    let mut types = in_venv(root, &["-m", "mypy", "--strict"]);
    runner.command(STEPS[4], Count::Step, LIMIT, types.arg(root.join("crates/python/python/probe_sync")));
    let mut stubs = in_venv(root, &["-m", "mypy.stubtest", "probe_sync", "--ignore-unused-allowlist", "--allowlist"]);
    runner.command(STEPS[5], Count::Step, LIMIT, stubs.arg(root.join(TESTS).join("stubtest_allowlist.txt")));
    let mut versions = in_venv(root, &[]);
    versions.arg(root.join(TESTS).join("versions.py")).arg(root.join(FOLDER)).arg(wheel);
    runner.command(STEPS[6], Count::Figures, LIMIT, &mut versions);
}

/// Makes the wheel and installs it; its path.
fn build(runner: &mut Runner, root: &Path) -> Result<PathBuf> {
    let folder = root.join(FOLDER).join("wheel");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    let mut build = Command::new(root.join(VENV).join("bin/maturin"));
    build.args(["build", "--manifest-path", "crates/python/Cargo.toml", "--interpreter"]);
    build.arg(root.join(VENV).join("bin/python")).arg("--out").arg(&folder).current_dir(root);
    if !runner.prerequisite(STEPS[1], Count::Step, BUILD, &mut build) {
        bail!("the package does not build");
    }
    let wheels = std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))?;
    let wheel =
        wheels.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|end| end == "whl"));
    let wheel = wheel.context("maturin made no wheel")?;
    let mut install = in_venv(root, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    install.args(["--no-deps", "--force-reinstall"]).arg(&wheel);
    if !runner.prerequisite(STEPS[2], Count::Step, LIMIT, &mut install) {
        bail!("the wheel cannot be installed");
    }
    Ok(wheel)
}

/// The environment's Python, in a folder where nothing hides the installed package.
fn in_venv(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(root.join(VENV).join("bin/python"));
    command.args(arguments).current_dir(root.join(FOLDER));
    command
}

const STEPS: [&str; 7] = [
    "python, tools",
    "python, wheel",
    "python, install",
    "python, tests",
    "python, mypy",
    "python, stubtest",
    "python, versions",
];

const FOLDER: &str = "target/python";
const VENV: &str = "target/python/venv";
const TESTS: &str = "crates/python/tests";

/// Above the script's own deadline, which is what normally ends it.
const INSTALL: Duration = Duration::from_secs(240);
/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(900);
const LIMIT: Duration = Duration::from_secs(300);
