//! Copies the tables of one database into another, with their times sent through a map and every
//! other cell unchanged.
//!
//! It handles one input or many. The input is attached to the output's connection, so SQLite moves
//! the rows itself and no cell passes through another type. A table without times is copied record
//! by record; for one with times, each `INSERT … SELECT` statement takes the new times from a
//! function that returns them in the order of the rows. They are read and mapped just before,
//! [`ROWS`] rows at a time, so memory does not grow with the table.
//!
//! Definitions of tables come from the input and are run; an authorizer lets them make that one
//! table and nothing else, so a `CREATE TABLE … AS SELECT` or a second statement is refused. CHECKs
//! are not evaluated: what stands in the input stays. It does not copy tags.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::access::{Readable, wrong};
use super::table::{Index, Table, quoted};
use crate::Error;
use crate::RewriteStats;

/// Moves the times of a row; the rule of a format.
pub(crate) trait MoveRow {
    /// An expression on a row `t` whose value [`Self::take`] needs in addition to the times.
    fn asks(&self) -> Option<&str> {
        None
    }

    /// Adds, for each time of the row that is not NULL, its old and its new value; returns true if
    /// the row has a time. The row's number comes first, then the times, then what
    /// [`Self::asks`] wants.
    ///
    /// # Errors
    /// Returns an error if SQLite fails; [`WrongRow`] within the result if the row is invalid.
    fn take(
        &mut self,
        row: &Row<'_>,
        table: &Table,
        times: &mut Vec<(i64, i64)>,
    ) -> rusqlite::Result<Result<bool, WrongRow>>;
}

/// What is wrong with a row, and in which column if it is one.
pub(crate) struct WrongRow {
    pub(crate) column: Option<usize>,
    pub(crate) problem: String,
}

/// A database being written.
pub(crate) struct Copying {
    connection: Connection,
    mapped: Arc<Mutex<Batch>>,
}

/// Times of some rows, in the order in which the copying statement asks for them.
#[derive(Default)]
struct Batch {
    /// Old and new.
    times: Vec<(i64, i64)>,
    next: usize,
}

impl Batch {
    /// The new time in the place of the next one that is not NULL.
    fn take(&mut self, old: i64) -> Option<i64> {
        let (known, new) = *self.times.get(self.next)?;
        self.next += 1;
        (known == old).then_some(new)
    }
}

impl Copying {
    /// Begins with a connection on an empty file.
    pub(crate) fn new(connection: Connection) -> rusqlite::Result<Copying> {
        let mapped = Arc::new(Mutex::new(Batch::default()));
        let shared = Arc::clone(&mapped);
        connection.create_scalar_function(MAPPED, 1, FunctionFlags::SQLITE_DIRECTONLY, move |context| match context
            .get_raw(0)
        {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(old) => {
                let new = shared.lock().unwrap_or_else(PoisonError::into_inner).take(old);
                new.map(Some).ok_or_else(changed)
            }
            _ => Err(changed()),
        })?;
        Ok(Copying { connection, mapped })
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The connection, when all is copied.
    pub(crate) fn into_connection(self) -> Connection {
        self.connection
    }

    /// Attaches an input; [`Self::detach`] must follow.
    pub(crate) fn attach(&self, input: &Readable, path: &Path) -> Result<(), Error> {
        let attached = self.connection.execute("ATTACH ?1 AS src", [input.uri()]).map(drop);
        attached.map_err(|problem| {
            let doing = if problem.to_string().contains("text encoding") {
                "opening it together with the previous databases, which use another text encoding (PRAGMA encoding); align it \
                separately, or merge databases with the same encoding"
            } else {
                "opening it"
            };
            wrong(path, doing, &problem)
        })
    }

    pub(crate) fn detach(&self, path: &Path) -> Result<(), Error> {
        let detached = self.connection.execute("DETACH src", []).map(drop);
        detached.map_err(|problem| wrong(path, "closing it", &problem))
    }

    /// Creates a table as the attached input defines it, and fills it.
    pub(crate) fn table(&mut self, path: &Path, table: &Table, rule: &mut dyn MoveRow) -> Result<RewriteStats, Error> {
        let doing = format!("copying the table {}", table.name);
        let failed = |problem: rusqlite::Error| wrong(path, &doing, &problem);
        self.define(&table.sql, &table.name, false).map_err(failed)?;
        let stats = if table.times.is_empty() {
            let name = quoted(&table.name);
            self.connection
                .execute(&format!("INSERT INTO main.{name} SELECT * FROM src.{name}"), [])
                .map_err(failed)?;
            RewriteStats::default()
        } else {
            self.timed(path, table, rule)?
        };
        Ok(stats)
    }

    /// Makes an index as the attached input defines it.
    pub(crate) fn index(&mut self, path: &Path, index: &Index) -> Result<(), Error> {
        let failed = |problem: rusqlite::Error| {
            wrong(path, &format!("creating the index {} on {}", index.name, index.table), &problem)
        };
        self.define(&index.sql, &index.table, true).map_err(failed)
    }

    /// Makes a view as the attached input defines it; nothing reads it.
    pub(crate) fn view(&mut self, path: &Path, view: &Index) -> Result<(), Error> {
        let failed = |problem: rusqlite::Error| wrong(path, &format!("creating the view {}", view.name), &problem);
        self.define(&view.sql, &view.name, false).map_err(failed)
    }

    /// Runs the definition of a table, of an index on it, or of a view, which may do nothing else.
    fn define(&mut self, sql: &str, table: &str, computes: bool) -> rusqlite::Result<()> {
        let table = table.to_owned();
        self.connection.authorizer(Some(move |context: AuthContext<'_>| {
            let of_main = context.database_name.is_none_or(|name| name == "main");
            let allowed = match context.action {
                AuthAction::CreateTable { table_name } => table_name == table || table_name == SEQUENCE,
                AuthAction::CreateIndex { table_name, .. } => table_name == table,
                AuthAction::CreateView { view_name } => view_name == table,
                AuthAction::Insert { table_name } | AuthAction::Update { table_name, .. } => table_name == MASTER,
                AuthAction::Read { table_name, .. } => table_name == MASTER || table_name == table,
                AuthAction::Reindex { .. } | AuthAction::Transaction { .. } => true,
                // CHECKs and defaults are not evaluated; what an index computes is.
                AuthAction::Function { function_name } => !computes || HARMLESS.contains(&function_name),
                _ => false,
            };
            if of_main && allowed { Authorization::Allow } else { Authorization::Deny }
        }))?;
        let made = self.connection.execute(sql, []).map(drop);
        self.connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
        made
    }

