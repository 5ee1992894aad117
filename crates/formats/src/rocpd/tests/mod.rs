//! Whole databases: shared ones where they are at hand, made ones for every rule, broken ones for
//! every refusal.

mod chunks;
mod cpu_clock;
mod exact;
mod journals;
mod refusals;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use probe_sync_rocpd::schema::{self, Version};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OpenFlags, params_from_iter};

use super::rewrite::{merge, rewrite};
use super::*;
use crate::model::Picoseconds;
use crate::sqlite::access::guard;
use crate::testing::folder;

/// The databases of a shared set; none, with a message, if they are missing.
fn shared(set: &str) -> Vec<PathBuf> {
    let Some(folder) = folder(&format!("rocpd/{set}")) else { return Vec::new() };
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a listing").path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "db"));
    files.sort();
    files
}

/// Rows of a table, as names and values of its columns.
type Rows<'a> = &'a [(&'a str, &'a [(&'a str, Value)])];

/// A database of one process with the rows that every one has, and these; `settings` are run before
/// the first table.
fn made(path: &Path, guid: &str, settings: &str, rows: Rows<'_>) -> Connection {
    let connection = Connection::open(path).expect("a new file");
    connection
        .execute_batch(&format!("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF; {settings}"))
        .expect("settings");
    let suffix = schema::suffix_of(guid);
    for table in schema::tables(&suffix, guid) {
        connection.execute_batch(&table.sql).expect("a table");
        connection.execute_batch(&schema::union_view(table.base, &[&suffix])).expect("a view");
    }
    let table = format!("rocpd_metadata{suffix}");
    for (tag, value) in schema::tags(Version::Three, &suffix, guid, "") {
        put(&connection, &table, &[("tag", tag.to_owned().into()), ("value", value.into())]);
    }
    let node: [(&str, Value); 4] = [
        ("id", 7.into()),
        ("hash", 7.into()),
        ("machine_id", "0".to_owned().into()),
        ("hostname", "gpu-1".to_owned().into()),
    ];
    put(&connection, &format!("rocpd_info_node{suffix}"), &node);
    for (base, row) in rows {
        put(&connection, &format!("{base}{suffix}"), row);
    }
    connection
}

fn put(connection: &Connection, table: &str, row: &[(&str, Value)]) {
    let names: Vec<String> = row.iter().map(|(name, _)| catalog::quoted(name)).collect();
    let marks = vec!["?"; row.len()].join(", ");
    let insert = format!("INSERT INTO {} ({}) VALUES ({marks})", catalog::quoted(table), names.join(", "));
    connection.execute(&insert, params_from_iter(row.iter().map(|(_, value)| value))).expect("a row");
}

/// A region from `start` to `end`.
fn region(start: impl Into<Value>, end: impl Into<Value>) -> [(&'static str, Value); 6] {
    let one = || Value::from(1);
    [("nid", one()), ("pid", one()), ("tid", one()), ("name_id", one()), ("start", start.into()), ("end", end.into())]
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

/// All tables of a database.
#[derive(Clone, Debug, PartialEq)]
struct Content(BTreeMap<String, Filled>);

/// A table's definition, columns, and rows in their order.
type Filled = (String, Vec<String>, Vec<Vec<Cell>>);

/// What stands in a database, seen by a connection of its own.
fn content(path: &Path) -> Content {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("a database");
    let mut list = connection.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'table'").expect("a list");
    let tables = list.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).expect("a list");
    let tables = tables.map(|table| {
        let (name, sql) = table.expect("a name and a definition");
        let mut all = connection.prepare(&format!("SELECT * FROM {}", catalog::quoted(&name))).expect("a table");
        let columns: Vec<String> = all.column_names().map(str::to_owned).collect();
        let count = columns.len();
        let rows = all.query_map([], |row| (0..count).map(|at| row.get_ref(at).map(Cell::of)).collect()).expect("rows");
        let rows = rows.collect::<Result<Vec<Vec<Cell>>, _>>().expect("rows");
        (name, (sql, columns, rows))
    });
    Content(tables.collect())
}

impl Content {
    /// Without what this program writes into the metadata, whose numbering ends where it did.
    fn without_tags(mut self) -> Content {
        for (name, (_, _, rows)) in &mut self.0 {
            if name.starts_with(catalog::METADATA) {
                rows.retain(|row| !matches!(&row[1], Cell::Text(tag) if tag.starts_with(b"probe_sync_")));
            }
        }
        let sequence = self.0.get_mut("sqlite_sequence");
        sequence.into_iter().for_each(|(_, _, rows)| {
            rows.retain(|row| !matches!(&row[0], Cell::Text(name) if name.starts_with(catalog::METADATA.as_bytes())));
            rows.sort_by_key(|row| format!("{row:?}"));
        });
        self
    }

    /// Every time of a table `rocpd_*` that is set, later by so much; this is how it should be.
    fn later(mut self, by: i64) -> Content {
        for (name, (_, columns, rows)) in &mut self.0 {
            let is_time = |column: &String| ["start", "end", "timestamp", "init", "fini"].contains(&column.as_str());
            let times: Vec<usize> = (0..columns.len()).filter(|at| is_time(&columns[*at])).collect();
            for row in rows.iter_mut().filter(|_| name.starts_with("rocpd_")) {
                for at in &times {
                    if let Cell::Whole(time) = &mut row[*at]
                        && *time != 0
                    {
                        *time += by;
                    }
                }
            }
        }
        self
    }
}

/// A map that makes every time later by `by` ns.
fn later(by: i64) -> impl FnMut(Picoseconds) -> Picoseconds {
    move |time| time + Picoseconds::from(by) * 1000
}

fn tags() -> Vec<(String, String)> {
    vec![("probe_sync_timeline".to_owned(), "system clock of node 0".to_owned())]
}

/// Rewrites a database beside itself; the output, which is there only if it is whole.
fn aligned(input: &Path, by: i64) -> Result<PathBuf, Error> {
    let output = input.with_extension("aligned.db");
    let tags = tags();
    let options = RewriteOptions { metadata: &tags, ..RewriteOptions::default() };
    rewrite(input, &output, &options, &mut later(by)).map(|_| output)
}

/// Merges databases into one in the first one's folder.
fn merged(inputs: &[&Path], by: i64, drop_foreign: bool) -> Result<PathBuf, Error> {
    let output = inputs[0].with_file_name("merged.db");
    let mut maps: Vec<_> = inputs.iter().map(|_| later(by)).collect();
    let mut parts: Vec<MergeInput<'_>> = inputs
        .iter()
        .zip(&mut maps)
        .zip(0..)
        .map(|((path, map), part)| MergeInput {
            path: path.to_path_buf(),
            part,
            name: String::new(),
            map,
            metadata: tags(),
            reach: None,
            known: None,
        })
        .collect();
    let options = MergeOptions { drop_foreign, ..MergeOptions::default() };
    merge(&mut parts, &output, &options).map(|_| output)
}

const GUID: &str = "00000545-b497-7dea-bd43-ec1fa8b02134";
const OTHER_GUID: &str = "0000006b-a3d3-70b8-b6ca-95d6b75ddcb8";
