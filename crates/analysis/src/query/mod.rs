//! Runs one SQL query over the databases of all processes, on one clock, without copying them.
//!
//! A connection in memory holds one virtual table ([`probe_sync_sys::virtual_table`]) for every
//! table `rocpd_*` of the databases. Its rows are read from the files on demand, their times pass
//! through the file's map as in `align`, and each row starts with its `host`, `rank` and `file`.
//! The profiler's views lie over these tables, with every join on the guid. `tables` combines the
//! tables of all files, `rows` returns rows, `pool` limits the number of open files, and `rights`
//! restricts statements.
//!
//! SQLite attaches ten databases (125 at most) and a stored view cannot name another file's tables;
//! so many files need tables of our own. It does not execute anything stored in a database.

mod blocks;
mod csv;
mod csv_tables;
mod one;
mod pool;
mod rights;
mod rows;
mod tables;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;
use probe_sync_alignment::Error as AlignmentError;
use probe_sync_alignment::folders::{self, Wanted};
use probe_sync_alignment::one_clock::{self, Otherwise};
use probe_sync_alignment::window::resolve;
use probe_sync_alignment::{Calibrated, ClockSource, Request, Window, calibrate};
use probe_sync_formats::model::TraceFacts;
use probe_sync_rocpd::schema::{View, canonical_views, quoted};
use probe_sync_sys::virtual_table;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};

use pool::{Failure, Pool};
use tables::{Process, Table, Tables};

pub use csv_tables::CsvSettings;
pub use pool::OPEN_MAX;

/// Settings of queries.
#[derive(Clone, Debug, Default)]
pub struct QuerySettings {
    /// Leave times on the clocks of their nodes, whatever is known about them.
    pub own_clocks: bool,
    /// Which events; rows of descriptive tables (`rocpd_info_*`) are always included.
    pub window: Window,
    /// Longest duration of a statement; `None`: unlimited.
    pub timeout: Option<Duration>,
    /// Set from another thread to abort the statement.
    pub cancelled: Arc<AtomicBool>,
}

/// Databases open for queries.
pub struct Query {
    connection: Connection,
    pool: Arc<Pool>,
    failure: Failure,
    /// The clock of the times.
    pub timeline: String,
    /// Notes for the user.
    pub notes: Vec<String>,
    /// Warnings: what probably has to be changed.
    pub warnings: Vec<String>,
    calibrated: Calibrated,
    tables: Vec<Arc<Table>>,
    views: Vec<View>,
    processes: Vec<Process>,
    window: Option<([i64; 2], bool)>,
    timeout: Option<Duration>,
    /// Deadline of the current statement.
    until: Arc<Mutex<Option<Instant>>>,
    /// Why times must not be queried, if they are on several clocks.
    apart: Option<Arc<str>>,
}

impl std::fmt::Debug for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Query").field("timeline", &self.timeline).finish_non_exhaustive()
    }
}

/// A cell of a result.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// An integer.
    Integer(i64),
    /// A floating-point number; never NaN, which SQLite does not have.
    Real(f64),
    /// Text, which may be invalid UTF-8 if a database contains such.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

/// Receiver of a result.
pub trait RowSink {
    /// The names of the columns, before the first row. Two may be equal.
    ///
    /// # Errors
    /// The result is not wanted so; it ends then.
    fn columns(&mut self, names: &[String]) -> Result<(), Error>;

