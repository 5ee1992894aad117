//! The definitions in a database: tables with their columns, and indexes.
//!
//! Which tables and columns belong to a profiler is decided by its format.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

pub(crate) use probe_sync_rocpd::schema::quoted;
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::access::{MAGIC, Readable, wrong};
use crate::Error;
use crate::chunk::{Strings, Value};

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Its name.
    pub(crate) name: String,
    /// Its definition.
    pub(crate) sql: String,
    /// Names of its columns.
    pub(crate) columns: Vec<String>,
    /// Indices of those that are times.
    pub(crate) times: Vec<usize>,
    /// The name by which a statement gets the row's number; `None` if there is none (WITHOUT
    /// ROWID), or if columns have taken all its names.
    pub(crate) rowid: Option<String>,
}

/// An index, or a view, whose table is its own name.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) table: String,
    pub(crate) sql: String,
}

/// A row of `sqlite_master`.
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) table: String,
    pub(crate) sql: String,
}

impl Entry {
    /// Reads all entries of a schema (`main`, or the name under which a file is attached).
    pub(crate) fn all(connection: &Connection, schema: &str, path: &Path) -> Result<Vec<Entry>, Error> {
        let read = || -> rusqlite::Result<Vec<Entry>> {
            let sql = format!("SELECT type, name, tbl_name, sql FROM {schema}.sqlite_master");
            let mut statement = connection.prepare(&sql)?;
            let entries = statement.query_map([], |row| {
                let text = |at: usize| row.get_ref(at).map(|value| text(value).unwrap_or_default());
                Ok(Entry { kind: text(0)?, name: text(1)?, table: text(2)?, sql: text(3)? })
            })?;
            entries.collect()
        };
        read().map_err(|problem| wrong(path, "reading its contents", &problem))
    }

    /// Returns false if a file is no database, or one without a table that `is_known` accepts by its
    /// name. A database that cannot be opened is accepted: reading it tells what is wrong.
    pub(crate) fn any_table(path: &Path, is_known: &dyn Fn(&str) -> bool) -> bool {
        let begins = || -> io::Result<bool> {
            let mut head = Vec::with_capacity(MAGIC.len());
            File::open(path)?.take(MAGIC.len() as u64).read_to_end(&mut head).map(|_| head == MAGIC)
        };
        let named = || {
            let connection = Readable::find(path)?.connect()?;
            Ok::<_, Error>(Entry::all(&connection, "main", path)?.iter().any(|entry| is_known(&entry.name)))
        };
        begins().unwrap_or(true) && named().unwrap_or(true)
    }

    /// The refusal of an entry that would run when its table is read or copied.
    pub(crate) fn refusal(&self, path: &Path) -> Error {
        let Entry { kind, name, table, .. } = self;
        let problem = format!(
            "{kind} {name} on {table}: profilers do not write these, and copying the table would run it; DROP {} {name} \
            in a copy of the file first",
            kind.to_uppercase()
        );
        Error::Database { path: path.to_owned(), problem }
    }
}

impl Table {
    /// Reads the columns of a table; `is_time` decides by name and declared type which are times.
    ///
    /// # Errors
    /// Returns an error if the table is virtual or has generated columns: reading either would run
    /// code.
    pub(crate) fn read(
        connection: &Connection,
        schema: &str,
        path: &Path,
        Entry { name, sql, .. }: Entry,
        is_time: &dyn Fn(&str, &str) -> bool,
    ) -> Result<Table, Error> {
        // pragma_table_list, which knows the type, prepares to read each virtual table: its module runs.
        let begins = sql.get(..ORDINARY.len()).unwrap_or_default();
        if !begins.eq_ignore_ascii_case(ORDINARY) {
            let problem = format!(
                "the table {name} is virtual, or its definition does not begin with {ORDINARY}, and reading it could run code; drop it in \
                a copy of the file first"
            );
            return Err(Error::Database { path: path.to_owned(), problem });
        }
        let (columns, rowid) = columns(connection, schema, path, &name)?;
        let is_time = |at: &usize| is_time(&columns[*at].0, &columns[*at].1);
        let times = (0..columns.len()).filter(is_time).collect();
        let columns = columns.into_iter().map(|(column, _)| column).collect();
        Ok(Table { sql, columns, times, rowid, name })
    }

