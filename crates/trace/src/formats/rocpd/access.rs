//! How a database is opened: for reading, without running anything that stands in it, in one consistent state.
//!
//! Place in the flow: under `facts` (a connection of its own) and `copy` (attached to the output's connection). SQLite does the
//! reading; what is here sees to it that a file of somebody else cannot do more than be read: no views, no triggers, no trusted
//! functions, no rows of a gigabyte.
//!
//! A writer that was killed leaves a journal (`-journal`, `-wal`) beside its database, without which the file is not what was
//! committed. SQLite must write to roll back, or to read a `-wal` for which there is no shared memory yet; where it may not, or would
//! change the caller's file, both are copied into the folder for temporary files first.
//! What it does not do: know tables.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tempfile::TempDir;

use crate::Error;

/// A database that can be read, under a name by which SQLite opens it.
#[derive(Debug)]
pub(super) struct Readable {
    /// What the caller named, for messages.
    named: PathBuf,
    /// What is opened: the same, or its copy.
    opened: PathBuf,
    /// Removed when nobody reads any more.
    _copy: Option<TempDir>,
}

impl Readable {
    /// Looks whether a file is a database and can be read as it is; else reads a copy of it.
    ///
    /// # Errors
    /// It is none, it is damaged, or a program that writes it holds it locked for longer than [`LOCKED_FOR`].
    pub(super) fn find(path: &Path) -> Result<Readable, Error> {
        expect_magic(path)?;
        let in_place = Readable { named: path.to_owned(), opened: path.to_owned(), _copy: None };
        let problem = match in_place.probe() {
            Ok(()) => return Ok(in_place),
            Err(problem) => problem,
        };
        if !(needs_writing(&problem) && sidecars(path).any(|beside| beside.exists())) {
            return Err(wrong(path, "opening it", &problem));
        }
        let copied = Self::copy(path)?;
        copied.recover().map_err(|problem| wrong(path, "reading it with the journal beside it", &problem))?;
        Ok(copied)
    }

    /// A connection of its own, on which one state of the file is seen.
    pub(super) fn connect(&self) -> Result<Connection, Error> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = Connection::open_with_flags(&self.opened, READING)?;
            guard(&connection)?;
            connection.execute_batch("BEGIN; SELECT count(*) FROM sqlite_master")?;
            Ok(connection)
        };
        open().map_err(|problem| wrong(&self.named, "opening it", &problem))
    }

    /// The file as a name for ATTACH, which opens it for reading only.
    pub(super) fn uri(&self) -> String {
        let mut uri = String::from("file:");
        for byte in self.opened.as_os_str().as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
                other => uri.push_str(&format!("%{other:02X}")),
            }
        }
        uri.push_str("?mode=ro");
        uri
    }

    /// Looks through all pages and rows, as they were committed; CHECKs were the writer's business.
    ///
    /// # Errors
    /// Says what is damaged.
    pub(super) fn expect_whole(&self) -> Result<(), Error> {
        let check = || structure(&self.opened);
        match check().map_err(|problem| wrong(&self.named, "checking it", &problem))?.as_str() {
            "ok" => Ok(()),
            said => {
                let problem = format!("is damaged ({said}); copy it again from its node, or leave it out");
                Err(Error::Database { path: self.named.clone(), problem })
            }
        }
    }

    fn probe(&self) -> rusqlite::Result<()> {
        let connection = Connection::open_with_flags(&self.opened, READING)?;
        guard(&connection)?;
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))
    }

    /// The database and what its writer left beside it, in a folder where SQLite may write.
    fn copy(path: &Path) -> Result<Readable, Error> {
        let folder = TempDir::new().map_err(Error::io(&std::env::temp_dir(), "create a folder in"))?;
        let name = path.file_name().unwrap_or_default();
        let opened = folder.path().join(name);
        let before = length(path)?;
        fs::copy(path, &opened).map_err(Error::io(path, "copy"))?;
        for (beside, to) in sidecars(path).zip(sidecars(&opened)).filter(|(beside, _)| beside.exists()) {
            fs::copy(&beside, &to).map_err(Error::io(&beside, "copy"))?;
        }
        let after = length(path)?;
        if before != after {
            let problem = "is being written while it is read; wait until its writer is done".to_owned();
            return Err(Error::Database { path: path.to_owned(), problem });
        }
        Ok(Readable { named: path.to_owned(), opened, _copy: Some(folder) })
    }

    /// Opens the copy for writing once, by which SQLite brings it to what was committed.
    fn recover(&self) -> rusqlite::Result<()> {
        let connection = Connection::open_with_flags(&self.opened, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        guard(&connection)?;
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))
    }
}