    /// A row, in the order of the columns.
    ///
    /// # Errors
    /// As [`Self::columns`].
    fn row(&mut self, cells: &[Value<'_>]) -> Result<(), Error>;
}

/// Refuses to convert rows to one clock, which is possible only in a rewritten database.
fn refuse_cpu_clock(request: &Request) -> Result<(), Error> {
    let problem = "--cpu-clock: rows can only be converted to one clock in a database: align into one, and query that";
    match request.cpu_clock {
        Some(_) => Err(Error::Request { problem: problem.to_owned() }),
        None => Ok(()),
    }
}

/// Returns the notes of all traces, without those about their collectives.
fn all_notes(calibrated: &Calibrated, of_tables: Vec<String>) -> Vec<String> {
    let mut all = calibrated.notes.clone();
    all.extend(of_tables);
    for trace in &calibrated.traces {
        let TraceFacts { notes, warnings, .. } = &trace.trace.facts;
        let of_clock = trace.notes.iter().filter(|note| !(notes.contains(note) || warnings.contains(note)));
        all.extend(of_clock.map(|note| format!("{}: {note}", trace.trace.path.display())));
    }
    all
}

impl Query {
    /// Determines the clocks of the databases and makes their tables available. Folders among the
    /// traces of the request stand for the databases in them.
    ///
    /// # Errors
    /// Those of [`calibrate()`](probe_sync_alignment::calibrate()); a trace that is no database of
    /// rocprofv3; a clock that is not known while there is a window and `own_clocks` is not set;
    /// two files of one process; files whose schemas differ in their major number.
    pub fn open(request: &Request, settings: &QuerySettings) -> Result<Query, Error> {
        refuse_cpu_clock(request)?;
        let found = folders::search(request, Wanted::Databases)?;
        let mut request = Request { traces: found.paths, ..request.clone() };
        if settings.own_clocks {
            (request.clocks, request.snapshots, request.markers) = (ClockSource::Nothing, Vec::new(), None);
        }
        let calibrated = calibrate(&request)?;
        let apart = match expect_one_clock(&calibrated, settings) {
            Err(Error::Alignment(AlignmentError::Request { problem })) if settings.window == Window::default() => {
                Some(problem.into())
            }
            known => known.map(|()| None)?,
        };
        let timeline = calibrated.timeline.clone();
        let window = resolve(&settings.window, &calibrated.traces)?.map(|span| (span, settings.window.inclusive));
        let Tables { files, tables, processes, notes } = Tables::of(&calibrated)?;
        let notes: Vec<String> = found.notes.into_iter().chain(notes).collect();
        let tables: Vec<Arc<Table>> = tables.into_iter().map(Arc::new).collect();
        let pool = Arc::new(Pool::new(files));
        let failure = Failure::default();
        let until = Arc::<Mutex<Option<Instant>>>::default();
        let present = |table: &str, column: &str| {
            let has = |(name, _): &(String, _)| name.eq_ignore_ascii_case(column);
            tables.iter().any(|known| known.base == table && known.columns.iter().any(has))
        };
        let views = canonical_views(&present);
        let prepare = || -> rusqlite::Result<Connection> {
            let mut connection = Connection::open_in_memory()?;
            connection.execute_batch(PROCESSES)?;
            for process in &processes {
                connection.execute(PROCESS, (&process.guid, &process.host, process.rank, &process.file))?;
            }
            for table in &tables {
                let below = (Arc::clone(&pool), Arc::clone(&failure));
                let source = rows::Source::new(Arc::clone(table), window, apart.clone(), below);
                virtual_table::create(&connection, &table.base, Arc::new(source))?;
            }
            views.iter().try_for_each(|view| make_view(&connection, view))?;
            connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, CELL_MAX)?;
            let (asked_until, cancelled) = (Arc::clone(&until), Arc::clone(&settings.cancelled));
            let is_over = move || {
                let until = *asked_until.lock().unwrap_or_else(PoisonError::into_inner);
                cancelled.load(Ordering::Relaxed) || until.is_some_and(|until| Instant::now() >= until)
            };
            connection.progress_handler(STEPS, Some(is_over))?;
            // Of all connections of the process: a statement may ask for more than the machine has.
            connection.execute_batch(&format!("PRAGMA hard_heap_limit = {MEMORY_MAX}"))?;
            rights::reading_only(&mut connection)?;
            Ok(connection)
        };
        let failed = |problem: rusqlite::Error| Error::Query { problem: format!("preparing the tables: {problem}") };
        let connection = prepare().map_err(failed)?;
        let (all, warnings) = (all_notes(&calibrated, notes), calibrated.warnings.clone());
        Ok(Query {
            connection,
            pool,
            failure,
            timeline,
            notes: all,
            warnings,
            calibrated,
            tables,
            views,
            processes,
            window,
            timeout: settings.timeout,
            until,
            apart,
        })
    }

    /// Runs one statement, and passes on its rows as they come.
    ///
    /// # Errors
    /// [`Error::Request`] for text that is not exactly one statement, for statements that do more
    /// than read, and for times of databases that are not on one clock; [`Error::Trace`] with
    /// the file, table and row that cannot be read; errors of the sink.
    pub fn run(&self, sql: &str, sink: &mut dyn RowSink) -> Result<(), Error> {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = self.timeout.map(|limit| Instant::now() + limit);
        let asked = |problem: rusqlite::Error| self.asked(&problem);
        let mut statement = self.connection.prepare(sql).map_err(asked)?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        if names.is_empty() {
            let problem = "--sql: the statement returns no rows; use SELECT".to_owned();
            return Err(Error::Request { problem });
        }
        let mut rows = statement.query([]).map_err(asked)?;
        // What cannot be read at all leaves the output empty.
        let mut next = rows.next().map_err(|problem| self.failed(&problem))?;
        sink.columns(&names)?;
        while let Some(row) = next {
            let cells: Result<Vec<Value<'_>>, _> =
                (0..names.len()).map(|at| row.get_ref(at).map(Value::from)).collect();
            sink.row(&cells.map_err(|problem| self.failed(&problem))?)?;
            next = rows.next().map_err(|problem| self.failed(&problem))?;
        }
        // What is written by a log at rest is read without a lock.
        self.pool.expect_unchanged()
    }

    /// The databases and their clocks.
    pub fn calibrated(&self) -> &Calibrated {
        &self.calibrated
    }

    /// Number of databases queried, and the most that were open at once so far: never more than
    /// [`OPEN_MAX`].
    pub fn files(&self) -> (usize, usize) {
        (self.pool.files(), self.pool.most_open())
    }

    /// Refuses an output that is one of the databases under any name.
    ///
    /// # Errors
    /// [`Error::Request`] naming both.
    pub fn refuse_overwriting(&self, output: PathBuf) -> Result<(), Error> {
        Ok(self.calibrated.refuse_overwriting(&[output])?)
    }

    /// SQLite error of a statement before its first row.
    fn asked(&self, problem: &rusqlite::Error) -> Error {
        match problem.sqlite_error_code() {
            _ if self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some() => self.failed(problem),
            Some(ErrorCode::AuthorizationForStatementDenied) => {
                let problem = format!(
                    "--sql: {problem}; queries are read-only, and SELECT name FROM sqlite_schema lists the tables"
                );
                Error::Request { problem }
            }
            _ => Error::Request { problem: format!("--sql: {problem}") },
        }
    }

    /// SQLite error while rows are read.
    fn failed(&self, problem: &rusqlite::Error) -> Error {
        let below = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        below.unwrap_or_else(|| {
            let problem = match (problem.sqlite_error_code(), self.timeout) {
                (Some(ErrorCode::OperationInterrupted), Some(limit)) => {
                    format!("the statement was aborted after {limit:?}; request less data or a shorter time span, or allow more time")
                }
                (Some(ErrorCode::OutOfMemory), _) => format!("the statement needs more than {} GiB of memory; request less data at a \
                    time", MEMORY_MAX >> 30),
                _ => problem.to_string(),
            };
            Error::Query { problem }
        })
    }
}

impl<'a> From<ValueRef<'a>> for Value<'a> {
    fn from(value: ValueRef<'a>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(bytes) => Self::Text(bytes),
            ValueRef::Blob(bytes) => Self::Blob(bytes),
        }
    }
}

