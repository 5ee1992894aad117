//! Flags of `merge` that say what of the traces goes into the file.
//!
//! Place in the flow: part of [`crate::trace_args`]; becomes the library's `FilterSettings`. What it does not do: judge events.

use clap::Args;
use probe_sync_trace::{Bound, FilterSettings, Kinds, LatenessSettings, Ranks, Steps};

use crate::output::Usage;

/// What is to be in the output.
#[derive(Args, Debug)]
#[command(next_help_heading = "Filters")]
pub struct FilterArgs {
    /// Only the traces of these ranks, as in 0-7,12; the others still take part in learning the clocks
    #[arg(long, value_name = "RANKS")]
    ranks: Option<Ranks>,
    /// Only what lies in these steps or reaches into them, the last one included (10..12 are three): from the first rank's start of
    /// the first to the last rank's end of the last. --step-name says what steps are called
    #[arg(long, value_name = "FIRST..LAST")]
    steps: Option<Steps>,
    /// Leave out what ends before: a time after the first event (+1.5s), ns on the reference clock, or a share of what the traces
    /// span (30%). What reaches into the span stays whole
    #[arg(long, value_name = "TIME")]
    from: Option<Bound>,
    /// Leave out what begins after
    #[arg(long, value_name = "TIME")]
    to: Option<Bound>,
    /// Only events of these kinds: collectives, gpu, cpu, steps (several as in gpu,steps), or a pattern of names; may be given more than
    /// once, and an event stays that is of any of them
    #[arg(long, value_name = "KINDS|REGEX")]
    only: Vec<String>,
    /// How large the file may be before packing, as in 400M or 1GiB. The shortest events are left out, all that are shorter than one
    /// length; parts of collectives and steps stay. What was left out is printed and is in the statistics
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_size: Option<u64>,
}

impl FilterArgs {
    /// What the library is told.
    ///
    /// # Errors
    /// A pattern that is none.
    pub fn settings(&self, step_names: LatenessSettings) -> anyhow::Result<FilterSettings> {
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

/// A number of bytes.
fn bytes(text: &str) -> Result<u64, String> {
    match probe_sync::config::bytes(text)? {
        0 => Err("must be at least 1".into()),
        bytes => Ok(bytes),
    }
}
