//! A database for queries that need single tables of many databases: its processes, their tables,
//! and connections opened on demand.
//!
//! A database may hold the tables of several processes; each set is a part with its own guid. It
//! does not hold a connection.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::catalog::{Catalog, Table, Writer, text};
use super::moving::moved;
use super::reading::{Database, GUID};
use crate::Error;
use crate::MapFunction;
use crate::environment::Environment;
use crate::sqlite::access::{Readable, sidecars, wrong};

/// A database, not open.
#[derive(Debug)]
pub struct DatabaseFile {
    /// The file.
    pub path: PathBuf,
    source: Mutex<Source>,
}

/// The source of connections.
#[derive(Debug)]
struct Source {
    readable: Readable,
    /// State of the file when it was first opened; `None` if a copy is read.
    state: Option<State>,
    /// Rows of this state may have been read.
    used: bool,
}

/// Lengths and times that show whether a file and its log were written to.
type State = [Option<(u64, Option<SystemTime>)>; 2];

/// A table of one process.
#[derive(Clone, Debug)]
pub struct Part {
    /// The table's name.
    pub name: String,
    /// The name without the process's uuid.
    pub base: String,
    /// The process.
    pub guid: String,
    /// The major number of its schema.
    pub major: u32,
    /// The host of the process, as its own tables say.
    pub host: Option<String>,
    /// The rank of the process, as its own tables say.
    pub rank: Option<u32>,
    /// Names of its columns, and their SQLite affinities.
    pub columns: Vec<(String, &'static str)>,
    /// Indices of those that are times.
    pub times: Vec<usize>,
    /// By which name a statement gets the row's number.
    pub row: String,
    /// The number is the column `id`.
    pub numbered_by_id: bool,
}

/// SQLite affinities, by name and columns of a table. Files have the same few tables, and querying
/// takes a while.
pub type Affinities = HashMap<(String, Vec<String>), Vec<&'static str>>;

impl DatabaseFile {
    /// Opens a database once and returns its tables.
    ///
    /// # Errors
    /// It cannot be read, or a set of tables is of several processes.
    pub fn open(path: &Path, known: &mut Affinities) -> Result<(DatabaseFile, Vec<Part>), Error> {
        let state = state(path);
        let readable = Readable::find(path)?;
        let (readable, state) = match readable.seems_live() {
            true => (readable.snapshot()?, None),
            false => (readable, Some(state)),
        };
        let connection = readable.connect()?;
        let catalog = Catalog::read(&connection, "main", path)?;
        let mut parts = Vec::new();
        for writer in &catalog.writers {
            let database = Database { path, connection: &connection, catalog: &catalog };
            let whose = whose(&database, writer)?;
            let of_writer = catalog.tables.iter().filter(|table| table.suffix == writer.suffix);
            for table in of_writer {
                parts.push(Part::read(&database, table, writer, &whose, known)?);
            }
        }
        let source = Mutex::new(Source { readable, state, used: false });
        Ok((DatabaseFile { path: path.to_owned(), source }, parts))
    }

    /// Opens a separate connection.
    ///
    /// # Errors
    /// It cannot be opened any more, or was written to: what was read before belongs to another
    /// state.
    pub fn connect(&self) -> Result<Connection, Error> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = self.changed(&source);
        if changed && source.used {
            return Err(self.being_written());
        }
        if changed {
            (source.readable, source.state) = (source.readable.snapshot()?, None);
        }
        source.used = true;
        let connection = source.readable.connect()?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(connection)
    }

    /// # Errors
    /// Returns an error if it was written to since it was first opened.
    pub fn expect_unchanged(&self) -> Result<(), Error> {
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        if self.changed(&source) { Err(self.being_written()) } else { Ok(()) }
    }

    fn changed(&self, source: &Source) -> bool {
        source.state.as_ref().is_some_and(|before| *before != state(&self.path))
    }

    fn being_written(&self) -> Error {
        let problem = "a program began to write to it while it was read; try again".to_owned();
        Error::Database { path: self.path.clone(), problem }
    }

    /// An SQLite error about a table.
    pub fn wrong(&self, table: &str, problem: &rusqlite::Error) -> Error {
        wrong(&self.path, &format!("reading the table {table}"), problem)
    }

    /// The refusal of a row.
    pub fn refused(&self, table: &str, row: i64, problem: &str) -> Error {
        Error::Database { path: self.path.clone(), problem: format!("table {table}, row {row}: {problem}") }
    }
}

