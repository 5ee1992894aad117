//! A database that is being written.
//!
//! It is made beside its name, without a journal, because a half one is thrown away; checked by
//! SQLite; then renamed.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use probe_sync_files::Draft;
use rusqlite::{Connection, OpenFlags};

use super::access::{READING, Readable, guarded, sidecars, structure, wrong};
use super::copy::Copying;
use crate::Error;

/// A database that has no name yet.
pub(crate) struct NewDatabase {
    path: PathBuf,
    file: Draft,
    pub(crate) copying: Copying,
}

impl NewDatabase {
    /// Begins an output with the page size and encoding of `like`.
    ///
    /// # Errors
    /// Returns an error if the output cannot be created, or if an earlier database left a journal
    /// beside its name.
    pub(crate) fn create(output: &Path, like: &Readable) -> Result<NewDatabase, Error> {
        let pages = like.connect()?;
        let failed = |problem: rusqlite::Error| wrong(like.named(), "reading its settings", &problem);
        let setting = |name: &str| pages.pragma_query_value(None, name, |row| row.get::<_, rusqlite::types::Value>(0));
        let page_size = setting("page_size").map_err(failed)?;
        let encoding = setting("encoding").map_err(failed)?;
        refuse_sidecars(output)?;
        let file = Draft::create(output).map_err(Error::io(output, "create"))?;
        let failed = |problem: rusqlite::Error| wrong(output, "beginning it", &problem);
        let open = || -> rusqlite::Result<Connection> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_URI
                | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = guarded(file.path(), flags)?;
            for (name, value) in [("page_size", page_size), ("encoding", encoding)] {
                connection.pragma_update(None, name, value)?;
            }
            connection.execute_batch(SETTINGS)?;
            Ok(connection)
        };
        let copying = open().and_then(Copying::new).map_err(failed)?;
        Ok(NewDatabase { path: output.to_owned(), file, copying })
    }

    /// The name that it will get.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the database and gives the file its name; returns its length, and a note about rows
    /// that refer to missing rows.
    pub(crate) fn finish(self) -> Result<(u64, Option<String>), Error> {
        let NewDatabase { path, file, copying } = self;
        let closed = copying.into_connection().close();
        closed.map_err(|(_, problem)| wrong(&path, "closing it", &problem))?;
        let dangling = check(file.path()).map_err(|problem| match problem {
            Unfit::Refused(problem) => wrong(&path, "checking it", &problem),
            Unfit::Broken(problem) => Error::Database { path: path.clone(), problem },
        })?;
        let written = std::fs::metadata(file.path()).map_err(Error::io(&path, "look at"))?.len();
        file.commit().map_err(Error::io(&path, "write"))?;
        Ok((written, dangling))
    }
}

/// Refuses a name with the journal of an earlier database beside it: opening the new one would use
/// that journal.
fn refuse_sidecars(output: &Path) -> Result<(), Error> {
    let target = std::fs::canonicalize(output).unwrap_or_else(|_| output.to_owned());
    match sidecars(&target).into_iter().find(|beside| beside.exists()) {
        Some(left) => {
            let (output, left) = (output.display(), left.display());
            let problem = format!(
                "the output {output}: {left} exists from an earlier database and would be read as part of the new one; remove it, or \
                choose another name"
            );
            Err(Error::Request { problem })
        }
        None => Ok(()),
    }
}

/// Refuses to write corrections into a database.
pub(crate) fn refuse_annotations(annotate: bool) -> Result<(), Error> {
    if annotate {
        let problem = "--annotate: the tables of a database have no column for corrections; omit it".to_owned();
        return Err(Error::Request { problem });
    }
    Ok(())
}

/// The output is not as expected.
enum Unfit {
    /// SQLite did not check it.
    Refused(rusqlite::Error),
    /// Problem found by SQLite.
    Broken(String),
}

/// Checks the output with SQLite; then returns a note about rows that refer to missing rows: those
/// come from the input. The two checks read the file in parallel.
fn check(written: &Path) -> Result<Option<String>, Unfit> {
    std::thread::scope(|scope| {
        let references = scope.spawn(|| dangling(written));
        let broken = structure(written);
        let dangling = references.join().unwrap_or_else(|panic| resume_unwind(panic));
        match broken.map_err(Unfit::Refused)?.as_str() {
            "ok" => dangling.map_err(Unfit::Refused),
            said => Err(Unfit::Broken(format!("the output is damaged ({said}); an input or the disk is faulty"))),
        }
    })
}

/// Number of references to missing rows, and the first, in words.
fn dangling(written: &Path) -> rusqlite::Result<Option<String>> {
    let connection = guarded(written, READING)?;
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    let (mut count, mut first) = (0_u64, None);
    while let Some(row) = rows.next()? {
        count += 1;
        if first.is_none() {
            first = Some((row.get::<_, String>(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, String>(2)?));
        }
    }
    Ok(first.map(|(table, row, parent)| {
        let row = row.map_or_else(String::new, |row| format!(", row {row}"));
        format!(
            "{count} references point to missing rows, as in the input; the first is in table {table}{row}, to {parent}"
        )
    }))
}

/// An incomplete output is discarded, so nothing has to be rolled back; CHECK constraints are the
/// writer's concern. All but the last apply to the output only: without a name they would apply to
/// attached inputs, too, and lock them.
const SETTINGS: &str = "PRAGMA main.journal_mode = OFF; PRAGMA main.synchronous = OFF; PRAGMA main.locking_mode = EXCLUSIVE; \
                        PRAGMA main.cache_size = -32768; PRAGMA ignore_check_constraints = ON";
