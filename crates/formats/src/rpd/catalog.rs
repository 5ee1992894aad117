//! The catalog of a trace of rocmProfileData: its tables, the columns that hold times, and what the
//! tracer states about itself.
//!
//! Schemas 1 to 3 differ in columns, and tools add tables of their own; so one rule for all: in every
//! table named `rocpd_…`, the integer columns `start` and `end` are times. The schema is in
//! `rocpd_python/rocpd/schema_data` of <https://github.com/ROCm/rocmProfileData>.

use std::path::Path;

use rusqlite::Connection;

use crate::Error;
use crate::sqlite::metadata::Aligned;
use crate::sqlite::query::each;
use crate::sqlite::table::{Entry, Index, Table, quoted, text};

/// Contents of a trace.
#[derive(Clone, Debug)]
pub(super) struct Catalog {
    /// Tables, in the order of the file.
    pub(super) tables: Vec<Table>,
    /// Explicitly created indexes.
    pub(super) indexes: Vec<Index>,
    /// Views; those of the tracer are what most queries read.
    pub(super) views: Vec<Index>,
    pub(super) stated: Stated,
    pub(super) aligned: Aligned,
}

/// Statements of the tracer.
#[derive(Clone, Debug, Default)]
pub(super) struct Stated {
    /// Distance of process numbers, and of device numbers, from one node to the next, if the tracer
    /// can collect the rows of several nodes.
    pub(super) strides: (Option<i64>, Option<i64>),
    /// The tracer's own clock synchronisation was loaded.
    pub(super) synchronizes: bool,
}

impl Catalog {
    /// Reads what `schema` of a connection contains (`main`, or the name under which a file is
    /// attached).
    ///
    /// # Errors
    /// Returns an error if it is not a trace of rocmProfileData, or if it has triggers, virtual tables
    /// or generated columns, which would run on reading or copying.
    pub(super) fn read(connection: &Connection, schema: &str, path: &Path) -> Result<Catalog, Error> {
        let refuse = |problem: String| Err(Error::Database { path: path.to_owned(), problem });
        let (mut tables, mut indexes, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for entry in Entry::all(connection, schema, path)? {
            match entry.kind.as_str() {
                "table" if entry.name.starts_with("sqlite_") => {}
                "table" => {
                    let of_tracer = entry.name.starts_with(PREFIX);
                    let is_time = |column: &str, declared: &str| {
                        of_tracer && TIMES.contains(&column) && declared.to_ascii_uppercase().contains("INT")
                    };
                    tables.push(Table::read(connection, schema, path, entry, &is_time)?);
                }
                // Those that SQLite makes for UNIQUE and keys have no definition.
                "index" if entry.sql.is_empty() => {}
                "index" => indexes.push(Index { name: entry.name, table: entry.table, sql: entry.sql }),
                "view" => views.push(Index { name: entry.name, table: entry.table, sql: entry.sql }),
                _ => return Err(entry.refusal(path)),
            }
        }
        for name in [API, OP, STRING] {
            let Some(table) = find(&tables, name) else {
                return refuse(format!(
                    "is a SQLite database, but not a trace of rocmProfileData: it has no table {name}"
                ));
            };
            refuse_without_key(path, table)?;
        }
        find(&tables, ARGUMENT).map_or(Ok(()), |table| refuse_without_key(path, table))?;
        let source = (connection, path);
        let stated = Stated::read(source, schema, find(&tables, "rocpd_metadata"))?;
        let aligned = Aligned::read(source, schema, &tables)?;
        Ok(Catalog { tables, indexes, views, stated, aligned })
    }

    /// Returns the table of this name.
    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        find(&self.tables, name)
    }

    /// Returns a note on tables whose columns are named as times but are copied unchanged.
    pub(super) fn note(&self) -> Option<String> {
        let named =
            |table: &&Table| table.times.is_empty() && table.columns.iter().any(|of| TIMES.contains(&of.as_str()));
        let named: Vec<&str> =
            self.tables.iter().filter(named).map(|table| table.name.as_str()).take(NAMES_TOLD).collect();
        (!named.is_empty()).then(|| {
            format!("columns of these tables are named as times but are not taken as times: {}", named.join(", "))
        })
    }
}

impl Stated {
    fn read(source: (&Connection, &Path), schema: &str, table: Option<&Table>) -> Result<Stated, Error> {
        let mut stated = Stated::default();
        let Some(table) = table.filter(|table| table.has("tag") && table.has("value")) else { return Ok(stated) };
        let sql = format!("SELECT tag, value FROM {schema}.{}", quoted(&table.name));
        each(source, &table.name, &sql, &mut |row| {
            let stride = |value: Option<String>| value?.parse().ok().filter(|stride| *stride > 0);
            match text(row.get_ref(0)?).as_deref() {
                Some("pid_stride") => stated.strides.0 = stride(text(row.get_ref(1)?)),
                Some("gpu_stride") => stated.strides.1 = stride(text(row.get_ref(1)?)),
                Some("clocksync_shm") => stated.synchronizes = true,
                _ => {}
            }
            Ok(())
        })?;
        Ok(stated)
    }
}

fn find<'a>(tables: &'a [Table], name: &str) -> Option<&'a Table> {
    tables.iter().find(|table| table.name == name)
}

/// Returns false if a file is no database, or one without the tables of a trace.
pub(super) fn is_trace(path: &Path) -> bool {
    Entry::any_table(path, &|name| [API, OP].contains(&name))
}

/// Without a key each look-up by id would scan all rows.
fn refuse_without_key(path: &Path, table: &Table) -> Result<(), Error> {
    if table.rowid.as_deref() == Some("id") {
        return Ok(());
    }
    let problem = format!("the table {} has no INTEGER PRIMARY KEY id; record the trace again", table.name);
    Err(Error::Database { path: path.to_owned(), problem })
}

/// Prefix of the names of the tracer's tables.
const PREFIX: &str = "rocpd_";
/// Columns that are times.
const TIMES: [&str; 2] = ["start", "end"];
/// Calls of the host, and marks and ranges of the program.
pub(super) const API: &str = "rocpd_api";
/// Kernels and copies.
pub(super) const OP: &str = "rocpd_op";
/// Which call started which of them.
pub(super) const API_OPS: &str = "rocpd_api_ops";
/// Samples of clocks and power, taken by a thread of the tracer.
pub(super) const MONITOR: &str = "rocpd_monitor";
/// Texts of which each is stored once.
pub(super) const STRING: &str = "rocpd_string";
/// Texts of arguments, since schema 3.
pub(super) const ARGUMENT: &str = "rocpd_ustring";
/// The name of a mark or range of the program, whose text is its argument.
pub(super) const MARKER: &str = "UserMarker";
/// Tables named in a note.
const NAMES_TOLD: usize = 8;