/// `ok`, or the first thing that is wrong with pages and rows.
pub(super) fn structure(path: &Path) -> rusqlite::Result<String> {
    let connection = Connection::open_with_flags(path, READING)?;
    guard(&connection)?;
    connection.execute_batch("PRAGMA ignore_check_constraints = ON")?;
    connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}

/// Takes every power from what stands in a database, and bounds what it may cost.
pub(super) fn guard(connection: &Connection) -> rusqlite::Result<()> {
    for (config, to) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false),
    ] {
        connection.set_db_config(config, to)?;
    }
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_ROW)?;
    connection.busy_timeout(LOCKED_FOR)?;
    // A page whose cells overlap is found where it is read, not in the values that come out.
    connection.execute_batch("PRAGMA cell_size_check = ON")
}

/// An error of SQLite with the file, and what can be done about it.
pub(super) fn wrong(path: &Path, doing: &str, problem: &rusqlite::Error) -> Error {
    let remedy = match problem.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            ": a program that writes it holds it locked; wait until it is done"
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            ": the file is damaged or cut short; copy it again from its node, or leave it out"
        }
        Some(ErrorCode::NotADatabase) => ": it is no SQLite database, or encrypted, or damaged at its beginning",
        Some(ErrorCode::TooBig) => ": a row is longer than 256 MiB",
        Some(ErrorCode::AuthorizationForStatementDenied) => {
            ": its definition does more than make it, as no profiler's does; the file was tampered with"
        }
        Some(ErrorCode::DiskFull) => ": there is no space left for the output",
        _ => "",
    };
    Error::Database { path: path.to_owned(), problem: format!("{doing}: {problem}{remedy}") }
}

/// Refuses what is empty or begins otherwise than every database.
fn expect_magic(path: &Path) -> Result<(), Error> {
    let mut head = Vec::with_capacity(MAGIC.len());
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    file.take(MAGIC.len() as u64).read_to_end(&mut head).map_err(Error::io(path, "read"))?;
    match head.as_slice() {
        MAGIC => Ok(()),
        [] => Err(Error::malformed(path, 0, "is empty")),
        _ => Err(Error::malformed(path, 0, "is no SQLite database: it does not begin with \"SQLite format 3\"")),
    }
}

/// Whether SQLite wants to write before it can read.
fn needs_writing(problem: &rusqlite::Error) -> bool {
    matches!(problem.sqlite_error_code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen))
}

/// The journal and the log that may lie beside a database.
fn sidecars(path: &Path) -> impl Iterator<Item = PathBuf> {
    let path = path.as_os_str().to_owned();
    ["-journal", "-wal"].into_iter().map(move |ending| {
        let mut name: OsString = path.clone();
        name.push(ending);
        PathBuf::from(name)
    })
}

fn length(path: &Path) -> Result<(u64, Option<std::time::SystemTime>), Error> {
    let metadata = fs::metadata(path).map_err(Error::io(path, "look at"))?;
    Ok((metadata.len(), metadata.modified().ok()))
}

/// What every database begins with.
pub(super) const MAGIC: &[u8] = b"SQLite format 3\0";
/// How long a writer may hold a database locked before it is refused.
const LOCKED_FOR: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// The longest row that is read; the profiler's are below a kilobyte, with a long environment some hundred.
const LONGEST_ROW: i32 = 256 << 20;
/// How a file is opened that nothing is written to.
pub(super) const READING: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
