//! Opens a database read-only, in one consistent state, without running anything that it contains.
//!
//! `facts` uses a connection of its own; `copy` attaches the database to the output's connection.
//! SQLite does the reading; this module ensures that an untrusted file can only be read: no views,
//! no triggers, no trusted functions, no rows of a gigabyte.
//!
//! A writer that was killed leaves a journal (`-journal`, `-wal`) beside its database, without
//! which the file is not what was committed. SQLite must write to roll back, or to read a `-wal`
//! for which there is no shared memory yet; so both are copied into the folder for temporary files
//! first, and nothing is changed or left in the caller's.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use probe_sync_files::TemporaryFolder;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{Error, gzip};

/// A database that can be read, under a name by which SQLite opens it.
#[derive(Debug)]
pub(crate) struct Readable {
    /// The name given by the caller, for messages.
    named: PathBuf,
    /// The file that is opened: the file itself rather than a link to it, or its copy.
    opened: PathBuf,
    /// No process writes it, and SQLite need not check for writers, which would leave files beside
    /// it.
    at_rest: bool,
    /// Removed when no reader is left.
    _copy: Option<TemporaryFolder>,
}

impl Readable {
    /// Checks whether a file is a database and can be read as it is; otherwise reads a copy of it.
    ///
    /// # Errors
    /// Returns an error if it is not a database, if it is damaged, or if a program that writes it
    /// keeps it locked for longer than [`LOCKED_FOR`].
    pub(crate) fn find(path: &Path) -> Result<Readable, Error> {
        let header = Header::read(path)?;
        // What a writer leaves lies beside the file, not beside a link to it.
        let file = fs::canonicalize(path).map_err(Error::io(path, "open"))?;
        let [journal, log, shared] = sidecars(&file).map(|beside| beside.exists());
        if !(journal || log) {
            header.expect_whole(path)?;
        }
        // A log of which the shared memory is gone was left by a crash, or copied: to read it here
        // SQLite would make that again.
        if !(header.by_log && log && !shared) {
            let at_rest = header.by_log && !log;
            let in_place = Readable { named: path.to_owned(), opened: file.clone(), at_rest, _copy: None };
            match in_place.probe() {
                Ok(()) => return Ok(in_place),
                Err(problem) if needs_writing(&problem) && (journal || log) => {}
                Err(problem) => return Err(wrong(path, "opening it", &problem)),
            }
        }
        let copied = Self::copy(path, &file)?;
        copied.recover().map_err(|problem| wrong(path, "reading it with its journal", &problem))?;
        Ok(copied)
    }

