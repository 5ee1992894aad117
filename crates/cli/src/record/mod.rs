//! `probe_sync record`: recordings of the host event recorder. A verb is a file here.
//!
//! Place in the flow: arguments into calls of the crate `record`, what it says as a table or JSON. What it does not do: read, map or
//! write a recording.

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
    /// What to do
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done with recordings.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Say what recordings hold: process, threads, counts, losses, clock
    Inspect(inspect::InspectArgs),
    /// Say where a process hangs, or was when it was killed: the scopes that each of its threads is inside, and since when
    Recover(recover::RecoverArgs),
    /// Write recordings as traces, on the system clock or on a run's reference clock
    Convert(convert::ConvertArgs),
    /// Ask sessions on demand to begin: now, or at a time of the reference clock that all nodes agree on
    Start(start::StartArgs),
    /// Ask sessions to stop until they are started again
    Stop(stop::StopArgs),
    /// Ask sessions for a copy of what they have, as of a flight recorder; they go on
    Snapshot(snapshot::SnapshotArgs),
}

/// Does it.
///
/// # Errors
/// Those of the verb, which name the file.
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
