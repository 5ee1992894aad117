//! `record convert`: recordings as traces.

use std::path::PathBuf;

use clap::Args;

/// Flags of `record convert`.
#[derive(Args, Debug)]
pub struct ConvertArgs {
    /// Recordings
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Writes each.
pub fn run(arguments: &ConvertArgs) -> anyhow::Result<()> {
    for path in &arguments.files {
        probe_sync_record::Recording::open(path)?;
    }
    Ok(())
}
