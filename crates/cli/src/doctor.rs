//! `probe_sync doctor`: what this machine offers and what to fix.

use crate::args::DoctorArgs;

pub fn run(_arguments: &DoctorArgs) -> anyhow::Result<()> {
    Ok(())
}
