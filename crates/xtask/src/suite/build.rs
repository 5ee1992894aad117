//! The packages and features that each step of `cargo xtask test` builds.
//!
//! Build time dominates the command, and cargo compiles a dependency again for every set of
//! features requested. All steps that build programs therefore use one selection, [`everything`];
//! leaving out packages whose tests have already run looks cheaper but is not.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::setup::Tools;

/// `cargo VERB …` over all packages and features that build here.
pub fn everything(root: &Path, tools: Tools, verb: &[&str]) -> Command {
    let mut command = cargo(root, verb);
    command.args(["--locked", "--workspace"]);
    if !tools.mpi() {
        for package in ["probe-sync-mpi", "probe-sync-mpi-tests", "probe-sync-mpi-launcher"] {
            command.args(["--exclude", package]);
        }
    }
    // What needs nothing of the machine, and is no default.
    let own =
        ["probe-sync-cli/otlp", "probe-sync-record/tracing", "probe-sync-record/symbols", "probe-sync-record/itt"];
    let mut features = [tools.features(), own.to_vec()].concat();
    if tools.mpi() {
        // Both need libclang.
        features.push("probe-sync-record/nvtx");
    }
    if tools.otf2() {
        features.push("probe-sync-cli/otf2");
    } else {
        command.args(["--exclude", "probe-sync-otf2"]);
    }
    command.args(["--features", &features.join(",")]);
    command
}

/// `cargo VERB …` over what a machine without MPI, libhwloc and libotf2 builds: the default
/// members, no features.
pub fn plain(root: &Path, verb: &[&str]) -> Command {
    let mut command = cargo(root, verb);
    command.arg("--locked");
    command
}

/// `cargo …` in the workspace.
pub fn cargo(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root);
    command
}

/// All tests take six minutes on two quiet cores.
pub const TESTS: Duration = Duration::from_secs(3600);
/// Seven minutes on two quiet cores and a cold cache; a busy machine takes several times as long.
pub const BUILD: Duration = Duration::from_secs(2700);
