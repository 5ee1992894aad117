//! The database file, created with tables, tags and views, and finished so that it needs no other
//! file.
//!
//! `Writer::open` creates it before the writer's thread starts, so that errors are reported there.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::error::Error;
use super::file_system::Journal;
use super::process::Process;
use crate::schema::{self, BASE_TABLES, Version, quoted};

/// The tag in `rocpd_metadata` with the number of dropped events.
pub const DROPPED_TAG: &str = "probe_sync_dropped";

/// An open database with its tables.
pub(super) struct Made {
    pub connection: Connection,
    pub path: PathBuf,
    pub journal: Journal,
}

/// Creates the file and everything in it that precedes the first event.
pub(super) fn make(path: PathBuf, journal: Option<Journal>, process: &Process) -> Result<Made, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Create { path, source }
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Nobody else's to write, whatever the umask.
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed(folder))?;
    let journal = match journal {
        Some(journal) => journal,
        None => Journal::for_folder(folder).map_err(failed(folder))?,
    };
    // SQLite itself would take a file that is there.
    OpenOptions::new().write(true).create_new(true).open(&path).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::Exists { path: path.clone() },
        _ => Error::Create { path: path.clone(), source },
    })?;
    match fill(&path, journal, process) {
        Ok((connection, journal)) => Ok(Made { connection, path, journal }),
        Err(source) => {
            for ending in ["", "-wal", "-shm", "-journal"] {
                let mut name = path.clone().into_os_string();
                name.push(ending);
                // What is not there need not be removed; what cannot be is reported with what went
                // wrong first.
                let _ = fs::remove_file(name);
            }
            Err(Error::Database { path, source })
        }
    }
}

fn fill(path: &Path, journal: Journal, process: &Process) -> rusqlite::Result<(Connection, Journal)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let mut journal = journal;
    if journal == Journal::WriteAhead && set_journal(&connection, "WAL")? != "wal" {
        journal = Journal::Rollback;
    }
    if journal == Journal::Rollback {
        // Emptied after each commit and not removed: fewer calls to the servers of a shared file
        // system.
        set_journal(&connection, "TRUNCATE")?;
    }
    // NORMAL: a database that a machine's end cannot break. References hold by construction, and
    // checking each costs as much as writing.
    connection.execute_batch(&format!(
        "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = OFF; PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -{CACHE_KIB}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES};"
    ))?;
    let suffix = schema::suffix_of(&process.guid);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for table in schema::tables(&suffix, &process.guid) {
        transaction.execute(&table.sql, [])?;
    }
    let created: String = transaction.query_row("SELECT CURRENT_TIMESTAMP", [], |row| row.get(0))?;
    let metadata = format!("INSERT INTO {} (tag, value) VALUES (?1, ?2)", quoted(&format!("rocpd_metadata{suffix}")));
    for (tag, value) in schema::tags(Version::ThreeZeroZero, &suffix, &process.guid, &created) {
        transaction.execute(&metadata, params![tag, value])?;
    }
    transaction.execute(&metadata, params![DROPPED_TAG, "0"])?;
    for base in BASE_TABLES {
        transaction.execute(&schema::union_view(base, &[&suffix]), [])?;
    }
    let known = known_columns(&transaction, &suffix)?;
    for view in schema::canonical_views(&|table, column| known.contains(&(table.to_owned(), column.to_owned()))) {
        transaction.execute(&view.sql, [])?;
    }
    add_process(&transaction, &suffix, process)?;
    add_defaults(&transaction, &suffix, process)?;
    transaction.commit()?;
    Ok((connection, journal))
}

fn known_columns(
    connection: &Connection,
    suffix: &str,
) -> rusqlite::Result<std::collections::HashSet<(String, String)>> {
    let mut known = std::collections::HashSet::new();
    let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
    for base in BASE_TABLES {
        let names = columns.query_map([format!("{base}{suffix}")], |row| row.get::<_, String>(0))?;
        for name in names {
            known.insert((base.to_owned(), name?));
        }
    }
    Ok(known)
}

fn add_process(connection: &Connection, suffix: &str, process: &Process) -> rusqlite::Result<()> {
    let [system, release, version, hardware, domain] = &process.system;
    let node = format!(
        "INSERT INTO {} (id, hash, machine_id, system_name, hostname, release, version, hardware_name, domain_name)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        quoted(&format!("rocpd_info_node{suffix}"))
    );
    let (id, hash) = (process.node_id(), process.node_hash());
    let host = &process.hostname;
    connection
        .execute(&node, params![id, hash, process.machine_id, system, host, release, version, hardware, domain])?;
    let row = format!(
        "INSERT INTO {} (id, nid, ppid, pid, init, start, command, environment) VALUES (?1, ?2, ?3, ?1, ?4, ?4, ?5, ?6)",
        quoted(&format!("rocpd_info_process{suffix}"))
    );
    // A map of strings always is JSON.
    let environment = serde_json::to_string(&process.environment).unwrap_or_else(|_| "{}".to_owned());
    let (pid, parent) = (process.pid, process.parent_pid);
    connection.execute(&row, params![pid, id, parent, process.start_ns, process.command, environment])?;
    Ok(())
}

/// Adds the defaults that events refer to: the empty string, and rocprofv3's default queue and
/// stream.
fn add_defaults(connection: &Connection, suffix: &str, process: &Process) -> rusqlite::Result<()> {
    let string = quoted(&format!("rocpd_string{suffix}"));
    connection.execute(&format!("INSERT INTO {string} (id, string) VALUES (0, '')"), [])?;
    for (base, name) in [("rocpd_info_queue", "Default Queue"), ("rocpd_info_stream", "Default Stream")] {
        let table = quoted(&format!("{base}{suffix}"));
        let sql = format!("INSERT INTO {table} (id, nid, pid, name) VALUES (0, ?1, ?2, ?3)");
        connection.execute(&sql, params![process.node_id(), process.pid, name])?;
    }
    Ok(())
}

/// Moves everything into the one file, so that no other file is needed.
pub(super) fn stand_alone(connection: &Connection) -> rusqlite::Result<()> {
    let busy = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))?;
    if busy != 0 || set_journal(connection, "DELETE")? != "delete" {
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY),
            Some("a reader holds the database".to_owned()),
        ));
    }
    Ok(())
}

/// Sets the journal mode and returns the one that SQLite chose.
fn set_journal(connection: &Connection, mode: &str) -> rusqlite::Result<String> {
    connection.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get(0))
}

/// How long a commit waits for a reader, with a rollback journal, before it is restarted; well
/// below the time that the end itself waits.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);

/// Enough for all pages that a transaction changes.
const CACHE_KIB: u32 = 16 << 10;

/// Pages of 4 KiB in the log before they are moved into the database.
const CHECKPOINT_PAGES: u32 = 4096;
