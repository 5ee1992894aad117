//! The rows of the processes in a report: threads, devices with their streams, and counters.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::identity::{pid_and_tid, process_of};
use super::reading::Database;
use crate::chunk::{Flow, FlowEnd, Process, Track, TrackId, TrackKind};
use crate::sqlite::table::{Table, quoted, text};
use crate::{AgentIndex, ChunkOptions, Error};

/// A row.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// By the global number of the process.
    Process(i64),
    /// By the global number of the thread.
    Thread(i64),
    /// A device of a process, as the process numbers it.
    Device(i64, i64),
    Stream(i64, i64, i64),
    /// Waits on a stream of a device.
    Waits(i64, i64, i64),
    /// Metrics of all devices.
    Metrics,
    /// A device of the machine.
    Gpu(i64),
    /// A metric of a device: type and number.
    Metric(i64, i64),
}

/// The rows that were declared so far, and the names of all.
pub(super) struct Places {
    known: HashMap<Place, TrackId, FixedState>,
    host: String,
    rank: Option<u32>,
    part: u32,
    agent_index: AgentIndex,
    processes: HashMap<i64, String>,
    threads: HashMap<i64, String>,
    /// Names of the machine's devices, by number.
    gpus: HashMap<i64, String>,
    /// The machine's number of a process's device: pid and number there.
    devices: HashMap<(i64, i64), i64>,
    /// Names of metrics, by type and number.
    metrics: HashMap<(i64, i64), String>,
}

impl Places {
    /// Reads the names.
    ///
    /// # Errors
    /// A table cannot be read.
    pub(super) fn read(database: &Database<'_>, options: &ChunkOptions) -> Result<Places, Error> {
        let mut places = Places {
            known: HashMap::default(),
            host: options.host.clone(),
            rank: options.rank,
            part: options.part,
            agent_index: options.agent_index,
            processes: HashMap::new(),
            threads: HashMap::new(),
            gpus: HashMap::new(),
            devices: HashMap::new(),
            metrics: HashMap::new(),
        };
        let plain = |table: &Table, column: &str| table.column("t", column);
        names(
            database,
            "PROCESSES",
            &|table| [plain(table, "globalPid"), "0".to_owned(), plain(table, "name")],
            &mut |pid, _, name| {
                places.processes.insert(pid, name);
            },
        )?;
        names(
            database,
            "ThreadNames",
            &|table| [plain(table, "globalTid"), "0".to_owned(), database.name(table, "nameId")],
            &mut |tid, _, name| {
                places.threads.insert(tid, name);
            },
        )?;
        names(
            database,
            "TARGET_INFO_GPU",
            &|table| [plain(table, "id"), "0".to_owned(), plain(table, "name")],
            &mut |id, _, name| {
                places.gpus.insert(id, name);
            },
        )?;
        names(
            database,
            "TARGET_INFO_CUDA_DEVICE",
            &|table| [plain(table, "pid"), plain(table, "cudaId"), plain(table, "gpuId")],
            &mut |pid, device, gpu| {
                if let Ok(gpu) = gpu.parse() {
                    places.devices.insert((pid, device), gpu);
                }
            },
        )?;
        names(
            database,
            "TARGET_INFO_GPU_METRICS",
            &|table| [plain(table, "typeId"), plain(table, "metricId"), plain(table, "metricName")],
            &mut |kind, metric, name| {
                places.metrics.insert((kind, metric), name);
            },
        )?;
        Ok(places)
    }

    /// Returns the track of a row, and declares it with its parents the first time.
    pub(super) fn track(&mut self, place: Place, declare: &mut dyn FnMut(Track) -> TrackId) -> TrackId {
        if let Some(track) = self.known.get(&place) {
            return *track;
        }
        let (above, kind, name) = match place {
            Place::Process(global) => {
                (None, self.process(global), self.processes.get(&global).cloned().unwrap_or_default())
            }
            Place::Thread(global) => {
                let (_, tid) = pid_and_tid(global);
                let name = self.threads.get(&global).filter(|name| !name.is_empty()).cloned();
                let name = name.unwrap_or_else(|| format!("thread {tid}"));
                (Some(Place::Process(process_of(global))), TrackKind::Thread { tid }, name)
            }
            Place::Device(process, device) => {
                (Some(Place::Process(process)), TrackKind::Agent, self.device(process, device))
            }
            Place::Stream(process, device, stream) => {
                (Some(Place::Device(process, device)), TrackKind::Stream, format!("stream {stream}"))
            }
            Place::Waits(process, device, NO_STREAM) => {
                (Some(Place::Device(process, device)), TrackKind::Stream, "waits for the device".to_owned())
            }
            Place::Waits(process, device, stream) => {
                (Some(Place::Device(process, device)), TrackKind::Stream, format!("waits for stream {stream}"))
            }
            Place::Metrics => (None, self.process(0), "GPU metrics".to_owned()),
            Place::Gpu(gpu) => (Some(Place::Metrics), TrackKind::Agent, self.gpu(gpu)),
            Place::Metric(kind, metric) => {
                let name = self.metrics.get(&(kind, metric)).cloned().unwrap_or_else(|| format!("metric {metric}"));
                let (name, unit) = with_unit(&name);
                (Some(Place::Gpu(kind & GPU)), TrackKind::Counter { unit }, name)
            }
        };
        let parent = above.map(|above| self.track(above, declare));
        let track = declare(Track { parent, kind, name });
        self.known.insert(place, track);
        track
    }

