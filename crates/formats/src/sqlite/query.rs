//! Statements over a database that is being read.

use std::path::Path;

use rusqlite::{Connection, Row};

use super::access::wrong;
use crate::Error;

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