    /// Fills a table that has times.
    fn timed(&self, path: &Path, table: &Table, rule: &mut dyn MoveRow) -> Result<RewriteStats, Error> {
        let failed = |problem: rusqlite::Error| wrong(path, &format!("copying the table {}", table.name), &problem);
        let Some(number) = &table.rowid else {
            let problem = format!(
                "the table {} has times but no row numbers (WITHOUT ROWID); recreate it with row numbers in a copy",
                table.name
            );
            return Err(Error::Database { path: path.to_owned(), problem });
        };
        let [reading, writing] = statements(table, number, rule.asks());
        let mut reading = self.connection.prepare(&reading).map_err(failed)?;
        let mut writing = self.connection.prepare(&writing).map_err(failed)?;
        let mut stats = RewriteStats::default();
        let mut first = Some(i64::MIN);
        while let Some(from) = first {
            let mut batch = Batch::default();
            let (mut count, mut last) = (0, from);
            let mut rows = reading.query([from]).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                last = row.get(0).map_err(failed)?;
                count += 1;
                let is_timed = match rule.take(row, table, &mut batch.times).map_err(failed)? {
                    Ok(is_timed) => is_timed,
                    Err(WrongRow { column, problem }) => {
                        let column = column.map_or_else(String::new, |at| format!(", column {}", table.columns[at]));
                        let problem = format!("table {}, row {last}{column}: {problem}", table.name);
                        return Err(Error::Database { path: path.to_owned(), problem });
                    }
                };
                stats.events += u64::from(is_timed);
                stats.untimed += u64::from(!is_timed);
            }
            drop(rows);
            if count > 0 {
                *self.mapped.lock().unwrap_or_else(PoisonError::into_inner) = batch;
                let written = writing.execute(params![from, last]).map_err(failed)?;
                if written != count {
                    return Err(failed(changed()));
                }
            }
            first = if count == ROWS { last.checked_add(1) } else { None };
        }
        Ok(stats)
    }

    /// The numbers from which the tables' next rows would count, as they were. All at once: SQLite
    /// looks for each through all.
    pub(crate) fn sequences(&self) -> rusqlite::Result<()> {
        let exists = |schema: &str| -> rusqlite::Result<bool> {
            let found = format!("SELECT count(*) FROM {schema}.sqlite_master WHERE name = 'sqlite_sequence'");
            self.connection.query_row(&found, [], |row| row.get::<_, i64>(0)).map(|count| count > 0)
        };
        if exists("src")? && exists("main")? {
            self.connection.execute_batch(
                "DELETE FROM main.sqlite_sequence WHERE name IN (SELECT name FROM src.sqlite_master); \
                 INSERT INTO main.sqlite_sequence (name, seq) SELECT name, seq FROM src.sqlite_sequence \
                 WHERE name IN (SELECT name FROM main.sqlite_master WHERE type = 'table')",
            )?;
        }
        Ok(())
    }
}

/// The statement that reads the times of some rows, and the one that copies these rows with the new
/// times.
fn statements(table: &Table, number: &str, asks: Option<&str>) -> [String; 2] {
    let name = quoted(&table.name);
    let row = quoted(number);
    let mut times: Vec<String> = table.times.iter().map(|at| quoted(&table.columns[*at])).collect();
    times.extend(asks.map(str::to_owned));
    let cells = table.columns.iter().enumerate().map(|(at, column)| {
        let column = quoted(column);
        if table.times.contains(&at) { format!("{MAPPED}({column})") } else { column }
    });
    let (times, cells, columns) = (times.join(", "), cells.collect::<Vec<_>>().join(", "), table.list());
    [
        format!("SELECT {row}, {times} FROM src.{name} t WHERE {row} >= ?1 ORDER BY {row} LIMIT {ROWS}"),
        // A row's number is a column, or it is no cell and may be another.
        format!(
            "INSERT INTO main.{name} ({columns}) SELECT {cells} FROM src.{name} WHERE {row} BETWEEN ?1 AND ?2 ORDER BY {row}"
        ),
    ]
}

fn changed() -> rusqlite::Error {
    rusqlite::Error::UserFunctionError("the table changed while it was read".into())
}

/// Rows whose times are held at once.
const ROWS: usize = 1 << 15;
/// The function that hands out new times.
const MAPPED: &str = "probe_sync_mapped";
const MASTER: &str = "sqlite_master";
/// Functions that an index may use.
const HARMLESS: [&str; 8] = ["abs", "coalesce", "ifnull", "length", "lower", "nullif", "substr", "upper"];
/// SQLite makes it with the first table that counts its rows.
const SEQUENCE: &str = "sqlite_sequence";
