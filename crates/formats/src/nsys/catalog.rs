//! The catalog of an export of Nsight Systems: its tables, the columns that hold times, and when the
//! session began.
//!
//! Versions add tables and columns, and create tables only if there is something to store; so one
//! rule for all of them: in every table whose name is written in capitals, as event tables are, the
//! integer columns named in [`TIMES`] are times. Raw counts of other clocks (`rawTimestamp`,
//! `systemClockNs`), the bounds of the session (`ANALYSIS_DETAILS.startTime`) and lengths (`duration`)
//! are not. The published
//! schema is in the documentation: <https://docs.nvidia.com/nsight-systems/AnalysisGuide/index.html>.

use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::Error;
use crate::sqlite::access::wrong;
use crate::sqlite::metadata::{Aligned, each_pair};
use crate::sqlite::query::each;
use crate::sqlite::table::{Entry, Index, Table, quoted};

/// Contents of an export.
#[derive(Clone, Debug)]
pub(super) struct Catalog {
    /// Tables, in the order of the file.
    pub(super) tables: Vec<Table>,
    /// Explicitly created indexes.
    pub(super) indexes: Vec<Index>,
    /// Names of views; the profiler writes none.
    pub(super) views: Vec<String>,
    pub(super) session: Session,
    /// The version of the exporter and of its schema, for display; empty if not stated.
    pub(super) version: String,
    pub(super) aligned: Aligned,
}

/// The origin of the times.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// Start of the session on the node's system clock, Unix time in ns.
    pub(super) start_ns: i64,
    /// The times are Unix times already (`nsys export --ts-normalize=true`).
    pub(super) is_normalized: bool,
}

impl Session {
    /// Returns the Unix time at which the file's times are 0, ns.
    pub(super) fn origin_ns(&self) -> i64 {
        if self.is_normalized { 0 } else { self.start_ns }
    }
}

impl Catalog {
    /// Reads what `schema` of a connection contains (`main`, or the name under which a file is
    /// attached).
    ///
    /// # Errors
    /// Returns an error if it is not an export of Nsight Systems, if it does not state when its
    /// session began, if its times were shifted by hand, or if it has triggers, virtual tables or
    /// generated columns, which would run on reading or copying.
    pub(super) fn read(connection: &Connection, schema: &str, path: &Path) -> Result<Catalog, Error> {
        let refuse = |problem: String| Err(Error::Database { path: path.to_owned(), problem });
        let entries = Entry::all(connection, schema, path)?;
        let has = |name: &str| entries.iter().any(|entry| entry.kind == "table" && entry.name == name);
        if !MARKS.iter().any(|name| has(name)) {
            return refuse(format!(
                "is a SQLite database, but not an export of Nsight Systems: it has none of the tables {}",
                MARKS.join(", ")
            ));
        }
        let (mut tables, mut indexes, mut views) = (Vec::new(), Vec::new(), Vec::new());
        for entry in entries {
            match entry.kind.as_str() {
                "table" if entry.name.starts_with("sqlite_") => {}
                "table" => {
                    let has_times = may_have_times(&entry.name);
                    let is_time = |column: &str, declared: &str| {
                        has_times && TIMES.contains(&column) && declared.to_ascii_uppercase().contains("INT")
                    };
                    tables.push(Table::read(connection, schema, path, entry, &is_time)?);
                }
                // Those that SQLite makes for UNIQUE and keys have no definition.
                "index" if entry.sql.is_empty() => {}
                "index" => indexes.push(Index { name: entry.name, table: entry.table, sql: entry.sql }),
                "view" => views.push(entry.name),
                _ => return Err(entry.refusal(path)),
            }
        }
        let reader = Reader { connection, schema, path, tables: &tables };
        reader.expect_string_ids()?;
        let start_ns = reader.session_start()?;
        let Exported { version, is_normalized } = reader.exported(start_ns)?;
        let session = Session { start_ns, is_normalized };
        if !is_normalized {
            reader.expect_short_times()?;
        }
        let aligned = Aligned::read((connection, path), schema, &tables)?;
        Ok(Catalog { tables, indexes, views, session, version, aligned })
    }