/// Refuses databases that are not on one clock, unless that is wanted.
fn expect_one_clock(calibrated: &Calibrated, settings: &QuerySettings) -> Result<(), Error> {
    if settings.own_clocks {
        return Ok(());
    }
    one_clock::expect(calibrated, "to query the times of several databases", Otherwise::AsTheyAre)?;
    Ok(())
}

/// Creates a view of the profiler's and, if it has a guid, another one in front of it that states
/// where its rows come from.
fn make_view(connection: &Connection, view: &View) -> rusqlite::Result<()> {
    connection.execute_batch(&by_event(&view.sql))?;
    let name = quoted(view.name);
    if !columns(connection, view.name)?.iter().any(|column| column == "guid") {
        // Without the guid a join with it would multiply rows: ids repeat from process to process.
        let Some((select, alias)) =
            view.sql.split_once(" AS SELECT ").and_then(|(_, select)| Some((select, first_source(select)?)))
        else {
            return Ok(());
        };
        return connection.execute_batch(&format!(
            "CREATE TEMP VIEW {name} AS SELECT {alias}.host, {alias}.rank, {alias}.file, {alias}.guid, {select}"
        ));
    }
    // A name is looked for among temporary views first, but by a view of `main` there alone. The
    // cross join has SQLite go through the processes first, so that files that a condition on host,
    // rank or file leaves out are not read.
    connection.execute_batch(&format!(
        "CREATE TEMP VIEW {name} AS SELECT p.host, p.rank, p.file, v.* FROM main.probe_sync_processes p \
         CROSS JOIN main.{name} v ON v.guid = p.guid"
    ))
}

