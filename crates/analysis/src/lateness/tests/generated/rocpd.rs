//! A rank's database as rocprofv3 writes it: calls of NCCL with their arguments, or its kernels
//! besides.

use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::{BASE_NS, Done, Draws, Job, below, between};

/// How a job's databases state their operations.
#[derive(Copy, Clone, Debug)]
pub(super) struct Style {
    /// Kernels of NCCL are traced, too.
    kernels: bool,
    made: Made,
    /// Handles are the same in all processes, which says nothing.
    same_handles: bool,
    /// The groups of a dimension are made one after the other.
    in_turn: bool,
}

/// What a trace has of the making of communicators.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Made {
    Calls,
    /// The address that the call states is that of a variable.
    OfVariables,
    Nothing,
}

impl Style {
    pub(super) fn new(draws: &mut Draws) -> Self {
        let made = [Made::Calls, Made::Calls, Made::OfVariables, Made::Nothing][below(draws, 4)];
        let kernels = draws.uniform() < 0.25;
        Self { kernels, made, same_handles: draws.uniform() < 0.5, in_turn: draws.uniform() < 0.5 }
    }
}

/// When a rank makes its communicators, ns of truth: by group, from when until when.
fn makings(job: &Job, style: Style) -> Vec<Vec<(i64, i64)>> {
    let mut draws = Draws(job.seed | 1);
    let mut free: Vec<i64> = job.steps.iter().map(|_| -900_000_000 + between(&mut draws, 0.0, 1e6) as i64).collect();
    let mut made = Vec::new();
    for members in &job.groups {
        if style.in_turn {
            let last = *free.iter().max().expect("ranks");
            free.fill(last);
        }
        let starts: Vec<i64> = members.iter().map(|rank| free[*rank] + between(&mut draws, 1e3, 5e4) as i64).collect();
        let last = *starts.iter().max().expect("members");
        made.push(starts.iter().map(|start| (*start, last + between(&mut draws, 2e4, 3e4) as i64)).collect::<Vec<_>>());
        members.iter().zip(made.last().expect("pushed")).for_each(|(rank, (_, end))| free[*rank] = *end);
    }
    made
}

/// A new database, to which rows are added.
struct Database {
    connection: Connection,
    suffix: String,
    guid: String,
    rows: i64,
}

const TABLES: [&str; 10] = [
    "rocpd_metadata (id INTEGER PRIMARY KEY, tag TEXT, value TEXT)",
    "rocpd_string (id INTEGER PRIMARY KEY, guid TEXT, string TEXT)",
    "rocpd_info_node (id INTEGER PRIMARY KEY, guid TEXT, hash BIGINT, machine_id TEXT, hostname TEXT)",
    "rocpd_info_process (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, init BIGINT, fini BIGINT, start BIGINT, \"end\" BIGINT, command TEXT, environment JSONB, extdata JSONB)",
    "rocpd_event (id INTEGER PRIMARY KEY, guid TEXT, extdata JSONB)",
    "rocpd_arg (id INTEGER PRIMARY KEY, guid TEXT, event_id INTEGER, position INTEGER, type TEXT, name TEXT, value TEXT)",
    "rocpd_region (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT, \"end\" BIGINT, name_id INTEGER, event_id INTEGER, extdata JSONB)",
    "rocpd_sample (id INTEGER PRIMARY KEY, guid TEXT, track_id INTEGER, timestamp BIGINT, event_id INTEGER, extdata JSONB)",
    "rocpd_info_kernel_symbol (id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT)",
    "rocpd_kernel_dispatch (id INTEGER PRIMARY KEY, guid TEXT, kernel_id INTEGER, start BIGINT, \"end\" BIGINT, event_id INTEGER)",
];

