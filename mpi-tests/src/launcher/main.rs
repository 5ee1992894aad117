//! Launchers that misbehave, with a session over their MPI: the others' sessions name the culprit,
//! and the launcher's own allreduces continue. It also contains launchers that create an
//! `MpiCollective` on their MPI (`collective`).
//!
//! Run it as `mpirun -n N probe-sync-mpi-launchers CASE`; `cargo xtask test` does. Every rank
//! checks what its own session reported; one complaint ends the job with exit code 1. Rank 0 prints
//! a line at the end. It does not measure times; its time limits only ensure that it ends.

mod cases;
mod collective;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use mpi::traits::Communicator as _;

/// What the last rank's launcher does.
#[derive(Parser)]
#[command(name = "probe-sync-mpi-launchers")]
struct Arguments {
    case: Case,
    /// Directory of the runs.
    out: PathBuf,
}

#[derive(Copy, Clone, Debug, ValueEnum)]
enum Case {
    /// It stops to call step.
    Silent,
    /// As rank 0's stops to call step.
    SilentRoot,
    /// It calls no step for a while, and then again.
    Pauses,
    /// It drops its session without stop.
    LetsGo,
    /// It calls `MPI_Finalize` while its session runs on a thread of its own.
    Finalises,
    /// As it calls `MPI_Finalize` while its session needs steps.
    FinalisesSteps,
    /// All ranks do what is refused.
    WrongUses,
    /// All ranks catch panics of their own while they use an `MpiCollective`.
    Panics,
    /// Another thread than the one that initialised MPI makes an `MpiCollective`, at FUNNELED.
    ThreadsFunneled,
    /// As at SERIALIZED.
    ThreadsSerialized,
    /// As at MULTIPLE.
    ThreadsMultiple,
}

fn main() -> ExitCode {
    let early = cases::before_mpi();
    let arguments = Arguments::parse();
    let Some((universe, level)) = mpi::initialize_with_threading(cases::level(arguments.case)) else {
        return ExitCode::FAILURE;
    };
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
    let mut gone = None;
    let result = early.and_then(|()| match arguments.case {
        Case::Silent => cases::silent(&world, &arguments.out, cases::last(&world)),
        Case::SilentRoot => cases::silent(&world, &arguments.out, 0),
        Case::Pauses => cases::pauses(&world, &arguments.out),
        Case::LetsGo => cases::lets_go(&world, &arguments.out),
        Case::Panics => collective::panics(),
        Case::ThreadsFunneled | Case::ThreadsSerialized | Case::ThreadsMultiple => {
            collective::threads(arguments.case, level)
        }
        Case::WrongUses => cases::wrong_uses(&world, &arguments.out),
        Case::Finalises | Case::FinalisesSteps => {
            cases::until_finalise(&world, &arguments.out).map(|session| gone = session)
        }
    });
    if let (Ok(()), Some(session)) = (&result, gone) {
        // MPI_Finalize.
        drop(universe);
        return match cases::after_finalise(&session) {
            Ok(()) => ExitCode::SUCCESS,
            Err(reason) => {
                eprintln!("rank {rank}: {reason}");
                ExitCode::FAILURE
            }
        };
    }
    match result {
        Ok(()) => {
            if rank == 0 {
                println!("{:?}, {size} ranks, {level:?}: ok", arguments.case);
            }
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("rank {rank}: {reason}");
            world.abort(1)
        }
    }
}
