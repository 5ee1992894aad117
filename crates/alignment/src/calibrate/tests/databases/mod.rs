//! Facts of databases that are made here: this page makes them, `identity` asks whose they are and
//! where markers stand, `collectives` what was done in which communicator.

mod collectives;
mod identity;
mod layouts;

use std::path::{Path, PathBuf};

use probe_sync_formats::model::{Communicator, Launcher, PairKind, TraceClock, TraceFacts};
use probe_sync_formats::{FactOptions, Rocpd, TraceFormat};
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::{CheckReport, ClockSource, Request, calibrate, check};

/// A database as rocprofv3 writes it, with the columns that are read.
struct Database {
    path: PathBuf,
    connection: Connection,
    suffix: String,
    events: i64,
}

/// A call's arguments.
type Arguments<'a> = &'a [(&'a str, &'a str)];

impl Database {
    fn new(path: PathBuf, guid: &str, host: &str, environment: &str) -> Database {
        let suffix = format!("_{}", guid.replace('-', "_"));
        let connection = Connection::open(&path).expect("a database");
        connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY").expect("set");
        let definitions = [
            "rocpd_metadata (id INTEGER PRIMARY KEY, tag TEXT, value TEXT)",
            "rocpd_string (id INTEGER PRIMARY KEY, guid TEXT, string TEXT)",
            "rocpd_info_node (id INTEGER PRIMARY KEY, guid TEXT, hash BIGINT, machine_id TEXT, hostname TEXT)",
            "rocpd_info_process (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, init BIGINT, fini BIGINT, start BIGINT, \
             \"end\" BIGINT, command TEXT, environment JSONB, extdata JSONB)",
            "rocpd_event (id INTEGER PRIMARY KEY, guid TEXT, extdata JSONB)",
            "rocpd_arg (id INTEGER PRIMARY KEY, guid TEXT, event_id INTEGER, position INTEGER, type TEXT, name TEXT, value TEXT)",
            "rocpd_region (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, start BIGINT, \"end\" BIGINT, \
             name_id INTEGER, event_id INTEGER, extdata JSONB)",
            "rocpd_sample (id INTEGER PRIMARY KEY, guid TEXT, track_id INTEGER, timestamp BIGINT, event_id INTEGER, extdata JSONB)",
            "rocpd_info_kernel_symbol (id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT)",
            "rocpd_kernel_dispatch (id INTEGER PRIMARY KEY, guid TEXT, kernel_id INTEGER, start BIGINT, \"end\" BIGINT, event_id INTEGER)",
        ];
        for definition in definitions {
            let (name, columns) = definition.split_once(' ').expect("a name");
            connection.execute_batch(&format!("CREATE TABLE \"{name}{suffix}\" {columns}")).expect("a table");
        }
        let database = Database { path, connection, suffix, events: 0 };
        let uuid = database.suffix.clone();
        for (tag, value) in [("schema_version", "3"), ("uuid", uuid.as_str()), ("guid", guid)] {
            database.insert("rocpd_metadata", "tag, value", params![tag, value]);
        }
        // All machines are clones, and every process has the first number.
        database.insert("rocpd_info_node", "id, guid, hash, machine_id, hostname", params![7, guid, 7, "0101", host]);
        let process = params![1, guid, 7, 1, 5, 0, environment];
        database.insert("rocpd_info_process", "id, guid, nid, pid, start, \"end\", environment", process);
        database
    }

    fn insert(&self, base: &str, columns: &str, values: &[&dyn rusqlite::ToSql]) {
        let places: Vec<String> = (1..=values.len()).map(|at| format!("?{at}")).collect();
        let statement = format!("INSERT INTO \"{base}{}\" ({columns}) VALUES ({})", self.suffix, places.join(", "));
        self.connection.execute(&statement, values).expect("a row");
    }

    fn guid(&self) -> String {
        self.suffix[1..].replace('_', "-")
    }

    fn event(&mut self, extra: &Value) -> i64 {
        self.events += 1;
        self.insert("rocpd_event", "id, guid, extdata", params![self.events, self.guid(), extra]);
        self.events
    }

    fn name(&self, name: &Value) -> i64 {
        self.insert("rocpd_string", "guid, string", params![self.guid(), name]);
        self.connection.last_insert_rowid()
    }

    fn call(&mut self, name: &str, start: i64, end: i64, arguments: Arguments<'_>) {
        let event = self.event(&Value::Text("{}".to_owned()));
        for (position, (name, value)) in arguments.iter().enumerate() {
            let row = params![self.guid(), event, position as i64, "int", name, value];
            self.insert("rocpd_arg", "guid, event_id, position, type, name, value", row);
        }
        self.region(&Value::Text(name.to_owned()), [start.into(), end.into()], Some(event));
    }

    fn region(&mut self, name: &Value, [start, end]: [Value; 2], event: Option<i64>) {
        let row = params![self.guid(), 7, 1, 1, start, end, self.name(name), event];
        self.insert("rocpd_region", "guid, nid, pid, tid, start, \"end\", name_id, event_id", row);
    }

    fn sample(&mut self, at: i64, extra: &Value) {
        let event = self.event(extra);
        self.insert("rocpd_sample", "guid, track_id, timestamp, event_id", params![self.guid(), 1, at, event]);
    }

    fn kernel(&self, name: &str, start: i64, end: i64) {
        self.insert("rocpd_info_kernel_symbol", "guid, kernel_name, display_name", params![self.guid(), "k.kd", name]);
        let kernel = self.connection.last_insert_rowid();
        self.insert(
            "rocpd_kernel_dispatch",
            "guid, kernel_id, start, \"end\"",
            params![self.guid(), kernel, start, end],
        );
    }

    fn facts(&self) -> Result<TraceFacts, String> {
        Rocpd.read_facts(&self.path, &FactOptions::default()).map_err(|error| error.to_string())
    }
}

/// The database of one process of several.
fn process(folder: &Path, number: u32, host: &str, environment: &str) -> Database {
    let guid = format!("0000{number:04}-aaaa-7bbb-8ccc-0123456789ab");
    Database::new(folder.join(format!("{number}_results.db")), &guid, host, environment)
}

fn torch(rank: u32, of: u32) -> String {
    format!(r#"{{"RANK": "{rank}", "WORLD_SIZE": "{of}"}}"#)
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

/// Collectives of all databases, judged as they are.
fn judged(databases: &[Database]) -> CheckReport {
    let traces = databases.iter().map(|database| database.path.clone()).collect();
    let calibrated = calibrate(&Request { traces, ..Request::default() }).expect("facts");
    check(&calibrated).result
}

/// Edges, broken ones, and ambiguous instances.
fn counts(report: &CheckReport) -> (usize, usize, usize) {
    (report.edges, report.broken, report.ambiguous_instances)
}

const SUM: Arguments<'static> = &[("count", "64"), ("datatype", "7"), ("comm", "0x55d0")];
