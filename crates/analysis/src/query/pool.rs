//! A pool that keeps few of many databases open and closes the least recently used one first.
//!
//! A database that was modified since it was first opened is refused, because one result would mix
//! rows of two states.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Error;
use probe_sync_formats::rocpd::DatabaseFile;
use rusqlite::Connection;

/// The error of a file, below SQLite, which carries only text.
pub(super) type Failure = Arc<Mutex<Option<Error>>>;

/// The files of a query.
pub(super) struct Pool {
    files: Vec<DatabaseFile>,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// Index of the file, last used last.
    connections: Vec<(usize, Connection)>,
    /// All that were opened since files were last counted.
    opened: BTreeSet<usize>,
    most: usize,
}

impl Pool {
    pub(super) fn new(files: Vec<DatabaseFile>) -> Self {
        Self { files, open: Mutex::default() }
    }

    pub(super) fn file(&self, file: usize) -> &DatabaseFile {
        &self.files[file]
    }

    /// Refuses what was read from files that were written to meanwhile.
    pub(super) fn expect_unchanged(&self) -> Result<(), Error> {
        let opened = std::mem::take(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner).opened);
        Ok(opened.into_iter().try_for_each(|file| self.files[file].expect_unchanged())?)
    }

    pub(super) fn files(&self) -> usize {
        self.files.len()
    }

    pub(super) fn most_open(&self) -> usize {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).most
    }

    /// Uses a file's connection, which is opened if needed.
    pub(super) fn with<T>(&self, file: usize, act: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Open { connections, opened, most } = &mut *open;
        match connections.iter().rposition(|(known, _)| *known == file) {
            Some(at) => connections[at..].rotate_left(1),
            None => {
                if connections.len() == OPEN_MAX {
                    connections.remove(0);
                }
                connections.push((file, self.files[file].connect()?));
                *most = connections.len().max(*most);
            }
        }
        opened.insert(file);
        let (_, connection) = connections.last().expect("it was just put there");
        act(connection)
    }
}

/// Most databases open at once. A database with a write-ahead log is three files: the total stays
/// below 64.
pub const OPEN_MAX: usize = 20;