    /// Returns the table of this name.
    pub(super) fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Returns notes on tables with times that the published schema does not contain, and on tables
    /// whose columns are named as times but are copied unchanged.
    pub(super) fn notes(&self) -> Vec<String> {
        let list = |some: Vec<&str>| some.into_iter().take(NAMES_TOLD).collect::<Vec<_>>().join(", ");
        let timed = self.tables.iter().filter(|table| !table.times.is_empty() && !is_published(&table.name));
        let timed: Vec<&str> = timed.map(|table| table.name.as_str()).collect();
        let named =
            |table: &&Table| table.times.is_empty() && table.columns.iter().any(|of| TIMES.contains(&of.as_str()));
        let left: Vec<&str> = self.tables.iter().filter(named).map(|table| table.name.as_str()).collect();
        let mut notes = Vec::new();
        if !timed.is_empty() {
            notes.push(format!(
                "the published schema does not contain these tables, whose columns named as times are taken as times: {}",
                list(timed)
            ));
        }
        if !left.is_empty() {
            notes
                .push(format!("columns of these tables are named as times but are not taken as times: {}", list(left)));
        }
        notes
    }
}

/// Reads single tables while the catalog is made.
struct Reader<'a> {
    connection: &'a Connection,
    schema: &'a str,
    path: &'a Path,
    tables: &'a [Table],
}

/// Returns false if a file is no database, or one without the tables of an export.
pub(super) fn is_export(path: &Path) -> bool {
    Entry::any_table(path, &|name| name == STRINGS || name.starts_with("TARGET_INFO_") || MARKS.contains(&name))
}

/// Statements of an export about itself.
struct Exported {
    version: String,
    is_normalized: bool,
}

impl Reader<'_> {
    fn refuse<T>(&self, problem: String) -> Result<T, Error> {
        Err(Error::Database { path: self.path.to_owned(), problem })
    }

    fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Refuses names without a key: each look-up by id would scan all of them.
    fn expect_string_ids(&self) -> Result<(), Error> {
        let Some(table) = self.table(STRINGS) else { return Ok(()) };
        if table.rowid.as_deref() == Some("id") && table.has("value") {
            return Ok(());
        }
        self.refuse(format!("the table {STRINGS} has no INTEGER PRIMARY KEY id with a value; export the report again"))
    }

    /// Passes on the rows of a table of names and values.
    fn pairs(&self, name: &str, take: &mut dyn FnMut(&str, String)) -> Result<(), Error> {
        each_pair((self.connection, self.path), self.schema, self.table(name), take)
    }

    /// Reads how the file was exported. Of times that are Unix times, the start of the session is
    /// the shift; any other shift was given by hand.
    fn exported(&self, start_ns: i64) -> Result<Exported, Error> {
        let (mut product, mut schema, mut shifts, mut normalized) = (None, None, Vec::new(), String::new());
        for table in META_DATA {
            self.pairs(table, &mut |name, value| match name {
                "EXPORT_PRODUCT_VERSION" => product = Some(value),
                "EXPORT_SCHEMA_VERSION" => schema = Some(value),
                "EXPORT_PARAM_TIME_SHIFT" | "EXPORT_CONFIG_TIME_SHIFT" => shifts.push(value),
                "EXPORT_PARAM_TIME_NORMALIZE" => normalized = value,
                _ => {}
            })?;
        }
        let is_normalized = match normalized.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => true,
            "false" | "0" | "" => false,
            _ => {
                return self.refuse(format!(
                    "EXPORT_PARAM_TIME_NORMALIZE is {normalized:?}, neither true nor false, so the origin of its times is unknown"
                ));
            }
        };
        let by_hand = |shift: &String| match shift.trim() {
            "" | "0" => false,
            shift => !(is_normalized && shift.parse() == Ok(start_ns)),
        };
        if let Some(shift) = shifts.into_iter().find(by_hand) {
            return self.refuse(format!(
                "was exported with --ts-shift={shift}, which moved its times by hand; export the report again without it"
            ));
        }
        let version = match (product, schema) {
            (Some(product), Some(schema)) => format!("{product}, schema {schema}"),
            (product, schema) => product.or(schema).unwrap_or_default(),
        };
        Ok(Exported { version, is_normalized })
    }

    /// Refuses a file that does not say that its times are Unix times, but whose tables begin with such
    /// times.
    fn expect_short_times(&self) -> Result<(), Error> {
        let (mut long, mut all) = (0, 0);
        for table in self.tables {
            let Some(at) = table.times.first() else { continue };
            let sql = format!(
                "SELECT total(time > {LONG_NS}), count(*) FROM (SELECT {} AS time FROM {}.{} NOT INDEXED LIMIT {TIMES_LOOKED_AT}) \
                 WHERE typeof(time) = 'integer'",
                quoted(&table.columns[*at]),
                self.schema,
                quoted(&table.name)
            );
            each((self.connection, self.path), &table.name, &sql, &mut |row| {
                long += row.get::<_, f64>(0)? as u64;
                all += row.get::<_, i64>(1)?.unsigned_abs();
                Ok(())
            })?;
        }
        if 2 * long <= all {
            return Ok(());
        }
        self.refuse(
            "does not state that its times are Unix times (EXPORT_PARAM_TIME_NORMALIZE), but they look like it; export the report again"
                .to_owned(),
        )
    }

    fn session_start(&self) -> Result<i64, Error> {
        const AGAIN: &str =
            "so its times cannot be related to a clock; export the whole report again, without --tables";
        let Some(table) = self.table(SESSION).filter(|table| table.has(EPOCH)) else {
            return self.refuse(format!("has no {SESSION}.{EPOCH}, the start of the session, {AGAIN}"));
        };
        let failed = |problem: rusqlite::Error| wrong(self.path, &format!("reading the table {SESSION}"), &problem);
        let sql = format!("SELECT {} FROM {}.{} LIMIT 2", quoted(EPOCH), self.schema, quoted(&table.name));
        let mut statement = self.connection.prepare(&sql).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut found = None;
        while let Some(row) = rows.next().map_err(failed)? {
            if found.is_some() {
                return self.refuse(format!(
                    "the table {SESSION} states several starts: the file holds several sessions; export each report separately"
                ));
            }
            found = Some(match row.get_ref(0).map_err(failed)? {
                ValueRef::Integer(start) if EPOCHS.contains(&start) => start,
                _ => return self.refuse(format!("{SESSION}.{EPOCH} is not a Unix time in ns, {AGAIN}")),
            });
        }
        match found {
            Some(start) => Ok(start),
            None => self.refuse(format!("the table {SESSION} is empty, {AGAIN}")),
        }
    }
}