    /// Returns an end of the flow from a CUDA call to what it started, by its correlation number in
    /// the process.
    pub(super) fn flow(&self, process: i64, correlation: Option<i64>, end: FlowEnd) -> Flow {
        match correlation {
            None | Some(0) => Flow::default(),
            Some(number) => Flow { id: FixedState::with_seed(0).hash_one((self.part, process, number)).max(1), end },
        }
    }

    fn process(&self, global: i64) -> TrackKind {
        let (pid, _) = pid_and_tid(global);
        TrackKind::Process(Process { pid, host: self.host.clone(), rank: self.rank, guid: String::new() })
    }

    /// Returns the name of a process's device.
    fn device(&self, process: i64, device: i64) -> String {
        let (pid, _) = pid_and_tid(process);
        let gpu = self.devices.get(&(pid, device)).copied();
        match (self.agent_index, gpu) {
            (AgentIndex::Absolute, Some(gpu)) => self.gpu(gpu),
            (_, gpu) => match gpu.and_then(|gpu| self.gpus.get(&gpu)) {
                Some(name) => format!("GPU {device} ({name})"),
                None => format!("GPU {device}"),
            },
        }
    }

    fn gpu(&self, gpu: i64) -> String {
        self.gpus.get(&gpu).map_or_else(|| format!("GPU {gpu}"), |name| format!("GPU {gpu} ({name})"))
    }
}

/// Passes on the rows of a table of names: two numbers and a text each.
fn names(
    database: &Database<'_>,
    table: &str,
    columns: &dyn Fn(&Table) -> [String; 3],
    take: &mut dyn FnMut(i64, i64, String),
) -> Result<(), Error> {
    let Some(table) = database.catalog.table(table) else { return Ok(()) };
    let sql = format!("SELECT {} FROM {} t NOT INDEXED", columns(table).join(", "), quoted(&table.name));
    let sql = format!("{sql} LIMIT {NAMES_MAX}");
    database.each(&table.name, &sql, &mut |row| {
        if let (Ok(one), Ok(two), Some(name)) =
            (row.get_ref(0)?.as_i64(), row.get_ref(1)?.as_i64(), text(row.get_ref(2)?))
        {
            take(one, two, name.chars().take(NAME_MAX).collect());
        }
        Ok(())
    })
}

/// Splits a metric's name and the unit in brackets at its end: `DRAM Read Bandwidth [Throughput %]`.
fn with_unit(name: &str) -> (String, String) {
    match name.strip_suffix(']').and_then(|name| name.rsplit_once(" [")) {
        Some((name, unit)) => (name.to_owned(), unit.to_owned()),
        None => (name.to_owned(), String::new()),
    }
}

/// Names that are remembered of each kind; longer ones are cut.
const NAMES_MAX: usize = 1 << 17;
const NAME_MAX: usize = 256;
/// The stream number of waits for a whole device.
const NO_STREAM: i64 = u32::MAX as i64;
/// The lowest bits of a metric's type are the number of its device.
const GPU: i64 = 0xff;

#[cfg(test)]
mod tests {
    use super::with_unit;

    #[test]
    fn the_unit_of_a_metric_ends_its_name() {
        let check = |name: &str, expected: (&str, &str)| {
            assert_eq!(with_unit(name), (expected.0.to_owned(), expected.1.to_owned()));
        };
        check("SM Issue [Throughput %]", ("SM Issue", "Throughput %"));
        check("GPC Clock Frequency [MHz]", ("GPC Clock Frequency", "MHz"));
        check("plain", ("plain", ""));
        check("]", ("]", ""));
    }
}
