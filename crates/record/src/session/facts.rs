//! The facts about its process that a recording stores as JSON on the header's second page.

use probe_sync_sys::{BootClock, SystemClock, read_pair};
use probe_sync_time::{Duration, SkewedClock};
use serde::{Deserialize, Serialize};

/// The recording process and its configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Facts {
    /// Name of the host.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Name of the program.
    pub program: String,
    /// Rank in the job, set by the launcher or the caller.
    pub rank: Option<u32>,
    /// Number of ranks in the job.
    pub ranks: Option<u32>,
    /// Id of the machine's boot.
    pub boot_id: String,
    /// The system clock minus `CLOCK_BOOTTIME` when the recording began, ns; `None` in recordings
    /// of other programs.
    pub system_ahead_of_boot_ns: Option<i64>,
    /// Virtual clock laid over the system clock for a test, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtual_clock: Option<SkewedClock>,
    /// `process` or `thread`.
    pub reach: String,
    /// `drop_newest`, `flight` or `stream`.
    pub policy: String,
    /// Recorded kinds.
    pub kinds: Vec<String>,
    /// Groups of arguments behind `||` that were recorded: `shapes`, `stacks`, `modules`, `flops`
    /// (computed from shapes), `other`. `None` in recordings of earlier versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Vec<String>>,
    /// `tsc` or `monotonic_raw`.
    pub clock: String,
    /// Why that clock was chosen.
    pub clock_reason: String,
    /// True if events of kinds that were not recorded were counted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub counts_omitted: bool,
    /// One in this many scopes was recorded.
    pub every: u32,
    /// Scopes shorter than this were not recorded, ns.
    pub longer_than_ns: u64,
    /// Where the session was started, as file:line.
    pub started_at: String,
    /// Version of this program.
    pub version: String,
}

impl Facts {
    /// Returns the facts of this process; those of the session are filled in by the caller.
    pub(crate) fn of_process() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let number = |names: [&str; 5]| {
            let value = |name: &str| std::env::var(name).ok()?.trim().parse().ok();
            names.into_iter().find_map(value)
        };
        let program =
            std::env::current_exe().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        Self {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            pid: std::process::id(),
            program: program.unwrap_or_default(),
            rank: number(["RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]),
            ranks: number(["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "PMI_SIZE", "SLURM_NTASKS"]),
            boot_id: read("/proc/sys/kernel/random/boot_id"),
            system_ahead_of_boot_ns: Some(system_ahead_of_boot_ns()),
            version: env!("CARGO_PKG_VERSION").into(),
            ..Self::default()
        }
    }
}

/// Reads one clock between two readings of the other.
fn system_ahead_of_boot_ns() -> i64 {
    let pair = read_pair(&SystemClock, &BootClock, Duration::from_ns(NARROW_NS));
    pair.a.as_ns() - pair.b.as_ns()
}

/// Bracket width that an undisturbed reading stays below, ns.
const NARROW_NS: i64 = 200;
