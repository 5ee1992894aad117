//! The catalog of a rocprofv3 database: its tables, the columns that hold times, and its other
//! contents.
//!
//! It is read once per database. A process writes tables named `rocpd_region_<its uuid>` and so on;
//! a merged database has those of many. The tables `rocpd_metadata<uuid>` determine which uuids
//! exist.
//!
//! One rule for all versions of the schema: in every table `rocpd_*` the columns `start`, `end`,
//! `timestamp`, `init` and `fini` are times. Versions add tables and columns, and branches have
//! carried different ones under one number, so columns decide. The metadata tables are the only
//! ones whose rows it reads.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::Path;

use probe_sync_rocpd::schema;
use rusqlite::Connection;

use crate::Error;
use crate::sqlite::access::wrong;
use crate::sqlite::table::{self, Entry, Index};
pub(super) use crate::sqlite::table::{quoted, text};
use crate::{ALIGNED_SIGMA, ALIGNED_TO};

/// Contents of a database.
#[derive(Clone, Debug, Default)]
pub(super) struct Catalog {
    /// Tables that follow the rule, in the order of the file.
    pub(super) tables: Vec<Table>,
    /// Tables of other programs, in the order of the file.
    pub(super) foreign: Vec<Table>,
    /// Explicitly created indexes: name, table, definition.
    pub(super) indexes: Vec<Index>,
    /// Views that are not the profiler's, by name.
    pub(super) foreign_views: Vec<String>,
    /// Each process that wrote here.
    pub(super) writers: Vec<Writer>,
}

/// A process's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Writer {
    /// Suffix of the names of its tables.
    pub(super) suffix: String,
    /// Its globally unique identifier, as text.
    pub(super) guid: String,
    /// The schema of its tables: `3`, `3.0.4`.
    pub(super) version: String,
    /// The clock that its times were brought to by an alignment.
    pub(super) aligned_to: Option<String>,
    /// Its statement of the uncertainty of its times on that clock, ns.
    pub(super) aligned_sigma_ns: Option<String>,
    /// Its rows were on two clocks, and this program converted them to one.
    pub(super) is_on_one_clock: bool,
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    table: table::Table,
    /// Its name without the uuid: `rocpd_region`.
    pub(super) base: String,
    /// Suffix of its name; empty if it is not that of any writer.
    pub(super) suffix: String,
}

impl Deref for Table {
    type Target = table::Table;

    fn deref(&self) -> &table::Table {
        &self.table
    }
}

impl Catalog {
    /// Reads what `schema` of a connection contains (`main`, or the name under which a file is
    /// attached).
    ///
    /// # Errors
    /// Returns an error if it contains no tables of rocprofv3, if some are missing or of an unknown
    /// version, or if it has triggers, virtual tables or generated columns, which no profiler
    /// writes and which would run on reading or copying.
    pub(super) fn read(connection: &Connection, schema: &str, path: &Path) -> Result<Catalog, Error> {
        let entries = Entry::all(connection, schema, path)?;
        let refuse = |problem: String| Err(Error::Database { path: path.to_owned(), problem });
        let mut catalog = Catalog::default();
        let suffixes: Vec<String> = entries
            .iter()
            .filter(|entry| entry.kind == "table")
            .filter_map(|entry| entry.name.strip_prefix(METADATA).map(str::to_owned))
            .collect();
        let has = |name: &str| entries.iter().any(|entry| entry.kind == "table" && entry.name == name);
        if has("rocpd_api") && has("rocpd_op") {
            return refuse("is a trace of rocmProfileData; let its name end in .rpd".to_owned());
        }
        let of_nsight_systems = has("TARGET_INFO_SYSTEM_ENV");
        if suffixes.is_empty() {
            let hint =
                if of_nsight_systems { "; let the name of an export of Nsight Systems end in .sqlite" } else { "" };
            return refuse(format!(
                "is a SQLite database, but not from rocprofv3: it has no table rocpd_metadata{hint}"
            ));
        }
        let canonical = canonical_names();
        for entry in entries {
            match entry.kind.as_str() {
                "table" if entry.name.starts_with("sqlite_") => {}
                "table" => {
                    let ours = entry.name.starts_with(PREFIX);
                    let table = Table::read(connection, schema, path, entry, &suffixes)?;
                    if ours { &mut catalog.tables } else { &mut catalog.foreign }.push(table);
                }
                // Those that SQLite makes for UNIQUE and keys have no definition.
                "index" if entry.sql.is_empty() => {}
                "index" => catalog.indexes.push(Index { name: entry.name, table: entry.table, sql: entry.sql }),
                // The profiler's own: they are written anew, whatever stands in them.
                "view" if canonical.contains(&entry.name.as_str()) => {}
                "view" => catalog.foreign_views.push(entry.name),
                _ => return Err(entry.refusal(path)),
            }
        }
        // One over the tables of a base name is written anew, too.
        let Catalog { tables, foreign_views, .. } = &mut catalog;
        foreign_views.retain(|view| !tables.iter().any(|table| table.base == *view));
        for suffix in suffixes {
            catalog.writers.push(Writer::read(connection, schema, path, suffix)?);
        }
        catalog.refuse_incomplete(path)?;
        Ok(catalog)
    }

