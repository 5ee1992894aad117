//! A trace file in progress, compressed if its name ends in `.gz`.
//!
//! It is a [`super::TraceWriter`] over a file that appears once it is complete; errors name the
//! file. It does not create directories.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use probe_sync_files::AtomicFile;
use probe_sync_formats::Error;
use probe_sync_formats::chunk::Chunk;

use super::machine::Machine;
use super::report::{Meta, WriteReport};
use super::{OutputFormat, TraceWriter, open};

/// A file being written; dropped before its end it leaves nothing behind.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    writer: TraceWriter<Packer>,
}

impl TraceFile {
    /// Begins a file.
    ///
    /// # Errors
    /// [`Error::Io`]: it cannot be created.
    pub fn create(path: &Path, format: OutputFormat, meta: &Meta) -> Result<Self, Error> {
        let file = AtomicFile::create(path).map_err(Error::io(path, "create"))?;
        let packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let sink = if packed {
            Packer::Gzip(Box::new(BufWriter::new(GzEncoder::new(file, Compression::fast()))))
        } else {
            Packer::Plain(file)
        };
        Ok(Self { path: path.to_owned(), writer: open(format, sink, meta) })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// As [`TraceWriter::write`].
    ///
    /// # Errors
    /// As there, with the file named.
    pub fn write(&mut self, chunk: &Chunk) -> Result<(), Error> {
        self.writer.write(chunk).map_err(|error| with_path(&self.path, error))
    }

    /// As [`TraceWriter::on_machine`].
    ///
    /// # Errors
    /// As there, with the file named.
    pub fn on_machine(&mut self, machine: Option<&Machine>) -> Result<(), Error> {
        self.writer.on_machine(machine).map_err(|error| with_path(&self.path, error))
    }

    /// Ends the trace. The file is complete, and gets its name when it is committed.
    ///
    /// # Errors
    /// Errors of writing the file.
    pub fn finish(self) -> Result<(AtomicFile, WriteReport), Error> {
        let Self { path, writer } = self;
        let (report, sink) = writer.finish().map_err(|error| with_path(&path, error))?;
        let file = match sink {
            Packer::Plain(file) => file,
            Packer::Gzip(packer) => {
                let encoder = packer.into_inner().map_err(|error| Error::io(&path, "write")(error.into_error()))?;
                encoder.finish().map_err(Error::io(&path, "write"))?
            }
        };
        Ok((file, report))
    }

    /// Ends the trace and gives the file its name.
    ///
    /// # Errors
    /// As [`Self::finish`], and if the file cannot be renamed.
    pub fn commit(self) -> Result<WriteReport, Error> {
        let path = self.path.clone();
        let (file, report) = self.finish()?;
        file.commit().map_err(Error::io(&path, "write"))?;
        Ok(report)
    }
}

/// A writer's refusals, with the file's name.
pub fn with_path(path: &Path, error: Error) -> Error {
    match error {
        Error::Sink { source } => Error::io(path, "write")(source),
        Error::Chunk { problem } => Error::Chunk { problem: format!("for {}: {problem}", path.display()) },
        other => other,
    }
}

/// A file, compressed if its name says so.
#[derive(Debug)]
enum Packer {
    Plain(AtomicFile),
    Gzip(Box<BufWriter<GzEncoder<AtomicFile>>>),
}

impl Write for Packer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(packer) => packer.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(packer) => packer.flush(),
        }
    }
}
