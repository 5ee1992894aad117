//! What an alignment states about a database: a table of its own, so that the profiler's tables stay
//! unchanged.

use std::path::Path;

use rusqlite::{Connection, params};

use super::query::each;
use super::table::{Table, quoted, text};
use crate::{ALIGNED_SIGMA, ALIGNED_TO, Error};

/// Statements of an earlier alignment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aligned {
    /// The clock that the times were brought to.
    pub(crate) to: Option<String>,
    /// Uncertainty of the times on that clock, ns.
    pub(crate) sigma_ns: Option<f64>,
}

impl Aligned {
    /// Reads the statements; `schema` is the name under which the database is attached.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(crate) fn read(
        (connection, path): (&Connection, &Path),
        schema: &str,
        tables: &[Table],
    ) -> Result<Aligned, Error> {
        let mut aligned = Aligned::default();
        let table = tables.iter().find(|table| table.name == METADATA);
        each_pair((connection, path), schema, table, &mut |name, value| match name {
            ALIGNED_TO => aligned.to = Some(value),
            ALIGNED_SIGMA => aligned.sigma_ns = value.parse().ok(),
            _ => {}
        })?;
        Ok(aligned)
    }

    /// Refuses to align a database twice; `original` is what to give instead.
    pub(crate) fn refuse_second(
        &self,
        input: &Path,
        metadata: &[(String, String)],
        original: &str,
    ) -> Result<(), Error> {
        match &self.to {
            Some(clock) if metadata.iter().any(|(name, _)| name == ALIGNED_TO) => {
                let problem = format!("is already aligned, to the {clock}; give {original}");
                Err(Error::Database { path: input.to_owned(), problem })
            }
            _ => Ok(()),
        }
    }
}

/// Passes on the rows of a table with the columns name and value; none if there is no such table.
///
/// # Errors
/// The table cannot be read.
pub(crate) fn each_pair(
    source: (&Connection, &Path),
    schema: &str,
    table: Option<&Table>,
    take: &mut dyn FnMut(&str, String),
) -> Result<(), Error> {
    let Some(table) = table.filter(|table| table.has("name") && table.has("value")) else { return Ok(()) };
    let sql = format!("SELECT name, value FROM {schema}.{}", quoted(&table.name));
    each(source, &table.name, &sql, &mut |row| {
        if let (Some(name), Some(value)) = (text(row.get_ref(0)?), text(row.get_ref(1)?)) {
            take(&name, value);
        }
        Ok(())
    })
}

/// Writes the statements of an alignment, if there are any.
pub(crate) fn write(connection: &Connection, metadata: &[(String, String)]) -> rusqlite::Result<()> {
    if metadata.is_empty() {
        return Ok(());
    }
    let table = quoted(METADATA);
    connection.execute_batch(&format!("CREATE TABLE IF NOT EXISTS main.{table} (name TEXT NOT NULL, value TEXT)"))?;
    let mut insert = connection.prepare(&format!("INSERT INTO main.{table} (name, value) VALUES (?1, ?2)"))?;
    metadata.iter().try_for_each(|(name, value)| insert.execute(params![name, value]).map(drop))
}

/// The table's name.
const METADATA: &str = "probe_sync_metadata";