    /// A connection of its own, on which one state of the file is seen.
    pub(crate) fn connect(&self) -> Result<Connection, Error> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = guarded(self.uri(), READING)?;
            connection.execute_batch("BEGIN; SELECT count(*) FROM sqlite_master")?;
            Ok(connection)
        };
        let opened = patiently(open);
        opened.map_err(|problem| wrong(&self.named, "opening it", &problem))
    }

    /// Whether a program seems to have the database open for writing: there are files of its writer
    /// beside it, or it was recently modified.
    pub(crate) fn seems_live(&self) -> bool {
        let is_recent = |path: &Path| {
            let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
            modified.is_ok_and(|modified| modified.elapsed().map_or(true, |age| age < LATELY))
        };
        let [journal, log, _] = sidecars(&self.opened);
        journal.exists() || log.exists() || is_recent(&self.opened)
    }

    /// Copies the last committed state into the folder for temporary files, so that it can be read
    /// any number of times while its writer continues.
    pub(crate) fn snapshot(&self) -> Result<Readable, Error> {
        let temporary = std::env::temp_dir();
        let bytes = fs::metadata(&self.opened).map_err(Error::io(&self.named, "look at"))?.len();
        let folder = TemporaryFolder::create(bytes).map_err(Error::io(&temporary, "create a folder in"))?;
        let opened = folder.path().join("copy.db");
        let from = self.connect()?;
        let copy = || -> rusqlite::Result<StepResult> {
            let mut to = guarded(&opened, OpenFlags::default())?;
            Backup::new(&from, &mut to)?.step(ALL_PAGES)
        };
        let copied = copy().map_err(|problem| wrong(&self.named, "copying its current state", &problem))?;
        if copied != StepResult::Done {
            let problem = "its writer has locked it; wait until the writer is done".to_owned();
            return Err(Error::Database { path: self.named.clone(), problem });
        }
        Ok(Readable { named: self.named.clone(), opened, at_rest: true, _copy: Some(folder) })
    }

    /// The name given by the caller.
    pub(crate) fn named(&self) -> &Path {
        &self.named
    }

    /// The file as a name by which it is opened for reading only.
    pub(crate) fn uri(&self) -> String {
        let mut uri = String::from("file://");
        for byte in self.opened.as_os_str().as_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
                other => uri.push_str(&format!("%{other:02X}")),
            }
        }
        uri.push_str(if self.at_rest { "?mode=ro&immutable=1" } else { "?mode=ro" });
        uri
    }

    /// Goes through all pages and rows as committed; CHECK constraints are the writer's concern.
    ///
    /// # Errors
    /// States what is damaged.
    pub(crate) fn expect_whole(&self) -> Result<(), Error> {
        let check = || structure(Path::new(&self.uri()));
        match check().map_err(|problem| wrong(&self.named, "checking it", &problem))?.as_str() {
            "ok" => Ok(()),
            said => {
                let problem = format!("is damaged ({said}); copy it from its node again, or omit it");
                Err(Error::Database { path: self.named.clone(), problem })
            }
        }
    }

    fn probe(&self) -> rusqlite::Result<()> {
        patiently(|| count_entries(&guarded(self.uri(), READING)?))
    }

    /// Copies the database and its writer's files beside it into a folder where SQLite may write.
    fn copy(path: &Path, file: &Path) -> Result<Readable, Error> {
        let temporary = std::env::temp_dir();
        let sidecars_of_file = sidecars(file);
        let parts = std::iter::once(file).chain(sidecars_of_file.iter().map(PathBuf::as_path));
        let bytes: u64 = parts.filter_map(|part| part.metadata().ok()).map(|part| part.len()).sum();
        let folder = TemporaryFolder::create(bytes).map_err(Error::io(&temporary, "create a folder in"))?;
        let opened = folder.path().join("copy.db");
        let before = length(file)?;
        fs::copy(file, &opened).map_err(Error::io(path, "copy"))?;
        let [journal, log, _] = sidecars_of_file;
        let [to_journal, to_log, _] = sidecars(&opened);
        for (beside, to) in [(journal, to_journal), (log, to_log)].iter().filter(|(beside, _)| beside.exists()) {
            fs::copy(beside, to).map_err(Error::io(beside, "copy"))?;
        }
        let after = length(file)?;
        if before != after {
            let problem = "changed while it was read; wait until its writer is done".to_owned();
            return Err(Error::Database { path: path.to_owned(), problem });
        }
        Ok(Readable { named: path.to_owned(), opened, at_rest: false, _copy: Some(folder) })
    }

    /// Opens the copy for writing once, so that SQLite brings it to the committed state.
    fn recover(&self) -> rusqlite::Result<()> {
        count_entries(&guarded(&self.opened, OpenFlags::SQLITE_OPEN_READ_WRITE)?)
    }
}

/// `ok`, or the first problem of pages and rows.
pub(crate) fn structure(file: &Path) -> rusqlite::Result<String> {
    let connection = guarded(file, READING)?;
    connection.execute_batch("PRAGMA ignore_check_constraints = ON")?;
    connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
}

/// Opens a database, and disables everything that its contents could trigger.
pub(crate) fn guarded(file: impl AsRef<Path>, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(file, flags)?;
    guard(&connection)?;
    Ok(connection)
}

/// Reads the definitions, by which SQLite sees whether it can read at all.
fn count_entries(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))
}

/// Disables everything that a database's contents could trigger, and limits their cost.
pub(crate) fn guard(connection: &Connection) -> rusqlite::Result<()> {
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

/// An SQLite error with the file, and the remedy.
pub(crate) fn wrong(path: &Path, doing: &str, problem: &rusqlite::Error) -> Error {
    let remedy = match problem.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            ": a program that writes to it has locked it; wait until that program is done"
        }
        Some(ErrorCode::DatabaseCorrupt) => {
            ": the file is damaged or truncated; copy it from its node again, or omit it"
        }
        Some(ErrorCode::NotADatabase) => ": it is not a SQLite database, or it is encrypted or damaged at the start",
        Some(ErrorCode::TooBig) => ": a row is longer than 32 MiB, which no profiler writes; omit the file",
        Some(ErrorCode::AuthorizationForStatementDenied) => {
            ": its definition does more than create it, which no profiler writes; the file was tampered with"
        }
        Some(ErrorCode::DiskFull) => ": no space left for the output",
        _ => "",
    };
    Error::Database { path: path.to_owned(), problem: format!("{doing}: {problem}{remedy}") }
}

/// What the first page of a database says about the file.
#[derive(Copy, Clone)]
struct Header {
    /// It uses a write-ahead log (`-wal`).
    by_log: bool,
    /// Length of the file, bytes.
    length: u64,
    /// Length stated by the file; old writers do not state it.
    stated: Option<u64>,
}

