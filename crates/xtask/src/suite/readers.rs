//! Tests our output with third-party readers: xprof's converter, HolisticTraceAnalysis and
//! Perfetto's trace processor.
//!
//! The checks are the Python scripts of `bench/readers`, each of which states what it compares;
//! each is one step in a virtual environment under `target/readers`. A reader that cannot be
//! installed, or absent data, is a skip with its reason. A network failure is not a test failure.
//! The versions of the readers are not pinned.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::selection::{BUILD, everything};
use crate::setup::Tools;
use crate::steps::{self, Count, Runner};

/// Installs the readers and has each read what `target/debug/probe_sync` writes.
pub fn run(runner: &mut Runner, root: &Path, tools: Tools) {
    if !CHECKS.iter().any(|(name, _)| runner.wants(name)) {
        return;
    }
    if let Err(reason) = prepare(runner, root, tools) {
        CHECKS.iter().for_each(|(name, _)| runner.skip(name, reason));
        return;
    }
    for (name, script) in CHECKS {
        let mut check = Command::new(root.join(PYTHON));
        let (script, arguments) = script.split_once(' ').unwrap_or((script, ""));
        check.arg(root.join("bench/readers").join(script)).args(arguments.split_whitespace()).current_dir(root);
        runner.command(name, Count::Figures, CHECK, &mut check);
    }
}

/// Builds the program and makes the virtual environment; otherwise the reason why the checks cannot
/// run.
fn prepare(runner: &mut Runner, root: &Path, tools: Tools) -> Result<(), &'static str> {
    if steps::answer("python3", &["-m", "venv", "--help"]).is_none() {
        return Err("python3 with venv is not installed");
    }
    // The selection of the whole runs before, so that nothing is compiled twice.
    let mut build = everything(root, tools, &["build", "--bins", "--tests"]);
    if !runner.prerequisite("build programs for readers", Count::Step, BUILD, &mut build) {
        return Err("the programs do not build");
    }
    let mut example = everything(root, tools, &["build", "--example", "nested_scopes"]);
    if !runner.prerequisite("build the recorder of nested scopes", Count::Step, BUILD, &mut example) {
        return Err("the recorder of nested scopes does not build");
    }
    install(runner, root);
    if root.join(PYTHON).exists() { Ok(()) } else { Err("no virtual environment for the readers") }
}

/// Makes the virtual environment with the readers that can be had.
pub fn install(runner: &mut Runner, root: &Path) {
    runner.prerequisite("install readers", Count::Figures, INSTALL, &mut installer(root));
}

/// What makes it.
pub fn installer(root: &Path) -> Command {
    let mut install = Command::new("python3");
    install.arg(root.join("bench/readers/install.py")).arg(root.join("target/readers")).current_dir(root);
    install
}

const PYTHON: &str = "target/readers/venv/bin/python";

/// Steps, and the script of each with its arguments.
const CHECKS: [(&str, &str); 14] = [
    ("readers, xprof", "xprof_hosts.py"),
    ("readers, HolisticTraceAnalysis", "hta_ranks.py"),
    ("readers, Perfetto", "perfetto_counts.py"),
    ("readers, Perfetto on 8 ranks of 4 hosts", "perfetto_hosts.py"),
    ("readers, Perfetto on converted traces", "perfetto_convert.py"),
    ("readers, Perfetto 58", "perfetto_shell.py"),
    ("readers, rocprofv3's own", "rocpd_modules.py"),
    ("readers, Perfetto on Kineto JSON of ours", "own_formats.py perfetto"),
    ("readers, HolisticTraceAnalysis on Kineto JSON of ours", "own_formats.py hta"),
    ("readers, xprof on XSpaces of ours", "own_formats.py xprof"),
    ("readers, Perfetto on recordings", "perfetto_recording.py"),
    ("readers, HolisticTraceAnalysis on recordings", "recordings.py hta"),
    ("readers, xprof on recordings", "recordings.py xprof"),
    ("readers, rocprofv3's own on recordings", "recordings.py rocpd"),
];

/// Above the script's own deadline, which is what normally ends it.
const INSTALL: Duration = Duration::from_secs(300);

/// Several times what the largest takes if nothing else runs.
const CHECK: Duration = Duration::from_secs(480);
