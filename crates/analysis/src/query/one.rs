//! A single process: its tables and the profiler's views of them, on a connection to its own file.
//!
//! `csv` uses it because it reads whole views in the order of processes. A row read by SQLite
//! itself costs a fraction of one read through a virtual table, and several processes can be read
//! at once. Names and columns are those of [`super::Query`], so that one statement fits all; a
//! column or table that this process lacks is NULL or empty. Times are as in the file. It does not
//! apply a time map or a window.

use std::sync::Arc;

use crate::Error;
use probe_sync_estimate::series::TimeMap;
use probe_sync_formats::rocpd::DatabaseFile;
use probe_sync_rocpd::schema::{View, quoted};
use rusqlite::{Connection, OptionalExtension as _};

use super::by_event;
use super::pool::Pool;
use super::tables::{OfProcess, Process, Table};

/// A process that can be read.
pub(super) struct One<'a> {
    pub(super) connection: Connection,
    pub(super) file: &'a DatabaseFile,
    /// From its times to those of the reference; `None` if they stay.
    pub(super) map: Option<&'a TimeMap>,
}

impl<'a> One<'a> {
    /// Opens its file, and checks whether all rows are its own, so that views need not compare
    /// guids row by row.
    ///
    /// # Errors
    /// The file cannot be read, or has a row of another process; with table and row.
    pub(super) fn open(
        pool: &'a Pool,
        tables: &'a [Arc<Table>],
        views: &[View],
        process: &Process,
    ) -> Result<Self, Error> {
        let is_its = |part: &&OfProcess| part.process.guid == process.guid;
        let parts: Vec<_> = tables.iter().map(|table| (table, table.parts.iter().find(is_its))).collect();
        let of = parts.iter().find_map(|(_, part)| *part).expect("a process is known by its tables");
        let file = pool.file(of.file);
        let connection = file.connect()?;
        for (table, part) in parts {
            if let Some(part) = part {
                expect_own(&connection, file, part)?;
            }
            let made = connection.execute_batch(&view_of(table, part));
            made.map_err(|problem| file.wrong(&table.base, &problem))?;
        }
        for view in views {
            let sql = format!("CREATE TEMP VIEW {} AS {}", quoted(view.name), by_event(&view.select));
            connection.execute_batch(&sql).map_err(|problem| file.wrong(view.name, &problem))?;
        }
        Ok(Self { connection, file, map: of.map.as_deref() })
    }
}

/// A table under the name that all processes' have. Damaged indexes would hide rows.
fn view_of(table: &Table, part: Option<&OfProcess>) -> String {
    let column = |name: &str| {
        let own = part?.part.columns.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(if name.eq_ignore_ascii_case(GUID) { text(&part?.process.guid) } else { quoted(&own.0) })
    };
    let columns = table.columns.iter().map(|(name, _)| {
        let from = column(name).unwrap_or_else(|| "NULL".to_owned());
        format!("{from} AS {}", quoted(name))
    });
    let columns: Vec<String> = columns.collect();
    let rows =
        part.map_or_else(|| " WHERE 0".to_owned(), |of| format!(" FROM main.{} NOT INDEXED", quoted(&of.part.name)));
    format!("CREATE TEMP VIEW {} AS SELECT {}{rows}", quoted(&table.base), columns.join(", "))
}

/// Refuses rows that do not belong to the process of the table.
fn expect_own(connection: &Connection, file: &DatabaseFile, of: &OfProcess) -> Result<(), Error> {
    let OfProcess { part, process, .. } = of;
    let Some((guid, _)) = part.columns.iter().find(|(name, _)| name.eq_ignore_ascii_case(GUID)) else { return Ok(()) };
    let (row, table, guid) = (quoted(&part.row), quoted(&part.name), quoted(guid));
    let sql = format!("SELECT {row} FROM main.{table} NOT INDEXED WHERE {guid} IS NOT ?1 LIMIT 1");
    let other: Option<i64> = connection
        .query_row(&sql, [&process.guid], |row| row.get(0))
        .optional()
        .map_err(|problem| file.wrong(&part.name, &problem))?;
    match other {
        None => Ok(()),
        Some(row) => Err(file.of_another(part, row).into()),
    }
}

/// A text as SQL has it.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

const GUID: &str = "guid";
