//! Tests jobs that must end promptly and with a reason: a rank panics, aborts, never arrives, or
//! leaves while the others gather.
//!
//! `mpi-tests/src/behaviour.rs` misbehaves; this module states the expected message and expects the
//! job to fail. It does not measure how long the job took: `mpirun --timeout` ends a hanging job,
//! whose reason is then missing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use super::launchers::mpirun;
use crate::setup::Tools;
use crate::steps::{Runner, logged};

/// What `--only` can ask for here.
pub fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|(name, ..)| *name)
}

/// Runs everything that can run here.
pub fn run(runner: &mut Runner, root: &Path, tools: Tools) {
    for (name, arguments, says) in CASES {
        if tools.mpi() {
            runner.check(name, || {
                let mut command = mpirun("4", MPIRUN_SECONDS);
                command.arg(root.join("target/debug/probe-sync-mpi-tests")).args(arguments).current_dir(root);
                must_end(&mut command, root, says)
            });
        } else {
            runner.skip(name, &format!("missing {}", tools.missing()));
        }
    }
}

/// Runs a job that must fail and say so.
///
/// # Errors
/// It has not, and what it said instead.
pub fn must_end(command: &mut Command, root: &Path, says: &str) -> Result<()> {
    let log = root.join("target/xtask/logs/ends.log");
    let status = logged(command, &log, LIMIT)?;
    let output = std::fs::read_to_string(&log)?;
    if status.success() || !output.contains(says) {
        bail!("{status}, and not \"{says}\" but:\n{output}");
    }
    Ok(())
}

const CASES: [(&str, &[&str], &str); 5] = [
    ("end of a job, a rank panics", &["panic"], "rank 3 panics on purpose"),
    ("end of a job, a rank aborts", &["abort"], "rank 3 ends the job: the disk is full"),
    ("end of a job, a rank never comes", &["late"], "no data from rank(s) 3 within"),
    ("end of a job, a rank lets go", &["leaves"], "rank 3 sent its farewell"),
    ("end of a job, a rank of another host lets go", &["leaves", "--ranks-per-host", "2"], "rank 3 sent its farewell"),
];

/// Longer than any of them takes, shorter than `LIMIT`.
const MPIRUN_SECONDS: &str = "60";

const LIMIT: Duration = Duration::from_secs(90);
