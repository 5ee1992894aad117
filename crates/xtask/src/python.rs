//! `cargo xtask python`, which builds, installs and tests the Python package in a virtual
//! environment, as its users receive it.
//!
//! It is also part of `cargo xtask test`, after the programs are built, because tests compare with
//! the command line. Everything is stored in `target/python`: `install.py` of `crates/python/tests`
//! installs maturin and mypy there, maturin builds the wheel, and the tests run against the
//! installed package. Types are checked against the running library (`stubtest`), and the wheel is
//! tested with every available Python from 3.10 to 3.13. Finally the examples with JAX and torch
//! run as jobs and are compared with the truth ([`flows`] runs only these).
//!
//! The wheel that users get is optimised as a whole, which takes minutes. `cargo xtask test` builds
//! one as it builds everything else; its size is not judged then.
//!
//! An unreachable package registry is not a failure but a skip with its reason.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::steps::{Count, Runner};
use crate::suite::jobs;
use crate::tools;

/// Builds, installs and tests the package as users get it.
///
/// # Errors
/// When anything failed.
pub fn python(root: &Path) -> Result<()> {
    let mut runner = Runner::new(root, None)?;
    command_line(&mut runner, root);
    run(&mut runner, root, Wheel::Released);
    runner.finish()
}

/// The examples with JAX and torch alone, on a machine that has nothing yet.
///
/// # Errors
/// When anything failed.
pub fn flows(root: &Path, jax: bool, torch: bool) -> Result<()> {
    let mut runner = Runner::new(root, None)?;
    command_line(&mut runner, root);
    runner.prerequisite("install readers", Count::Figures, INSTALL, &mut jobs::readers(root));
    if let Some(wheel) = installed(&mut runner, root, Wheel::ForTests) {
        println!("   the package is {}", wheel.display());
        example_jobs(&mut runner, root, jax, torch);
    }
    runner.finish()
}

/// Which wheel is built.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Wheel {
    /// What users get.
    Released,
    /// The same code, compiled as the rest of a test run.
    ForTests,
}

/// The steps; all of their names begin with `python`.
pub fn run(runner: &mut Runner, root: &Path, kind: Wheel) {
    if !STEPS.iter().any(|name| runner.wants(name)) {
        return;
    }
    let Some(wheel) = installed(runner, root, kind) else { return };
    let mut tests = in_venv(root, &[]);
    runner.command(STEPS[3], Count::Tests, LIMIT, tests.arg(root.join(TESTS).join("run.py")));
    let mut types = in_venv(root, &["-m", "mypy", "--strict"]);
    runner.command(STEPS[4], Count::Step, LIMIT, types.arg(root.join("crates/python/python/probe_sync")));
    let mut stubs = in_venv(root, &["-m", "mypy.stubtest", "probe_sync", "--ignore-unused-allowlist", "--allowlist"]);
    runner.command(STEPS[5], Count::Step, LIMIT, stubs.arg(root.join(TESTS).join("stubtest_allowlist.txt")));
    let mut versions = in_venv(root, &[]);
    versions.arg(root.join(TESTS).join("versions.py")).arg(root.join(FOLDER)).arg(wheel);
    if kind == Wheel::ForTests {
        versions.arg("--any-size");
    }
    runner.command(STEPS[6], Count::Figures, LIMIT, &mut versions);
    example_jobs(runner, root, true, true);
}

/// Builds the command line that tests compare with.
fn command_line(runner: &mut Runner, root: &Path) {
    let mut cli = Command::new("cargo");
    cli.args(["build", "--locked", "--package", "probe-sync-cli"]).current_dir(root);
    runner.command("build the command line", Count::Step, BUILD, &mut cli);
}

/// Installs tools, wheel and package; `None` if a step failed, and then all later steps are
/// skipped.
fn installed(runner: &mut Runner, root: &Path, kind: Wheel) -> Option<PathBuf> {
    let there = runner.prerequisite(STEPS[0], Count::Step, INSTALL, &mut installer(root));
    let wheel = if there && root.join(VENV).join("bin/mypy").exists() {
        build(runner, root, kind)
    } else {
        Err(anyhow::anyhow!("the tools are not there"))
    };
    match wheel {
        Ok(wheel) => Some(wheel),
        Err(error) => {
            STEPS[1..].iter().for_each(|name| runner.skip(name, &format!("{error:#}")));
            None
        }
    }
}

/// What gets the tools.
pub fn installer(root: &Path) -> Command {
    let mut install = Command::new("python3");
    install.arg(root.join(TESTS).join("install.py")).arg(root.join(FOLDER)).current_dir(root);
    install
}

/// The jobs of `flows.py`, with the libraries that can be had; one that cannot is a skip, and the
/// other runs all the same.
fn example_jobs(runner: &mut Runner, root: &Path, jax: bool, torch: bool) {
    let jobs = [
        (jax, STEPS[7], "Jax", "JAX_PYTHON", &tools::JAX, &["jax_distributed.py"][..]),
        (
            torch,
            STEPS[8],
            "Torch",
            "TORCH_PYTHON",
            &tools::TORCH,
            &["torch_ddp.py", "accelerate_loop.py", "agreed_start.py"],
        ),
    ];
    for (is_asked, step, class, variable, library, examples) in jobs {
        if !is_asked || !runner.wants(step) {
            continue;
        }
        let python = match library.install(root) {
            Ok(folder) => folder.join("bin/python"),
            Err(reason) => {
                runner.skip(step, &reason);
                continue;
            }
        };
        let mut tests = in_venv(root, &[]);
        tests.arg(root.join(TESTS).join("run.py")).args(["--files", "flows.py", class]).env(variable, &python);
        runner.command(step, Count::Tests, LIMIT, &mut tests);
        // What the libraries themselves leave untyped is not the examples' fault.
        let lenient = ["--allow-untyped-calls", "--no-warn-return-any", "--ignore-missing-imports"];
        let mut types = in_venv(root, &["-m", "mypy", "--strict", "--python-executable"]);
        types.arg(python).args(lenient).env("MYPYPATH", root.join("crates/python/python"));
        types.args(examples.iter().map(|example| root.join("examples").join(example)));
        runner.command(&format!("{step}, mypy of examples"), Count::Step, LIMIT, &mut types);
    }
}

/// Makes the wheel and installs it; its path.
fn build(runner: &mut Runner, root: &Path, kind: Wheel) -> Result<PathBuf> {
    let folder = root.join(FOLDER).join("wheel");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    }
    let mut build = Command::new(root.join(VENV).join("bin/maturin"));
    build.args(["build", "--manifest-path", "crates/python/Cargo.toml", "--interpreter"]);
    build.arg(root.join(VENV).join("bin/python")).arg("--out").arg(&folder).current_dir(root);
    if kind == Wheel::ForTests {
        build.args(["--profile", "dev"]);
    }
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

const STEPS: [&str; 9] = [
    "python, tools",
    "python, wheel",
    "python, install",
    "python, tests",
    "python, mypy",
    "python, stubtest",
    "python, versions",
    "python, JAX",
    "python, torch",
];

const FOLDER: &str = "target/python";
const VENV: &str = "target/python/venv";
const TESTS: &str = "crates/python/tests";

/// Above the script's own deadline, which is what normally ends it.
const INSTALL: Duration = Duration::from_secs(240);
/// Two cores and a cold cache.
const BUILD: Duration = Duration::from_secs(900);
const LIMIT: Duration = Duration::from_secs(600);
