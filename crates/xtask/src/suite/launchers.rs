//! Tests sessions over a launcher's own MPI, in Rust: the example at every thread level, and
//! launchers that misbehave.
//!
//! `probe-sync-testbed verify` compares the example's run with its truth; the programs of
//! `mpi-tests/src/launcher` judge themselves. [`super::c_interface`] has the equivalent in C.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::demo::fresh_directory;
use crate::setup::{MPI_ENVIRONMENT, Tools};
use crate::steps::{Count, Runner};

/// What `--only` can ask for here.
pub fn names() -> impl Iterator<Item = &'static str> {
    LEVELS.iter().map(|(name, _)| *name).chain(CASES.iter().map(|(name, _)| *name))
}

/// Runs everything that can run here.
pub fn run(runner: &mut Runner, root: &Path, tools: Tools) {
    for (name, level) in LEVELS {
        let Some(out) = wanted(runner, root, tools, name) else { continue };
        let mut command = mpirun("8", "120");
        command.arg(root.join("target/debug/mpi_launcher")).arg(level).arg(&out);
        if !runner.command(name, Count::Step, LIMIT, command.current_dir(root)) {
            continue;
        }
        // Windows of half a second on a machine whose cores are shared.
        let mut verify = Command::new(root.join("target/debug/probe-sync-testbed"));
        verify.args(["verify", "--nodes", "8", "--worst-ns", "5000", "--median-ns", "500"]).arg(&out).current_dir(root);
        runner.command(name, Count::Figures, LIMIT, &mut verify);
    }
    for (name, case) in CASES {
        let Some(out) = wanted(runner, root, tools, name) else { continue };
        let mut command = mpirun("4", "120");
        command.arg(root.join("target/debug/probe-sync-mpi-launchers")).arg(case).arg(out);
        runner.command(name, Count::Step, LIMIT, command.current_dir(root));
    }
}

/// `mpirun` of some ranks, which ends its job after some seconds.
pub fn mpirun(ranks: &str, seconds: &str) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--timeout", seconds, "-n", ranks]).envs(MPI_ENVIRONMENT);
    command
}

/// The directory for a run that is wanted and can be.
fn wanted(runner: &mut Runner, root: &Path, tools: Tools, name: &str) -> Option<std::path::PathBuf> {
    if !runner.wants(name) {
        return None;
    }
    if !tools.mpi() {
        runner.skip(name, &format!("missing {}", tools.missing()));
        return None;
    }
    match fresh_directory(&root.join("target/xtask/runs")) {
        Ok(out) => Some(out),
        Err(error) => {
            runner.check(name, || Err(error));
            None
        }
    }
}

const LEVELS: [(&str, &str); 4] = [
    ("launcher's MPI, single", "single"),
    ("launcher's MPI, funneled", "funneled"),
    ("launcher's MPI, serialized", "serialized"),
    ("launcher's MPI, multiple", "multiple"),
];

const CASES: [(&str, &str); 11] = [
    ("launcher's MPI, a rank that steps no more", "silent"),
    ("launcher's MPI, a root that steps no more", "silent-root"),
    ("launcher's MPI, a rank that pauses", "pauses"),
    ("launcher's MPI, a rank that lets go", "lets-go"),
    ("launcher's MPI, a rank that finalises", "finalises"),
    ("launcher's MPI, a rank that finalises and steps", "finalises-steps"),
    ("launcher's MPI, wrong uses", "wrong-uses"),
    ("launcher's MPI, panics that are caught", "panics"),
    ("launcher's MPI, a second thread, funneled", "threads-funneled"),
    ("launcher's MPI, a second thread, serialized", "threads-serialized"),
    ("launcher's MPI, a second thread, multiple", "threads-multiple"),
];

const LIMIT: Duration = Duration::from_secs(180);
