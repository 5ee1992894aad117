//! Agents and their hardware, with the keys under which rocprofv3 stores it, and this machine's CPU.

use std::fs;

use serde_json::{Map, Value, json};

/// Type of an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentKind {
    /// A CPU.
    Cpu,
    /// A GPU.
    #[default]
    Gpu,
}

impl AgentKind {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Gpu => "GPU",
        }
    }
}

/// A device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Agent {
    /// Type.
    pub kind: AgentKind,
    /// Index among all devices of the node.
    pub absolute_index: i64,
    /// Index among the devices visible to the process.
    pub logical_index: i64,
    /// Index among the devices of its type.
    pub type_index: i64,
    /// Name, for example `gfx942`.
    pub name: String,
    /// Product name.
    pub product_name: String,
    /// Vendor name.
    pub vendor_name: String,
    /// What it consists of.
    pub hardware: Hardware,
}

/// Hardware of a device. 0 means unknown; only what is known is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hardware {
    /// Logical processors of a CPU.
    pub cores: u32,
    /// Sockets of a CPU.
    pub sockets: u32,
    /// Compute units, or multiprocessors, of a GPU.
    pub multiprocessors: u32,
    /// Highest clock rate, MHz.
    pub clock_mhz: u32,
    /// Size of its memory, bytes.
    pub memory_bytes: u64,
    /// Version of the instruction set of a GPU: 90402 is gfx942, 90 the compute capability 9.0.
    pub capability: u32,
    /// Level and size in KiB of each cache.
    pub caches: Vec<(u32, u32)>,
}

impl Hardware {
    /// Returns the properties as JSON.
    pub(super) fn json(&self, kind: AgentKind) -> String {
        let clock = match kind {
            AgentKind::Cpu => "max_engine_clk_ccompute",
            AgentKind::Gpu => "max_engine_clk_fcompute",
        };
        let numbers = [
            ("cpu_cores_count", u64::from(self.cores)),
            ("sockets", u64::from(self.sockets)),
            ("cu_count", u64::from(self.multiprocessors)),
            (clock, u64::from(self.clock_mhz)),
            ("local_mem_size", self.memory_bytes),
            ("gfx_target_version", u64::from(self.capability)),
        ];
        let known = numbers.into_iter().filter(|(_, number)| *number > 0);
        let mut all: Map<String, Value> = known.map(|(key, number)| (key.to_owned(), number.into())).collect();
        if !self.caches.is_empty() {
            let caches = self.caches.iter().map(|(level, size)| json!({ "level": level, "size": size }));
            all.insert("caches".to_owned(), caches.collect());
        }
        Value::Object(all).to_string()
    }
}

impl Agent {
    /// Describes this machine's CPUs, as far as the system says.
    pub fn cpu_of_this_machine() -> Self {
        let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let fields =
            || text.lines().filter_map(|line| line.split_once(':')).map(|(key, value)| (key.trim(), value.trim()));
        let field = |name: &str| fields().find(|(key, _)| *key == name).map_or("", |(_, value)| value).to_owned();
        let count = |name: &str| {
            let mut values: Vec<&str> = fields().filter(|(key, _)| *key == name).map(|(_, value)| value).collect();
            values.sort_unstable();
            values.dedup();
            values.len() as u32
        };
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = meminfo.lines().find_map(|line| number(line.strip_prefix("MemTotal:")?));
        let khz = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").ok();
        let khz = khz.and_then(|text| number(&text));
        let mhz = khz.map(|khz| khz / 1000).or_else(|| number(field("cpu MHz").split('.').next()?));
        let hardware = Hardware {
            cores: count("processor"),
            sockets: count("physical id"),
            clock_mhz: mhz.and_then(|mhz| u32::try_from(mhz).ok()).unwrap_or(0),
            memory_bytes: memory.unwrap_or(0) * 1024,
            caches: caches(),
            ..Hardware::default()
        };
        let (product_name, vendor_name) = (field("model name"), field("vendor_id"));
        Self { kind: AgentKind::Cpu, name: "CPU".to_owned(), product_name, vendor_name, hardware, ..Self::default() }
    }
}

/// Caches of the first core.
fn caches() -> Vec<(u32, u32)> {
    let read = |at: usize, name: &str| {
        let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{at}/{name}")).ok()?;
        number(text.trim().trim_end_matches('K')).and_then(|number| u32::try_from(number).ok())
    };
    (0..CACHES_MAX).map_while(|at| read(at, "level").zip(read(at, "size"))).collect()
}

/// The number at the start of a text.
fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

/// Most caches of one core.
const CACHES_MAX: usize = 16;
