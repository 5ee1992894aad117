//! `record stop`: sessions pause.

use clap::Args;
use probe_sync_record::control::Request;

use super::asking::Asked;

/// Flags of `record stop`.
#[derive(Args, Debug)]
pub struct StopArgs {
    /// Whom.
    #[command(flatten)]
    pub asked: Asked,
}

/// Sends the request, and prints each answer.
///
/// # Errors
/// Names the sessions that refuse.
pub fn run(arguments: &StopArgs) -> anyhow::Result<()> {
    arguments.asked.ask(&Request::Stop, |answer| {
        let counts = answer.standing.counts;
        format!("paused; {} bytes recorded, {} events lost", counts.bytes, counts.lost)
    })
}
