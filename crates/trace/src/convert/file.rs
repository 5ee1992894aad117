//! One file of a conversion: a streaming writer over a file that appears when it is whole, packed where its name says so.
//!
//! Place in the flow: under the outputs of a conversion, those of all traces and those of each. What it does not do: decide what goes into it.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use probe_sync_files::AtomicFile;
use serde::Serialize;

use super::window;
use crate::Error;
use crate::calibrate::Calibrated;
use crate::model::{PS_PER_NS, Picoseconds};
use crate::write::{self, Meta, OutputFormat, TraceWriter, WriteReport};

/// One output that was written.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// The file or folder.
    pub path: PathBuf,
    /// What is in it.
    pub report: WriteReport,
}

impl Written {
    /// What the user should know of it.
    pub fn notes(&self) -> Vec<String> {
        let WriteReport { lanes, unbound_flow_ends, clock_pairs, clock_off_ns, .. } = self.report;
        let lanes = (lanes > 0).then(|| format!("{lanes} more tracks for slices that overlap without nesting"));
        let unbound = (unbound_flow_ends > 0)
            .then(|| format!("{unbound_flow_ends} ends of flows begin with no slice, and are left out"));
        let clocks = (clock_pairs > 0).then(|| {
            format!("times are on their hosts' clocks; {clock_pairs} pairs of instants state how these differ, and leave {clock_off_ns} ns at most")
        });
        lanes.into_iter().chain(unbound).chain(clocks).collect()
    }
}

/// A file that is being written.
pub(super) struct OpenFile {
    pub(super) path: PathBuf,
    pub(super) writer: TraceWriter<Packer>,
}

impl OpenFile {
    pub(super) fn create(path: &Path, format: OutputFormat, meta: &Meta) -> Result<Self, Error> {
        let file = AtomicFile::create(path).map_err(Error::io(path, "create"))?;
        let packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        let sink = if packed {
            Packer::Gzip(Box::new(BufWriter::new(GzEncoder::new(file, Compression::fast()))))
        } else {
            Packer::Plain(file)
        };
        Ok(Self { path: path.to_owned(), writer: write::open(format, sink, meta) })
    }

    pub(super) fn finish(self) -> Result<(AtomicFile, Written), Error> {
        let Self { path, writer } = self;
        let (report, sink) = writer.finish().map_err(|error| with_path(&path, error))?;
        let file = match sink {
            Packer::Plain(file) => file,
            Packer::Gzip(packer) => {
                let encoder = packer.into_inner().map_err(|error| Error::io(&path, "write")(error.into_error()))?;
                encoder.finish().map_err(Error::io(&path, "write"))?
            }
        };
        Ok((file, Written { path, report }))
    }
}

/// A writer's refusals, with the file's name.
pub(super) fn with_path(path: &Path, error: Error) -> Error {
    match error {
        Error::Sink { source } => Error::io(path, "write")(source),
        Error::Chunk { problem } => Error::Chunk { problem: format!("for {}: {problem}", path.display()) },
        other => other,
    }
}

/// A file, packed where its name says so.
pub(super) enum Packer {
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

/// A base for formats that count from one: a whole second before the first event, so that no time is negative.
pub(crate) fn base_ns(calibrated: &Calibrated) -> i64 {
    let starts = calibrated.traces.iter().filter_map(window::mapped_span).map(|(first, _)| first);
    let first = starts.min().unwrap_or(0) / PS_PER_NS;
    let whole = (first - NS_PER_S).div_euclid(NS_PER_S) * NS_PER_S;
    i64::try_from(whole.max(0)).unwrap_or(0)
}

const NS_PER_S: Picoseconds = 1_000_000_000;
