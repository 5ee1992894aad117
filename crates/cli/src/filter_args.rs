//! The flags of `merge` that select which parts of the traces go into the file.

use clap::Args;
use probe_sync_alignment::{Bound, FilterSettings, Kinds, Ranks, StepNames, Steps};

use crate::output::Usage;

/// What is to be in the output.
#[derive(Args, Debug)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Keep only the traces of these ranks (for example 0-7,12); the others still contribute to the
    /// clock estimate
    #[arg(long, value_name = "RANKS")]
    ranks: Option<Ranks>,
    /// Keep only events that overlap these steps, from the earliest start of the first step on any
    /// rank to the latest end of the last (10..12 is three steps). --step-name tells steps from
    /// other events
    #[arg(long, value_name = "FIRST..LAST")]
    steps: Option<Steps>,
    /// Drop events that end before this time: a time after the first event (+1.5s), ns on the
    /// reference clock, or a percentage of the traces' time span (30%). Events that overlap the
    /// limit are kept whole
    #[arg(long, value_name = "TIME")]
    from: Option<Bound>,
    /// Drop events that begin after this time
    #[arg(long, value_name = "TIME")]
    to: Option<Bound>,
    /// Keep only events of these kinds: collectives, gpu, cpu, steps (or several, as in gpu,steps),
    /// or events whose names match a pattern. May be repeated; an event is kept if any of them
    /// matches
    #[arg(long, value_name = "KINDS|REGEX")]
    only: Vec<String>,
    /// Maximum size of the file before compression, for example 400M or 1GiB. Events shorter than
    /// some threshold are dropped to reach it; collectives and steps are kept. Dropped events are
    /// reported here and in the statistics
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_size: Option<u64>,
}

impl FilterArgs {
    /// Converts the flags to settings of the library.
    ///
    /// # Errors
    /// Returns an error for an invalid pattern.
    pub fn settings(&self, step_names: StepNames) -> anyhow::Result<FilterSettings> {
        let mut only = Kinds::default();
        for kind in &self.only {
            only.add(kind).map_err(|reason| anyhow::anyhow!("--only {kind}: {reason}").context(Usage))?;
        }
        let Self { ranks, steps, from, to, max_size, .. } = self;
        Ok(FilterSettings {
            ranks: ranks.clone(),
            from: from.clone().unwrap_or_default(),
            to: to.clone().unwrap_or_default(),
            steps: steps.clone(),
            step_names,
            only,
            bytes_max: *max_size,
        })
    }
}

/// Parses a number of bytes.
fn bytes(text: &str) -> Result<u64, String> {
    match probe_sync::config::bytes(text)? {
        0 => Err("must be at least 1".into()),
        bytes => Ok(bytes),
    }
}
