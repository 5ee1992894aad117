//! A track that a merge adds to the traces.
//!
//! Viewers' formats take its chunk with the others. A merge within Kineto or XSpace takes a small
//! trace of that format as an additional input.

use std::fmt;
use std::path::PathBuf;

use crate::Error;
use probe_sync_formats::chunk::Chunk;
use probe_sync_writers::{Meta, OutputFormat, TraceFile};
use tempfile::TempDir;

use crate::calibrated::Calibrated;

/// Makes a track out of the traces of a merge.
pub trait AddedTrack: fmt::Debug + Send + Sync {
    /// Returns what the track is called in the merged file.
    fn name(&self) -> &'static str;

    /// Returns the track in a process of this name and number, on the reference clock.
    ///
    /// # Errors
    /// The traces do not carry it, or one of them cannot be read.
    fn chunk(&self, calibrated: &Calibrated, process: &str, pid: i64) -> Result<Chunk, Error>;
}

/// Writes the track as a trace of its own, in a folder that vanishes with the first of the two.
///
/// # Errors
/// Those of [`AddedTrack::chunk`]; the folder for temporary files takes no more.
pub(crate) fn write(
    track: &dyn AddedTrack,
    calibrated: &Calibrated,
    format: OutputFormat,
    base_ns: i64,
    ending: &str,
) -> Result<(TempDir, PathBuf), Error> {
    // The merge puts the input's name before that of the process; Kineto's processes have numbers.
    let pid = if format == OutputFormat::Kineto { PID } else { 0 };
    let chunk = track.chunk(calibrated, "probe_sync", pid)?;
    let folder = tempfile::tempdir().map_err(Error::io(&std::env::temp_dir(), "create a folder in"))?;
    let path = folder.path().join(format!("late{ending}"));
    let mut file = TraceFile::create(&path, format, &Meta { base_ns, ..Meta::default() })?;
    file.write(&chunk)?;
    file.commit()?;
    Ok((folder, path))
}

/// The number of the track's process, in formats of one process.
const PID: i64 = 1;
