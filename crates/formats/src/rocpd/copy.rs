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
//! are not evaluated: what stands in the input stays. It does not copy views or tags.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::functions::FunctionFlags;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::access::{Readable, wrong};
use super::catalog::{Catalog, Index, Table, quoted};
use super::reading::Behind;
use crate::Error;
use crate::model::{PS_PER_NS, Picoseconds, Reach, nearest_ns};
use crate::{MapFunction, RewriteStats};

/// A database being written.
pub(super) struct Copying {
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
    /// The new time in the place of the next one that is set.
    fn take(&mut self, old: i64) -> Option<i64> {
        let (known, new) = *self.times.get(self.next)?;
        self.next += 1;
        (known == old).then_some(new)
    }
}

impl Copying {
    /// Begins with a connection on an empty file.
    pub(super) fn new(connection: Connection) -> rusqlite::Result<Copying> {
        let mapped = Arc::new(Mutex::new(Batch::default()));
        let shared = Arc::clone(&mapped);
        connection.create_scalar_function(MAPPED, 1, FunctionFlags::SQLITE_DIRECTONLY, move |context| match context
            .get_raw(0)
        {
            ValueRef::Null => Ok(None),
            ValueRef::Integer(0) => Ok(Some(0)),
            ValueRef::Integer(old) => {
                let new = shared.lock().unwrap_or_else(PoisonError::into_inner).take(old);
                new.map(Some).ok_or_else(changed)
            }
            _ => Err(changed()),
        })?;
        Ok(Copying { connection, mapped })
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// The connection, when all is copied.
    pub(super) fn into_connection(self) -> Connection {
        self.connection
    }

    /// Attaches an input; [`Self::detach`] must follow.
    pub(super) fn attach(&self, input: &Readable, path: &Path) -> Result<(), Error> {
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

    /// Contents of the attached input.
    pub(super) fn catalog(&self, path: &Path) -> Result<Catalog, Error> {
        Catalog::read(&self.connection, "src", path)
    }

    pub(super) fn detach(&self, path: &Path) -> Result<(), Error> {
        let detached = self.connection.execute("DETACH src", []).map(drop);
        detached.map_err(|problem| wrong(path, "closing it", &problem))
    }

    /// Creates a table as the attached input defines it, and fills it; rows that are behind the
    /// others are shifted to their clock first, and an implausible time becomes 0, which means
    /// unknown.
    pub(super) fn table(
        &mut self,
        path: &Path,
        table: &Table,
        (behind, reach): (Option<&Behind>, Option<Reach>),
        map: &mut MapFunction<'_>,
    ) -> Result<RewriteStats, Error> {
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
            self.timed(path, table, (behind, reach), map)?
        };
        Ok(stats)
    }

    /// Makes an index as the attached input defines it.
    pub(super) fn index(&mut self, path: &Path, index: &Index) -> Result<(), Error> {
        let failed = |problem: rusqlite::Error| {
            wrong(path, &format!("creating the index {} on {}", index.name, index.table), &problem)
        };
        self.define(&index.sql, &index.table, true).map_err(failed)
    }

    /// Runs the definition of a table, or of an index on it, which may do nothing else.
    fn define(&mut self, sql: &str, table: &str, computes: bool) -> rusqlite::Result<()> {
        let table = table.to_owned();
        self.connection.authorizer(Some(move |context: AuthContext<'_>| {
            let of_main = context.database_name.is_none_or(|name| name == "main");
            let allowed = match context.action {
                AuthAction::CreateTable { table_name } => table_name == table || table_name == SEQUENCE,
                AuthAction::CreateIndex { table_name, .. } => table_name == table,
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
    fn timed(
        &self,
        path: &Path,
        table: &Table,
        (behind, reach): (Option<&Behind>, Option<Reach>),
        map: &mut MapFunction<'_>,
    ) -> Result<RewriteStats, Error> {
        let failed = |problem: rusqlite::Error| wrong(path, &format!("copying the table {}", table.name), &problem);
        let Some(number) = &table.rowid else {
            let problem = format!(
                "the table {} has times but no row numbers (WITHOUT ROWID); recreate it with row numbers in a copy",
                table.name
            );
            return Err(Error::Database { path: path.to_owned(), problem });
        };
        let [reading, writing] = statements(table, number, behind);
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
                let set = batch.times.len();
                let wrong = move_row(row, table, (behind, reach), map, &mut batch.times).map_err(failed)?;
                if let Some((column, problem)) = wrong {
                    let column = column.map_or_else(String::new, |at| format!(", column {}", table.columns[at]));
                    return Err(at_cell(path, &format!("table {}, row {last}{column}", table.name), problem));
                }
                stats.events += u64::from(batch.times.len() > set);
                stats.untimed += u64::from(batch.times.len() == set);
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
    pub(super) fn sequences(&self) -> rusqlite::Result<()> {
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
fn statements(table: &Table, number: &str, behind: Option<&Behind>) -> [String; 2] {
    let name = quoted(&table.name);
    let row = quoted(number);
    let mut times: Vec<String> = table.times.iter().map(|at| quoted(&table.columns[*at])).collect();
    times.extend(behind.map(|behind| behind.is_behind.clone()));
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

/// Processes the times of a row that are set, old and new; states what is wrong with the row, and
/// in which column.
fn move_row(
    row: &Row<'_>,
    table: &Table,
    (behind, reach): (Option<&Behind>, Option<Reach>),
    map: &mut MapFunction<'_>,
    times: &mut Vec<(i64, i64)>,
) -> rusqlite::Result<Option<(Option<usize>, String)>> {
    let Some(by_ns) = behind_by(row, table, behind)? else { return Ok(Some((None, NO_CATEGORY.to_owned()))) };
    for (number, at) in table.times.iter().enumerate() {
        let value = row.get_ref(number + 1)?;
        if let (Some(reach), ValueRef::Integer(old)) = (reach, value) {
            let time_ps = Picoseconds::from(old) * PS_PER_NS;
            if old != 0 && !reach.holds(time_ps, time_ps) {
                times.push((old, 0));
                continue;
            }
        }
        match moved(value, by_ns, map) {
            Ok(moved) => times.extend(moved),
            Err(problem) => return Ok(Some((Some(*at), problem))),
        }
    }
    Ok(None)
}

/// How far the times of a row are behind those of the others, ns; `None` if nothing tells whether
/// they are.
fn behind_by(row: &Row<'_>, table: &Table, behind: Option<&Behind>) -> rusqlite::Result<Option<i64>> {
    let Some(Behind { by_ns, .. }) = behind else { return Ok(Some(0)) };
    Ok(match row.get_ref(table.times.len() + 1)? {
        ValueRef::Integer(is_behind) => Some(is_behind * by_ns),
        _ => None,
    })
}

/// A cell's time, old and new, `by_ns` added before it is mapped; `None` if it is not set.
pub(super) fn moved(value: ValueRef<'_>, by_ns: i64, map: &mut MapFunction<'_>) -> Result<Option<(i64, i64)>, String> {
    let Some(old) = time(value)? else { return Ok(None) };
    // Zero would say that it is not set.
    let new = nearest_ns(map((Picoseconds::from(old) + Picoseconds::from(by_ns)) * PS_PER_NS)).filter(|new| *new != 0);
    let new = new.ok_or_else(|| format!("{old} ns exceeds the range of times on the common clock"))?;
    Ok(Some((old, new)))
}

fn changed() -> rusqlite::Error {
    rusqlite::Error::UserFunctionError("the table changed while it was read".into())
}

/// A time that is set, ns; 0 and NULL mean that it is not.
fn time(value: ValueRef<'_>) -> Result<Option<i64>, String> {
    match value {
        ValueRef::Integer(0) | ValueRef::Null => Ok(None),
        ValueRef::Integer(time) => Ok(Some(time)),
        other => Err(format!("contains {} instead of a time in ns", other.data_type().to_string().to_lowercase())),
    }
}

/// Error about an invalid cell.
fn at_cell(path: &Path, place: &str, problem: impl Into<String>) -> Error {
    Error::Database { path: path.to_owned(), problem: format!("{place}: {}", problem.into()) }
}

const NO_CATEGORY: &str = "has no category to determine its clock (--cpu-clock); remove it in a copy of the file";
/// Rows whose times are held at once.
const ROWS: usize = 1 << 15;
/// The function that hands out new times.
const MAPPED: &str = "probe_sync_mapped";
const MASTER: &str = "sqlite_master";
/// Functions that an index may use.
const HARMLESS: [&str; 8] = ["abs", "coalesce", "ifnull", "length", "lower", "nullif", "substr", "upper"];
/// SQLite makes it with the first table that counts its rows.
const SEQUENCE: &str = "sqlite_sequence";
