//! Programs that only make sense under `mpirun`: the shared suite on the MPI backend, ranks that
//! are late, wait, panic or abort, and the benchmark of one sync round.
//!
//! `cargo xtask test` runs `suite` with 1, 2, 3 and 8 ranks; `bench` produces the figures of
//! `bench/LOG.md`. The exit code is 1 if anything failed. Tests that need no MPI are in each crate.

mod behaviour;
mod bench;
mod group;
mod suite;
mod survives;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use probe_sync_mpi::MpiCollective;

use crate::group::GroupExt as _;

/// Checks and measures the MPI backend; start it with mpirun.
#[derive(Parser)]
#[command(name = "probe-sync-mpi-tests")]
struct Arguments {
    #[command(subcommand)]
    program: Program,
}

#[derive(Subcommand)]
enum Program {
    /// The cases that every backend passes, on every layout of hosts that these ranks can play.
    Suite,
    /// One sync round: C-equivalent MPI calls, our wrapper, our default round, the one beside a
    /// launcher and TCP, side by side.
    Bench(bench::Options),
    /// The last rank never comes: the root names it, and the job ends.
    Late,
    /// All ranks wait for the root; prints what the waiting cost.
    Wait(behaviour::WaitOptions),
    /// The last rank panics: the job must end although the others wait.
    Panic,
    /// The last rank lets go of its end while the others gather: the root names it, and the job
    /// ends.
    Leaves {
        /// Let every that many ranks play a host.
        #[arg(long)]
        ranks_per_host: Option<usize>,
    },
    /// All ranks look for words while nobody says any; prints what the looking cost.
    Looks(behaviour::LookOptions),
    /// Two ranks are killed while all go through rounds: the others go on. Needs Open MPI 5 and
    /// `mpirun --with-ft ulfm`.
    Survives(survives::Options),
    /// The last rank aborts: the job must end with its reason.
    Abort,
}

fn main() -> ExitCode {
    // Before the arguments: a rank that leaves before MPI is initialised can hang mpirun.
    let group = match MpiCollective::init() {
        Ok(group) => group,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            if group.is_root() {
                // Help and errors alike; a closed output is no reason to fail.
                let _ = error.print();
            }
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    let result = match arguments.program {
        Program::Suite => suite::run(group),
        Program::Bench(options) => bench::run(group, &options),
        Program::Late => behaviour::late(group),
        Program::Wait(options) => behaviour::wait(group, &options),
        Program::Panic => behaviour::panic(group),
        Program::Leaves { ranks_per_host } => behaviour::leaves(&group, ranks_per_host),
        Program::Looks(options) => behaviour::looks(&group, &options),
        Program::Survives(options) => survives::run(&group, &options),
        Program::Abort => behaviour::abort(group),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}
