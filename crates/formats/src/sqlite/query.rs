//! Statements over a database that is being read.

use std::path::Path;

use rusqlite::{Connection, Row};

use super::access::wrong;
use crate::Error;

/// A database being read, with what its format knows of its tables.
pub(crate) struct Database<'a, C> {
    pub(crate) path: &'a Path,
    pub(crate) connection: &'a Connection,
    pub(crate) catalog: &'a C,
}

impl<'a, C> Database<'a, C> {
    /// Returns the connection, and the path for errors.
    pub(crate) fn source(&self) -> (&'a Connection, &'a Path) {
        (self.connection, self.path)
    }

    /// Runs a statement and passes on its rows; errors name `table`.
    pub(crate) fn each(
        &self,
        table: &str,
        statement: &str,
        take: &mut dyn FnMut(&Row<'_>) -> Result<(), Problem>,
    ) -> Result<(), Error> {
        each(self.source(), table, statement, take)
    }
}

/// Why a row was not taken.
pub(crate) enum Problem {
    /// Error of SQLite.
    Sqlite(rusqlite::Error),
    /// Another problem of the file.
    Other(Error),
}

impl From<rusqlite::Error> for Problem {
    fn from(problem: rusqlite::Error) -> Self {
        Self::Sqlite(problem)
    }
}

impl From<Error> for Problem {
    fn from(problem: Error) -> Self {
        Self::Other(problem)
    }
}

/// Runs a statement, and passes on its rows; `table` is named in errors.
///
/// # Errors
/// Returns errors of SQLite and of `take`.
pub(crate) fn each(
    (connection, path): (&Connection, &Path),
    table: &str,
    statement: &str,
    take: &mut dyn FnMut(&Row<'_>) -> Result<(), Problem>,
) -> Result<(), Error> {
    let mut run = || -> Result<(), Problem> {
        let mut statement = connection.prepare(statement)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            take(row)?;
        }
        Ok(())
    };
    run().map_err(|problem| match problem {
        Problem::Sqlite(problem) => wrong(path, &format!("reading the table {table}"), &problem),
        Problem::Other(error) => error,
    })
}
