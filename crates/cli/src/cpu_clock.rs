//! `--cpu-clock` and `--suspended`, for databases whose rows use two clocks.

use clap::Args;
use probe_sync_formats::CpuClock;
use probe_sync_time::Duration;

use crate::output::Usage;

/// Heading of the options for the source of the clocks, the same in all commands.
pub const CLOCKS: &str = "Clocks";

/// Databases whose rows are on two clocks.
#[derive(Args, Debug)]
pub struct CpuClockArgs {
    /// Databases of rocprof-sys: the clock of the rows that it stamped itself, if it differs from
    /// the CLOCK_BOOTTIME of device rows. These rows are converted to CLOCK_BOOTTIME first. The two
    /// clocks differ by the time that the machine spent suspended
    #[arg(help_heading = CLOCKS, long, value_name = "CLOCK", value_parser = ["monotonic"], requires = "suspended")]
    pub cpu_clock: Option<String>,
    /// How long each host has been suspended since boot (CLOCK_BOOTTIME minus CLOCK_MONOTONIC):
    /// HOST=TIME, or TIME for all other hosts
    #[arg(help_heading = CLOCKS, long, num_args = 1.., value_name = "[HOST=]TIME", requires = "cpu_clock", value_parser = suspended)]
    pub suspended: Vec<(Option<String>, Duration)>,
}

impl CpuClockArgs {
    /// Returns the clock of the CPU rows, if it differs.
    ///
    /// # Errors
    /// Returns an error for a negative time, or if a host is given two times.
    pub fn named(&self) -> anyhow::Result<Option<CpuClock>> {
        if self.cpu_clock.is_none() {
            return Ok(None);
        }
        let mut clock = CpuClock::default();
        for (host, time) in &self.suspended {
            let wrong = |reason: String| anyhow::anyhow!("--suspended: {reason}").context(Usage);
            clock.add(host.as_deref(), *time).map_err(wrong)?;
        }
        Ok(Some(clock))
    }
}

/// Parses a host, or none for all others, and how long it was suspended.
fn suspended(text: &str) -> Result<(Option<String>, Duration), String> {
    let (host, time) = text.rsplit_once('=').map_or((None, text), |(host, time)| (Some(host.to_owned()), time));
    Ok((host, probe_sync::config::duration(time)?))
}
