//! Databases of rocprofv3, written while the program runs.
//!
//! A forked child never takes the writer's lock: the file belongs to the parent.
//! `probe_sync/rocpd.py` has a method for each kind of event.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use probe_sync_rocpd::writer::{Agent, Links, NamedEvent, NamedKind, NamedWriter, Process, Settings};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::traces::duration;

/// A database being written.
#[pyclass(frozen, module = "probe_sync._native")]
#[derive(Debug)]
pub struct RocpdWriter {
    /// Process that owns the file.
    process: u32,
    path: PathBuf,
    /// None once it was closed.
    /// Locked only to take or copy it: an event must not wait for a flush.
    writer: Mutex<Option<Arc<NamedWriter>>>,
}

/// Fields of an event other than its kind, name and times.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
struct Fields {
    category: Option<String>,
    thread: Option<i64>,
    stack_id: i64,
    parent_stack_id: i64,
    correlation_id: i64,
    agent: Option<u32>,
    destination: Option<u32>,
    queue: Option<String>,
    stream: Option<String>,
    size: i64,
    value: f64,
}

#[pymethods]
impl RocpdWriter {
    #[new]
    fn new(py: Python<'_>, path: PathBuf, flush_interval: &str) -> PyResult<Self> {
        let mut settings = Settings { output: path, ..Settings::default() };
        if let Some(interval) = duration("flush_interval", Some(flush_interval))? {
            settings.flush_interval = interval.to_std();
        }
        let writer = py.detach(|| NamedWriter::open(settings, Process::current()));
        let writer = writer.map_err(|error| Failure::of_rocpd(&error))?;
        let path = writer.path().to_owned();
        Ok(Self { process: std::process::id(), path, writer: Mutex::new(Some(Arc::new(writer))) })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Adds a GPU; returns its number for events.
    fn agent(&self, name: String, index: i64) -> PyResult<u32> {
        let indices = Agent { absolute_index: index, logical_index: index, type_index: index, ..Agent::default() };
        self.open(|writer| Ok(writer.agent(Agent { product_name: name.clone(), name, ..indices })))
    }

    /// Records an event; returns False if it was dropped and counted.
    #[expect(clippy::needless_pass_by_value, reason = "Python's arguments are made for the call")]
    fn record(&self, kind: &str, name: &str, start_ns: i64, end_ns: i64, fields: Fields) -> PyResult<bool> {
        let kind = match kind {
            "region" => NamedKind::Region,
            "kernel" => NamedKind::Kernel,
            "copy" => NamedKind::MemoryCopy,
            "counter" => NamedKind::Counter,
            _ => NamedKind::Sample,
        };
        let Fields { stack_id, parent_stack_id, correlation_id, .. } = fields;
        let event = NamedEvent {
            kind,
            name,
            start_ns,
            end_ns,
            category: fields.category.as_deref(),
            thread: fields.thread,
            links: Links { stack_id, parent_stack_id, correlation_id },
            agent: fields.agent,
            destination: fields.destination,
            queue: fields.queue.as_deref(),
            stream: fields.stream.as_deref(),
            bytes: fields.size,
            value: fields.value,
        };
        self.open(|writer| writer.record(&event).map_err(|error| Failure::of_rocpd(&error)))
    }

    /// Commits everything recorded so far, and waits until it is in the file.
    fn flush(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let wrong = |error| Failure::config(format!("timeout={timeout}: {error}"));
        let timeout = Duration::try_from_secs_f64(timeout).map_err(wrong)?;
        py.detach(|| self.open(|writer| writer.flush(timeout).map_err(|error| Failure::of_rocpd(&error))))
    }

    /// Ends the file; returns the numbers of events, dropped events, rows and commits, or None if it
    /// was closed before.
    fn close(&self, py: Python<'_>) -> PyResult<Option<(u64, u64, u64, u64)>> {
        self.refuse_forked()?;
        let report = py.detach(|| {
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
            writer.map(NamedWriter::finish_shared).transpose()
        });
        let report = report.map_err(|error| Failure::of_rocpd(&error))?;
        Ok(report.map(|report| (report.events, report.dropped, report.rows, report.commits)))
    }
}

impl RocpdWriter {
    fn open<T>(&self, act: impl FnOnce(&NamedWriter) -> Result<T, Failure>) -> PyResult<T> {
        self.refuse_forked()?;
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let closed = || Failure::ended(format!("{} is closed; open another Writer", self.path.display()));
        Ok(act(&*writer.ok_or_else(closed)?)?)
    }

    fn refuse_forked(&self) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let text = format!("{} belongs to the parent of this forked process; open a Writer here", self.path.display());
        Err(Failure::ended(text).into())
    }
}
