//! The metrics of the process itself, read on demand.
//!
//! They are appended to a run's metrics, both in the file and over HTTP. Processor time is missing
//! because a node exporter reports it.

use std::time::Duration;

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

use super::families;

/// Returns the resident memory and open descriptors of this process, if `/proc` provides them, and
/// the age of the last round, if requested, as OpenMetrics text.
pub(super) fn render(age: Option<Duration>) -> String {
    let mut registry = Registry::with_prefix("probe_sync");
    if let Some(age) = age {
        families::seconds(&mut registry, "last_round_age", "Time since the last round was solved")
            .set(age.as_secs_f64());
    }
    if let Some(resident) = resident_bytes() {
        let name = "process_resident_memory";
        families::bytes(&mut registry, name, "Resident memory of the root's process").set(resident as f64);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // The one that reads the folder is gone by then.
        let open = open.count().saturating_sub(1);
        families::value(&mut registry, "process_open_fds", "Open descriptors of the root's process").set(open as f64);
    }
    let mut text = String::new();
    encode_registry(&mut text, &registry).expect("a String takes any text");
    text
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix("kB")?;
    Some(kib.trim().parse::<u64>().ok()? * 1024)
}
