//! Whole exports: those that `bench/nsys/make.py` made, whose clocks and late rank are known, and copies
//! of them changed for every rule and refusal.

mod chunks;
mod exact;
mod job;
mod refusals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};

use super::*;
use crate::model::Picoseconds;
use crate::sqlite::table::quoted;

/// A made export of a rank of three.
fn made(rank: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/traces/nsys/rank{rank}.sqlite"))
}

/// A made export with the tables of 2021, of rank 1 of two.
fn made_2021() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nsys/tests/rank1_2021.sqlite")
}

/// A folder, and in it a copy of an export after these statements.
fn changed(input: &Path, statements: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.sqlite");
    std::fs::copy(input, &path).expect("a copy");
    let connection = Connection::open(&path).expect("a database");
    connection.execute_batch(statements).expect("statements");
    connection.close().expect("closed");
    (folder, path)
}

/// Statements by which the times of a made export of rank 0 become Unix times.
fn normalize() -> String {
    let start = 1_749_999_999_500_000_000_i64;
    let with_end = ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"];
    let more = ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "NVTX_EVENTS", "OSRT_API"];
    let with_end = with_end.into_iter().chain(more).chain(["MPI_COLLECTIVES_EVENTS"]);
    let with_end = with_end.flat_map(|table| [(table, "start"), (table, "end")]);
    let others = [("SCHED_EVENTS", "start"), ("GPU_METRICS", "timestamp"), ("DIAGNOSTIC_EVENT", "timestamp")];
    with_end
        .chain(others)
        .map(|(table, column)| format!("UPDATE {table} SET {column} = {column} + {start};"))
        .chain([format!("UPDATE META_DATA_EXPORT SET value = '{start}' WHERE name = 'EXPORT_PARAM_TIME_SHIFT';")])
        .chain(["UPDATE META_DATA_EXPORT SET value = 'TRUE' WHERE name = 'EXPORT_PARAM_TIME_NORMALIZE';".to_owned()])
        .collect()
}

/// A cell with its type, text as the bytes that it is.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Nothing,
    Whole(i64),
    Real(u64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

impl Cell {
    fn of(value: ValueRef<'_>) -> Cell {
        match value {
            ValueRef::Null => Cell::Nothing,
            ValueRef::Integer(number) => Cell::Whole(number),
            ValueRef::Real(number) => Cell::Real(number.to_bits()),
            ValueRef::Text(bytes) => Cell::Text(bytes.to_owned()),
            ValueRef::Blob(bytes) => Cell::Blob(bytes.to_owned()),
        }
    }
}

/// By name of a table: its definition, columns, and rows in their order.
type Content = BTreeMap<String, (String, Vec<String>, Vec<Vec<Cell>>)>;

/// What stands in a database, seen by a connection of its own.
fn content(path: &Path) -> Content {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database");
    let mut list = connection.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'table'").expect("a list");
    let tables = list.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).expect("a list");
    let tables = tables.map(|table| {
        let (name, sql) = table.expect("a name and a definition");
        let mut all = connection.prepare(&format!("SELECT * FROM {}", quoted(&name))).expect("a table");
        let columns: Vec<String> = all.column_names().map(str::to_owned).collect();
        let count = columns.len();
        let rows = all.query_map([], |row| (0..count).map(|at| row.get_ref(at).map(Cell::of)).collect()).expect("rows");
        let rows = rows.collect::<Result<Vec<Vec<Cell>>, _>>().expect("rows");
        (name, (sql, columns, rows))
    });
    tables.collect()
}

/// Rewrites an export into a folder, without metadata.
fn rewritten(input: &Path, folder: &Path, map: &mut MapFunction<'_>) -> Result<(PathBuf, RewriteStats), Error> {
    let output = folder.join("out.sqlite");
    let stats = rewrite::rewrite(input, &output, &RewriteOptions::default(), map)?;
    Ok((output, stats))
}

fn facts(path: &Path) -> Result<TraceFacts, Error> {
    Nsys.read_facts(path, &FactOptions::default())
}

/// A map that makes every time later by `by` ns.
fn later(by: i64) -> impl FnMut(Picoseconds) -> Picoseconds {
    move |time| time + Picoseconds::from(by) * 1000
}
