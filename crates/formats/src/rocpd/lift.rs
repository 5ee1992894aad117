//! Converts a database from one schema to another if the two differ only in tags.
//!
//! A merge does this on request only. Schema 3, of ROCm 7.0, and 3.0.0 have the same tables;
//! readers of 2026 also require three numbers and a creation date among the tags. Branches have
//! used one number for different tables, so the columns decide. It does not add tables or columns.

use std::path::Path;

use probe_sync_rocpd::schema::{self, Version};
use rusqlite::{Connection, params};

use super::catalog::{Catalog, METADATA, Writer, quoted};
use crate::Error;
use crate::sqlite::access::wrong;

/// Refuses a database that cannot be lifted to the wanted schema.
///
/// # Errors
/// States what it lacks, or which schemas are available.
pub(super) fn expect_liftable(path: &Path, catalog: &Catalog, wanted: &str) -> Result<(), Error> {
    let refuse = |problem: String| Err(Error::Database { path: path.to_owned(), problem });
    let Some(other) = catalog.writers.iter().find(|writer| writer.version != wanted) else { return Ok(()) };
    let version = &other.version;
    if (version.as_str(), wanted) != (Version::Three.text(), Version::ThreeZeroZero.text()) {
        return refuse(format!("has schema {version}, but --schema {wanted} can only convert schema 3 to 3.0.0"));
    }
    for (base, columns) in known_columns().map_err(|problem| wrong(path, "comparing its tables", &problem))? {
        for table in catalog.of_base(base) {
            if table.columns != columns {
                let name = &table.name;
                return refuse(format!(
                    "the table {name} does not match schema 3.0.0, despite its version number; omit --schema"
                ));
            }
        }
    }
    Ok(())
}

/// Writes the tags of the wanted schema into a copied database.
pub(super) fn lift(connection: &Connection, writer: &Writer) -> rusqlite::Result<()> {
    let table = quoted(&format!("{METADATA}{}", writer.suffix));
    let created = created(connection, writer)?;
    let version = format!("UPDATE main.{table} SET value = ?1 WHERE tag = 'schema_version'");
    connection.execute(&version, [Version::ThreeZeroZero.text()])?;
    let insert = format!(
        "INSERT INTO main.{table} (tag, value) SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM main.{table} WHERE tag = ?1)"
    );
    for (tag, value) in schema::tags(Version::ThreeZeroZero, &writer.suffix, &writer.guid, &created) {
        connection.execute(&insert, params![tag, value])?;
    }
    Ok(())
}

/// When the tables were created, as a date: profilers create them as the process ends. Taken from
/// the end of the process on the output's clock, in 1970 if that counts from boot. The present time
/// would make outputs of equal inputs differ, and would be wrong.
fn created(connection: &Connection, writer: &Writer) -> rusqlite::Result<String> {
    let table = quoted(&format!("rocpd_info_process{}", writer.suffix));
    let ended = format!(
        "SELECT coalesce(datetime(max(max(coalesce(fini, 0), coalesce(\"end\", 0), coalesce(start, 0))) / 1000000000, 'unixepoch'), \
         datetime(0, 'unixepoch')) FROM main.{table}"
    );
    connection.query_row(&ended, [], |row| row.get(0))
}

/// The columns of each table of schema 3 and 3.0.0.
fn known_columns() -> rusqlite::Result<Vec<(&'static str, Vec<String>)>> {
    let connection = Connection::open_in_memory()?;
    let tables = schema::tables("", "");
    tables.iter().try_for_each(|table| connection.execute_batch(&table.sql))?;
    let columns = |name: &str| -> rusqlite::Result<Vec<String>> {
        let statement = connection.prepare(&format!("SELECT * FROM {}", quoted(name)))?;
        Ok(statement.column_names().map(str::to_owned).collect())
    };
    tables.iter().map(|table| Ok((table.base, columns(&table.name)?))).collect()
}
