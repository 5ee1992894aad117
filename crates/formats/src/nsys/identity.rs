//! Determines which host and rank wrote a report.
//!
//! A report may hold one process of a job with its helpers, or all ranks of a node; only in the first
//! case does the environment of the profiler name a rank. Processes that ran kernels or MPI decide
//! which it is.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::reading::Database;
use crate::Error;
use crate::environment::Environment;
use crate::model::TraceFacts;
use crate::sqlite::table::{quoted, text};

/// Fills in the host and the rank. Returns true if the report contains several working processes, so
/// that it has no rank.
///
/// # Errors
/// A table cannot be read.
pub(super) fn read(database: &Database<'_>, facts: &mut TraceFacts) -> Result<bool, Error> {
    let (hostname, of_system) = system(database)?;
    facts.identity.hostname = hostname;
    let mut variables = match of_system {
        Some(text) => of_text(&text),
        None => Map::new(),
    };
    variables.extend(of_capture(database)?);
    let ranks = mpi_ranks(database)?;
    let workers = workers(database)?;
    if ranks.len() > 1 || workers.len() > 1 {
        facts.notes.push(format!(
            "the report contains {} processes that ran kernels or MPI, so it belongs to no single rank; to compare ranks, let each write \
            its own report (nsys profile below the launcher)",
            workers.len().max(ranks.len())
        ));
        return Ok(true);
    }
    if let Some(rank) = ranks.first() {
        variables.insert("MPI_COMM_WORLD_RANK".to_owned(), Value::from(*rank));
    }
    let Environment { rank, world_size, launcher, notes } = Environment::of(&variables);
    (facts.identity.rank, facts.identity.world_size, facts.identity.launcher) = (rank, world_size, launcher);
    facts.warnings.extend(notes);
    Ok(false)
}

/// Returns the host, and the environment of the profiler's agent.
fn system(database: &Database<'_>) -> Result<(Option<String>, Option<String>), Error> {
    let (mut host, mut environment) = (None, None);
    let Some(table) = database.catalog.table("TARGET_INFO_SYSTEM_ENV") else { return Ok((host, environment)) };
    let sql =
        format!("SELECT name, value FROM {} WHERE name IN ('Hostname', 'DeviceEnvironment')", quoted(&table.name));
    database.each(&table.name, &sql, &mut |row| {
        let value = text(row.get_ref(1)?).filter(|value| !value.is_empty());
        match text(row.get_ref(0)?).as_deref() {
            // What the profiler writes if it does not know the name.
            Some("Hostname") => host = value.filter(|value| value != "UNKNOWN" && value.len() <= NAME_MAX),
            _ => environment = value,
        }
        Ok(())
    })?;
    Ok((host, environment))
}

/// Splits a text of variables: `NAME=value`, separated by semicolons or, up to 2022, by zero bytes.
fn of_text(all: &str) -> Map<String, Value> {
    let separator = if all.contains('\0') { '\0' } else { ';' };
    let pair = |text: &str| text.split_once('=').map(|(name, value)| (name.to_owned(), Value::from(value)));
    all.split(separator).filter_map(pair).collect()
}

/// Reads the variables of the process that the profiler started: `NAME="value"`, one per row.
fn of_capture(database: &Database<'_>) -> Result<Map<String, Value>, Error> {
    let mut variables = Map::new();
    let Some(table) = database.catalog.table("META_DATA_CAPTURE") else { return Ok(variables) };
    let sql = format!("SELECT value FROM {} WHERE name = 'PROCESS_0:ENVIRONMENT_VARIABLE'", quoted(&table.name));
    database.each(&table.name, &sql, &mut |row| {
        if let Some((name, value)) = text(row.get_ref(0)?).as_deref().and_then(|text| text.split_once('=')) {
            let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
            variables.insert(name.to_owned(), Value::from(value));
        }
        Ok(())
    })?;
    Ok(variables)
}

/// Returns the ranks that processes had in MPI.
fn mpi_ranks(database: &Database<'_>) -> Result<BTreeSet<i64>, Error> {
    distinct(database, "MPI_RANKS", "rank")
}

/// Returns the processes that ran kernels or called MPI.
fn workers(database: &Database<'_>) -> Result<BTreeSet<i64>, Error> {
    let mut all = distinct(database, "CUPTI_ACTIVITY_KIND_KERNEL", "globalPid")?;
    let of_mpi = distinct(database, "MPI_RANKS", "globalTid")?;
    all.extend(of_mpi.into_iter().map(process_of));
    Ok(all)
}

/// Returns the distinct whole numbers in a column, at most [`DISTINCT_MAX`].
fn distinct(database: &Database<'_>, table: &str, column: &str) -> Result<BTreeSet<i64>, Error> {
    let mut found = BTreeSet::new();
    let Some(table) = database.catalog.table(table).filter(|table| table.has(column)) else { return Ok(found) };
    let column = quoted(column);
    let sql = format!(
        "SELECT DISTINCT {column} FROM {} NOT INDEXED WHERE typeof({column}) = 'integer' LIMIT {DISTINCT_MAX}",
        quoted(&table.name)
    );
    database.each(&table.name, &sql, &mut |row| {
        found.insert(row.get(0)?);
        Ok(())
    })?;
    Ok(found)
}

/// Returns the global number of a thread's process.
pub(super) fn process_of(global_tid: i64) -> i64 {
    global_tid & !LOW
}

/// Returns the system's numbers of a process and of a thread in it.
pub(super) fn pid_and_tid(global: i64) -> (i64, i64) {
    ((global >> 24) & LOW, global & LOW)
}

/// A global number has the thread in the lowest 24 bits, and the process in the next 24.
const LOW: i64 = 0xff_ffff;
/// Longest host name that is accepted, bytes.
const NAME_MAX: usize = 4096;
/// Most processes and ranks that are counted.
const DISTINCT_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_in_one_text_is_taken_apart() {
        let check = |text: &str, name: &str, expected: Option<&str>| {
            assert_eq!(of_text(text).get(name).and_then(Value::as_str), expected, "{text:?}");
        };
        check("A=1;RANK=3;B=x=y", "RANK", Some("3"));
        check("A=1;RANK=3;B=x=y", "B", Some("x=y"));
        check("A=1;2\0RANK=3\0", "A", Some("1;2"));
        check("A=1;2\0RANK=3\0", "RANK", Some("3"));
        check("", "RANK", None);
    }

    #[test]
    fn global_numbers_hold_process_and_thread() {
        let global = (1 << 48) | (118_498 << 24) | 118_499;
        assert_eq!(pid_and_tid(global), (118_498, 118_499));
        assert_eq!(pid_and_tid(process_of(global)), (118_498, 0));
    }
}
