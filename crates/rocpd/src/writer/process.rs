//! The identity of the process that a database describes: its node, its guid and its launcher's
//! variables.
//!
//! It becomes the rows of `rocpd_info_node` and `rocpd_info_process` and the suffix of all tables.
//! The guid has the form of rocprofv3's: a version 7 UUID that starts with the process's start time
//! in milliseconds of CLOCK_BOOTTIME, followed by a hash of host, boot, pid and start time.
//! Processes with the same pid, on different hosts or one after another, therefore differ. Only
//! variables that name the rank, job and devices are stored, because others may be secrets.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use super::error::Error;

/// A process and its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// Name of the node.
    pub hostname: String,
    /// `/etc/machine-id` or a substitute; cloned images share it.
    pub machine_id: String,
    /// uname: kernel name, release, version, machine, domain.
    pub system: [String; 5],
    /// Process ID on the node.
    pub pid: u32,
    /// Process ID of the parent.
    pub parent_pid: u32,
    /// When it began to record, ns of CLOCK_BOOTTIME.
    pub start_ns: i64,
    /// Command line.
    pub command: String,
    /// Environment variables to store.
    pub environment: BTreeMap<String, String>,
    /// Globally unique identifier of the process, for example `01234567-89ab-7…`.
    pub guid: String,
}

impl Process {
    /// Describes the current process.
    pub fn current() -> Self {
        let name = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let hostname = text(name.nodename());
        let line = fs::read("/proc/self/cmdline").unwrap_or_default();
        let command: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let mut process = Self {
            machine_id: machine_id().unwrap_or_else(|| hostname.clone()),
            hostname,
            system: [name.sysname(), name.release(), name.version(), name.machine(), name.domainname()].map(text),
            pid: std::process::id(),
            parent_pid: std::os::unix::process::parent_id(),
            start_ns: boottime_ns(),
            command: command.join(" ").trim_end().to_owned(),
            environment: KEPT.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?))).collect(),
            guid: String::new(),
        };
        process.guid = process.new_guid();
        process
    }

    /// The same with a guid derived from its present fields, for a process other than the current
    /// one.
    pub fn with_own_guid(mut self) -> Self {
        self.guid = self.new_guid();
        self
    }

    /// Refuses a guid that cannot be part of a table name.
    pub(super) fn check(&self, path: &Path) -> Result<(), Error> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !self.guid.is_empty() && self.guid.bytes().all(good) {
            return Ok(());
        }
        Err(Error::Guid { path: path.to_owned(), guid: self.guid.clone() })
    }

    /// The first of these variables that is set.
    pub(super) fn variable(&self, names: &[&str]) -> Option<String> {
        names.iter().find_map(|name| self.environment.get(*name).cloned())
    }

    /// The number of the node in its tables: 32 bits of a hash of the machine-id, as in rocprofv3.
    pub(super) fn node_id(&self) -> i64 {
        i64::from(self.node_hash() as u32)
    }

    /// The hash itself.
    pub(super) fn node_hash(&self) -> i64 {
        hash(&self.machine_id) as i64
    }

    fn new_guid(&self) -> String {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let seed = (&self.hostname, &self.machine_id, boot, self.pid, self.parent_pid, self.start_ns);
        let (first, second) = (hash(&(&seed, 0)), hash(&(&seed, 1)));
        let milliseconds = (self.start_ns / 1_000_000) as u64 & 0xffff_ffff_ffff;
        let (high, low) = (milliseconds >> 16, milliseconds & 0xffff);
        // Version 7 and variant 10, as RFC 9562 has them.
        let (version, variant) = (0x7000 | first & 0x0fff, 0x8000 | (first >> 12) & 0x3fff);
        format!("{high:08x}-{low:04x}-{version:04x}-{variant:04x}-{:012x}", second & 0xffff_ffff_ffff)
    }
}

/// Current time, on the clock of rocprofv3's times.
pub(super) fn boottime_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn machine_id() -> Option<String> {
    let text = fs::read_to_string("/etc/machine-id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty())
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Variables with the identity of the process in its job, and the devices visible to it.
const KEPT: [&str; 27] = [
    "RANK",
    "LOCAL_RANK",
    "GROUP_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "PMI_SIZE",
    "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURMD_NODENAME",
    "FLUX_TASK_RANK",
    "FLUX_JOB_ID",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "CUDA_VISIBLE_DEVICES",
];
