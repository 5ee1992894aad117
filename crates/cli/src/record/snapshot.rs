//! `record snapshot`: sessions leave copies of what they have, and go on.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use probe_sync_files::NewFolders;
use probe_sync_record::control::Request;

use super::asking::Asked;

/// Flags of `record snapshot`.
#[derive(Args, Debug)]
pub struct SnapshotArgs {
    /// The folder for the copies, created if needed [default: next to each socket]
    #[arg(short = 'o', long = "output", visible_alias = "out", value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Whom.
    #[command(flatten)]
    pub asked: Asked,
}

/// Sends the request, and prints the name of each copy.
///
/// # Errors
/// Returns an error if the folder cannot be created; names the sessions that refuse.
pub fn run(arguments: &SnapshotArgs) -> anyhow::Result<()> {
    let folder = arguments.out.as_ref().map(|out| {
        let made = NewFolders::create(out).and_then(|made| {
            made.keep();
            std::fs::canonicalize(out)
        });
        // The session's process has another directory of its own.
        made.with_context(|| format!("cannot make {}", out.display()))
    });
    let request = Request::Snapshot { folder: folder.transpose()? };
    arguments.asked.ask(&request, |answer| match &answer.saved {
        Some(saved) => saved.display().to_string(),
        None => "no copy".into(),
    })
}
