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

/// Asks, and prints what each says.
///
/// # Errors
/// Who refuses.
pub fn run(arguments: &StopArgs) -> anyhow::Result<()> {
    arguments.asked.ask(&Request::Stop, |answer| {
        let counts = answer.standing.counts;
        format!("paused; {} bytes recorded, {} events lost", counts.bytes, counts.lost)
    })
}
