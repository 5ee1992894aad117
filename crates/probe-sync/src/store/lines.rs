//! JSON lines: one object per line, each appended as a whole.
//!
//! The marks of a process are stored this way; the records of rounds use [`super::Stream`]. A
//! killed run leaves every flushed line readable; a reader tolerates a truncated last line.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use probe_sync_files::OwnFolder;
use probe_sync_sys::process::without_size_signal;
use serde::Serialize;

use crate::Error;

/// An append-only stream of JSON objects, one per line. Two processes never overwrite each other's
/// lines: a process that hung may wake when another has taken its place.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    writer: BufWriter<File>,
    line: Vec<u8>,
}

impl JsonLines {
    /// Creates the file of this name in a folder.
    ///
    /// # Errors
    /// [`Error::File`] names the path, also if it already exists.
    pub fn create(folder: &OwnFolder, name: &str) -> Result<Self, Error> {
        let path = folder.path_of(name);
        let file = folder.create_new(name).and_then(|_| folder.append(name)).map_err(Error::file(&path, "create"))?;
        Ok(Self { path, writer: BufWriter::new(file), line: Vec::new() })
    }

    /// Appends one object.
    ///
    /// # Errors
    /// [`Error::File`] names the path, for example if the disk is full.
    pub fn append<T: Serialize>(&mut self, value: &T) -> Result<(), Error> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, value).expect("our types serialise to JSON and a Vec takes any bytes");
        self.line.push(b'\n');
        without_size_signal(|| self.writer.write_all(&self.line)).map_err(Error::file(&self.path, "append to"))
    }

    /// Passes everything to the operating system, so that a killed process loses nothing written
    /// before.
    ///
    /// # Errors
    /// [`Error::File`] names the path.
    pub fn flush(&mut self) -> Result<(), Error> {
        without_size_signal(|| self.writer.flush()).map_err(Error::file(&self.path, "append to"))
    }
}
