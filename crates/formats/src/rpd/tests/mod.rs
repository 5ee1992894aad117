//! Whole traces: those that `bench/rpd/make.py` made, whose clocks and late rank are known, and copies
//! of them changed for every rule and refusal.

mod chunks;
mod exact;
mod job;
mod refusals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use super::*;
use crate::model::Picoseconds;
use crate::sqlite::table::quoted;

/// A made trace of a rank of three, of schema 3.
fn made(rank: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/traces/rpd/rank{rank}.rpd"))
}

/// A made trace of schema 2, of the only rank.
fn made_of_schema_2() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/rpd/tests/schema2.rpd")
}

/// A folder, and in it a copy of a trace after these statements.
fn changed(input: &Path, statements: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.rpd");
    std::fs::copy(input, &path).expect("a copy");
    let connection = Connection::open(&path).expect("a database");
    connection.execute_batch(statements).expect("statements");
    connection.close().expect("closed");
    (folder, path)
}

/// By kind and name: the definition, and for a table its columns and its rows in their order.
type Content = BTreeMap<(String, String), (String, Vec<String>, Vec<Vec<Value>>)>;

/// What a database contains, seen by a connection of its own; all of `sqlite_sequence` too.
fn content(path: &Path) -> Content {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database");
    let mut list = connection.prepare("SELECT type, name, coalesce(sql, '') FROM sqlite_master").expect("a list");
    let entries = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).expect("a list");
    let entries = entries.map(|entry| {
        let (kind, name, sql): (String, String, String) = entry.expect("an entry");
        if kind != "table" {
            return ((kind, name), (sql, Vec::new(), Vec::new()));
        }
        let mut all = connection.prepare(&format!("SELECT * FROM {}", quoted(&name))).expect("a table");
        let columns: Vec<String> = all.column_names().map(str::to_owned).collect();
        let count = columns.len();
        let rows = all.query_map([], |row| (0..count).map(|at| row.get(at)).collect()).expect("rows");
        let rows = rows.collect::<Result<Vec<Vec<Value>>, _>>().expect("rows");
        ((kind, name), (sql, columns, rows))
    });
    entries.collect()
}

/// Rewrites a trace into a folder, without metadata.
fn rewritten(input: &Path, folder: &Path, map: &mut MapFunction<'_>) -> Result<(PathBuf, RewriteStats), Error> {
    let output = folder.join("out.rpd");
    let stats = rewrite::rewrite(input, &output, &RewriteOptions::default(), map)?;
    Ok((output, stats))
}

fn facts(path: &Path) -> Result<TraceFacts, Error> {
    Rpd.read_facts(path, &FactOptions::default())
}
