//! Flags of `demo`.

use std::path::PathBuf;

use clap::Args;

/// Flags of `demo`.
#[derive(Args, Debug)]
pub struct DemoArgs {
    /// Directory for the run, the traces and the report page
    #[arg(short, long, value_name = "DIR", default_value = "probe_sync_demo")]
    pub output: PathBuf,
    /// Seed of the injected clock errors
    #[arg(long, value_name = "SEED", default_value_t = 7)]
    pub seed: u64,
}