impl DatabaseFile {
    /// The refusal of a row in a table of another process.
    pub fn of_another(&self, part: &Part, row: i64) -> Error {
        let problem =
            format!("its guid differs from that of its process, {}; no profiler writes such a file", part.guid);
        self.refused(&part.name, row, &problem)
    }
}

impl Part {
    fn read(
        database: &Database<'_>,
        table: &Table,
        writer: &Writer,
        whose: &Whose,
        known: &mut Affinities,
    ) -> Result<Part, Error> {
        let path = database.path;
        let Some(row) = table.rowid.clone() else {
            let problem = format!(
                "the table {} has no row numbers (WITHOUT ROWID); recreate it with row numbers in a copy",
                table.name
            );
            return Err(Error::Database { path: path.to_owned(), problem });
        };
        let shape = (table.base.clone(), table.columns.clone());
        if !known.contains_key(&shape) {
            let declared = || -> rusqlite::Result<Vec<&'static str>> {
                let sql = "SELECT type FROM pragma_table_xinfo(?1) ORDER BY cid";
                let mut statement = database.connection.prepare_cached(sql)?;
                statement.query_map([&table.name], |row| row.get(0).map(|kind: String| affinity(&kind)))?.collect()
            };
            let declared = declared().map_err(|problem| wrong(path, "reading its contents", &problem))?;
            known.insert(shape.clone(), declared);
        }
        let columns = table.columns.iter().cloned().zip(known[&shape].iter().copied()).collect();
        Ok(Part {
            name: table.name.clone(),
            base: table.base.clone(),
            guid: whose.guid.clone(),
            host: whose.host.clone(),
            rank: whose.rank,
            major: writer.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0),
            columns,
            times: table.times.clone(),
            row,
            numbered_by_id: table.is_numbered_by_id(),
        })
    }
}

/// A time as written by an alignment; none if it is not set.
///
/// # Errors
/// There is no time in the cell, or it leaves the range of times.
pub fn aligned(value: ValueRef<'_>, map: &mut MapFunction<'_>) -> Result<Option<i64>, String> {
    moved(value, 0, map).map(|moved| moved.map(|(_, new)| new))
}

/// Owner of a set of tables.
struct Whose {
    guid: String,
    host: Option<String>,
    rank: Option<u32>,
}

/// The guid that a writer's rows have, its host and its rank.
fn whose(database: &Database<'_>, writer: &Writer) -> Result<Whose, Error> {
    let (mut guids, mut hosts, mut rank) = (BTreeSet::new(), BTreeSet::new(), None);
    database.rows(writer, "rocpd_info_node", &[GUID, "hostname"], &mut |row| {
        guids.extend(text(row.get_ref(1)?));
        hosts.extend(text(row.get_ref(2)?));
        Ok(())
    })?;
    database.rows(writer, "rocpd_info_process", &[GUID, "environment"], &mut |row| {
        guids.extend(text(row.get_ref(1)?));
        if let (None, ValueRef::Text(json) | ValueRef::Blob(json)) = (rank, row.get_ref(2)?) {
            rank = Environment::read(json).rank;
        }
        Ok(())
    })?;
    if guids.len() > 1 {
        let problem = format!(
            "the tables of the process {} contain rows of others ({}); give the databases from which they were merged",
            writer.guid,
            guids.into_iter().take(SHOWN).collect::<Vec<_>>().join(", ")
        );
        return Err(Error::Database { path: database.path.to_owned(), problem });
    }
    let host = hosts.pop_first().filter(|_| hosts.is_empty());
    Ok(Whose { guid: guids.pop_first().unwrap_or_else(|| writer.guid.clone()), host, rank })
}

/// What SQLite makes of a declared type:
/// <https://sqlite.org/datatype3.html#determination_of_column_affinity>.
fn affinity(declared: &str) -> &'static str {
    let declared = declared.to_ascii_uppercase();
    let has = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
    match () {
        () if has(&["INT"]) => "INTEGER",
        () if has(&["CHAR", "CLOB", "TEXT"]) => "TEXT",
        () if has(&["BLOB"]) || declared.is_empty() => "BLOB",
        () if has(&["REAL", "FLOA", "DOUB"]) => "REAL",
        () => "NUMERIC",
    }
}

/// State of the file and its log.
fn state(path: &Path) -> State {
    // What a link points to is what is written.
    let file = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let [_, log, _] = sidecars(&file);
    [file, log].map(|file| std::fs::metadata(file).ok().map(|found| (found.len(), found.modified().ok())))
}

/// Processes named in a refusal.
const SHOWN: usize = 3;
/// Statements that a connection keeps.
const STATEMENTS: usize = 128;
