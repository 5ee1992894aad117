//! `probe_sync record`, for recordings of the host event recorder. Each verb has its own file.

mod asking;
mod convert;
mod inspect;
mod recover;
mod snapshot;
mod start;
mod stop;

use clap::{Args, Subcommand};

pub use self::asking::Answered;
pub use self::inspect::Inspected;
pub use self::recover::Recovered;

/// Flags of `record`.
#[derive(Args, Debug)]
pub struct RecordArgs {
    /// The command
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done with recordings.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Summarise recordings: process, threads, event counts, losses, clock
    Inspect(inspect::InspectArgs),
    /// Show where a process hangs, or where it was when it was killed: each thread's open scopes
    /// and how long they have been open
    Recover(recover::RecoverArgs),
    /// Write recordings as traces, on the system clock or on a run's reference clock
    Convert(convert::ConvertArgs),
    /// Start on-demand sessions: now, or at a reference time that is the same on all nodes
    Start(start::StartArgs),
    /// Stop sessions until they are started again
    Stop(stop::StopArgs),
    /// Save a copy of what sessions have recorded so far, for example from a flight recorder; they
    /// keep recording
    Snapshot(snapshot::SnapshotArgs),
}

/// Runs the command.
///
/// # Errors
/// Errors of the command, which name the file.
pub fn run(arguments: &RecordArgs) -> anyhow::Result<()> {
    match &arguments.verb {
        Verb::Inspect(arguments) => inspect::run(arguments),
        Verb::Recover(arguments) => recover::run(arguments),
        Verb::Convert(arguments) => convert::run(arguments),
        Verb::Start(arguments) => start::run(arguments),
        Verb::Stop(arguments) => stop::run(arguments),
        Verb::Snapshot(arguments) => snapshot::run(arguments),
    }
}
