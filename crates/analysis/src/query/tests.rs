//! Queries over a database that another process writes.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;
use probe_sync_alignment::Request;
use probe_sync_rocpd::schema::{self, Version};
use rusqlite::Connection;

use super::{Query, QuerySettings, RowSink, Value as Cell};

/// A database of one process without events; `settings` are run before the first table.
fn made(path: &Path, settings: &str) -> Connection {
    let connection = Connection::open(path).expect("a new file");
    let all = format!("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF; {settings}");
    connection.execute_batch(&all).expect("settings");
    let suffix = schema::suffix_of(GUID);
    for table in schema::tables(&suffix, GUID) {
        connection.execute_batch(&table.sql).expect("a table");
        connection.execute_batch(&schema::union_view(table.base, &[&suffix])).expect("a view");
    }
    for (tag, value) in schema::tags(Version::Three, &suffix, GUID, "") {
        let insert = format!("INSERT INTO \"rocpd_metadata{suffix}\" (tag, value) VALUES (?1, ?2)");
        connection.execute(&insert, (tag, value)).expect("a row");
    }
    let node = "(id, hash, machine_id, hostname) VALUES (7, 7, '0', 'gpu-1')";
    connection.execute(&format!("INSERT INTO \"rocpd_info_node{suffix}\" {node}"), ()).expect("a row");
    connection
}

/// Adds a region of one nanosecond.
fn insert(connection: &Connection, start: i64) {
    let table = format!("rocpd_region{}", schema::suffix_of(GUID));
    let insert =
        format!("INSERT INTO \"{table}\" (nid, pid, tid, name_id, start, \"end\") VALUES (1, 1, 1, 1, ?1, ?2)");
    connection.execute(&insert, (start, start + 1)).expect("a row");
}

/// The numbers of the only row of a result.
#[derive(Default)]
struct Numbers(Vec<i64>);

impl RowSink for Numbers {
    fn columns(&mut self, _names: &[String]) -> Result<(), Error> {
        Ok(())
    }

    fn row(&mut self, cells: &[Cell<'_>]) -> Result<(), Error> {
        self.0.extend(
            cells.iter().filter_map(|cell| if let Cell::Integer(number) = cell { Some(*number) } else { None }),
        );
        Ok(())
    }
}

fn asked(path: &Path, sql: &str) -> Result<Vec<i64>, Error> {
    let request = Request { traces: vec![path.to_owned()], ..Request::default() };
    let mut numbers = Numbers::default();
    Query::open(&request, &QuerySettings::default())?.run(sql, &mut numbers)?;
    Ok(numbers.0)
}

#[test]
fn a_database_is_asked_in_one_state_while_its_writer_commits() {
    for mode in ["WAL", "DELETE"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("live.db");
        let connection = made(&path, &format!("PRAGMA journal_mode = {mode}"));
        connection.busy_timeout(std::time::Duration::from_secs(10)).expect("set");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let ended = &done;
            scope.spawn(move || {
                let mut at = 1;
                while !ended.load(Ordering::Relaxed) {
                    // Two rows are committed together.
                    connection.execute_batch("BEGIN").expect("begun");
                    insert(&connection, at);
                    insert(&connection, at + 1);
                    connection.execute_batch("COMMIT").expect("committed");
                    at += 2;
                }
            });
            let before = asked(&path, "SELECT count(*), count(DISTINCT start) FROM rocpd_region");
            let results: Vec<_> = (0..20)
                .map(|_| {
                    let sql = "SELECT count(*), (SELECT count(*) FROM rocpd_region), max(start) FROM rocpd_region";
                    asked(&path, sql)
                })
                .collect();
            done.store(true, Ordering::Relaxed);
            assert!(before.is_ok(), "{mode}: {before:?}");
            for result in results {
                let row = result.unwrap_or_else(|error| panic!("{mode}: {error}"));
                assert!(row[0] == row[1] && row[0] % 2 == 0, "{mode}: {row:?}");
            }
        });
    }
}

const GUID: &str = "00000545-b497-7dea-bd43-ec1fa8b02134";