    /// The tables of one base name, of all processes.
    pub(super) fn of_base<'a>(&'a self, base: &'a str) -> impl Iterator<Item = &'a Table> {
        self.tables.iter().filter(move |table| table.base == base)
    }

    /// Checks that every writer has the tables without which its rows mean nothing, and that all
    /// are of one version.
    fn refuse_incomplete(&self, path: &Path) -> Result<(), Error> {
        let refuse = |problem: String| Err(Error::Database { path: path.to_owned(), problem });
        for Writer { suffix, version, .. } in &self.writers {
            for base in REQUIRED {
                if !self.of_base(base).any(|table| table.suffix == *suffix) {
                    return refuse(format!(
                        "has no table {base}{suffix}: the database is incomplete or has an unknown schema; write it again"
                    ));
                }
            }
            let first = &self.writers[0].version;
            if version != first {
                return refuse(format!(
                    "contains tables of schema {first} and of schema {version}; give the databases that were merged into it"
                ));
            }
        }
        Ok(())
    }
}

impl Writer {
    fn read(connection: &Connection, schema: &str, path: &Path, suffix: String) -> Result<Writer, Error> {
        let table = format!("{METADATA}{suffix}");
        let failed = |problem: rusqlite::Error| wrong(path, &format!("reading the table {table}"), &problem);
        let mut statement =
            connection.prepare(&format!("SELECT tag, value FROM {schema}.{}", quoted(&table))).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut writer = Writer {
            suffix,
            guid: String::new(),
            version: String::new(),
            aligned_to: None,
            aligned_sigma_ns: None,
            is_on_one_clock: false,
        };
        while let Some(row) = rows.next().map_err(failed)? {
            let value = row.get_ref(1).map_err(failed).map(text)?.unwrap_or_default();
            match row.get_ref(0).map_err(failed).map(text)?.as_deref() {
                Some("guid") => writer.guid = value,
                Some("schema_version") => writer.version = value,
                Some(ALIGNED_TO) => writer.aligned_to = Some(value),
                Some(ALIGNED_SIGMA) => writer.aligned_sigma_ns = Some(value),
                Some(ON_ONE_CLOCK) => writer.is_on_one_clock = true,
                _ => {}
            }
        }
        if writer.guid.is_empty() {
            // Its tables are told from others by it all the same.
            writer.guid = writer.suffix.trim_start_matches('_').replace('_', "-");
        }
        let major = writer.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if !matches!(major, Some(3 | 4)) {
            let stated = if writer.version.is_empty() { "no schema_version" } else { writer.version.as_str() };
            let problem = format!("the table {table} gives schema {stated}; only schemas 3 and 4 are supported");
            return Err(Error::Database { path: path.to_owned(), problem });
        }
        Ok(writer)
    }
}

impl Table {
    fn read(
        connection: &Connection,
        schema: &str,
        path: &Path,
        entry: Entry,
        suffixes: &[String],
    ) -> Result<Table, Error> {
        let ours = entry.name.starts_with(PREFIX);
        let is_time = |column: &str, _: &str| ours && TIMES.iter().any(|time| column.eq_ignore_ascii_case(time));
        let table = table::Table::read(connection, schema, path, entry, &is_time)?;
        let name = &table.name;
        let suffix = suffixes.iter().filter(|suffix| name.ends_with(suffix.as_str())).max_by_key(|suffix| suffix.len());
        let suffix = suffix.filter(|_| ours).cloned().unwrap_or_default();
        let base = name[..name.len() - suffix.len()].to_owned();
        Ok(Table { table, base, suffix })
    }

    /// Whether each of its ids is one row.
    pub(super) fn is_numbered_by_id(&self) -> bool {
        self.rowid.as_ref().is_some_and(|number| number.eq_ignore_ascii_case("id"))
    }
}

/// The profiler's own views, of all schemas.
fn canonical_names() -> BTreeSet<&'static str> {
    let [by_ids, by_tracks] =
        [false, true].map(|tracks| schema::canonical_views(&|_, column| tracks || column != "track_id"));
    by_ids.iter().chain(&by_tracks).map(|view| view.name).collect()
}

const PREFIX: &str = "rocpd_";
/// Prefix of the names of descriptive tables without events.
pub(super) const INFO: &str = "rocpd_info_";
pub(super) const METADATA: &str = "rocpd_metadata";
/// Columns that are times, in every table of the profiler.
const TIMES: [&str; 5] = ["start", "end", "timestamp", "init", "fini"];
/// Tables that every version has, and without which rows mean nothing.
const REQUIRED: [&str; 6] =
    ["rocpd_string", "rocpd_info_node", "rocpd_info_process", "rocpd_event", "rocpd_region", "rocpd_kernel_dispatch"];
/// Under this tag of the metadata is that all rows of a process are on one clock, which they were
/// not.
pub(super) const ON_ONE_CLOCK: &str = "probe_sync_cpu_clock";