impl Header {
    /// Reads it.
    ///
    /// # Errors
    /// The file is empty, or begins otherwise than every database.
    fn read(path: &Path) -> Result<Header, Error> {
        let mut head = Vec::with_capacity(HEADER_BYTES);
        let file = File::open(path).map_err(Error::io(path, "open"))?;
        let length = file.metadata().map_err(Error::io(path, "look at"))?.len();
        file.take(HEADER_BYTES as u64).read_to_end(&mut head).map_err(Error::io(path, "read"))?;
        if head.is_empty() {
            return Err(Error::malformed(path, 0, "is empty"));
        }
        if !head.starts_with(MAGIC) {
            let problem = match gzip::is_packed(&head) {
                true => "is compressed with gzip; decompress it first (gunzip), because a database is read in place",
                false => "is not a SQLite database: it does not begin with \"SQLite format 3\"",
            };
            return Err(Error::malformed(path, 0, problem));
        }
        let by_log = head.get(WRITES_BY..=READS_BY).is_some_and(|by| by.contains(&BY_LOG));
        let number =
            |at: usize| head.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes);
        let page = head.get(PAGE_SIZE_AT..PAGE_SIZE_AT + 2).map_or(0, |two| u64::from(two[0]) << 8 | u64::from(two[1]));
        // 65536 does not fit its two bytes.
        let page = if page == 1 { 1 << 16 } else { page };
        // Old writers do not count pages; the number then belongs to an earlier change.
        let counted = number(CHANGES_AT) == number(COUNTED_AT);
        let stated = counted.then(|| u64::from(number(PAGES_AT)) * page);
        Ok(Header { by_log, length, stated })
    }

    /// Refuses a file that is shorter than it states: its last pages may belong to tables that are
    /// not read. For a moment the file of a writer that commits looks like that too.
    fn expect_whole(mut self, path: &Path) -> Result<(), Error> {
        for _ in 0..TRIES {
            if self.stated.is_none_or(|stated| self.length >= stated) {
                return Ok(());
            }
            std::thread::sleep(PAUSE);
            self = Self::read(path)?;
        }
        let (length, stated) = (self.length, self.stated.unwrap_or(0));
        let problem =
            format!("is truncated: it has {length} of {stated} bytes; copy it from its node again, or omit it");
        Err(Error::Database { path: path.to_owned(), problem })
    }
}

/// Whether SQLite wants to write before it can read.
fn needs_writing(problem: &rusqlite::Error) -> bool {
    matches!(problem.sqlite_error_code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen))
}

/// The journal, the log, and the log's shared memory that may be beside a database.
pub(crate) fn sidecars(path: &Path) -> [PathBuf; 3] {
    ["-journal", "-wal", "-shm"].map(|ending| {
        let mut name: OsString = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    })
}

fn length(path: &Path) -> Result<(u64, Option<std::time::SystemTime>), Error> {
    let metadata = fs::metadata(path).map_err(Error::io(path, "look at"))?;
    Ok((metadata.len(), metadata.modified().ok()))
}

/// First bytes of every database.
pub(crate) const MAGIC: &[u8] = b"SQLite format 3\0";
/// Bytes of a database's header.
const HEADER_BYTES: usize = 100;
/// Position of the page size.
const PAGE_SIZE_AT: usize = 16;
/// Position of the write and read versions, and their value for a write-ahead log.
const WRITES_BY: usize = 18;
const READS_BY: usize = 19;
const BY_LOG: u8 = 2;
/// Positions of the change counter, of the number of pages, and of the change at which these were
/// counted.
const CHANGES_AT: usize = 24;
const PAGES_AT: usize = 28;
const COUNTED_AT: usize = 92;
/// Tries again if SQLite wants to write: for a moment a live writer's journal looks like an
/// abandoned one.
fn patiently<T>(open: impl Fn() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
    for _ in 0..TRIES {
        match open() {
            Err(problem) if needs_writing(&problem) => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
    open()
}

/// Number and interval of attempts while a writer is in the middle of a commit.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(5);
/// A database that was written to so lately may be written to again at any moment.
const LATELY: Duration = Duration::from_secs(2);
/// A copy is made in one step.
const ALL_PAGES: i32 = -1;
/// How long a writer may keep a database locked before it is refused.
const LOCKED_FOR: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });
/// The longest row that is read; the profiler's are below a kilobyte, with a long environment some
/// hundred.
const LONGEST_ROW: i32 = 32 << 20;
/// How to open a file that is not written to.
pub(crate) const READING: OpenFlags =
    OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_URI).union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
