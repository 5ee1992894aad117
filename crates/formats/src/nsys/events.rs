//! How the rows of each table are shown as events: on which row of the process, under which name and
//! category, with which arguments.
//!
//! The columns decide, so that a table that a later version adds is shown too: rows with a device and
//! a stream belong to the device, rows with a thread and a name to the thread. The statement of a
//! table has the columns of this module's constants.

use super::reading::Database;
use crate::sqlite::table::{Table, quoted};

/// The events of one table.
pub(super) struct Events<'a> {
    pub(super) table: &'a Table,
    pub(super) place: Row,
    /// Category; for NVTX and calls of CUDA a row may refine it.
    pub(super) category: String,
    /// Columns that are shown as arguments.
    pub(super) shown: Vec<&'static str>,
    name: String,
    json: String,
}

/// The kind of row on which events of a table are shown.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// A stream of a device.
    Stream,
    /// Waits for a stream, which overlap its kernels.
    Waits,
    Thread,
    /// A thread, with instants too.
    Nvtx,
}

impl<'a> Events<'a> {
    /// Returns how a table is shown; `None` if it has no events with a length on a device or a
    /// thread, or if they are the profiler's own.
    pub(super) fn of(database: &Database<'_>, table: &'a Table) -> Option<Events<'a>> {
        let is_time = |name: &str| table.times.iter().any(|at| table.columns[*at] == name);
        if !(is_time("start") && is_time("end")) || OF_PROFILER.contains(&table.name.as_str()) {
            return None;
        }
        let named = |column: &str| database.name(table, column);
        let short = table.name.strip_prefix("CUPTI_ACTIVITY_KIND_").unwrap_or(&table.name).to_lowercase();
        let on_device = table.has("deviceId") && table.has("streamId");
        let on_thread = table.has("globalTid") && (table.has("nameId") || table.has("textId"));
        let (place, category, name, shown): (Row, &str, String, &[&'static str]) = match table.name.as_str() {
            NVTX if table.has("globalTid") => (
                Row::Nvtx,
                "nvtx",
                format!("coalesce({}, {})", table.column("t", "text"), named("textId")),
                &["domainId", "category"],
            ),
            "CUPTI_ACTIVITY_KIND_KERNEL" if on_device => (
                Row::Stream,
                "kernel",
                format!("coalesce({}, {})", named("demangledName"), named("shortName")),
                &KERNEL,
            ),
            "CUPTI_ACTIVITY_KIND_MEMCPY" if on_device => (
                Row::Stream,
                "gpu_memcpy",
                format!("'Memcpy ' || {}", cases(table, "copyKind", &COPIES, "Unknown")),
                &COPY,
            ),
            "CUPTI_ACTIVITY_KIND_MEMSET" if on_device => (Row::Stream, "gpu_memset", "'Memset'".to_owned(), &SET),
            "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION" if on_device => {
                (Row::Waits, "synchronization", cases(table, "syncType", &WAITS, "Sync"), &["correlationId", "eventId"])
            }
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" if on_device => {
                let name = format!("'CUDA graph ' || coalesce({}, '')", table.column("t", "graphId"));
                (Row::Stream, "graph", name, &["correlationId", "graphExecId"])
            }
            _ if on_device => (Row::Stream, &short, format!("'{short}'"), &["correlationId"]),
            _ if on_thread => {
                let name = format!("coalesce({}, {}, '{short}')", named("nameId"), named("textId"));
                let mpi = table.name.starts_with("MPI_");
                let category = match table.name.as_str() {
                    "CUPTI_ACTIVITY_KIND_RUNTIME" => "cuda_runtime",
                    "OSRT_API" => "osrt",
                    _ if mpi => "mpi",
                    _ => &short,
                };
                (Row::Thread, category, name, if mpi { &MPI } else { &CALL })
            }
            _ => return None,
        };
        let shown = shown.iter().copied().filter(|column| table.has(column)).collect();
        let json = format!("coalesce({}, {})", table.column("t", "jsonText"), named("jsonTextId"));
        Some(Events { table, place, category: category.to_owned(), shown, name, json })
    }

    /// Returns the statement that reads the events.
    pub(super) fn statement(&self) -> String {
        let column = |name: &str| self.table.column("t", name);
        let of_row = match self.place {
            Row::Stream | Row::Waits => column("globalPid"),
            Row::Thread | Row::Nvtx => column("globalTid"),
        };
        let class = if self.place == Row::Nvtx { column("eventType") } else { column("eventClass") };
        let fixed = [
            self.table.row("t"),
            column("start"),
            column("end"),
            of_row,
            column("deviceId"),
            column("streamId"),
            column("correlationId"),
            self.name.clone(),
            class,
            column("binaryData"),
            self.json.clone(),
        ];
        let shown = self.shown.iter().map(|name| column(name));
        let columns: Vec<String> = fixed.into_iter().chain(shown).collect();
        format!("SELECT {} FROM {} t NOT INDEXED", columns.join(", "), quoted(&self.table.name))
    }
}

/// Returns an expression that names the numbers in a column, from 0 on.
fn cases(table: &Table, column: &str, names: &[&str], other: &str) -> String {
    let cases = names.iter().enumerate().map(|(number, name)| format!("WHEN {number} THEN '{name}'"));
    format!("CASE {} {} ELSE '{other}' END", table.column("t", column), cases.collect::<Vec<_>>().join(" "))
}

pub(super) const ID: usize = 0;
pub(super) const START: usize = 1;
pub(super) const END: usize = 2;
pub(super) const OWNER: usize = 3;
pub(super) const DEVICE: usize = 4;
pub(super) const STREAM: usize = 5;
pub(super) const CORRELATION: usize = 6;
pub(super) const NAME: usize = 7;
/// Class of a call, or type of an NVTX event.
pub(super) const CLASS: usize = 8;
pub(super) const BYTES: usize = 9;
pub(super) const JSON: usize = 10;
pub(super) const FIRST_SHOWN: usize = 11;
const NVTX: &str = "NVTX_EVENTS";
/// The profiler's own events.
const OF_PROFILER: [&str; 2] = ["PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD"];
const KERNEL: [&str; 11] = [
    "correlationId",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
    "registersPerThread",
    "staticSharedMemory",
    "dynamicSharedMemory",
    "graphNodeId",
];
const COPY: [&str; 6] = ["correlationId", "bytes", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"];
const SET: [&str; 3] = ["correlationId", "bytes", "value"];
const CALL: [&str; 2] = ["correlationId", "returnValue"];
const MPI: [&str; 8] = ["size", "recvSize", "tag", "remoteRank", "rootRank", "commHandle", "commUid", "requestHandle"];
/// Kinds of copies, by number: `ENUM_CUDA_MEMCPY_OPER`.
const COPIES: [&str; 14] = [
    "Unknown",
    "HtoD",
    "DtoH",
    "HtoA",
    "AtoH",
    "AtoA",
    "AtoD",
    "DtoA",
    "DtoD",
    "HtoH",
    "PtoP",
    "Unified HtoD",
    "Unified DtoH",
    "Unified DtoD",
];
/// Kinds of waits, by number: `ENUM_CUPTI_SYNC_TYPE`.
const WAITS: [&str; 5] = ["Sync", "Event sync", "Stream wait sync", "Stream sync", "Context sync"];
