//! Traces in viewers' formats, written chunk by chunk from arrays.
//!
//! `probe_sync/writer.py` turns arguments into columns of equal length.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use numpy::PyReadonlyArray1;
use probe_sync_formats::Error;
use probe_sync_formats::chunk::{ArgRange, Chunk, Flow, Process, StringId, Track, TrackId, TrackKind};
use probe_sync_writers::{Meta, OutputFormat, TraceFile};
use pyo3::prelude::*;

use crate::errors::Failure;

/// A trace file being written, which appears when it is closed.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    /// None once it was closed, or failed.
    open: Mutex<Option<Open>>,
}

/// Numbers of tracks, slices, instants and counter values, and the size in bytes.
type Written = (u64, u64, u64, u64, u64);

#[derive(Debug)]
struct Open {
    file: TraceFile,
    /// Tracks of all chunks written.
    written_tracks: usize,
    /// The next chunk, with the tracks declared since the last one.
    next: Chunk,
}

#[pymethods]
impl TraceWriter {
    #[new]
    fn new(path: PathBuf, format: &str, base_ns: i64, metadata: Vec<(String, String)>) -> PyResult<Self> {
        let format = match format {
            "pftrace" => OutputFormat::Perfetto,
            "json" => OutputFormat::ChromeJson,
            "kineto" => OutputFormat::Kineto,
            "xspace" => OutputFormat::XSpace,
            other => {
                let text = format!("format={other:?}: give \"pftrace\", \"json\", \"kineto\" or \"xspace\"");
                return Err(Failure::config(text).into());
            }
        };
        let meta = Meta { base_ns, metadata, ..Meta::default() };
        let file = TraceFile::create(&path, format, &meta).map_err(Failure::of_traces)?;
        Ok(Self { path, open: Mutex::new(Some(Open { file, written_tracks: 0, next: Chunk::default() })) })
    }

    /// Declares the track of a process; returns its number.
    fn process(&self, py: Python<'_>, name: String, pid: i64, host: String, rank: Option<u32>) -> PyResult<u32> {
        let process = Process { pid, host, rank, ..Process::default() };
        self.declare(py, Track { parent: None, kind: TrackKind::Process(process), name })
    }

    /// Declares a track below another; returns its number. `tid` is of threads, `unit` of counters.
    fn track(&self, py: Python<'_>, kind: &str, name: String, parent: u32, tid: i64, unit: String) -> PyResult<u32> {
        let kind = match kind {
            "thread" => TrackKind::Thread { tid },
            "agent" => TrackKind::Agent,
            "queue" => TrackKind::Queue,
            "stream" => TrackKind::Stream,
            _ => TrackKind::Counter { unit },
        };
        self.declare(py, Track { parent: Some(TrackId(parent)), kind, name })
    }

    /// Writes slices, or with no ends instants.
    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
    fn events(
        &self,
        py: Python<'_>,
        track: PyReadonlyArray1<'_, u32>,
        names: Vec<String>,
        categories: Vec<String>,
        starts_ns: PyReadonlyArray1<'_, i64>,
        ends_ns: Option<PyReadonlyArray1<'_, i64>>,
    ) -> PyResult<()> {
        let (track, starts) = (tracks(&track), starts_ns.as_array().to_vec());
        let ends = ends_ns.map(|ends| ends.as_array().to_vec());
        self.write(py, |chunk| {
            let mut intern =
                |texts: &[String]| -> Vec<StringId> { texts.iter().map(|text| chunk.strings.intern(text)).collect() };
            let (name, category) = (intern(&names), intern(&categories));
            let args = vec![ArgRange::default(); track.len()];
            match ends {
                Some(ends) => {
                    chunk.slices.flow = vec![Flow::default(); track.len()];
                    (chunk.slices.track, chunk.slices.args) = (track, args);
                    (chunk.slices.start_ns, chunk.slices.end_ns) = (starts, ends);
                    (chunk.slices.name, chunk.slices.category) = (name, category);
                }
                None => {
                    (chunk.instants.track, chunk.instants.args) = (track, args);
                    chunk.instants.time_ns = starts;
                    (chunk.instants.name, chunk.instants.category) = (name, category);
                }
            }
        })
    }

    /// Writes values of counter tracks.
    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
    fn counters(
        &self,
        py: Python<'_>,
        track: PyReadonlyArray1<'_, u32>,
        times_ns: PyReadonlyArray1<'_, i64>,
        values: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<()> {
        let (track, times) = (tracks(&track), times_ns.as_array().to_vec());
        let values = values.as_array().to_vec();
        self.write(py, |chunk| {
            chunk.counters.track = track;
            chunk.counters.time_ns = times;
            chunk.counters.value = values;
        })
    }

    /// Ends the file, which gets its name; returns what was written, or None if it was closed
    /// before.
    fn close(&self, py: Python<'_>) -> PyResult<Option<Written>> {
        let report = py.detach(|| {
            let Some(Open { mut file, next, .. }) = self.take() else { return Ok(None) };
            file.write(&next)?;
            file.commit().map(Some)
        });
        let report = report.map_err(|error| refused(&self.path, error))?;
        Ok(report.map(|report| (report.tracks, report.slices, report.instants, report.counters, report.bytes)))
    }

    /// Abandons the file, of which nothing remains.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| drop(self.take()));
    }
}

impl TraceWriter {
    fn declare(&self, py: Python<'_>, track: Track) -> PyResult<u32> {
        // Another thread may be writing a chunk.
        py.detach(|| {
            self.with(|open| {
                open.next.tracks.push(track);
                Ok((open.written_tracks + open.next.tracks.len() - 1) as u32)
            })
        })
    }

    /// Fills the next chunk and writes it. An invalid chunk is refused and changes nothing; after
    /// any other error the file is abandoned, because a part of the chunk may be in it.
    fn write(&self, py: Python<'_>, fill: impl FnOnce(&mut Chunk) + Send) -> PyResult<()> {
        let result = py.detach(|| {
            self.with(|open| {
                fill(&mut open.next);
                let mut chunk = std::mem::take(&mut open.next);
                let result = chunk.check(open.written_tracks).and_then(|()| open.file.write(&chunk));
                match &result {
                    Ok(()) => open.written_tracks += chunk.tracks.len(),
                    // They are declared with the next chunk.
                    Err(_) => open.next.tracks = std::mem::take(&mut chunk.tracks),
                }
                Ok(result)
            })
        })?;
        result.map_err(|error| {
            if !matches!(error, Error::Chunk { .. }) {
                py.detach(|| drop(self.take()));
            }
            refused(&self.path, error).into()
        })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Open) -> Result<T, Failure>) -> PyResult<T> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || Failure::ended(format!("{} is closed; open another TraceWriter", self.path.display()));
        Ok(act(open.as_mut().ok_or_else(closed)?)?)
    }

    fn take(&self) -> Option<Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn tracks(track: &PyReadonlyArray1<'_, u32>) -> Vec<TrackId> {
    track.as_array().iter().map(|track| TrackId(*track)).collect()
}

/// Converts an error of a writer: an invalid chunk is an invalid argument here.
fn refused(path: &Path, error: Error) -> Failure {
    match error {
        Error::Chunk { problem } => Failure::config(format!("{}: {problem}", path.display())),
        other => Failure::of_traces(other),
    }
}