/// A view whose joins by the number of an event find their rows by an automatic index of SQLite:
/// our tables find rows by their id alone, and SQLite creates none for them. A limit keeps the
/// table a separate statement.
fn by_event(sql: &str) -> String {
    const JOIN: &str = " JOIN \"rocpd_";
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(at) = rest.find(JOIN) {
        let table = at + " JOIN ".len();
        let end = table + rest[table..].find(' ').unwrap_or(rest.len() - table);
        let (name, after) = (&rest[table..end], &rest[end..]);
        let alias = after.split_whitespace().next().unwrap_or_default();
        out.push_str(&rest[..table]);
        if after.starts_with(&format!(" {alias} ON {alias}.event_id = ")) {
            out.push_str(&format!("(SELECT * FROM {name} LIMIT -1)"));
        } else {
            out.push_str(name);
        }
        rest = after;
    }
    out + rest
}

/// The alias of the table that a view's rows come from: the first after `FROM`, if the view joins
/// others to it and aggregates nothing.
fn first_source(select: &str) -> Option<&str> {
    let mut depth = 0_i32;
    let from = select.char_indices().find(|(at, letter)| {
        depth += i32::from(*letter == '(') - i32::from(*letter == ')');
        depth == 0 && select[*at..].starts_with(" FROM \"rocpd_")
    });
    let mut words = select[from?.0..].split_whitespace().skip(2);
    let alias = words.next().filter(|word| word.bytes().all(|byte| byte.is_ascii_uppercase()))?;
    (!select.contains("GROUP BY") && !select.contains(" UNION ")).then_some(alias)
}

/// Names of the columns of a table or view.
fn columns(connection: &Connection, name: &str) -> rusqlite::Result<Vec<String>> {
    let statement = connection.prepare(&format!("SELECT * FROM main.{}", quoted(name)))?;
    Ok(statement.column_names().map(str::to_owned).collect())
}

/// Every process and its location.
const PROCESSES: &str =
    "CREATE TABLE probe_sync_processes (guid TEXT PRIMARY KEY, host TEXT, rank INTEGER, file TEXT) WITHOUT ROWID";
const PROCESS: &str = "INSERT INTO probe_sync_processes (guid, host, rank, file) VALUES (?1, ?2, ?3, ?4)";
/// Bytes that SQLite may have in this process.
const MEMORY_MAX: u64 = 8 << 30;
/// Steps of SQLite's machine between two looks at the clock.
const STEPS: i32 = 10_000;
/// The longest cell that a statement may make, bytes; no row of a database is longer than half of
/// it.
const CELL_MAX: i32 = 64 << 20;
