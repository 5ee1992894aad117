//! `record recover`: which scopes each thread is inside.

use std::path::PathBuf;

use clap::Args;
use probe_sync_record::Recording;

/// Flags of `record recover`.
#[derive(Args, Debug)]
pub struct RecoverArgs {
    /// The recording: of a process that goes on, hangs, or was killed
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads it and prints what is open.
pub fn run(arguments: &RecoverArgs) -> anyhow::Result<()> {
    let recording = Recording::open(&arguments.file)?;
    for thread in recording.threads() {
        for scope in &thread.open {
            crate::output::print(&format!("{} {}: {}\n", thread.tid, thread.name, scope.name))?;
        }
    }
    Ok(())
}