impl Database {
    fn new(path: &Path, rank: usize, ranks: usize) -> Self {
        let guid = format!("0000{rank:04}-aaaa-7bbb-8ccc-0123456789ab");
        let suffix = format!("_{}", guid.replace('-', "_"));
        let connection = Connection::open(path).expect("a database");
        connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; BEGIN").expect("settings");
        for table in TABLES {
            let (name, columns) = table.split_once(' ').expect("a name");
            connection.execute_batch(&format!("CREATE TABLE \"{name}{suffix}\" {columns}")).expect("a table");
        }
        let mut database = Self { connection, suffix, guid, rows: 0 };
        let (uuid, guid) = (database.suffix.clone(), database.guid.clone());
        for (tag, value) in [("schema_version", "3"), ("uuid", &uuid), ("guid", &guid)] {
            database.put("rocpd_metadata", "tag, value", &[text(tag), text(value)]);
        }
        let host = text(&format!("host{rank}"));
        let machine = text(&format!("{rank:032x}"));
        database.put(
            "rocpd_info_node",
            "id, guid, hash, machine_id, hostname",
            &[7.into(), text(&guid), 7.into(), machine, host],
        );
        let environment = text(&format!(r#"{{"RANK": "{rank}", "WORLD_SIZE": "{ranks}"}}"#));
        let process = [1.into(), text(&guid), 7.into(), 1.into(), 5.into(), 0.into(), environment];
        database.put("rocpd_info_process", "id, guid, nid, pid, start, \"end\", environment", &process);
        database
    }

    fn put(&mut self, table: &str, columns: &str, values: &[Value]) -> i64 {
        let places = vec!["?"; values.len()].join(", ");
        let insert = format!("INSERT INTO \"{table}{}\" ({columns}) VALUES ({places})", self.suffix);
        self.connection.prepare_cached(&insert).expect("a statement").execute(params_from_iter(values)).expect("a row");
        self.rows += 1;
        self.connection.last_insert_rowid()
    }

    /// A region with a message or arguments of its event.
    fn region(&mut self, name: &str, (start, end): (i64, i64), extra: &str, arguments: &[(&str, &str)]) {
        let guid = text(&self.guid.clone());
        let name = self.put("rocpd_string", "guid, string", &[guid.clone(), text(name)]);
        let event = self.put("rocpd_event", "guid, extdata", &[guid.clone(), text(extra)]);
        for (place, (name, value)) in (0..).zip(arguments) {
            let row = [guid.clone(), event.into(), Value::Integer(place), text("int"), text(name), text(value)];
            self.put("rocpd_arg", "guid, event_id, position, type, name, value", &row);
        }
        let row = [guid, 7.into(), 1.into(), 1.into(), start.into(), end.into(), name.into(), event.into()];
        self.put("rocpd_region", "guid, nid, pid, tid, start, \"end\", name_id, event_id", &row);
    }

    fn kernel(&mut self, symbol: i64, (start, end): (i64, i64)) {
        let row = [text(&self.guid), symbol.into(), start.into(), end.into()];
        self.put("rocpd_kernel_dispatch", "guid, kernel_id, start, \"end\"", &row);
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// What a host's clock shows when the job begins: each counts from its own start.
pub(super) fn boot_ns(rank: usize) -> i64 {
    3_000_000_000_000 + 977_000_000_000 * (rank as i64 * 7 % 11)
}

pub(super) fn write(job: &Job, style: Style, rank: usize, folder: &Path) -> PathBuf {
    let path = folder.join(format!("rank{rank}_results.db"));
    let mut database = Database::new(&path, rank, job.steps.len());
    let counted = |time: i64| time + boot_ns(rank);
    let stay = |(start, end): (i64, i64)| (counted(start), counted(end));
    let handle = |group: usize| format!("0x55d{}{group:x}0", if style.same_handles { 0 } else { rank });
    let recorded = job.recorded[rank].clone();
    if job.sigma_ns.is_some() {
        for time in [-950_000_000, job.steps[rank][0].0, job.steps[rank].last().expect("steps").1] {
            let system = BASE_NS + 1_000_000_000 + time + job.ahead[rank];
            database.region(&format!("probe_sync.clock#{system}"), stay((time, time)), "{}", &[]);
        }
    }
    for (group, stays) in makings(job, style).into_iter().enumerate().filter(|_| style.made != Made::Nothing) {
        let Some(place) = job.groups[group].iter().position(|member| *member == rank) else { continue };
        let (size, own) = (job.groups[group].len().to_string(), place.to_string());
        let address = if style.made == Made::Calls { handle(group) } else { format!("0x7ffe{group:x}8") };
        let arguments = [("comm", address.as_str()), ("nranks", size.as_str()), ("myrank", own.as_str())];
        database.region("ncclCommInitRank", stay(stays[place]), "{}", &arguments);
    }
    for step in recorded.clone().filter(|_| job.states_steps) {
        let message = format!(r#"{{"message": "ProfilerStep#{step}"}}"#);
        database.region("roctxRangePushA", stay(job.steps[rank][step as usize]), &message, &[]);
    }
    let columns = ("rocpd_info_kernel_symbol", "guid, kernel_name, display_name");
    let kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)";
    let symbol = database.put(columns.0, columns.1, &[text(&database.guid.clone()), text("k.kd"), text(kernel)]);
    for Done { group, stays, .. } in job.done.iter().filter(|done| recorded.contains(&done.step)) {
        let Some((start, end)) = stays.get(&rank).copied() else { continue };
        let handle = handle(*group);
        let arguments = [("count", "4096"), ("datatype", "7"), ("comm", handle.as_str())];
        // Where kernels run the operation, its call returns at once.
        let call = if style.kernels { (start - 20_000, start - 15_000) } else { (start, end) };
        database.region("ncclAllReduce", stay(call), "{}", &arguments);
        if style.kernels {
            database.kernel(symbol, stay((start, end)));
        }
    }
    database.connection.execute_batch("COMMIT").expect("written");
    path
}