/// Returns true if a table is named as event tables are. Tables of payloads have columns that
/// programs named.
fn may_have_times(name: &str) -> bool {
    let of_profiler = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
    of_profiler && !name.starts_with(PAYLOADS)
}

fn is_published(name: &str) -> bool {
    PUBLISHED.iter().any(|prefix| name.starts_with(prefix))
}

/// Columns that are times in ns from the start of the session.
const TIMES: [&str; 7] = ["start", "end", "timestamp", "startedAt", "endedAt", "openedAt", "closedAt"];
/// Tables one of which every export has.
const MARKS: [&str; 4] = [SESSION, "ANALYSIS_DETAILS", META_DATA[0], META_DATA[1]];
/// Tables about the export; the second is the name up to 2022.
const META_DATA: [&str; 2] = ["META_DATA_EXPORT", "EXPORT_META_DATA"];
pub(super) const STRINGS: &str = "StringIds";
pub(super) const SESSION: &str = "TARGET_INFO_SESSION_START_TIME";
/// The column with the start of the session, Unix time in ns.
pub(super) const EPOCH: &str = "utcEpochNs";
/// Plausible starts of sessions: 2001 to 2200.
pub(super) const EPOCHS: std::ops::Range<i64> = 978_307_200_000_000_000..7_258_118_400_000_000_000;
/// Longest plausible distance from the start of a session, ns: three years.
const LONG_NS: i64 = 100_000_000_000_000_000;
/// Times of each table by which Unix times are recognised.
const TIMES_LOOKED_AT: usize = 1000;
/// Prefix of tables whose columns are fields of NVTX payloads.
const PAYLOADS: &str = "DYNAMIC_NVTXPAYLOAD_";
/// Prefixes of the published tables with times, 2021 to 2026.
const PUBLISHED: [&str; 39] = [
    "BANDWIDTH_USAGE_",
    "COMPOSITE_EVENTS",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "CUPTI_ACTIVITY_KIND_",
    "D3D1",
    "DEMOTED_BYTES_",
    "DIAGNOSTIC_EVENT",
    "DX1",
    "DXGI_",
    "ETW_",
    "GENERIC_EVENTS",
    "GPU_",
    "KHR_DEBUG_",
    "MEMORY_TRANSFER_",
    "MPI_",
    "NET_",
    "NVAPI_",
    "NVTX",
    "NVVIDEO_",
    "NV_LOAD_BALANCE_",
    "OPENGL_",
    "OPENMP_",
    "OSRT_",
    "PERF_EVENT_",
    "PMU_",
    "PROFILER_OVERHEAD",
    "SCHED_EVENTS",
    "SLI_",
    "SOC_METRICS",
    "SYSCALL",
    "TEGRA_INTERNAL_",
    "TOTAL_BYTES_RESIDENT_",
    "TRACE_PROCESS_EVENT_",
    "UCP_",
    "UNCORE_PMU_",
    "VULKAN_",
    "WDDM_",
];
/// Tables named in a note.
const NAMES_TOLD: usize = 8;