    /// The columns' names for a statement, in order.
    pub(crate) fn list(&self) -> String {
        self.columns.iter().map(|column| quoted(column)).collect::<Vec<_>>().join(", ")
    }

    /// A row's number, for a statement that knows the table by this name.
    pub(crate) fn row(&self, name: &str) -> String {
        self.rowid.as_ref().map_or_else(|| "NULL".to_owned(), |number| format!("{name}.{}", quoted(number)))
    }

    /// A column, for a statement that uses this name for the table; NULL if there is none.
    pub(crate) fn column(&self, name: &str, column: &str) -> String {
        if self.has(column) { format!("{name}.{}", quoted(column)) } else { "NULL".to_owned() }
    }

    pub(crate) fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|known| known == column)
    }
}

/// A table's columns with their declared types, and the name of the row's number.
#[expect(clippy::type_complexity, reason = "returned and taken apart in one place")]
fn columns(
    connection: &Connection,
    schema: &str,
    path: &Path,
    name: &str,
) -> Result<(Vec<(String, String)>, Option<String>), Error> {
    let failed = |problem: rusqlite::Error| wrong(path, &format!("reading the columns of {name}"), &problem);
    let mut statement = connection
        .prepare("SELECT name, type, pk, hidden FROM pragma_table_xinfo(?1, ?2) ORDER BY cid")
        .map_err(failed)?;
    let mut rows = statement.query([name, schema]).map_err(failed)?;
    let (mut columns, mut keys) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next().map_err(failed)? {
        let column: String = row.get(0).map_err(failed)?;
        let (declared, key, hidden): (String, i64, i64) =
            (row.get(1).map_err(failed)?, row.get(2).map_err(failed)?, row.get(3).map_err(failed)?);
        if hidden != 0 {
            let problem = format!(
                "the column {column} of the table {name} is generated, and reading it would run code; store its values in an ordinary column"
            );
            return Err(Error::Database { path: path.to_owned(), problem });
        }
        if key != 0 {
            keys.push((columns.len(), declared.eq_ignore_ascii_case("INTEGER")));
        }
        columns.push((column, declared));
    }
    // A key of one whole number is the row's number itself, unless SQLite keeps an index for it:
    // then it is a column like others.
    let of_index = "SELECT count(*) FROM pragma_index_list(?1, ?2) WHERE origin = 'pk'";
    let indexed: i64 = connection.query_row(of_index, [name, schema], |row| row.get(0)).map_err(failed)?;
    let rowid = match keys[..] {
        [(at, true)] if indexed == 0 => Some(columns[at].0.clone()),
        _ => {
            let free = |of: &&str| !columns.iter().any(|(column, _)| column.eq_ignore_ascii_case(of));
            let known =
                |of: &&str| connection.prepare(&format!("SELECT {of} FROM {schema}.{} LIMIT 0", quoted(name))).is_ok();
            ["rowid", "_rowid_", "oid"].into_iter().filter(free).find(known).map(str::to_owned)
        }
    };
    Ok((columns, rowid))
}

/// A cell as text, with invalid UTF-8 replaced; `None` for NULL.
pub(crate) fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Null => None,
    }
}

/// A cell as an argument of an event; `None` for NULL.
pub(crate) fn argument(value: ValueRef<'_>, strings: &mut Strings) -> Option<Value> {
    Some(match value {
        ValueRef::Null => return None,
        ValueRef::Integer(value) => Value::Integer(value),
        ValueRef::Real(value) => Value::Float(value),
        other => Value::Text(strings.push(&text(other).unwrap_or_default())),
    })
}

/// How SQLite writes the definition of each table that is not virtual, whatever its author wrote.
const ORDINARY: &str = "CREATE TABLE ";
